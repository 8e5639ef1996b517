"""Clusters of old releases of Kafka on the way to KRaft, on real processes, with clients at work; kept results."""
