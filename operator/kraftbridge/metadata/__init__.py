"""The metadata library: what ZooKeeper and Kafka's metadata log hold, as canonical entities that can be compared.

Shared by the operator and the verification job; knows neither Kubernetes nor Spark.
"""
