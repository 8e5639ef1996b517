"""Reads the metadata in ZooKeeper and in Kafka's metadata log, as canonical entities that can be compared.

The operator and the verification job share this package. It imports neither Kubernetes clients nor Spark.
"""
