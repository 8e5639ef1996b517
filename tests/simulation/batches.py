"""Clusters of nine brokers in which several may be down together: where the replicas are, and what none of them loses by us."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import TYPE_CHECKING, Final

from tests.simulation.kafka import BROKERS, CONTROLLERS, Kafka

from kraftbridge.models.assignments import Assignments, Replicas, SeenAssignments
from kraftbridge.models.decision import Action, RestartPod
from kraftbridge.models.observation import Unobserved
from kraftbridge.models.phase import BrokerMode, Phase
from kraftbridge.models.spec import MigrationSpec

if TYPE_CHECKING:
    from datetime import datetime

    from tests.simulation.run import Run

REMAINDER: Final = 9
"""Of the seeds modulo 13, in whose clusters several brokers may be down together."""
LARGE: Final = tuple(range(9))
SETS: Final = (("kafka", (0, 1, 2, 3, 4, 5)), ("kafka-b", (6, 7, 8)))
MIN_ISR: Final = 2
_ZONES: Final = 3
_AT_RANDOM: Final = 0.3
_MOVES: Final = 0.01
_DIES: Final = 0.03


class Layout:
    """The partitions of one run, drawn apart: the other draws of a seed stay what they were."""

    def __init__(self, seed: int, *, troubled: bool, on: bool | None = None) -> None:
        self.random = Random(f"batches of {seed}")
        self.on = seed % 13 == REMAINDER if on is None else on
        self.nodes = LARGE if self.on else BROKERS
        sizes: list[int | str] = [2, 3, 3, 5, "30%"]
        self.most = self.random.choice(sizes) if self.on else 1
        self.zones = {node: "abc"[node % _ZONES] for node in LARGE}
        self.partitions = [frozenset(held) for held in product(*(LARGE[zone::_ZONES] for zone in range(_ZONES)))]
        if self.random.random() < _AT_RANDOM:
            self.zones = {}
            # Each broker holds a replica: nobody sees whether one without any is in sync.
            anyhow = self.random.sample(LARGE, len(LARGE))
            self.partitions = [frozenset(anyhow[start : start + 3]) for start in (0, 3, 6)]
            self.partitions.append(frozenset(self.random.sample(LARGE, 3)))
        self.troubled = troubled
        self.lagging: dict[tuple[int, int], float] = {}
        """Partition and broker: until when a replica that was moved there has not caught up."""
        self.leaving: dict[int, int] = {}
        """Broker that a partition leaves once its next one has caught up."""
        self.seen: list[frozenset[int]] = []
        """In-sync replicas of each partition at the last look."""
        self.controller_seen: int | None = None
        self.struck: dict[int, float] = {}
        """When a broker last fell by itself."""

    def spec(self, spec: MigrationSpec) -> MigrationSpec:
        """Return what the user asks for."""
        if not self.on:
            return spec
        return spec.model_copy(update={"strategy": spec.strategy.model_copy(update={"max_unavailable": self.most})})

    # ------------------------------------------------------------------------------------------- the cluster

    def in_sync(self, kafka: Kafka, number: int) -> frozenset[int]:
        """Return the in-sync replicas of a partition."""
        now = kafka.time.now
        return frozenset(
            node
            for node in self.partitions[number]
            if node in kafka.in_sync and self.lagging.get((number, node), 0.0) <= now
        )

    def lacking(self, in_sync: frozenset[int], now: float) -> tuple[frozenset[int], int, int]:
        """Return which brokers lag where these are in sync, how many partitions wait for them, how many have no leader."""
        behind = [
            frozenset(n for n in held if n not in in_sync or self.lagging.get((number, n), 0.0) > now)
            for number, held in enumerate(self.partitions)
        ]
        offline = sum(lag == held for lag, held in zip(behind, self.partitions, strict=True))
        return frozenset().union(*behind), sum(map(bool, behind)), offline

    def happen(self, run: Run) -> None:
        """Let somebody move a replica, and a broker of a batch die."""
        if not self.on or not self.troubled:
            return
        now = run.cluster.time.now
        for number, node in list(self.leaving.items()):
            if all(until <= now for (moved, _), until in self.lagging.items() if moved == number):
                self.partitions[number] -= {node}
                del self.leaving[number]
        if self.random.random() < _MOVES:
            self._move(run, self.random.randrange(len(self.partitions)))
        batch = run.status.batch
        if batch is not None and batch.others and self.random.random() < _DIES:
            node = self.random.choice(self.nodes)
            run.cluster.crash(run.cluster.set_of(node), node)
            run.coverage.faults["died_beside_a_batch"] += 1

    def _move(self, run: Run, number: int) -> None:
        held = self.partitions[number]
        leaving = self.random.choice(sorted(held))
        alike = [n for n in LARGE if n not in held and (not self.zones or self.zones[n] == self.zones[leaving])]
        # One that leaves two partitions at once would hold none in the end.
        stays = [i for i, each in enumerate(self.partitions) if leaving in each and self.leaving.get(i) != leaving]
        holds_another = len(stays) > 1
        if number in self.leaving or not alike or not holds_another:
            return
        new = self.random.choice(alike)
        self.partitions[number] = held | {new}
        self.lagging[number, new] = run.cluster.time.now + self.random.uniform(5.0, 60.0)
        self.leaving[number] = leaving
        run.coverage.faults["reassignment"] += 1

    def assignments(self, kafka: Kafka, at: datetime) -> SeenAssignments | Unobserved:
        """Return what several brokers serve; what all of them say is in sync is in sync."""
        up = [node for node, process in kafka.brokers.items() if process.up]
        if len(up) < 2:
            return Unobserved("brokers", "two must answer")
        asked = self.random.sample(up, min(3, len(up)))
        told = frozenset.intersection(*(kafka.metadata_of(node)[1] for node in asked))
        now = kafka.time.now
        found = []
        for number, held in enumerate(self.partitions):
            behind = {n for n in held if self.lagging.get((number, n), 0.0) > now}
            found.append(Replicas(f"t-{number}", held, (held & told) - behind, MIN_ISR))
        leaders = frozenset(n for n in told if n not in kafka.leaving)
        return SeenAssignments(Assignments(tuple(found), self.zones, leaders=leaders, read_at=at))

    def strike(self, random: Random, now: float) -> int:
        """Return a broker that falls by itself now."""
        node = random.choice(self.nodes)
        self.struck[node] = now
        return node

    # ------------------------------------------------------------------------------------------- promises

    def look(self, run: Run) -> None:
        """Note what can be judged by."""
        if self.on:
            self.seen = [self.in_sync(run.cluster.kafka, number) for number in range(len(self.partitions))]
            self.controller_seen = run.cluster.kafka.zk_controller

    def allowed_down(self, run: Run) -> frozenset[int]:
        """Return the brokers that may be down beside the one that is stopped now: those of its batch."""
        operation, batch = run.status.operation, run.status.batch
        if not self.on or operation is None or batch is None:
            return frozenset()
        return frozenset(other.node_id for other in batch.others)

    def trouble_of(self, run: Run, action: Action) -> str:
        """Return which promise an action breaks: what a broker must not do that joins others which are down."""
        if not self.on or not isinstance(action, RestartPod) or action.node_id in CONTROLLERS:
            return ""
        kafka, node = run.cluster.kafka, action.node_id
        pod = run.cluster.set_of(node).pods.get(node)
        others = self.allowed_down(run)
        if not others or pod is None or pod.uid != action.uid or pod.deleting or not kafka.brokers[node].up:
            return ""
        run.coverage.faults["joined_a_batch"] += 1
        for number, in_sync in enumerate(self.seen):
            left = in_sync - others - {node}
            if node in in_sync and len(left) < MIN_ISR:
                return (
                    f"broker {node} is stopped beside {sorted(others)}, which leaves t-{number} {sorted(left)} in sync"
                )
        if self.zones and len({self.zones[i] for i in (*others, node)}) > 1:
            return f"broker {node} is stopped beside {sorted(others)}, which are in another zone"
        if len(others) + 1 > run.spec.strategy.most_down(len(self.nodes)):
            return f"{len(others) + 1} brokers are down together, and {self.most} may be"
        if kafka.claim_epoch < 0 and self.controller_seen == node:
            return f"broker {node} is ZooKeeper's controller and is not alone"
        old = [i for i in self.nodes if i not in others and i != node and self._is_old(run, i)]
        if run.status.phase is Phase.TAKING_OVER and not old:
            return f"broker {node} is the last one of the first roll and is not alone"
        return ""

    @staticmethod
    def _is_old(run: Run, node: int) -> bool:
        return run.cluster.kafka.registered.get(node) is not BrokerMode.MIGRATION

    def trouble(self, run: Run) -> str:
        """Return whether a partition is below its min ISR for no other reason than what the operator stopped."""
        if not self.on:
            return ""
        kafka = run.cluster.kafka
        ours = run.down_by_us.keys()
        for number, held in enumerate(self.partitions):
            in_sync = self.in_sync(kafka, number)
            if len(in_sync) < MIN_ISR and held - in_sync <= ours and self.is_ours_alone(run, held - in_sync):
                return f"t-{number} has {sorted(in_sync)} in sync, and {sorted(held - in_sync)} are down by us"
        return ""

    @staticmethod
    def is_ours_alone(run: Run, nodes: frozenset[int]) -> bool:
        """Return whether brokers are down for no other reason: their pods go, or have just come."""
        given_up = run.status.lost_quorum is not None and run.spec.rollback.accept_loss
        if given_up and run.status.phase is Phase.ROLLING_BACK:
            return False
        struck = run.layout.struck
        return all(struck.get(node, -1.0) < run.stopped_at.get(node, -1.0) for node in nodes)
