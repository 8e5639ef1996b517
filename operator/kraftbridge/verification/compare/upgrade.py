"""Compares what brokers in ZooKeeper mode serve with the tree, and settles the differences.

It is made before the brokers are brought to another release, and after it.
A broker learns of a change some time after it was written:

- from the controller (UpdateMetadata): topics, partitions;
- from a notification in ZooKeeper: configs, ACLs.

With an inter-broker protocol before 2.7, a leader writes its ISR itself and tells the controller of it
within 60 seconds (``ReplicaManager.IsrChangePropagationInterval``).
An answer is settled when it equals the tree once.
It is different if tree and answer stay as they are, and not equal, for longer than that.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from kraftbridge.exceptions import MetadataError
from kraftbridge.metadata.entities import Entity, Secrets, as_served, by_identity, canonical_json, value_of
from kraftbridge.metadata.zookeeper.reader import Operation, Read, ZooKeeperReader
from kraftbridge.metadata.zookeeper.soundness import DELETIONS_PATH
from kraftbridge.metadata.zookeeper.tree import TreeReading
from kraftbridge.models.catalogue import Code
from kraftbridge.models.entities import EntityKind
from kraftbridge.models.report import BrokerAccess, CompareServed, Difference, Finding, ZooKeeperAccess
from kraftbridge.verification.compare.mirror import Identity, topic_of
from kraftbridge.verification.compare.places import copy_of
from kraftbridge.verification.compare.served import (
    Asking,
    Open,
    Reference,
    as_shown,
    compare_served,
    look_until_settled,
    without_passwords,
)
from kraftbridge.verification.run import Outcome, Run, difference
from kraftbridge.verification.sources.brokers import (
    BrokerUnavailableError,
    NotAllowedError,
    ServedBroker,
    served_broker,
)
from kraftbridge.verification.sources.rows import ZOOKEEPER, Leg, broker_place

_STANDS_SECONDS: Final = 75.0
"""How long tree and answer must differ without a change of either. See the module's first lines."""
_REQUEST_SECONDS: Final = 10.0
_NO_TOPIC_ID: Final = canonical_json({"topicId": None})
_CONFIGS: Final = frozenset({EntityKind.TOPIC_CONFIG, EntityKind.BROKER_CONFIG})


def compare_with_tree(run: Run, tree: DataFrame) -> None:
    """Compare what every broker serves with ZooKeeper's tree, and settle the differences.

    With `CompareServed.IF_ALLOWED`, what the principal may not see becomes a warning.
    What is unknown for another reason is none: the verdict is about nothing else than what brokers serve.

    Parameters
    ----------
    tree
        Rows of a `ZooKeeperPlan` with `served`.
    """
    registrations = (F.col("leg") == str(Leg.MIRROR)) & (F.col("kind") == str(EntityKind.BROKER_REGISTRATION))
    reference = Reference(
        place=ZOOKEEPER,
        name="ZooKeeper",
        registered=[int(row["key"]) for row in tree.where(registrations).select("key").collect()],
        on_kraft=(),
        acls=True,
        settle=_settle,
    )
    tolerant = run.request.compare_served is CompareServed.IF_ALLOWED
    try:
        hidden = compare_served(run, tree, reference)
    except NotAllowedError as error:
        if not tolerant:
            raise
        hidden = (str(error),)
    if not tolerant:
        run.outcome.problems += hidden
        return
    for reason in hidden:
        run.outcome.add_finding(Finding.of(Code.SERVED_NOT_COMPARED, "brokers", reason=reason))


def _settle(run: Run, pending: list[Open]) -> int:
    """Return the number of differences. A Spark task asks the brokers and reads the tree."""
    settled = run.in_task(_settled, Asking(run.request, run.inputs, run.salt, pending))
    return run.outcome.add_settled(settled)


def _settled(asking: Asking) -> Outcome:
    inputs = asking.inputs
    access = inputs.zookeeper
    assert isinstance(access, ZooKeeperAccess)  # `offline_inputs` refuses the profile
    outcome = Outcome()
    with ZooKeeperReader(access) as reader:
        # Brokers serve no passwords, so their form does not matter.
        settling = _Settling(inputs.brokers, inputs.client_config_path, reader, Secrets(asking.salt))
        look_until_settled(settling, asking.pending, outcome, asking.request.fence_seconds)
    return outcome


@dataclass(frozen=True, slots=True)
class _Sight:
    """A difference at the last look, and since when tree and answer are what they are."""

    since: float
    held: str | None
    served: str | None


@dataclass(slots=True)
class _Settling:
    brokers: Sequence[BrokerAccess]
    client_config_path: str | None
    reader: ZooKeeperReader
    secrets: Secrets
    sights: dict[Open, _Sight] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)

    def look(self, pending: Sequence[Open]) -> list[Open]:
        """Read the tree, ask the brokers, and return the entities that still differ or are still unknown."""
        held = self._held({identity for identity, _ in pending})
        left: list[Open] = []
        for broker in self.brokers:
            wanted = [identity for identity, broker_id in pending if broker_id == broker.id and identity in held]
            if wanted:
                left += self._ask(broker, wanted, held)
        return left

    def differing(self, pending: Sequence[Open]) -> list[Open]:
        """Return the entities that differ for long enough."""
        now = time.monotonic()
        return [entry for entry in pending if entry in self.sights and now - self.sights[entry].since > _STANDS_SECONDS]

    @property
    def patience_seconds(self) -> float:
        """How long to look at least."""
        return 2 * _STANDS_SECONDS

    def difference(self, entry: Open) -> Difference:
        """Return what differs between the tree and a broker's answer."""
        identity, broker_id = entry
        sight = self.sights[entry]
        return difference(*identity, {ZOOKEEPER: copy_of(sight.held), broker_place(broker_id): copy_of(sight.served)})

    def _held(self, wanted: set[Identity]) -> dict[Identity, str | None]:
        """Return the value of each entity in the tree; those of topics that are being deleted are left out.

        Raises
        ------
        MetadataError
            ZooKeeper does not answer, or a znode cannot be read or decoded.
        """
        self.reader.synchronize()
        deleting = self._deleting()
        looked_at = {identity for identity in wanted if topic_of(identity) not in deleting}
        topics = {(EntityKind.TOPIC, topic_of(identity)) for identity in looked_at if topic_of(identity)}
        reading = TreeReading(self.reader, self.secrets)
        tree = by_identity(reading.entities(sorted(looked_at | topics)))
        if trouble := [*reading.problems.values(), *reading.unread.values()]:
            raise MetadataError(trouble[0])
        return {identity: _in_tree(tree, identity) for identity in looked_at}

    def _deleting(self) -> frozenset[str]:
        (result,) = next(self.reader.read([Read(Operation.CHILDREN, DELETIONS_PATH)])).answers
        return frozenset(result) if isinstance(result, list) else frozenset()

    def _ask(self, broker: BrokerAccess, wanted: Sequence[Identity], held: Mapping[Identity, str | None]) -> list[Open]:
        """Compare a broker's answers with the tree, and return what still differs; all if it does not answer."""
        try:
            with served_broker(broker, self.client_config_path, _REQUEST_SECONDS) as asked:
                answers = by_identity(_answers(asked, wanted))
                left = []
                for identity in wanted:
                    served = value_of(answers.get(identity))
                    entry = (identity, broker.id)
                    shown = _comparable(asked, identity, held[identity], served)
                    if self._note(entry, shown, served):
                        left.append(entry)
        except BrokerUnavailableError as error:  # the broker may be restarting
            self.failures[broker.id] = str(error)
            for identity in wanted:
                self.sights.pop((identity, broker.id), None)
            return [(identity, broker.id) for identity in wanted]
        self.failures.pop(broker.id, None)
        return left

    def _note(self, entry: Open, held: str | None, served: str | None) -> bool:
        """Record an answer; return whether it differs."""
        former = self.sights.pop(entry, None)
        if held == served:
            return False
        since = time.monotonic()
        if former is not None and (former.held, former.served) == (held, served):
            since = former.since
        self.sights[entry] = _Sight(since, held, served)
        return True


def _in_tree(tree: Mapping[Identity, Entity], identity: Identity) -> str | None:
    """Return an entity's value as brokers serve it; None for the configs of a topic that does not exist."""
    entity = tree.get(identity)
    if entity is None or identity[0] is EntityKind.BROKER_CONFIG:
        return value_of(entity)
    if identity[0] is EntityKind.TOPIC_CONFIG and (EntityKind.TOPIC, identity[1]) not in tree:
        return None
    return value_of(as_served(entity))


def _comparable(asked: ServedBroker, identity: Identity, held: str | None, served: str | None) -> str | None:
    """Return the tree's value as far as this broker tells it."""
    kind, _ = identity
    if kind is EntityKind.BROKER_CONFIG:
        held = without_passwords(held)
    if kind in _CONFIGS:
        return as_shown(asked.types, held, served)
    if kind is EntityKind.TOPIC and served == _NO_TOPIC_ID and held is not None and not asked.tells_topic_ids:
        return served
    return held


def _answers(asked: ServedBroker, wanted: Sequence[Identity]) -> Iterable[Entity]:
    names = {topic_of(identity) for identity in wanted} - {""}
    kinds = {kind for kind, _ in wanted}
    if names:
        yield from asked.topics(sorted(names))
    if EntityKind.BROKER_CONFIG in kinds:
        yield from asked.own_configs()
    if EntityKind.ACL in kinds:
        yield from asked.acls() or ()
