# mypy: disable-error-code="misc"
# pyspark's classes are untyped here: deriving from them is the one thing that mypy refuses.
"""The Spark data source `kraft-log`: the log and the snapshots of each voter."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from typing_extensions import override

from kraftbridge.exceptions import MetadataError
from kraftbridge.metadata.copying import copy_span
from kraftbridge.metadata.entities import Form, Secrets, by_identity
from kraftbridge.metadata.log.credentials import forgettable_by_brokers, forgettable_by_voter
from kraftbridge.metadata.log.entities import (
    entities_beside_partitions,
    log_entities,
    partition_columns,
    reassigning_partitions,
)
from kraftbridge.metadata.log.files import LOG_FOLDER, META_PROPERTIES, open_log_files
from kraftbridge.metadata.log.image import MetadataImage, config_identity
from kraftbridge.metadata.log.replay import LogReplay
from kraftbridge.metadata.log.scanning import append_timestamp_ms
from kraftbridge.models.entities import ENTITY_KINDS, EntityKind, Mirror
from kraftbridge.verification.sources.rows import (
    LOG,
    LOG_AT_FENCE,
    SCHEMA_DDL,
    Leg,
    LogPlan,
    LogVoter,
    Note,
    entity_batches,
    note_batch,
    partition_batches,
    removed_batch,
    voter_place,
    without_collection,
)

_PAUSE_SECONDS: Final = 0.25


class _VoterPartition(InputPartition):
    def __init__(self, voter: LogVoter) -> None:
        super().__init__(voter.id)
        self.voter = voter


class _LogReader(DataSourceReader):
    def __init__(self, plan: LogPlan) -> None:
        self._plan = plan

    @override
    def partitions(self) -> Sequence[InputPartition]:
        # The log that is compared with ZooKeeper takes longest, so it comes first.
        return [_VoterPartition(voter) for voter in sorted(self._plan.voters, key=lambda voter: not voter.mirrored)]

    @override
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _VoterPartition)
        voter = partition.voter
        place = LOG if voter.mirrored else voter_place(voter.id)
        state: dict[str, Any] = {"id": voter.id, "name": voter.name, "problem": None}
        try:
            with without_collection():
                yield from self._read_voter(voter, state)
        except MetadataError as error:
            state["problem"] = str(error)
        yield note_batch(Leg.REPLICAS, place, Note.LOG, str(voter.id), state)

    def _read_voter(self, voter: LogVoter, state: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        plan = self._plan
        secrets = self._plan.secrets()
        files = open_log_files(voter.url, plan.token_path, plan.ca_path)
        owner = files.owner()
        if owner is None:
            raise MetadataError(
                f"{files.place} does not say whose log it is: "
                f"{META_PROPERTIES} beside {LOG_FOLDER} is missing or names no node and cluster"
            )
        if owner.node_id != voter.id:
            raise MetadataError(f"{files.place} holds the log of node {owner.node_id}, not of voter {voter.id}")
        state["cluster"] = owner.cluster_id
        stops = [stop for stop in (plan.replicas_offset, plan.fence_offset) if stop is not None and stop >= 0]
        steps = []
        if plan.replicas_offset is not None:
            steps.append((plan.replicas_offset, Leg.REPLICAS, voter_place(voter.id), Form.WHOLE))
        if voter.mirrored and plan.at_fence and plan.fence_offset is not None and plan.fence_offset >= 0:
            steps.append((plan.fence_offset, Leg.MIRROR, LOG_AT_FENCE, Form.MIRRORED))
        if voter.mirrored and plan.copied:
            copy = copy_span(files)
            if copy is None:
                raise MetadataError(f"{files.place}: the log holds no finished copy of ZooKeeper")
            stops.append(copy.end)
            steps.append((copy.end, Leg.MIRROR, LOG, Form.MIRRORED))
            state["copyBeganMs"] = append_timestamp_ms(files, copy.begin)
        replay = LogReplay(files, start_at_most=min(stops, default=None))
        for offset, leg, place, form in sorted(steps):
            image = _advanced(replay, offset, plan.patience_seconds)
            if image.offset < offset:
                raise MetadataError(
                    f"{files.place}: the log ends at offset {image.offset}, "
                    f"{offset - image.offset} records behind the committed "
                    f"offset {offset} that is needed"
                )
            if leg is Leg.REPLICAS:
                state["records"] = image.records
            yield from _image_batches(leg, place, image, form, secrets)
        if voter.mirrored and not plan.copied:
            image = replay.advance()
            yield from _image_batches(Leg.MIRROR, LOG, image, Form.MIRRORED, secrets)
            if plan.served:
                yield from _image_batches(Leg.SERVED, LOG, image, Form.SERVED, secrets)
            alive = _alive(replay, secrets)
            removed = ((kind, key, offset) for (kind, key), offset in image.removed.items() if (kind, key) not in alive)
            yield from removed_batch(Leg.MIRROR, LOG, removed)
            state["brokers"] = {
                str(identity): {
                    "fenced": bool(broker.get("fenced")),
                    "leaving": bool(broker.get("inControlledShutdown")),
                    "migrating": bool(broker.get("isMigratingZkBroker")),
                }
                for identity, broker in image.brokers.items()
            }
            state["openTransaction"] = image.open_transaction
            state["unmirroredConfigs"] = list(_unmirrored_configs(image))
            state["reassigning"] = reassigning_partitions(image)
            if plan.brokers_restart:
                state["forgettableByBrokers"] = forgettable_by_brokers(files) if image.scram else {}
            state["producerIdsCopied"] = image.producer_ids is None or image.producer_ids["brokerId"] == -1
            if plan.fence_offset is not None:
                state["epochAtFence"] = replay.epoch_at(plan.fence_offset)
        state |= {
            "forgettable": forgettable_by_voter(replay),
            "endOffset": replay.end_offset,
            "snapshotOffset": replay.snapshot and replay.snapshot.end_offset,
            "tornTailBytes": replay.torn_tail_bytes,
            "epoch": replay.image.epoch,
        }
        state.setdefault("records", replay.image.records)


def _advanced(replay: LogReplay, offset: int, patience_seconds: float) -> MetadataImage:
    """Replay up to an offset. Waits if the log does not reach the offset yet."""
    until = time.monotonic() + patience_seconds
    image = replay.advance(offset)
    while image.offset < offset and time.monotonic() < until:
        time.sleep(_PAUSE_SECONDS)
        image = replay.advance(offset)
    return image


def _image_batches(
    leg: Leg, place: str, image: MetadataImage, form: Form, secrets: Secrets
) -> Iterator[pa.RecordBatch]:
    yield from partition_batches(leg, place, partition_columns(image, form))
    yield from entity_batches(leg, place, entities_beside_partitions(image, form, secrets))


def _unmirrored_configs(image: MetadataImage) -> Iterator[list[Any]]:
    """Yield type, name and config names of the resources that ZooKeeper does not hold."""
    for (resource_type, resource), config in image.configs.items():
        kind, key = config_identity(resource_type, resource)
        if ENTITY_KINDS[kind].mirror is Mirror.NONE:
            entity_type, _, name = key.partition("/")
            yield [entity_type, name, sorted(config.values)]


def _alive(replay: LogReplay, secrets: Secrets) -> AbstractSet[tuple[EntityKind, str]]:
    """Return the identities of entities that were removed and created again."""
    removed = replay.image.removed.keys()
    if not removed:
        return removed
    return by_identity(log_entities(replay.image, Form.MIRRORED, secrets, removed)).keys()


class KraftLogSource(DataSource):
    """Spark data source `kraft-log`."""

    @override
    @classmethod
    def name(cls) -> str:
        return "kraft-log"

    @override
    def schema(self) -> str:
        return SCHEMA_DDL

    @override
    def reader(self, schema: Any) -> DataSourceReader:
        return _LogReader(LogPlan.model_validate(json.loads(self.options["plan"])))
