"""Clients of Kubernetes, ZooKeeper, Kafka and its metrics, one module each. `ports` has their interfaces."""
