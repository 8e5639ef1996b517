"""Spark data sources: the ZooKeeper tree, the voters' logs, and the metadata that each broker serves."""
