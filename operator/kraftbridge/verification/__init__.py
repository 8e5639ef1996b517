"""The verification: a Spark job that compares all metadata between ZooKeeper, the voters' logs and the brokers."""
