"""Gathers an `Observation`: the parts that the phase needs, each observed or `Unobserved` with the reason."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from kraftbridge.builders import hand_over, names
from kraftbridge.builders.broker_overlays import BrokerFacts
from kraftbridge.builders.controllers import KAFKA_CONTAINER, WORD_KEY, controller_settings
from kraftbridge.builders.controllers import configuration as controllers_configuration
from kraftbridge.builders.rehearsal import fingerprint as rehearsed_fingerprint
from kraftbridge.config import Settings
from kraftbridge.constants import SPARK_API_VERSION, canary_topic
from kraftbridge.copies.dry_start import described
from kraftbridge.copies.kraft_mode import kraft_brokers
from kraftbridge.exceptions import ObservationError
from kraftbridge.models.assignments import SeenAssignments
from kraftbridge.models.broker_record import BrokerNow, BrokerRecord
from kraftbridge.models.dry_start import DryStartReport, DryStartState
from kraftbridge.models.issued import PresentedCertificate
from kraftbridge.models.metadata_version import Upgrade
from kraftbridge.models.objects import section
from kraftbridge.models.observation import (
    NOT_NEEDED,
    ActionOutcome,
    ControllerMetrics,
    ControllerProbe,
    ControllersWorkload,
    FeatureAnswer,
    KafkaSettings,
    NodeFeatures,
    Observation,
    Paths,
    RecordedOriginal,
    RehearsalState,
    StatefulSetState,
    TopicIds,
    TopicRedundancy,
    Unobserved,
    ZooKeeperState,
)
from kraftbridge.models.phase import ControllerMode, Part, Phase
from kraftbridge.models.rehearsal import RehearsedSettings
from kraftbridge.models.spec import BrokersSpec, MigrationSpec, Runner
from kraftbridge.models.status import (
    ControllersStatus,
    DryStartStatus,
    GuardedStatefulSet,
    KeptCopy,
    MigrationStatus,
    ZooKeeperBehind,
    chooses_channel,
    rendered_spec,
    with_channel,
)
from kraftbridge.models.survey import Survey
from kraftbridge.phases import dry_starting, expired, topic_ids
from kraftbridge.phases.draft import Identity, Migration
from kraftbridge.phases.lost_quorum import is_under_way
from kraftbridge.phases.needs import needs
from kraftbridge.phases.nodes.templates import starts_from_template
from kraftbridge.services import kept_broker_records as broker_records
from kraftbridge.services import kept_copies
from kraftbridge.services.act import archives
from kraftbridge.services.answers import Answer
from kraftbridge.services.clients import ClusterClients
from kraftbridge.services.dry_starts import DryStarter
from kraftbridge.services.facts import Facts
from kraftbridge.services.leases import Leases
from kraftbridge.services.metrics import OBSERVATION_ERRORS
from kraftbridge.services.observe import assignments as replicas
from kraftbridge.services.observe import belongings, paths, runs, workloads
from kraftbridge.services.observe.behind import zookeeper_behind
from kraftbridge.services.observe.old_requests import old_requests_of
from kraftbridge.services.observe.pod_refusals import PodRefusals
from kraftbridge.services.observe.runs import running_rehearsal
from kraftbridge.services.observe.survey import Surveyor
from kraftbridge.services.observe.uids import absent, chart_of, claims_of
from kraftbridge.services.observe.workloads import LogReader
from kraftbridge.services.original_state import (
    changed_fields,
    fixed_variables,
    overlay_of,
    settings_of,
    variables_of_modes,
)
from kraftbridge.services.pace import Lane
from kraftbridge.storage.kafka_controllers import read_controller_metrics
from kraftbridge.storage.ports import ReadPort

T = TypeVar("T")
BEHIND_EVERY = timedelta(seconds=60)
REDUNDANCY_EVERY = timedelta(seconds=10)
SURVEY_EVERY_SECONDS = 10.0
DRY_START_EVERY_SECONDS = 5.0
REHEARSED_EVERY_SECONDS = 5.0
FEATURES_EVERY_SECONDS = 3.0
METRICS_TIMEOUT_SECONDS = 2.0
BELONGINGS_EVERY_SECONDS = 5.0
PRESENTED_EVERY_SECONDS = 5.0
PATHS_EVERY_SECONDS = 10.0
KAFKA4_EVERY_SECONDS = 300.0
"""Every topic's configuration is asked for."""


_NO_TIME = Unobserved("clock of the API server", "no answer of it has told the time yet")


@dataclass(slots=True)
class Memory:
    """State that one migration's observer keeps between steps. Losing it costs time, not correctness."""

    redundancy: TopicRedundancy | None = None
    survey: tuple[float, Survey, Phase] | None = None
    """Time of the survey, the survey, and the phase for which it was made."""
    channel: str = ""
    """Channel with which the parts below were read."""
    dry_start: Answer[tuple[str, tuple[BrokersSpec, ...]]] | None = None
    """The fingerprint of the brokers' pods, and the channels that they may have."""
    dry_start_report: tuple[str, DryStartReport | None] | None = None
    """Id of the last dry start, and what it found."""
    rehearsed: Answer[str] | None = None
    """For a rehearsal's inputs: their fingerprint."""
    rehearsed_brokers: tuple[str, tuple[RehearsedSettings, ...]] | None = None
    """Id of the last dry start, and how it shows the brokers in KRaft mode."""
    features: Answer[Mapping[int, NodeFeatures | Unobserved]] | None = None
    record: tuple[str, BrokerRecord] | None = None
    """ConfigMap and content of the last record of a broker."""
    canary_committed: int | None = None
    outcomes: tuple[ActionOutcome, ...] = ()
    requeue_at: float = 0.0
    quick_looks: int = 0
    failures: int = 0
    """Consecutive failed steps."""
    quiet_steps: int = 0
    """Consecutive steps that changed nothing."""
    lane: Lane = Lane.NEW
    credentials_read_at: float = 0.0
    credentials: tuple[str, ...] | None = None
    """Versions of the Secrets of the open connections."""
    refusals: int = 0
    """Consecutive refusals of the status by the API server."""
    generation: int = -1
    recorded_step: str = ""
    """Value of the annotation for which this process recorded a step."""
    told_unknown: tuple[str, ...] = ()
    """Fields that an event of this process named as unknown."""
    behind: ZooKeeperBehind | None = None
    presented: dict[str, Answer[PresentedCertificate | Unobserved]] = field(default_factory=dict)
    """What each process of a controller presents."""
    paths: Answer[Paths] | None = None
    """For phase, processes of the controllers, and addresses: what the controllers' pods reach."""
    kafka4: Answer[KafkaSettings] | None = None
    belongings: Answer[belongings.Belongings] | None = None
    """For the controllers' name, and the configuration that their template names."""

    def use_channel(self, channel: str) -> None:
        """Forget what was read with another channel."""
        if channel == self.channel:
            return
        self.channel = channel
        self.survey = None
        self.dry_start = None
        self.rehearsed = None

    def forget_unasked(self, parts: frozenset[Part]) -> None:
        """Forget what is not asked for now: a node is away, or the migration rests, and the next step decides anew."""
        if Part.SURVEY not in parts:
            self.survey = None
        if Part.PATHS not in parts:
            self.paths = None


def _asked(parts: frozenset[Part], spec: MigrationSpec) -> frozenset[Part]:
    """Return the parts to observe; where one broker is down at a time, nobody asks where the replicas are."""
    return parts if spec.strategy.in_batches else parts - {Part.ASSIGNMENTS}


class Observer:
    """Observes one migration for one step."""

    def __init__(
        self,
        kubernetes: ReadPort,
        pool: ThreadPoolExecutor,
        settings: Settings,
        leases: Leases,
        facts: Facts,
        dry_starts: DryStarter,
    ) -> None:
        self._kubernetes = kubernetes
        self._settings = settings
        self._pool = pool
        self._leases = leases
        self._facts = facts
        self._dry_starts = dry_starts
        self._logs = LogReader(kubernetes)
        self._refusals = PodRefusals(kubernetes)
        self._surveyor = Surveyor(kubernetes, settings, facts)

    def observe(
        self,
        migration: Migration,
        clients: ClusterClients,
        memory: Memory,
        now: datetime,
    ) -> Observation:
        """Return the current observation. Parts that the phase does not need are not read."""
        identity = migration.identity
        status = migration.status
        parts = _asked(needs(status, now), migration.spec)
        choosing = chooses_channel(migration.spec, status)
        spec = with_channel(migration.spec, status)
        migration = replace(migration, spec=spec)
        memory.use_channel(described(spec.brokers))
        memory.forget_unasked(parts)

        def look(part: Part, source: str, read: Callable[..., T], *args: Any) -> Future[T | Unobserved] | None:
            return self._later(source, read, *args) if part in parts else None

        sets = [
            self._later(f"StatefulSet {r.name}", self._stateful_set, migration, r.name)
            for r in spec.brokers.stateful_sets
        ]
        zookeeper = look(Part.ZOOKEEPER, "ZooKeeper", clients.zookeeper.observe)
        cluster = look(Part.CLUSTER, "Kafka", clients.brokers.cluster_state)
        controllers = look(Part.CONTROLLERS, "controllers", self._controllers, migration, memory)
        quorum = look(Part.QUORUM, "quorum", clients.controllers.quorum_state)
        run = look(Part.RUN, "verification", runs.last_run, self._kubernetes, identity, status)
        runner = look(Part.RUNNER_AVAILABLE, "API discovery", self._runner_available, spec)
        by_broker = look(Part.CLUSTER_BY_BROKER, "brokers", clients.brokers.cluster_by_broker)
        redundancy = look(Part.REDUNDANCY, "topics", self._redundancy, clients, memory, now)
        survey = look(Part.SURVEY, "survey", self._survey, migration, clients, memory)
        registered = look(Part.REGISTERED_CONTROLLERS, "quorum", clients.controllers.registered_controllers)
        archive = look(
            Part.ARCHIVE, "archive", archives.find, self._kubernetes, identity.namespace, _archive_of(status)
        )
        canaries = look(Part.CANARY_BY_BROKER, "brokers", clients.brokers.serves_topic, _canary_of(status))
        views = look(Part.CONTROLLER_BY_BROKER, "brokers", _views, clients)
        features = look(Part.CONTROLLER_FEATURES, "controllers", self._controllers_features, clients, memory)
        if features is None:
            features = look(Part.NODE_FEATURES, "features", _features, clients)
        validation = look(Part.FEATURE_ANSWER, "quorum", _validation, clients, status)
        dry_start = look(Part.DRY_START, "dry start", self._dry_start, migration, memory, now, choosing)
        rehearsal = look(Part.REHEARSAL, "rehearsal", self._rehearsal, migration, memory)
        brought = look(Part.BROUGHT, "Secret of the listener", self._facts.brought, migration, now)
        left = look(Part.RUNS_LEFT, "runs", runs.left_runs, self._kubernetes, identity.namespace, status.retired_runs)
        issued = look(Part.ISSUED, "Secret of the listener", self._facts.issued, migration, now)
        record = look(Part.BROKER_RECORD, "record of the broker", self._record, identity, status, memory)
        guarded = look(Part.ADMISSION_POLICY, "API server", self._guarded)
        workload = self._result(controllers)
        znodes = self._result(zookeeper)
        observed_sets = tuple(self._result(s) for s in sets)
        for_kafka4 = look(Part.KAFKA4, "settings", _for_kafka4, migration, clients, memory, observed_sets)
        clues = look(Part.CLUES, "logs", self._logs.clues, migration, observed_sets, workload)
        ways = look(Part.PATHS, "paths", self._paths, migration, workload, znodes, clients, memory)
        ids = look(Part.TOPIC_IDS, "topics' ids", _topic_ids, clients, status, observed_sets)
        started = look(Part.START_LOG, "log", self._logs.start, migration, observed_sets)
        kept = look(Part.KEPT_COPY, "kept copy", self._kept_copy, identity, status)
        behind = look(Part.BEHIND, "brokers and ZooKeeper", self._behind, clients, memory, now)
        recorded = self._result(record)
        now_is = look(
            Part.BROKER_NOW,
            "broker that restarted",
            self._broker_now,
            migration,
            clients,
            observed_sets,
            recorded,
        )
        topics = self._result(redundancy)
        # Last, since it takes the topics' redundancy from memory, and nothing else waits for that.
        assignments = look(Part.ASSIGNMENTS, "partitions", self._assignments, migration, clients, memory, now)
        return Observation(
            at=now,
            stateful_sets=observed_sets,
            controllers=workload,
            zookeeper=znodes,
            quorum=self._result(quorum),
            metrics=self._metrics(spec, workload, clients) if Part.METRICS in parts else {},
            cluster=self._result(cluster),
            cluster_by_broker=self._result(by_broker),
            redundancy=topics,
            assignments=self._result(assignments),
            run=_result_or_none(run),
            runner_available=self._result(runner),
            canary_by_broker=self._result(canaries),
            controller_by_broker=self._result(views),
            registered_controllers=self._result(registered),
            admission_policy=self._result(guarded),
            survey=self._result(survey),
            clues=self._result(clues),
            features=self._result(features),
            feature_answer=self._result(validation),
            archive=_result_or_none(archive),
            controller_probe=_probed(clients, status, probe=Part.CONTROLLER_PROBE in parts),
            canary_committed=memory.canary_committed,
            dry_start=self._result(dry_start),
            rehearsal=self._result(rehearsal),
            runs_left=self._result(left),
            broker_record=recorded,
            broker_now=self._result(now_is),
            start_log=self._result(started),
            kept_copy=self._result(kept),
            behind=self._result(behind),
            issued=_result_or_none(issued),
            brought=_result_or_none(brought),
            presented=self._presented(spec, status, workload, clients, memory)
            if Part.PRESENTED in parts
            else NOT_NEEDED,
            topic_ids=self._result(ids),
            server_time=self._kubernetes.server_time() or _NO_TIME if Part.SERVER_TIME in parts else NOT_NEEDED,
            paths=self._result(ways),
            kafka4=self._result(for_kafka4),
            outcomes=memory.outcomes,
            refused=clients.refused,
        )

    def _stateful_set(self, migration: Migration, name: str) -> StatefulSetState | Unobserved:
        identity = migration.identity
        spec = migration.spec
        status = migration.status
        stateful_set = self._kubernetes.get("apps/v1", "StatefulSet", identity.namespace, name)
        if stateful_set is None:
            controllers = () if status.controllers is None else (status.controllers.name,)
            own = frozenset({*(ref.name for ref in spec.brokers.stateful_sets), *controllers})
            return absent(self._kubernetes, identity.namespace, name, status.objects, own)
        pods = self._kubernetes.list("v1", "Pod", identity.namespace, workloads.pods_selector(stateful_set))
        kept = self._facts.kept(identity, status, name)
        original = self._facts.original(migration, stateful_set)
        facts: BrokerFacts | None = None
        drift: tuple[str, ...] = ()
        references = frozenset[str]()
        if original is not None:
            facts = self._facts.brokers(migration, original)
            _, references = settings_of(spec, original)
        if facts is not None and kept is not None:
            drift = workloads.drift_of(spec, facts, stateful_set)
        before = facts or BrokerFacts(identity.namespace, "", identity.cluster_domain, "", {}, "")
        state = workloads.brokers_state(spec, stateful_set, pods, before, drift, references)
        state = replace(
            state,
            lease=self._leases.look(identity, name),
            original=RecordedOriginal() if kept is None else kept.record,
            overlay=overlay_of(stateful_set),
            selector=workloads.pods_selector(stateful_set),
            chart=chart_of(stateful_set),
            claims=claims_of(self._kubernetes, identity.namespace, stateful_set, pods),
            pods_refused=self._refusals.of(stateful_set, len(state.pods)),
        )
        if starts_from_template(status):
            state = replace(state, template=self._facts.template_sight(migration, stateful_set))
        if status.phase.row.gives_back:
            needed = _needed(spec, status, None if kept is None else facts, stateful_set)
            state = _handed_over(state, stateful_set, needed)
        if original is None or facts is None:
            return state
        state = replace(
            state,
            fixed_variables=fixed_variables(spec, original, facts),
            overrides=original.overrides,
            writes_to_zookeeper=facts.zookeeper_writers,
            former=changed_fields(spec, name, original, facts),
        )
        if kept is None:
            return state
        ours = variables_of_modes(spec, facts)
        images = [new.image for new in (facts.upgrade, facts.kafka4) if new is not None]
        foreign = workloads.foreign_changes(spec, original.container, original.volumes, ours, stateful_set, images)
        return replace(state, foreign=foreign)

    def _controllers(self, migration: Migration, memory: Memory) -> ControllersWorkload:
        identity = migration.identity
        status = migration.status
        if status.controllers is None:
            return ControllersWorkload(None)
        name = status.controllers.name
        stateful_set = self._kubernetes.get("apps/v1", "StatefulSet", identity.namespace, name)
        mounted = "" if stateful_set is None else workloads.mounted_configuration(stateful_set)
        found = self._belongings(identity, status.controllers, memory, mounted)
        selector = belongings.selector(identity.name)
        pods = self._kubernetes.list("v1", "Pod", identity.namespace, selector)
        if stateful_set is None:
            left = belongings.left_pods(pods, status.controllers, "")
            return ControllersWorkload(None, missing=found.missing, claims=found.claims, left=left)
        left = belongings.left_pods(pods, status.controllers, stateful_set["metadata"]["uid"])
        uids = self._bound_claims(identity.namespace, status.controllers)
        named = status.controllers.format_config_map
        config_map = self._kubernetes.get("v1", "ConfigMap", identity.namespace, named)
        format_word = section(config_map, "data").get(WORD_KEY)
        rendered = None
        if mounted:
            rendered = self._kubernetes.get("v1", "ConfigMap", identity.namespace, mounted)
        own = workloads.own_state(stateful_set, pods, KAFKA_CONTAINER)
        own = replace(own, pods_refused=self._refusals.of(stateful_set, len(own.pods)))
        # A newer operator can render other objects from the same spec. That alone must not restart a voter.
        changing = status.controllers.change is not None or is_under_way(status) or expired.is_under_way(status)
        if status.controllers.format_allowed or changing:
            facts = self._facts.controllers(migration)
            wanted = controllers_configuration(rendered_spec(migration.spec, status), facts, status.controllers.mode)
            if own.configuration != wanted:
                own = replace(own, drift=("configuration",))
        return ControllersWorkload(
            own,
            format_allowed=None if format_word is None else format_word == "allowed",
            reformat=int(format_word) if format_word is not None and format_word.isdecimal() else None,
            volume_uids=uids,
            migration_flag=workloads.migration_flag(rendered),
            config_writer=workloads.written_by(rendered),
            config_replaced=names.is_configuration(name, mounted) and workloads.is_replaced(rendered),
            configurations=found.configurations,
            mounted=workloads.mounted_config_maps(stateful_set, pods),
            secrets=self._facts.secrets(migration),
            missing=found.missing,
            claims=found.claims,
            left=left,
            without_agent=workloads.without_agent(stateful_set, pods),
        )

    def _bound_claims(self, namespace: str, controllers: ControllersStatus) -> dict[int, str]:
        """Return the UIDs of the claims that have a volume, while the controllers may format theirs."""
        if not controllers.format_allowed:
            return {}
        uids = {}
        for node_id in controllers.node_ids:
            name = names.controller_claim(controllers.name, node_id)
            claim = self._kubernetes.get("v1", "PersistentVolumeClaim", namespace, name)
            if claim is not None and section(claim, "status").get("phase") == "Bound":
                uids[node_id] = claim["metadata"]["uid"]
        return uids

    def _behind(self, clients: ClusterClients, memory: Memory, now: datetime) -> ZooKeeperBehind:
        """Return what ZooKeeper lacks, at most `BEHIND_EVERY` old: it is read partition by partition."""
        behind = memory.behind
        if behind is None or now - behind.read_at >= BEHIND_EVERY:
            behind = memory.behind = zookeeper_behind(clients, now)
        return behind

    def _belongings(
        self, identity: Identity, controllers: ControllersStatus, memory: Memory, mounted: str
    ) -> belongings.Belongings:
        """Return the controllers' objects; ``mounted``: the configuration that their template names.

        They are read anew every few seconds while nothing is amiss.
        """
        asked = (controllers.name, mounted)
        answer = memory.belongings
        if (
            mounted
            and answer is not None
            and answer.holds(BELONGINGS_EVERY_SECONDS, asked)
            and not answer.value.missing
        ):
            return answer.value
        found = belongings.look(self._kubernetes, identity.namespace, identity.name, controllers, mounted)
        memory.belongings = Answer(found, asked)
        return found

    def _metrics(
        self, spec: MigrationSpec, workload: ControllersWorkload | Unobserved, clients: ClusterClients
    ) -> dict[int, ControllerMetrics | Unobserved]:
        if isinstance(workload, Unobserved) or workload.stateful_set is None:
            return {i: Unobserved(f"controller {i}", "its pod was not seen") for i in spec.controllers.node_ids}
        silent = workload.without_agent
        addresses = {p.ordinal: p.ip for p in workload.stateful_set.pods if p.ip and not p.deleting}
        addresses = {ordinal: ip for ordinal, ip in addresses.items() if ordinal not in silent}
        read = partial(read_controller_metrics, timeout_seconds=METRICS_TIMEOUT_SECONDS, judge=clients.judge)
        asked = {i: self._later(f"controller {i}", read, i, ip) for i, ip in addresses.items()}
        metrics: dict[int, ControllerMetrics | Unobserved] = {}
        for i in spec.controllers.node_ids:
            why = "its pod runs no metrics agent" if i in silent else "its pod has no address"
            metrics[i] = asked[i].result() if i in asked else Unobserved(f"controller {i}", why)
        return metrics

    def _presented(
        self,
        spec: MigrationSpec,
        status: MigrationStatus,
        workload: ControllersWorkload | Unobserved,
        clients: ClusterClients,
        memory: Memory,
    ) -> dict[int, PresentedCertificate | Unobserved] | Unobserved:
        """Return what the controllers present, at most `PRESENTED_EVERY_SECONDS` old.

        Of a process that does not answer now it is what the process has presented before.
        """
        if not spec.controllers.listener.security_protocol.endswith("SSL"):
            return {}
        reader = clients.certificates
        if isinstance(workload, Unobserved) or status.controllers is None or reader is None:
            return Unobserved("certificates of the controllers", "their pods were not seen")
        pods = [] if workload.stateful_set is None else workload.stateful_set.pods
        running = {p.process: p for p in pods if p.ip and not p.deleting}
        known = {process: answer for process, answer in memory.presented.items() if process in running}
        asked = {
            process: self._later(
                f"certificate of controller {pod.ordinal}",
                reader.read,
                pod.ordinal,
                pod.ip,
                status.controllers.mode.port,
                process,
                METRICS_TIMEOUT_SECONDS,
            )
            for process, pod in running.items()
            if process not in known or not known[process].holds(PRESENTED_EVERY_SECONDS)
        }
        for process, reading in asked.items():
            answer = reading.result()
            if process not in known or not isinstance(answer, Unobserved):
                known[process] = Answer(answer)
        memory.presented = known
        return {running[process].ordinal: answer.value for process, answer in known.items()}

    def _paths(
        self,
        migration: Migration,
        workload: ControllersWorkload | Unobserved,
        zookeeper: ZooKeeperState | Unobserved,
        clients: ClusterClients,
        memory: Memory,
    ) -> Paths:
        """Return what the controllers' pods reach of the brokers, at most `PATHS_EVERY_SECONDS` old."""
        if isinstance(workload, Unobserved):
            raise ObservationError(workload.source, workload.reason)
        if isinstance(zookeeper, Unobserved):
            raise ObservationError(zookeeper.source, zookeeper.reason)
        own = workload.stateful_set
        pods = () if own is None else tuple(pod for pod in own.pods if not pod.deleting)
        status = migration.status
        asked = (status.phase, tuple(pod.process for pod in pods), zookeeper.brokers)
        answer = memory.paths
        if answer is None or not answer.holds(PATHS_EVERY_SECONDS, asked):
            settings = controller_settings(
                rendered_spec(migration.spec, status), self._facts.controllers(migration), ControllerMode.MIGRATION
            )
            read_at = time.monotonic()
            tried = paths.tried(self._kubernetes, migration, clients, pods, paths.Brokers(zookeeper.brokers, settings))
            memory.paths = answer = Answer(tried, asked, read_at)
        return answer.value

    def _record(self, identity: Identity, status: MigrationStatus, memory: Memory) -> BrokerRecord | None:
        """Return what is on record of a broker; the actuator forgets it when it writes another one."""
        assert status.broker_record is not None
        name = status.broker_record.config_map
        if memory.record is not None and memory.record[0] == name:
            return memory.record[1]
        record = broker_records.read(self._kubernetes, identity.namespace, name)
        memory.record = None
        if record is not None:
            memory.record = (name, record)
        return record

    def _broker_now(
        self,
        migration: Migration,
        clients: ClusterClients,
        sets: tuple[StatefulSetState | Unobserved, ...],
        recorded: BrokerRecord | Unobserved | None,
    ) -> BrokerNow:
        status = migration.status
        assert status.broker_comparison is not None
        node_id = status.broker_comparison.node_id
        sets_seen = [item for item in sets if not isinstance(item, Unobserved)]
        pods = [pod for item in sets_seen for pod in item.pods if status.broker_ids.get(pod.name) == node_id]
        if not pods:
            raise ObservationError(f"broker {node_id}", "its pod was not seen")
        before = None
        if status.broker_record is not None and status.broker_record.node_id == node_id:
            if isinstance(recorded, Unobserved):
                raise ObservationError(recorded.source, recorded.reason)
            before = recorded
        return broker_records.ask(
            self._kubernetes,
            migration.identity.namespace,
            clients,
            before,
            node_id,
            pods[0],
            migration.spec.brokers.container,
        )

    def _kept_copy(self, identity: Identity, status: MigrationStatus) -> KeptCopy | None:
        place = "" if status.keeping is None else status.keeping.secret
        return kept_copies.read(self._kubernetes, identity.namespace, place)

    def _redundancy(self, clients: ClusterClients, memory: Memory, now: datetime) -> TopicRedundancy:
        redundancy = memory.redundancy
        if redundancy is None or redundancy.read_at is None or abs(now - redundancy.read_at) > REDUNDANCY_EVERY:
            memory.redundancy = redundancy = replace(clients.brokers.topic_redundancy(), read_at=now)
        return redundancy

    def _assignments(
        self, migration: Migration, clients: ClusterClients, memory: Memory, now: datetime
    ) -> SeenAssignments:
        """Return where the replicas are. They are read in each step, since an eviction is decided on them."""
        redundancy = self._redundancy(clients, memory, now)
        return replicas.observe(self._kubernetes, clients.brokers, migration, redundancy, now)

    def _controllers_features(self, clients: ClusterClients, memory: Memory) -> Mapping[int, NodeFeatures | Unobserved]:
        """Ask each controller for its features every few seconds: one that is down costs a connection timeout."""
        answer = memory.features
        if answer is None or not answer.holds(FEATURES_EVERY_SECONDS):
            read_at = time.monotonic()
            memory.features = answer = Answer(clients.controllers.features(), read_at=read_at)
        return answer.value

    def _survey(self, migration: Migration, clients: ClusterClients, memory: Memory) -> Survey:
        status = migration.status
        if memory.survey is not None:
            read_at, survey, phase = memory.survey
            if phase is status.phase and time.monotonic() - read_at <= SURVEY_EVERY_SECONDS:
                return survey
        read = self._surveyor.survey if status.phase is Phase.PREFLIGHT else self._surveyor.settings
        begun_at = time.monotonic()
        survey = read(migration, clients)
        memory.survey = (begun_at, survey, status.phase)
        return survey

    def _dry_start(
        self,
        migration: Migration,
        memory: Memory,
        now: datetime,
        choosing: bool,  # noqa: FBT001 - the call is deferred
    ) -> DryStartState:
        identity = migration.identity
        record = migration.status.dry_start
        run = None
        if record is not None and record.running is not None:
            run = self._dry_starts.run(identity, record.running)
        if not self._settings.dry_start:
            return DryStartState("", run=run, off=True)
        answer = memory.dry_start
        # Later a template is compared with what was looked at (`phases.nodes.templates`), as of this very step.
        seconds = DRY_START_EVERY_SECONDS if migration.status.phase is Phase.PREFLIGHT else 0.0
        if answer is None or memory.generation != identity.generation or not answer.holds(seconds):
            fingerprint = self._dry_starts.fingerprint(migration)
            channels = self._dry_starts.channels(identity, migration.spec) if choosing else ()
            memory.dry_start = answer = Answer((fingerprint, channels))
        fingerprint, channels = answer.value
        return DryStartState(fingerprint, self._last_dry_start(identity, record, memory, now), run, channels=channels)

    def _last_dry_start(
        self, identity: Identity, record: DryStartStatus | None, memory: Memory, now: datetime
    ) -> DryStartReport | None:
        """Return what the last dry start found, while that stands."""
        if record is None or not dry_starting.stands(record, identity.generation, now):
            return None
        if memory.dry_start_report is None or memory.dry_start_report[0] != record.run_id:
            memory.dry_start_report = (record.run_id, self._dry_starts.report(identity, record))
        return memory.dry_start_report[1]

    def _rehearsal(self, migration: Migration, memory: Memory) -> RehearsalState:
        identity = migration.identity
        if not migration.spec.rehearsal.enabled:
            return RehearsalState("")
        record = migration.status.dry_start
        dry_start = "" if record is None else record.run_id
        inputs = (identity.generation, identity.rehearse, migration.status.broker_settings, dry_start)
        answer = memory.rehearsed
        if answer is None or not answer.holds(REHEARSED_EVERY_SECONDS, inputs):
            facts = self._facts.controllers(migration)
            brokers = self._rehearsed_brokers(migration, memory)
            digest = rehearsed_fingerprint(migration.spec, facts, identity.rehearse, brokers)
            memory.rehearsed = answer = Answer(digest, inputs)
        return RehearsalState(answer.value, running_rehearsal(self._kubernetes, identity, migration.status))

    def _rehearsed_brokers(self, migration: Migration, memory: Memory) -> tuple[RehearsedSettings, ...]:
        """Return the brokers as the last dry start shows them in KRaft mode, also where it does not stand any more."""
        record = migration.status.dry_start
        if record is None:
            return ()
        known = memory.rehearsed_brokers
        if known is None or known[0] != record.run_id:
            report = self._dry_starts.report(migration.identity, record)
            brokers = kraft_brokers(report, migration.spec.brokers.container)
            memory.rehearsed_brokers = known = (record.run_id, brokers)
        return known[1]

    def _guarded(self) -> bool:
        """Return whether the chart's admission policy and its binding are in force."""
        name = self._settings.admission_policy
        kinds = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
        if not name:
            return False
        group = "admissionregistration.k8s.io/v1"
        return all(self._kubernetes.get(group, kind, None, name) is not None for kind in kinds)

    def _runner_available(self, spec: MigrationSpec) -> bool:
        return spec.verification.runner is Runner.JOB or self._kubernetes.serves(SPARK_API_VERSION, "SparkApplication")

    def _later(
        self, source: str, look: Callable[..., T | Unobserved], *args: Any, **kwargs: Any
    ) -> Future[T | Unobserved]:
        def attempt() -> T | Unobserved:
            try:
                return look(*args, **kwargs)
            except ObservationError as error:
                OBSERVATION_ERRORS.labels(source=source.partition(" ")[0]).inc()
                return Unobserved(error.source, error.reason)

        return self._pool.submit(copy_context().run, attempt)

    @staticmethod
    def _result(future: Future[T | Unobserved] | None) -> T | Unobserved:
        return NOT_NEEDED if future is None else future.result()


def _result_or_none(future: Future[T] | None) -> T | None:
    return None if future is None else future.result()


def _needed(
    spec: MigrationSpec, status: MigrationStatus, facts: BrokerFacts | None, live: Mapping[str, Any]
) -> GuardedStatefulSet | None:
    """Return what a template needs for KRaft, from the status or the recorded state; None without either."""
    name = live["metadata"]["name"]
    guarded = status.hand_over.stateful_sets if status.hand_over is not None else ()
    for stateful_set in guarded:
        if stateful_set.name == name:
            return stateful_set
    return None if facts is None else hand_over.required(spec, facts, name, live["spec"]["template"])


def _handed_over(
    state: StatefulSetState, stateful_set: Mapping[str, Any], needed: GuardedStatefulSet | None
) -> StatefulSetState:
    if needed is None:
        return state
    return replace(
        state,
        required=needed,
        lacking=hand_over.lacking(needed, stateful_set["spec"]["template"]),
        owner_renders=hand_over.owner_renders(needed, stateful_set),
    )


def _canary_of(status: MigrationStatus) -> str:
    """Return the topic that the canary creates, ``""`` without one."""
    return "" if status.canary is None else canary_topic(status.canary.value)


def _archive_of(status: MigrationStatus) -> str:
    return status.healing.archive if status.healing is not None else ""


def _features(clients: ClusterClients) -> Mapping[int, NodeFeatures | Unobserved]:
    return {**clients.brokers.features(), **clients.controllers.features()}


def _validation(clients: ClusterClients, status: MigrationStatus) -> FeatureAnswer:
    leg = status.kafka4_leg
    if leg is not None and leg.asks is not None:
        return clients.controllers.validate_metadata_version(leg.asks.to_level, Upgrade.UPGRADE, leg.asks.name)
    version = status.metadata_version
    if version is None or version.target_level is None or version.upgrade is None:
        raise ObservationError("active controller", "there is nothing to validate")
    return clients.controllers.validate_metadata_version(version.target_level, version.upgrade)


def _probed(clients: ClusterClients, status: MigrationStatus, *, probe: bool) -> ControllerProbe | None:
    """Probe the controller only in the phases that change it."""
    if clients.prober is None:
        return None
    if probe:
        return clients.prober.measure(f"{status.phase} {status.attempt}")
    clients.prober.rest()
    return None


def _topic_ids(
    clients: ClusterClients, status: MigrationStatus, sets: tuple[StatefulSetState | Unobserved, ...]
) -> Mapping[int, TopicIds | Unobserved]:
    asked = topic_ids.to_ask(status, sets)
    return clients.brokers.topic_ids(asked) if asked else {}


def _views(clients: ClusterClients) -> Mapping[int, int | Unobserved]:
    return clients.brokers.controller_by_broker()


def _for_kafka4(
    migration: Migration,
    clients: ClusterClients,
    memory: Memory,
    sets: tuple[StatefulSetState | Unobserved, ...],
) -> KafkaSettings:
    """Return the settings and the clients' requests that Kafka 4 may refuse, read anew after some minutes."""
    page = migration.spec.brokers.metrics
    answer = memory.kafka4
    if answer is None or not answer.holds(KAFKA4_EVERY_SECONDS, page):
        read_at = time.monotonic()
        seen = clients.brokers.settings_for_kafka4()
        if page is not None:
            ips = {pod.name: pod.ip for item in sets if isinstance(item, StatefulSetState) for pod in item.pods}
            addresses = {broker: ips.get(pod, "") for pod, broker in migration.status.broker_ids.items()}
            seen = replace(seen, old_requests=old_requests_of(page, addresses, clients))
        memory.kafka4 = answer = Answer(seen, page, read_at)
    return answer.value
