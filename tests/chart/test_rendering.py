"""What the chart renders, for the default values and for each switch."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.metrics import MetricWrapperBase
from tests.chart.conftest import REGISTRY

from kraftbridge import __main__ as command_line
from kraftbridge.constants import METRICS_PORT
from kraftbridge.models.conditions import ConditionType
from kraftbridge.models.phase import Phase
from kraftbridge.services import metrics

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm/kraftbridge"
CRD = ("CustomResourceDefinition", "kafkamigrations.kraftbridge.dev")
DEPLOYMENT = ("Deployment", "kb-system/kb")
OPERATOR_USER = "system:serviceaccount:kb-system:kb"

EVERYTHING_ON: dict[str, Any] = {
    "imagePullSecrets": [{"name": "registry"}],
    "watchNamespaces": ["kafka-a", "kafka-b"],
    "operator": {
        "extraEnv": [{"name": "TZ", "value": "UTC"}],
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "infra", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "high",
        "podAnnotations": {"a": "b"},
        "podLabels": {"team": "kafka"},
    },
    "commonLabels": {"part-of": "kafka"},
    "admissionPolicy": {"exemptUsers": ["system:serviceaccount:ops:break-glass"]},
    "networkPolicy": {"metricsFrom": [{"podSelector": {}}], "egress": [{"ports": [{"port": 443}]}]},
    "metrics": {
        "serviceMonitor": {"enabled": True},
        "podMonitor": {"enabled": True, "from": [{"podSelector": {"matchLabels": {"app": "prometheus"}}}]},
        "prometheusRule": {"enabled": True, "alertLabels": {"team": "kafka"}, "runbookUrl": "http://runbooks/"},
        "dashboards": {"enabled": True},
    },
}
VALUE_SETS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "everything-on": EVERYTHING_ON,
    "everything-off": {
        "serviceAccount": {"create": False, "name": "mine"},
        "rbac": {"create": False},
        "crds": {"enabled": False},
        "admissionPolicy": {"enabled": False},
        "networkPolicy": {"enabled": False},
        "metrics": {"service": {"enabled": False}},
    },
}

Render = Callable[..., dict[tuple[str, str], dict[str, Any]]]


def environment(objects: dict[tuple[str, str], dict[str, Any]]) -> dict[str, Any]:
    container = objects[DEPLOYMENT]["spec"]["template"]["spec"]["containers"][0]
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container["env"]}


@pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS)
def test_lint_is_clean(helm: Callable[..., Any], values: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "values.yaml"
    path.write_text(yaml.safe_dump(REGISTRY | values))
    answer = helm("lint", "--strict", "--kube-version", "1.37.0", "--values", str(path), str(CHART))
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_the_defaults_render_exactly_these_objects(render: Render) -> None:
    assert sorted(render()) == [
        ("ClusterRole", "kb-system.kb-brokers"),
        ("ClusterRole", "kb-system.kb-controllers"),
        ("ClusterRole", "kb-system.kb-edit"),
        ("ClusterRole", "kb-system.kb-framework"),
        ("ClusterRole", "kb-system.kb-let-go"),
        ("ClusterRole", "kb-system.kb-migrations"),
        ("ClusterRole", "kb-system.kb-verification"),
        ("ClusterRole", "kb-system.kb-view"),
        ("ClusterRoleBinding", "kb-system.kb-brokers"),
        ("ClusterRoleBinding", "kb-system.kb-controllers"),
        ("ClusterRoleBinding", "kb-system.kb-framework"),
        ("ClusterRoleBinding", "kb-system.kb-let-go"),
        ("ClusterRoleBinding", "kb-system.kb-migrations"),
        ("ClusterRoleBinding", "kb-system.kb-verification"),
        CRD,
        DEPLOYMENT,
        ("Job", "kb-system/kb-let-go"),
        ("NetworkPolicy", "kb-system/kb"),
        ("Role", "kb-system/kb-let-go"),
        ("RoleBinding", "kb-system/kb-let-go"),
        ("Service", "kb-system/kb-metrics"),
        ("ServiceAccount", "kb-system/kb"),
        ("ServiceAccount", "kb-system/kb-let-go"),
        ("ServiceAccount", "kb-system/kraftbridge-verifier"),
        ("ValidatingAdmissionPolicy", "kb-system.kb-locked-statefulsets"),
        ("ValidatingAdmissionPolicy", "kb-system.kb-locked-statefulsets-hand-over"),
        ("ValidatingAdmissionPolicy", "kb-system.kb-locked-statefulsets-scale"),
        ("ValidatingAdmissionPolicyBinding", "kb-system.kb-locked-statefulsets"),
        ("ValidatingAdmissionPolicyBinding", "kb-system.kb-locked-statefulsets-hand-over"),
        ("ValidatingAdmissionPolicyBinding", "kb-system.kb-locked-statefulsets-scale"),
    ]


def test_everything_off_leaves_the_deployment_and_the_driver_account(render: Render) -> None:
    assert sorted(render(VALUE_SETS["everything-off"])) == [
        DEPLOYMENT,
        ("ServiceAccount", "kb-system/kraftbridge-verifier"),
    ]


@pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS)
def test_every_object_carries_the_charts_labels(render: Render, values: dict[str, Any]) -> None:
    for (kind, name), manifest in render(values).items():
        labels = manifest["metadata"]["labels"]
        assert labels["app.kubernetes.io/instance"] == "kb", f"{kind} {name}"
        assert labels["app.kubernetes.io/managed-by"] == "Helm"
        for key, value in values.get("commonLabels", {}).items():
            assert labels[key] == value


# ------------------------------------------------------------------------------------------------ CRD


def test_the_charts_copy_of_the_crd_is_byte_identical() -> None:
    assert (CHART / "files/crds/kafkamigrations.yaml").read_bytes() == (
        ROOT / "crds/kafkamigrations.yaml"
    ).read_bytes(), "run: make crds"


@pytest.mark.parametrize("keep", [True, False])
def test_the_rendered_crd_differs_from_the_file_in_labels_and_keep_only(render: Render, *, keep: bool) -> None:
    rendered = render({"crds": {"keep": keep}})[CRD]
    annotations = rendered["metadata"].pop("annotations", {})
    assert annotations == ({"helm.sh/resource-policy": "keep"} if keep else {})
    del rendered["metadata"]["labels"]
    assert rendered == yaml.safe_load((ROOT / "crds/kafkamigrations.yaml").read_text())


def test_no_number_of_the_crd_is_in_scientific_notation(render: Render, template: Callable[..., Any]) -> None:
    assert "maximum: 2000000000" in template().stdout
    assert "e+0" not in template().stdout


def test_nothing_but_the_crd_survives_an_uninstall_by_policy(render: Render) -> None:
    kept = [
        key
        for key, manifest in render().items()
        if "helm.sh/resource-policy" in manifest["metadata"].get("annotations", {})
    ]
    assert kept == [CRD]


# ------------------------------------------------------------------------------------------------ operator


def test_one_operator_at_a_time(render: Render) -> None:
    spec = render()[DEPLOYMENT]["spec"]
    assert spec["replicas"] == 1
    assert spec["strategy"] == {"type": "Recreate"}


HOOK = ("Job", "kb-system/kb-let-go")


def test_the_hook_of_an_uninstallation_runs_what_the_operators_image_has(render: Render) -> None:
    objects = render({"watchNamespaces": ["kafka-a", "kafka-b"]})
    pod = objects[HOOK]["spec"]["template"]["spec"]
    container, operators = pod["containers"][0], objects[DEPLOYMENT]["spec"]["template"]["spec"]["containers"][0]
    assert (container["image"], container["securityContext"]) == (operators["image"], operators["securityContext"])
    with pytest.raises(SystemExit, match="0"):
        command_line.main([container["args"][0], "--help"])
    given = dict(argument.removeprefix("--").split("=", 1) for argument in container["args"][1:])
    assert given["watched"] == "kafka-a,kafka-b"
    assert (given["release"], given["revision"]) == ("kb", "1")
    assert objects[HOOK]["metadata"]["annotations"]["helm.sh/hook-output-log-policy"] == "hook-failed"
    assert f"{given['namespace']}/{given['deployment']}" == DEPLOYMENT[1]
    wanted = dict(pair.split("=") for pair in given["pods"].split(","))
    labels = objects[DEPLOYMENT]["spec"]["template"]["metadata"]["labels"]
    assert wanted == objects[DEPLOYMENT]["spec"]["selector"]["matchLabels"]
    assert wanted.items() <= labels.items()
    assert not wanted.items() <= objects[HOOK]["spec"]["template"]["metadata"]["labels"].items(), "it waits for itself"


def test_the_hook_exists_during_an_uninstallation_only(render: Render) -> None:
    hooks = {key: m for key, m in render().items() if "let-go" in key[1]}
    assert len(hooks) == 6
    weights = {}
    for key, manifest in hooks.items():
        annotations = manifest["metadata"]["annotations"]
        assert annotations["helm.sh/hook"] == "pre-delete"
        assert "hook-failed" not in annotations["helm.sh/hook-delete-policy"], "the log of a refusal is read"
        weights[key] = int(annotations["helm.sh/hook-weight"])
    assert all(weight < weights[HOOK] for key, weight in weights.items() if key != HOOK)
    others = [m for key, m in render().items() if key not in hooks]
    assert not [m for m in others if "helm.sh/hook" in m["metadata"].get("annotations", {})]


def test_the_hook_ends_before_helm_gives_up(render: Render) -> None:
    spec = render()[HOOK]["spec"]
    assert 120 < spec["activeDeadlineSeconds"] < 300
    assert (spec["backoffLimit"], spec["template"]["spec"]["restartPolicy"]) == (0, "Never")


@pytest.mark.parametrize(
    "values", [{"uninstallHook": {"enabled": False}}, {"rbac": {"create": False}}], ids=["off", "without rights"]
)
def test_without_the_hook_nothing_of_it_is_left(render: Render, values: dict[str, Any]) -> None:
    assert [key for key in render(values) if "let-go" in key[1]] == []


def test_the_operators_environment(render: Render) -> None:
    assert environment(render()) == {
        "POD_NAME": {"fieldRef": {"fieldPath": "metadata.name"}},
        "POD_NAMESPACE": {"fieldRef": {"fieldPath": "metadata.namespace"}},
        "KRAFTBRIDGE_OPERATOR_IMAGE": "registry.example.com/kb/operator:0.1.0",
        "KRAFTBRIDGE_VERIFIER_IMAGE": "registry.example.com/kb/verifier:0.1.0",
        "KRAFTBRIDGE_VERIFIER_SERVICE_ACCOUNT": "kraftbridge-verifier",
        "KRAFTBRIDGE_NAMESPACES": "",
        "KRAFTBRIDGE_ADMISSION_POLICY": "kb-system.kb-locked-statefulsets",
        "KRAFTBRIDGE_DRY_START": "true",
        "KRAFTBRIDGE_OUTSIDE_ADDRESS": "1.1.1.1:443",
        "KRAFTBRIDGE_LOG_LEVEL": "info",
        "KRAFTBRIDGE_MAX_CONCURRENT_ROLLS": "5",
    }


def test_a_chart_from_the_sources_says_which_registry_it_needs(template: Callable[..., Any]) -> None:
    answer = template({"image": {"registry": ""}})
    assert answer.returncode != 0
    assert "image.registry is needed" in answer.stderr
    assert "make images REGISTRY=" in answer.stderr


def test_the_environment_follows_the_values(render: Render) -> None:
    digest = "sha256:" + "ab" * 32
    values = {
        "operator": {
            "image": {"repository": "localhost/op", "tag": "dev"},
            "logLevel": "debug",
            "extraEnv": [{"name": "X", "value": "1"}],
        },
        "verifier": {
            "image": {"repository": "localhost:5000/v", "tag": "dev", "digest": digest},
            "serviceAccount": {"name": "spark"},
        },
        "watchNamespaces": ["a", "b"],
        "admissionPolicy": {"enabled": False},
        "dryStart": {"enabled": False},
    }
    objects = render(values)
    variables = environment(objects)
    assert objects[DEPLOYMENT]["spec"]["template"]["spec"]["containers"][0]["image"] == "localhost/op:dev"
    assert variables["KRAFTBRIDGE_OPERATOR_IMAGE"] == "localhost/op:dev"
    assert variables["KRAFTBRIDGE_VERIFIER_IMAGE"] == f"localhost:5000/v@{digest}"
    assert variables["KRAFTBRIDGE_VERIFIER_SERVICE_ACCOUNT"] == "spark"
    assert variables["KRAFTBRIDGE_DRY_START"] == "false"
    assert variables["KRAFTBRIDGE_NAMESPACES"] == "a,b"
    assert variables["KRAFTBRIDGE_ADMISSION_POLICY"] == ""
    assert (variables["KRAFTBRIDGE_LOG_LEVEL"], variables["X"]) == ("debug", "1")


def test_the_pod_is_restricted(render: Render) -> None:
    pod = render()[DEPLOYMENT]["spec"]["template"]["spec"]
    assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert pod["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert [mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]] == ["/tmp"]


def test_probes_ask_kopf_and_ports_have_names(render: Render) -> None:
    container = render()[DEPLOYMENT]["spec"]["template"]["spec"]["containers"][0]
    assert container["args"] == ["run"]
    assert {port["name"]: port["containerPort"] for port in container["ports"]} == {"metrics": 8000, "health": 8080}
    for probe in ("livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"] == {"path": "/healthz", "port": "health"}


def test_scheduling_values_reach_the_pod(render: Render) -> None:
    pod = render(EVERYTHING_ON)[DEPLOYMENT]["spec"]["template"]
    assert pod["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert pod["spec"]["tolerations"] == [{"key": "infra", "operator": "Exists"}]
    assert pod["spec"]["priorityClassName"] == "high"
    assert pod["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    variables = {v["name"]: v.get("value") for v in pod["spec"]["containers"][0]["env"]}
    assert variables["KRAFTBRIDGE_IMAGE_PULL_SECRETS"] == "registry"
    assert pod["metadata"]["labels"]["team"] == "kafka"
    assert pod["metadata"]["annotations"]["a"] == "b"


def test_selectors_choose_the_operators_pod(render: Render) -> None:
    objects = render(EVERYTHING_ON)
    labels = objects[DEPLOYMENT]["spec"]["template"]["metadata"]["labels"]
    for selector in (
        objects[DEPLOYMENT]["spec"]["selector"]["matchLabels"],
        objects["Service", "kb-system/kb-metrics"]["spec"]["selector"],
        objects["NetworkPolicy", "kb-system/kb"]["spec"]["podSelector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()
    service_labels = objects["Service", "kb-system/kb-metrics"]["metadata"]["labels"]
    assert (
        objects["ServiceMonitor", "kb-system/kb"]["spec"]["selector"]["matchLabels"].items() <= service_labels.items()
    )


def test_long_release_names_still_fit(render: Render) -> None:
    name = "a" * 53
    for kind, object_name in render({}, release=name):
        longest = 253 if kind.startswith(("ValidatingAdmission", "CustomResource")) else 63
        assert len(object_name.rpartition("/")[2]) <= longest, f"{kind} {object_name}"


# ------------------------------------------------------------------------------------------------ policies


def test_the_policies_exempt_the_operator_and_who_is_named(render: Render) -> None:
    objects = render(EVERYTHING_ON)
    for suffix in ("", "-scale", "-hand-over"):
        policy = objects["ValidatingAdmissionPolicy", f"kb-system.kb-locked-statefulsets{suffix}"]["spec"]
        condition = next(c for c in policy["matchConditions"] if c["name"] == "not-the-operator")
        exempt = f"['{OPERATOR_USER}','system:serviceaccount:ops:break-glass']"
        assert condition["expression"] == f"!(request.userInfo.username in {exempt})"


def test_the_policies_are_bound_and_deny(render: Render) -> None:
    for values in ({}, EVERYTHING_ON):
        objects = render(values)
        for suffix in ("", "-scale", "-hand-over"):
            name = f"kb-system.kb-locked-statefulsets{suffix}"
            binding = objects["ValidatingAdmissionPolicyBinding", name]["spec"]
            assert binding["policyName"] == name
            assert binding["validationActions"] == ["Deny"]
            if values:
                (expression,) = binding["matchResources"]["namespaceSelector"]["matchExpressions"]
                assert expression["values"] == ["kafka-a", "kafka-b"]
            else:
                assert "matchResources" not in binding


def test_the_lock_policy_watches_what_configures_or_restarts_pods(render: Render) -> None:
    policy = render()["ValidatingAdmissionPolicy", "kb-system.kb-locked-statefulsets"]["spec"]
    assert policy["failurePolicy"] == "Fail"
    text = " ".join(validation["expression"] for validation in policy["validations"])
    for field in ("spec.template", "spec.updateStrategy", "spec.replicas"):
        assert f"object.{field} == oldObject.{field}" in text
    # What else can be changed in a StatefulSet (ValidateStatefulSetUpdate) and moves or deletes pods and volumes.
    for field in ("spec.?ordinals", "spec.?persistentVolumeClaimRetentionPolicy", "metadata.?ownerReferences"):
        assert f"object.{field} == oldObject.{field}" in text


def test_the_scale_policy_knows_the_phases_at_rest(render: Render) -> None:
    policy = render()["ValidatingAdmissionPolicy", "kb-system.kb-locked-statefulsets-scale"]["spec"]
    at_rest = ", ".join(f"'{phase}'" for phase in Phase if phase.at_rest)
    assert f"params.status.phase in [{at_rest}]" in policy["validations"][0]["expression"]
    assert policy["failurePolicy"] == "Ignore"


# ------------------------------------------------------------------------------------------------ metrics


def alerts(objects: dict[tuple[str, str], dict[str, Any]]) -> list[dict[str, Any]]:
    (group,) = objects["PrometheusRule", "kb-system/kb"]["spec"]["groups"]
    return list(group["rules"])


def test_controllers_are_scraped_by_the_named_prometheus_only(render: Render, template: Callable[..., Any]) -> None:
    peers = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    values = {"watchNamespaces": ["kafka-a", "kafka-b"], "metrics": {"podMonitor": {"enabled": True, "from": peers}}}
    objects = render(values)
    monitor = objects["PodMonitor", "kb-system/kb-controllers"]["spec"]
    assert monitor["namespaceSelector"]["matchNames"] == ["kafka-a", "kafka-b"]
    assert monitor["selector"]["matchLabels"] == {"kraftbridge.dev/role": "controller"}
    for namespace in ("kafka-a", "kafka-b"):
        policy = objects["NetworkPolicy", f"{namespace}/kb-controllers-metrics"]["spec"]
        assert policy["podSelector"]["matchLabels"] == {"kraftbridge.dev/role": "controller"}
        assert policy["ingress"] == [{"ports": [{"port": METRICS_PORT, "protocol": "TCP"}], "from": peers}]
    refused = template({"metrics": {"podMonitor": {"enabled": True}}})
    assert refused.returncode != 0
    assert "metrics.podMonitor.from" in refused.stderr


def test_every_alert_has_its_runbook_and_every_runbook_its_alert(render: Render) -> None:
    names = {alert["alert"] for alert in alerts(render(EVERYTHING_ON))}
    assert names == {path.stem for path in (ROOT / "docs/runbooks").glob("Kraftbridge*.md")}
    for alert in alerts(render(EVERYTHING_ON)):
        assert alert["annotations"]["runbook_url"] == f"http://runbooks/{alert['alert']}.md"
        assert alert["labels"]["severity"] in {"warning", "critical"}
        assert alert["labels"]["team"] == "kafka"


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "docs/runbooks").glob("Kraftbridge*.md")))
def test_runbooks_have_the_usual_parts(name: str) -> None:
    text = (ROOT / "docs/runbooks" / name).read_text()
    assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == [
        "Meaning",
        "Impact",
        "Diagnosis",
        "Mitigation",
    ]


def expressions(render: Render) -> list[str]:
    dashboard = json.loads((CHART / "files/dashboards/migrations.json").read_text())
    panels = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return [alert["expr"] for alert in alerts(render(EVERYTHING_ON))] + panels


def test_alerts_and_dashboard_read_metrics_that_the_operator_has(render: Render) -> None:
    collectors = [value for value in vars(metrics).values() if isinstance(value, MetricWrapperBase)]
    labels: dict[str, set[str]] = {}
    for collector in collectors:
        for described in collector.describe():
            suffix = {"counter": "_total", "histogram": "_bucket", "info": "_info"}.get(described.type, "")
            labels[f"{described.name}{suffix}"] = set(collector._labelnames)
    used = [match for text in expressions(render) for match in re.findall(r"(kraftbridge_\w+)(?:\{([^}]*)\})?", text)]
    assert len(used) > 10
    for name, selector in used:
        assert name in labels
        assert set(re.findall(r"(\w+)=~?\"", selector)) <= labels[name], f"{name}{{{selector}}}"


def test_alerts_and_dashboard_name_phases_and_conditions_that_exist(render: Render) -> None:
    text = " ".join(expressions(render))
    assert set(re.findall(r'type="(\w+)"', text)) <= set(ConditionType)
    phases = {phase for group in re.findall(r'phase=~"([^"]+)"', text) for phase in group.split("|")}
    mirrors = {phase for phase in Phase if phase.row.mirrors}
    assert phases == mirrors, "the alerts in templates/prometheusrule.yaml name the phases that mirror"


def test_alerts_are_off_by_default(render: Render) -> None:
    assert not {kind for kind, _ in render()} & {"PrometheusRule", "ServiceMonitor", "ConfigMap"}


def test_the_dashboard_is_delivered_as_it_is(render: Render) -> None:
    data = render(EVERYTHING_ON)["ConfigMap", "kb-system/kb-dashboards"]["data"]
    assert json.loads(data["migrations.json"]) == json.loads((CHART / "files/dashboards/migrations.json").read_text())


def test_the_dashboard_is_one_that_grafana_can_show() -> None:
    dashboard = json.loads((CHART / "files/dashboards/migrations.json").read_text())
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells), "panels overlap"
    assert max(x for x, _ in cells) < 24
    for panel in panels:
        assert all(target["expr"] for target in panel["targets"])
