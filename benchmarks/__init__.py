"""Benchmarks: metadata changes on ZooKeeper and on a KRaft quorum (`quorum`), and the speed of the verification (`verification`).

No part of the operator and in none of its images; ``python -m benchmarks`` runs them from the top of the repository.
"""
