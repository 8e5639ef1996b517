"""Runs Kafka's own migration on a copy of a cluster's metadata, with a scratch ZooKeeper and a real controller."""
