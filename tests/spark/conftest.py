"""One Spark session for all tests of a run: it takes long to start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.live_cluster import ENCODER_SECRET, LiveCluster

from kraftbridge.models.report import VerificationReport
from kraftbridge.verification.job import verify_live
from kraftbridge.verification.run import open_session


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "/tests/spark/" in str(item.path):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture
def check(spark: SparkSession, cluster: LiveCluster, tmp_path: Path) -> Callable[..., VerificationReport]:
    """Verify the module's cluster, with the secret that its brokers encode passwords with."""
    secret = tmp_path / "secret"
    secret.write_text(ENCODER_SECRET)

    def run(**options: object) -> VerificationReport:
        report = verify_live(spark, cluster.request(password_encoder_secret_path=str(secret), **options))
        # Shown by pytest where the test fails, which otherwise cuts a report short.
        print(report.verdict, report.reason, *(each.to_json() for each in report.differences[:20]), sep="\n  ")
        return report

    return run


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = open_session(local=True)
    yield session
    session.stop()
