"""A voter whose volume is lost, on real processes: a person formats a blank one, and the operator's own decision records its claim only once it has every committed record.

Three voters and a broker that never had a ZooKeeper. Kubernetes is left out: its part of the observation says at once that the pod is Ready on another claim.
"""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import pytest
from confluent_kafka.admin import NewTopic
from tests.integration.test_metadata_version import CLUSTER_ID, seen
from tests.support.kafka_processes import FINAL, KRAFT, KafkaProcesses, ProcessFailedError, kafka_processes, wait_for
from tests.support.observations import IDENTITY, open_gate

from kraftbridge.models.catalogue import Code
from kraftbridge.models.observation import (
    ControllerMetrics,
    ControllersWorkload,
    Observation,
    Unobserved,
)
from kraftbridge.models.phase import Phase
from kraftbridge.models.spec import ReformatSpec
from kraftbridge.models.status import MigrationStatus
from kraftbridge.phases.draft import Migration
from kraftbridge.phases.machine import decide
from kraftbridge.storage.kafka_brokers import BrokerClient
from kraftbridge.storage.kafka_controllers import ControllerClient, fetch_page, read_controller_metrics

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.xdist_group("kafka-processes")]

VOTERS, LOST, BROKER = (3000, 3001, 3002), 3002, 0
TOPICS, PARTITIONS = tuple(f"topic-{number}" for number in range(10)), 100
NEW_CLAIM = "pvc-new"


class Operator:
    """The operator's mind on real voters, of which one has another claim."""

    def __init__(self, processes: KafkaProcesses) -> None:
        self.processes = processes
        self.brokers = BrokerClient(processes.bootstrap_servers, {})
        self.controllers = ControllerClient(processes.controller_addresses, {})
        fine = open_gate(Phase.COMPLETED)
        word = ReformatSpec(id=LOST, claim_uid=NEW_CLAIM)
        self.fine = fine.asking(controllers=fine.spec.controllers.model_copy(update={"reformat": word}))
        self.status: MigrationStatus = self.fine.status
        self.high_watermarks: list[int] = []

    def close(self) -> None:
        self.brokers.close()
        self.controllers.close()

    def step(self) -> None:
        self.status = decide(
            Migration(IDENTITY, self.fine.spec, self.status), self._observe(), datetime.now(UTC)
        ).status

    @property
    def recorded(self) -> bool:
        known = self.status.controllers
        assert known is not None
        named = Code.CONTROLLER_CLAIMS_LOST in {f.code for f in self.status.findings}
        assert named is (known.volume_uids[str(LOST)] != NEW_CLAIM), "the finding stands until the claim is recorded"
        return not named

    def _observe(self) -> Observation:
        quorum = seen(self.controllers.quorum_state)
        # A new leader knows none before its followers have fetched.
        if not isinstance(quorum, Unobserved) and quorum.high_watermark >= 0:
            self.high_watermarks.append(quorum.high_watermark)
        metrics: dict[int, ControllerMetrics | Unobserved] = {
            voter: seen(partial(read_controller_metrics, voter, "127.0.0.1", port, 2.0))
            for voter, port in self.processes.metrics_ports.items()
        }
        workload = self.fine.observation.controllers
        assert isinstance(workload, ControllersWorkload)
        claims = {voter: f"pvc-{voter}" for voter in VOTERS} | {LOST: NEW_CLAIM}
        exchanged = replace(workload, claims=claims, reformat=LOST)
        return replace(
            self.fine.observation, at=datetime.now(UTC), quorum=quorum, metrics=metrics, controllers=exchanged
        )


def log_end(processes: KafkaProcesses, voter: int) -> int:
    """Return the end of a voter's own log."""
    page = fetch_page("127.0.0.1", processes.metrics_ports[voter], time.monotonic() + 5)
    line = next(n for n in page.splitlines() if n.startswith("kafka_server_raft_metrics_log_end_offset "))
    return int(float(line.split()[1]))


def committed_under_another(operator: Operator, leader: int) -> int | None:
    """Return the high watermark once another voter leads and knows it."""
    quorum = operator.controllers.quorum_state()
    return quorum.high_watermark if quorum.leader_id != leader and quorum.high_watermark >= 0 else None


@pytest.fixture
def operator() -> Iterator[Operator]:
    with kafka_processes((BROKER,), VOTERS) as processes:
        for voter in VOTERS:
            processes.format_controller(voter, CLUSTER_ID, FINAL)
            processes.start_controller(voter, FINAL)
        processes.format_broker(BROKER, CLUSTER_ID)
        processes.start_broker(BROKER, KRAFT)
        mind = Operator(processes)
        try:
            wait_for("the broker", lambda: mind.brokers.cluster_state().brokers == {BROKER})
            yield mind
        finally:
            mind.close()


@pytest.mark.timeout(900)
def test_a_replaced_voter_is_recorded_with_every_committed_record(operator: Operator) -> None:
    processes = operator.processes
    made = [NewTopic(topic, PARTITIONS, 1) for topic in TOPICS]
    admin = processes.admin_client()
    for creation in admin.create_topics(made).values():
        creation.result(60)
    processes.stop(f"controller-{LOST}", signal.SIGKILL)
    shutil.rmtree(processes.directory / f"controller-{LOST}")
    wait_for("a leader of the others", lambda: operator.controllers.quorum_state().leader_id != LOST)
    with pytest.raises(ProcessFailedError, match=r"No readable meta\.properties"):
        processes.start_controller(LOST, FINAL)
    until = time.monotonic() + 6
    while time.monotonic() < until:
        operator.step()
        assert not operator.recorded, "nobody has formatted it"
    processes.format_controller(LOST, CLUSTER_ID, FINAL)
    committed = operator.controllers.quorum_state().high_watermark
    assert committed > len(TOPICS) * PARTITIONS
    processes.start_controller(LOST, FINAL)

    def recorded() -> bool:
        operator.step()
        return operator.recorded

    wait_for("the claim is recorded", recorded)
    assert log_end(processes, LOST) >= committed
    # It can lead, or elect a leader, without a record less.
    leader = operator.controllers.quorum_state().leader_id
    processes.stop(f"controller-{leader}", signal.SIGKILL)
    operator.high_watermarks.append(wait_for("another leader", lambda: committed_under_another(operator, leader)))
    assert operator.high_watermarks[-1] >= committed
    assert operator.high_watermarks == sorted(operator.high_watermarks), "the high watermark never falls"
    assert len(operator.brokers.cluster_state().brokers) == 1
    epochs, _ = operator.brokers.leader_epochs()
    topics = {topic for topic, _ in epochs}
    assert set(TOPICS) <= topics
