"""The operator connects to what belongs to the migration, judged by the address of the connection."""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import ipaddress
import pkgutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.fakes import FakeKubernetes

import kraftbridge.kafka
import kraftbridge.metadata
import kraftbridge.storage
from kraftbridge import services
from kraftbridge.kafka.client import Security
from kraftbridge.kafka.wire import Connection, WireError
from kraftbridge.metadata.zookeeper.session import PollingHandler
from kraftbridge.outside.endpoints import EndpointNotAllowedError, connect
from kraftbridge.services.endpoints import Endpoints, Network

NAMED = {"zookeeper.kafka.svc.cluster.local", "lb.example.com"}


class Namespace:
    """The addresses of a namespace, and how often they are listed."""

    def __init__(self) -> None:
        self.listed = 0
        self.pods: list[dict[str, Any]] = [
            {"status": {"phase": "Running", "podIP": "10.1.0.1", "podIPs": [{"ip": "10.1.0.1"}, {"ip": "fd00::1"}]}},
            {"status": {"phase": "Succeeded", "podIP": "10.1.0.2"}},
            {"status": {"phase": "Pending"}},
        ]

    def list(self, _version: str, kind: str, namespace: str) -> tuple[dict[str, Any], ...]:
        assert namespace == "kafka"
        self.listed += kind == "Pod"
        services = [{"spec": {"clusterIP": "10.96.0.7"}}, {"spec": {"clusterIP": "None"}}, {"spec": {}}]
        return tuple(self.pods if kind == "Pod" else services)


@pytest.fixture
def namespace() -> Namespace:
    return Namespace()


def endpoints(namespace: Any, *allowed: str) -> Endpoints:
    networks: list[Network] = [ipaddress.ip_network(each) for each in allowed]
    return Endpoints(namespace, "kafka", NAMED, networks, ("10.96.0.1", "10.0.0.9:6443"))


@pytest.mark.parametrize("address", ["10.1.0.1", "fd00::1", "10.96.0.7", "::ffff:10.1.0.1"])
def test_pods_and_services_of_the_namespace_are_allowed(namespace: Namespace, address: str) -> None:
    endpoints(namespace).judge("kafka-0.kafka", address, 9092)


@pytest.mark.parametrize("address", ["10.1.0.2", "10.2.0.1", "203.0.113.5", "192.168.1.1"])
def test_another_address_is_refused_with_the_value_to_add(namespace: Namespace, address: str) -> None:
    judge = endpoints(namespace)
    with pytest.raises(EndpointNotAllowedError, match=f"EndpointNotAllowed.*add {address}/32 to connect.allow"):
        judge.judge("kafka-0.other", address, 9092)
    (refused,) = judge.refused
    assert (refused.host, refused.port, refused.address) == ("kafka-0.other", 9092, address)
    endpoints(namespace, f"{address}/32").judge("kafka-0.other", address, 9092)


def test_a_host_of_the_connect_strings_is_allowed_and_so_is_who_shares_its_address(namespace: Namespace) -> None:
    judge = endpoints(namespace)
    judge.judge("lb.example.com", "203.0.113.5", 9092)
    judge.judge("broker-0.example.com", "203.0.113.5", 9094)
    assert judge.refused == ()


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.8.8", "::1", "0.0.0.0", "::", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::",
        "169.254.169.254", "::ffff:169.254.169.254", "fe80::1", "fe80::1%eth0", "fd00:ec2::254", "fd00:ec2::23",
        "fd20:ce::254", "100.100.100.200", "192.0.0.192", "64:ff9b:1::a9fe:a9fe", "::ffff:0:169.254.169.254",
        "224.0.0.1", "ff02::1", "10.96.0.1", "::ffff:10.96.0.1",
    ],
)  # fmt: skip
def test_a_host_of_the_connect_strings_that_resolves_to_this_is_refused(namespace: Namespace, address: str) -> None:
    judge = endpoints(namespace)
    with pytest.raises(EndpointNotAllowedError):
        judge.judge("lb.example.com", address, 443)
    with pytest.raises(EndpointNotAllowedError):
        judge.judge_named("lb.example.com", address, 443)


def test_the_api_servers_own_address_is_refused_at_its_port_alone(namespace: Namespace) -> None:
    """Brokers may be reached through ports of the same node."""
    with pytest.raises(EndpointNotAllowedError, match="it is the API server"):
        endpoints(namespace).judge("lb.example.com", "10.0.0.9", 6443)
    endpoints(namespace).judge("lb.example.com", "10.0.0.9", 30092)


def test_a_pod_that_came_later_is_looked_up(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("kraftbridge.services.endpoints.time.monotonic", lambda: now)
    judge = endpoints(namespace)
    for _ in range(100):
        with pytest.raises(EndpointNotAllowedError):
            judge.judge("kafka-9.kafka", "10.1.0.9", 9092)
    assert namespace.listed == 1, "a tree may advertise thousands of addresses"
    namespace.pods.append({"status": {"podIP": "10.1.0.9"}})
    now = 2.0
    judge.judge("kafka-9.kafka", "10.1.0.9", 9092)
    assert judge.refused == ()


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def test_nothing_is_sent_to_an_address_that_is_not_allowed(server: socket.socket) -> None:
    host, port = server.getsockname()
    judge = Endpoints(FakeKubernetes.__new__(FakeKubernetes), "kafka", {"localhost"}).judge
    with pytest.raises(EndpointNotAllowedError):
        connect("localhost", host, port, 1.0, judge)
    with pytest.raises(WireError, match="EndpointNotAllowed"):
        Connection("localhost", port, Security(judge=judge), 2.0)
    with pytest.raises(EndpointNotAllowedError):
        PollingHandler(judge=judge).create_connection(address=(host, port), timeout=1.0)
    server.settimeout(0.1)
    with pytest.raises(TimeoutError):
        server.accept()


def _judged_by() -> set[str]:
    """Return the functions and classes that connect to an address, and so take a judge."""
    found = set()
    for room in (kraftbridge.kafka, kraftbridge.metadata, kraftbridge.storage):
        for module in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
            for name, member in vars(importlib.import_module(module.name)).items():
                if inspect.isfunction(member) or inspect.isclass(member):
                    with contextlib.suppress(ValueError):
                        found |= {name} & ({name} if "judge" in inspect.signature(member).parameters else set())
    return found


def test_nothing_that_the_operator_connects_to_goes_without_a_judge() -> None:
    """A client that forgets the judge would connect anywhere."""
    takers = _judged_by()
    assert {"read_controller_metrics", "ControllerClient", "ListenerCertificates", "RemoteLogFiles"} <= takers
    calls = 0
    for path in Path(services.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            called = {n.id for n in (node.func, *node.args) if isinstance(n, ast.Name)} & takers
            if called:
                calls += 1
                assert "judge" in ast.unparse(node), f"{path.name}:{node.lineno}: {called} without a judge"
    assert calls >= 8
