# mypy: disable-error-code="misc"
# pyspark's classes are untyped here: deriving from them is the one thing that mypy refuses.
"""The Spark data source `broker-served`: what each broker tells its clients."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from typing_extensions import override

from kraftbridge.metadata.entities import Entity
from kraftbridge.metadata.errors import MetadataError
from kraftbridge.models.report import BrokerAccess
from kraftbridge.verification.sources.plans import ServedPlan
from kraftbridge.verification.sources.rows import SCHEMA_DDL, Leg, Note, broker_place, entity_batches, note_batch


class _BrokerPartition(InputPartition):
    def __init__(self, broker: BrokerAccess) -> None:
        super().__init__(broker.id)
        self.broker = broker


class _ServedReader(DataSourceReader):
    def __init__(self, plan: ServedPlan) -> None:
        self._plan = plan

    @override
    def partitions(self) -> Sequence[InputPartition]:
        return [_BrokerPartition(broker) for broker in self._plan.brokers]

    @override
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _BrokerPartition)
        place = broker_place(partition.broker.id)
        try:
            entities, own = self._ask(partition.broker)
        except MetadataError as error:
            yield note_batch(Leg.SERVED, place, Note.PROBLEM, place, str(error))
            return
        yield from entity_batches(Leg.SERVED, place, entities)
        yield from entity_batches(Leg.OWN, place, own)
        yield note_batch(Leg.SERVED, place, Note.COUNT, place, len(entities))

    def _ask(self, broker: BrokerAccess) -> tuple[list[Entity], list[Entity]]:
        from kraftbridge.verification.sources.broker import BrokerUnavailableError, served_broker  # noqa: PLC0415 - only this leg needs kafka-python

        plan = self._plan
        began = time.monotonic()
        while True:
            try:
                with served_broker(broker, plan.client_config_path, plan.secrets(), plan.timeout_seconds) as asked:
                    return list(asked.topics()), list(asked.own_configs())
            except BrokerUnavailableError:
                if time.monotonic() - began > plan.patience_seconds:
                    raise
            time.sleep(1)


class BrokerServedSource(DataSource):
    """Spark data source `broker-served`."""

    @override
    @classmethod
    def name(cls) -> str:
        return "broker-served"

    @override
    def schema(self) -> str:
        return SCHEMA_DDL

    @override
    def reader(self, schema: Any) -> DataSourceReader:
        return _ServedReader(ServedPlan.model_validate(json.loads(self.options["plan"])))
