"""Who else uses the brokers' ZooKeeper, as a real server tells it: znodes, old consumers, and sessions that are no broker's."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from tests.support.kafka_processes import CHROOT, ZOOKEEPER, kafka_processes, wait_for
from typing_extensions import override

from kraftbridge.models.observation import Unobserved
from kraftbridge.models.survey import ZooKeeperUsers
from kraftbridge.storage.zookeeper import ZooKeeperStore

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.xdist_group("kafka-processes")]
BROKER, OPERATOR, TOOL = "127.0.0.1", "127.0.0.2", "127.0.0.3"
WITH_ACLS = "authorizer.class.name=kafka.security.authorizer.AclAuthorizer\nallow.everyone.if.no.acl.found=true\n"


class OfTool(SequentialThreadingHandler):
    """Connects from the address of another host."""

    @override
    def create_connection(self, address: tuple[str, int], timeout: float, **_: Any) -> socket.socket:
        return socket.create_connection(address, timeout, source_address=(TOOL, 0))


@pytest.fixture
def operator_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator's sessions come from an address of their own, as its pod's do."""

    def connect(_: Any, address: tuple[str, int], timeout: float, **__: Any) -> socket.socket:
        return socket.create_connection(address, timeout, source_address=(OPERATOR, 0))

    monkeypatch.setattr(SequentialThreadingHandler, "create_connection", connect)


@pytest.mark.usefixtures("operator_elsewhere")
def test_others_are_told_apart_from_brokers_and_the_operator() -> None:
    with kafka_processes([0], []) as processes:
        processes.extra_broker_settings[0] = WITH_ACLS
        processes.start_zookeeper()
        processes.start_broker(0, ZOOKEEPER)
        store, whole = ZooKeeperStore(processes.zookeeper_hosts, CHROOT), ZooKeeperStore(processes.zookeeper_hosts)
        tool = KazooClient(processes.zookeeper_hosts, handler=OfTool())

        def addresses() -> list[str]:
            sessions = store._sessions()
            assert isinstance(sessions, dict), sessions
            return sorted(sessions.values())

        try:
            wait_for("the broker's registration", lambda: store.observe().brokers)
            wait_for("its two sessions, and ours", lambda: addresses() == [BROKER, BROKER, OPERATOR])
            assert store.users() == ZooKeeperUsers(), "AclAuthorizer's session and Kafka's znodes are the broker's own"

            tool.start(60)
            tool.ensure_path("/kafka-manager/clusters")
            tool.ensure_path(f"{CHROOT}/burrow")
            tool.ensure_path(f"{CHROOT}/consumers/billing/offsets")
            seen = store.users()
            assert seen.znodes == ("/kafka-manager", f"{CHROOT}/burrow")
            assert seen.groups == ("billing",)
            assert seen.clients == (TOOL,)
            top = f"/{CHROOT.strip('/').partition('/')[0]}"
            assert top in wait_for("a session without chroot", whole.users).znodes, "it belongs to another cluster"

            tool.stop()
            wait_for("the end of the tool's session", lambda: store.users().clients == ())
        finally:
            tool.stop()
            tool.close()
            store.close()
            whole.close()


def test_a_server_that_does_not_list_its_sessions_makes_them_unknown() -> None:
    with kafka_processes([], []) as processes:
        processes.start_zookeeper({"4lw.commands.whitelist": "srvr"})
        store = ZooKeeperStore(processes.zookeeper_hosts)
        try:
            seen = wait_for("the first session", store.users)
            assert (seen.znodes, seen.groups) == ((), ())
            assert isinstance(seen.clients, Unobserved)
            assert "4lw.commands.whitelist" in seen.clients.reason
        finally:
            store.close()
