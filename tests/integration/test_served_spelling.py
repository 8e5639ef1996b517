"""What a broker serves of settings that somebody spelled in an own way: other texts than in the log, and the same values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest
from confluent_kafka.admin import NewTopic
from kafka.protocol.admin.configs import IncrementalAlterConfigsRequest
from tests.support.kafka_processes import FINAL, KRAFT, kafka_processes, wait_for

from kraftbridge.kafka.client import Security
from kraftbridge.kafka.wire import Connection
from kraftbridge.metadata.entities import Secrets
from kraftbridge.metadata.log.files import LocalLogFiles
from kraftbridge.metadata.log.image import BROKER_RESOURCE
from kraftbridge.metadata.log.replay import LogReplay
from kraftbridge.models.entities import EntityKind
from kraftbridge.models.report import BrokerAccess, Profile
from kraftbridge.verification.compare import served
from kraftbridge.verification.inputs import Inputs
from kraftbridge.verification.run import Outcome
from kraftbridge.verification.sources.brokers import served_broker

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kafka-processes")]
CLUSTER_ID = "kVx3Yk9aSZ2mJ0wq1Yl5Wg"
TOPICS = {
    "boolean": {"unclean.leader.election.enable": "False", "preallocate": " FALSE "},
    "list": {"cleanup.policy": "compact, delete", "leader.replication.throttled.replicas": "0:0 , 1:0"},
    "double": {"min.cleanable.dirty.ratio": "0.50"},
    "whole-double": {"min.cleanable.dirty.ratio": "1"},
    "small-double": {"min.cleanable.dirty.ratio": "1e-4f"},
    "tiny-double": {"min.cleanable.dirty.ratio": "4.9e-324"},
    "hexadecimal-double": {"min.cleanable.dirty.ratio": "0x1p-2"},
    "int": {"segment.bytes": "+0104857600", "min.insync.replicas": " 1"},
    "long": {"retention.ms": "-01", "segment.ms": "٣٠٠٠"},
    "string": {"compression.type": " lz4 "},
    "plain": {"retention.ms": "604800000"},
}
BROKER = {
    "0": {"log.cleaner.io.max.bytes.per.second": "10485760", "log.retention.ms": "+05"},
    "": {"log.cleaner.io.buffer.load.factor": ".90", "log.cleanup.policy": "compact , delete"},
}


@dataclass(frozen=True)
class Spelled:
    access: BrokerAccess
    inputs: Inputs
    files: LocalLogFiles


def change(port: int, name: str, config: Mapping[str, str]) -> None:
    """Set dynamic settings of a broker, or of all (""), for which confluent-kafka has no name."""
    request = IncrementalAlterConfigsRequest
    entries = [
        request.AlterConfigsResource.AlterableConfig(name=key, config_operation=0, value=value)
        for key, value in config.items()
    ]
    resource = request.AlterConfigsResource(resource_type=BROKER_RESOURCE, resource_name=name, configs=entries)
    with Connection("127.0.0.1", port, Security(), 30.0) as connection:
        answer = connection.call(request, 30.0, max_version=1, resources=[resource], validate_only=False)
    assert [(result.error_code, result.error_message) for result in answer.responses] == [(0, None)]


@pytest.fixture(scope="module")
def spelled() -> Iterator[Spelled]:
    with kafka_processes([0], [3000]) as processes:
        processes.format_controller(3000, CLUSTER_ID, FINAL)
        processes.format_broker(0, CLUSTER_ID)
        processes.start_controller(3000, FINAL)
        processes.start_broker(0, KRAFT)
        admin = processes.admin_client()
        for future in admin.create_topics(
            [NewTopic(name, 1, 1, config=held) for name, held in TOPICS.items()]
        ).values():
            future.result(150)
        for name, config in BROKER.items():
            change(processes.broker_ports[0], name, config)
        access = BrokerAccess(id=0, host="127.0.0.1", port=processes.broker_ports[0])
        inputs = Inputs(Profile.DUAL_WRITE, None, [], [], live=True, brokers=[access])

        def knows_all() -> bool:
            with served_broker(access, None, 20.0) as asked:
                own = [*asked.own_configs()]
                return len(own) == len(BROKER) and {e.key for e in asked.topics()} >= TOPICS.keys()

        wait_for("the broker's topics and settings", knows_all)
        yield Spelled(access, inputs, LocalLogFiles(processes.directory / "controller-3000"))


def differences(spelled: Spelled, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Return the names of settings that are called different, by entity."""
    for name, seconds in (("_SETTLE_SECONDS", 5.0), ("_STILL_SECONDS", 5.0), ("_PAUSE_SECONDS", 0.5)):
        monkeypatch.setattr(served, name, seconds)
    topics = [(EntityKind.TOPIC_CONFIG, name) for name in TOPICS]
    own = [(EntityKind.BROKER_CONFIG, name or "<default>") for name in BROKER]
    outcome = Outcome()
    settling = served._Settling(spelled.inputs, LogReplay(spelled.files), None, Secrets(b"salt"))
    served.look_until_settled(settling, [(identity, 0) for identity in (*topics, *own)], outcome, 60.0)
    assert (outcome.unresolved, outcome.problems) == ([], [])
    return {each.key: [attribute.name for attribute in each.attributes] for each in outcome.differences.values()}


def test_the_same_value_in_another_spelling_is_no_difference(spelled, monkeypatch) -> None:
    assert differences(spelled, monkeypatch) == {}
