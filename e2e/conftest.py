"""The cluster that end-to-end tests use. The tests refuse to use another one."""

from collections.abc import Iterator

import pytest
from e2e.harness.kube import Kube, current_kube
from e2e.harness.sole_use import sole_use


@pytest.fixture(scope="session")
def kube() -> Iterator[Kube]:
    """The embedded cluster without what earlier runs left, or that of ``KUBE_CONTEXT``; the harness refuses namespaces that it did not make."""
    found = current_kube()
    with sole_use(found):
        yield found
