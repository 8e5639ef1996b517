"""Kafka's part of a ZooKeeper tree: sessions, reading, dumps, decoding, and entities."""
