"""Reads in-flight entities again, from ZooKeeper and from the log, until each is settled.

The migration driver writes what some records changed, and moves `/migration` to the last of them when all of it is written
(`KRaftMigrationDriver.MetadataChangeEvent`). So ZooKeeper, read at log offset O (`/migration`, in the same multiRead), holds
the log's image at O, except for entities that a later record touched and that are being written just then. An entity is

- settled where it equals the image at O: one that changes all the time is, too, as soon as it is met between two writes;
- different where it does not, and no record touched it between O and a later O': what was being written is finished then;
- else read again. What a mirror that stands still leaves is judged by the log's end: no record after O, so nothing to wait for.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from kraftbridge.metadata.entities import Entity, Form, Secrets
from kraftbridge.metadata.log.entities import log_entities
from kraftbridge.metadata.log.image import MetadataImage
from kraftbridge.metadata.log.replay import LogReplay
from kraftbridge.metadata.zookeeper.plan import FenceRange, TreeReading
from kraftbridge.metadata.zookeeper.reader import ZooKeeperReader
from kraftbridge.models.report import EntityKind

Identity = tuple[EntityKind, str]
_PAUSE_SECONDS: Final = 0.4
_STANDING_SECONDS: Final = 15.0
"""A mirror that has not moved for so long settles nothing: the log's end judges then."""
_BROKER_SETTLE_SECONDS: Final = 25.0
"""Brokers register themselves in ZooKeeper: no fence orders that. A session ends 18 s after its broker by default."""


@dataclass(frozen=True, slots=True)
class Pair:
    """An entity as both sides hold it at one offset."""

    zookeeper: Entity | None
    log: Entity | None
    zookeeper_offset: int
    log_offset: int
    """Offset of the last record that touched it."""

    @property
    def equal(self) -> bool:
        """Whether both hold the same, or neither holds anything."""
        left = self.zookeeper.value if self.zookeeper else None
        right = self.log.value if self.log else None
        return left == right


_UNREAD: Final = Pair(None, None, -1, -1)


@dataclass(slots=True)
class Rechecked:
    """Outcome of reading again.

    Attributes
    ----------
    differing
        Entities that differ although nothing is in flight.
    unresolved
        Entities that were in flight at every try.
    last_fence
        Log offset that ZooKeeper mirrored at the last try.
    """

    differing: dict[Identity, Pair] = field(default_factory=dict)
    unresolved: dict[Identity, Pair] = field(default_factory=dict)
    rounds: int = 0
    last_fence: int = -1
    problems: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Recheck:
    """Entities that are read again, with what their reading needs.

    Parameters
    ----------
    replay
        The log that ZooKeeper mirrors, from a snapshot that is not newer than the first fence.
    """

    reader: ZooKeeperReader
    replay: LogReplay
    secrets: Secrets
    encoder_secret: str | None
    _outcome: Rechecked = field(default_factory=Rechecked)
    _before: FenceRange | None = None

    def settle(self, identities: Iterable[Identity], *, tries: int, seconds: float) -> Rechecked:
        """Read entities again until each is settled or different, at most `tries` times and for `seconds`.

        A mirror that moves is waited for: a broker that comes back changes thousands of partitions, one write to ZooKeeper each.
        Broker registrations, which no fence orders, come last and get as much time as a session needs to end.
        """
        outcome = self._outcome
        pending = list(identities)
        brokers = [identity for identity in pending if identity[0] is EntityKind.BROKER_REGISTRATION]
        pending = [identity for identity in pending if identity[0] is not EntityKind.BROKER_REGISTRATION]
        began = moved_at = time.monotonic()
        self.reader.synchronize()
        while pending:
            former = outcome.last_fence
            pending = self._read_once(pending)
            now = time.monotonic()
            moved_at = now if outcome.last_fence != former else moved_at
            if not pending or now - began >= seconds or outcome.rounds >= tries or now - moved_at > _STANDING_SECONDS:
                break
            time.sleep(_PAUSE_SECONDS)
        if pending:
            self._judge_by_end()
        self._settle_brokers(brokers)
        return outcome

    def _read_once(self, identities: list[Identity]) -> list[Identity]:
        """Return what is still in flight."""
        outcome, former, before = self._outcome, self._outcome.unresolved, self._before
        reading = TreeReading(self.reader, self.secrets, self.encoder_secret)
        held = {(entity.kind, entity.key): entity for entity in reading.entities(identities)}
        fence = reading.fence
        outcome.rounds += 1
        outcome.problems |= reading.problems
        outcome.unresolved = {}
        if fence.first is None or fence.last is None or not self._reaches(fence.first):
            outcome.unresolved = {identity: former.get(identity, _UNREAD) for identity in identities}
            return identities
        outcome.last_fence = fence.first
        finished = before is not None and before.last is not None and before.last < fence.first
        for identity, pair in self._pairs(identities, held, fence.first).items():
            if pair.equal:
                continue
            late = finished and identity in former and pair.log_offset <= former[identity].zookeeper_offset
            if late:
                outcome.differing[identity] = pair
            else:
                outcome.unresolved[identity] = pair
        if fence.last > fence.first and self._reaches(fence.last):
            again = self._pairs(list(outcome.unresolved), held, fence.first)
            outcome.unresolved = {identity: pair for identity, pair in again.items() if not pair.equal}
        self._before = fence
        return list(outcome.unresolved)

    def _reaches(self, offset: int) -> bool:
        """Replay up to an offset; return whether the image is that of this very offset."""
        if self.replay.image.offset > offset:
            return False
        self.replay.advance(offset)
        return self.replay.end_offset > offset and not self.replay.image.open_transaction

    def _pairs(
        self, identities: Sequence[Identity], held: Mapping[Identity, Entity], fence: int
    ) -> dict[Identity, Pair]:
        image = self.replay.image
        found = logged(image, set(identities), self.secrets)
        pairs = {}
        for identity in identities:
            log = found.get(identity)
            touched = log.offset if log else image.removed.get(identity, self.replay.snapshot_offset)
            pairs[identity] = Pair(held.get(identity), log, fence, touched)
        return pairs

    def _judge_by_end(self) -> None:
        """Call different what differs although the log has no newer record of it, however long ZooKeeper stood still."""
        outcome = self._outcome
        image = self.replay.advance()
        if image.open_transaction:
            return
        found = logged(image, set(outcome.unresolved), self.secrets)
        for identity, pair in list(outcome.unresolved.items()):
            log = found.get(identity)
            touched = log.offset if log else image.removed.get(identity, self.replay.snapshot_offset)
            if pair is not _UNREAD and touched <= pair.zookeeper_offset:
                outcome.differing[identity] = outcome.unresolved.pop(identity)

    def _settle_brokers(self, identities: Sequence[Identity]) -> None:
        """Compare with the log's end: brokers write their znodes themselves, whatever ZooKeeper mirrors of the log."""
        outcome = self._outcome
        pending = list(identities)
        began = time.monotonic()
        while pending:
            reading = TreeReading(self.reader, self.secrets, self.encoder_secret)
            held = {(entity.kind, entity.key): entity for entity in reading.entities(pending)}
            outcome.rounds += 1
            outcome.problems |= reading.problems
            image = self.replay.advance()
            pairs = self._pairs(pending, held, -1 if reading.fence.first is None else reading.fence.first)
            pending = [each for each in pending if not pairs[each].equal and not _explained(each, pairs[each], image)]
            if not pending or time.monotonic() - began >= _BROKER_SETTLE_SECONDS:
                outcome.differing |= {identity: pairs[identity] for identity in pending}
                return
            time.sleep(_PAUSE_SECONDS)


def logged(
    image: MetadataImage, wanted: AbstractSet[Identity], secrets: Secrets, form: Form = Form.MIRRORED
) -> dict[Identity, Entity]:
    """Return what the image says of some entities, without a look at all the others."""
    return {(entity.kind, entity.key): entity for entity in log_entities(image, form, secrets, wanted)}


def _explained(identity: Identity, pair: Pair, image: MetadataImage) -> bool:
    """Return whether a broker that is down, and therefore not in ZooKeeper, is the whole difference."""
    kind, key = identity
    if kind is not EntityKind.BROKER_REGISTRATION or pair.zookeeper is not None or pair.log is None:
        return False
    broker = image.brokers[int(key)]
    return bool(broker.get("fenced") or broker.get("inControlledShutdown"))
