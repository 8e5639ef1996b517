"""The quorum benchmark: the same Kafka cluster on ZooKeeper, in dual-write and on KRaft, under metadata changes (KIP-595)."""
