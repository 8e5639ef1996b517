"""Restarts of brokers and controllers, one node at a time. Pure.

What the phases use to bring every node to a configuration.
"""
