"""When the controller's output shows that Kafka cannot continue, and when it only waits for registrations."""

from __future__ import annotations

from pathlib import Path

from kraftbridge.rehearsal.controller_log import ControllerLog


def _waiting(*brokers: int) -> str:
    return (
        f"[2026-11-22 23:59:58,100] INFO [KRaftMigrationDriver id=3000] Still waiting for ZK brokers {list(brokers)} "
        "to register with KRaft. (org.apache.kafka.metadata.migration.KRaftMigrationDriver)\n"
    )


def _retries(path: Path, *lines: str) -> int:
    path.write_text("".join(lines))
    log = ControllerLog(path)
    log.read_on()
    return log.retries


def test_each_registration_that_arrives_is_progress(tmp_path: Path) -> None:
    lines = [_waiting(*range(missing, 9)) for missing in range(9)]
    assert _retries(tmp_path / "controller.log", *lines) == 1


def test_the_same_broker_waited_for_again_and_again_is_no_progress(tmp_path: Path) -> None:
    lines = [_waiting(1, 99), *[_waiting(99)] * 6]
    assert _retries(tmp_path / "controller.log", *lines) == 6
