"""Spark data sources: the ZooKeeper tree, the voters' logs, and what each broker serves."""
