"""Topic ids on ZooKeeper (KIP-516): who gives them, which brokers list them, and whose logs keep them.

A controller on ZooKeeper with protocol 2.8-IV1 or later gives every topic its id when it is elected, and sends all replicas of a broker with the ids: to those
that live, and to each that starts later. A broker with such a protocol keeps them beside its logs; with an older one its start deletes what lay there.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.simulation.kafka import Kafka

from kraftbridge.models.observation import TopicIds, Unobserved
from kraftbridge.models.protocol import has_topic_ids

_NEW_TOPIC = 0.4
"""How likely somebody makes a topic while a controller leads that gives no ids."""


class Ids:
    """The ids of one cluster."""

    def __init__(self, kafka: Kafka, random: Random, protocol_of: Callable[[int], str]) -> None:
        self.kafka = kafka
        self.random = random
        self.protocol_of = protocol_of
        self.named = False
        """Whether every topic has its id in ZooKeeper."""
        self.lists: set[int] = set()
        """Brokers that list every topic with its id: they were told since their start."""
        self.keeps: set[int] = set()
        """Brokers of which every log has its ``partition.metadata``."""
        kafka.elected, kafka.came_up = self.elected, self.came_up

    def begin(self) -> None:
        """Let the cluster be what it became in the years before."""
        leads = self.kafka.zk_controller
        if leads is not None and has_topic_ids(self.protocol_of(leads)):
            self.named, self.lists = True, set(self.kafka.nodes)
            self.keeps = {node for node in self.kafka.nodes if has_topic_ids(self.protocol_of(node))}

    def elected(self) -> None:
        """Let ZooKeeper's next controller lead."""
        leads = self.kafka.zk_controller
        if leads is None:
            return
        if has_topic_ids(self.protocol_of(leads)):
            self.named = True
        elif self.random.random() < _NEW_TOPIC:
            self.kafka.time.after(self.random.uniform(0.1, 5.0), lambda: self._make_topic(leads))
        for node, process in self.kafka.brokers.items():
            if process.up:
                self._tell(node, process.life, kept_first=True)

    def came_up(self, node: int) -> None:
        """Let a broker's process start with an empty cache."""
        self.lists.discard(node)
        if not has_topic_ids(self.protocol_of(node)):
            self.keeps.discard(node)
        self._tell(node, self.kafka.brokers[node].life, kept_first=False)

    def _make_topic(self, leads: int) -> None:
        if self.kafka.zk_controller == leads:
            self.named = False
            self.keeps.clear()
            self.lists.clear()

    def _tell(self, node: int, life: int, *, kept_first: bool) -> None:
        """Send a broker its replicas and the cluster's metadata: in this order, but to one that has just come up."""
        kept, listed = sorted(self.random.uniform(0.02, 0.45) for _ in range(2))
        if not kept_first:
            kept, listed = listed, kept

        def leads() -> bool:
            if self.kafka.brokers[node].life != life or self.kafka.hears_nothing(node):
                return False
            holder = self.kafka.zk_controller
            return self.kafka.claim_epoch >= 0 or (holder is not None and has_topic_ids(self.protocol_of(holder)))

        def keep() -> None:
            if leads() and has_topic_ids(self.protocol_of(node)):
                self.keeps.add(node)

        def list_() -> None:
            if leads():
                self.lists.add(node)

        self.kafka.time.after(kept, keep)
        self.kafka.time.after(listed, list_)

    # ------------------------------------------------------------------------------------------- observation

    def told(self, processes: dict[int, str], partitions: int) -> dict[int, TopicIds | Unobserved]:
        """Return what brokers tell that are asked."""
        return {node: self._of(node, process, partitions) for node, process in processes.items()}

    def _of(self, node: int, process: str, partitions: int) -> TopicIds | Unobserved:
        if not self.kafka.brokers[node].up:
            return Unobserved(f"broker {node}", "connection refused")
        without = () if node in self.lists else ("t",)
        return TopicIds(process, self.protocol_of(node), partitions, without, len(without), ())

    # ------------------------------------------------------------------------------------------- promises

    def trouble(self) -> str:
        """Return what of the cluster KRaft would refuse, ``""`` when nothing."""
        if not self.named:
            return "a topic has no id"
        if lacking := sorted(set(self.kafka.nodes) - self.keeps):
            return f"broker {lacking[0]} has a log without id"
        return ""
