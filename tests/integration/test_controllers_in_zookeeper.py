"""The controllers' credentials at a real ZooKeeper: what the start script makes of the Secret opens znodes that only the brokers' user may write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl
from tests.support.controller_pod import Pod, controller_pod
from tests.support.kafka_processes import kafka_libraries
from tests.support.zookeeper_ensemble import Ensemble, zookeeper_ensemble

from kraftbridge.metadata.zookeeper.session import ZooKeeperCredentials
from kraftbridge.storage.zookeeper import ZooKeeperStore

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kafka-processes")]

PASSWORD = 'k"fka \\ secret'
JAAS_PASSWORD = 'k\\"fka \\\\ secret'
JAAS = f'Server {{ org.apache.zookeeper.server.auth.DigestLoginModule required user_kafka="{JAAS_PASSWORD}"; }};'
SETTINGS = {"authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}


@pytest.fixture(scope="module")
def secured() -> Iterator[Ensemble]:
    with zookeeper_ensemble(settings=SETTINGS, jaas=JAAS) as ensemble:
        owner = KazooClient(
            ensemble.hosts, sasl_options={"mechanism": "DIGEST-MD5", "username": "kafka", "password": PASSWORD}
        )
        owner.start(30)
        owner.ensure_path("/brokers/topics")
        owner.create("/brokers/topics/closed", b"x", acl=[make_acl("sasl", "kafka", all=True)])
        owner.stop()
        owner.close()
        yield ensemble


@pytest.fixture
def pod(tmp_path: Path, secured: Ensemble) -> Pod:
    """Return a pod in which ZooKeeper's own client stands for Kafka's server: the same login, the same libraries."""
    made = controller_pod(tmp_path)
    client = f"java $KAFKA_OPTS -cp '{kafka_libraries()}/*' org.apache.zookeeper.ZooKeeperMain -server {secured.hosts}"
    script = f"#!/bin/bash\nenv > {tmp_path}/server.env\n{client} set /brokers/topics/closed written > {tmp_path}/answer 2>&1\nexit 0\n"
    made.write("/opt/kafka/bin/kafka-server-start.sh", script)
    return made


def stored(secured: Ensemble) -> bytes:
    owner = KazooClient(
        secured.hosts, sasl_options={"mechanism": "DIGEST-MD5", "username": "kafka", "password": PASSWORD}
    )
    owner.start(30)
    try:
        return bytes(owner.get("/brokers/topics/closed")[0])
    finally:
        owner.stop()
        owner.close()


def test_with_the_brokers_credentials_a_controller_may_write_what_they_wrote(pod: Pod, secured: Ensemble) -> None:
    pod.start(EXPORTER="")
    assert stored(secured) == b"x", "without credentials it is refused"
    for name, text in {"username": "kafka", "password": PASSWORD, "scheme": "sasl"}.items():
        pod.write(f"/etc/kraftbridge-zookeeper/{name}", text)
    pod.start(EXPORTER="")
    assert stored(secured) == b"written", pod.read("/answer")


def test_preflight_sees_whose_it_is(secured: Ensemble) -> None:
    blind = ZooKeeperStore(secured.hosts)
    known = ZooKeeperStore(secured.hosts, credentials=ZooKeeperCredentials("kafka", PASSWORD, "sasl"))
    try:
        assert blind.acls().denied == ("/brokers/topics/closed",)
        (entry,) = known.acls().acls["/brokers/topics/closed"]
    finally:
        blind.close()
        known.close()
    assert (entry.scheme, entry.id, entry.permissions) == ("sasl", "kafka", frozenset("cdrwa"))
