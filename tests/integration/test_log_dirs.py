"""What real brokers list of their log directories, and that what the findings tell people to do mends it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from kafka import KafkaAdminClient, TopicPartition
from kafka.protocol.admin.cluster import AlterReplicaLogDirsRequest
from tests.support.kafka_processes import ZOOKEEPER, KafkaProcesses, kafka_processes, wait_for

from kraftbridge.kafka.client import Security
from kraftbridge.kafka.wire import Connection, host_ports
from kraftbridge.models.survey import LogDir
from kraftbridge.storage.kafka_brokers import BrokerClient

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kafka-processes")]

OTHER_ID = "kVx3Yk9aSZ2mJ0wq1Yl5Wg"
SLOW = "replica.alter.log.dirs.io.max.bytes.per.second=1000"
ASIDE = (
    "aside-0.ec4fc5e43abc40f39cf7e09970433cfb-stray",
    "gone-0.ec4fc5e43abc40f39cf7e09970433cfb-delete",
)
"""What Kafka has set aside itself is in nobody's way."""


@contextmanager
def brokers() -> Iterator[tuple[KafkaProcesses, BrokerClient]]:
    """Run two brokers; broker 0 has two directories."""
    with kafka_processes([0, 1], []) as processes:
        directories = ",".join(str(directory) for directory in own(processes))
        processes.extra_broker_settings[0] = f"log.dirs={directories}\n{SLOW}\n"
        processes.start_zookeeper()
        for broker in (0, 1):
            processes.start_broker(broker, ZOOKEEPER)
        client = BrokerClient(processes.bootstrap_servers, {})
        try:
            wait_for("the brokers", lambda: len(client.cluster_state().brokers) == 2 or None)
            yield processes, client
        finally:
            client.close()


def own(processes: KafkaProcesses) -> tuple[Path, Path]:
    return processes.directory / "broker-0", processes.directory / "broker-0-second"


def create(processes: KafkaProcesses, *topics: NewTopic) -> None:
    admin = processes.admin_client()
    for created in admin.create_topics(list(topics)).values():
        created.result(60)


def found(client: BrokerClient, broker: int = 0) -> dict[str, LogDir]:
    directories = client.log_dirs()[broker]
    assert isinstance(directories, tuple), directories
    return {directory.path: directory for directory in directories}


def plant(directory: Path, name: str, topic_id: str = "") -> None:
    (directory / name).mkdir()
    (directory / name / "00000000000000000000.log").write_bytes(b"")
    if topic_id:
        (directory / name / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")


def test_left_over_replicas_are_found_and_kafka_deletes_them_without_a_restart() -> None:
    with brokers() as (processes, client):
        create(processes, NewTopic("t1", 2, replica_assignment=[[0], [1]]), NewTopic("own", 1, 1))
        first, second = own(processes)
        assert {path: item.leftovers for path, item in found(client).items()} == {str(first): (), str(second): ()}
        processes.stop("broker-0")
        plant(first, "old-topic-3")
        plant(second, "foreign-0", OTHER_ID)
        plant(second, "t1-1")
        for name in ASIDE:
            plant(first, name)
        processes.start_broker(0, ZOOKEEPER)
        admin = processes.admin_client()

        listed = wait_for("the leftovers", lambda: seen if (seen := found(client))[str(first)].leftovers else None)

        assert listed[str(first)].leftovers == ("old-topic-3",)
        assert listed[str(second)].leftovers == ("foreign-0", "t1-1")
        assert not any(directory.leftovers for directory in found(client, 1).values())
        for topic, partitions in (("old-topic", 4), ("foreign", 1)):
            create(processes, NewTopic(topic, partitions, replica_assignment=[[0]] * partitions))
            wait_for(f"{topic} to be assigned", lambda t=topic: t not in str(found(client)) or None)
            for deleted in admin.delete_topics([topic]).values():
                deleted.result(60)
            wait_for(f"{topic} to go", lambda t=topic: t not in admin.list_topics(timeout=10).topics or None)
        kafka = KafkaAdminClient(bootstrap_servers=processes.bootstrap_servers)
        try:
            for replicas in ([1, 0], [1]):
                kafka.alter_partition_reassignments({TopicPartition("t1", 1): replicas})
                wait_for("the reassignment", lambda: not client.reassigning_partitions() or None)
        finally:
            kafka.close()
        wait_for("nothing to be left over", lambda: not any(d.leftovers for d in found(client).values()) or None)


def test_a_move_between_directories_and_a_failed_directory_are_told() -> None:
    with brokers() as (processes, client):
        create(processes, NewTopic("t1", 1, replica_assignment=[[0]]))
        first, second = own(processes)
        holder = wait_for("t1", lambda: next((d for d in (first, second) if (d / "t1-0").is_dir()), None))
        other = second if holder == first else first
        assert not any(d.error or d.future for d in found(client).values())
        producer = Producer({"bootstrap.servers": processes.bootstrap_servers})
        for _ in range(40):
            producer.produce("t1", b"x" * 100_000)
        producer.flush(60)
        move(processes, ("t1", 0), other)

        moving = wait_for("the move", lambda: seen if (seen := found(client))[str(other)].future else None)

        assert moving[str(other)] == LogDir(str(other), future=("t1-0",))
        assert moving[str(holder)] == LogDir(str(holder))
        shutil.rmtree(other)
        failed = wait_for("the failure", lambda: seen if (seen := found(client))[str(other)].error else None)
        # Kafka calls it a storage error once it has tried to write there, and an unknown one before.
        assert failed[str(other)].error in {"KafkaStorageError (56)", "UnknownError (-1)"}
        assert not failed[str(holder)].error


def move(processes: KafkaProcesses, replica: tuple[str, int], directory: Path) -> None:
    request = AlterReplicaLogDirsRequest.AlterReplicaLogDir
    topic = request.AlterReplicaLogDirTopic(name=replica[0], partitions=[replica[1]])
    (address,) = host_ports(processes.bootstrap_servers.split(",")[0])
    with Connection(*address, Security.from_properties({}), 5.0) as connection:
        answer = connection.call(
            AlterReplicaLogDirsRequest, 10.0, max_version=2, dirs=[request(path=str(directory), topics=[topic])]
        )
    assert [p.error_code for t in answer.results for p in t.partitions] == [0]
