"""Settings of many topics, spelled in another way than brokers serve them: none is looked at again, and a real difference is."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import SparkSession

from kraftbridge.models.entities import EntityKind
from kraftbridge.models.report import BrokerAccess, Profile, VerificationRequest
from kraftbridge.verification.compare import served
from kraftbridge.verification.inputs import Inputs
from kraftbridge.verification.run import Run
from kraftbridge.verification.sources.rows import LOG, SCHEMA_DDL, Leg, Note, broker_place

TYPES = {"cleanup.policy": 7, "min.cleanable.dirty.ratio": 6, "log.cleaner.io.max.bytes.per.second": 6}
RATE = "log.cleaner.io.max.bytes.per.second"


def row(place: str, kind: str, key: str, value: object, leg: Leg = Leg.SERVED) -> tuple[object, ...]:
    return str(leg), place, str(kind), key, json.dumps(value, separators=(",", ":")), 5


def test_only_real_differences_are_looked_at_again(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = [BrokerAccess(id=each, host="b", port=1) for each in (0, 1)]
    places = [broker_place(broker.id) for broker in brokers]
    topics = [f"t{number}" for number in range(30)]
    logs = [row(LOG, EntityKind.TOPIC_CONFIG, topic, {"cleanup.policy": "compact, delete"}) for topic in topics]
    logs += [row(LOG, EntityKind.TOPIC, topic, {"topicId": topic}) for topic in topics]
    logs += [row(LOG, EntityKind.BROKER_CONFIG, key, {RATE: "10485760"}, Leg.MIRROR) for key in ("0", "1", "<default>")]
    told = [row(place, EntityKind.TOPIC, topic, {"topicId": topic}) for place in places for topic in topics]
    for place in places:
        told += [row(place, EntityKind.TOPIC_CONFIG, topic, {"cleanup.policy": "compact,delete"}) for topic in topics]
        told.append(row(place, Note.TYPES, place, TYPES))
        told.append(row(place, EntityKind.BROKER_CONFIG, place[-1], {RATE: "1.048576E7"}, Leg.OWN))
        told.append(row(place, EntityKind.BROKER_CONFIG, "<default>", {RATE: "1.048576E7"}, Leg.OWN))
    for place, value in (("broker 0", "0.5"), ("broker 1", "0.6")):
        told.append(row(place, EntityKind.TOPIC_CONFIG, "ratio", {"min.cleanable.dirty.ratio": value}))
    logs.append(row(LOG, EntityKind.TOPIC_CONFIG, "ratio", {"min.cleanable.dirty.ratio": "0.50"}))

    looked_at: list[served.Open] = []
    monkeypatch.setattr(Run, "load", lambda *_: spark.createDataFrame(told, SCHEMA_DDL))

    def settle(_: Run, pending: list[served.Open]) -> int:
        looked_at.extend(pending)
        return 0

    inputs = Inputs(Profile.DUAL_WRITE, None, [], [], live=True, brokers=brokers)
    run = Run(spark, VerificationRequest(run_id="r", profile=Profile.DUAL_WRITE), inputs)
    reference = served.Reference(place=LOG, name="the log", registered=[0, 1], on_kraft=[], acls=False, settle=settle)
    served.compare_served(run, spark.createDataFrame(logs, SCHEMA_DDL), reference)

    assert sorted(looked_at) == [((EntityKind.TOPIC_CONFIG, "ratio"), each) for each in (0, 1)]
    assert run.outcome.counts[EntityKind.TOPIC_CONFIG].served == len(topics) + 1
    assert run.outcome.problems == []
