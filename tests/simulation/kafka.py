"""A small model of Kafka's migration (KIP-866) with virtual time: what processes do by themselves, and what can be seen of it.

Only what the operator can observe or break is modelled: processes with a mode, ISR, registration with the quorum, election, the copy,
ZooKeeper's claim, the mirrored offset. Delays come from the run's random generator, so a run repeats exactly from its seed.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random

from kraftbridge.models.phase import BrokerMode, ControllerMode, ZkMigrationState

BROKERS = (0, 1, 2)
CONTROLLERS = (3000, 3001, 3002)
MAJORITY = 2
MAX_STUCK = 2
FENCED_AFTER = 9.0
START = datetime(2026, 1, 1, tzinfo=UTC)
"""The virtual time 0, by the clocks of the cluster."""


class Timeline:
    """Seconds of virtual time, and what will happen when."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._sequence = itertools.count()

    def after(self, seconds: float, happen: Callable[[], object]) -> None:
        """Let something happen in a while."""
        heapq.heappush(self._due, (self.now + seconds, next(self._sequence), happen))

    def advance(self, seconds: float) -> None:
        """Let time pass, and all that is due in it happen."""
        until = self.now + seconds
        while self._due and self._due[0][0] <= until:
            self.now, _, happen = heapq.heappop(self._due)
            happen()
        self.now = until


@dataclass
class Process:
    """A Kafka process in a pod; ``life`` tells one start from the next."""

    node: int
    mode: BrokerMode | ControllerMode | None = None
    """None: down. A broker on a mixture of configurations never gets up either."""
    life: int = 0
    up: bool = False
    up_since: float = 0.0
    down_since: float = 0.0
    loaded: bool = False


@dataclass
class Kafka:
    """Brokers, quorum and ZooKeeper."""

    time: Timeline
    random: Random
    nodes: tuple[int, ...] = BROKERS
    """Ids of the brokers."""
    brokers: dict[int, Process] = field(default_factory=dict)
    controllers: dict[int, Process] = field(default_factory=lambda: {i: Process(i) for i in CONTROLLERS})
    in_sync: set[int] = field(default_factory=set)
    registered: dict[int, BrokerMode] = field(default_factory=dict)
    controllers_registered: set[int] = field(default_factory=set)
    never_registers: set[int] = field(default_factory=set)
    """Controllers whose registration was lost: they follow and never try again (measured on real clusters)."""
    leader: int | None = None
    epoch: int = 0
    state: ZkMigrationState = ZkMigrationState.NONE
    zk_controller: int | None = None
    claim_epoch: int = -1
    """Epoch of the quorum's claim on ``/controller``; -1: ZooKeeper's own."""
    migration_znode: bool = False
    mirrored_offset: int = -1
    mirror_live_from: float | None = None
    """Since when the present leader mirrors the log; None while it does not."""
    log_canary: int | None = None
    zk_canary: int | None = None
    views: dict[int, int] = field(default_factory=dict)
    unregistering: set[int] = field(default_factory=set)
    """Brokers that run and whose pods are Ready, and that never register with the quorum."""
    heartbeats_lost: dict[int, float] = field(default_factory=dict)
    """Brokers that run, and whose heartbeats do not reach the quorum: since when."""
    deaf: bool = False
    """The controllers cannot log in to the brokers: those on ZooKeeper are told nothing from the claim on."""
    walled: frozenset[int] = frozenset()
    """Brokers that the controllers do not reach: those on ZooKeeper are told nothing from the claim on."""
    told_last: tuple[frozenset[int], frozenset[int]] = (frozenset(), frozenset())
    """Which brokers were up and in sync when the brokers on ZooKeeper were told something for the last time."""
    canary_served: set[int] = field(default_factory=set)
    """Brokers that serve the canary's topic."""
    stale: dict[int, tuple[float, frozenset[int], frozenset[int]]] = field(default_factory=dict)
    """Brokers that are told nothing for a while: until when, and which brokers were up and in sync when they were last told."""
    zookeeper_down_until: float = -1.0
    lost: str = ""
    """What happened to ZooKeeper (``tests.simulation.stores.Lost``); ``""``: it is what it was."""
    older_offset: int = -1
    lost_zxid: int = 0
    czxid: int = 1
    """Grows with each ``/migration`` that is created."""
    edited: bool = False
    """Somebody edited ZooKeeper behind Kafka's back: the stores differ until the next full write."""
    leaving: set[int] = field(default_factory=set)
    """Brokers that shut down and have handed over what they led."""
    lost_write: bool = False
    """A dual-write was dropped, although the log says "Will retry" (measured): ZooKeeper has a partition's old state."""
    stuck_chance: float = 0.0
    """How likely a failover is to get stuck in its sync (measured after an edit of ZooKeeper)."""
    stuck: int = 0
    """How many failovers in a row got stuck."""
    makes_topics_meanwhile: bool = False
    """A client creates a topic in the seconds of the takeover."""
    stateless: bool = False
    """A partition has no state in ZooKeeper: its next change is dropped, and then every failover gets stuck (measured)."""
    stateless_changed: bool = False
    """That partition has changed since."""
    migration_epoch: int = -1
    """``kraft_controller_epoch`` in ``/migration``."""
    electing: bool = False
    copying: bool = False
    finalized_at: float | None = None
    ended: dict[int, float] = field(default_factory=dict)
    """Controllers whose certificate has ended: since when."""
    elected: Callable[[], object] = lambda: None
    """Is told of each controller that brokers on ZooKeeper elect."""
    came_up: Callable[[int], object] = lambda _: None
    """Is told of each broker's process that starts."""

    def __post_init__(self) -> None:
        self.brokers = {i: Process(i) for i in self.nodes}

    # ------------------------------------------------------------------------------------------ processes

    def start_broker(self, node: int, mode: BrokerMode) -> None:
        """Let a broker's process come up: it serves, catches up, and registers with the quorum if its mode has one."""
        process = self.brokers[node]
        process.mode, process.up, process.up_since = mode, True, self.time.now
        process.life += 1
        life = process.life
        self.stale.pop(node, None)
        self.views[node] = self._controller_for(mode)
        self.time.after(self.random.uniform(0.5, 5.0), lambda: self._caught_up(node, life))
        if mode.registers:
            self.time.after(self.random.uniform(0.3, 3.0), lambda: self._register(node, life))
        if mode is not BrokerMode.KRAFT and self.claim_epoch < 0 and self.zk_controller is None:
            self.time.after(0.1, self._elect_in_zookeeper)
        self.came_up(node)

    def stop_broker(self, node: int) -> None:
        """Let a broker's process be gone."""
        process = self.brokers[node]
        process.life += 1  # one that hangs does not go on either
        if not process.up:
            return
        process.up, process.down_since = False, self.time.now
        self.leaving.discard(node)
        self.heartbeats_lost.pop(node, None)
        self.in_sync.discard(node)
        if self.stateless:
            self.stateless_changed = self.lost_write = True
        if self.zk_controller == node:
            self.zk_controller = None
            self.time.after(self.random.uniform(0.05, 1.0), self._elect_in_zookeeper)

    def create_states(self) -> None:
        """Create the state of each partition that has none: a controller that is stuck for that reason goes on."""
        was_stuck = self.stateless_changed and self.mirror_live_from is None
        self.stateless = self.stateless_changed = False
        if was_stuck and self.state is ZkMigrationState.MIGRATION and self.active is not None:
            self._sync(self.epoch)

    def expire_controller(self) -> None:
        """Let the session of the controller on ZooKeeper expire: the brokers elect another one, or the same."""
        if self.zk_controller is not None and self.claim_epoch < 0:
            self.zk_controller = None
            self.time.after(0.2, self._elect_in_zookeeper)

    def hang(self, node: int, seconds: float) -> None:
        """Let a broker's process stand still in a pod that stays Ready, and go on after a while."""
        process = self.brokers[node]
        if not process.up or not isinstance(process.mode, BrokerMode):
            return
        self.stop_broker(node)
        life, mode = process.life, process.mode

        def goes_on() -> None:
            if process.life == life:
                self.start_broker(node, mode)

        self.time.after(seconds, goes_on)

    def lose_heartbeats(self, node: int, seconds: float) -> None:
        """Let the heartbeats of a registered broker be lost for a while; its process runs, and its pod stays Ready.

        The quorum fences it when its session ends, takes it out of every ISR, and tells the other brokers. The broker itself serves what it was told last.
        """
        process = self.brokers[node]
        if (
            not process.up
            or self.registered.get(node) is not process.mode
            or self.heartbeats_lost
            or self.active is None
        ):
            return
        since, life, until = self.time.now, process.life, self.time.now + seconds
        self.heartbeats_lost[node] = since

        def fence() -> None:
            if self.heartbeats_lost.get(node) == since and self._leads_partitions():
                self.stale[node] = (until, *self.metadata_of(node))
                self.in_sync.discard(node)

        def heard_again() -> None:
            if self.heartbeats_lost.get(node) == since:
                del self.heartbeats_lost[node]
                self._caught_up(node, life)

        self.time.after(FENCED_AFTER, fence)
        self.time.after(seconds, heard_again)

    def _leads_partitions(self) -> bool:
        """Whether the quorum elects the partitions' leaders; before its claim the controller in ZooKeeper does."""
        return self.claim_epoch >= 0 or self.state is ZkMigrationState.POST_MIGRATION

    def start_controller(self, node: int, mode: ControllerMode) -> None:
        """Let a controller's process come up; it joins or makes a quorum."""
        process = self.controllers[node]
        process.mode, process.up, process.up_since, process.loaded = mode, True, self.time.now, False
        process.life += 1
        life = process.life
        self.time.after(self.random.uniform(0.3, 2.0), lambda: self._loaded(node, life))
        self._elect_soon()

    def end_certificates(self, nodes: set[int]) -> None:
        """Let the certificates of running controllers end: their connections stay, and they make no others."""
        for node in nodes:
            self.ended.setdefault(node, self.time.now)

    def talk(self, one: int, other: int) -> bool:
        """Whether two controllers are connected, or can connect."""
        ended_at = max((self.ended[node] for node in (one, other) if node in self.ended), default=None)
        if one == other or ended_at is None:
            return True
        return all(self.controllers[node].up_since < ended_at for node in (one, other))

    def members(self, leader: int) -> list[int]:
        """Return the controllers that run and follow a leader, itself included."""
        return [i for i, c in self.controllers.items() if c.up and self.talk(leader, i)]

    def stop_controller(self, node: int) -> None:
        """Let a controller's process be gone; the others elect another leader."""
        process = self.controllers[node]
        process.up, process.loaded = False, False
        process.life += 1
        self.never_registers.discard(node)
        self.controllers_registered.discard(node)
        followers = self.controllers if self.leader is None else self.members(self.leader)
        if self.leader == node or sum(self.controllers[i].up for i in followers) < MAJORITY:
            self._lose_leader()

    def forget_quorum(self) -> None:
        """Let the quorum be gone for good; its volumes are archives."""
        for node in CONTROLLERS:
            self.stop_controller(node)
        self.leader, self.state, self.log_canary = None, ZkMigrationState.NONE, None
        self.canary_served.clear()
        self.registered.clear()

    def remove_claim(self) -> None:
        """Delete ``/migration`` and, where it is the quorum's, ``/controller``; brokers on ZooKeeper elect one of theirs then."""
        self.lost_write = self.edited = False  # ZooKeeper is the truth again
        self.stateless = self.stateless_changed = False  # a broker that is controller writes it
        if self.claim_epoch < 0:
            self.migration_znode, self.mirrored_offset = False, -1
            return
        self.claim_epoch, self.migration_znode, self.mirrored_offset, self.zk_controller = -1, False, -1, None
        self.time.after(self.random.uniform(0.05, 0.5), self._elect_in_zookeeper)

    # ------------------------------------------------------------------------------------------- evidence

    @property
    def active(self) -> int | None:
        """The leader, once it has loaded its image."""
        return self.leader if self.leader is not None and self.controllers[self.leader].loaded else None

    def state_differs(self) -> bool:
        """Whether ZooKeeper lacks a partition's state, or has an old one."""
        return self.lost_write or self.stateless

    def mirroring(self) -> bool:
        """Whether every change reaches ZooKeeper now."""
        return (
            self.mirror_live_from is not None
            and self.time.now >= self.mirror_live_from
            and self.time.now >= self.zookeeper_down_until
            and self.state is ZkMigrationState.MIGRATION
            and not self.lost
        )

    def zxid(self) -> int:
        """Newest transaction of ZooKeeper."""
        return 10_000 + int(self.time.now * 10)

    def log_offset(self) -> int:
        """End of the metadata log; a record every 500 ms at least."""
        return 100 + int(self.time.now * 2)

    def offset_in_zookeeper(self) -> int:
        """Offset in ``/migration``; -1 before the copy is complete."""
        if self.mirroring():
            self.mirrored_offset = self.log_offset()
        return self.mirrored_offset

    def fenced(self, node: int) -> bool:
        """Whether the quorum takes a registered broker for dead."""
        process = self.brokers[node]
        if node in self.heartbeats_lost:
            return self.time.now - self.heartbeats_lost[node] > FENCED_AFTER
        # One that runs again and does not register sends no heartbeats for the registration that the quorum has of it.
        return (not process.up or self.is_unknown(node)) and self.time.now - process.down_since > FENCED_AFTER

    def metadata_of(self, node: int) -> tuple[frozenset[int], frozenset[int]]:
        """Return which brokers are up and which are in sync, as one broker serves it (Metadata)."""
        if self.hears_nothing(node):
            return self.told_last
        until, up, in_sync = self.stale.get(node, (-1.0, frozenset(), frozenset()))
        if self.time.now < until:
            return up, in_sync
        self.stale.pop(node, None)
        gone = {i for i in self.heartbeats_lost if self.fenced(i)} if self._leads_partitions() else set()
        up = frozenset(i for i, p in self.brokers.items() if p.up and not self.is_unknown(i) and i not in gone)
        return up, frozenset(self.in_sync)

    def is_unknown(self, node: int) -> bool:
        """Whether a broker on KRaft runs without having registered: nobody lists it."""
        return self.brokers[node].mode is BrokerMode.KRAFT and self.registered.get(node) is not BrokerMode.KRAFT

    def hears_nothing(self, node: int) -> bool:
        """Whether the controllers' requests do not reach a broker; one on KRaft reads the metadata log itself."""
        is_kept_out = self.deaf or node in self.walled
        return is_kept_out and self.claim_epoch >= 0 and self.brokers[node].mode is not BrokerMode.KRAFT

    def tell_nothing(self, node: int, seconds: float) -> None:
        """Let a broker serve for a while what it was told last; one at a time."""
        if self.brokers[node].up and not self.stale:
            self.stale[node] = (self.time.now + seconds, *self.metadata_of(node))

    def under_replicated(self) -> bool:
        """Whether any ISR lacks a replica (every partition has one on each broker)."""
        return len(self.in_sync) < len(self.nodes)

    # ------------------------------------------------------------------------------------------- by itself

    def write_canary(self, value: int) -> None:
        """Commit a change; it reaches ZooKeeper when the mirror does."""
        self.log_canary = value
        self._mirror_canary()
        self._tell_of_canary()

    def remove_canary(self) -> None:
        """Remove it again."""
        self.log_canary = None
        self._mirror_canary()
        self._tell_of_canary()

    def _tell_of_canary(self) -> None:
        for node in self.nodes:
            self.time.after(self.random.uniform(0.1, 2.0), lambda node=node: self._hear_of_canary(node))  # type: ignore[misc]

    def _hear_of_canary(self, node: int) -> None:
        if not self.brokers[node].up or self.hears_nothing(node) or self.active is None:
            self.time.after(1.0, lambda: self._hear_of_canary(node))
        elif self.log_canary is None:
            self.canary_served.discard(node)
        else:
            self.canary_served.add(node)

    def _mirror_canary(self) -> None:
        self.time.after(self.random.uniform(0.2, 1.5), self._mirror_canary_now)

    def _mirror_canary_now(self) -> None:
        if self.mirroring():
            self.zk_canary = self.log_canary
        elif self.state is ZkMigrationState.MIGRATION and self.finalized_at is None and self.leader is not None:
            self._mirror_canary()

    def _controller_for(self, mode: BrokerMode) -> int:
        if mode is BrokerMode.KRAFT or self.claim_epoch >= 0:
            return self.leader if self.leader is not None else -1
        return self.zk_controller if self.zk_controller is not None else -1

    def _caught_up(self, node: int, life: int) -> None:
        process = self.brokers[node]
        if process.life != life:
            return
        # Without any controller nobody extends an ISR.
        if self.zk_controller is None and self.active is None:
            self.time.after(1.0, lambda: self._caught_up(node, life))
            return
        # A ZooKeeper broker without the migration flag is no member of a cluster that the quorum controls.
        if self.claim_epoch >= 0 and isinstance(process.mode, BrokerMode) and not process.mode.registers:
            self.time.after(1.0, lambda: self._caught_up(node, life))
            return
        if self.hears_nothing(node) or (self._leads_partitions() and self.fenced(node)):
            self.time.after(1.0, lambda: self._caught_up(node, life))
            return
        if process.mode is BrokerMode.KRAFT and self.registered.get(node) is not BrokerMode.KRAFT:
            self.time.after(0.5, lambda: self._caught_up(node, life))
            return
        self.in_sync.add(node)

    def _register(self, node: int, life: int) -> None:
        process = self.brokers[node]
        if process.life != life or not isinstance(process.mode, BrokerMode) or node in self.unregistering:
            return
        if self.active is None:
            self.time.after(0.5, lambda: self._register(node, life))
            return
        self.registered[node] = process.mode
        self._copy_soon()

    def _elect_in_zookeeper(self) -> None:
        if self.claim_epoch >= 0 or self.zk_controller is not None:
            return
        able = [i for i, p in self.brokers.items() if p.up and p.mode is not BrokerMode.KRAFT]
        if not able:
            return
        self.zk_controller = self.random.choice(able)
        self.elected()
        for node in self.nodes:
            self.time.after(self.random.uniform(0.05, 3.0), lambda node=node: self._learn_controller(node))  # type: ignore[misc]

    def _learn_controller(self, node: int) -> None:
        process = self.brokers[node]
        if process.up and isinstance(process.mode, BrokerMode):
            self.views[node] = self._controller_for(process.mode)

    def _loaded(self, node: int, life: int) -> None:
        process = self.controllers[node]
        if process.life != life:
            return
        process.loaded = True
        if node == self.leader:
            self._became_active()
        self.time.after(self.random.uniform(0.2, 1.5), lambda: self._register_controller(node, life))

    def _register_controller(self, node: int, life: int) -> None:
        if self.controllers[node].life != life or node in self.never_registers:
            return
        if self.active is None:
            self.time.after(0.5, lambda: self._register_controller(node, life))
            return
        self.controllers_registered.add(node)
        self._copy_soon()

    def _lose_leader(self) -> None:
        self.leader, self.mirror_live_from, self.copying = None, None, False
        self._elect_soon()

    def _elect_soon(self) -> None:
        if self.leader is None and not self.electing:
            self.electing = True
            self.time.after(self.random.uniform(0.5, 4.0), self._elect)

    def _elect(self) -> None:
        self.electing = False
        up = [i for i, c in self.controllers.items() if c.up and len(self.members(i)) >= MAJORITY]
        if self.leader is not None or not up:
            return
        self.leader = self.random.choice(up)
        self.epoch += 1
        if self.controllers[self.leader].loaded:
            self._became_active()

    def _became_active(self) -> None:
        if self.leader is None:
            return
        flag = self.controllers[self.leader].mode is not ControllerMode.FINAL
        match self.state:
            case ZkMigrationState.NONE if flag:
                self.state, self.migration_znode = ZkMigrationState.PRE_MIGRATION, True
                self.czxid += 1
            case ZkMigrationState.MIGRATION if not flag:
                self.state, self.finalized_at = ZkMigrationState.POST_MIGRATION, self.time.now
                self.mirror_live_from = None
            case ZkMigrationState.MIGRATION:
                self.claim_epoch = self.epoch
                self._sync(self.epoch)
            case _:
                pass
        self._copy_soon()
        if self.claim_epoch >= 0:
            for node in self.nodes:
                self.time.after(self.random.uniform(0.05, 2.0), lambda node=node: self._learn_controller(node))  # type: ignore[misc]

    def _sync(self, epoch: int) -> None:
        """Let the new leader write the whole image first: that heals what differs, unless it gets stuck, up to twice in a row.

        A ZooKeeper without this attempt's ``/migration`` is not written: "KRaft controller indicates an active migration, but the ZK state does not".
        """
        if self.lost and self.lost != "older ZooKeeper":
            self.mirror_live_from = None
            return
        if self.stateless_changed:
            self.mirror_live_from = None
            return
        if self.random.random() < self.stuck_chance * (1.0 if self.edited else 0.2) and self.stuck < MAX_STUCK:
            self.stuck += 1
            self.mirror_live_from = None
            if self.random.random() < 0.5:
                self.migration_epoch = epoch
            return
        seconds = self.random.uniform(0.5, 3.0)
        self.mirror_live_from, self.migration_epoch, self.stuck = self.time.now + seconds, epoch, 0

        def synced() -> None:
            if self.epoch == epoch and self.mirror_live_from is not None:
                self.edited = self.lost_write = False
                self.lost = ""

        self.time.after(seconds, synced)
        self.time.after(3.1, self._mirror_canary_now)

    def look_again(self) -> None:
        """Let the driver see that ZooKeeper is what it was, as it does at each poll."""
        self._copy_soon()

    def _copy_soon(self) -> None:
        """Begin the copy as the driver does: all brokers registered in migration mode, all controllers registered."""
        ready = (
            self.state is ZkMigrationState.PRE_MIGRATION
            and self.active is not None
            and not self.copying
            and not self.lost
            and all(self.registered.get(i) is BrokerMode.MIGRATION and self.brokers[i].up for i in self.nodes)
            and self.controllers_registered == set(CONTROLLERS)
        )
        if ready:
            self.copying = True
            epoch = self.epoch
            self.told_last = frozenset(i for i, p in self.brokers.items() if p.up), frozenset(self.in_sync)
            self.claim_epoch, self.zk_controller, self.migration_znode = epoch, None, True
            self.migration_epoch = epoch
            self.time.after(self.random.uniform(0.5, 3.0), lambda: self._copied(epoch))

    def _copied(self, epoch: int) -> None:
        if self.lost and self.copying:
            self.time.after(1.0, lambda: self._copied(epoch))
            return
        if self.epoch != epoch or not self.copying or self.active is None:
            self.copying = False
            self._copy_soon()
            return
        self.copying = False
        self.state = ZkMigrationState.MIGRATION
        self.stateless = self.makes_topics_meanwhile
        self.mirror_live_from = self.time.now + self.random.uniform(0.2, 1.5)
        for node in self.nodes:
            self.time.after(self.random.uniform(0.05, 2.0), lambda node=node: self._learn_controller(node))  # type: ignore[misc]
