"""The pods of a dry start on a real API server: accepted, kept as they were sent, and let go by removing their scheduling gate."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.builders.test_dry_start import EACH, FACTS

from kraftbridge.builders.dry_start_pods import (
    DryStartFacts,
    copy_pod,
    network_policy,
    probe_pod,
    run_secret,
)
from kraftbridge.copies.admission import additions

from .conftest import GROUP, NAMESPACE, PLURAL, Cluster, eventually
from .test_crd_rules import SPEC, manifest

OWNER = "dry-start-owner"


@pytest.fixture
def facts(cluster: Cluster) -> Iterator[DryStartFacts]:
    """Return what the pods are made from, owned by a resource that exists: the garbage collector deletes what an absent one owns."""
    cluster.run("create", "serviceaccount", "default")  # a controller makes it where one runs
    eventually(lambda: cluster.run("get", "serviceaccount", "default").returncode == 0, "the default account")
    cluster.apply(manifest(OWNER, SPEC))
    uid = cluster.get(PLURAL, OWNER)["metadata"]["uid"]
    made = replace(FACTS, namespace=NAMESPACE, migration=OWNER, uid=uid)
    yield made
    for pod in (copy_pod(made, EACH), probe_pod(made, made.closed)):
        cluster.run("delete", "pod", pod["metadata"]["name"], "--ignore-not-found", "--grace-period=0", "--force")
    cluster.run("delete", PLURAL, OWNER, "--ignore-not-found")


def owned(obj: dict[str, Any]) -> dict[str, Any]:
    """Return an object of the dry start with its owner in the tests' own API group."""
    (owner,) = obj["metadata"]["ownerReferences"]
    assert owner["kind"] == "KafkaMigration"
    return obj | {"metadata": obj["metadata"] | {"ownerReferences": [owner | {"apiVersion": f"{GROUP}/v1alpha1"}]}}


@pytest.mark.parametrize("what", ["copy", "probe"])
def test_a_pod_is_kept_as_it_was_sent_and_waits_for_its_gate(cluster: Cluster, facts: DryStartFacts, what: str) -> None:
    pod = owned(copy_pod(facts, EACH) if what == "copy" else probe_pod(facts, facts.closed))
    made = json.loads(cluster.do("create", "--filename", "-", "--output", "json", stdin=json.dumps(pod)))
    assert additions(pod, made) == ()
    assert made["spec"]["schedulingGates"] == pod["spec"]["schedulingGates"]
    name = pod["metadata"]["name"]
    cluster.do("patch", "pod", name, "--type", "merge", "--patch", json.dumps({"spec": {"schedulingGates": None}}))
    assert not cluster.get("pod", name)["spec"].get("schedulingGates")


def test_policy_and_secret_are_accepted_again_and_again(cluster: Cluster, facts: DryStartFacts) -> None:
    for copies in ([EACH], []):
        cluster.apply(owned(network_policy(facts)), owned(run_secret(facts, "salt", copies)))
    name = f"{OWNER}-dry-start"
    assert sorted(cluster.get("secret", name)["data"]) == ["api.json", "controllers", "salt"]
    assert cluster.get("networkpolicy", name)["spec"]["policyTypes"] == ["Ingress", "Egress"]
