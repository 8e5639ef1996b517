"""metadata.version on real Kafka 3.9.2 processes: what the quorum allows, and the operator's own decisions carried out against it.

Three voters and two brokers that never had a ZooKeeper. `decide` is given what the real clients see; its verification compares the voters' logs
on disk with the library that the Spark job uses. Kubernetes is left out: its part of the observation is a healthy one, and the Secrets with the
copies of the log are in a fake API.
"""

from __future__ import annotations

import base64
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest
from kafka.protocol.admin.topics import CreateTopicsRequest
from tests.support.fakes import Clock, FakeKubernetes, FakeLog
from tests.support.kafka_processes import FINAL, KRAFT, KafkaProcesses, kafka_libraries, kafka_processes, wait_for
from tests.support.observations import IDENTITY, broker_set, open_gate

from kraftbridge.builders import names
from kraftbridge.exceptions import ActionRefusedError, ObservationError
from kraftbridge.kafka.wire import Connection, Security
from kraftbridge.metadata.entities import Secrets
from kraftbridge.metadata.log.entities import Form, log_entities
from kraftbridge.metadata.log.files import open_log_files
from kraftbridge.metadata.log.replay import LogReplay
from kraftbridge.models.conditions import ConditionType, condition
from kraftbridge.models.decision import (
    Decision,
    KeepCopy,
    LaunchRun,
    ReleaseRun,
    UpdateMetadataVersion,
)
from kraftbridge.models.entities import EntityKind, KindCounts
from kraftbridge.models.metadata_version import FEATURE, VERSIONS, Upgrade, lowest_without_loss
from kraftbridge.models.observation import (
    ControllerMetrics,
    FeatureAnswer,
    NodeFeatures,
    Observation,
    RunState,
    Unobserved,
    VerificationRun,
)
from kraftbridge.models.phase import Phase, ZkMigrationState
from kraftbridge.models.report import Profile, Verdict, VerdictSummary
from kraftbridge.models.spec import ControllersSpec, MigrationSpec
from kraftbridge.models.status import KeptCopy, MetadataVersionState, MetadataVersionStatus, MigrationStatus
from kraftbridge.phases.draft import Migration
from kraftbridge.phases.machine import decide
from kraftbridge.services import kept_copies
from kraftbridge.services.clients import ClusterClients
from kraftbridge.storage.kafka_brokers import BrokerClient
from kraftbridge.storage.kafka_controllers import ControllerClient, read_controller_metrics

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kafka-processes")]

CONTROLLERS, BROKERS, OLDER = (3000, 3001, 3002), (0, 1), 2
CLUSTER_ID = "kVx3Yk9aSZ2mJ0wq1Yl5Wg"
OLDER_RELEASE = "3.8.1"
"""Its highest level is 3.8-IV0 (20)."""
SECRETS = Secrets(b"the same for every run", compare_passwords=True)

T = TypeVar("T")
Entities = dict[tuple[EntityKind, str], str]


class Cluster:
    """Real processes, and one operator's mind on them."""

    def __init__(self, processes: KafkaProcesses) -> None:
        self.processes = processes
        self.brokers = BrokerClient(processes.bootstrap_servers, {})
        self.controllers = ControllerClient(processes.controller_addresses, {})
        begun = open_gate(Phase.COMPLETED)
        self.spec: MigrationSpec = begun.spec.model_copy(
            update={"controllers": ControllersSpec(replicas=3, first_node_id=CONTROLLERS[0])}
        )
        self.status: MigrationStatus = begun.status
        self.released: set[str] = set()
        self.verdicts: dict[str, VerdictSummary] = {}
        self.sent: list[UpdateMetadataVersion] = []
        self.kubernetes = FakeKubernetes(Clock())
        assert self.status.controllers is not None
        self.kubernetes.create(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {
                    "name": names.log_reader_secret(self.status.controllers.name),
                    "namespace": IDENTITY.namespace,
                },
                "data": {key: base64.b64encode(b"of the log servers").decode() for key in ("token", "ca.crt")},
            }
        )

    def start(self) -> None:
        """Bring everything up, with some metadata in it."""
        for controller in CONTROLLERS:
            self.processes.format_controller(controller, CLUSTER_ID, FINAL)
            self.processes.start_controller(controller, FINAL)
        for broker in BROKERS:
            self.processes.format_broker(broker, CLUSTER_ID)
            self.processes.start_broker(broker, KRAFT)
        wait_for("both brokers", lambda: self.brokers.cluster_state().brokers == set(BROKERS))
        create_topic(self.processes.broker_ports[0], "orders", 12)
        self.controllers.write_canary(4711, 1)

    def close(self) -> None:
        self.brokers.close()
        self.controllers.close()

    def levels(self) -> set[int]:
        """Return the level of every node, each asked itself."""
        seen = {**self.brokers.features(), **self.controllers.features()}
        return {f.finalized.get(FEATURE, -1) if isinstance(f, NodeFeatures) else -1 for f in seen.values()}

    def image(self, voter: int, offset: int) -> Entities:
        """Return all that a voter's log on disk says up to an offset, inclusive."""
        files = open_log_files(f"file://{self.processes.directory}/controller-{voter}")
        found = log_entities(LogReplay(files, start_at_most=offset).advance(offset), Form.WHOLE, SECRETS)
        return {(e.kind, e.key): e.value for e in found}

    def end(self) -> int:
        """Return the offset of the last committed record."""
        return self.controllers.quorum_state().high_watermark - 1

    # ----------------------------------------------------------------------------------------- the operator's loop

    def ask_for(self, name: str | None) -> None:
        self.spec = self.spec.model_copy(update={"metadata_version": name})

    def step(self) -> Decision:
        decision = decide(Migration(IDENTITY, self.spec, self.status), self._observe(), datetime.now(UTC))
        self.status = decision.status
        for action in decision.actions:
            match action:
                case UpdateMetadataVersion(level, upgrade):
                    self.sent.append(action)
                    self.controllers.update_metadata_version(level, upgrade)
                case LaunchRun(_, run_id):
                    self.verdicts.pop(run_id, None)
                case ReleaseRun(_, run_id):
                    self.verdicts[run_id] = self._verdict(run_id)
                case KeepCopy():
                    self._keep(action)
                case _:
                    pass
        return decision

    def walk(self, until: Callable[[MetadataVersionStatus], bool], seconds: float = 60) -> MetadataVersionStatus:
        def reached() -> MetadataVersionStatus | None:
            self.step()
            version = self.status.metadata_version
            return version if version is not None and until(version) else None

        return wait_for("metadata.version's state", reached, seconds)

    def _observe(self) -> Observation:
        healthy = open_gate(Phase.COMPLETED).observation
        metrics: dict[int, ControllerMetrics | Unobserved] = {}
        for controller, port in self.processes.metrics_ports.items():
            gauges = seen(partial(read_controller_metrics, controller, "127.0.0.1", port, 2.0))
            if isinstance(gauges, ControllerMetrics) and gauges.zk_migration_state is ZkMigrationState.NONE:
                # This cluster never had a ZooKeeper; a migrated one says POST_MIGRATION.
                gauges = replace(gauges, zk_migration_state=ZkMigrationState.POST_MIGRATION)
            metrics[controller] = gauges
        version, answer = self.status.metadata_version, healthy.feature_answer
        if version is not None and version.validates:
            assert version.target_level is not None
            assert version.upgrade is not None
            answer = seen(partial(self.controllers.validate_metadata_version, version.target_level, version.upgrade))
        run = self.status.verifications[-1] if self.status.verifications else None
        return replace(
            healthy,
            at=datetime.now(UTC),
            quorum=seen(self.controllers.quorum_state),
            metrics=metrics,
            cluster=seen(self.brokers.cluster_state),
            features=seen(lambda: {**self.brokers.features(), **self.controllers.features()}),
            feature_answer=answer,
            run=None if run is None else self._run(run.run_id),
            kept_copy=self._kept_copy(),
        )

    def _keep(self, action: KeepCopy) -> None:
        assert self.status.controllers is not None
        clients = ClusterClients(*[cast("Any", None)] * 4, open_log=self._log)
        kept_copies.keep(self.kubernetes, IDENTITY, clients, self.status.controllers, action, datetime.now(UTC))

    def _log(self, host: str, _token: str, _authority: str) -> FakeLog:
        node_id = host.partition(".")[0].rpartition("-")[2]
        return FakeLog(self.processes.directory / f"controller-{node_id}")

    def _kept_copy(self) -> KeptCopy | None:
        under_way = self.status.keeping
        return None if under_way is None else kept_copies.read(self.kubernetes, IDENTITY.namespace, under_way.secret)

    def _run(self, run_id: str) -> VerificationRun:
        verdict = self.verdicts.get(run_id)
        return VerificationRun(run_id, RunState.ARMED if verdict is None else RunState.FINISHED, verdict=verdict)

    def _verdict(self, run_id: str) -> VerdictSummary:
        """Compare the voters' images at one offset, as the profile ``replicas`` does."""
        record = next(v for v in self.status.verifications if v.run_id == run_id)
        started, offset = datetime.now(UTC), self.end()
        wait_for("every voter's log", lambda: all(self._has(v, offset) for v in CONTROLLERS))
        images = [self.image(voter, offset) for voter in CONTROLLERS]
        differing = sum(images[0].get(k) != i.get(k) for i in images[1:] for k in images[0] | i)
        kinds = {kind for kind, _ in images[0]}
        numbers = {k: sum(kind is k for kind, _ in images[0]) for k in kinds}
        return VerdictSummary(
            run_id=run_id,
            migration_uid=IDENTITY.uid,
            generation=record.generation,
            phase=str(record.gate),
            profile=record.profile,
            verdict=Verdict.CONSISTENT if not differing and len(images[0]) > 10 else Verdict.INCONSISTENT,
            reason="",
            differing=differing,
            counts={k: KindCounts(log=n, compared=n) for k, n in numbers.items()},
            started_at=started,
            finished_at=datetime.now(UTC),
        )

    def _has(self, voter: int, offset: int) -> bool:
        files = open_log_files(f"file://{self.processes.directory}/controller-{voter}")
        replay = LogReplay(files)
        replay.advance()
        return replay.end_offset > offset


def seen(look: Callable[[], T]) -> T | Unobserved:
    """Return what is seen, or why it is not, as the observer does."""
    try:
        return look()
    except ObservationError as e:
        return Unobserved(e.source, e.reason)


def create_topic(port: int, name: str, partitions: int) -> None:
    connection = Connection("127.0.0.1", port, Security(), 5)
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=2, assignments=[], configs=[]
    )
    answer = connection.call(
        CreateTopicsRequest, 15, max_version=5, topics=[topic], timeout_ms=10_000, validate_only=False
    )
    connection.close()
    assert [t.error_code for t in answer.topics] == [0]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with kafka_processes([*BROKERS, OLDER], CONTROLLERS) as processes:
        running = Cluster(processes)
        try:
            running.start()
            yield running
        finally:
            running.close()


def state_is(state: MetadataVersionState) -> Callable[[MetadataVersionStatus], bool]:
    return lambda version: version.state is state


def ready(status: MigrationStatus, kind: ConditionType = ConditionType.METADATA_VERSION_READY) -> str:
    found = condition(status.conditions, kind)
    return "" if found is None else str(found.status)


# ------------------------------------------------------------------------------------------------ Kafka alone


def test_names_levels_and_lossy_steps_are_kafkas_own(tmp_path: Path) -> None:
    """``models.metadata_version`` against the class that it was written from."""
    body = (
        "for (MetadataVersion v : MetadataVersion.VERSIONS)\n"
        "  if (v.featureLevel() > 0 && v.featureLevel() <= MetadataVersion.LATEST_PRODUCTION.featureLevel())\n"
        '    System.out.println(v + " " + v.featureLevel() + " " + v.didMetadataChange());'
    )
    printed = run_java(tmp_path, "Levels", "org.apache.kafka.server.common.MetadataVersion", body)
    own = [f"{v.name} {v.level} {str(v.metadata_changed).lower()}" for v in VERSIONS]
    assert printed.splitlines() == own


WORDS = {
    "range": r"Invalid update version \d+ for feature metadata.version. Local controller \d+ only supports versions 1-21",
    "type": r"Invalid update version \d+ .* Can't downgrade the version of this feature without setting the upgrade type",
    "minimum": r"Invalid metadata.version \d. Unable to set a metadata.version less than 3.3-IV0",
    "lossy": r"Invalid metadata.version \d+. Refusing to perform the requested downgrade because it might delete metadata",
    "unsafe": r"Invalid metadata.version \d+. Unsafe metadata downgrade is not supported in this version.",
}


def expected(level: int, upgrade: Upgrade) -> str:
    """Return why Kafka 3.9.2 refuses a level to a cluster at 21, ``""`` when it takes it: the table in docs/operations.md."""
    if not 1 <= level <= 21:
        return "range"
    if level < 21 and upgrade is Upgrade.UPGRADE:
        return "type"
    if level < 4:
        return "minimum"
    if level < lowest_without_loss(21):
        return "unsafe" if upgrade is Upgrade.UNSAFE_DOWNGRADE else "lossy"
    return ""


def test_features_that_support_level_0_are_told(cluster: Cluster) -> None:
    """Below version 4 of ApiVersions a node leaves them out (KAFKA-17011), and nothing could be raised on Kafka 4."""
    seen = {**cluster.brokers.features(), **cluster.controllers.features()}
    for node_id, node in seen.items():
        assert isinstance(node, NodeFeatures)
        assert node_id == OLDER or node.supported["kraft.version"] == (0, 1), node_id


def test_what_kafka_allows_and_refuses_and_that_validation_changes_nothing(cluster: Cluster) -> None:
    before = cluster.image(CONTROLLERS[0], cluster.end())
    for level in range(25):
        for upgrade in Upgrade:
            answer = cluster.controllers.validate_metadata_version(level, upgrade)
            why = expected(level, upgrade)
            assert answer.accepted == (not why), answer
            assert re.match(WORDS.get(why, "$"), answer.words), answer
            if why:
                with pytest.raises(ActionRefusedError, match=re.escape(answer.words)):
                    cluster.controllers.update_metadata_version(level, upgrade)
    assert cluster.levels() == {21}
    assert cluster.image(CONTROLLERS[0], cluster.end()) == before


# ------------------------------------------------------------------------------------------------ the operator on it


def test_down_as_far_as_kafka_allows_and_up_to_the_highest_again(cluster: Cluster) -> None:
    before = cluster.image(CONTROLLERS[0], cluster.end())
    cluster.walk(lambda v: v.current == "3.9-IV0")
    for name, level in (("3.8", 20), ("3.7-IV2", 17), ("3.9", 21), ("3.7-IV2", 17), ("3.9-IV0", 21)):
        cluster.ask_for(name)
        version = cluster.walk(
            lambda v, level=level: v.state is MetadataVersionState.IN_FORCE and v.target_level == level
        )  # type: ignore[misc]
        assert cluster.levels() == {level}
        assert ready(cluster.status) == ready(cluster.status, ConditionType.READY) == "True"
        assert version.change is not None
        assert version.change.counts.endswith("the same number of every kind")
        after = cluster.image(CONTROLLERS[0], cluster.end())
        changed = {key for key in before | after if before.get(key) != after.get(key)}
        # Only the feature level: not a topic, a partition, a quota or a registration more, less or different.
        assert changed == ({(EntityKind.FEATURE_LEVEL, FEATURE)} if level != 21 else set())
    assert [a.upgrade for a in cluster.sent] == [Upgrade.SAFE_DOWNGRADE] * 2 + [
        Upgrade.UPGRADE,
        Upgrade.SAFE_DOWNGRADE,
        Upgrade.UPGRADE,
    ]
    passed = [
        v for v in cluster.status.verifications if v.verdict is Verdict.CONSISTENT and v.profile is Profile.REPLICAS
    ]
    assert len(passed) == 10


def test_a_lossy_downgrade_is_refused_with_kafkas_own_words(cluster: Cluster) -> None:
    sent, offset = len(cluster.sent), cluster.end()
    before = cluster.image(CONTROLLERS[0], offset)
    cluster.ask_for("3.7-IV1")
    version = cluster.walk(state_is(MetadataVersionState.REFUSED))
    words = "Invalid metadata.version 16. Refusing to perform the requested downgrade because it might delete metadata information."
    assert words in version.message
    assert ready(cluster.status, ConditionType.STALLED) == "True"
    cluster.step()
    assert len(cluster.sent) == sent
    assert cluster.levels() == {21}
    assert cluster.image(CONTROLLERS[0], cluster.end()) == before
    cluster.ask_for(None)
    cluster.walk(state_is(MetadataVersionState.OBSERVED))


def test_a_silent_voter_is_waited_for_and_named(cluster: Cluster) -> None:
    silent = next(c for c in CONTROLLERS if c != cluster.controllers.quorum_state().leader_id)
    cluster.processes.signal(f"controller-{silent}", signal.SIGSTOP)
    try:
        cluster.ask_for("3.8")
        version = cluster.walk(state_is(MetadataVersionState.WAITING))
        assert f"controller {silent} at 127.0.0.1" in version.message
        sent = len(cluster.sent)
        cluster.step()
        assert len(cluster.sent) == sent
    finally:
        cluster.processes.signal(f"controller-{silent}", signal.SIGCONT)
    cluster.walk(lambda v: v.state is MetadataVersionState.IN_FORCE and v.target_level == 20)
    assert cluster.levels() == {20}


def test_a_broker_that_cannot_follow_is_named_with_its_range_and_nothing_is_changed(cluster: Cluster) -> None:
    assert cluster.levels() == {20}, "where the older broker may join"
    name = f"broker-{OLDER}"
    cluster.processes.libraries_of[name] = kafka_libraries(OLDER_RELEASE)
    cluster.processes.extra_broker_settings[OLDER] = "initial.broker.registration.timeout.ms=10000\n"  # 60 s by default
    cluster.processes.format_broker(OLDER, CLUSTER_ID)
    cluster.processes.start_broker(OLDER, KRAFT)
    wait_for("the older broker", lambda: OLDER in cluster.brokers.cluster_state().brokers)
    sent, before = len(cluster.sent), cluster.image(CONTROLLERS[0], cluster.end())
    cluster.ask_for("3.9")
    version = cluster.walk(state_is(MetadataVersionState.REFUSED))
    assert "broker 2 supports 3.0-IV1 (1) to 3.8-IV0 (20)" in version.message
    assert "nothing was changed" in version.message
    assert ready(cluster.status) == "False"
    assert next((n.highest for n in version.nodes if n.id == OLDER), "") == "3.8-IV0"
    # Kafka itself says the same from the registration, also while the broker is down and cannot be asked.
    answer = cluster.controllers.validate_metadata_version(21, Upgrade.UPGRADE)
    assert answer == FeatureAnswer(21, Upgrade.UPGRADE, accepted=False, words=answer.words)
    assert answer.words.endswith("Broker 2 only supports versions 1-20")
    cluster.processes.stop(name)
    assert cluster.controllers.validate_metadata_version(21, Upgrade.UPGRADE).words == answer.words
    assert len(cluster.sent) == sent
    assert cluster.levels() <= {20, -1}
    after = cluster.image(CONTROLLERS[0], cluster.end())
    moved = {k for k in before | after if before.get(k) != after.get(k)}
    assert {kind for kind, _ in moved} <= {EntityKind.BROKER_REGISTRATION}, "the stopped broker's own fence"


def test_a_fenced_broker_holds_the_change_back(cluster: Cluster) -> None:
    """Its registration counts until it is unregistered; it could not be seen to apply anything."""
    wait_for("broker 2 is gone", lambda: OLDER not in cluster.brokers.cluster_state().brokers)
    cluster.ask_for("3.7-IV2")
    # On a busy machine a new leader is waited for first.
    version = cluster.walk(lambda seen: "1 registered broker(s) are fenced" in seen.message)
    assert version.state is MetadataVersionState.WAITING
    assert cluster.levels() == {20}


def test_an_older_broker_ends_by_itself_at_a_level_beyond_it(cluster: Cluster, tmp_path: Path) -> None:
    """What the report about pod templates spares the user: the broker starts, may not register, and ends when its patience does."""
    unregister(cluster, OLDER, tmp_path)
    cluster.ask_for("3.9")
    cluster.walk(lambda v: v.state is MetadataVersionState.IN_FORCE and v.target_level == 21)
    name = f"broker-{OLDER}"
    cluster.processes.start_broker(OLDER, KRAFT, wait=False)
    wait_for("the older broker's end", lambda: cluster.processes.ended(name))
    # Its own last words don't say why.
    assert "Fatal error during broker startup" in cluster.processes.tail(name, 2000)
    assert cluster.brokers.cluster_state().brokers == set(BROKERS)
    # The operator says it before the pod is there, from the image's name.
    template = replace(broker_set(), lock="", image=f"apache/kafka:{OLDER_RELEASE}", update_revision="rev-next")
    observation = replace(cluster._observe(), stateful_sets=(template,))
    told = decide(Migration(IDENTITY, cluster.spec, cluster.status), observation, datetime.now(UTC)).status
    assert "Kafka 3.8" in told.message
    assert ready(told, ConditionType.STALLED) == "True"


def unregister(cluster: Cluster, broker: int, tmp_path: Path) -> None:
    """Do what ``kafka-cluster.sh unregister`` does; that tool is in no jar of the tests."""
    bootstrap = f"127.0.0.1:{cluster.processes.broker_ports[0]}"
    body = (
        f'try (var admin = Admin.create(java.util.Map.<String, Object>of("bootstrap.servers", "{bootstrap}")))'
        f" {{ admin.unregisterBroker({broker}).all().get(); }}"
    )
    run_java(tmp_path, "Unregister", "org.apache.kafka.clients.admin.Admin", body)


def run_java(directory: Path, name: str, imported: str, body: str) -> str:
    """Run a few lines of Java with Kafka's jars and return what they print."""
    source = directory / f"{name}.java"
    source.write_text(
        f"import {imported};\npublic class {name} {{ public static void main(String[] a) throws Exception {{\n{body}\n}} }}\n"
    )
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{kafka_libraries()}/*", str(source)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    return done.stdout
