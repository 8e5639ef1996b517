"""Faults by phase: the cells, the cells that make no sense and why, and how missing cells are grouped into runs. Pure."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum


class Column(StrEnum):
    """The time of a fault: a phase of the migration, or a moment in it."""

    PREFLIGHT = "Preflight"
    UPGRADING_BROKERS = "UpgradingBrokers"
    PROVISIONING_QUORUM = "ProvisioningQuorum"
    TAKING_OVER = "TakingOver"
    COPY = "TakingOver, copy"
    DUAL_WRITE = "DualWrite"
    ROLLING_BROKERS = "RollingBrokers"
    AWAITING_FINALIZATION = "AwaitingFinalization"
    FINALIZING = "Finalizing"
    ROLLING_BACK = "RollingBack"
    UPGRADE_BACK = "RollingBack, upgrade"

    @property
    def is_of_upgrade(self) -> bool:
        """Whether it is only there where the brokers run a former release."""
        return self in (Column.UPGRADING_BROKERS, Column.UPGRADE_BACK)

    @property
    def phase(self) -> str:
        """The phase that the column is in."""
        return self.value.partition(",")[0]


class Fault(StrEnum):
    """A change to the cluster. ``ROLLBACK`` is no fault: the user sets ``spec.target`` to ZooKeeper."""

    OPERATOR_KILLED = "operator-killed"
    OPERATOR_FROZEN = "operator-frozen"
    OPERATOR_UPGRADED = "operator-upgraded"
    CONTROLLER_KILLED = "controller-killed"
    CONTROLLER_EVICTED = "controller-evicted"
    CONTROLLER_DISK_FULL = "controller-disk-full"
    BROKER_KILLED = "broker-killed"
    ZOOKEEPER_FROZEN = "zookeeper-frozen"
    ZOOKEEPER_RESTARTED = "zookeeper-restarted"
    ZOOKEEPER_EDITED = "zookeeper-edited"
    API_SERVER_RESTARTED = "api-server-restarted"
    DRIVER_KILLED_ARMED = "spark-driver-killed-armed"
    DRIVER_KILLED_VERIFYING = "spark-driver-killed-verifying"
    IMAGE_MISSING = "spark-image-missing"
    ROLLBACK = "rollback"


WHAT = {
    Fault.OPERATOR_KILLED: "the operator's pod is deleted without grace",
    Fault.OPERATOR_FROZEN: "the operator's process is stopped by SIGSTOP, as if its node were lost, and another operator starts. After the other operator has taken over the Lease, the first one continues",
    Fault.OPERATOR_UPGRADED: "`helm upgrade` gives the operator an image of another tag, which the controllers' pods also contain. Before the voters are formatted they are replaced; formatted voters keep running, and the next restart of each uses the new image",
    Fault.CONTROLLER_KILLED: "the active KRaft controller's pod is deleted without grace (in the copy: SIGKILL to its process)",
    Fault.CONTROLLER_EVICTED: "the active KRaft controller's pod is evicted (Eviction API)",
    Fault.CONTROLLER_DISK_FULL: "the volume of the active KRaft controller is filled, and freed after the operator reported it",
    Fault.BROKER_KILLED: "a broker's pod is deleted without grace",
    Fault.ZOOKEEPER_FROZEN: "ZooKeeper's process is stopped by SIGSTOP for 25 s",
    Fault.ZOOKEEPER_RESTARTED: "ZooKeeper's pod is deleted",
    Fault.ZOOKEEPER_EDITED: "a partition's leader epoch is changed in ZooKeeper without Kafka's knowledge. The verification must report it, and a controller failover must repair it",
    Fault.API_SERVER_RESTARTED: "the API server is stopped and started again",
    Fault.DRIVER_KILLED_ARMED: "the Spark driver's pod is deleted without grace before it was released",
    Fault.DRIVER_KILLED_VERIFYING: "the Spark driver's pod is deleted without grace while it compares",
    Fault.IMAGE_MISSING: "`spec.verification.image` names an image that cannot be pulled, and is corrected after the operator reported it",
    Fault.ROLLBACK: "`spec.target: ZooKeeper` is set in this phase",
}
FORMER_RELEASE = "2.8.2"
"""What the brokers run at first in a run of the upgrade."""
_NO_QUORUM = "there are no controllers yet"
_NO_RUN = "no verification runs in it"
_CONTROLLERS_GO = "the controllers stop in this phase; before that, the cell of DualWrite covers it"
_ONE_COPY = "it lasts a second; faults of ZooKeeper and brokers are in TakingOver"
_ENDED = "this phase cannot be rolled back"
_NOT_MIRRORED = "ZooKeeper is what is copied, or nothing reads it"
_SAME_LEASE = "as in TakingOver and RollingBrokers, where two drivers could stop two brokers"
_UPGRADE = (Column.UPGRADING_BROKERS, Column.UPGRADE_BACK)
_IN_UPGRADE = frozenset({Fault.OPERATOR_KILLED, Fault.BROKER_KILLED, Fault.ZOOKEEPER_FROZEN, Fault.ZOOKEEPER_RESTARTED})
"""What is struck while the brokers are brought to 3.9, and back."""
_SAME_RESTARTS = "no controllers and no verifications yet; the restarts are those of RollingBrokers"
_WRITTEN_ANEW = "the restart of each broker rewrites its partitions"

NOT_SENSIBLE: dict[tuple[Fault, Column], str] = {
    **{
        (fault, Column.PREFLIGHT): _NO_QUORUM
        for fault in (Fault.CONTROLLER_KILLED, Fault.CONTROLLER_EVICTED, Fault.CONTROLLER_DISK_FULL)
    },
    **{
        (fault, column): _NO_RUN
        for fault in (Fault.DRIVER_KILLED_ARMED, Fault.DRIVER_KILLED_VERIFYING, Fault.IMAGE_MISSING)
        for column in (Column.PREFLIGHT, Column.AWAITING_FINALIZATION)
    },
    (Fault.IMAGE_MISSING, Column.DUAL_WRITE): "its run is launched in TakingOver",
    **{
        (fault, Column.COPY): _ONE_COPY
        for fault in Fault
        if fault not in (Fault.CONTROLLER_KILLED, Fault.ROLLBACK)
    },
    **{
        (fault, Column.ROLLING_BACK): _CONTROLLERS_GO
        for fault in (Fault.CONTROLLER_EVICTED, Fault.CONTROLLER_DISK_FULL)
    },
    **{
        (Fault.OPERATOR_FROZEN, column): _SAME_LEASE
        for column in Column
        if column not in (Column.TAKING_OVER, Column.ROLLING_BROKERS)
    },
    (Fault.DRIVER_KILLED_ARMED, Column.ROLLING_BACK): "its run is released as soon as it is ready",
    (Fault.IMAGE_MISSING, Column.ROLLING_BACK): "the cell of RollingBrokers covers the same gate",
    **{
        (Fault.ZOOKEEPER_EDITED, column): _NOT_MIRRORED
        for column in (Column.PREFLIGHT, Column.PROVISIONING_QUORUM, Column.FINALIZING)
    },
    (Fault.ZOOKEEPER_EDITED, Column.AWAITING_FINALIZATION): "its gate accepts a recent verdict (`verification.maxAgeSeconds`), and the metadata log is authoritative",
    (Fault.ZOOKEEPER_EDITED, Column.TAKING_OVER): _WRITTEN_ANEW,
    (Fault.ZOOKEEPER_EDITED, Column.ROLLING_BROKERS): _WRITTEN_ANEW,
    (Fault.ZOOKEEPER_EDITED, Column.ROLLING_BACK): "the cell of DualWrite covers the same gate",
    **{
        (fault, column): _SAME_RESTARTS
        for fault in Fault
        for column in _UPGRADE
        if fault not in {*_IN_UPGRADE, Fault.ROLLBACK}
    },
    (Fault.ROLLBACK, Column.UPGRADE_BACK): "it is that phase",
    (Fault.ROLLBACK, Column.PREFLIGHT): "nothing was changed, so there is nothing to roll back; the operator reports it",
    (Fault.ROLLBACK, Column.COPY): "part of TakingOver: the operator waits for its end before it stops the controllers",
    (Fault.ROLLBACK, Column.FINALIZING): _ENDED,
    (Fault.ROLLBACK, Column.ROLLING_BACK): "it is that phase",
}  # fmt: skip

UNFELT = frozenset({Fault.DRIVER_KILLED_ARMED, Fault.DRIVER_KILLED_VERIFYING, Fault.IMAGE_MISSING})
"""Faults that do not affect brokers and controllers: a rollback is measured all the same."""

IN_MAKE_TEST = frozenset(
    {(Fault.OPERATOR_KILLED, Column.ROLLING_BROKERS), (Fault.CONTROLLER_KILLED, Column.DUAL_WRITE)}
)
"""Cells that the end-to-end tier strikes again each time, in the migration that it does anyway."""

Cells = AbstractSet[tuple[Fault, Column]]


def sensible() -> Cells:
    """Return every cell that can be run."""
    return {(f, c) for f in Fault for c in Column if (f, c) not in NOT_SENSIBLE}


@dataclass(frozen=True)
class Attempt:
    """One run: to the end, or back from ``back_from``. The faults of a column follow one another."""

    strikes: Mapping[Column, tuple[Fault, ...]] = field(default_factory=dict)
    back_from: Column | None = None

    @property
    def cells(self) -> Cells:
        """What the walk measures. A rollback during which a fault occurs is not a measurement of the rollback."""
        struck = {(fault, column) for column, faults in self.strikes.items() for fault in faults}
        on_the_way = {
            fault for column, faults in self.strikes.items() if column.phase == "RollingBack" for fault in faults
        }
        if self.back_from is None or on_the_way - UNFELT:
            return struck
        return struck | {(Fault.ROLLBACK, self.back_from)}

    @property
    def is_of_upgrade(self) -> bool:
        """Whether it goes as far as the bridge release, or back from there."""
        return any(column is not None and column.is_of_upgrade for column in (*self.strikes, self.back_from))

    @property
    def target(self) -> str:
        """``spec.target`` of the way there, up to the last step that can be undone."""
        return "BridgeRelease" if self.is_of_upgrade else "KRaftBrokers"


@dataclass(frozen=True)
class Run:
    """Attempts of one migration on one cluster under one load."""

    name: str
    attempts: tuple[Attempt, ...]

    @property
    def release(self) -> str:
        """The former release that the brokers run at first, ``""`` where they run the bridge release."""
        return FORMER_RELEASE if any(attempt.is_of_upgrade for attempt in self.attempts) else ""

    @property
    def cells(self) -> Cells:
        """What the run judges."""
        return {cell for attempt in self.attempts for cell in attempt.cells}


AT_ONCE = {
    Column.PREFLIGHT: 4, Column.PROVISIONING_QUORUM: 2, Column.TAKING_OVER: 2, Column.DUAL_WRITE: 3, Column.ROLLING_BROKERS: 2, Column.AWAITING_FINALIZATION: 3, Column.FINALIZING: 2,
}  # fmt: skip
"""How many faults a phase is long enough for; one elsewhere."""
BACKS_PER_RUN = 2
"""Number of rollbacks in one run, which keeps it below 15 minutes. The first such run ends with a completed migration."""


def runs(missing: Cells) -> list[Run]:
    """Return runs that cover the missing cells: as many faults in each phase as it has time for, one after the other."""
    upgrade = {(f, c) for f, c in missing if c.is_of_upgrade}
    missing = missing - upgrade
    left = {(f, c) for f, c in missing if f is not Fault.ROLLBACK and c is not Column.ROLLING_BACK}
    planned = _runs_of_upgrade(upgrade)
    while left:
        strikes: dict[Column, tuple[Fault, ...]] = {}
        for fault in Fault:
            for column in Column:
                struck = strikes.get(column, ())
                if (fault, column) in left and len(struck) < AT_ONCE.get(column, 1):
                    strikes[column] = (*struck, fault)
        names = dict.fromkeys(str(fault) for faults in strikes.values() for fault in faults)
        planned.append(Run("+".join(list(names)[:2]), (Attempt(strikes),)))
        left -= planned[-1].cells
    return planned + _runs_back(set(missing))


def _runs_of_upgrade(left: Cells) -> list[Run]:
    """Return a run forward and back with every fault, and one back from half-way."""
    forward, back = (tuple(f for f in Fault if (f, c) in left and f is not Fault.ROLLBACK) for c in _UPGRADE)
    planned = []
    if forward or back:
        there = Attempt({Column.UPGRADING_BROKERS: forward})
        planned.append(Run("upgrade", (there, Attempt({Column.UPGRADE_BACK: back}, Column.UPGRADING_BROKERS))))
    if (Fault.ROLLBACK, Column.UPGRADING_BROKERS) in left:
        planned.append(Run("upgrade-back", (Attempt(back_from=Column.UPGRADING_BROKERS),)))
    return planned


def _runs_back(left: Cells) -> list[Run]:
    columns = [c for c in Column if (Fault.ROLLBACK, c) in left]
    faults = [f for f in Fault if (f, Column.ROLLING_BACK) in left]
    # A fault during a rollback is injected in a rollback from DualWrite, where the quorum and both stores are in use.
    measured = [Attempt(back_from=c) for c in columns]
    struck = [Attempt({Column.ROLLING_BACK: (f,)}, back_from=Column.DUAL_WRITE) for f in faults]
    parts = [backs[i : i + BACKS_PER_RUN] for backs in (measured, struck) for i in range(0, len(backs), BACKS_PER_RUN)]
    return [Run(f"rollback-{i}", (*part, *([Attempt()] if i == 1 else []))) for i, part in enumerate(parts, 1)]
