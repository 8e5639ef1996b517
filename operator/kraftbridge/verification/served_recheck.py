"""Compares what brokers serve with the log, and settles what differs: their caches follow the log with a delay and no fence.

A broker's answer is settled as soon as it equals the log at one look; it is different once it has differed for some seconds
while no newer record touched the entity. The seconds count from when ZooKeeper mirrors the record: the migration driver tells
brokers in migration mode after that (`KRaftMigrationDriver.MetadataChangeEvent`). Only topics that are still open are asked for again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from kraftbridge.metadata.entities import (
    Entity,
    Form,
    Secrets,
    canonical_json,
    is_sensitive_config,
    topic_of_partition_key,
)
from kraftbridge.metadata.errors import MetadataError
from kraftbridge.metadata.log_files import open_log_files
from kraftbridge.metadata.log_replay import LogReplay
from kraftbridge.metadata.multi_read import Operation, Read
from kraftbridge.metadata.zookeeper_entities import MIGRATION_PATH
from kraftbridge.metadata.zookeeper_reader import ZooKeeperReader
from kraftbridge.models.report import BrokerAccess, EntityKind, KindCounts, ZooKeeperAccess
from kraftbridge.verification.comparison import Copy, Flagged, compare
from kraftbridge.verification.differences import difference
from kraftbridge.verification.plans import ServedPlan
from kraftbridge.verification.recheck import Identity, logged
from kraftbridge.verification.rows import LOG, Leg, Note, broker_place
from kraftbridge.verification.run import Run, notes_among
from kraftbridge.verification.served import CLUSTER_DEFAULT, BrokerUnavailableError, served_broker

_SETTLE_SECONDS: Final = 10.0
"""Time for a broker to apply a record; a difference must outlive it without a newer record."""
_PAUSE_SECONDS: Final = 1.0

Open = tuple[Identity, int]
"""An entity and the broker that served something else than the log holds."""


def compare_served(run: Run, logs: DataFrame) -> None:
    """Ask every broker, compare with the log, and settle what differs."""
    inputs = run.inputs
    plan = ServedPlan(salt=run.salt.hex(), brokers=list(inputs.brokers), client_config_path=inputs.client_config_path)
    asked = {broker.id for broker in inputs.brokers}
    for identity, broker in run.outcome.leader_note["brokers"].items():
        if int(identity) not in asked and not broker["fenced"]:
            run.outcome.problems.append(f"broker {identity} is registered, and no listener of it is known to ask it")
    with run.stage("ask brokers"):
        served = run.load("broker-served", plan.model_dump_json())
        for note in notes_among(served):
            if note["kind"] == Note.PROBLEM:
                run.outcome.problems.append(json.loads(note["value"]))
    if run.outcome.problems:
        return
    places = [LOG, *(broker_place(broker.id) for broker in inputs.brokers)]
    with run.stage("compare brokers"):
        comparison = compare(logs.unionAll(served), Leg.SERVED, places, few=run.few, values=False)
        own = _own_differences(inputs.brokers, logs, served)
    for kind, counts in comparison.counts.items():
        run.outcome.counts[kind] = run.outcome.counts.get(kind, KindCounts()).model_copy(
            update={"served": min(counts[place] for place in places[1:])}
        )
    beyond = sum(comparison.flagged_counts.values()) - len(comparison.flagged)
    if beyond:
        run.outcome.add_uncounted(beyond, "more entities differ between brokers and the log than are looked at")
    with run.stage("settle brokers"):
        _settle(run, [*_open(comparison.flagged, inputs.brokers), *own])


def _open(flagged: Iterable[Flagged], brokers: Sequence[BrokerAccess]) -> list[Open]:
    return [((entity.kind, entity.key), broker.id) for entity in flagged for broker in brokers]


def _own_differences(brokers: Sequence[BrokerAccess], logs: DataFrame, served: DataFrame) -> list[Open]:
    """Return the broker configs that are in force otherwise than in the log; there are few, so no job is needed."""
    ours = (F.col("kind") == str(EntityKind.BROKER_CONFIG)) & F.col("value").isNotNull()
    held = {
        row["key"]: _plain(row["value"])
        for row in logs.where(ours & (F.col("leg") == str(Leg.MIRROR)) & (F.col("place") == LOG)).collect()
    }
    told = {
        (row["place"], row["key"]): row["value"]
        for row in served.where(ours & (F.col("leg") == str(Leg.OWN))).collect()
    }
    return [
        ((EntityKind.BROKER_CONFIG, key), broker.id)
        for broker in brokers
        for key in (str(broker.id), CLUSTER_DEFAULT)
        if told.get((broker_place(broker.id), key)) != held.get(key)
    ]


def _plain(value: str) -> str | None:
    """Return a broker's configs without secret ones, which no broker tells; None where nothing is left."""
    plain = {name: each for name, each in json.loads(value).items() if not is_sensitive_config(name)}
    return canonical_json(plain) if plain else None


@dataclass(slots=True)
class _Sight:
    """What differed at the last look: since when, and after which record."""

    since: float
    log_offset: int
    log: str | None
    served: str | None
    told: bool
    """Whether brokers had been told of it."""


@dataclass(slots=True)
class _Settling:
    run: Run
    replay: LogReplay
    zookeeper: ZooKeeperReader | None
    secrets: Secrets
    sights: dict[Open, _Sight] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)

    def look(self, pending: Sequence[Open]) -> list[Open]:
        """Ask brokers, then the log, and return what is still open."""
        mirrored = self._mirrored_offset()
        answers = {
            broker.id: self._answers(broker, [identity for identity, asked in pending if asked == broker.id])
            for broker in self.run.inputs.brokers
        }
        image = self.replay.advance()
        if image.open_transaction:
            raise MetadataError("the log ends inside a transaction")
        wanted = {identity for identity, _ in pending}
        held = self._held(wanted)
        left = []
        for each in pending:
            identity, broker = each
            answer = answers[broker]
            entity = held.get(identity)
            if answer is None:
                self.sights.pop(each, None)
                left.append(each)
                continue
            served = answer[identity].value if identity in answer else None
            log = entity.value if entity else None
            if identity[0] is EntityKind.BROKER_CONFIG and log is not None:
                log = _plain(log)
            if served == log:
                continue
            offset = entity.offset if entity else image.removed.get(identity, -1)
            known = self.sights.get(each)
            same = known is not None and known.log_offset == offset and known.told
            since = known.since if known is not None and same else time.monotonic()
            self.sights[each] = _Sight(since, offset, log, served, told=mirrored is None or offset <= mirrored)
            left.append(each)
        return left

    def _answers(self, broker: BrokerAccess, identities: Sequence[Identity]) -> Mapping[Identity, Entity] | None:
        if not identities:
            return {}
        names = {key for kind, key in identities if kind in {EntityKind.TOPIC, EntityKind.TOPIC_CONFIG}}
        names |= {topic_of_partition_key(key) for kind, key in identities if kind is EntityKind.PARTITION}
        entities: list[Entity] = []
        try:
            with served_broker(broker, self.run.inputs.client_config_path, self.secrets, _SETTLE_SECONDS) as asked:
                if names:
                    entities += asked.topics(sorted(names))
                if any(kind is EntityKind.BROKER_CONFIG for kind, _ in identities):
                    entities += asked.own_configs()
        except BrokerUnavailableError as error:  # it may be restarting
            self.failures[broker.id] = str(error)
            return None
        self.failures.pop(broker.id, None)
        return {(entity.kind, entity.key): entity for entity in entities}

    def _held(self, wanted: set[Identity]) -> dict[Identity, Entity]:
        configs = {identity for identity in wanted if identity[0] is EntityKind.BROKER_CONFIG}
        held = logged(self.replay.image, wanted - configs, self.secrets, Form.SERVED)
        return held | (logged(self.replay.image, configs, self.secrets) if configs else {})

    def differing(self, pending: Sequence[Open]) -> list[Open]:
        """Return what has differed for long enough, with no newer record, to be called different."""
        now = time.monotonic()
        seen = ((each, self.sights[each]) for each in pending if each in self.sights)
        return [each for each, sight in seen if sight.told and now - sight.since > _SETTLE_SECONDS]

    def _mirrored_offset(self) -> int | None:
        """Return the log offset that ZooKeeper mirrors; None where brokers do not wait for it."""
        if self.zookeeper is None:
            return None
        (fenced,) = self.zookeeper.read([Read(Operation.DATA, MIGRATION_PATH)])
        return fenced.offset


def _settle(run: Run, pending: list[Open]) -> None:
    if not pending:
        return
    inputs = run.inputs
    leader = next(voter for voter in inputs.voters if voter.mirrored)
    secrets = Secrets(run.salt, compare_passwords=inputs.encoder_secret_path is not None)
    replay = LogReplay(open_log_files(leader.url, inputs.token_path, inputs.ca_path))
    with ExitStack() as stack:
        access = inputs.zookeeper
        zookeeper = stack.enter_context(ZooKeeperReader(access)) if isinstance(access, ZooKeeperAccess) else None
        _look_until_settled(run, _Settling(run, replay, zookeeper, secrets), pending)


def _look_until_settled(run: Run, settling: _Settling, pending: list[Open]) -> None:
    began = time.monotonic()
    while True:
        pending = settling.look(pending)
        for each in settling.differing(pending):
            pending.remove(each)
            identity, broker = each
            sight = settling.sights[each]
            copies = {LOG: _copy(sight.log), broker_place(broker): _copy(sight.served)}
            run.outcome.add_difference(difference(*identity, copies, log_offset=sight.log_offset))
        if not pending or time.monotonic() - began > max(run.request.fence_seconds, 2 * _SETTLE_SECONDS):
            break
        time.sleep(_PAUSE_SECONDS)
    run.outcome.problems += settling.failures.values()
    run.outcome.unresolved += sorted(f"{kind} {key} at broker {broker}" for (kind, key), broker in pending)


def _copy(value: str | None) -> Copy:
    return Copy(int(value is not None), value, None)
