"""The cluster that end-to-end tests use, and a guard that keeps them off anybody else's."""

import pytest
from e2e.harness.kube import Kube, current_kube


@pytest.fixture(scope="session")
def kube() -> Kube:
    """The embedded cluster, or that of ``KUBE_CONTEXT``; the harness refuses namespaces that it did not make."""
    return current_kube()
