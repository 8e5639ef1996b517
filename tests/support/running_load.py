"""The clients' load of the end-to-end tests as a process of this machine, against brokers that are processes, too."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from e2e.clients.kafka_clients.watch.moments import Moment
from e2e.harness.load import ClientImpact, client_impact
from tests.support.kafka_processes import KafkaProcesses, wait_for
from tests.support.programs import die_with_parent

ROOT: Final = Path(__file__).resolve().parents[2]
SETTINGS: Final = (
    "transaction.state.log.num.partitions=1\ntransaction.state.log.min.isr=2\n"
    "offsets.topic.replication.factor=3\n"
    "group.initial.rebalance.delay.ms=0\nlog.retention.check.interval.ms=1000\n"
    "log.initial.task.delay.ms=1000\n"
)
"""Of the brokers. A retention pass each second: a static retention that becomes true for a moment deletes."""
KEPT_IN_KRAFT: Final = "log.retention.ms=-1\n"
"""Of brokers in KRaft mode, as preflight asks for it: they start with the static value before they know the dynamic default."""
MOVED_TOPIC: Final = "load-moved"
"""Whose replicas the load moves from broker to broker (``kafka_clients.seed``)."""

_PREPARE: Final = """
from kafka_clients.cluster import WireAdmin, confluent_admin
from kafka_clients.seed import KEEP_EVERYTHING, load_topics
admin = confluent_admin()
for outcome in admin.create_topics(load_topics()).values():
    outcome.result(60)
WireAdmin().set_broker_configs("", KEEP_EVERYTHING)
"""


class RunningLoad:
    """The load as a process of this machine."""

    def __init__(self, processes: KafkaProcesses) -> None:
        self.moments = processes.directory / "moments"
        self.moments.mkdir()
        self._environment = {
            **os.environ,
            "KAFKA_BOOTSTRAP": processes.bootstrap_servers,
            "PYTHONPATH": str(ROOT / "e2e/clients"),
            "PYTHONUNBUFFERED": "1",
        }
        self._output = processes.directory / "load.jsonl"
        self.script(_PREPARE)
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "kafka_clients.loadgen", "--moments", str(self.moments)],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._environment,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - one C call, no locks
            )
        wait_for("records flow", self._flows)

    def script(self, text: str) -> None:
        """Do something to the cluster with the load's own modules, as a user would."""
        done = subprocess.run(
            [sys.executable, "-c", text],
            check=False,
            capture_output=True,
            text=True,
            env=self._environment,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr[-3000:]

    def tell(self, moment: Moment) -> None:
        """Tell the load of a moment of the migration."""
        (self.moments / moment).touch()

    def signal(self, how: signal.Signals) -> None:
        """Send the load a signal."""
        self._process.send_signal(how)

    def stop(self) -> ClientImpact:
        """Let the load drain its topics, and return what its clients went through."""
        self.signal(signal.SIGTERM)
        self._process.wait(280)
        lines = self.lines()
        assert lines, self._output.read_text()[-3000:]
        assert lines[-1].get("final"), self._output.read_text()[-3000:]
        impact = client_impact(lines)
        print(f"prepared in {lines[-1]['prepared_s']} s, balances drawn in {lines[-1]['balanced_s']} s")
        for balance in impact.watched:
            print(f"{balance.subject}: {balance.said} {list(balance.broken)}")
        return impact

    def kill(self) -> None:
        """End the load at once."""
        self._process.kill()
        self._process.wait(10)

    def lines(self) -> list[dict[str, Any]]:
        """Return what the load has printed."""
        return [json.loads(line) for line in self._output.read_text().splitlines() if line.startswith("{")]

    def _flows(self) -> bool:
        assert self._process.poll() is None, self._output.read_text()[-3000:]
        lines = self.lines()
        return bool(lines) and lines[-1]["acked"] > 0 and lines[-1]["received"] > 0


@contextmanager
def running_load(processes: KafkaProcesses) -> Iterator[RunningLoad]:
    """Run the load, and end it afterwards whatever happens."""
    load = RunningLoad(processes)
    try:
        yield load
    finally:
        load.kill()
