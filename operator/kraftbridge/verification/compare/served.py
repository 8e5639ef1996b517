"""Compares the metadata that brokers serve with the log, and settles the differences.

Brokers' caches follow the log with a delay and no fence.
A broker's answer is settled when it equals the log once.
It is different if it differs for some seconds, no newer record changes the entity,
and the broker has passed the last record.
Each broker receives changes in the log's order (``ControllerChannelManager`` has one queue for each broker;
``KRaftMigrationDriver.MetadataChangeEvent`` fills it after ZooKeeper mirrors a record).
A broker has therefore passed a record when it serves a topic that was created later.
If there is no such topic, and for configs, which brokers receive in another way,
the broker's answers must be unchanged for a while: a broker with a backlog changes its answers.
Only open topics and the newest topics are requested again.

Settings are compared by the types that the brokers state, because brokers do not repeat how a value was written
(`kraftbridge.models.config_values`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from heapq import nlargest
from operator import attrgetter
from typing import Final, Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from kraftbridge.exceptions import MetadataError
from kraftbridge.metadata.entities import (
    Entity,
    Form,
    Secrets,
    by_identity,
    canonical_json,
    uuid_text,
    value_of,
)
from kraftbridge.metadata.log.files import open_log_files
from kraftbridge.metadata.log.image import OFFSET
from kraftbridge.metadata.log.replay import LogReplay
from kraftbridge.metadata.zookeeper.reader import Operation, Read, ZooKeeperReader
from kraftbridge.metadata.zookeeper.znodes import MIGRATION_PATH
from kraftbridge.models.catalogue import Code
from kraftbridge.models.config_values import ConfigType, canonical_values
from kraftbridge.models.entities import ENTITY_KINDS, EntityKind, KindCounts, Served
from kraftbridge.models.report import (
    BrokerAccess,
    CompareServed,
    Difference,
    Finding,
    VerificationRequest,
    ZooKeeperAccess,
)
from kraftbridge.models.secrecy import is_password
from kraftbridge.verification.compare.mirror import Identity, logged, topic_of
from kraftbridge.verification.compare.places import Flagged, compare, copy_of
from kraftbridge.verification.inputs import Inputs
from kraftbridge.verification.run import Outcome, Run, difference, notes_among
from kraftbridge.verification.sources.brokers import (
    CLUSTER_DEFAULT,
    BrokerUnavailableError,
    NotAllowedError,
    served_broker,
)
from kraftbridge.verification.sources.rows import LOG, Leg, Note, ServedPlan, broker_place

_SETTLE_SECONDS: Final = 10.0
"""Time for a broker to apply a record. A difference is reported only after this time without a newer record."""
_STILL_SECONDS: Final = 30.0
"""A broker whose answers are unchanged for this time has no backlog.

Measured: a restarted broker with 2,400 partitions served none of them after 17 s.
"""
_NEWEST_TOPICS: Final = 50
_PAUSE_SECONDS: Final = 1.0
_EVERYTHING: Final = 2**63 - 1
"""Above every offset of a log."""

_CONFIGS: Final = frozenset({EntityKind.TOPIC_CONFIG, EntityKind.BROKER_CONFIG})

Open = tuple[Identity, int]
"""An entity and a broker whose answer differs from the log."""


@dataclass(frozen=True, slots=True)
class Reference:
    """What the brokers' answers are compared with."""

    place: str
    """Place of its rows."""
    name: str
    """What messages call it."""
    registered: Collection[int]
    """Brokers that are registered there, and not fenced: each must be asked."""
    on_kraft: Collection[int]
    """Brokers in KRaft mode."""
    acls: bool
    """Whether it has the ACLs by which brokers authorize."""
    settle: Callable[[Run, list[Open]], int]
    """Reads again what differs, and adds to the run's outcome what stays different; returns how much that is."""


def compare_with_log(run: Run, logs: DataFrame) -> None:
    """Compare what every broker serves with the leader's log, and settle the differences.

    With `CompareServed.IF_ALLOWED`, what stays unknown becomes a warning and does not change the verdict on the stores.
    """
    registered: Mapping[str, Mapping[str, bool]] = run.outcome.leader_note["brokers"]
    reference = Reference(
        place=LOG,
        name="the log",
        registered=[int(identity) for identity, broker in registered.items() if not broker["fenced"]],
        on_kraft=[int(identity) for identity, broker in registered.items() if not broker["migrating"]],
        acls=False,
        settle=_settle,
    )
    outcome = run.outcome
    if run.request.compare_served is CompareServed.ALWAYS:
        outcome.problems += compare_served(run, logs, reference)
        return
    problems = len(outcome.problems)
    unresolved = len(outcome.unresolved)
    unknown: list[str] = []
    try:
        unknown += compare_served(run, logs, reference)
    except MetadataError as error:
        unknown.append(str(error))
    in_flight = outcome.unresolved[unresolved:]
    unknown += outcome.problems[problems:]
    if in_flight:
        unknown.append(f"{len(in_flight)} answer(s) kept changing or stayed behind the log, such as {in_flight[0]}")
    del outcome.problems[problems:], outcome.unresolved[unresolved:]
    for reason in unknown:
        outcome.add_finding(Finding.of(Code.SERVED_NOT_COMPARED, "brokers", reason=reason))


def compare_served(run: Run, references: DataFrame, reference: Reference) -> Sequence[str]:
    """Ask every broker, compare the answers with the rows of a reference, and settle the differences.

    Returns
    -------
    Sequence[str]
        What brokers do not let the principal see, so that it is not compared.

    Raises
    ------
    NotAllowedError
        A broker does not let the principal see its topics or its configs: nothing is compared.
    MetadataError
        The entities that differ could not be read again.
    """
    inputs = run.inputs
    asked = {broker.id for broker in inputs.brokers}
    on_kraft = sorted(asked.intersection(reference.on_kraft))
    plan = ServedPlan(
        salt=run.salt.hex(),
        brokers=list(inputs.brokers),
        on_kraft=on_kraft,
        acls=reference.acls,
        client_config_path=inputs.client_config_path,
    )
    run.outcome.problems += (
        f"broker {identity} is registered, and no listener of it is known to ask it"
        for identity in reference.registered
        if identity not in asked
    )
    with run.stage("ask brokers"):
        served = run.load("broker-served", plan.model_dump_json())
        told = _told(run, served)
    if run.outcome.problems:
        return ()
    types = told.types
    beyond = 0
    pending = []
    with run.stage("compare brokers"):
        for brokers, rows in _compared_rows(references.unionAll(served), told, inputs.brokers, on_kraft):
            places = [reference.place, *(broker_place(broker.id) for broker in brokers)]
            comparison = compare(rows, Leg.SERVED, places, few=run.few, values=False)
            for kind, counts in comparison.counts.items():
                run.outcome.counts[kind] = run.outcome.counts.get(kind, KindCounts()).model_copy(
                    update={"served": min(counts[place] for place in places[1:])}
                )
            beyond += comparison.beyond
            pending += _open(comparison.flagged, brokers)
        pending += _own_differences(inputs.brokers, references, reference.place, served, types)
    with run.stage("settle brokers"):
        established = reference.settle(run, pending) if pending else 0
    if beyond:
        why = f"more entities differ between brokers and {reference.name} than are looked at again"
        if established:
            run.outcome.add_uncounted(beyond, why)
        else:  # a broker that has just restarted knows no topics yet
            run.outcome.problems.append(f"{why}, and those that were are the same by now")
    return tuple(told.hidden.values())


@dataclass(slots=True)
class _Told:
    """What the brokers' rows say of themselves."""

    hidden: dict[str, str] = field(default_factory=dict)
    """Why a broker hides SCRAM credentials or ACLs, by place."""
    enforcing: set[str] = field(default_factory=set)
    """Places with all ACLs by which a broker authorizes."""
    types: dict[str, ConfigType] = field(default_factory=dict)
    """Type of each setting by name."""


def _compared_rows(
    rows: DataFrame, told: _Told, brokers: Sequence[BrokerAccess], on_kraft: Collection[int]
) -> list[tuple[Sequence[BrokerAccess], DataFrame]]:
    """Return the rows that each set of brokers must serve.

    Each comparison takes several Spark jobs, so that kinds that the same brokers show are compared together.
    """
    is_acl = F.col("kind") == str(EntityKind.ACL)
    is_config = F.col("kind") == str(EntityKind.TOPIC_CONFIG)
    is_credential = F.col("kind") == str(EntityKind.SCRAM_CREDENTIAL)
    types = told.types
    spelled = F.udf(lambda value: _spelled(types, value))
    showing = [broker for broker in brokers if broker.id in on_kraft and broker_place(broker.id) not in told.hidden]
    enforcing = [broker for broker in brokers if broker_place(broker.id) in told.enforcing]
    by_brokers: dict[tuple[int, ...], tuple[Sequence[BrokerAccess], DataFrame]] = {}
    for group, part in (
        (brokers, rows.where(~is_credential & ~is_config & ~is_acl)),
        (brokers, rows.where(is_config).withColumn("value", spelled("value"))),
        (showing, rows.where(is_credential)),
        (enforcing, rows.where(is_acl)),
    ):
        ids = tuple(broker.id for broker in group)
        if ids:
            together = by_brokers[ids][1].unionAll(part) if ids in by_brokers else part
            by_brokers[ids] = (group, together)
    return list(by_brokers.values())


def _told(run: Run, served: DataFrame) -> _Told:
    """Return the notes among the brokers' rows; add to the run's problems which broker does not answer."""
    told = _Told()
    for note in notes_among(served):
        content = json.loads(note["value"])
        match note["kind"]:
            case Note.PROBLEM:
                run.outcome.problems.append(content)
            case Note.DENIED:
                raise NotAllowedError(content)
            case Note.UNREAD:
                told.hidden[note["key"]] = content
            case Note.ENFORCED:
                told.enforcing.add(note["key"])
            case Note.TYPES:
                told.types |= {name: ConfigType(code) for name, code in content.items()}
            case _:
                pass  # the number of rows
    return told


def _open(flagged: Iterable[Flagged], brokers: Sequence[BrokerAccess]) -> list[Open]:
    return [(entity.identity, broker.id) for entity in flagged for broker in brokers]


def _own_differences(
    brokers: Sequence[BrokerAccess],
    references: DataFrame,
    place: str,
    served: DataFrame,
    types: Mapping[str, ConfigType],
) -> list[Open]:
    """Return the effective broker configs that differ from a place. There are few, so this needs no Spark job."""
    broker_configs = (F.col("kind") == str(EntityKind.BROKER_CONFIG)) & F.col("value").isNotNull()
    in_place = broker_configs & (F.col("leg") == str(Leg.MIRROR)) & (F.col("place") == place)
    held = {
        row["key"]: _spelled(types, without_passwords(row["value"])) for row in references.where(in_place).collect()
    }
    own = broker_configs & (F.col("leg") == str(Leg.OWN))
    answered = {(row["place"], row["key"]): row["value"] for row in served.where(own).collect()}
    return [
        ((EntityKind.BROKER_CONFIG, key), broker.id)
        for broker in brokers
        for key in (str(broker.id), CLUSTER_DEFAULT)
        if answered.get((broker_place(broker.id), key)) != held.get(key)
    ]


def without_passwords(value: str | None) -> str | None:
    """Return a broker's configs without passwords, which brokers do not return; None if nothing remains."""
    configs = json.loads(value or "{}")
    plain = {name: text for name, text in configs.items() if not is_password(name)}
    return canonical_json(plain) if plain else None


def _spelled(types: Mapping[str, ConfigType], value: str | None) -> str | None:
    """Return configs in Kafka's spelling of each value."""
    if value is None:
        return None
    return canonical_json(canonical_values(types, json.loads(value)))


def as_shown(types: Mapping[str, ConfigType], held: str | None, served: str | None) -> str | None:
    """Return configs in Kafka's spelling, with None for the values that a broker hides, as in its answer."""
    spelled = _spelled(types, held)
    if spelled is None or served is None:
        return spelled
    hidden = {name for name, value in json.loads(served).items() if value is None}
    return canonical_json({name: None if name in hidden else value for name, value in json.loads(spelled).items()})


@dataclass(frozen=True, slots=True)
class _Answer:
    """The metadata that a broker serves."""

    entities: Mapping[Identity, Entity] = field(default_factory=dict)
    newest: Sequence[Entity] = ()
    """Newest topics of the log that the broker knew before it was asked for the others."""
    types: Mapping[str, ConfigType] = field(default_factory=dict)


@dataclass(slots=True)
class _Sight:
    """A difference at the last request: when it began, and the last record of the entity."""

    since: float
    log_offset: int
    log: str | None
    served: str | None
    told: bool
    """Whether brokers had been told of the record."""

    @property
    def is_equal(self) -> bool:
        """Whether the broker serves what the log holds."""
        return self.served == self.log


@dataclass(slots=True)
class _Progress:
    """A broker's progress along the log, derived from its answers."""

    still_since: float
    """Times since when the broker is registered, is told of changes, and gives the same answers."""
    registered: int
    """Offset of the last record about the broker itself. A new one means a restart."""
    past: int
    """Creation offset of the newest topic in the broker's last answer."""


@dataclass(slots=True)
class _Settling:
    inputs: Inputs
    replay: LogReplay
    zookeeper: ZooKeeperReader | None
    secrets: Secrets
    sights: dict[Open, _Sight] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)
    progress: dict[int, _Progress] = field(default_factory=dict)

    def look(self, pending: Sequence[Open]) -> list[Open]:
        """Ask the brokers, then read the log, and return the entities that are still open."""
        mirrored = self._mirrored_offset()
        topics = self.replay.image.topics.values()
        newest = [topic.name for topic in nlargest(_NEWEST_TOPICS, topics, key=attrgetter("offset"))]
        answers = {
            broker.id: self._answers(broker, [identity for identity, asked in pending if asked == broker.id], newest)
            for broker in self.inputs.brokers
        }
        image = self.replay.advance()
        if image.open_transaction:
            raise MetadataError("the log ends inside a transaction")
        held = self._held({identity for identity, _ in pending})
        left = []
        moved = set()
        for entry in pending:
            identity, broker_id = entry
            former = self.sights.pop(entry, None)
            answer = answers[broker_id]
            if answer is None:
                left.append(entry)
                continue
            sight = self._sight(identity, answer, held.get(identity), former, mirrored)
            if former is not None and former.served != sight.served:
                moved.add(broker_id)
            if not sight.is_equal:
                self.sights[entry] = sight
                left.append(entry)
        for broker_id, answer in answers.items():
            self._follow(broker_id, answer, mirrored, moved=broker_id in moved)
        return left

    def _sight(
        self, identity: Identity, answer: _Answer, held: Entity | None, former: _Sight | None, mirrored: int
    ) -> _Sight:
        served = value_of(answer.entities.get(identity))
        log = value_of(held)
        offset = held.offset if held else self.replay.image.removed.get(identity, -1)
        if identity[0] is EntityKind.BROKER_CONFIG:
            log = without_passwords(log)
        if identity[0] in _CONFIGS:
            log = as_shown(answer.types, log, served)
        since = time.monotonic()
        if former is not None and former.log_offset == offset and former.told:
            since = former.since
        return _Sight(since, offset, log, served, told=offset <= mirrored)

    def _follow(self, broker_id: int, answer: _Answer | None, mirrored: int, *, moved: bool) -> None:
        """Record a broker's progress along the log."""
        registered = self._registered(broker_id)
        if answer is None or not -1 < registered <= mirrored:
            self.progress.pop(broker_id, None)  # the broker still serves its state from before the restart
            return
        still_since = time.monotonic()
        former = self.progress.get(broker_id)
        if former is not None and former.registered == registered and not moved:
            still_since = former.still_since
        past = max(map(self._created, answer.newest), default=-1)
        self.progress[broker_id] = _Progress(still_since, registered, past)

    def _registered(self, broker_id: int) -> int:
        """Return the offset of a broker's registration; -1 if it has none or is fenced."""
        registration = self.replay.image.brokers.get(broker_id)
        if registration is None or registration["fenced"]:
            return -1
        offset: int = registration[OFFSET]
        return offset

    def _created(self, served: Entity) -> int:
        """Return the offset of a topic's creation; -1 if the log has no such topic or another of that name."""
        image = self.replay.image
        topic_id = image.topic_ids.get(served.key)
        if topic_id is None or served.value != canonical_json({"topicId": uuid_text(topic_id)}):
            return -1
        return image.topics[topic_id].offset

    def _answers(self, broker: BrokerAccess, identities: Sequence[Identity], newest: Sequence[str]) -> _Answer | None:
        """Return what a broker serves of some entities; None if it does not answer."""
        if not identities:
            return _Answer()
        names = {topic_of(identity) for identity in identities} - {""}
        kinds = {kind for kind, _ in identities}
        newest_topics: list[Entity] = []
        entities: list[Entity] = []
        types: Mapping[str, ConfigType] = {}
        try:
            with served_broker(broker, self.inputs.client_config_path, _SETTLE_SECONDS) as asked:
                if names:
                    # Ask for the newest topics first: a broker that knows them then received everything before them.
                    answered = asked.topics(newest, configs=False)
                    newest_topics += (entity for entity in answered if entity.kind is EntityKind.TOPIC)
                    entities += asked.topics(sorted(names))
                if EntityKind.BROKER_CONFIG in kinds:
                    entities += asked.own_configs()
                if EntityKind.SCRAM_CREDENTIAL in kinds:
                    entities += asked.scram_credentials()
                types = asked.types
        except BrokerUnavailableError as error:  # the broker may be restarting
            self.failures[broker.id] = str(error)
            return None
        self.failures.pop(broker.id, None)
        return _Answer(by_identity(entities), newest_topics, types)

    def _held(self, wanted: set[Identity]) -> dict[Identity, Entity]:
        configs = {identity for identity in wanted if identity[0] is EntityKind.BROKER_CONFIG}
        held = logged(self.replay.image, wanted - configs, self.secrets, Form.SERVED)
        if configs:
            held |= logged(self.replay.image, configs, self.secrets)
        return held

    def differing(self, pending: Sequence[Open]) -> list[Open]:
        """Return the entities that differ for long enough at a broker that has passed their last record."""
        now = time.monotonic()
        return [entry for entry in pending if self._is_different(entry, now)]

    @property
    def patience_seconds(self) -> float:
        """How long to look at least."""
        return 2 * _STILL_SECONDS

    def difference(self, entry: Open) -> Difference:
        """Return what differs between the log and a broker's answer."""
        identity, broker_id = entry
        sight = self.sights[entry]
        copies = {LOG: copy_of(sight.log), broker_place(broker_id): copy_of(sight.served)}
        return difference(*identity, copies, log_offset=sight.log_offset)

    def _is_different(self, entry: Open, now: float) -> bool:
        (kind, _), broker_id = entry
        sight = self.sights.get(entry)
        progress = self.progress.get(broker_id)
        if sight is None or progress is None:
            return False
        if not sight.told or now - sight.since <= _SETTLE_SECONDS:
            return False
        in_order = ENTITY_KINDS[kind].served is Served.UPDATE_METADATA
        return (in_order and progress.past > sight.log_offset) or now - progress.still_since > _STILL_SECONDS

    def _mirrored_offset(self) -> int:
        """Return the log offset that ZooKeeper mirrors; above every offset if brokers do not depend on it."""
        if self.zookeeper is None:
            return _EVERYTHING
        (fenced,) = self.zookeeper.read([Read(Operation.DATA, MIGRATION_PATH)])
        return fenced.offset


def _settle(run: Run, pending: list[Open]) -> int:
    """Return the number of differences. A Spark task asks the brokers and reads the log."""
    settled = run.in_task(_settled, Asking(run.request, run.inputs, run.salt, pending))
    return run.outcome.add_settled(settled)


@dataclass(frozen=True, slots=True)
class Asking:
    """The inputs of the task that asks the brokers and reads the log again."""

    request: VerificationRequest
    inputs: Inputs
    salt: bytes
    pending: list[Open]


def _settled(asking: Asking) -> Outcome:
    inputs = asking.inputs
    outcome = Outcome()
    leader = next(voter for voter in inputs.voters if voter.mirrored)
    secrets = Secrets(asking.salt, compare_passwords=inputs.encoder_secret_path is not None)
    replay = LogReplay(open_log_files(leader.url, inputs.token_path, inputs.ca_path))
    with ExitStack() as stack:
        access = inputs.zookeeper
        zookeeper = stack.enter_context(ZooKeeperReader(access)) if isinstance(access, ZooKeeperAccess) else None
        settling = _Settling(inputs, replay, zookeeper, secrets)
        look_until_settled(settling, asking.pending, outcome, asking.request.fence_seconds)
    return outcome


class Settling(Protocol):
    """Looks again at entities whose answers differ."""

    failures: dict[int, str]
    """Why a broker did not answer the last time, by id."""

    @property
    def patience_seconds(self) -> float:
        """How long it looks at least: a difference is proven by then."""

    def look(self, pending: Sequence[Open]) -> list[Open]:
        """Ask again, and return the entities that are still open."""

    def differing(self, pending: Sequence[Open]) -> list[Open]:
        """Return those of the open entities that are proven to differ."""

    def difference(self, entry: Open) -> Difference:
        """Return what differs."""


def look_until_settled(settling: Settling, pending: list[Open], outcome: Outcome, fence_seconds: float) -> None:
    """Look until every entity is equal or different, or the time is up; add what is known to the outcome."""
    began = time.monotonic()
    while True:
        pending = settling.look(pending)
        for entry in settling.differing(pending):
            pending.remove(entry)
            outcome.add_difference(settling.difference(entry))
        if not pending or time.monotonic() - began > max(fence_seconds, settling.patience_seconds):
            break
        time.sleep(_PAUSE_SECONDS)
    outcome.problems += settling.failures.values()
    outcome.unresolved += sorted(f"{kind} {key} at broker {broker}" for (kind, key), broker in pending)
