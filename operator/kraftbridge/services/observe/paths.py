"""Lets each controller's pod try a TCP connection to each broker, where Kafka will connect from that pod."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from kraftbridge.builders import names
from kraftbridge.exceptions import ObservationError
from kraftbridge.models.objects import section
from kraftbridge.models.observation import BrokerZnode, Endpoint, Path, Paths, PodState, Unobserved
from kraftbridge.phases.draft import Identity, Migration
from kraftbridge.services.clients import ClusterClients, bracketed, log_access
from kraftbridge.services.observe.survey import selects
from kraftbridge.storage.ports import Object, ReadPort

_MOST_PODS: Final = 6
"""Pods for which NetworkPolicies are looked for."""


@dataclass(frozen=True, slots=True)
class Brokers:
    """Where the brokers are, and how the controllers find them."""

    znodes: tuple[BrokerZnode, ...]
    settings: Mapping[str, str]
    """Settings of the controllers."""

    @property
    def listener(self) -> str:
        """The listener to which a controller connects: its own inter-broker listener (``ControllerChannelManager``).

        Kafka writes the names of listeners in capitals (``ListenerName.normalised``).
        """
        default = self.settings.get("security.inter.broker.protocol", "").strip() or "PLAINTEXT"
        return (self.settings.get("inter.broker.listener.name", "").strip() or default).upper()

    def endpoint(self, broker: int) -> Endpoint | Unobserved:
        """Return where a broker is reached."""
        znode = next((znode for znode in self.znodes if znode.id == broker), None)
        if znode is None:
            return Unobserved(f"broker {broker}", "it is not registered in ZooKeeper (/brokers/ids)")
        found = next((each for each in znode.endpoints if each.listener == self.listener), None)
        return found or Unobserved(f"broker {broker}", f"it advertises no listener {self.listener} in ZooKeeper")


def tried(
    kubernetes: ReadPort, migration: Migration, clients: ClusterClients, pods: Sequence[PodState], brokers: Brokers
) -> Paths:
    """Return which brokers each controller's pod reaches; this opens connections, and sends nothing over them.

    Raises
    ------
    ObservationError
        The log servers cannot be asked, because there are no controllers or no token.
    """
    status = migration.status
    identity = migration.identity
    if status.controllers is None:
        raise ObservationError("controllers", "there are none")
    access = log_access(kubernetes, identity.namespace, status.controllers.name)
    if access is None:
        secret = names.log_reader_secret(status.controllers.name)
        raise ObservationError(f"Secret {identity.namespace}/{secret}", "it has no token")
    ends = {broker: brokers.endpoint(broker) for broker in sorted(status.broker_ids.values())}
    hosts = names.controller_hosts(
        status.controllers.name, identity.namespace, status.controllers.node_ids, identity.cluster_domain
    )
    running = {pod.ordinal for pod in pods}

    def ask(node_id: int) -> dict[int, Path | Unobserved] | Unobserved:
        if node_id not in running:
            return Unobserved(f"controller {node_id}", "its pod was not seen")
        return _ways(clients, hosts[node_id], access, ends)

    with ThreadPoolExecutor(len(hosts), "paths") as pool:
        ways = dict(zip(hosts, pool.map(ask, hosts), strict=True))
    closed = {broker for each in ways.values() if not isinstance(each, Unobserved) for broker in _closed(each)}
    ended = [pod for pod, broker in sorted(status.broker_ids.items(), key=lambda item: item[1]) if broker in closed]
    policies: dict[str, tuple[str, ...]] | Unobserved = {}
    if ended:
        policies = _policies(kubernetes, identity, ended, [pod.name for pod in pods])
    return Paths(brokers.listener, ways, policies)


def _ways(
    clients: ClusterClients, host: str, access: tuple[str, str], ends: Mapping[int, Endpoint | Unobserved]
) -> dict[int, Path | Unobserved] | Unobserved:
    known = {broker: end for broker, end in ends.items() if isinstance(end, Endpoint)}
    try:
        failures = clients.try_paths(host, *access, [(end.host, end.port) for end in known.values()])
    except ObservationError as error:
        return Unobserved(error.source, error.reason)
    found = {
        broker: Path(f"{bracketed(end.host)}:{end.port}", failure)
        for (broker, end), failure in zip(known.items(), failures, strict=True)
    }
    lacking = {broker: end for broker, end in ends.items() if isinstance(end, Unobserved)}
    return {**found, **lacking}


def _closed(ways: Mapping[int, Path | Unobserved]) -> list[int]:
    return [broker for broker, way in ways.items() if isinstance(way, Path) and way.failure]


def _policies(
    kubernetes: ReadPort, identity: Identity, brokers: Sequence[str], controllers: Sequence[str]
) -> dict[str, tuple[str, ...]] | Unobserved:
    """Return the NetworkPolicies that say what comes in to brokers' pods, and what goes out of controllers' pods.

    They add up: what none of them admits is closed (Kubernetes, "Network Policies").
    """
    ends = [(pod, "Ingress") for pod in brokers[:_MOST_PODS]] + [(pod, "Egress") for pod in controllers[:_MOST_PODS]]
    try:
        policies = kubernetes.list("networking.k8s.io/v1", "NetworkPolicy", identity.namespace)
        return {pod: _selecting(policies, kubernetes, identity.namespace, pod, way) for pod, way in ends}
    except ObservationError as error:
        return Unobserved(error.source, error.reason)


def _selecting(
    policies: Sequence[Object], kubernetes: ReadPort, namespace: str, pod: str, direction: str
) -> tuple[str, ...]:
    labels = section(kubernetes.get("v1", "Pod", namespace, pod), "metadata", "labels")
    return tuple(
        policy["metadata"]["name"]
        for policy in policies
        if direction in _directions(policy) and selects(section(policy, "spec", "podSelector"), labels)
    )


def _directions(policy: Mapping[str, Any]) -> Sequence[str]:
    """Return what a policy is about; without ``policyTypes`` what comes in, and what goes out where it has rules."""
    spec = section(policy, "spec")
    stated: Sequence[str] = spec.get("policyTypes") or ()
    return stated or ("Ingress", *(("Egress",) if spec.get("egress") else ()))
