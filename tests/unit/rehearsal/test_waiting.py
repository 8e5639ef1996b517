"""When the output of a controller means that Kafka never begins; lines as Kafka 3.9.1 writes them."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from kraftbridge.models.rehearsal import Ending
from kraftbridge.rehearsal.controller_log import ControllerLog
from kraftbridge.rehearsal.rehearse import RehearsalOptions, _Rehearsal

_DRIVER = "(org.apache.kafka.metadata.migration.KRaftMigrationDriver)"
_WAITS = f"[2026-11-22 23:51:4{{}},120] INFO [KRaftMigrationDriver id=3000] Still waiting for ZK brokers [5] to register with KRaft. {_DRIVER}\n"
_REGISTERED = f"[2026-11-22 23:51:49,330] INFO [KRaftMigrationDriver id=3000] Zk brokers are registered and ready for migration {_DRIVER}\n"
_DUAL_WRITE = f"[2026-11-22 23:51:50,330] INFO [KRaftMigrationDriver id=3000] 3000 transitioning from SYNC_KRAFT_TO_ZK to DUAL_WRITE state {_DRIVER}\n"


class _Running:
    """Processes that run."""

    def exit_code(self, _: str) -> int | None:
        return None


def watched(folder: Path, before: str, later: str, seconds: float, timeout: float = 30) -> Ending:
    """Return how a controller ends that wrote one text before the registrations, and another some time after them."""
    file = folder / "controller.log"
    file.write_text(before)
    options = RehearsalOptions(Path(), folder, timeout_seconds=timeout)
    rehearsal = _Rehearsal(folder / "zk.jsonl", options, folder, _Running())  # type: ignore[arg-type] - exit_code is all that is asked

    def write() -> None:
        with file.open("a") as log:
            log.write(later)

    timer = threading.Timer(seconds, write)
    timer.start()
    rehearsal._watch(ControllerLog(file))
    timer.join()
    return rehearsal.ending


def test_what_kafka_repeated_until_the_brokers_were_registered_does_not_count(tmp_path: Path) -> None:
    """On a busy machine the last registration came after six lines, and the rehearsal said `Fails`."""
    waits = "".join(_WAITS.format(second) for second in range(8))
    assert watched(tmp_path, waits, _REGISTERED + _DUAL_WRITE, 1.0) is Ending.DUAL_WRITE


def test_what_kafka_repeats_afterwards_does(tmp_path: Path) -> None:
    waits = "".join(_WAITS.format(second) for second in range(6))
    assert watched(tmp_path, "", waits, 0.3) is Ending.NEVER_BEGINS


def test_few_repetitions_count_after_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses double up to 20 s, so a controller that waited long already repeats a line rarely."""
    monkeypatch.setattr("kraftbridge.rehearsal.rehearse._LONG_WITHOUT_PROGRESS_SECONDS", 1.0)
    waits = "".join(_WAITS.format(second) for second in range(2))
    began = time.monotonic()
    assert watched(tmp_path, waits * 4, waits, 0.2) is Ending.NEVER_BEGINS
    assert time.monotonic() - began < 10
