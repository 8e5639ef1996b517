"""Clients of Kubernetes, ZooKeeper, the brokers and the controllers, one module each. `ports` has their interfaces."""
