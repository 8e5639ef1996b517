"""Restarts of brokers and controllers, one node at a time; what the phases use to bring every node to a configuration. Pure."""
