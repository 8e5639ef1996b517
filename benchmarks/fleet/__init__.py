"""Measures the operator with many migrations: idle ones, ones with silent clusters, and rolling ones beside them."""
