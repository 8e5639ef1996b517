"""Programs that use a Kafka cluster as its owners would; each runs in a pod as ``python -m kafka_clients.NAME``."""
