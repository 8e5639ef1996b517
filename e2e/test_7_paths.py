"""A NetworkPolicy of the brokers' owner that does not know the controllers: named before the takeover, mended as the finding says, closed again between two brokers."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from e2e.harness.foreign import ForeignCluster
from e2e.harness.kube import Kube, eventually
from e2e.harness.migration import Migration, View, manifest
from e2e.harness.operator_install import migrated

NAMESPACE = "kafka-paths"
CLOSED = "InterBrokerPathClosed"
TIMEOUT_S = 600


def _policy(name: str, peers: list[dict[str, Any]], port: int | None = None) -> str:
    rule: dict[str, Any] = {"from": peers} | ({"ports": [{"protocol": "TCP", "port": port}]} if port else {})
    return json.dumps(
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"podSelector": {"matchLabels": {"app": "kafka"}}, "policyTypes": ["Ingress"], "ingress": [rule]},
        }
    )


OWNERS = _policy(
    "brokers-of-the-shop",
    [
        {
            "namespaceSelector": {},
            "podSelector": {
                "matchExpressions": [{"key": "kraftbridge.dev/role", "operator": "NotIn", "values": ["controller"]}]
            },
        }
    ],
)
"""Lets in whoever was there before."""


@pytest.fixture(scope="module")
def cluster(kube: Kube) -> Iterator[ForeignCluster]:
    foreign = ForeignCluster(kube, NAMESPACE)
    with migrated(foreign, unfinished=True):
        yield foreign


def _pods(cluster: ForeignCluster) -> dict[str, str]:
    return {p["metadata"]["name"]: p["metadata"]["uid"] for p in cluster.kube.list("pods", NAMESPACE, "app=kafka")}


def _seen(migration: Migration, what: str, holds: Any) -> View:
    def look() -> View | None:
        view = migration.view()
        return view if view is not None and view.status.get("conditions") and holds(view) else None

    found: View = eventually(look, what, TIMEOUT_S)
    return found


def _open_as_told(cluster: ForeignCluster, view: View) -> str:
    """Add the rule that the finding asks for; return the policy's name."""
    asked = re.search(r"with the labels (\S+)=(\S+) and (\S+)=(\S+) in at TCP port (\d+)", view.message)
    assert asked is not None, view.message
    labels = {asked[1]: asked[2], asked[3]: asked[4]}
    cluster.kube.apply(_policy("controllers", [{"podSelector": {"matchLabels": labels}}], int(asked[5])), NAMESPACE)
    return "controllers"


@pytest.mark.timeout(1800)
def test_no_broker_restarts_while_a_policy_keeps_the_controllers_from_one(cluster: ForeignCluster) -> None:
    cluster.kube.apply(OWNERS, NAMESPACE)
    before = _pods(cluster)
    cluster.kube.apply(json.dumps(manifest(cluster, target="DualWrite", runner="Job")), NAMESPACE)
    migration = Migration(cluster.kube, NAMESPACE)
    closed = _seen(migration, "the closed way is named", lambda view: CLOSED in view.message)
    assert closed.phase == "ProvisioningQuorum"
    assert "brokers-of-the-shop" in closed.message
    assert closed.condition("Stalled")["status"] == "True"
    assert _pods(cluster) == before

    policy = _open_as_told(cluster, closed)
    first = _seen(migration, "the first broker has restarted", lambda view: view.brokers.startswith("1/"))
    assert first.phase == "TakingOver"

    cluster.kube.kubectl("delete", "networkpolicy", policy, "-n", NAMESPACE)
    _seen(migration, "the way that closed again is named", lambda view: CLOSED in view.message)
    restarted = {name for name, uid in _pods(cluster).items() if uid != before[name]}
    again = _seen(migration, "it stays named", lambda view: CLOSED in view.message)
    assert {name for name, uid in _pods(cluster).items() if uid != before[name]} == restarted
    assert len(restarted) < len(before)

    _open_as_told(cluster, again)
    _seen(
        migration, "dual-write", lambda view: view.phase == "DualWrite" and view.condition("Ready")["status"] == "True"
    )
