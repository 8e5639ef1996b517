"""Benchmarks of the verification: `python -m bench.run` from the repository's root."""
