"""Why the API server refuses the pods of Jobs and StatefulSets, as the real controllers report it, and what the user is told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.every_pod import run_facts, spec_with
from tests.support.observations import IDENTITY, RUN_ID

from kraftbridge.builders import names, verification
from kraftbridge.models.observation import RunState, VerificationRun
from kraftbridge.models.phase import Phase
from kraftbridge.models.report import Profile
from kraftbridge.models.spec import MigrationSpec, Runner
from kraftbridge.models.status import MigrationStatus, VerificationStatus
from kraftbridge.phases.draft import Identity
from kraftbridge.services.observe.pod_refusals import LACKING_SECONDS, PodRefusals
from kraftbridge.services.observe.runs import last_run
from kraftbridge.storage.kubernetes import KubernetesStore

from .conftest import Cluster, eventually

NAMESPACE = "chart-test-refused"
ACCOUNT = "verifier-that-nobody-made"


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    cluster.run("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait")
    cluster.do("create", "namespace", NAMESPACE)
    yield NAMESPACE
    cluster.run("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=false")


@pytest.fixture
def store(cluster: Cluster) -> Iterator[KubernetesStore]:
    found = KubernetesStore.connect(cluster.environment.get("KUBECONFIG"), cluster.context)
    yield found
    found.close()


def refused(store: KubernetesStore, *objects: dict[str, Any], wanted: MigrationSpec | None = None) -> str:
    """Create the Job and the ConfigMap of a verification as the operator does; return what it observes of a run that cannot start."""
    facts = run_facts(namespace=NAMESPACE, generation=1, controllers="controllers", service_account=ACCOUNT)
    job = verification.application(wanted or spec_with(), facts, Runner.JOB)
    job["metadata"].pop("ownerReferences", None)  # the garbage collector deletes what an absent one owns
    name = names.verification_config_map(RUN_ID)
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": NAMESPACE}}
    for each in (*objects, config_map, job):
        store.apply(each, force=True)
    record = VerificationStatus(
        run_id=RUN_ID, profile=Profile.DUAL_WRITE, gate=Phase.ROLLING_BROKERS, purpose="entry", generation=1,
        launched_at="2026-11-23T19:00:00Z", report=name,
    )  # fmt: skip
    status = MigrationStatus(verifications=(record,), verification_count=1)
    identity = Identity(NAMESPACE, IDENTITY.name, IDENTITY.uid, 1)
    seen: list[VerificationRun] = []

    def cannot_start() -> bool:
        seen.append(last_run(store, identity, status))
        return seen[-1].state is RunState.CANNOT_START

    eventually(cannot_start, "the run cannot start", 60)
    assert {s.state for s in seen} <= {RunState.PENDING, RunState.CANNOT_START}
    return seen[-1].message


def of(kind: str, api_version: str, name: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, **more}


def test_a_service_account_that_is_missing_is_named(namespace: str, store: KubernetesStore) -> None:
    message = refused(store)
    assert f'serviceaccount "{ACCOUNT}" not found' in message
    assert message.startswith(f"Job {RUN_ID} has no pod, because the API server refuses it: ")
    assert message.endswith(
        f"Create the service account in namespace {namespace}, or name another one in spec.verification.serviceAccount"
    )


def test_a_quota_that_is_used_up_is_named(namespace: str, store: KubernetesStore) -> None:
    quota = of("ResourceQuota", "v1", "no-pods", spec={"hard": {"pods": "0"}})
    store.apply(quota, force=True)

    def counted() -> bool:
        found = store.get("v1", "ResourceQuota", namespace, "no-pods") or {}
        return "pods" in ((found.get("status") or {}).get("hard") or {})

    eventually(counted, "the quota is in force")
    message = refused(store, of("ServiceAccount", "v1", ACCOUNT))
    assert "exceeded quota: no-pods" in message
    assert f"Raise the ResourceQuota of namespace {namespace}" in message


def test_a_standard_that_the_pod_does_not_meet_is_named(
    cluster: Cluster, namespace: str, store: KubernetesStore
) -> None:
    cluster.do("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    root = spec_with(pods={"securityContext": {"runAsUser": 0, "runAsNonRoot": False}})
    message = refused(store, of("ServiceAccount", "v1", ACCOUNT), wanted=root)
    assert 'violates PodSecurity "restricted:latest"' in message
    assert "change spec.pods.securityContext" in message


def test_a_quota_that_keeps_a_broker_away_is_quoted(namespace: str, store: KubernetesStore) -> None:
    store.apply(of("ResourceQuota", "v1", "no-pods", spec={"hard": {"pods": "0"}}), force=True)
    labels = {"app": "kafka"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "kafka", "image": "kafka"}]}}
    spec = {"serviceName": "kafka", "replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    made = store.apply(of("StatefulSet", "apps/v1", "kafka", spec=spec), force=True)
    refusals = PodRefusals(store)
    assert refusals.of(made, 1) == ""
    eventually(lambda: "exceeded quota: no-pods" in refusals.of(made, 0), "the quota is named", LACKING_SECONDS + 60)
    assert refusals.of(made, 1) == "", "its pod exists: what was refused before is over"
