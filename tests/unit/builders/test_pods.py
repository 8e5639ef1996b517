"""The user's settings reach every pod that the operator creates, and replace nothing that the operator needs."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from tests.support.every_pod import CONTROLLERS_OF, COPY, KINDS, VERIFIERS, every_pod, spec_with

from kraftbridge.builders.dry_start_pods import NO_INJECTION
from kraftbridge.builders.pods import NO_MESH, ZONE, PodDefaults
from kraftbridge.models.spec import MigrationSpec, PodSettings

TOLERATION = {"key": "dedicated", "operator": "Exists"}
AFFINITY = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
SPREAD = {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}
ASKED: dict[str, Any] = {
    "labels": {"team": "shop"},
    "annotations": {"example.com/scrape": "no"},
    "imagePullSecrets": [{"name": "registry"}],
    "serviceAccountName": "quiet",
    "priorityClassName": "important",
    "nodeSelector": {"pool": "data"},
    "tolerations": [TOLERATION],
    "affinity": AFFINITY,
    "topologySpreadConstraints": [SPREAD],
    "helperResources": {"limits": {"cpu": "1", "memory": "1Gi"}},
    "securityContext": {"runAsUser": 1000660000, "runAsNonRoot": True},
}
DEFAULTS = every_pod(spec_with())
PLACED = [kind for kind in KINDS if kind != COPY]


def test_every_kind_of_pod_is_looked_at() -> None:
    assert set(DEFAULTS) == set(KINDS)
    assert set(ASKED) == {f.alias for f in PodSettings.model_fields.values()}


@pytest.mark.parametrize("kind", KINDS)
def test_labels_annotations_and_pull_secrets_reach_the_pod_beside_ours(kind: str) -> None:
    pod, plain = every_pod(spec_with(pods=ASKED))[kind], DEFAULTS[kind]
    before, after = plain["metadata"], pod["metadata"]
    assert after["labels"] == {"team": "shop", **before["labels"]}
    # The hash of the template is another one.
    changed = {k for k, v in before.get("annotations", {}).items() if after["annotations"][k] != v}
    assert changed <= {"kraftbridge.dev/configuration"}
    assert set(after["annotations"]) == {"example.com/scrape", *before.get("annotations", {})}
    assert pod["spec"]["imagePullSecrets"] == [*plain["spec"].get("imagePullSecrets", []), {"name": "registry"}]


def _selected(kind: str) -> dict[str, str]:
    """Return the labels by which pods of a kind are spread; those of a dry start opt out by labels of their own."""
    labels: dict[str, str] = DEFAULTS[kind]["metadata"]["labels"]
    return labels if kind.startswith("dry start") else _own(labels)


def _own(entries: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in entries.items() if name not in NO_INJECTION}


@pytest.mark.parametrize("kind", KINDS)
def test_no_mesh_puts_a_proxy_into_a_pod_of_ours_unless_the_user_asks_for_it(kind: str) -> None:
    metadata = DEFAULTS[kind]["metadata"]
    assert NO_MESH.items() <= metadata["annotations"].items()
    assert metadata["labels"]["sidecar.istio.io/inject"] == "false"
    assert metadata["labels"]["kuma.io/sidecar-injection"] == "disabled"


@pytest.mark.parametrize("part", ["labels", "annotations"])
@pytest.mark.parametrize("kind", [kind for kind in PLACED if not kind.startswith("dry start")])
def test_who_wants_a_proxy_says_so_in_spec_pods(kind: str, part: str) -> None:
    pods = {part: {"sidecar.istio.io/inject": "true"}}
    metadata = every_pod(spec_with(pods=pods))[kind]["metadata"]
    said = {metadata[place].get("sidecar.istio.io/inject") for place in ("labels", "annotations")}
    assert said == {None, "true"}
    assert metadata["annotations"]["linkerd.io/inject"] == "disabled"


@pytest.mark.parametrize("kind", KINDS)
def test_labels_and_annotations_of_the_user_never_replace_ours(kind: str) -> None:
    before = DEFAULTS[kind]["metadata"]
    ours = {part: dict.fromkeys(_own(before.get(part, {})), "taken") for part in ("labels", "annotations")}
    after = every_pod(spec_with(pods=ours))[kind]["metadata"]
    assert after["labels"] == before["labels"]
    assert "taken" not in after.get("annotations", {}).values()


@pytest.mark.parametrize("kind", PLACED)
def test_the_placement_reaches_the_pod(kind: str) -> None:
    pod = every_pod(spec_with(pods=ASKED))[kind]["spec"]
    assert pod["priorityClassName"] == "important"
    assert pod["nodeSelector"] == {"pool": "data"}
    assert pod["tolerations"] == [TOLERATION]
    assert pod["affinity"]["nodeAffinity"] == AFFINITY["nodeAffinity"]
    (spread,) = pod["topologySpreadConstraints"]
    assert spread == {**SPREAD, "labelSelector": {"matchLabels": _selected(kind)}}
    assert pod["securityContext"] == ASKED["securityContext"]


def test_a_copy_keeps_the_placement_and_the_user_of_the_brokers_own_template() -> None:
    pod, plain = every_pod(spec_with(pods=ASKED))[COPY]["spec"], DEFAULTS[COPY]["spec"]
    for field in ("nodeSelector", "tolerations", "affinity", "topologySpreadConstraints", "priorityClassName"):
        assert pod.get(field) == plain.get(field), field
    assert pod["securityContext"] == plain["securityContext"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_service_account_is_that_of_the_run_for_a_verification_and_the_users_for_all_others(kind: str) -> None:
    name = every_pod(spec_with(pods=ASKED))[kind]["spec"].get("serviceAccountName")
    if kind in VERIFIERS:
        assert name == DEFAULTS[kind]["spec"].get("serviceAccountName") != "quiet"
    else:
        assert name == "quiet"


@pytest.mark.parametrize(("section", "kinds"), [("controllers", CONTROLLERS_OF), ("verification", VERIFIERS)])
def test_a_section_replaces_the_placement_of_its_own_pods_only(section: str, kinds: tuple[str, ...]) -> None:
    own = {"nodeSelector": {"pool": "own"}, "priorityClassName": "own", "tolerations": [{"key": "own"}]}
    found = every_pod(spec_with(pods=ASKED, **{section: own}))
    for kind in PLACED:
        pod = found[kind]["spec"]
        assert (pod["priorityClassName"] == "own") is (kind in kinds), kind
        if kind != "rehearsal":  # it runs where the controllers may run
            assert (pod["nodeSelector"] == {"pool": "own"}) is (kind in kinds), kind
            assert (pod["tolerations"] == [{"key": "own"}]) is (kind in kinds), kind


@pytest.mark.parametrize("kind", [*CONTROLLERS_OF, "dry start's probe", COPY])
def test_the_operators_own_containers_state_their_resources_and_take_the_users(kind: str) -> None:
    for pods, wanted in ((DEFAULTS, None), (every_pod(spec_with(pods=ASKED)), ASKED["helperResources"])):
        pod = pods[kind]["spec"]
        helpers = [c for c in (*pod.get("initContainers", ()), *pod["containers"]) if c["image"] == "operator:1"]
        assert helpers
        for container in helpers:
            assert container["resources"]["limits"]["memory"], container["name"]
            if wanted is None:
                assert set(container["resources"]["requests"]) == {"cpu", "memory"}, container["name"]
            else:
                assert container["resources"] == wanted, container["name"]


@pytest.mark.parametrize(
    ("asked", "requests"),
    [
        ({}, {"cpu": "100m", "memory": "768Mi"}),
        ({"heapOptions": "-Xms1g -Xmx2g"}, {"cpu": "100m", "memory": "2304Mi"}),
        ({"heapOptions": "-XX:MaxRAMPercentage=50"}, {"cpu": "100m"}),
        ({"resources": {"limits": {"memory": "1Gi"}}}, {"cpu": "100m"}),
        ({"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}, {"cpu": "1", "memory": "1Gi"}),
        ({"resources": {"limits": {"cpu": "2"}}}, {"memory": "768Mi"}),
    ],
)
def test_a_controller_requests_the_memory_of_its_heap(asked: dict[str, Any], requests: dict[str, str]) -> None:
    """A limit alone is the request, too (Kubernetes, "Resource Management for Pods and Containers")."""
    kafka = every_pod(spec_with(controllers=asked))["controller, Migration"]["spec"]["containers"][0]
    assert kafka["resources"]["requests"] == requests
    assert kafka["resources"].get("limits") == asked.get("resources", {}).get("limits")


@pytest.mark.parametrize("kind", CONTROLLERS_OF)
def test_controllers_prefer_other_nodes_and_other_zones(kind: str) -> None:
    pod, labels = DEFAULTS[kind]["spec"], _own(DEFAULTS[kind]["metadata"]["labels"])
    (spread,) = pod["topologySpreadConstraints"]
    assert (spread["topologyKey"], spread["whenUnsatisfiable"]) == (ZONE, "ScheduleAnyway")
    assert spread["labelSelector"]["matchLabels"] == labels
    assert "podAntiAffinity" in pod["affinity"]
    kept = every_pod(spec_with(controllers={"affinity": AFFINITY}))[kind]["spec"]["affinity"]
    assert kept == {**pod["affinity"], **AFFINITY}, "a node affinity does not end the spread over nodes"
    own = {"podAntiAffinity": {}}
    assert every_pod(spec_with(controllers={"affinity": own}))[kind]["spec"]["affinity"] == own


@pytest.mark.parametrize("kind", PLACED)
def test_where_the_platform_assigns_users_no_pod_names_one(kind: str) -> None:
    pod = every_pod(spec_with(), PodDefaults(assigned_users=True))[kind]["spec"]
    assert pod.get("securityContext", {}).keys() & {"runAsUser", "runAsGroup", "fsGroup", "supplementalGroups"} == set()
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        assert "runAsUser" not in container.get("securityContext", {})
    stated = every_pod(spec_with(pods=ASKED), PodDefaults(assigned_users=True))[kind]["spec"]
    assert stated["securityContext"] == ASKED["securityContext"], "what the user states holds"


@pytest.mark.parametrize("kind", KINDS)
def test_the_charts_pull_secrets_reach_every_pod_once(kind: str) -> None:
    pod = every_pod(spec_with(pods=ASKED), PodDefaults(image_pull_secrets=("mirror", "registry")))[kind]["spec"]
    assert [s["name"] for s in pod["imagePullSecrets"]][-2:] == ["registry", "mirror"]


@pytest.mark.parametrize("value", ["-begins", "a" * 64, "with space"])
def test_a_label_that_no_pod_can_have_is_refused(value: str) -> None:
    document = spec_with().model_dump(by_alias=True)
    with pytest.raises(ValidationError, match="labels"):
        MigrationSpec.model_validate(document | {"pods": {"labels": {"team": value}}})
