"""A config that grew beyond what KRaft takes, on a real ZooKeeper-mode broker: it is found, and the command of the finding ends it."""

from __future__ import annotations

import json
import re
import shlex

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from kazoo.client import KazooClient
from tests.support.kafka_processes import CHROOT, ZOOKEEPER, kafka_processes, wait_for

from kraftbridge.kafka.__main__ import main
from kraftbridge.metadata.zookeeper.long_texts import LONGEST_TEXT
from kraftbridge.metadata.zookeeper.soundness import Soundness
from kraftbridge.models.catalogue import Code
from kraftbridge.models.report import Finding

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kafka-processes")]

BROKER = 0
CASES = {
    "/config/topics/long": (ResourceType.TOPIC, "long", "leader.replication.throttled.replicas", "{}:100000"),
    "/config/brokers/0": (ResourceType.BROKER, "0", "ssl.cipher.suites", "suite-{}"),
    "/config/brokers/<default>": (ResourceType.BROKER, "", "ssl.cipher.suites", "suite-{}"),
}


def grow(admin: AdminClient, kind: ResourceType, name: str, config: str, entry: str) -> None:
    """Append as often as it takes; a request cannot carry all of it at once."""
    for part in range(2):
        values = [entry.format(number) for number in range(part * 2500, part * 2500 + 2500)]
        appended = ConfigEntry(config, ",".join(values), incremental_operation=AlterConfigOpType.APPEND)
        resource = ConfigResource(kind, name, incremental_configs=[appended])
        for altered in admin.incremental_alter_configs([resource]).values():
            altered.result(60)


def test_a_config_that_grew_part_by_part_is_found_and_deleted_by_the_command_that_is_told() -> None:
    with kafka_processes([BROKER], []) as processes:
        processes.start_zookeeper()
        processes.start_broker(BROKER, ZOOKEEPER)
        admin = processes.admin_client()
        for created in admin.create_topics([NewTopic("long", 1, 1)]).values():
            created.result(60)
        session = KazooClient(processes.zookeeper_hosts + CHROOT)
        session.start()

        def data(path: str) -> bytes:
            return session.get(path)[0] if session.exists(path) else b""

        def found(path: str) -> list[Finding]:
            soundness = Soundness(frozenset({BROKER}))
            soundness.znode(path, data(path))
            return soundness.findings

        try:
            for path, (kind, name, config, entry) in CASES.items():
                if name:
                    grow(admin, kind, name, config, entry)
                else:  # no client of librdkafka can name all brokers
                    body = {"version": 1, "config": {config: "x" * 40_000}}
                    session.create(path, json.dumps(body).encode())
                wait_for(f"{path} to grow", lambda path=path: len(data(path)) > LONGEST_TEXT)

                (long,) = found(path)

                assert (long.code, long.object) == (Code.TEXT_TOO_LONG, path)
                (command,) = re.findall(r"python -m kraftbridge.kafka (.+)\. Then ", long.fix)
                assert main(shlex.split(command.replace("HOST:9092,…", processes.bootstrap_servers))) == 0
                wait_for(f"{config} to go", lambda path=path, config=config: config.encode() not in data(path))
                assert found(path) == []
        finally:
            session.stop()
            session.close()
