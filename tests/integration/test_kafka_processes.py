"""The host processes themselves: nothing outlives a killed test run, and a missing tool is an error, not a skip."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.kafka_processes import kafka_libraries, kafka_processes

pytestmark = pytest.mark.integration

RUN = """
import time
from tests.support.kafka_processes import kafka_processes
with kafka_processes([], []) as processes:
    processes.start_zookeeper()
    print(processes.directory, processes._processes["zookeeper"].pid, flush=True)
    time.sleep(60)
"""


def is_running(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


def test_nothing_outlives_a_killed_run() -> None:
    root = Path(__file__).resolve().parents[2]
    run = subprocess.Popen(
        [sys.executable, "-c", RUN], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(root)}
    )
    directory, pid = run.stdout.readline().split()
    assert is_running(int(pid))
    run.send_signal(signal.SIGKILL)
    run.wait(10)
    run.stdout.close()
    deadline = time.monotonic() + 10
    while is_running(int(pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(int(pid))
    assert Path(directory).exists()
    with kafka_processes([], []) as following:
        assert not Path(directory).exists()
        assert following.directory.exists()
    assert not following.directory.exists()


@pytest.mark.parametrize("tool", ["mvn", "java"])
def test_a_missing_tool_is_an_error_that_names_it(tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for other in {"mvn", "java"} - {tool}:
        (tmp_path / other).symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match=f"need {tool}: install it"):
        kafka_libraries()


def test_a_failed_download_is_an_error_with_mavens_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maven = tmp_path / "mvn"
    maven.write_text("#!/bin/sh\necho 'Could not resolve dependencies'\nexit 1\n")
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(RuntimeError, match="Could not resolve dependencies"):
        kafka_libraries()
    assert not list((tmp_path / "cache").rglob("*.jar"))
