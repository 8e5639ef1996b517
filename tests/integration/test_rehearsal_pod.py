"""A rehearsal whose processes run elsewhere and are told by files what to do, as in a pod; here two shells stand for its containers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.kafka_processes import kafka_libraries
from tests.support.traps import CHROOT, TRAPS, planted

from kraftbridge.rehearsal.pod import RUNNER, PodProcesses
from kraftbridge.rehearsal.rehearse import RehearsalOptions, rehearse_with

pytestmark = pytest.mark.integration
Containers = list[subprocess.Popen[bytes]]


@pytest.fixture
def containers(tmp_path: Path) -> Iterator[Containers]:
    started = [
        subprocess.Popen(["/bin/sh", "-c", RUNNER], env={**os.environ, "WORK": str(tmp_path), "NAMES": names})
        for names in ("zookeeper", "format controller")
    ]
    try:
        yield started
    finally:
        for container in started:
            container.kill()
            container.wait(10)


@pytest.mark.parametrize("name", ["none", "broker-config-abc"])
def test_a_rehearsal_in_a_pod_answers_as_one_on_this_machine(
    name: str, containers: Containers, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    trap = TRAPS[name]
    dump = planted(trap, tmp_path_factory.mktemp("dump") / "zk.jsonl")
    processes = PodProcesses(str(kafka_libraries()), tmp_path)

    result = rehearse_with(processes, dump, RehearsalOptions(kafka_libraries(), tmp_path, CHROOT, trap.settings))
    processes.close()

    assert (result.ending, result.verdict) == (trap.ending, trap.verdict), result.to_json(indent=1)
    assert [container.wait(30) for container in containers] == [0, 0]  # the pod ends, with what ran in it


def test_a_container_that_is_never_asked_ends_with_the_pod(containers: Containers, tmp_path: Path) -> None:
    PodProcesses("unused", tmp_path).close()
    assert [container.wait(10) for container in containers] == [0, 0]
