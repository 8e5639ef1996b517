"""All Kafka-side storages watch one small real migration: 2 brokers, 1 controller, ZooKeeper.

The fixture walks through it once and keeps what was seen at each stage; the tests judge that record.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from kafka.protocol.admin.topics import CreateTopicsRequest
from tests.support.kafka_processes import (
    CHROOT,
    FINAL,
    KRAFT,
    MIGRATION,
    ZOOKEEPER,
    KafkaProcesses,
    kafka_processes,
    wait_for,
)

from kraftbridge.exceptions import ActionError, ActionRefusedError, MigrationError, ObservationError
from kraftbridge.kafka.client import Security
from kraftbridge.kafka.wire import Connection
from kraftbridge.models.metadata_version import Upgrade
from kraftbridge.models.observation import (
    ClusterState,
    ControllerMetrics,
    FeatureAnswer,
    MigrationZnode,
    Unobserved,
    ZooKeeperState,
)
from kraftbridge.models.phase import ZkMigrationState
from kraftbridge.models.survey import SettingSource
from kraftbridge.storage.kafka_brokers import BrokerClient
from kraftbridge.storage.kafka_controllers import ControllerClient, read_controller_metrics
from kraftbridge.storage.zookeeper import ZooKeeperStore

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kafka-processes")]

CONTROLLER = 3000
TOPICS = {"orders": (4, 2, 1), "single": (2, 1, 1), "tight": (1, 2, 2)}
"""Partitions, replication factor, min.insync.replicas."""
LONGEST_CALL_SECONDS = 6.5


@dataclass
class Record:
    """What was seen, by stage; an error takes the place of a result."""

    seen: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def __getitem__(self, stage: str) -> Any:
        return self.seen[stage]

    def note(self, stage: str, look: Callable[[], Any]) -> Any:
        started = time.monotonic()
        try:
            self.seen[stage] = look()
        except MigrationError as e:
            self.seen[stage] = e
        self.seconds[stage] = time.monotonic() - started
        return self.seen[stage]


def create_topics(port: int) -> None:
    topic = CreateTopicsRequest.CreatableTopic
    connection = Connection("127.0.0.1", port, Security(), 5)
    answer = connection.call(
        CreateTopicsRequest,
        15,
        max_version=5,
        topics=[
            topic(
                name=name,
                num_partitions=partitions,
                replication_factor=factor,
                assignments=[],
                configs=[topic.CreatableTopicConfig(name="min.insync.replicas", value=str(min_isr))],
            )
            for name, (partitions, factor, min_isr) in TOPICS.items()
        ],
        timeout_ms=10_000,
        validate_only=False,
    )
    connection.close()
    assert [t.error_code for t in answer.topics] == [0, 0, 0]


def healthy(state: ClusterState) -> bool:
    return len(state.brokers) == 2 and state.partitions == 7 and state.under_replicated_count == 0


@pytest.fixture(scope="module")
def record() -> Iterator[Record]:
    with kafka_processes([0, 1], [CONTROLLER]) as processes:
        walk = Walk(processes)
        try:
            walk.from_nothing_to_zookeeper_mode()
            walk.silence_each_broker()
            walk.start_controller()
            walk.into_dual_write()
            walk.brokers_to_kraft()
            walk.finalize()
            yield walk.record
        finally:
            walk.close()


class Walk:
    """A migration of real processes, as the storages see it."""

    def __init__(self, processes: KafkaProcesses) -> None:
        self.processes = processes
        self.zookeeper = ZooKeeperStore(processes.zookeeper_hosts, CHROOT)
        self.brokers = BrokerClient(processes.bootstrap_servers, {})
        self.controllers = ControllerClient(processes.controller_addresses, {})
        self.record = Record()
        self.note = self.record.note

    def close(self) -> None:
        self.zookeeper.close()
        self.brokers.close()
        self.controllers.close()

    def metrics(self) -> ControllerMetrics:
        return read_controller_metrics(CONTROLLER, "127.0.0.1", self.processes.metrics_ports[CONTROLLER])

    def from_nothing_to_zookeeper_mode(self) -> None:
        self.note("nothing runs: ZooKeeper", self.zookeeper.observe)
        self.note("nothing runs: brokers", self.brokers.cluster_state)
        self.note("nothing runs: quorum", self.controllers.quorum_state)
        self.note("nothing runs: metrics", self.metrics)
        self.processes.start_zookeeper()
        for broker in (0, 1):
            self.processes.start_broker(broker, ZOOKEEPER)
        wait_for("two brokers", lambda: len(self.brokers.cluster_state().brokers) == 2)
        create_topics(self.processes.broker_ports[self.brokers.cluster_state().controller_id])
        self.settled()
        self.note("ZooKeeper mode: ZooKeeper", self.zookeeper.observe)
        self.note("ZooKeeper mode: sessions", self.zookeeper.broker_session_count)
        self.note("ZooKeeper mode: cluster", self.brokers.cluster_state)
        self.note("ZooKeeper mode: redundancy", self.brokers.topic_redundancy)
        self.note("ZooKeeper mode: reassignments", self.brokers.reassigning_partitions)
        self.note("ZooKeeper mode: ACLs", self.zookeeper.acls)
        self.note("ZooKeeper mode: visibility", self.brokers.visibility)
        self.note("ZooKeeper mode: settings", self.brokers.broker_settings)
        self.note("ZooKeeper mode: controller by broker", self.brokers.controller_by_broker)

    def silence_each_broker(self) -> None:
        for broker in (0, 1):  # the client is connected to one of them
            self.processes.signal(f"broker-{broker}", signal.SIGSTOP)
            self.note(f"broker {broker} silent", self.brokers.cluster_state)
            self.note(f"broker {broker} silent: each broker", self.brokers.cluster_by_broker)
            self.processes.signal(f"broker-{broker}", signal.SIGCONT)
        self.settled()

    def start_controller(self) -> None:
        self.processes.format_controller(CONTROLLER, self.record["ZooKeeper mode: ZooKeeper"].cluster_id)
        self.processes.start_controller(CONTROLLER)
        wait_for("a leader", lambda: self.controllers.quorum_state().high_watermark > 0)
        self.note("controller up: quorum", self.controllers.quorum_state)
        self.note("controller up: features", self.controllers.features)
        self.note("controller up: canary", lambda: self.controllers.write_canary(1, 1))
        self.wait("controller up: metrics", self.metrics, is_in(ZkMigrationState.PRE_MIGRATION))
        self.wait("controller up: ZooKeeper", self.zookeeper.observe, lambda s: s.migration is not None)

    def into_dual_write(self) -> None:
        for broker in (1, 0):
            self.restart(broker, MIGRATION)
        first = self.wait("dual-write: ZooKeeper", self.zookeeper.observe, lambda s: offset(s) >= 0)
        self.wait("dual-write: ZooKeeper later", self.zookeeper.observe, lambda s: offset(s) > offset(first))
        self.note("dual-write: canary written", lambda: self.controllers.write_canary(4711, 1))
        self.wait("dual-write: ZooKeeper with canary", self.zookeeper.observe, lambda s: s.canary is not None)
        self.note("dual-write: canary removed", lambda: self.controllers.remove_canary(4711))
        self.note("dual-write: canary removed again", lambda: self.controllers.remove_canary(4711))
        self.wait("dual-write: ZooKeeper without canary", self.zookeeper.observe, lambda s: s.canary is None)
        self.wait("dual-write: metrics", self.metrics, is_in(ZkMigrationState.MIGRATION))
        self.wait("dual-write: each broker", self.brokers.cluster_by_broker, serve_the_same)
        self.processes.signal("broker-1", signal.SIGSTOP)  # in a pod it would stay Ready
        self.wait("dual-write: metrics while broker 1 hangs", self.metrics, lambda m: m.fenced_brokers > 0)
        self.note("dual-write: each broker while broker 1 hangs", self.brokers.cluster_by_broker)
        self.processes.signal("broker-1", signal.SIGCONT)
        self.wait("dual-write: metrics after broker 1 hung", self.metrics, lambda m: m.fenced_brokers == 0)
        self.settled()
        self.note("dual-write: quorum", self.controllers.quorum_state)
        self.note("dual-write: controller by broker", self.brokers.controller_by_broker)
        self.note(
            "dual-write: metadata.version",
            lambda: self.controllers.validate_metadata_version(21, Upgrade.UPGRADE),
        )

    def brokers_to_kraft(self) -> None:
        for broker in (0, 1):
            self.restart(broker, KRAFT)
        self.note("KRaft brokers: metrics", self.metrics)
        self.note("KRaft brokers: ZooKeeper", self.zookeeper.observe)

    def finalize(self) -> None:
        self.processes.stop(f"controller-{CONTROLLER}")
        self.note("controller down: quorum", self.controllers.quorum_state)
        self.note("controller down: canary", lambda: self.controllers.write_canary(2, 1))
        self.processes.start_controller(CONTROLLER, FINAL)
        self.wait("final: metrics", self.metrics, is_in(ZkMigrationState.POST_MIGRATION))
        self.note("final: features", self.controllers.features)
        for level in (21, 99):
            validate = partial(self.controllers.validate_metadata_version, level, Upgrade.UPGRADE)
            self.note(f"final: level {level}", validate)
        self.wait("final: sessions", self.zookeeper.broker_session_count, lambda count: count == 0)
        self.note("final: cluster", self.settled)
        self.processes.stop("zookeeper")
        self.note("ZooKeeper off: ZooKeeper", self.zookeeper.observe)
        self.note("ZooKeeper off: sessions", self.zookeeper.broker_session_count)

    def restart(self, broker: int, mode: str) -> None:
        self.processes.stop(f"broker-{broker}")
        self.note(f"{mode}: cluster while broker {broker} is down", self.brokers.cluster_state)
        self.processes.start_broker(broker, mode)
        self.note(f"{mode}: cluster just after broker {broker} is back", self.brokers.cluster_state)
        self.settled()

    def settled(self) -> ClusterState:
        return wait_for("all in sync", lambda: s if healthy(s := self.brokers.cluster_state()) else None)

    def wait(self, stage: str, look: Callable[[], Any], enough: Callable[[Any], bool]) -> Any:
        self.record.seen[stage] = wait_for(stage, lambda: (s,) if enough(s := look()) else None)[0]
        return self.record[stage]


def is_in(state: ZkMigrationState) -> Callable[[ControllerMetrics], bool]:
    return lambda metrics: metrics.zk_migration_state is state


def offset(state: ZooKeeperState) -> int:
    return state.migration.kraft_metadata_offset if isinstance(state.migration, MigrationZnode) else -1


@pytest.mark.parametrize("part", ["ZooKeeper", "brokers", "quorum", "metrics"])
def test_what_does_not_run_is_an_observation_error_that_names_it(record: Record, part: str) -> None:
    error = record[f"nothing runs: {part}"]
    assert isinstance(error, ObservationError)
    assert "127.0.0.1" in str(error) or "controllers 3000" in str(error)
    assert "refused" in str(error)


def test_no_single_call_outlasts_its_budget(record: Record) -> None:
    assert len(record.seconds) > 25
    assert max(record.seconds.values()) < LONGEST_CALL_SECONDS, record.seconds


def test_zookeeper_mode_is_seen_whole(record: Record) -> None:
    state = record["ZooKeeper mode: ZooKeeper"]
    assert len(state.cluster_id) == 22
    assert state.controller.broker_id in (0, 1)
    assert state.controller.ephemeral
    assert state.controller.kraft_controller_epoch == -1
    assert state.controller_epoch >= 1
    assert state.migration is None
    assert [(b.id, b.hosts) for b in state.brokers] == [(0, ("127.0.0.1",)), (1, ("127.0.0.1",))]
    assert (state.pending_topic_deletions, state.reassignments, state.canary) == ((), False, None)
    assert record["ZooKeeper mode: sessions"] == 2
    assert record["ZooKeeper mode: reassignments"] == ()
    controller = state.controller.broker_id
    assert record["ZooKeeper mode: controller by broker"] == {0: controller, 1: controller}
    assert healthy(record["ZooKeeper mode: cluster"])
    assert record["ZooKeeper mode: cluster"].controller_id == controller


def test_brokers_that_know_a_kraft_controller_name_no_broker(record: Record) -> None:
    """Each answer names another one. In a rollback a broker that still answers like that hangs in its shutdown."""
    named = record["dual-write: controller by broker"]
    assert named.keys() == {0, 1}
    assert all("it names several brokers in turn" in str(answer) for answer in named.values())


def test_what_preflight_alone_looks_at(record: Record) -> None:
    access = record["ZooKeeper mode: ACLs"]
    assert access.denied == ()
    assert access.topics == set(TOPICS)
    assert {"/", "/controller", "/brokers/topics", "/config/topics", "/brokers/topics/orders"} <= access.acls.keys()
    assert "/migration" not in access.acls
    assert all(entry.permissions == set("cdrwa") for acl in access.acls.values() for entry in acl)
    visible = record["ZooKeeper mode: visibility"]
    assert visible.topics == set(TOPICS)
    assert {"DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "ALTER"} <= visible.cluster_operations
    for settings in record["ZooKeeper mode: settings"].values():
        by_name = {s.name: s for s in settings}
        assert by_name["zookeeper.connect"].value.endswith(CHROOT)
        assert by_name["zookeeper.connect"].source is SettingSource.STATIC
        assert by_name["inter.broker.protocol.version"].value.startswith("3.9")
        assert by_name["inter.broker.protocol.version"].source is SettingSource.DEFAULT
        assert all(s.known for s in settings)
        assert "control.plane.listener.name" not in by_name


def test_redundancy_is_judged_by_the_effective_min_isr(record: Record) -> None:
    redundancy = record["ZooKeeper mode: redundancy"]
    assert redundancy.replication_factor_one == ("single",)
    assert redundancy.at_min_isr == ("tight",)


@pytest.mark.parametrize("broker", [0, 1])
def test_a_silent_broker_does_not_silence_the_client(record: Record, broker: int) -> None:
    assert isinstance(record[f"broker {broker} silent"], ClusterState)


@pytest.mark.parametrize("mode", [MIGRATION, KRAFT])
@pytest.mark.parametrize("broker", [0, 1])
def test_cluster_is_seen_while_a_broker_restarts(record: Record, mode: str, broker: int) -> None:
    down = record[f"{mode}: cluster while broker {broker} is down"]
    assert isinstance(down, ClusterState)
    assert down.partitions == 7
    assert 5 <= down.under_replicated_count <= 7, "orders and tight miss a replica; single may"
    assert down.under_replicated_count == len(down.under_replicated)
    back = record[f"{mode}: cluster just after broker {broker} is back"]
    assert isinstance(back, ClusterState)
    assert back.partitions == 7, "never the empty view of a broker that has only just started"


def test_quorum_is_seen_from_its_first_second(record: Record) -> None:
    quorum = record["controller up: quorum"]
    assert quorum.leader_id == CONTROLLER
    assert quorum.leader_epoch >= 1
    assert [v.id for v in quorum.voters] == [CONTROLLER]
    assert quorum.voters[0].log_end_offset >= quorum.high_watermark > 0
    assert quorum.observers == frozenset()
    assert record["dual-write: quorum"].observers == {0, 1}


def test_features_tell_who_is_migration_ready(record: Record) -> None:
    before, after = record["controller up: features"][CONTROLLER], record["final: features"][CONTROLLER]
    assert before.zk_migration_ready
    assert not after.zk_migration_ready
    assert before.finalized == {"metadata.version": 21}
    assert before.supported["metadata.version"] == (1, 21)


def test_canary_is_refused_before_the_copy_and_reaches_both_stores_after(record: Record) -> None:
    assert isinstance(record["controller up: canary"], ActionError)
    assert "it does not lead" in str(record["controller up: canary"])
    assert record["dual-write: canary written"] is None
    assert record["dual-write: ZooKeeper with canary"].canary == 4711.0
    assert record["dual-write: canary removed"] is None
    assert record["dual-write: canary removed again"] is None


def test_takeover_and_moving_offset_are_seen_in_zookeeper(record: Record) -> None:
    claimed = record["controller up: ZooKeeper"]
    assert claimed.migration.kraft_metadata_offset == -1
    assert claimed.controller.ephemeral
    assert claimed.brokers == record["ZooKeeper mode: ZooKeeper"].brokers
    state, later = record["dual-write: ZooKeeper"], record["dual-write: ZooKeeper later"]
    assert state.controller.broker_id == CONTROLLER
    assert not state.controller.ephemeral
    assert state.controller.kraft_controller_epoch >= 0
    assert state.controller_epoch > record["ZooKeeper mode: ZooKeeper"].controller_epoch
    assert state.migration.kraft_controller_id == CONTROLLER
    assert later.migration.kraft_metadata_offset > state.migration.kraft_metadata_offset
    assert record["KRaft brokers: ZooKeeper"].brokers == ()


def test_metrics_of_a_real_exporter_follow_the_migration(record: Record) -> None:
    stages = ("controller up", "dual-write", "KRaft brokers", "final")
    seen = [record[f"{stage}: metrics"] for stage in stages]
    assert [m.zk_migration_state for m in seen] == [
        ZkMigrationState.PRE_MIGRATION,
        ZkMigrationState.MIGRATION,
        ZkMigrationState.MIGRATION,
        ZkMigrationState.POST_MIGRATION,
    ]
    assert [m.migrating_zk_brokers for m in seen] == [0, 2, 0, 0]
    assert [m.active_brokers for m in seen[:3]] == [0, 2, 2]
    assert all(m.active and m.leader_id == m.node_id == CONTROLLER for m in seen)
    assert seen[3].leader_epoch > seen[0].leader_epoch


def test_a_controller_that_is_down_is_an_error_of_the_right_kind(record: Record) -> None:
    assert isinstance(record["controller down: quorum"], ObservationError)
    assert isinstance(record["controller down: canary"], ActionError)
    assert not isinstance(record["controller down: canary"], ActionRefusedError)


def test_feature_updates_are_validated_by_the_active_controller(record: Record) -> None:
    assert record["final: level 21"] == FeatureAnswer(21, Upgrade.UPGRADE, accepted=True)
    refused = record["final: level 99"]
    assert not refused.accepted
    assert refused.words.endswith("only supports versions 1-21")


def test_metadata_version_is_not_changed_during_a_migration(record: Record) -> None:
    refused = record["dual-write: metadata.version"]
    assert not refused.accepted
    assert refused.words.endswith("Unable to modify metadata.version while a ZK migration is in progress.")


def test_zookeeper_can_go_and_is_missed_at_once(record: Record) -> None:
    assert record["final: sessions"] == 0
    assert isinstance(record["ZooKeeper off: ZooKeeper"], ObservationError)
    assert isinstance(record["ZooKeeper off: sessions"], Unobserved)


@pytest.mark.parametrize("broker", [0, 1])
def test_a_broker_that_hangs_is_seen_although_the_other_serves_a_healthy_cluster(record: Record, broker: int) -> None:
    believed = record[f"broker {broker} silent"]
    assert believed.problems(frozenset({0, 1})) == [], "one broker's word is what it was told last"
    views = record[f"broker {broker} silent: each broker"]
    assert isinstance(views[broker], Unobserved)
    assert isinstance(views[1 - broker], ClusterState)


def serve_the_same(views: dict[int, ClusterState | Unobserved]) -> bool:
    """Return whether every broker has been told of the canary's end, which takes a moment."""
    return len({view.partitions for view in views.values() if isinstance(view, ClusterState)}) == 1


def test_brokers_in_dual_write_serve_the_same_metadata(record: Record) -> None:
    views = record["dual-write: each broker"]
    assert {(v.brokers, v.partitions) for v in views.values()} == {(frozenset({0, 1}), 7)}


def test_a_broker_that_hangs_is_fenced_by_the_quorum(record: Record) -> None:
    assert record["dual-write: metrics while broker 1 hangs"].fenced_brokers == 1
    assert isinstance(record["dual-write: each broker while broker 1 hangs"][1], Unobserved)
    assert record["dual-write: metrics after broker 1 hung"].active_brokers == 2
