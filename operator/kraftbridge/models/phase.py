"""The phases of a migration and what is true of each, and the closed sets beside them: targets, node configurations.

`PHASES` has one row for each phase.
What else knows a property of a phase reads its row: what the observer asks, the guards, the pace of the loop,
the rules of the CRD, the simulation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from kraftbridge.constants import CONTROLLER_PORT, ISOLATED_CONTROLLER_PORT


class Target(StrEnum):
    """Values of ``spec.target``: the point up to which the operator migrates."""

    PREFLIGHT = "Preflight"
    BRIDGE_RELEASE = "BridgeRelease"
    QUORUM_READY = "QuorumReady"
    DUAL_WRITE = "DualWrite"
    KRAFT_BROKERS = "KRaftBrokers"
    KRAFT = "KRaft"
    KAFKA4 = "Kafka4"
    ZOOKEEPER = "ZooKeeper"


class Phase(StrEnum):
    """Where a migration stands.

    Forward, each phase is entered through its gate: Preflight, UpgradingBrokers, ProvisioningQuorum, TakingOver,
    DualWrite, RollingBrokers, AwaitingFinalization, Finalizing, Completed.
    UpgradingBrokers is left out where neither ``spec.brokers.upgrade`` nor the target asks for it.
    Any phase before Finalizing may go to RollingBack and on to RolledBack.

    From Completed the target Kafka4 leads on: Kafka4Controllers, Kafka4Brokers, Kafka4.
    Until a feature is raised, each of them may go to LeavingKafka4 and back to Completed.
    """

    PREFLIGHT = "Preflight"
    UPGRADING_BROKERS = "UpgradingBrokers"
    PROVISIONING_QUORUM = "ProvisioningQuorum"
    TAKING_OVER = "TakingOver"
    DUAL_WRITE = "DualWrite"
    ROLLING_BROKERS = "RollingBrokers"
    AWAITING_FINALIZATION = "AwaitingFinalization"
    FINALIZING = "Finalizing"
    COMPLETED = "Completed"
    KAFKA4_CONTROLLERS = "Kafka4Controllers"
    KAFKA4_BROKERS = "Kafka4Brokers"
    KAFKA4 = "Kafka4"
    LEAVING_KAFKA4 = "LeavingKafka4"
    ROLLING_BACK = "RollingBack"
    ROLLED_BACK = "RolledBack"

    @property
    def row(self) -> PhaseRow:
        """What is true of this phase."""
        return PHASES[self]

    @property
    def reversible(self) -> bool:
        """Whether the migration can be rolled back from this phase."""
        return self.row.reversible

    @property
    def at_rest(self) -> bool:
        """Whether the migration owns no object of the user in this phase, so that the resource may be deleted."""
        return self.row.at_rest


class BrokerMode(StrEnum):
    """How a broker is configured (KIP-866, "Broker configs")."""

    ZOOKEEPER = "ZooKeeper"
    UPGRADED = "Upgraded"
    """On ZooKeeper as before, with the image of ``spec.brokers.upgrade`` and the inter-broker protocol that ran."""
    LIFTED = "Lifted"
    """On ZooKeeper with that image and protocol 3.9, where topics had no ids with the one before (KIP-516)."""
    MIGRATION = "Migration"
    """On ZooKeeper, with ``zookeeper.metadata.migration.enable`` and the quorum known."""
    KRAFT = "KRaft"
    KAFKA4 = "Kafka4"
    """As `KRAFT`, with the image of ``spec.kafka4``."""

    @classmethod
    def of(cls, configuration: str) -> BrokerMode:
        """Return the mode that a configuration annotation (``Mode-hash``) names; without one it is ZooKeeper."""
        return _BROKER_MODES.get(configuration.partition("-")[0], cls.ZOOKEEPER)

    @property
    def registers(self) -> bool:
        """Whether a broker registers with the KRaft quorum in this mode."""
        return self is BrokerMode.MIGRATION or self.is_of_kraft

    @property
    def is_of_kraft(self) -> bool:
        """Whether a broker is a KRaft broker in this mode."""
        return self in (BrokerMode.KRAFT, BrokerMode.KAFKA4)

    @property
    def is_of_bridge(self) -> bool:
        """Whether a broker is on ZooKeeper as before, with the image of ``spec.brokers.upgrade``."""
        return self in (BrokerMode.UPGRADED, BrokerMode.LIFTED)

    @property
    def lifts(self) -> bool:
        """Whether a broker that was brought to another image runs the inter-broker protocol 3.9 in this mode."""
        return self is BrokerMode.LIFTED or self.registers


_BROKER_MODES: dict[str, BrokerMode] = {mode.value: mode for mode in BrokerMode}


class ControllerMode(StrEnum):
    """How the KRaft controllers are configured."""

    MIGRATION = "Migration"
    FINAL = "Final"
    """Without ``zookeeper.metadata.migration.enable``: the first active one finalizes (KIP-866)."""
    ISOLATED = "Isolated"
    """As `MIGRATION`, on a port that no broker knows: the log gets no more changes, and ZooKeeper gets all of it."""

    @property
    def migrates(self) -> bool:
        """Whether the controllers run with ``zookeeper.metadata.migration.enable``."""
        return self is not ControllerMode.FINAL

    @property
    def port(self) -> int:
        """Port of the controllers' listener."""
        return ISOLATED_CONTROLLER_PORT if self is ControllerMode.ISOLATED else CONTROLLER_PORT


class ZkMigrationState(StrEnum):
    """Kafka's ``ZkMigrationState`` (metadata record and gauge), by name.

    The numbers 1 and 2 changed places in Kafka 3.5 (``org.apache.kafka.metadata.migration.ZkMigrationState``),
    so only names leave the module that reads them.
    """

    NONE = "NONE"
    MIGRATION = "MIGRATION"
    PRE_MIGRATION = "PRE_MIGRATION"
    POST_MIGRATION = "POST_MIGRATION"
    ZK = "ZK"
    ABSENT = "ABSENT"
    """Kafka 4 knows no migration, and has no such gauge (``ControllerMetadataMetrics``)."""
    NOT_LOADED = "NOT_LOADED"
    """The gauge says -1: the controller has not yet loaded an image."""


class Part(StrEnum):
    """A part of an `Observation`, named after its field."""

    STATEFUL_SETS = "stateful_sets"
    CONTROLLERS = "controllers"
    ZOOKEEPER = "zookeeper"
    QUORUM = "quorum"
    METRICS = "metrics"
    CLUSTER = "cluster"
    CLUSTER_BY_BROKER = "cluster_by_broker"
    REDUNDANCY = "redundancy"
    ASSIGNMENTS = "assignments"
    """Only where several brokers may be down together."""
    RUN = "run"
    RUNNER_AVAILABLE = "runner_available"
    CANARY_BY_BROKER = "canary_by_broker"
    CONTROLLER_BY_BROKER = "controller_by_broker"
    REGISTERED_CONTROLLERS = "registered_controllers"
    ADMISSION_POLICY = "admission_policy"
    CONTROLLER_FEATURES = "features"
    """Features of the controllers only."""
    NODE_FEATURES = "features of every node"
    """Features of brokers and controllers, in the same field."""
    FEATURE_ANSWER = "feature_answer"
    CLUES = "clues"
    SURVEY = "survey"
    DRY_START = "dry_start"
    REHEARSAL = "rehearsal"
    RUNS_LEFT = "runs_left"
    ARCHIVE = "archive"
    CONTROLLER_PROBE = "controller_probe"
    ISSUED = "issued"
    BROKER_RECORD = "broker_record"
    BROKER_NOW = "broker_now"
    START_LOG = "start_log"
    KEPT_COPY = "kept_copy"
    BEHIND = "behind"
    PRESENTED = "presented"
    BROUGHT = "brought"
    PATHS = "paths"
    TOPIC_IDS = "topic_ids"
    SERVER_TIME = "server_time"
    KAFKA4 = "kafka4"


class RestGate(StrEnum):
    """What must hold while a migration rests."""

    QUORUM = "quorum"
    """Every voter follows one leader, and none lags."""
    REGISTRATIONS = "registrations"
    """Every broker is registered with the quorum as a KRaft broker and unfenced."""
    CLUSTER = "cluster"
    """Every broker serves, and every partition has its leader and its full ISR."""
    LEADERS = "leaders"
    """Every partition has a leader. The brokers' owner may restart and remove brokers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRow:
    """What is true of one phase."""

    needs: frozenset[Part]
    """What is observed, if its source exists (`kraftbridge.phases.needs`); a gate on another part stays closed."""
    brokers: BrokerMode | None
    """The mode that the brokers are brought to. None: no broker is changed."""
    forward: bool = True
    """Whether it is on the way to `Target.KRAFT` and on to `Target.KAFKA4`."""
    reaches: Target | None = None
    """The target that is reached in it."""
    reversible: bool = True
    """Whether the migration can be rolled back from it."""
    at_rest: bool = False
    """Whether it owns no object of the user, holds no Lease and runs no operation: the resource may be deleted."""
    restarts_nodes: bool = False
    """Whether it restarts brokers or controllers one after the other."""
    migrates: bool = False
    """Whether every controller must have ``zookeeper.metadata.migration.enable``.

    ProvisioningQuorum applies its controllers itself.
    """
    mirrors: bool = False
    """Whether the KRaft controller writes each change to ZooKeeper, too (KIP-866, dual-write)."""
    on_kafka4: bool = False
    """Whether brokers or controllers may run Kafka 4 (``status.kafka4Leg``)."""
    led_by_kraft: bool = False
    """Whether the brokers have been led by a KRaft controller since it began."""
    rests_on: tuple[RestGate, ...] = ()
    """What must hold while the migration rests in it, beside the mirror where it ``mirrors``."""
    idle_seconds: float | None = None
    """Longest pause of the loop while the user is waited for. None: it does not grow.

    A correction in the cluster (not in the resource) is noticed within it, and so is a gate of a rest that closes.
    A phase in which Leases are held must look more often than they expire.
    """

    @property
    def is_open(self) -> bool:
        """Whether everything may be edited: the migration has not begun, or it is taken back."""
        return self.at_rest and self.reversible

    @property
    def gives_back(self) -> bool:
        """Whether the StatefulSets of the brokers are given back to their owner in it."""
        return self.at_rest and not self.reversible

    @property
    def changes_brokers(self) -> bool:
        """Whether StatefulSets of brokers may differ from what their owner wrote."""
        return self.brokers is not None and not self.is_open

    @property
    def leads_forward(self) -> bool:
        """Whether a forward step comes next, with controllers that share settings with the brokers."""
        return self.forward and self.reversible and not self.is_open


_ALWAYS: Final = frozenset(
    {Part.STATEFUL_SETS, Part.CLUSTER, Part.RUN, Part.CLUES, Part.START_LOG, Part.KEPT_COPY, Part.BEHIND}
    | {Part.ISSUED, Part.BROUGHT, Part.SERVER_TIME}
)
_QUORUM: Final = frozenset({Part.CONTROLLERS, Part.QUORUM, Part.METRICS, Part.PRESENTED})
_RESTARTS: Final = frozenset({Part.CLUSTER_BY_BROKER, Part.REDUNDANCY, Part.ASSIGNMENTS, Part.DRY_START})
"""Parts for the gate before each restart of a node."""
_BECOMING: Final = frozenset({Part.BROKER_RECORD, Part.BROKER_NOW})
"""Parts for the comparison of a broker before and after its restart."""
_MIGRATING: Final = (
    _ALWAYS | _QUORUM | _RESTARTS | _BECOMING | {Part.ZOOKEEPER, Part.CONTROLLER_FEATURES, Part.ARCHIVE, Part.SURVEY}
)
_KAFKA4: Final = _ALWAYS | _QUORUM | _RESTARTS | _BECOMING | {Part.NODE_FEATURES}

PHASES: Final[Mapping[Phase, PhaseRow]] = MappingProxyType(
    {
        Phase.PREFLIGHT: PhaseRow(
            needs=_ALWAYS
            | {Part.ZOOKEEPER, Part.REDUNDANCY, Part.ASSIGNMENTS, Part.RUNNER_AVAILABLE, Part.ADMISSION_POLICY}
            | {Part.SURVEY, Part.DRY_START, Part.REHEARSAL},
            brokers=None,
            reaches=Target.PREFLIGHT,
            at_rest=True,
            idle_seconds=15.0,
        ),
        Phase.UPGRADING_BROKERS: PhaseRow(
            needs=_ALWAYS | _RESTARTS | _BECOMING | {Part.ZOOKEEPER, Part.SURVEY, Part.TOPIC_IDS},
            brokers=BrokerMode.UPGRADED,
            reaches=Target.BRIDGE_RELEASE,
            rests_on=(RestGate.CLUSTER,),
            restarts_nodes=True,
        ),
        Phase.PROVISIONING_QUORUM: PhaseRow(
            needs=_ALWAYS
            | _QUORUM
            | {Part.ZOOKEEPER, Part.REGISTERED_CONTROLLERS, Part.CLUSTER_BY_BROKER, Part.TOPIC_IDS}
            | {Part.SURVEY, Part.DRY_START, Part.REHEARSAL, Part.PATHS},
            brokers=None,
            reaches=Target.QUORUM_READY,
            rests_on=(RestGate.QUORUM, RestGate.CLUSTER),
        ),
        Phase.TAKING_OVER: PhaseRow(
            needs=_MIGRATING
            | {Part.REGISTERED_CONTROLLERS, Part.CANARY_BY_BROKER, Part.CONTROLLER_PROBE, Part.PATHS, Part.TOPIC_IDS},
            brokers=BrokerMode.MIGRATION,
            restarts_nodes=True,
            migrates=True,
        ),
        Phase.DUAL_WRITE: PhaseRow(
            needs=_MIGRATING | {Part.CANARY_BY_BROKER},
            brokers=BrokerMode.MIGRATION,
            reaches=Target.DUAL_WRITE,
            rests_on=(RestGate.QUORUM, RestGate.CLUSTER),
            migrates=True,
            mirrors=True,
            led_by_kraft=True,
        ),
        Phase.ROLLING_BROKERS: PhaseRow(
            needs=_MIGRATING,
            brokers=BrokerMode.KRAFT,
            restarts_nodes=True,
            migrates=True,
            mirrors=True,
            led_by_kraft=True,
        ),
        Phase.AWAITING_FINALIZATION: PhaseRow(
            needs=_MIGRATING | {Part.KAFKA4},
            brokers=BrokerMode.KRAFT,
            reaches=Target.KRAFT_BROKERS,
            rests_on=(RestGate.QUORUM, RestGate.CLUSTER, RestGate.REGISTRATIONS),
            migrates=True,
            mirrors=True,
            led_by_kraft=True,
        ),
        Phase.FINALIZING: PhaseRow(
            needs=_ALWAYS | _QUORUM | _RESTARTS | _BECOMING | {Part.ZOOKEEPER, Part.CONTROLLER_PROBE},
            brokers=BrokerMode.KRAFT,
            reversible=False,
            restarts_nodes=True,
            led_by_kraft=True,
        ),
        Phase.COMPLETED: PhaseRow(
            needs=_ALWAYS
            | _QUORUM
            | _RESTARTS
            | _BECOMING
            | {Part.NODE_FEATURES, Part.FEATURE_ANSWER, Part.ADMISSION_POLICY, Part.KAFKA4},
            brokers=BrokerMode.KRAFT,
            reaches=Target.KRAFT,
            reversible=False,
            at_rest=True,
            led_by_kraft=True,
            rests_on=(RestGate.QUORUM, RestGate.LEADERS),
            idle_seconds=40.0,
        ),
        Phase.KAFKA4_CONTROLLERS: PhaseRow(
            needs=_KAFKA4,
            brokers=BrokerMode.KRAFT,
            reversible=False,
            restarts_nodes=True,
            on_kafka4=True,
            led_by_kraft=True,
        ),
        Phase.KAFKA4_BROKERS: PhaseRow(
            needs=_KAFKA4,
            brokers=BrokerMode.KAFKA4,
            reversible=False,
            restarts_nodes=True,
            on_kafka4=True,
            led_by_kraft=True,
        ),
        Phase.KAFKA4: PhaseRow(
            needs=_KAFKA4 | {Part.FEATURE_ANSWER, Part.ADMISSION_POLICY},
            brokers=BrokerMode.KAFKA4,
            reaches=Target.KAFKA4,
            reversible=False,
            at_rest=True,
            on_kafka4=True,
            led_by_kraft=True,
            rests_on=(RestGate.QUORUM, RestGate.LEADERS),
            idle_seconds=40.0,
        ),
        Phase.LEAVING_KAFKA4: PhaseRow(
            needs=_KAFKA4,
            brokers=BrokerMode.KRAFT,
            forward=False,
            reversible=False,
            restarts_nodes=True,
            on_kafka4=True,
            led_by_kraft=True,
        ),
        Phase.ROLLING_BACK: PhaseRow(
            needs=_ALWAYS
            | _QUORUM
            | _RESTARTS
            | {Part.ZOOKEEPER, Part.ARCHIVE, Part.CANARY_BY_BROKER, Part.CONTROLLER_BY_BROKER, Part.CONTROLLER_PROBE}
            | {Part.REGISTERED_CONTROLLERS},
            brokers=BrokerMode.ZOOKEEPER,
            forward=False,
            restarts_nodes=True,
            migrates=True,
        ),
        Phase.ROLLED_BACK: PhaseRow(
            needs=_ALWAYS | _QUORUM | {Part.ZOOKEEPER},
            brokers=BrokerMode.ZOOKEEPER,
            forward=False,
            reaches=Target.ZOOKEEPER,
            at_rest=True,
            idle_seconds=60.0,
        ),
    }
)
"""Every phase, in the order in which a migration goes through them."""

FORWARD: Final = tuple(phase for phase, row in PHASES.items() if row.forward)
"""The forward phases, in order."""

LAST_PHASE: Final[Mapping[Target, Phase]] = MappingProxyType(
    {row.reaches: phase for phase, row in PHASES.items() if row.reaches is not None}
)
"""The phase in which each target is reached."""
