"""The verification: a Spark job that compares every piece of metadata between the places that hold it."""
