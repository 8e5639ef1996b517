"""kraftbridge takes a live ZooKeeper-based Apache Kafka cluster to KRaft and proves that no metadata was lost."""

__version__ = "0.1.0"
