"""Takes a ZooKeeper cluster of an old release over the bridge release to KRaft, or back, while clients work.

What each roll needs is in `kraftbridge`'s design: the bridge release runs with the protocol version that ran before
(KIP-584 does not cover ``inter.broker.protocol.version``), and brokers without topic ids (KIP-516, before 2.8) are lifted
in a roll of their own, before any broker enters migration mode.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar

from e2e.clients.kafka_clients.watch.moments import Moment
from e2e.harness.load import ClientImpact
from kazoo.client import KazooClient
from tests.support.kafka_processes import (
    CHROOT,
    FINAL,
    KRAFT,
    MIGRATION,
    ZOOKEEPER,
    KafkaProcesses,
    kafka_libraries,
    kafka_processes,
    wait_for,
)
from tests.support.running_load import KEPT_IN_KRAFT, MOVED_TOPIC, SETTINGS, RunningLoad, running_load
from typing_extensions import override

from kraftbridge.models.observation import MigrationZnode
from kraftbridge.storage.kafka_brokers import BrokerClient
from kraftbridge.storage.kafka_controllers import ControllerClient
from kraftbridge.storage.zookeeper import ZooKeeperStore

BROKERS: Final = (0, 1, 2)
CONTROLLERS: Final = (3000, 3001, 3002)
BRIDGE: Final = "3.9.2"
RELEASES: Final = ("2.4.1", "2.8.2", "3.1.2", "3.4.1", "3.6.2", "3.8.1", "3.9.0", "3.9.1", "3.9.2")
"""Where people start. Each is on Maven Central."""
_TOPIC_IDS: Final = (2, 8)
"""The first protocol version with topic ids."""


class Way(StrEnum):
    """Where a journey goes."""

    KRAFT = "to KRaft"
    BACK_FROM_BRIDGE = "back from 3.9"
    BACK_FROM_KRAFT = "back from KRaft brokers"

    @property
    def said(self) -> str:
        """What happens, in a sentence."""
        match self:
            case Way.KRAFT:
                return f"{BRIDGE} with the old protocol version, migration mode, KRaft, finalized"
            case Way.BACK_FROM_BRIDGE:
                return f"{BRIDGE} with the old protocol version on every broker, then the old release again"
            case Way.BACK_FROM_KRAFT:
                return f"as far as two brokers in KRaft mode, then ZooKeeper mode on {BRIDGE}"


class Order(StrEnum):
    """When the broker restarts that is the controller on ZooKeeper as a roll begins."""

    LAST = "controller last"
    FIRST = "controller first"


@dataclass(frozen=True)
class Roll:
    """One rolling restart."""

    name: str
    seconds: float


@dataclass(frozen=True)
class Journey:
    """What a journey was like."""

    release: str
    way: Way
    commit: str
    rolls: tuple[Roll, ...] = ()
    seconds: float = 0.0
    acknowledged: int = 0
    lost: int = 0
    duplicates: int = 0
    longest_stall_seconds: float = 0.0
    """Between the sending of a record and its acknowledgement."""
    broken: tuple[str, ...] = ()
    """What the load found of transactions, group offsets, topics, configs and reassignments that is not as it must be."""
    stray: tuple[str, ...] = ()
    """Partition directories that a KRaft start has set aside."""
    nameless: tuple[str, ...] = ()
    """Partition directories without a topic id before the first broker entered migration mode."""
    created: tuple[str, ...] = ()
    """Partitions that had no state in ZooKeeper after the takeover, and got one as the operator gives them one."""
    raised: tuple[str, ...] = ()
    """Features that were raised, with their levels."""
    failure: str = ""

    @property
    def good(self) -> bool:
        """Whether it ended as promised."""
        return not (self.failure or self.lost or self.duplicates or self.broken or self.stray or self.nameless)

    def as_json(self) -> dict[str, Any]:
        """Return what is kept."""
        return asdict(self)


def journey_of(raw: dict[str, Any]) -> Journey:
    """Return a kept journey."""
    rolls = tuple(Roll(**each) for each in raw["rolls"])
    texts = {name: tuple(raw.get(name, ())) for name in ("broken", "stray", "nameless", "created", "raised")}
    return Journey(**{**raw, **texts, "rolls": rolls, "way": Way(raw["way"])})


def protocol_of(release: str) -> tuple[int, int]:
    """Return the protocol version that a release runs without a setting."""
    major, minor, *_ = release.split(".")
    return int(major), int(minor)


class TravellingProcesses(KafkaProcesses):
    """Brokers of several releases, each with the protocol version that it is to have."""

    protocol: dict[int, str]
    """``inter.broker.protocol.version`` by broker; its release's own where there is none."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.protocol = {}

    @override
    def _broker_properties(self, broker_id: int, mode: str) -> str:
        path = Path(super()._broker_properties(broker_id, mode))
        text = path.read_text()
        if mode == ZOOKEEPER:
            # Old releases know no listener of controllers.
            text = text.replace("PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT", "PLAINTEXT:PLAINTEXT")
        if broker_id in self.protocol:
            text += f"inter.broker.protocol.version={self.protocol[broker_id]}\n"
        if mode == KRAFT:
            text += KEPT_IN_KRAFT
        path.write_text(text + "default.replication.factor=3\nmin.insync.replicas=2\n")
        return str(path)


P = TypeVar("P", bound=TravellingProcesses)


@dataclass
class Traveller:
    """A cluster on its way."""

    processes: TravellingProcesses
    zookeeper: ZooKeeperStore
    load: RunningLoad
    order: Order = Order.LAST
    """Of the rolls in which a broker is the controller."""
    after_restart: Callable[[str, int], None] = lambda _roll, _number: None
    """What happens once a broker has restarted, before its partitions are in sync: name of the roll, how many it has restarted."""
    rolls: list[Roll] = field(default_factory=list)
    nameless: tuple[str, ...] = ()
    created: tuple[str, ...] = ()
    """Partitions that had no state in ZooKeeper after the takeover."""
    missing: list[str] = field(default_factory=list)
    """What else is not as it must be, in words."""
    raised: list[str] = field(default_factory=list)
    """Features that were raised, with their levels."""

    def roll(
        self, name: str, mode: str, release: str = BRIDGE, protocol: str = "", brokers: tuple[int, ...] = BROKERS
    ) -> None:
        """Restart brokers one at a time, each once all partitions have their full ISR."""
        began = time.monotonic()
        for number, broker in enumerate(brokers, 1):
            wait_for(f"in sync before broker {broker} stops for {name}", self.processes.in_sync)
            self.processes.stop(f"broker-{broker}")
            self.processes.libraries_of[f"broker-{broker}"] = kafka_libraries(release)
            self.processes.protocol.pop(broker, None)
            if protocol:
                self.processes.protocol[broker] = protocol
            self.processes.start_broker(broker, mode)
            self.after_restart(name, number)
            wait_for(f"broker {broker} in sync after {name}", self.processes.in_sync)
        self.rolls.append(Roll(name, round(time.monotonic() - began, 1)))

    def to_bridge(self, release: str, *, lifts: bool) -> None:
        """Roll to the bridge release with the old protocol version.

        Parameters
        ----------
        lifts
            Whether brokers without topic ids are lifted in a roll of their own.
            After that they cannot run the old release again: its brokers cannot fetch from them (seen with 2.4.1).
        """
        protocol = protocol_of(release)
        pin = ".".join(map(str, protocol))
        if release != BRIDGE:
            self.roll(f"{BRIDGE}, protocol {pin}", ZOOKEEPER, protocol=pin, brokers=self.ordered())
        if lifts and protocol < _TOPIC_IDS:
            self.roll("protocol 3.9", ZOOKEEPER, brokers=self.ordered())
        self.nameless = tuple(self._without("partition.metadata"))

    def ordered(self) -> tuple[int, ...]:
        """Return the brokers, with the controller on ZooKeeper in its place."""
        controller = self.controller()
        return tuple(sorted(BROKERS, key=lambda broker: (broker == controller) is (self.order is Order.LAST)))

    def controller(self) -> int:
        """Return which broker is the controller on ZooKeeper."""
        controller = wait_for("a controller on ZooKeeper", lambda: self.zookeeper.observe().controller)
        return controller.broker_id

    def to_dual_write(self) -> ControllerClient:
        """Start controllers, and roll the brokers to migration mode, which lifts the protocol version."""
        cluster_id = self.zookeeper.observe().cluster_id
        assert cluster_id is not None
        for controller in CONTROLLERS:
            self.processes.format_controller(controller, cluster_id)
            self.processes.start_controller(controller)
        controllers = ControllerClient(self.processes.controller_addresses, {})
        wait_for("a leader", lambda: controllers.quorum_state().high_watermark > 0)
        self.load.tell(Moment.TAKEOVER)
        self.roll("migration mode", MIGRATION, brokers=self.ordered())
        wait_for("dual-write", self._is_mirrored)
        # The operator does so when its verification has found one: a topic that the load created during the takeover.
        self.created = self.zookeeper.create_partition_states()
        self.load.tell(Moment.DUAL_WRITE)
        return controllers

    def _is_mirrored(self) -> bool:
        migration = self.zookeeper.observe().migration
        return isinstance(migration, MigrationZnode) and migration.kraft_metadata_offset >= 0

    def finalize(self) -> None:
        """Restart the controllers without ZooKeeper, one at a time."""
        for controller in CONTROLLERS:
            self.processes.stop(f"controller-{controller}")
            self.processes.start_controller(controller, FINAL)
            wait_for(f"in sync after controller {controller}", self.processes.in_sync)

    def back_to_zookeeper(self) -> None:
        """Go back from migration mode, as Kafka's documentation has it ("Reverting to ZooKeeper mode")."""
        self.roll("migration mode again", MIGRATION, brokers=BROKERS[:2])
        for controller in CONTROLLERS:
            self.processes.stop(f"controller-{controller}")
        client = KazooClient(self.processes.zookeeper_hosts + CHROOT)
        client.start(30)
        try:
            client.delete("/controller")
            client.delete("/migration")
        finally:
            client.stop()
            client.close()
        # A broker that still names a KRaft controller hangs in its controlled shutdown for minutes.
        wait_for("a broker is the controller", self._is_agreed)
        self.roll("ZooKeeper mode", ZOOKEEPER)

    def _is_agreed(self) -> bool:
        """Return whether every broker names the same broker as the controller."""
        client = BrokerClient(self.processes.bootstrap_servers, {})
        try:
            named = client.controller_by_broker()
        finally:
            client.close()
        return named.keys() == set(BROKERS) and len(set(named.values())) == 1 and set(named.values()) <= set(BROKERS)

    def _without(self, name: str) -> Iterator[str]:
        """Yield the partition directories that lack a file."""
        for directory in self._partitions():
            if not (directory / name).exists():
                yield f"{directory.parent.name}/{directory.name}"

    def _partitions(self) -> Iterator[Path]:
        for broker in BROKERS:
            for directory in sorted((self.processes.directory / f"broker-{broker}").iterdir()):
                if directory.is_dir() and directory.name[-1].isdigit():
                    yield directory

    def stray(self) -> tuple[str, ...]:
        """Return the partition directories that a broker has set aside although it has the replica.

        What the load deletes or moves away while a broker is down is rightly set aside at its start.
        The topic that it moves comes back to the broker afterwards, so nobody can tell at the end.
        """
        topics = self.processes.admin_client().list_topics(timeout=30).topics
        found = []
        for broker in BROKERS:
            for path in sorted(self.processes.directory.glob(f"broker-{broker}/*-stray")):
                topic, _, number = path.name.removesuffix("-stray").rpartition(".")[0].rpartition("-")
                is_known = topic in topics and topic != MOVED_TOPIC
                partition = topics[topic].partitions.get(int(number)) if is_known else None
                if partition is not None and broker in partition.replicas:
                    found.append(f"broker-{broker}/{path.name}")
        return tuple(found)


@contextmanager
def cluster(release: str, kind: type[P]) -> Iterator[P]:
    """Give a cluster of a release on ZooKeeper, and end it afterwards."""
    with kafka_processes(BROKERS, CONTROLLERS, kind) as processes:
        processes.start_zookeeper()
        for broker in BROKERS:
            processes.libraries_of[f"broker-{broker}"] = kafka_libraries(release)
            processes.extra_broker_settings[broker] = SETTINGS
            processes.start_broker(broker, ZOOKEEPER)
        processes.libraries_of |= {f"controller-{each}": kafka_libraries(BRIDGE) for each in CONTROLLERS}
        processes.admin_client()
        yield processes


def travel(release: str, way: Way, commit: str, evidence: Path | None = None) -> Journey:
    """Take a cluster of a release on its way, and return what the clients went through.

    Parameters
    ----------
    evidence
        Directory that gets the data and the output of every process if the journey does not end as promised.
    """

    def go(processes: TravellingProcesses, zookeeper: ZooKeeperStore, load: RunningLoad) -> Traveller:
        traveller = Traveller(processes, zookeeper, load)
        traveller.to_bridge(release, lifts=way is not Way.BACK_FROM_BRIDGE)
        if way is Way.BACK_FROM_BRIDGE:
            traveller.roll(f"{release} again", ZOOKEEPER, release)
        else:
            through_migration(traveller, way)
        return traveller

    return undertaken(Journey(release, way, commit), TravellingProcesses, go, evidence)


def undertaken(
    begun: Journey,
    kind: type[P],
    go: Callable[[P, ZooKeeperStore, RunningLoad], Traveller],
    evidence: Path | None,
) -> Journey:
    """Start a cluster of the journey's release and the load, let it go, and return what the clients went through.

    Parameters
    ----------
    kind
        Class of the cluster.
    go
        Takes the cluster on its way.
    evidence
        Directory that gets the data and the output of every process if the journey does not end as promised.
    """
    began = time.monotonic()
    with cluster(begun.release, kind) as processes, kept(processes, evidence) as ended:
        zookeeper = ZooKeeperStore(processes.zookeeper_hosts, CHROOT)
        with running_load(processes) as load:
            traveller = go(processes, zookeeper, load)
            impact = load.stop()
        zookeeper.close()
        journey = journey_of_traveller(begun, traveller, impact, time.monotonic() - began)
        ended.append(journey)
        return journey


@contextmanager
def kept(processes: TravellingProcesses, evidence: Path | None) -> Iterator[list[Journey]]:
    """Give a list for the journey, and copy what the processes wrote unless it holds a good one."""
    ended: list[Journey] = []
    try:
        yield ended
    finally:
        if evidence is not None and not (ended and ended[0].good):
            shutil.copytree(processes.directory, evidence, dirs_exist_ok=True)


def through_migration(traveller: Traveller, way: Way) -> None:
    """Go on from the bridge release."""
    controllers = traveller.to_dual_write()
    try:
        traveller.roll("KRaft mode", KRAFT, brokers=BROKERS[:1])
        traveller.load.tell(Moment.MIXED)
        if way is Way.KRAFT:
            traveller.roll("KRaft mode, the others", KRAFT, brokers=BROKERS[1:])
            traveller.finalize()
        else:
            traveller.roll("KRaft mode, a second one", KRAFT, brokers=BROKERS[1:2])
            traveller.back_to_zookeeper()
    finally:
        controllers.close()


def journey_of_traveller(begun: Journey, traveller: Traveller, impact: ClientImpact, seconds: float) -> Journey:
    """Return the journey that has ended, with what the clients went through."""
    return Journey(
        release=begun.release,
        way=begun.way,
        commit=begun.commit,
        rolls=tuple(traveller.rolls),
        seconds=round(seconds, 1),
        acknowledged=impact.acked,
        lost=impact.lost,
        duplicates=impact.duplicates,
        longest_stall_seconds=round(impact.longest_produce_stall_s, 1),
        broken=(*impact.broken, *traveller.missing),
        stray=traveller.stray(),
        nameless=() if begun.way is Way.BACK_FROM_BRIDGE else traveller.nameless,
        created=traveller.created,
        raised=tuple(traveller.raised),
    )


def present_commit() -> str:
    """Return the short name of the commit that a journey is made at."""
    asked = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


def attempted(begun: Journey, make: Callable[[], Journey]) -> Journey:
    """Make a journey; return it, or what it failed by: one journey must not end the others."""
    try:
        return make()
    except Exception as error:  # noqa: BLE001 - whatever it was
        words = f"{type(error).__name__}: {error}".strip()
        return replace(begun, failure=words[:2000])


def written(journey: Journey) -> str:
    """Return a journey as it is kept."""
    return json.dumps(journey.as_json(), indent=1, sort_keys=True) + "\n"
