"""What Prometheus is told of a migration; what is not known has no sample."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import REGISTRY

from kraftbridge import __version__
from kraftbridge.models.phase import Phase
from kraftbridge.models.status import MigrationStatus
from kraftbridge.services import metrics

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
LABELS = {"namespace": "kafka", "name": "demo"}


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    metrics.forget("kafka", "demo")


def export(**fields: Any) -> None:
    metrics.export("kafka", "demo", MigrationStatus.model_validate(fields))


def sample(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(f"kraftbridge_{name}", LABELS | labels)


def at(seconds: float) -> str:
    return (NOW + timedelta(seconds=seconds)).isoformat()


def test_the_build_is_told() -> None:
    assert REGISTRY.get_sample_value("kraftbridge_build_info", {"version": __version__}) == 1


def test_progress_of_brokers_and_phase() -> None:
    history = [
        {"phase": "Preflight", "enteredAt": at(0), "leftAt": at(9)},
        {"phase": "RollingBrokers", "enteredAt": at(9)},
    ]
    export(phase="RollingBrokers", brokers={"total": 3, "inMode": 2}, history=history, progressAt=at(20))
    assert (sample("brokers"), sample("brokers_in_mode")) == (3, 2)
    assert sample("migration_phase_entered_timestamp_seconds") == NOW.timestamp() + 9
    assert sample("migration_progress_timestamp_seconds") == NOW.timestamp() + 20
    assert sample("migration_phase", phase="RollingBrokers") == 1
    assert sample("migration_phase", phase="Preflight") == 0


@pytest.mark.parametrize(
    ("high_watermark", "offset", "lag"), [("101", "100", 0), ("150", "100", 49), ("90", "100", 0), (None, "100", None)]
)
def test_mirror_lag_counts_what_zookeeper_lacks(high_watermark: str | None, offset: str, lag: int | None) -> None:
    export(
        phase="DualWrite",
        quorum={"highWatermark": high_watermark, "maxLagRecords": "4"},
        migrationOffset={"offset": offset, "seenAt": at(0)},
    )
    assert sample("mirror_lag_records") == lag
    assert sample("quorum_lag_records") == 4


@pytest.mark.parametrize("phase", [Phase.FINALIZING, Phase.COMPLETED, Phase.ROLLED_BACK])
def test_without_a_mirror_there_is_no_lag(phase: Phase) -> None:
    known = {"quorum": {"highWatermark": "5000"}, "migrationOffset": {"offset": "100", "seenAt": at(0)}}
    export(phase="AwaitingFinalization", **known)
    assert sample("mirror_lag_records") == 4899
    export(phase=phase.value, **known)
    assert sample("mirror_lag_records") is None


@pytest.mark.parametrize("phase", [Phase.COMPLETED, Phase.ROLLED_BACK])
def test_the_last_answer_of_the_quorum_is_not_its_lag_for_ever(phase: Phase) -> None:
    known = {"quorum": {"highWatermark": "50", "maxLagRecords": "12"}}
    export(phase="Finalizing", **known)
    assert sample("quorum_lag_records") == 12
    export(phase=phase.value, **known)
    assert sample("quorum_lag_records") is None


def test_what_is_no_longer_known_has_no_sample() -> None:
    export(phase="DualWrite", quorum={"highWatermark": "10", "maxLagRecords": "4"}, progressAt=at(1))
    export(phase="DualWrite")
    assert sample("quorum_lag_records") is None
    assert sample("migration_progress_timestamp_seconds") is None


def test_age_and_duration_of_the_last_verdict() -> None:
    def run(number: int, **fields: Any) -> dict[str, Any]:
        return {
            "runId": f"demo-v{number}", "profile": "dual-write", "gate": "RollingBrokers", "purpose": "entry", "generation": 1,
            "launchedAt": at(0), "releasedAt": at(10 * number),
        } | fields  # fmt: skip

    first, second = run(1, finishedAt=at(13), verdict="Consistent"), run(2, finishedAt=at(27), verdict="Consistent")
    export(phase="DualWrite", verifications=[first, second, run(3)])
    assert sample("verification_finished_timestamp_seconds", profile="dual-write") == NOW.timestamp() + 27
    assert sample("verification_duration_seconds", profile="dual-write") == 7


def test_outages_are_those_of_this_attempt() -> None:
    outages = [
        {"phase": "TakingOver", "attempt": 1, "milliseconds": 9000, "endedAt": at(1)},
        {"phase": "TakingOver", "attempt": 2, "milliseconds": 1500, "endedAt": at(2)},
    ]
    export(phase="DualWrite", attempt=2, impact={"controllerUnavailable": outages})
    assert sample("controller_unavailable_seconds", phase="TakingOver") == 1.5


def test_a_migration_that_is_gone_has_no_sample_at_all() -> None:
    export(phase="DualWrite", brokers={"total": 3, "inMode": 2}, progressAt=at(1), quorum={"maxLagRecords": "4"})
    metrics.forget("kafka", "demo")
    assert [s for family in REGISTRY.collect() for s in family.samples if s.labels.get("name") == "demo"] == []


def test_the_end_of_a_certificate_is_that_of_the_process_and_not_of_the_secret() -> None:
    def presented(node: int, end: str) -> dict[str, object]:
        return {
            "nodeId": node,
            "process": "p",
            "fingerprint": "f",
            "beginsAt": at(0),
            "expiresAt": end,
            "seenAt": at(1),
        }

    secrets = {"authoritySecret": "a", "controllersSecret": "c", "brokersSecret": "b", "brokersExpireAt": at(9000), "controllersExpireAt": at(9000)}  # fmt: skip
    export(
        phase="Completed",
        presented=[presented(3000, at(500)), presented(3001, at(400))],
        listenerCertificates=secrets | {"brokersRunUntil": at(300)},
    )
    assert sample("certificate_expires_timestamp_seconds", role="controller") == NOW.timestamp() + 400
    assert sample("certificate_expires_timestamp_seconds", role="broker") == NOW.timestamp() + 300
    export(phase="Completed", listenerCertificates=secrets)
    assert sample("certificate_expires_timestamp_seconds", role="controller") is None
    assert sample("certificate_expires_timestamp_seconds", role="broker") is None
