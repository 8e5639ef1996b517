"""Runs Kafka's own migration on a copy of a cluster's metadata: a scratch ZooKeeper, a real controller, and substitutes for the brokers."""
