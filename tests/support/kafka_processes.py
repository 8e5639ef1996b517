"""Real ZooKeeper and Kafka 3.9 processes on this host, loopback only, for the integration tests.

Nothing outlives the test run: processes die with the process that started them (also by SIGKILL), and directories that
a killed run left behind are removed by the next one.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from kraftbridge.benchmark.processes import (
    CHROOT,
    FINAL,
    KRAFT,
    MIGRATION,
    ZOOKEEPER,
    KafkaProcesses,
    free_port,
    installed_tool,
)

__all__ = [
    "CHROOT",
    "FINAL",
    "KRAFT",
    "MIGRATION",
    "ZOOKEEPER",
    "KafkaProcesses",
    "free_port",
    "kafka_libraries",
    "kafka_processes",
    "wait_for",
]

KAFKA_VERSION = "3.9.1"
POM = Path(__file__).resolve().parents[1] / "integration" / "kafka-libs.pom.xml"
_DIRECTORY_PREFIX = "kraftbridge-kafka-processes-"

T = TypeVar("T")
P = TypeVar("P", bound=KafkaProcesses)


def kafka_libraries(version: str = KAFKA_VERSION) -> Path:
    """Return the directory with the jars of a release of Kafka, fetching them by Maven once per machine."""
    maven = installed_tool("mvn", "maven", "the integration tests")
    installed_tool("java", "openjdk-17-jre-headless", "the integration tests")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kraftbridge" / "kafka-libs"
    cache.mkdir(parents=True, exist_ok=True)
    libraries = cache / version
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp, pom = libraries / "pom.xml", cache / f"pom-{version}.xml"
        text = POM.read_text().replace(f"<version>{KAFKA_VERSION}<", f"<version>{version}<")
        if stamp.exists() and stamp.read_text() == text:
            return libraries
        pom.write_text(text)
        shutil.rmtree(libraries, ignore_errors=True)
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={libraries}", "-DincludeScope=runtime"]
        command = [maven, "-q", "-B", "-f", str(pom), *goal]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=900)
        if done.returncode:
            raise RuntimeError(f"Maven could not fetch Kafka {version}:\n{done.stdout[-4000:]}{done.stderr}")
        stamp.write_text(text)  # last: only a complete directory has it
    return libraries


def wait_for(what: str, condition: Callable[[], T | None], timeout_seconds: float = 60.0) -> T:
    """Return what ``condition`` returns once it is true; exceptions of the domain count as "not yet"."""
    from kraftbridge.exceptions import MigrationError

    deadline = time.monotonic() + timeout_seconds
    last: object = None
    while time.monotonic() < deadline:
        try:
            last = condition()
        except MigrationError as e:
            last = e
        else:
            if last:
                return last
        time.sleep(0.1)
    raise AssertionError(f"{what}: not after {timeout_seconds:.0f} s; last seen: {last}")


@contextmanager
def kafka_processes(
    broker_ids: Sequence[int], controller_ids: Sequence[int], kind: type[P] = KafkaProcesses
) -> Iterator[P]:
    """Give a directory and ports for these nodes, none started yet; end and remove everything afterwards."""
    _remove_leftovers()
    libraries = kafka_libraries()
    directory = Path(tempfile.mkdtemp(prefix=f"{_DIRECTORY_PREFIX}{os.getpid()}-"))
    agent = next(libraries.glob("jmx_prometheus_javaagent-*.jar"))
    processes = kind(directory, libraries, broker_ids, controller_ids, agent)
    try:
        yield processes
    finally:
        processes.close()


def _remove_leftovers() -> None:
    """Remove directories of runs whose process is gone."""
    for directory in Path(tempfile.gettempdir()).glob(f"{_DIRECTORY_PREFIX}*"):
        pid = directory.name.removeprefix(_DIRECTORY_PREFIX).partition("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(directory, ignore_errors=True)
