"""Made clusters of any size: the same partitions as a ZooKeeper tree and as logs and snapshots of voters."""

from __future__ import annotations

import base64
import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kazoo.client import KazooClient
from tests.unit.metadata.record_writer import batch, record, snapshot, write_log

CHROOT = "/kafka"
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
BROKERS = 60
_CREATES_PER_TRANSACTION = 1000
_IN_FLIGHT = 8
_RECORDS_PER_BATCH = 5000


@dataclass(frozen=True)
class Cluster:
    """So many topics with so many partitions each, three replicas everywhere."""

    topics: int
    partitions_per_topic: int

    @property
    def partitions(self) -> int:
        return self.topics * self.partitions_per_topic

    @property
    def records(self) -> int:
        return self.topics + self.partitions

    @classmethod
    def of(cls, partitions: int) -> Cluster:
        per_topic = 200 if partitions >= 100_000 else 50
        return cls(max(1, partitions // per_topic), per_topic)


def replicas(topic: int, partition: int) -> tuple[int, int, int]:
    first = (topic + partition) % BROKERS
    return first, (first + 1) % BROKERS, (first + 2) % BROKERS


def values(cluster: Cluster) -> Iterator[bytes]:
    """Yield the records that create the cluster."""
    directories = tuple(bytes(8) + bytes([i] * 8) for i in (1, 2, 3))
    for topic in range(cluster.topics):
        identity = topic.to_bytes(16, "big")
        yield record("TopicRecord", name=name(topic), topicId=identity)
        for partition in range(cluster.partitions_per_topic):
            nodes = replicas(topic, partition)
            yield record(
                "PartitionRecord",
                1,
                partitionId=partition,
                topicId=identity,
                replicas=nodes,
                isr=nodes,
                leader=nodes[0],
                leaderEpoch=partition % 50,
                partitionEpoch=partition % 900,
                directories=directories,
            )


def name(topic: int) -> str:
    return f"topic-{topic:06d}"


def write_segment(cluster: Cluster, folder: Path) -> Path:
    """Write the cluster's records as one log segment."""

    def batches() -> Iterator[bytes]:
        part: list[bytes] = []
        offset = 0
        for value in values(cluster):
            part.append(value)
            if len(part) == _RECORDS_PER_BATCH:
                yield batch(part, offset)
                offset += len(part)
                part = []
        if part:
            yield batch(part, offset)

    return write_log(folder, batches())


def write_voters(cluster: Cluster, folder: Path, count: int = 3) -> list[Path]:
    """Write the folders of voters: a snapshot with the cluster, and a short log after it."""
    content = snapshot(list(values(cluster)))
    end = cluster.records
    noop = record("NoOpRecord")
    voters = []
    for number in range(count):
        voter = folder / f"c{3000 + number}"
        inner = voter / "__cluster_metadata-0"
        inner.mkdir(parents=True)
        (inner / f"{end:020d}-0000000001.checkpoint").write_bytes(content)
        write_log(voter, (batch([noop], end + i) for i in range(20)), end)
        (voter / "meta.properties").write_text(f"version=1\nnode.id={3000 + number}\ncluster.id={CLUSTER_ID}\n")
        voters.append(voter)
    return voters


def fill_zookeeper(client: KazooClient, cluster: Cluster, mirrored_offset: int) -> int:
    """Create the tree; return the number of znodes."""
    waiting: deque[object] = deque()
    transaction, pending, count = client.transaction(), 0, 0

    def commit() -> None:
        nonlocal transaction, pending
        waiting.append(transaction.commit_async())
        transaction, pending = client.transaction(), 0
        while len(waiting) >= _IN_FLIGHT:
            check(waiting.popleft())

    def check(result: object) -> None:
        for each in result.get(timeout=120):  # type: ignore[attr-defined]
            if isinstance(each, Exception):
                raise each

    def create(path: str, data: bytes = b"") -> None:
        nonlocal pending, count
        transaction.create(path, data)
        pending += 1
        count += 1
        if pending >= _CREATES_PER_TRANSACTION:
            commit()

    create("/cluster")
    create("/cluster/id", json.dumps({"version": "1", "id": CLUSTER_ID}).encode())
    for folder in ("/brokers", "/brokers/topics", "/brokers/ids", "/config", "/config/topics", "/config/brokers"):
        create(folder)
    for topic in range(cluster.topics):
        path = f"/brokers/topics/{name(topic)}"
        identity = base64.urlsafe_b64encode(topic.to_bytes(16, "big")).rstrip(b"=").decode()
        assignment = {str(i): replicas(topic, i) for i in range(cluster.partitions_per_topic)}
        body = {
            "partitions": assignment,
            "topic_id": identity,
            "adding_replicas": {},
            "removing_replicas": {},
            "version": 3,
        }
        create(path, json.dumps(body, separators=(",", ":")).encode())
        create(f"/config/topics/{name(topic)}", b'{"version":1,"config":{}}')
        create(f"{path}/partitions")
        for partition in range(cluster.partitions_per_topic):
            nodes = replicas(topic, partition)
            state = {
                "controller_epoch": 1,
                "leader": nodes[0],
                "version": 1,
                "leader_epoch": partition % 50,
                "isr": nodes,
            }
            create(f"{path}/partitions/{partition}")
            create(f"{path}/partitions/{partition}/state", json.dumps(state, separators=(",", ":")).encode())
    migration = {
        "version": 0,
        "kraft_metadata_offset": mirrored_offset,
        "kraft_controller_id": 3000,
        "kraft_metadata_epoch": 1,
        "kraft_controller_epoch": 1,
    }
    create("/migration", json.dumps(migration).encode())
    commit()
    while waiting:
        check(waiting.popleft())
    return count
