"""Odd ZooKeeper trees: what Kafka's own controllers make of them, and what the tree check says before."""
