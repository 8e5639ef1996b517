"""What preflight alone looks at, read from the objects as the API server has them."""

from __future__ import annotations

import base64
import threading
import time
from typing import Any

import pytest
from tests.support.cert_manager import authority, secret
from tests.support.fakes import migration_object
from tests.support.observations import spec_document
from tests.unit.services.conftest import Operator

from kraftbridge.constants import KIND, LABEL_MIGRATION
from kraftbridge.exceptions import ActionError, ActionRefusedError, ObservationError
from kraftbridge.models.observation import Unobserved
from kraftbridge.models.phase import Phase
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.models.status import controllers_name
from kraftbridge.models.survey import Room, Survey, ZooKeeperUsers
from kraftbridge.phases.draft import Identity, Migration
from kraftbridge.services.clients import controllers_zookeeper_identities
from kraftbridge.services.observe import survey
from kraftbridge.services.observe.survey import Surveyor, writers_of


def survey_of(operator: Operator) -> Survey:
    operator.step()
    found = operator.reconciler._memories[operator.migration()["metadata"]["uid"]].survey
    assert found is not None
    return found[1]


def codes(operator: Operator) -> dict[str, str]:
    return {f.code: f.reason for f in operator.status().findings}


def add(operator: Operator, kind: str, name: str, namespace: str | None = "kafka", **fields: Any) -> None:
    operator.kubernetes.create({"kind": kind, "metadata": {"name": name, "namespace": namespace}, **fields})


def test_a_fresh_cluster_is_seen_whole(operator: Operator) -> None:
    found = survey_of(operator)
    for part in Survey.__slots__:
        assert not isinstance(getattr(found, part), Unobserved), part
    operator.walk(Phase.PROVISIONING_QUORUM)


def test_pods_of_the_migration_are_no_other_users_of_zookeeper(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected = ("10.0.0.7", "10.0.0.8", "10.0.0.9", "fd00::7")
    monkeypatch.setattr(operator.kafka, "users", lambda: ZooKeeperUsers(clients=connected))
    verifier = {"podIPs": [{"ip": "10.0.0.7"}, {"ip": "fd00::7"}]}
    for name, status, labels in (
        ("verifier", verifier, {LABEL_MIGRATION: "demo"}),
        ("waiting", {}, {LABEL_MIGRATION: "demo"}),
        ("other", {"podIPs": [{"ip": "10.0.0.8"}]}, {LABEL_MIGRATION: "another"}),
    ):
        metadata = {"name": name, "namespace": "kafka", "labels": labels}
        operator.kubernetes.create(
            {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": []}, "status": status}
        )
    assert survey_of(operator).zookeeper_users == ZooKeeperUsers(clients=("10.0.0.8", "10.0.0.9"))
    assert "Clients at 10.0.0.8, 10.0.0.9 have sessions" in codes(operator)["ZooKeeperClientsOfOthers"]
    operator.walk(Phase.PROVISIONING_QUORUM)


def test_a_silent_zookeeper_is_asked_once(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def silent() -> Any:
        asked.append("acls")
        raise ObservationError("ZooKeeper z:1", "silent")

    monkeypatch.setattr(operator.kafka, "acls", silent)
    monkeypatch.setattr(operator.kafka, "users", lambda: asked.append("users"))
    assert isinstance(survey_of(operator).zookeeper_users, Unobserved)
    assert asked == ["acls"]
    assert "ZooKeeperUsersUnknown" not in codes(operator)


SASL_USER = {"scheme": "sasl", "username": "kafka", "password": "p"}


@pytest.mark.parametrize(
    ("data", "identities"),
    [
        (SASL_USER, ("sasl:kafka",)),
        (SASL_USER | {"scheme": "digest"}, ()),
        (secret(authority(), common_name="kafka"), ("x509:CN=kafka",)),
        (SASL_USER | secret(authority(), common_name="kafka"), ("sasl:kafka", "x509:CN=kafka")),
        ({"ca.crt": authority().pem}, ()),
        (secret(authority()) | {"tls.crt": "-"}, ()),
    ],
)
def test_the_controllers_are_known_to_zookeeper_by_user_and_by_certificate(
    operator: Operator, data: dict[str, str], identities: tuple[str, ...]
) -> None:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    add(operator, "Secret", "zookeeper-client", apiVersion="v1", data=encoded)
    spec = MigrationSpec.model_validate(
        spec_document() | {"zookeeper": {"connect": "z:1", "secretName": "zookeeper-client"}}
    )
    assert controllers_zookeeper_identities(operator.kubernetes, "kafka", spec) == identities


def test_rights_are_asked_for_one_by_one(operator: Operator) -> None:
    operator.kubernetes.forbidden = {"create pods/eviction", "patch statefulsets.apps"}
    found = survey_of(operator)
    assert not isinstance(found.missing_rights, Unobserved)
    assert {str(r) for r in found.missing_rights} == operator.kubernetes.forbidden
    assert "create pods/eviction, patch statefulsets.apps" in codes(operator)["RightMissing"]


def test_what_the_api_server_does_not_tell_is_unknown_part_by_part(operator: Operator) -> None:
    def deny(verb: str, kind: str, _name: str) -> None:
        if verb == "list" and kind in {"Node", "ResourceQuota"}:
            raise ObservationError(f"{kind} objects", "403")

    operator.kubernetes.before_call = deny
    found = survey_of(operator)
    assert {p for p in Survey.__slots__ if isinstance(getattr(found, p), Unobserved)} == {"capacity", "quotas"}
    assert {"CapacityUnknown", "QuotasUnknown"} <= codes(operator).keys()


def test_quotas_count_what_is_left_and_only_those_that_count_us(operator: Operator) -> None:
    hard = {"pods": "10", "requests.memory": "8Gi"}
    add(
        operator,
        "ResourceQuota",
        "team",
        spec={"hard": hard},
        status={"used": {"pods": "8", "requests.memory": "512Mi"}},
    )
    add(operator, "ResourceQuota", "batch", spec={"hard": {"pods": "0"}, "scopes": ["Terminating"]})
    found = survey_of(operator)
    assert not isinstance(found.quotas, Unobserved)
    (quota,) = found.quotas
    assert quota.left == {"pods": 2, "requests.memory": (8 << 30) - (512 << 20)}
    assert "pods: the 3 controllers request 3, and 2 is left" in codes(operator)["QuotaTooSmall"]


def test_a_nodes_room_is_what_its_pods_leave(operator: Operator) -> None:
    requests = {"resources": {"requests": {"cpu": "1500m", "memory": "15Gi"}}}
    first = {"resources": {"requests": {"cpu": "3"}}}
    spec = {"nodeName": "node-1", "containers": [requests], "initContainers": [first]}
    add(operator, "Pod", "busy", "elsewhere", spec=spec, status={"phase": "Running"})
    add(operator, "Pod", "over", "elsewhere", spec=spec, status={"phase": "Succeeded"})
    found = survey_of(operator)
    assert not isinstance(found.capacity, Unobserved)
    assert found.capacity.rooms == (Room("node-1", {}, (), True, 1000, 1 << 30, 109),)
    assert found.capacity.all_pods_seen


def test_the_pods_of_the_cluster_are_listed_once_for_all_migrations(operator: Operator) -> None:
    operator.kubernetes.create(migration_object(spec_document(), name="other"))
    survey_of(operator)
    operator.reconciler.step("kafka", "other")
    listed = [c for c in operator.kubernetes.calls if c[:2] == ("list", "Node")]
    assert len(listed) == 1
    assert operator.reconciler._memories.keys() >= {
        operator.kubernetes.objects[KIND, "kafka", "other"]["metadata"]["uid"]
    }


def test_budgets_are_those_that_select_the_brokers(operator: Operator) -> None:
    status = {
        "disruptionsAllowed": 0,
        "expectedPods": 3,
        "currentHealthy": 3,
        "desiredHealthy": 3,
        "observedGeneration": 1,
    }
    selectors: dict[str, Any] = {
        "labels": {"matchLabels": {"app": "kafka"}},
        "expression": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["kafka", "x"]}]},
        "everything": {},
        "other": {"matchLabels": {"app": "web"}},
        "not-ours": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["kafka"]}]},
        "absent": {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]},
    }
    for name, selector in selectors.items():
        add(operator, "PodDisruptionBudget", name, spec={"selector": selector}, status=status)
    found = survey_of(operator)
    assert not isinstance(found.budgets, Unobserved)
    assert {b.name for b in found.budgets} == {"labels", "expression", "everything"}
    assert {"DisruptionBudgetForbidsAll", "SeveralDisruptionBudgets"} <= codes(operator).keys()


def test_labels_of_pods_that_a_selector_of_the_brokers_matches_are_found(operator: Operator) -> None:
    selectors: dict[str, Any] = {
        "team": {"matchLabels": {"team": "shop"}},
        "all": {},
        "other": {"matchLabels": {"a": "b"}},
    }
    for name, selector in selectors.items():
        add(operator, "PodDisruptionBudget", name, spec={"selector": selector}, status={})
    operator.migration()["spec"]["pods"] = {"labels": {"team": "shop", "app": "kafka"}}
    found = survey_of(operator)
    assert found.selecting == ("PodDisruptionBudget/team", "StatefulSet/kafka")
    assert "app=kafka, team=shop" in codes(operator)["PodLabelsSelected"]


def test_the_survey_is_kept_for_some_seconds(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    operator.kubernetes.forbidden = {"get pods"}
    first = survey_of(operator)
    assert survey_of(operator) is first
    monkeypatch.setattr("kraftbridge.services.observe.observer.SURVEY_EVERY_SECONDS", -1.0)
    operator.kubernetes.forbidden = set()
    assert survey_of(operator) is not first
    operator.walk(Phase.PROVISIONING_QUORUM)


def test_writers_are_named_from_marks_owners_and_managed_fields() -> None:
    template = {"f:spec": {"f:template": {}}}
    stateful_set = {
        "metadata": {
            "labels": {"helm.toolkit.fluxcd.io/name": "kafka"},
            "annotations": {"argocd.argoproj.io/tracking-id": "shop:apps/StatefulSet:kafka", "meta.helm.sh/release-name": "r"},
            "ownerReferences": [{"kind": "Kafka", "name": "shop", "controller": True}, {"kind": "App", "name": "x"}],
            "managedFields": [
                {"manager": "helm", "fieldsV1": template},
                {"manager": "kubectl-client-side-apply", "fieldsV1": template},
                {"manager": "kraftbridge", "fieldsV1": template},
                {"manager": "hpa", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
                {"manager": "kube-controller-manager", "subresource": "status", "fieldsV1": {"f:status": {}}},
            ],
        }
    }  # fmt: skip
    assert writers_of(stateful_set) == (
        "owner Kafka/shop",
        "Argo CD shop:apps/StatefulSet:kafka",
        "Flux HelmRelease kafka",
        "Helm release r",
        "field manager helm",
        "field manager kubectl-client-side-apply",
    )
    assert writers_of({"metadata": {}}) == ()


def test_an_object_that_cannot_be_understood_is_unknown(operator: Operator) -> None:
    add(operator, "LimitRange", "odd", spec={"limits": [{"type": "Container", "max": {"memory": "lots"}}]})
    found = survey_of(operator)
    assert isinstance(found.limits, Unobserved)
    assert "'lots' is not a quantity" in str(found.limits)


def test_nobody_waits_for_the_pods_of_the_whole_cluster_who_knows_an_older_answer(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large cluster's pods take seconds to list; one migration reads them, and the others go on."""
    surveyor = Surveyor(operator.kubernetes, operator.reconciler._settings, operator.reconciler._facts)
    known = surveyor._capacity("kafka")
    monkeypatch.setattr(survey, "CAPACITY_EVERY_SECONDS", 0.5)
    begun, may_end = threading.Event(), threading.Event()

    def slow(verb: str, kind: str, _name: str) -> None:
        if (verb, kind) == ("list", "Pod"):
            begun.set()
            assert may_end.wait(10)

    operator.kubernetes.before_call = slow
    time.sleep(0.55)
    reader = threading.Thread(target=surveyor._capacity, args=("kafka",))
    reader.start()
    assert begun.wait(10)
    started = time.monotonic()
    assert surveyor._capacity("kafka") is known
    assert time.monotonic() - started < 5
    may_end.set()
    reader.join(10)


def test_every_change_is_tried_and_each_refusal_is_told_once(operator: Operator) -> None:
    controllers = controllers_name("demo", operator.migration()["metadata"]["uid"], 1)

    def refuse(verb: str, kind: str, name: str) -> None:
        if verb == "try_apply" and (kind, name) in {("StatefulSet", "kafka"), ("Service", controllers)}:
            raise ActionRefusedError(f"dry run of an apply of {kind} {name} answered 403: webhook denied it")

    operator.kubernetes.before_call = refuse
    found = survey_of(operator).refused
    assert not isinstance(found, Unobserved)
    assert [c.object for c in found] == ["StatefulSet/kafka", f"Service/{controllers}"]
    tried = [(kind, name) for verb, kind, name in operator.kubernetes.calls if verb == "try_apply"]
    assert tried.count(("StatefulSet", "kafka")) == 2, "migration mode and KRaft mode"
    assert {kind for kind, name in tried if name.startswith(controllers)} >= {"StatefulSet", "Service", "ConfigMap"}
    assert codes(operator)["ChangeRefused"].endswith("webhook denied it")
    assert operator.status().phase is Phase.PREFLIGHT


def test_a_change_is_tried_again_when_it_differs_or_its_answer_is_old(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(survey.time, "monotonic", lambda: now[0])
    refusing = [True]

    def refuse(verb: str, kind: str, _name: str) -> None:
        if verb == "try_apply" and kind == "Service" and refusing[0]:
            raise ActionRefusedError("webhook denied it")

    operator.step()
    operator.kubernetes.before_call = refuse
    surveyor = Surveyor(operator.kubernetes, operator.reconciler._settings, operator.reconciler._facts)
    uid = operator.migration()["metadata"]["uid"]
    spec = [MigrationSpec.model_validate(spec_document())]

    def tried(seconds: float) -> tuple[set[str], bool]:
        now[0] += seconds
        before = len(operator.kubernetes.calls)
        found = surveyor._refused(Migration(Identity("kafka", "demo", uid, 1), spec[0], operator.status()))
        return {kind for verb, kind, _ in operator.kubernetes.calls[before:] if verb == "try_apply"}, bool(found)

    everything, refused = tried(0)
    assert refused
    assert everything >= {"StatefulSet", "Service", "ConfigMap"}
    assert tried(10) == (set(), True), "nothing has changed"
    assert tried(survey.REFUSED_FOR_SECONDS) == ({"Service"}, True)
    refusing[0] = False
    assert tried(survey.REFUSED_FOR_SECONDS + 1) == ({"Service"}, False), "the policy is corrected"
    changed = spec_document()
    changed["controllers"] = {**changed["controllers"], "heapOptions": "-Xms777m -Xmx777m"}
    spec[0] = MigrationSpec.model_validate(changed)
    assert "StatefulSet" in tried(1)[0], "the controllers differ"
    assert tried(survey.ACCEPTED_FOR_SECONDS + 1)[0] == everything


def test_an_api_server_that_does_not_answer_a_dry_run_closes_the_gate(operator: Operator) -> None:
    def fail(verb: str, _kind: str, _name: str) -> None:
        if verb == "try_apply":
            raise ActionError("failed calling webhook: deadline exceeded")

    operator.kubernetes.before_call = fail
    assert isinstance(survey_of(operator).refused, Unobserved)
    assert "deadline exceeded" in codes(operator)["ChangesUnknown"]
