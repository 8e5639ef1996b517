"""Kafka's own migration on a copy of a cluster's metadata: one scratch ZooKeeper, one real controller, registrations in place of brokers."""
