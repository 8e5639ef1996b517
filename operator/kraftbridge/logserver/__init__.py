"""A read-only HTTPS server for a controller's metadata log, run as a sidecar of the controller's pod.

The verification job reads the log through it, so nothing shares the controllers' volumes.
"""
