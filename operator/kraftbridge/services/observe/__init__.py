"""Reads the state of Kubernetes, ZooKeeper and Kafka into the types that `decide` takes."""
