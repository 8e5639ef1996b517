"""Closed sets of the migration: targets, phases, node configurations."""

from __future__ import annotations

from enum import StrEnum

from kraftbridge.constants import CONTROLLER_PORT, ISOLATED_CONTROLLER_PORT


class Target(StrEnum):
    """Values of ``spec.target``: the point up to which the operator migrates."""

    PREFLIGHT = "Preflight"
    QUORUM_READY = "QuorumReady"
    DUAL_WRITE = "DualWrite"
    KRAFT_BROKERS = "KRaftBrokers"
    KRAFT = "KRaft"
    ZOOKEEPER = "ZooKeeper"


class Phase(StrEnum):
    """Where a migration stands.

    Forward, each phase is entered through its gate: Preflight, ProvisioningQuorum, TakingOver, DualWrite, RollingBrokers,
    AwaitingFinalization, Finalizing, Completed. Any phase before Finalizing may go to RollingBack and on to RolledBack.
    """

    PREFLIGHT = "Preflight"
    PROVISIONING_QUORUM = "ProvisioningQuorum"
    TAKING_OVER = "TakingOver"
    DUAL_WRITE = "DualWrite"
    ROLLING_BROKERS = "RollingBrokers"
    AWAITING_FINALIZATION = "AwaitingFinalization"
    FINALIZING = "Finalizing"
    COMPLETED = "Completed"
    ROLLING_BACK = "RollingBack"
    ROLLED_BACK = "RolledBack"

    @property
    def reversible(self) -> bool:
        """Whether the migration can be rolled back from this phase."""
        return self not in (Phase.FINALIZING, Phase.COMPLETED)

    @property
    def at_rest(self) -> bool:
        """Whether the migration owns no object of the user in this phase, so that the resource may be deleted."""
        return self in (Phase.PREFLIGHT, Phase.COMPLETED, Phase.ROLLED_BACK)


FORWARD: tuple[Phase, ...] = (
    Phase.PREFLIGHT,
    Phase.PROVISIONING_QUORUM,
    Phase.TAKING_OVER,
    Phase.DUAL_WRITE,
    Phase.ROLLING_BROKERS,
    Phase.AWAITING_FINALIZATION,
    Phase.FINALIZING,
    Phase.COMPLETED,
)
"""The forward phases, in order."""

LAST_PHASE: dict[Target, Phase] = {
    Target.PREFLIGHT: Phase.PREFLIGHT,
    Target.QUORUM_READY: Phase.PROVISIONING_QUORUM,
    Target.DUAL_WRITE: Phase.DUAL_WRITE,
    Target.KRAFT_BROKERS: Phase.AWAITING_FINALIZATION,
    Target.KRAFT: Phase.COMPLETED,
    Target.ZOOKEEPER: Phase.ROLLED_BACK,
}
"""The phase in which each target is reached."""


class BrokerMode(StrEnum):
    """How a broker is configured (KIP-866, "Broker configs")."""

    ZOOKEEPER = "ZooKeeper"
    MIGRATION = "Migration"
    """On ZooKeeper, with ``zookeeper.metadata.migration.enable`` and the quorum known."""
    KRAFT = "KRaft"

    @classmethod
    def of(cls, configuration: str) -> BrokerMode:
        """Return the mode that a configuration annotation (``Mode-hash``) names; none is the user's own, on ZooKeeper."""
        return _BROKER_MODES.get(configuration.partition("-")[0], cls.ZOOKEEPER)


_BROKER_MODES: dict[str, BrokerMode] = {mode.value: mode for mode in BrokerMode}


class ControllerMode(StrEnum):
    """How the KRaft controllers are configured."""

    MIGRATION = "Migration"
    FINAL = "Final"
    """Without ``zookeeper.metadata.migration.enable``: the first active one finalizes (KIP-866)."""
    ISOLATED = "Isolated"
    """As `MIGRATION`, on a port that no broker knows: the log gets no more changes, and ZooKeeper gets all that it has."""

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

    The numbers 1 and 2 changed places in Kafka 3.5 (``org.apache.kafka.metadata.migration.ZkMigrationState``), so only names leave
    the module that reads them.
    """

    NONE = "NONE"
    MIGRATION = "MIGRATION"
    PRE_MIGRATION = "PRE_MIGRATION"
    POST_MIGRATION = "POST_MIGRATION"
    ZK = "ZK"
    NOT_LOADED = "NOT_LOADED"
    """The gauge says -1: the controller has not yet loaded an image."""
