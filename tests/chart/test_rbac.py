"""Rights: no wildcards, a reason beside each rule, and nothing that the design does not need."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftbridge.models.spec import MigrationSpec
from kraftbridge.services.observe.survey import needed_rights

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = ROOT / "helm/kraftbridge/templates"
FUNCTIONS = ("migrations", "brokers", "controllers", "verification")
NAMESPACED = {"watchNamespaces": ["kafka-a", "kafka-b"], "verifier": {"namespaces": ["kafka-a"]}}

Objects = dict[tuple[str, str], dict[str, Any]]
Render = Callable[..., Objects]


def rules(objects: Objects) -> Iterator[tuple[str, dict[str, Any]]]:
    for (kind, name), manifest in objects.items():
        if kind in ("Role", "ClusterRole"):
            for rule in manifest["rules"]:
                yield name, rule


def verbs(objects: Objects, role: str, group: str, resource: str) -> set[str]:
    """Return every verb that a role grants on a resource."""
    granted = set()
    for name, rule in rules(objects):
        if name == role and group in rule["apiGroups"] and resource in rule["resources"]:
            granted |= set(rule["verbs"])
    return granted


def operator_verbs(objects: Objects, group: str, resource: str) -> set[str]:
    return set().union(*(verbs(objects, f"kb-system.kb-{function}", group, resource) for function in FUNCTIONS))


@pytest.mark.parametrize("values", [{}, NAMESPACED], ids=["cluster-wide", "namespaced"])
def test_no_wildcards(render: Render, values: dict[str, Any]) -> None:
    seen = list(rules(render(values)))
    assert len(seen) > 20
    for name, rule in seen:
        assert set(rule) <= {"apiGroups", "resources", "verbs", "resourceNames"}, name
        for part in rule.values():
            assert not [entry for entry in part if "*" in entry], f"{name}: {rule}"


@pytest.mark.parametrize("values", [{}, NAMESPACED], ids=["cluster-wide", "namespaced"])
def test_nobody_may_raise_their_own_rights(render: Render, values: dict[str, Any]) -> None:
    for name, rule in rules(render(values)):
        assert not set(rule["verbs"]) & {"escalate", "bind", "impersonate"}, name
        if (
            "rbac.authorization.k8s.io" in rule["apiGroups"]
        ):  # without escalate and bind: only rights that the operator has
            assert (re.split("[/.]", name)[-1], set(rule["verbs"])) == ("kb-verification", {"create"})
        assert not set(rule["resources"]) & {"pods/exec", "pods/attach", "serviceaccounts/token"}, name
        assert "nodes" not in rule["resources"] or rule["verbs"] == ["list"], name


@pytest.mark.parametrize("template", ["_rules.tpl", "rbac.yaml", "aggregated-roles.yaml", "pre-delete.yaml"])
def test_every_rule_has_its_reason_beside_it(template: str) -> None:
    lines = (TEMPLATES / template).read_text().splitlines()
    found = [number for number, line in enumerate(lines) if line.strip().startswith("- apiGroups:")]
    assert found
    for number in found:
        assert lines[number - 1].strip().startswith("# "), f"{template}:{number + 1} says no reason"


def test_cluster_wide_and_namespaced_grant_the_same_rules(render: Render) -> None:
    wide, narrow = render(), render(NAMESPACED)
    for function in FUNCTIONS:
        expected = wide["ClusterRole", f"kb-system.kb-{function}"]["rules"]
        for namespace in NAMESPACED["watchNamespaces"]:
            assert narrow["Role", f"{namespace}/kb-{function}"]["rules"] == expected


def test_namespaced_mode_has_no_cluster_wide_rights_but_reading_definitions(render: Render) -> None:
    bound = {name for kind, name in render(NAMESPACED) if kind == "ClusterRoleBinding"}
    assert bound == {"kb-system.kb-framework"}, "nor has the Job before an uninstallation"
    for _, rule in rules({("ClusterRole", "x"): render(NAMESPACED)["ClusterRole", "kb-system.kb-framework"]}):
        assert set(rule["verbs"]) <= {"get", "list", "watch"}


@pytest.mark.parametrize("values", [{}, NAMESPACED], ids=["cluster-wide", "namespaced"])
def test_every_binding_binds_an_existing_role_to_an_existing_account(render: Render, values: dict[str, Any]) -> None:
    objects = render(values)
    bindings = {key: m for key, m in objects.items() if key[0] in ("RoleBinding", "ClusterRoleBinding")}
    assert bindings
    for (kind, name), manifest in bindings.items():
        namespace = name.rpartition("/")[0]
        reference = manifest["roleRef"]
        role = (reference["kind"], "/".join(filter(None, [namespace, reference["name"]])))
        assert role in objects, f"{kind} {name}"
        for subject in manifest["subjects"]:
            assert ("ServiceAccount", f"{subject['namespace']}/{subject['name']}") in objects


@pytest.mark.parametrize(
    ("group", "resource", "expected"),
    [
        ("kraftbridge.dev", "kafkamigrations", {"get", "list", "watch", "patch", "update"}),
        ("kraftbridge.dev", "kafkamigrations/status", {"get", "patch", "update"}),
        (
            "kraftbridge.dev",
            "kafkamigrations/finalizers",
            set(),
        ),  # asked for with blockOwnerDeletion, which nothing sets
        ("", "events", {"create", "patch", "list"}),
        ("events.k8s.io", "events", {"create", "patch"}),
        ("apps", "statefulsets", {"get", "list", "watch", "create", "patch", "update", "delete"}),
        ("", "pods", {"get", "list", "watch", "create", "patch", "delete"}),
        ("", "pods/eviction", {"create"}),
        ("", "pods/log", {"get", "list"}),
        ("", "services", {"get", "list", "create", "patch", "update"}),
        ("", "configmaps", {"get", "list", "create", "patch", "update", "delete"}),
        ("", "secrets", {"get", "create", "patch", "update"}),
        ("", "persistentvolumeclaims", {"get", "list", "create"}),
        ("policy", "poddisruptionbudgets", {"get", "list", "create", "patch"}),
        ("networking.k8s.io", "networkpolicies", {"get", "list", "create", "patch", "update"}),
        ("sparkoperator.k8s.io", "sparkapplications", {"get", "list", "watch", "create", "patch", "delete"}),
        ("rbac.authorization.k8s.io", "roles", {"create"}),
        ("rbac.authorization.k8s.io", "rolebindings", {"create"}),
        ("batch", "jobs", {"get", "list", "watch", "create", "patch", "delete"}),
        ("", "resourcequotas", {"list"}),
        ("", "limitranges", {"list"}),
        ("coordination.k8s.io", "leases", {"get", "create", "patch", "update", "delete"}),
    ],
)
def test_what_the_operator_may_do(render: Render, group: str, resource: str, expected: set[str]) -> None:
    assert operator_verbs(render(), group, resource) == expected


@pytest.mark.parametrize("runner", ["SparkApplication", "Job"])
def test_preflight_asks_for_rights_that_the_chart_grants(render: Render, runner: str) -> None:
    objects = render()
    spec = MigrationSpec.model_validate(
        {
            "zookeeper": {"connect": "zookeeper:2181"},
            "brokers": {"statefulSets": [{"name": "kafka"}], "bootstrapServers": "kafka:9092"},
            "verification": {"runner": runner},
        }
    )
    wanted = needed_rights(spec, spark_operator=True)
    assert len(wanted) > 30
    for right in wanted:
        resource = f"{right.resource}/{right.subresource}" if right.subresource else right.resource
        assert right.verb in operator_verbs(objects, right.group, resource), str(right)


@pytest.mark.parametrize(("group", "resource"), [("", "nodes"), ("storage.k8s.io", "storageclasses")])
def test_cluster_scoped_surroundings_are_only_listed(render: Render, group: str, resource: str) -> None:
    for values in ({}, NAMESPACED):
        assert verbs(render(values), "kb-system.kb-framework", group, resource) == {"list"}


@pytest.mark.parametrize(
    ("group", "resource"),
    [("", "persistentvolumeclaims"), ("", "services"), ("", "secrets"), ("kraftbridge.dev", "kafkamigrations")],
)
def test_data_and_credentials_cannot_be_deleted(render: Render, group: str, resource: str) -> None:
    assert operator_verbs(render(), group, resource)
    assert not operator_verbs(render(), group, resource) & {"delete", "deletecollection"}


def test_statefulsets_are_never_deleted_in_bulk(render: Render) -> None:
    # A rollback deletes its own controllers' StatefulSet by name.
    assert "deletecollection" not in operator_verbs(render(), "apps", "statefulsets")
    assert "delete" not in verbs(render(), "kb-system.kb-brokers", "apps", "statefulsets")


def test_the_chart_gives_the_driver_no_right(render: Render) -> None:
    account = "kraftbridge-verifier"
    bound = [
        name
        for (kind, name), m in render(NAMESPACED).items()
        if kind.endswith("RoleBinding") and account in {subject["name"] for subject in m["subjects"]}
    ]
    assert bound == [], "the operator grants each run what it needs, by name"


def test_the_operator_may_grant_what_a_run_with_executors_needs(render: Render) -> None:
    # An account cannot grant more than it has (RBAC escalation prevention).
    assert operator_verbs(render(), "", "pods") >= {"get", "list", "watch", "create"}


@pytest.mark.parametrize(
    ("values", "namespaces"),
    [
        ({}, {"kb-system"}),
        ({"watchNamespaces": ["a", "b"]}, {"a", "b"}),
        ({"watchNamespaces": ["a", "b"], "verifier": {"namespaces": ["b"]}}, {"b"}),
        ({"verifier": {"namespaces": ["c", "d"]}}, {"c", "d"}),
    ],
)
def test_where_verifications_may_run(render: Render, values: dict[str, Any], namespaces: set[str]) -> None:
    found = {
        name.partition("/")[0]
        for kind, name in render(values)
        if kind == "ServiceAccount" and name.endswith("/kraftbridge-verifier")
    }
    assert found == namespaces


@pytest.mark.parametrize("values", [{}, NAMESPACED], ids=["cluster-wide", "namespaced"])
def test_the_hook_of_an_uninstallation_has_no_right_but_these(render: Render, values: dict[str, Any]) -> None:
    objects = render(values)
    roles = {key: m for key, m in objects.items() if key[0] in ("Role", "ClusterRole") and "let-go" in key[1]}
    granted = {
        (resource, verb, tuple(rule.get("resourceNames", ())))
        for manifest in roles.values()
        for rule in manifest["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert granted == {
        ("kafkamigrations", "get", ()),
        ("kafkamigrations", "list", ()),
        ("kafkamigrations", "patch", ()),
        ("deployments", "get", ("kb",)),
        ("deployments/scale", "patch", ("kb",)),
        ("pods", "list", ()),
    }
    account = ("ServiceAccount", "kb-system/kb-let-go")
    assert account in objects
    migrations = [m["metadata"].get("namespace") for m in roles.values() if "kafkamigrations" in str(m["rules"])]
    assert migrations == values.get("watchNamespaces", [None])


def test_people_get_rights_by_aggregation(render: Render) -> None:
    objects = render()
    view, edit = objects["ClusterRole", "kb-system.kb-view"], objects["ClusterRole", "kb-system.kb-edit"]
    assert verbs(objects, "kb-system.kb-view", "kraftbridge.dev", "kafkamigrations") == {"get", "list", "watch"}
    assert "kafkamigrations/status" not in edit["rules"][0]["resources"], "status is the operator's"
    assert view["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"] == "true"
    assert "rbac.authorization.k8s.io/aggregate-to-view" not in edit["metadata"]["labels"]
    without = render({"rbac": {"aggregateRoles": False}})
    assert ("ClusterRole", "kb-system.kb-view") not in without
