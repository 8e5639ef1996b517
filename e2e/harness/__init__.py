"""Brings up a Kafka cluster that belongs to somebody else, migrates it, and measures what its clients felt."""
