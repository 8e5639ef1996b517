"""Kafka's part of a ZooKeeper tree: reading, dumps, decoding, and the entities in it."""
