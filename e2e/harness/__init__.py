"""Creates a user's Kafka cluster, migrates it, and measures the impact on its clients."""
