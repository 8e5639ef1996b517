# mypy: disable-error-code="misc"
# pyspark's classes are untyped here: deriving from them is the one thing that mypy refuses.
"""The Spark data source `zookeeper`: a live tree, split by topics, or a dump."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
from kazoo.exceptions import NoNodeError
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from typing_extensions import override

from kraftbridge.metadata.copying import Claim, copied_entities
from kraftbridge.metadata.entities import Entity, as_served
from kraftbridge.metadata.zookeeper.reader import Data, Operation, Read, ZooKeeperReader, read_dump
from kraftbridge.metadata.zookeeper.soundness import (
    CLUSTER_ID_PATH,
    Soundness,
    broker_ids,
    cluster_id,
    soundness_of,
    topics_being_deleted,
)
from kraftbridge.metadata.zookeeper.standing import NOT_CHECKED, check_whole, may_pass, place_of
from kraftbridge.metadata.zookeeper.tree import TOPIC_CONFIGS_PATH, DumpReading, FenceRange, TreeReading
from kraftbridge.models.entities import EntityKind
from kraftbridge.models.report import Finding, ZooKeeperAccess
from kraftbridge.verification.sources.rows import (
    SCHEMA_DDL,
    ZOOKEEPER,
    Leg,
    Note,
    ZooKeeperPlan,
    entity_batches,
    note_batch,
    without_collection,
)

MAXIMUM_FINDINGS: Final = 10_000
"""Maximum number of findings that one task returns. The others are counted."""


class _Slice(InputPartition):
    """One task's share of the tree: topics, topic configs, other znodes."""

    def __init__(
        self,
        topics: Sequence[str] = (),
        configs: Sequence[str] = (),
        nodes: Sequence[str] = (),
        brokers: frozenset[int] = frozenset(),
        planned: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        super().__init__(None)
        self.topics = topics
        self.configs = configs
        self.nodes = nodes
        self.brokers = brokers
        self.planned = dict(planned)


class _ZooKeeperReader(DataSourceReader):
    def __init__(self, plan: ZooKeeperPlan) -> None:
        self._plan = plan

    @override
    def partitions(self) -> Sequence[InputPartition]:
        if self._plan.access is None:
            return [_Slice()]
        with ZooKeeperReader(self._plan.access) as reader:
            reader.synchronize()
            reading = TreeReading(reader, self._plan.secrets())
            plan = reading.plan()
            whole = check_whole(reader, reading, plan) if self._plan.soundness else NOT_CHECKED
            cluster = self._cluster_id(reader, reading)
        if self._plan.served:
            # A topic's configs come before it and go after it, and brokers serve none without a topic.
            topics = frozenset(plan.topics)
            plan = replace(plan, topic_configs=[name for name in plan.topic_configs if name in topics])
        slices = max(1, min(self._plan.parallelism, -(-len(plan.topics) // self._plan.topics_per_slice)))
        planned = {
            "fence": _fence(reading.fence),
            "problems": reading.problems,
            "unread": reading.unread,
            "findings": whole.findings,
            "epoch": whole.controller_epoch,
            "cluster": cluster,
        }
        return [
            _Slice(
                plan.topics[index::slices],
                plan.topic_configs[index::slices],
                plan.nodes if index == slices - 1 else (),
                broker_ids(plan.nodes),
                planned if index == 0 else {},
            )
            for index in range(slices)
        ]

    @override
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Slice)
        with without_collection():
            yield from self._read_dump() if self._plan.access is None else self._read_live(self._plan.access, partition)

    def _read_live(self, access: ZooKeeperAccess, partition: _Slice) -> Iterator[pa.RecordBatch]:
        with ZooKeeperReader(access) as reader:
            reader.synchronize()
            secret = self._plan.encoder_secret()
            soundness = Soundness(partition.brokers, secret)
            reading = TreeReading(reader, self._plan.secrets(), secret)
            if self._plan.soundness:
                reading.observe_topic = soundness.topic
                reading.observe_znode = soundness.znode
            yield from self._entity_batches(reading.topics(partition.topics))
            paths = [f"{TOPIC_CONFIGS_PATH}/{topic}" for topic in partition.configs]
            yield from self._entity_batches(reading.nodes([*paths, *partition.nodes]))
        planned = partition.planned
        fences = [fence for fence in (planned.get("fence"), _fence(reading.fence)) if fence and fence["batches"]]
        for fence in fences:
            yield note_batch(Leg.MIRROR, ZOOKEEPER, Note.FENCE, "", fence)
        yield from _problems(Note.PROBLEM, {**planned.get("problems", {}), **reading.problems})
        yield from _problems(Note.UNREAD, {**planned.get("unread", {}), **reading.unread})
        yield from _alternatives(reading.alternatives)
        if "cluster" in planned:
            yield note_batch(Leg.MIRROR, ZOOKEEPER, Note.CLUSTER, "", planned["cluster"])
        if self._plan.soundness:
            findings = [*planned.get("findings", ()), *soundness.findings]
            yield from _findings(findings, planned.get("epoch"), soundness.highest_controller_epoch)

    def _entity_batches(self, entities: Iterator[Entity]) -> Iterator[pa.RecordBatch]:
        """Yield entities as they are in the tree and, where the plan wants that, as brokers should serve them."""
        if not self._plan.served:
            yield from entity_batches(Leg.MIRROR, ZOOKEEPER, entities)
            return
        held = list(entities)
        yield from entity_batches(Leg.MIRROR, ZOOKEEPER, held)
        yield from entity_batches(Leg.SERVED, ZOOKEEPER, filter(None, map(as_served, held)))

    def _cluster_id(self, reader: ZooKeeperReader, reading: TreeReading) -> str | None:
        (result,) = next(reader.read([Read(Operation.DATA, CLUSTER_ID_PATH)])).answers
        if isinstance(result, Data):
            return cluster_id(result.data)
        if not isinstance(result, NoNodeError):
            reading.unread[CLUSTER_ID_PATH] = f"{CLUSTER_ID_PATH} cannot be read: {result!r}"
        return None

    def _read_dump(self) -> Iterator[pa.RecordBatch]:
        plan = self._plan
        assert plan.dump is not None
        reading = DumpReading(plan.secrets(), plan.encoder_secret())
        claim = Claim()
        reading.take(claim.watch(read_dump(Path(plan.dump), plan.chroot)))
        if plan.copied:
            yield from entity_batches(Leg.MIRROR, ZOOKEEPER, copied_entities(reading))
            mirrored = reading.migration.kraft_metadata_offset if reading.migration else -1
            facts = {"zxid": claim.zxid, "changed": claim.changed(), "mirrored": mirrored}
            facts["whole"] = reading.is_whole
            facts["deleting"] = topics_being_deleted(reading)
            facts["writtenMs"] = int(Path(plan.dump).stat().st_mtime * 1000)
            yield note_batch(Leg.MIRROR, ZOOKEEPER, Note.CLAIM, "", facts)
        else:
            yield from entity_batches(Leg.MIRROR, ZOOKEEPER, reading.entities())
        if reading.migration is not None:
            state = reading.migration
            offset = state.kraft_metadata_offset
            fence = FenceRange(offset, offset, state.kraft_metadata_epoch, state.kraft_controller_id, 1)
            yield note_batch(Leg.MIRROR, ZOOKEEPER, Note.FENCE, "", _fence(fence), offset)
        yield from _problems(Note.PROBLEM, reading.problems)
        yield from _problems(Note.UNREAD, reading.unread)
        yield from _alternatives(reading.alternatives)
        nodes = reading.nodes()
        yield note_batch(Leg.MIRROR, ZOOKEEPER, Note.CLUSTER, "", cluster_id(nodes.get(CLUSTER_ID_PATH)))
        if plan.soundness:
            soundness = soundness_of(reading, plan.encoder_secret(), secret_required=False)
            yield from _findings(soundness.findings, soundness.controller_epoch, soundness.highest_controller_epoch)


def _findings(
    findings: Sequence[Finding], controller_epoch: int | None, highest_epoch: int
) -> Iterator[pa.RecordBatch]:
    if len(findings) > MAXIMUM_FINDINGS:
        findings = _one_of_each_place_first(findings)
    dropped = findings[MAXIMUM_FINDINGS:]
    for finding in findings[:MAXIMUM_FINDINGS]:
        yield note_batch(Leg.MIRROR, ZOOKEEPER, Note.FINDING, finding.object, finding.model_dump(mode="json"))
    facts = {
        "controllerEpoch": controller_epoch,
        "highestEpoch": highest_epoch,
        "dropped": Counter(str(finding.severity) for finding in dropped if not may_pass(finding)),
        "droppedThatMayPass": Counter(str(finding.severity) for finding in dropped if may_pass(finding)),
    }
    yield note_batch(Leg.MIRROR, ZOOKEEPER, Note.COUNT, "", facts)


def _one_of_each_place_first(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings so that those which are returned name each place that must be read again."""
    firsts = {place_of(finding): finding for finding in reversed(findings) if may_pass(finding)}
    chosen = set(map(id, firsts.values()))
    return [*firsts.values(), *(finding for finding in findings if id(finding) not in chosen)]


def _fence(fence: FenceRange) -> dict[str, int | None]:
    return {
        "first": fence.first,
        "last": fence.last,
        "epoch": fence.epoch,
        "controllerId": fence.controller_id,
        "batches": fence.batches,
    }


def _problems(note: Note, problems: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    for path, problem in problems.items():
        yield note_batch(Leg.MIRROR, ZOOKEEPER, note, path, problem)


def _alternatives(alternatives: Mapping[tuple[EntityKind, str], str]) -> Iterator[pa.RecordBatch]:
    for (kind, key), value in alternatives.items():
        yield note_batch(Leg.MIRROR, ZOOKEEPER, Note.ALTERNATIVE, key, [str(kind), value])


class ZooKeeperSource(DataSource):
    """Spark data source `zookeeper`."""

    @override
    @classmethod
    def name(cls) -> str:
        return "zookeeper"

    @override
    def schema(self) -> str:
        return SCHEMA_DDL

    @override
    def reader(self, schema: Any) -> DataSourceReader:
        return _ZooKeeperReader(ZooKeeperPlan.model_validate(json.loads(self.options["plan"])))
