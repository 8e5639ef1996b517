"""What the observer asks the sidecars, and which NetworkPolicies it names."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.fakes import Clock, FakeKubernetes
from tests.support.observations import CONTROLLERS, IDENTITY, open_gate, pod

from kraftbridge.exceptions import ObservationError
from kraftbridge.models.observation import BrokerZnode, Endpoint, Path, Unobserved
from kraftbridge.models.phase import Phase
from kraftbridge.phases.draft import Migration
from kraftbridge.services.clients import ClusterClients
from kraftbridge.services.observe.paths import Brokers, tried

NAMESPACE = IDENTITY.namespace
SETTINGS = {"inter.broker.listener.name": "INTERNAL"}
CONTROLLER_PODS = tuple(pod(f"{CONTROLLERS}-{i}", i) for i in (3000, 3001, 3002))


def znode(broker: int, host: str = "", listener: str = "INTERNAL") -> BrokerZnode:
    name = host or f"kafka-{broker}.kafka"
    return BrokerZnode(broker, (name,), (Endpoint("EXTERNAL", name, 9094), Endpoint(listener, name, 9092)))


def brokers(*znodes: BrokerZnode, **settings: str) -> Brokers:
    return Brokers(znodes or tuple(map(znode, range(3))), settings or SETTINGS)


@pytest.fixture
def kubernetes() -> FakeKubernetes:
    store = FakeKubernetes(Clock())
    secret = {"token": "dG9rZW4=", "ca.crt": "Y2E="}
    reader = {"name": f"{CONTROLLERS}-log-reader", "namespace": NAMESPACE}
    store.create({"kind": "Secret", "metadata": reader, "data": secret})
    for i in range(3):
        labels = {"app": "kafka", "index": str(i)}
        store.create({"kind": "Pod", "metadata": {"name": f"kafka-{i}", "namespace": NAMESPACE, "labels": labels}})
    for each in CONTROLLER_PODS:
        labels = {"kraftbridge.dev/role": "controller"}
        store.create({"kind": "Pod", "metadata": {"name": each.name, "namespace": NAMESPACE, "labels": labels}})
    return store


def policy(store: FakeKubernetes, name: str, selector: dict[str, Any], **spec: Any) -> None:
    metadata = {"name": name, "namespace": NAMESPACE}
    store.create({"kind": "NetworkPolicy", "metadata": metadata, "spec": {"podSelector": selector, **spec}})


class Sidecars:
    """The log servers of the controllers' pods."""

    def __init__(self, *walled: str) -> None:
        self.walled = walled
        self.asked: dict[str, list[tuple[str, int]]] = {}
        self.access: set[tuple[str, str]] = set()
        self.silent = ""

    def __call__(self, host: str, token: str, authority: str, targets: Any) -> list[str]:
        if self.silent and host.startswith(self.silent):
            raise ObservationError(f"log server {host}", "timed out")
        self.access.add((token, authority))
        self.asked[host] = list(targets)
        return ["dropped" if name in self.walled else "" for name, _ in targets]


def ask(store: FakeKubernetes, sidecars: Sidecars, where: Brokers | None = None, pods: Any = CONTROLLER_PODS) -> Any:
    nobody: Any = None
    clients = ClusterClients(nobody, nobody, nobody, nobody, try_paths=sidecars)
    case = open_gate(Phase.PROVISIONING_QUORUM)
    return tried(store, Migration(IDENTITY, case.spec, case.status), clients, pods, where or brokers())


def test_each_controllers_pod_tries_the_listener_that_the_controllers_use(kubernetes: FakeKubernetes) -> None:
    sidecars = Sidecars()
    paths = ask(kubernetes, sidecars)
    assert paths.listener == "INTERNAL"
    assert paths.tried.keys() == {3000, 3001, 3002}
    assert paths.tried[3001] == {i: Path(f"kafka-{i}.kafka:9092") for i in range(3)}
    assert sidecars.access == {("token", "ca")}
    assert len(sidecars.asked) == 3
    assert ("list", "NetworkPolicy", "") not in kubernetes.calls  # nothing is closed


@pytest.mark.parametrize(
    ("settings", "listener"),
    [
        ({"inter.broker.listener.name": " REPLICATION "}, "REPLICATION"),
        ({"inter.broker.listener.name": "replication"}, "REPLICATION"),
        ({"security.inter.broker.protocol": "SASL_SSL"}, "SASL_SSL"),
        ({"zookeeper.connect": "zk"}, "PLAINTEXT"),
    ],
)
def test_the_listener_is_that_of_the_controllers_own_configuration(
    kubernetes: FakeKubernetes, settings: dict[str, str], listener: str
) -> None:
    where = Brokers(tuple(znode(i, listener=listener) for i in range(3)), settings)
    sidecars = Sidecars()
    assert ask(kubernetes, sidecars, where).listener == listener
    assert all(port == 9092 for targets in sidecars.asked.values() for _, port in targets)


def test_a_broker_that_is_gone_or_lacks_the_listener_is_unknown(kubernetes: FakeKubernetes) -> None:
    paths = ask(kubernetes, Sidecars(), brokers(znode(0), znode(1, listener="OTHER")))
    ways = paths.tried[3000]
    assert ways[0] == Path("kafka-0.kafka:9092")
    assert "advertises no listener INTERNAL" in str(ways[1])
    assert "is not registered in ZooKeeper" in str(ways[2])


def test_an_address_of_ipv6_is_asked_for_as_it_is_and_shown_in_brackets(kubernetes: FakeKubernetes) -> None:
    sidecars = Sidecars("fd00::7")
    paths = ask(kubernetes, sidecars, brokers(znode(0, "fd00::7"), znode(1), znode(2)))
    assert all(("fd00::7", 9092) in targets for targets in sidecars.asked.values())
    assert paths.tried[3000][0] == Path("[fd00::7]:9092", "dropped")


def test_a_controller_whose_sidecar_is_silent_or_whose_pod_is_gone_is_unknown(kubernetes: FakeKubernetes) -> None:
    sidecars = Sidecars()
    sidecars.silent = f"{CONTROLLERS}-3002"
    paths = ask(kubernetes, sidecars, pods=(CONTROLLER_PODS[0], CONTROLLER_PODS[2]))
    assert isinstance(paths.tried[3001], Unobserved)
    assert "timed out" in str(paths.tried[3002])
    assert paths.tried[3000][2] == Path("kafka-2.kafka:9092")


def test_the_policies_that_select_the_ends_of_a_closed_way_are_named(kubernetes: FakeKubernetes) -> None:
    policy(kubernetes, "brokers", {"matchLabels": {"app": "kafka"}}, policyTypes=["Ingress"])
    policy(kubernetes, "every-pod", {})
    policy(kubernetes, "by-expression", {"matchExpressions": [{"key": "index", "operator": "In", "values": ["1"]}]})
    policy(kubernetes, "another", {"matchLabels": {"app": "zookeeper"}}, policyTypes=["Ingress"])
    policy(kubernetes, "brokers-out", {"matchLabels": {"app": "kafka"}}, policyTypes=["Egress"])
    policy(kubernetes, "out", {"matchLabels": {"kraftbridge.dev/role": "controller"}}, egress=[{}])
    paths = ask(kubernetes, Sidecars("kafka-1.kafka"))
    assert paths.policies["kafka-1"] == ("brokers", "by-expression", "every-pod")
    assert paths.policies[f"{CONTROLLERS}-3000"] == ("out",)
    assert "kafka-0" not in paths.policies


def test_policies_that_may_not_be_listed_are_unknown_and_the_way_stays_closed(kubernetes: FakeKubernetes) -> None:
    def forbid(verb: str, kind: str, _name: str) -> None:
        if (verb, kind) == ("list", "NetworkPolicy"):
            raise ObservationError("NetworkPolicy objects", "403 forbidden")

    kubernetes.before_call = forbid
    paths = ask(kubernetes, Sidecars("kafka-1.kafka"))
    assert "403 forbidden" in str(paths.policies)
    assert paths.tried[3000][1].failure == "dropped"


def test_without_a_token_nothing_is_known(kubernetes: FakeKubernetes) -> None:
    kubernetes.delete("v1", "Secret", NAMESPACE, f"{CONTROLLERS}-log-reader")
    with pytest.raises(ObservationError, match="has no token"):
        ask(kubernetes, Sidecars())
