"""The verification: a Spark job that compares every piece of metadata between ZooKeeper, the voters' logs and the brokers."""
