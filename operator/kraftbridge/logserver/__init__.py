"""A read-only HTTPS endpoint for a controller's metadata log: a sidecar of the controller's pod.

The verification job reads the log through it, so that nothing has to share the controllers' volumes.
"""
