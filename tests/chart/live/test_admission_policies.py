"""The admission policies on a real API server: who may change a locked StatefulSet, and what the others are told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from .conftest import GROUP, NAMESPACE, OPERATOR, PLURAL, SOMEBODY, Cluster, eventually

LOCK = f"{GROUP}/locked-by"
LOCK_VALUE = f"{NAMESPACE}/migration/0b0e3c5e"


def stateful_set(name: str, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": annotations or {}},
        "spec": {
            "replicas": 0,
            "serviceName": name,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "kafka", "image": "none:1", "env": [{"name": "A", "value": "1"}]}]},
            },
        },
    }


@pytest.fixture(scope="module")
def locked(cluster: Cluster) -> Iterator[str]:
    """Return the name of a StatefulSet that is locked by the operator, once the policy is in force."""
    cluster.apply(stateful_set("kafka"), stateful_set("free"))
    cluster.do("annotate", "statefulset", "kafka", f"{LOCK}={LOCK_VALUE}", user=OPERATOR)
    attempt = ("annotate", "statefulset", "kafka", f"{LOCK}=x", "--overwrite", "--dry-run=server")
    eventually(lambda: cluster.run(*attempt, user=SOMEBODY).returncode != 0, "the policy takes effect")
    yield "kafka"
    cluster.do("delete", "statefulset", "kafka", "free", user=OPERATOR)


CHANGES = {
    "spec.template": {"template": {"spec": {"containers": [{"name": "kafka", "env": [{"name": "A", "value": "2"}]}]}}},
    "spec.updateStrategy": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}},
    "spec.replicas": {"replicas": 1},
    "spec.ordinals": {"ordinals": {"start": 1}},
    "spec.persistentVolumeClaimRetentionPolicy": {
        "persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete", "whenDeleted": "Delete"}
    },
}


@pytest.mark.parametrize("field", CHANGES)
def test_others_are_told_who_holds_the_lock_and_how_to_go_on(cluster: Cluster, locked: str, field: str) -> None:
    patch = json.dumps({"spec": CHANGES[field]})
    answer = cluster.refused("patch", "statefulset", locked, "--patch", patch, user=SOMEBODY)
    assert f"StatefulSet {NAMESPACE}/kafka is locked by KafkaMigration {NAMESPACE}/migration" in answer
    assert f"{field} cannot be changed now" in answer
    assert "roll it back with spec.target ZooKeeper" in answer


@pytest.mark.parametrize("field", CHANGES)
def test_the_operator_may(cluster: Cluster, locked: str, field: str) -> None:
    cluster.do(
        "patch",
        "statefulset",
        locked,
        "--patch",
        json.dumps({"spec": CHANGES[field]}),
        "--dry-run=server",
        user=OPERATOR,
    )


@pytest.mark.parametrize("field", CHANGES)
def test_statefulsets_without_a_lock_are_free(cluster: Cluster, locked: str, field: str) -> None:
    cluster.do(
        "patch",
        "statefulset",
        "free",
        "--patch",
        json.dumps({"spec": CHANGES[field]}),
        "--dry-run=server",
        user=SOMEBODY,
    )


def test_a_rolling_restart_is_refused(cluster: Cluster, locked: str) -> None:
    assert "spec.template cannot be changed now" in cluster.refused(
        "rollout", "restart", f"statefulset/{locked}", user=SOMEBODY
    )


@pytest.mark.parametrize("change", [f"{LOCK}-", f"{LOCK}=other/one/1"])
def test_the_lock_cannot_be_taken_away(cluster: Cluster, locked: str, change: str) -> None:
    answer = cluster.refused("annotate", "statefulset", locked, change, "--overwrite", user=SOMEBODY)
    assert f"annotation {LOCK} may not be changed" in answer
    assert f"--as={OPERATOR}" in answer


def test_an_owner_that_does_not_exist_is_refused(cluster: Cluster, locked: str) -> None:
    """The garbage collector would delete the StatefulSet, and the policy admits the garbage collector."""
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "00000000-0000-0000-0000-000000000000"}
    patch = json.dumps({"metadata": {"ownerReferences": [owner]}})
    answer = cluster.refused("patch", "statefulset", locked, "--type", "merge", "--patch", patch, user=SOMEBODY)
    assert "metadata.ownerReferences cannot be changed now" in answer
    cluster.do(
        "patch", "statefulset", "free", "--type", "merge", "--patch", patch, "--dry-run=server", user=SOMEBODY
    )  # fmt: skip


def test_harmless_changes_are_admitted(cluster: Cluster, locked: str) -> None:
    cluster.do("label", "statefulset", locked, "team=kafka", "--overwrite", "--dry-run=server", user=SOMEBODY)
    cluster.do("annotate", "statefulset", locked, "note=x", "--overwrite", "--dry-run=server", user=SOMEBODY)


def test_an_unchanged_manifest_can_be_applied_again(cluster: Cluster, locked: str) -> None:
    # What `helm upgrade` and `kubectl apply` do when nothing about the brokers changed.
    manifest = json.dumps(stateful_set(locked))
    cluster.do("apply", "--server-side", "--force-conflicts", "--filename", "-", stdin=manifest, user=SOMEBODY)


@pytest.mark.parametrize("existing", [True, False], ids=["update", "create"])
def test_only_the_operator_sets_a_lock(cluster: Cluster, locked: str, *, existing: bool) -> None:
    manifest = json.dumps(stateful_set("free" if existing else "restored", {LOCK: LOCK_VALUE}))
    answer = cluster.refused(
        "apply", "--server-side", "--force-conflicts", "--filename", "-", stdin=manifest, user=SOMEBODY
    )
    assert f"annotation {LOCK} is set by the kraftbridge operator only" in answer


def test_the_statefulset_controller_is_not_concerned(cluster: Cluster, locked: str) -> None:
    eventually(
        lambda: cluster.get("statefulset", locked)["status"].get("observedGeneration", 0) >= 1,
        "the StatefulSet controller writes the status of a locked StatefulSet",
    )


def test_scaling_is_refused_while_a_migration_holds_it(cluster: Cluster, locked: str) -> None:
    migration = {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "KafkaMigration",
        "metadata": {"name": "migration", "namespace": NAMESPACE},
        "spec": {
            "target": "KRaft",
            "zookeeper": {"connect": "zookeeper:2181"},
            "brokers": {"statefulSets": [{"name": locked}], "bootstrapServers": "kafka:9092"},
        },
    }
    cluster.apply(migration)
    scale = ("scale", "statefulset", locked, "--replicas=1")
    try:
        set_phase(cluster, "DualWrite")
        # The API server learns of a CRD that is as new as ours here only after a while.
        eventually(
            lambda: cluster.run(*scale, "--dry-run=server", user=SOMEBODY).returncode != 0, "scaling is refused", 60
        )
        answer = cluster.refused(*scale, user=SOMEBODY)
        assert f"is locked by KafkaMigration {NAMESPACE}/migration" in answer
        assert "it cannot be scaled now" in answer
        cluster.do("scale", "statefulset", "free", "--replicas=1", "--dry-run=server", user=SOMEBODY)
        # To zero and back: a Scale leaves zero out, which a careless expression takes for an error.
        cluster.do(*scale, user=OPERATOR)
        assert "it cannot be scaled now" in cluster.refused(
            "scale", "statefulset", locked, "--replicas=0", user=SOMEBODY
        )
        cluster.do("scale", "statefulset", locked, "--replicas=0", user=OPERATOR)
        set_phase(cluster, "Completed")
        eventually(
            lambda: cluster.run(*scale, "--dry-run=server", user=SOMEBODY).returncode == 0, "scaling is free again"
        )
    finally:
        cluster.do("delete", PLURAL, "migration")


def set_phase(cluster: Cluster, phase: str) -> None:
    assert cluster.patch("migration", {"status": {"phase": phase}}, dry_run=False) == ""
