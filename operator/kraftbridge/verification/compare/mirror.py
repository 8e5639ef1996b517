"""Compares ZooKeeper with the log that it mirrors, and settles entities that are in flight.

The migration driver writes the changes of some records to ZooKeeper.
It then moves `/migration` to the last of these records (``KRaftMigrationDriver.MetadataChangeEvent``).
ZooKeeper, read at log offset O (`/migration`, in the same multiRead), therefore contains the log's image at O,
except for entities that a later record changed and that the driver is writing.
An entity is

- settled if it equals the image at O.
  An entity that changes all the time is settled when it is read between two writes;
- different if it does not equal the image, and no record between O and a later O' changed it:
  the driver has finished its write by then;
- read again otherwise.
  If the mirror does not move, the end of the log decides: without a record after O there is nothing to wait for.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from kraftbridge.exceptions import MetadataError
from kraftbridge.metadata.copying import NOT_COPIED
from kraftbridge.metadata.entities import Entity, Form, Secrets, by_identity, read_encoder_secret, value_of
from kraftbridge.metadata.log.entities import log_entities
from kraftbridge.metadata.log.files import open_log_files
from kraftbridge.metadata.log.image import MetadataImage
from kraftbridge.metadata.log.replay import LogReplay
from kraftbridge.metadata.zookeeper.reader import Operation, Read, ZooKeeperReader
from kraftbridge.metadata.zookeeper.soundness import DELETIONS_PATH
from kraftbridge.metadata.zookeeper.tree import TreeReading
from kraftbridge.metadata.zookeeper.znodes import MIGRATION_PATH
from kraftbridge.models.catalogue import Code
from kraftbridge.models.entities import ENTITY_KINDS, EntityKind, Mirror, topic_of_partition_key
from kraftbridge.models.phase import Phase
from kraftbridge.models.report import PARTITION_STATE, Difference, Finding, ZooKeeperAccess
from kraftbridge.verification.compare.places import (
    MAXIMUM_FLAGGED,
    MAXIMUM_IN_FLIGHT,
    Comparison,
    Flagged,
    compare,
    copy_of,
    with_values,
)
from kraftbridge.verification.run import Run, difference, difference_of_flagged
from kraftbridge.verification.sources.rows import LOG, LOG_AT_FENCE, ZOOKEEPER, Leg, LogVoter

Identity = tuple[EntityKind, str]
_PAUSE_SECONDS: Final = 0.4
_STANDING_SECONDS: Final = 15.0
"""After this time without movement of `/migration`, the end of the log decides."""
_BROKER_SETTLE_SECONDS: Final = 25.0
"""`/migration` gives no order for the znodes of brokers. By default a session ends 18 s after its broker."""


@dataclass(frozen=True, slots=True)
class Pair:
    """An entity in ZooKeeper and in the log at one offset."""

    zookeeper: Entity | None
    log: Entity | None
    zookeeper_offset: int
    log_offset: int
    """Offset of the last record that changed the entity."""

    @property
    def equal(self) -> bool:
        """Whether both contain the same value, or both contain nothing."""
        return value_of(self.zookeeper) == value_of(self.log)


_UNREAD: Final = Pair(None, None, -1, -1)
_UNKNOWN: Final = Pair(None, None, -2, -2)
"""In place of a former reading; its offset is before that of every record."""


@dataclass(slots=True)
class Rechecked:
    """The result of reading entities again."""

    differing: dict[Identity, Pair] = field(default_factory=dict)
    """Entities that differ although nothing is in flight."""
    unresolved: dict[Identity, Pair] = field(default_factory=dict)
    """Entities that were in flight at every reading."""
    rounds: int = 0
    last_fence: int = -1
    """Log offset that ZooKeeper mirrored at the last reading."""
    problems: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Recheck:
    """Reads entities again until each is settled."""

    reader: ZooKeeperReader
    replay: LogReplay
    """Replay of the log that ZooKeeper mirrors. Its snapshot is not newer than the first fence."""
    secrets: Secrets
    encoder_secret: str | None
    _outcome: Rechecked = field(default_factory=Rechecked)
    _former_end: int = 2**63 - 1
    """Log offset that ZooKeeper mirrored at the end of the former reading; above every offset without one."""
    _alternatives: dict[Identity, str] = field(default_factory=dict)

    def settle(self, identities: Iterable[Identity], *, tries: int, seconds: float) -> Rechecked:
        """Read entities again until each is settled or different, at most `tries` times and for `seconds`.

        The method waits as long as the mirror moves.
        A broker that returns changes thousands of partitions, with one write to ZooKeeper for each.
        Broker registrations have no fence.
        They come last, and their time limit is that of a session.
        """
        outcome = self._outcome
        wanted = list(identities)
        pending = [identity for identity in wanted if ENTITY_KINDS[identity[0]].settled_by_fence]
        brokers = [identity for identity in wanted if not ENTITY_KINDS[identity[0]].settled_by_fence]
        moved_at = time.monotonic()
        deadline = moved_at + seconds
        self.reader.synchronize()
        while pending:
            former = outcome.last_fence
            pending = self._read_once(pending)
            now = time.monotonic()
            if outcome.last_fence != former:
                moved_at = now
            is_late = now >= deadline or now - moved_at > _STANDING_SECONDS
            if not pending or outcome.rounds >= tries or is_late:
                break
            time.sleep(_PAUSE_SECONDS)
        if pending:
            self._judge_by_end()
        self._settle_brokers(brokers)
        return outcome

    def _read_once(self, identities: list[Identity]) -> list[Identity]:
        """Return the entities that are still in flight."""
        outcome = self._outcome
        former = self._outcome.unresolved
        reading = TreeReading(self.reader, self.secrets, self.encoder_secret)
        held = by_identity(reading.entities(identities))
        fence = reading.fence
        outcome.rounds += 1
        outcome.problems |= reading.problems | reading.unread
        self._alternatives = reading.alternatives
        outcome.unresolved = {}
        if fence.first is None or fence.last is None or not self._reaches(fence.first):
            outcome.unresolved = {identity: former.get(identity, _UNREAD) for identity in identities}
            return identities
        outcome.last_fence = fence.first
        finished = self._former_end < fence.first
        for identity, pair in self._pairs(identities, held, fence.first).items():
            if pair.equal:
                continue
            former_offset = former.get(identity, _UNKNOWN).zookeeper_offset
            if finished and pair.log_offset <= former_offset:
                outcome.differing[identity] = pair
            else:
                outcome.unresolved[identity] = pair
        if fence.last > fence.first and self._reaches(fence.last):
            again = self._pairs(list(outcome.unresolved), held, fence.first)
            outcome.unresolved = {identity: pair for identity, pair in again.items() if not pair.equal}
        self._former_end = fence.last
        return list(outcome.unresolved)

    def _reaches(self, offset: int) -> bool:
        """Replay up to an offset; return whether the image is exactly at this offset."""
        if self.replay.image.offset > offset:
            return False
        self.replay.advance(offset)
        return self.replay.end_offset > offset and not self.replay.image.open_transaction

    def _pairs(
        self, identities: Sequence[Identity], held: Mapping[Identity, Entity], fence: int
    ) -> dict[Identity, Pair]:
        image = self.replay.image
        in_log = logged(image, set(identities), self.secrets)
        producer_ids_copied = (image.producer_ids or {}).get("brokerId") == -1
        pairs = {}
        for identity in identities:
            log = in_log.get(identity)
            entity = held.get(identity)
            if entity and log and producer_ids_copied and log.value == self._alternatives.get(identity):
                entity = entity._replace(value=log.value)
            pairs[identity] = Pair(entity, log, fence, self._touched(identity, log))
        return pairs

    def _touched(self, identity: Identity, log: Entity | None) -> int:
        """Return the offset of the last record that changed an entity."""
        if log is not None:
            return log.offset
        return self.replay.image.removed.get(identity, self.replay.snapshot_offset)

    def _judge_by_end(self) -> None:
        """Report entities that differ without a record after the mirrored offset, however long it stood."""
        outcome = self._outcome
        image = self.replay.advance()
        if image.open_transaction:
            return
        in_log = logged(image, set(outcome.unresolved), self.secrets)
        for identity, pair in list(outcome.unresolved.items()):
            touched = self._touched(identity, in_log.get(identity))
            if pair is not _UNREAD and touched <= pair.zookeeper_offset:
                outcome.differing[identity] = outcome.unresolved.pop(identity)

    def _settle_brokers(self, identities: Sequence[Identity]) -> None:
        """Compare broker registrations with the end of the log, because brokers write their znodes themselves."""
        outcome = self._outcome
        pending = list(identities)
        began = time.monotonic()
        while pending:
            reading = TreeReading(self.reader, self.secrets, self.encoder_secret)
            held = by_identity(reading.entities(pending))
            outcome.rounds += 1
            outcome.problems |= reading.problems | reading.unread
            image = self.replay.advance()
            pairs = self._pairs(pending, held, reading.fence.offset)
            pending = [identity for identity, pair in pairs.items() if not _is_settled(identity, pair, image)]
            if not pending or time.monotonic() - began >= _BROKER_SETTLE_SECONDS:
                outcome.differing |= {identity: pairs[identity] for identity in pending}
                return
            time.sleep(_PAUSE_SECONDS)


def logged(
    image: MetadataImage, wanted: AbstractSet[Identity], secrets: Secrets, form: Form = Form.MIRRORED
) -> dict[Identity, Entity]:
    """Return some entities of an image without creating the others."""
    return by_identity(log_entities(image, form, secrets, wanted))


def _is_settled(identity: Identity, pair: Pair, image: MetadataImage) -> bool:
    """Return whether an entity is equal, or is a broker that is down and therefore has no znode."""
    kind, key = identity
    if pair.equal:
        return True
    if kind is not EntityKind.BROKER_REGISTRATION or pair.zookeeper is not None or pair.log is None:
        return False
    broker = image.brokers[int(key)]
    return bool(broker.get("fenced") or broker.get("inControlledShutdown"))


_MAXIMUM_CONFIRMED: Final = 2_000
"""Number of differences that are read once more before they are reported. The others are reported at once."""
_STALL_SECONDS: Final = 4.0
"""A live mirror moves `/migration` every 500 ms (`metadata.max.idle.interval.ms`)."""


def check_fence(run: Run) -> None:
    """Check that ZooKeeper mirrors this log."""
    note = run.outcome.leader_note
    first = run.fence.first_offset
    last = run.fence.last_offset
    assert first is not None and last is not None  # noqa: PT018 - checked in `_read_logs`
    if note["endOffset"] <= last:
        raise MetadataError(f"ZooKeeper mirrors offset {last}, the leader's log ends before it at {note['endOffset']}")
    cluster = run.outcome.cluster_id
    log_cluster = note.get("cluster")
    if cluster not in {None, log_cluster}:
        raise MetadataError(f"ZooKeeper is that of cluster {cluster}, the leader's log that of cluster {log_cluster}")
    epoch = note.get("epochAtFence")
    if epoch is not None and run.fence.epoch is not None and epoch > run.fence.epoch:
        raise MetadataError(
            f"/migration says epoch {run.fence.epoch} for offset {first}, the log has epoch {epoch}: another log"
        )
    behind = [state for state in run.inputs.states if state.end_offset is not None and state.end_offset <= first]
    if behind:
        names = ", ".join(f"{state.name} (ends at {state.end_offset})" for state in behind)
        raise MetadataError(f"voters have not reached offset {first}, which ZooKeeper mirrors: {names}")


def compare_mirror(run: Run, rows: DataFrame) -> None:
    """Compare ZooKeeper with the log, and settle the differences."""
    assert run.fence.first_offset is not None  # as in `check_fence`
    fence = (LOG, run.fence.first_offset)
    if run.inputs.live:
        comparison = compare(rows, Leg.MIRROR, [ZOOKEEPER, LOG], few=run.few, values=False, fence=fence)
    else:
        comparison = compare(rows, Leg.MIRROR, [ZOOKEEPER, LOG_AT_FENCE], beside=[LOG], few=run.few, fence=fence)
    log_place = comparison.places[1]
    run.count(comparison, {ZOOKEEPER: "zookeeper", log_place: "log"})
    run.outcome.problems += _nothing_in(comparison.empty_places)
    if run.outcome.problems:
        return
    flagged = [entity for entity in comparison.flagged if not is_unreadable(run, entity)]
    flagged = _without_alternatives(run, rows, flagged)
    _note_unmirrored_configs(run)
    _note_reassignments(run)
    _note_forgettable_credentials(run)
    _note_beyond(run, comparison)
    if comparison.in_flight_count > MAXIMUM_IN_FLIGHT:
        run.outcome.problems.append(
            f"{comparison.in_flight_count} entities are in flight, too many to be read again: verify when fewer change"
        )
    if run.inputs.live:
        _settle_live(run, flagged, rows)
    else:
        _settle_offline(run, flagged)


def _nothing_in(places: Iterable[str]) -> list[str]:
    return [f"{place} holds no metadata at all: there is nothing to compare" for place in places]


def _note_beyond(run: Run, comparison: Comparison) -> None:
    if comparison.beyond:
        run.outcome.add_uncounted(comparison.beyond, f"more than {MAXIMUM_FLAGGED} entities differ")


def is_unreadable(run: Run, flagged: Flagged) -> bool:
    """Return whether an entity is unknown, not different: its znode could not be read or decoded."""
    unreadable = run.outcome.unreadable
    below_unread = tuple(f"{unread}/" for unread in run.outcome.unread)
    if not unreadable and not below_unread:
        return False
    paths = ENTITY_KINDS[flagged.kind].paths(flagged.key)
    return any(path in unreadable or f"{path}/".startswith(below_unread) for path in paths)


def _without_alternatives(run: Run, rows: DataFrame, flagged: list[Flagged]) -> list[Flagged]:
    """Return the entities that differ from the log in their other correct form too."""
    if not run.outcome.leader_note["producerIdsCopied"]:
        return flagged
    log = LOG_AT_FENCE
    alternatives = run.outcome.alternatives
    candidates = [entity for entity in flagged if entity.identity in alternatives]
    if not candidates:
        return flagged
    if run.inputs.live:
        log = LOG
        candidates = with_values(rows, Leg.MIRROR, candidates)
    single = [entity for entity in candidates if not entity.has_duplicate]
    right = {entity.identity for entity in single if entity.copies[log].value == alternatives[entity.identity]}
    return [entity for entity in flagged if entity.identity not in right]


def _note_unmirrored_configs(run: Run) -> None:
    for kind, name, configs in run.outcome.leader_note["unmirroredConfigs"]:
        entity_type = "groups" if kind == "group" else kind
        run.outcome.add_finding(
            Finding.of(
                Code.CONFIG_STOPS_FAILOVER, f"{kind}/{name}", type=entity_type, name=name, names=",".join(configs)
            )
        )


def _note_reassignments(run: Run) -> None:
    """Before a rollback, report reassignments, which ZooKeeper's controller would continue."""
    moving = run.outcome.leader_note["reassigning"]
    if moving and run.request.phase == Phase.ROLLING_BACK:
        what = f"{len(moving)} partition(s), {', '.join(moving[:3])}"
        run.outcome.add_finding(Finding.of(Code.REASSIGNMENT_RUNNING, moving[0], what=what))


def _note_forgettable_credentials(run: Run) -> None:
    """Before brokers or controllers restart on KRaft, report SCRAM credentials that a starting node may forget."""
    if run.request.phase == Phase.ROLLING_BROKERS:
        by_brokers = run.outcome.leader_note["forgettableByBrokers"]
        if by_brokers is None:
            run.outcome.add_finding(Finding.of(Code.SCRAM_REMOVALS_UNKNOWN, "metadata log"))
        for mechanism, users in sorted((by_brokers or {}).items()):
            finding = Finding.of(
                Code.SCRAM_CREDENTIALS_FORGETTABLE_BY_BROKERS,
                mechanism,
                mechanism=mechanism,
                config=f"{mechanism}=[password=PASSWORD]",
                count=len(users),
                users=_first_names(users),
            )
            run.outcome.add_finding(finding)
    if run.request.phase == Phase.FINALIZING:
        by_voters: dict[str, set[str]] = {}
        for note in run.outcome.voter_notes:
            for mechanism, users in note.get("forgettable", {}).items():  # a voter that could not be read is a problem
                by_voters.setdefault(mechanism, set()).update(users)
        for mechanism, names in sorted(by_voters.items()):
            finding = Finding.of(
                Code.SCRAM_CREDENTIALS_FORGETTABLE,
                mechanism,
                mechanism=mechanism,
                count=len(names),
                users=_first_names(sorted(names)),
            )
            run.outcome.add_finding(finding)


def _first_names(users: Sequence[str]) -> str:
    return ", ".join(users[:3])


def _settle_offline(run: Run, flagged: Sequence[Flagged]) -> None:
    """Mark differences between copies as settled, because copies cannot be read again."""
    for entity in flagged:
        zookeeper = entity.copies[ZOOKEEPER]
        log = entity.copies[LOG]
        if entity.in_flight:
            if (zookeeper.count, zookeeper.value) != (log.count, log.value):
                run.outcome.unresolved.append(f"{entity.kind} {entity.key}")
        elif not _is_of_absent_broker(run, entity):
            run.outcome.add_difference(difference_of_flagged(_renamed(entity, LOG_AT_FENCE, LOG), [ZOOKEEPER, LOG]))


def _settle_live(run: Run, flagged: Sequence[Flagged], rows: DataFrame) -> None:
    duplicates = [entity for entity in flagged if entity.has_duplicate]
    candidates = [entity for entity in flagged if not entity.has_duplicate]
    settled = [entity for entity in candidates if not entity.in_flight]
    believed = settled[_MAXIMUM_CONFIRMED:]
    for entity in with_values(rows, Leg.MIRROR, [*duplicates, *believed]):
        run.outcome.add_difference(difference_of_flagged(entity, [ZOOKEEPER, LOG]))
    reported = {entity.identity for entity in believed}
    identities = [entity.identity for entity in candidates if entity.identity not in reported]
    with run.stage("settle in-flight"):
        outcome = _reread(run, identities)
    for (kind, key), pair in outcome.differing.items():
        run.outcome.add_difference(difference_of_pair(kind, key, pair))
    run.outcome.unresolved += [f"{kind} {key}" for kind, key in outcome.unresolved]
    run.outcome.unreadable |= outcome.problems
    run.fence = run.fence.model_copy(
        update={
            "rereads": outcome.rounds,
            "reread_keys": len(identities),
            "unresolved": len(outcome.unresolved),
            "last_offset": max(run.fence.last_offset or -1, outcome.last_fence),
        }
    )


@dataclass(frozen=True, slots=True)
class _Rereading:
    """The inputs of the task that reads entities again."""

    access: ZooKeeperAccess
    log: LogVoter
    token_path: str | None
    ca_path: str | None
    encoder_secret_path: str | None
    salt: bytes
    first_fence: int
    tries: int
    seconds: float
    identities: Sequence[Identity]

    def run(self) -> Rechecked:
        """Read again until every entity is settled or different."""
        secret = read_encoder_secret(self.encoder_secret_path)
        secrets = Secrets(self.salt, compare_passwords=secret is not None)
        files = open_log_files(self.log.url, self.token_path, self.ca_path)
        with ZooKeeperReader(self.access) as reader:
            recheck = Recheck(reader, LogReplay(files, start_at_most=self.first_fence), secrets, secret)
            return recheck.settle(self.identities, tries=self.tries, seconds=self.seconds)


def _reread(run: Run, identities: Sequence[Identity]) -> Rechecked:
    access = run.inputs.zookeeper
    first = run.fence.first_offset
    assert isinstance(access, ZooKeeperAccess)
    assert first is not None
    outcome = Rechecked()
    if identities:
        rereading = _Rereading(
            access=access,
            log=next(voter for voter in run.inputs.voters if voter.mirrored),
            token_path=run.inputs.token_path,
            ca_path=run.inputs.ca_path,
            encoder_secret_path=run.inputs.encoder_secret_path,
            salt=run.salt,
            first_fence=first,
            tries=run.request.fence_tries,
            seconds=run.request.fence_seconds,
            identities=identities,
        )
        outcome = run.in_task(_Rereading.run, rereading)
    with ZooKeeperReader(access) as reader:
        _await_movement(run, reader, max(outcome.last_fence, run.fence.last_offset or -1))
    return outcome


def _await_movement(run: Run, reader: ZooKeeperReader, last: int) -> None:
    """Add a problem unless ZooKeeper mirrors the whole log or `/migration` moves."""
    first = run.fence.first_offset
    assert first is not None  # as in `check_fence`
    end = run.outcome.leader_note["endOffset"]
    began = time.monotonic()
    while True:
        (fenced,) = reader.read([Read(Operation.DATA, MIGRATION_PATH)])
        if fenced.offset >= end - 1 or max(last, fenced.offset) > first:
            return
        waited = time.monotonic() - began
        if waited > _STALL_SECONDS:
            run.outcome.problems.append(
                f"dual-write stands still: /migration has stayed at offset {fenced.offset} while the log "
                f"reached {end}; the controller may be stuck in a sync (restart the active controller)"
            )
            return
        time.sleep(0.25)


def _is_of_absent_broker(run: Run, flagged: Flagged) -> bool:
    """Return whether the only difference is a broker that is down and therefore has no znode."""
    if ENTITY_KINDS[flagged.kind].mirror is not Mirror.BROKERS or flagged.copies[ZOOKEEPER].count:
        return False
    broker = run.outcome.leader_note["brokers"].get(flagged.key)
    return broker is not None and (broker["fenced"] or broker["leaving"])


def _renamed(flagged: Flagged, place: str, name: str) -> Flagged:
    copies = {**flagged.copies, name: flagged.copies[place]}
    return Flagged(flagged.kind, flagged.key, copies)


def difference_of_pair(kind: EntityKind, key: str, pair: Pair) -> Difference:
    """Return the difference of an entity that was read again."""
    return difference(
        kind,
        key,
        {ZOOKEEPER: copy_of(value_of(pair.zookeeper)), LOG: copy_of(value_of(pair.log))},
        log_offset=pair.log_offset,
        zookeeper_offset=pair.zookeeper_offset,
    )


BEFORE_CLAIM: Final = (
    "the tree was read {age}, before a KRaft controller claimed /controller, "
    "so what differs may have changed in between: "
    "{created} only in the log, {others} that differ otherwise; "
    "compare each difference by hand, or roll back and take over again with `watch` running"
)
AFTER_SYNC: Final = (
    "the tree was read when /migration already named offset {offset}: the sync may have deleted what the log lacks; "
    "compare with a tree that was read before the takeover"
)


def compare_copy(run: Run, rows: DataFrame) -> None:
    """Compare the tree with the log; list changes after the claim and deletions under way separately."""
    copied = rows.where(~F.col("kind").isin([str(kind) for kind in NOT_COPIED]))
    comparison = compare(copied, Leg.MIRROR, [ZOOKEEPER, LOG], few=run.few)
    run.count(comparison, {ZOOKEEPER: "zookeeper", LOG: "log"})
    claim = run.outcome.claim
    empty = comparison.empty_places
    run.outcome.nothing_to_compare = empty == list(comparison.places) and claim.get("whole", False)
    if not run.outcome.nothing_to_compare:
        run.outcome.problems += _nothing_in(empty)
    if claim.get("mirrored", -1) > 0:
        run.outcome.problems.append(AFTER_SYNC.format(offset=claim["mirrored"]))
    _note_beyond(run, comparison)
    flagged = [entity for entity in comparison.flagged if not is_unreadable(run, entity)]
    flagged = _without_deletions(run, flagged, claim.get("deleting", ()))
    flagged = [entity for entity in flagged if not is_newborn(entity)]
    if claim.get("zxid") is None:
        run.outcome.problems += _changed_before_claim(run, flagged)
        return
    changed = set(claim["changed"])
    for path in sorted(changed):
        run.outcome.add_finding(Finding.of(Code.CHANGED_AFTER_CLAIM, path))
    for entity in flagged:
        run.outcome.add_difference(difference_of_flagged(entity, [ZOOKEEPER, LOG]))


def is_newborn(entity: Flagged) -> bool:
    """Return whether a partition was made as ZooKeeper's controller lost its place: it has replicas and no state yet.

    Kafka's copy then writes the state of a new partition: every replica in the ISR, epoch 0
    (``ZkTopicMigrationClient``, "Initializing this partition"). Nothing can have been written to it.
    One of a topic that has lost its state earlier is a finding of the comparison before the last broker restarts.
    """
    if entity.kind is not EntityKind.PARTITION:
        return False
    values = [entity.copies[place].value for place in (ZOOKEEPER, LOG)]
    if None in values:
        return False
    tree, log = (json.loads(value or "{}") for value in values)
    if any(tree.get(name) is not None for name in PARTITION_STATE) or not tree.get("replicas"):
        return False
    made = tree | {"isr": sorted(tree["replicas"]), "leaderEpoch": 0, "leaderRecoveryState": 0, "leader": log["leader"]}
    return bool(log == made and log["leader"] in log["replicas"])


def _changed_before_claim(run: Run, flagged: Sequence[Flagged]) -> list[str]:
    """Return how old the tree is, and each entity that differs: what only the log holds was made since."""
    if not flagged:
        return []
    created = [entity for entity in flagged if not entity.copies[ZOOKEEPER].count]
    others = [entity for entity in flagged if entity.copies[ZOOKEEPER].count]
    summary = BEFORE_CLAIM.format(age=_age(run), created=len(created), others=len(others))
    only_in_log = [f"{entity.kind} {entity.key}: only in the log, made after the tree was read" for entity in created]
    changed = [f"{entity.kind} {entity.key}: changed after the tree was read, or by the copy" for entity in others]
    return [summary, *only_in_log, *changed]


def _age(run: Run) -> str:
    """Return how long before the copy the tree was written: by the file's date, and by Kafka's clock in the log."""
    began_ms = run.outcome.leader_note.get("copyBeganMs", -1)
    seconds = (began_ms - run.outcome.claim["writtenMs"]) / 1000
    if began_ms < 0 or seconds < 0:
        return "at an unknown time (its file is younger than Kafka's copy, or the log no longer tells when that began)"
    return f"{seconds:.0f} s before Kafka's copy began"


def _without_deletions(run: Run, flagged: Sequence[Flagged], topics: Iterable[str]) -> list[Flagged]:
    """Return the entities that differ, except for deletions of their topic, which are findings of their own."""
    deleting = set(topics)
    gone = Counter[str]()
    left = []
    for entity in flagged:
        topic = topic_of(entity.identity)
        if topic in deleting and not entity.copies[LOG].count:
            gone[topic] += 1
        else:
            left.append(entity)
    for topic, count in sorted(gone.items()):
        run.outcome.add_finding(Finding.of(Code.DELETION_UNDER_WAY, f"{DELETIONS_PATH}/{topic}", count=count))
    return left


def topic_of(identity: Identity) -> str:
    """Return the topic that an entity belongs to; the empty string if it belongs to none."""
    kind, key = identity
    if kind is EntityKind.PARTITION:
        return topic_of_partition_key(key)
    if kind in {EntityKind.TOPIC, EntityKind.TOPIC_CONFIG}:
        return key
    return ""
