from __future__ import annotations

import pytest
from tests.support.kafka_processes import kafka_libraries


@pytest.fixture(scope="session", autouse=True)
def _libraries() -> None:
    """Fetch Kafka before any test's own time runs; fails, never skips, without Java or Maven."""
    kafka_libraries()
