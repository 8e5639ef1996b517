"""A broker that was killed recovers its logs: the operator recognizes that in what Kafka itself writes."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from kazoo.client import KazooClient
from tests.support.fakes import FakeKubernetes
from tests.support.kafka_processes import CHROOT, ZOOKEEPER, KafkaProcesses, kafka_processes, wait_for
from tests.support.observations import IDENTITY, broker_set, spec

from kraftbridge.models.status import MigrationStatus, WatchedStart
from kraftbridge.phases.draft import Migration
from kraftbridge.services.observe.workloads import CLEAN, UNCLEAN, LogReader

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.xdist_group("kafka-processes")]

PARTITIONS = 20
SHUT_DOWN = "shut down completed (kafka.server.KafkaServer)"


def test_the_log_of_a_recovery_is_progress() -> None:
    with kafka_processes([0], []) as processes:
        processes.start_zookeeper()
        processes.start_broker(0, ZOOKEEPER)
        admin = processes.admin_client()
        admin.create_topics([NewTopic("orders", PARTITIONS, 1)])["orders"].result(60)
        producer = Producer({"bootstrap.servers": processes.bootstrap_servers})
        for partition in range(PARTITIONS):
            producer.produce("orders", b"x" * 1000, partition=partition)
        assert producer.flush(60) == 0
        processes.stop("broker-0", signal.SIGKILL)
        with zookeeper(processes) as client:
            wait_for("the end of its session", lambda: client.exists("/brokers/ids/0") is None, 60)
        began = len((processes.directory / "broker-0.log").read_text(errors="replace"))
        processes.start_broker(0, ZOOKEEPER)
        log = (processes.directory / "broker-0.log").read_text(errors="replace")[began:]

        began = len((processes.directory / "broker-0.log").read_text(errors="replace"))
        processes.stop("broker-0")
        processes.start_broker(0, ZOOKEEPER)
        next_log = (processes.directory / "broker-0.log").read_text(errors="replace")[began:]

    lines = log.splitlines()
    seen = [words for end in range(20, len(lines), 5) if (words := recovery("\n".join(lines[:end])))]
    assert len(set(seen)) > PARTITIONS // 5, "it moves on with each partition"
    assert any("LogLoader partition=orders-" in words for words in seen)
    assert ends_before_it_starts(log, UNCLEAN)
    assert ends_before_it_starts(next_log[next_log.index(SHUT_DOWN) :], CLEAN)


def ends_before_it_starts(log: str, told: re.Pattern[str]) -> bool:
    """Return whether a log tells how the former process ended, and only before the broker serves: by then, silence is final."""
    (serving,) = [place.start() for place in re.finditer(r"started \(kafka\.server\.KafkaServer\)", log)]
    places = [place.start() for place in told.finditer(log)]
    return bool(places) and max(places) < serving


@contextmanager
def zookeeper(processes: KafkaProcesses) -> Iterator[KazooClient]:
    client = KazooClient(processes.zookeeper_hosts + CHROOT)
    client.start(10)
    yield client
    client.stop()
    client.close()


def recovery(log: str) -> str:
    """Return what the operator reads in a log, ``""`` if it is not Kafka's yet."""
    kubernetes = FakeKubernetes(None)
    kubernetes.logs["kafka-0"] = log
    item = broker_set(None)
    pod = replace(item.pods[0], uid="new")
    status = MigrationStatus(watched_start=WatchedStart(pod=pod.name, process=pod.process))
    return LogReader(kubernetes).start(Migration(IDENTITY, spec(), status), (replace(item, pods=(pod,)),)).recovery
