"""The pods of a dry start on a real API server: accepted, kept as they were sent, and let go by removing their scheduling gate."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.builders.test_dry_start import EACH, FACTS

from kraftbridge.builders.dry_start import additions, copy_pod, network_policy, probe_pod, run_secret

from .conftest import NAMESPACE, Cluster, eventually

OURS = replace(FACTS, namespace=NAMESPACE)
PODS = {"copy": copy_pod(OURS, EACH), "probe": probe_pod(OURS, OURS.closed)}


@pytest.fixture(autouse=True)
def account(cluster: Cluster) -> Iterator[None]:
    """Give the namespace its default account, which a controller makes where one runs."""
    cluster.run("create", "serviceaccount", "default")
    eventually(lambda: cluster.run("get", "serviceaccount", "default").returncode == 0, "the default account")
    yield
    for pod in PODS.values():
        cluster.run("delete", "pod", pod["metadata"]["name"], "--ignore-not-found", "--grace-period=0", "--force")


def created(cluster: Cluster, obj: dict[str, Any]) -> dict[str, Any]:
    return dict(json.loads(cluster.do("create", "--filename", "-", "--output", "json", stdin=json.dumps(obj))))


@pytest.mark.parametrize("pod", PODS.values(), ids=PODS)
def test_a_pod_is_kept_as_it_was_sent_and_waits_for_its_gate(cluster: Cluster, pod: dict[str, Any]) -> None:
    made = created(cluster, pod)
    assert additions(pod, made) == ()
    assert made["spec"]["schedulingGates"] == pod["spec"]["schedulingGates"]
    name = pod["metadata"]["name"]
    cluster.do("patch", "pod", name, "--type", "merge", "--patch", json.dumps({"spec": {"schedulingGates": None}}))
    assert not cluster.get("pod", name)["spec"].get("schedulingGates")


def test_policy_and_secret_are_accepted_again_and_again(cluster: Cluster) -> None:
    for copies in ([EACH], []):
        cluster.apply(network_policy(OURS), run_secret(OURS, "salt", copies))
    assert list(cluster.get("secret", "main-dry-start")["data"]) == ["salt"]
    assert cluster.get("networkpolicy", "main-dry-start")["spec"]["policyTypes"] == ["Ingress", "Egress"]
