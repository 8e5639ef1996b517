"""Limits and habits of a real API server that the operator relies on: evictions, the size of a status, Secrets' versions, what is left behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tests.support.observations import open_gate, spec_document

from kraftbridge.exceptions import TooLargeError
from kraftbridge.models.observation import TopicRedundancy
from kraftbridge.models.phase import Phase
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.models.status import ControllersStatus, MigrationStatus
from kraftbridge.phases.draft import Identity, Migration
from kraftbridge.services.act import removal
from kraftbridge.services.clients import credentials_version
from kraftbridge.storage.kubernetes import KubernetesStore

from .conftest import GROUP, NAMESPACE, PLURAL, Cluster

API_VERSION = f"{GROUP}/v1alpha1"
KIND = "KafkaMigration"
MANY = 4000
LONG_GRACE_SECONDS = 1800
SPEC: dict[str, Any] = {**spec_document(), "controllers": {}}


@pytest.fixture(scope="module")
def store(cluster: Cluster) -> Iterator[KubernetesStore]:
    found = KubernetesStore.connect(cluster.environment.get("KUBECONFIG"), cluster.context)
    yield found
    found.close()


def migration(store: KubernetesStore, name: str, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": NAMESPACE}
    made = store.create({"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": SPEC | spec})
    assert made is not None
    return made


@pytest.mark.parametrize(("asked", "kept"), [(300, LONG_GRACE_SECONDS), (3600, 3600)])
def test_an_eviction_does_not_shorten_a_grace_period(
    cluster: Cluster, store: KubernetesStore, asked: int, kept: int
) -> None:
    """An eviction's ``gracePeriodSeconds`` replaces the pod's own. The pod is bound to a node, else the server deletes it at once."""
    name = f"broker-{asked}"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "nodeName": "no-such-node",
            "terminationGracePeriodSeconds": LONG_GRACE_SECONDS,
            "containers": [{"name": "kafka", "image": "localhost/none:1"}],
        },
    }
    cluster.apply(pod)
    try:
        store.evict(NAMESPACE, name, cluster.get("pod", name)["metadata"]["uid"], asked)
        assert cluster.get("pod", name)["metadata"]["deletionGracePeriodSeconds"] == kept
    finally:
        cluster.do("delete", "pod", name, "--grace-period=0", "--force")


def test_a_status_with_four_thousand_findings_is_accepted(cluster: Cluster, store: KubernetesStore) -> None:
    """What `decide` publishes of them is small; the report has them all (``tests/unit/services/test_bounds.py``)."""
    topics = tuple(f"a-topic-with-a-rather-long-name-{i}" for i in range(MANY))
    redundancy = TopicRedundancy(replication_factor_one=topics, at_min_isr=())
    decision = open_gate(Phase.PREFLIGHT).observing(redundancy=redundancy).decide()
    assert decision.status.findings_report is not None
    assert decision.status.findings_report.total >= MANY
    body = decision.status.model_dump(mode="json", by_alias=True, exclude_none=True)
    made = migration(store, "many-findings")
    try:
        version = made["metadata"]["resourceVersion"]
        store.replace_status(API_VERSION, KIND, NAMESPACE, "many-findings", body, version)
        kept = cluster.get(PLURAL, "many-findings")
        assert len(kept["status"]["findings"]) == 100
        assert len(json.dumps(kept)) < 300_000
    finally:
        cluster.do("delete", PLURAL, "many-findings")


@pytest.mark.parametrize("size", [1_700_000, 4_000_000], ids=["for etcd", "for the API server"])
def test_what_is_too_large_is_called_so(store: KubernetesStore, size: int) -> None:
    """etcd takes 1.5 MiB, an API server's request 3 MiB; both refuse in words of their own."""
    with pytest.raises(TooLargeError):
        migration(store, "too-large", controllers={"affinity": {"padding": "x" * size}})


def test_a_rotated_secret_has_another_version(cluster: Cluster, store: KubernetesStore) -> None:
    """The reconciler opens the connections anew once this changes (``tests/unit/services/test_bounds.py``)."""
    spec = MigrationSpec.model_validate(
        SPEC | {"zookeeper": {"connect": "zk:2181", "secretName": "zookeeper-credentials"}}
    )
    assert credentials_version(store, NAMESPACE, "controllers", spec) is None
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "zookeeper-credentials", "namespace": NAMESPACE},
    }
    cluster.apply({**secret, "stringData": {"password": "one"}})
    first = credentials_version(store, NAMESPACE, "controllers", spec)
    cluster.apply({**secret, "stringData": {"password": "one"}})
    assert credentials_version(store, NAMESPACE, "controllers", spec) == first, "nothing changed"
    cluster.apply({**secret, "stringData": {"password": "two"}})
    second = credentials_version(store, NAMESPACE, "controllers", spec)
    cluster.do("delete", "secret", "zookeeper-credentials")
    assert credentials_version(store, NAMESPACE, "controllers", spec) is None
    cluster.apply({**secret, "stringData": {"password": "two"}})
    third = credentials_version(store, NAMESPACE, "controllers", spec)
    assert None not in (first, second, third)
    assert len({first, second, third}) == 3


def test_what_an_abandoned_migration_leaves_is_listed_in_a_config_map(cluster: Cluster, store: KubernetesStore) -> None:
    identity = Identity(NAMESPACE, "left", "0a0b0c0d-0000-4000-8000-000000000000", 1, deleting=True)
    name = "left-kraft-0a0b0c0d"
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": f"data-{name}-3000", "namespace": NAMESPACE},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Mi"}},
            "storageClassName": "none",
        },
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"clusterIP": "None", "ports": [{"port": 9093}]},
    }
    cluster.apply(claim, service)
    controllers = ControllersStatus(name=name, node_ids=(3000, 3001, 3002))
    status = MigrationStatus(phase=Phase.DUAL_WRITE, controllers=controllers)
    found = removal.config_map(store, Migration(identity, MigrationSpec.model_validate(SPEC), status))
    assert found is not None
    store.apply(found, force=True)
    kept = yaml.safe_load(cluster.get("configmap", found["metadata"]["name"])["data"][removal.LEFT_BEHIND_KEY])
    assert set(kept["objects"]) == {f"PersistentVolumeClaim/data-{name}-3000", f"Service/{name}"}
    assert kept["znodes"] == ["/controller", "/migration"]
    cluster.do("delete", f"service/{name}", f"persistentvolumeclaim/data-{name}-3000", "--wait=false")
