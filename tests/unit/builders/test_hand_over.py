"""What a KRaft template of the user's must have, who is on record as rendering it, and the manifests that show it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import yaml
from tests.unit.builders.test_brokers import FACTS, migration_spec

from kraftbridge.builders import hand_over
from kraftbridge.builders.broker_overlays import overlay
from kraftbridge.constants import ANNOTATION_BROKER_MODE
from kraftbridge.models.mounted_files import FilesKind, MountedFiles
from kraftbridge.models.phase import BrokerMode

STYLES = ["Env", "Properties"]


def kraft_set(style: str) -> dict[str, Any]:
    """Return a StatefulSet as the last roll left it, without anybody on record."""
    return overlay(migration_spec(style), FACTS, "kafka", BrokerMode.KRAFT)


def needed(style: str) -> hand_over.GuardedStatefulSet:
    return hand_over.required(migration_spec(style), FACTS, "kafka")


def variables(stateful_set: dict[str, Any]) -> list[dict[str, str]]:
    found: list[dict[str, str]] = stateful_set["spec"]["template"]["spec"]["containers"][0]["env"]
    return found


@pytest.mark.parametrize("style", STYLES)
def test_the_template_of_the_last_roll_lacks_nothing(style: str) -> None:
    assert hand_over.lacking(needed(style), kraft_set(style)["spec"]["template"]) == ()


@pytest.mark.parametrize("variable", [v.name for v in needed("Env").variables])
def test_each_variable_is_missed(variable: str) -> None:
    changed = kraft_set("Env")
    variables(changed)[:] = [e for e in variables(changed) if e["name"] != variable]
    (lost,) = hand_over.lacking(needed("Env"), changed["spec"]["template"])
    assert lost.startswith(variable)


def test_the_required_variables_are_those_that_make_a_kraft_broker() -> None:
    assert {v.name for v in needed("Env").variables} == {
        "CLUSTER_ID",
        "KAFKA_AUTHORIZER_CLASS_NAME",
        "KAFKA_CONTROLLER_LISTENER_NAMES",
        "KAFKA_CONTROLLER_QUORUM_VOTERS",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP",
        "KAFKA_PROCESS_ROLES",
    }


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("KAFKA_PROCESS_ROLES", "broker,controller"),
        ("KAFKA_CONTROLLER_QUORUM_VOTERS", ""),
        ("KAFKA_LISTENER_SECURITY_PROTOCOL_MAP", "PLAINTEXT:PLAINTEXT"),
        ("KAFKA_AUTHORIZER_CLASS_NAME", "kafka.security.authorizer.AclAuthorizer"),
    ],
)
def test_another_value_is_missed_too(variable: str, value: str) -> None:
    changed = kraft_set("Env")
    next(e for e in variables(changed) if e["name"] == variable)["value"] = value
    assert len(hand_over.lacking(needed("Env"), changed["spec"]["template"])) == 1


@pytest.mark.parametrize(
    ("first", "last", "lost"),
    [
        ({"value": "broker"}, {"value": ""}, True),
        ({"value": "broker"}, {}, True),
        ({"value": "broker"}, {"valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}, True),
        ({"value": ""}, {"value": "broker"}, False),
        ({"valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}, {"value": "broker"}, False),
    ],
)
def test_of_two_entries_of_one_variable_the_later_one_counts(
    first: dict[str, Any], last: dict[str, Any], *, lost: bool
) -> None:
    """The API server only warns, and the process gets the later one; the chart's policy is tested with the same in `tests/chart/live`."""
    changed = kraft_set("Env")
    name = "KAFKA_PROCESS_ROLES"
    others = [e for e in variables(changed) if e["name"] != name]
    variables(changed)[:] = [{"name": name, **first}, *others, {"name": name, **last}]
    assert hand_over.lacking(needed("Env"), changed["spec"]["template"]) == ((f"{name}=broker",) if lost else ())


def test_a_login_that_the_container_has_twice_is_needed_once() -> None:
    needs = hand_over.required(migration_spec(), replace(FACTS, variables=(LOGIN, LOGIN)), "kafka")
    assert needs.present_variables == (LOGIN,)


def test_a_further_listener_in_the_protocol_map_is_the_users() -> None:
    changed = kraft_set("Env")
    entry = next(e for e in variables(changed) if e["name"] == "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP")
    entry["value"] = f"INTERNAL:SSL, {entry['value']}"
    assert hand_over.lacking(needed("Env"), changed["spec"]["template"]) == ()


LOGIN = "KAFKA_LISTENER_NAME_CONTROLLER_PLAIN_SASL_JAAS_CONFIG"


@pytest.mark.parametrize("env_from", [True, False])
@pytest.mark.parametrize(
    "entry", [None, {"value": "another"}, {"valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
)
def test_the_brokers_login_to_the_controllers_must_stay(entry: dict[str, Any] | None, *, env_from: bool) -> None:
    """A release from before the preparation of the migration has none, and its brokers reach no controller."""
    facts = replace(FACTS, variables=("POD_NAME", LOGIN, "KAFKA_LISTENER_NAME_CLIENT_SSL_KEYSTORE_TYPE"))
    needs = hand_over.required(migration_spec(), facts, "kafka")
    assert needs.present_variables == (LOGIN,)
    live = kraft_set("Env")
    variables(live).extend([{"name": LOGIN, **entry}] if entry is not None else [])
    if env_from:
        live["spec"]["template"]["spec"]["containers"][0]["envFrom"] = [{"secretRef": {"name": "logins"}}]
    lost = hand_over.lacking(needs, live["spec"]["template"])
    assert lost == (() if env_from or entry is not None else (LOGIN,))


@pytest.mark.parametrize(
    ("entry", "lost"),
    [
        (None, ()),
        ({}, ()),
        ({"value": ""}, ()),
        ({"value": "zookeeper:2181"}, ("no KAFKA_CFG_ZOOKEEPER_CONNECT",)),
        ({"valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}, ("no KAFKA_CFG_ZOOKEEPER_CONNECT",)),
    ],
)
def test_bitnamis_image_must_not_get_zookeeper_back(entry: dict[str, Any] | None, lost: tuple[str, ...]) -> None:
    spec = migration_spec(envPrefix="KAFKA_CFG_")
    live = overlay(spec, FACTS, "kafka", BrokerMode.KRAFT)
    container = live["spec"]["template"]["spec"]["containers"][0]
    name = "KAFKA_CFG_ZOOKEEPER_CONNECT"
    container["env"] = [e for e in container["env"] if e["name"] != name]
    container["env"] += [{"name": name, **entry}] if entry is not None else []
    needs = hand_over.required(spec, FACTS, "kafka")
    assert needs.empty_variables == (name,)
    assert not [v for v in needs.variables if v.name in (name, "KAFKA_NODE_ID_COMMAND")], (
        "another way to node.id is fine"
    )
    assert hand_over.lacking(needs, live["spec"]["template"]) == lost


BITNAMI = "KAFKA_CFG_"
REFERENCES: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("KAFKA_BROKER_ID_COMMAND", {"envPrefix": BITNAMI}, {}, "KAFKA_NODE_ID_COMMAND"),
    ("BROKER_ID_COMMAND", {"envPrefix": BITNAMI}, {}, "KAFKA_NODE_ID_COMMAND"),
    ("ZONE", {"staticSettings": {"broker.rack": "$(ZONE)"}}, {}, "KAFKA_BROKER_RACK"),
    ("ZONE", {"staticSettings": {"broker.rack": "${env:ZONE}"}}, {}, "KAFKA_BROKER_RACK"),
    ("ZONE", {"staticSettings": {"broker.rack": "$${env:ZONE}"}}, {}, "KAFKA_BROKER_RACK"),
    ("ZONE", {"staticSettings": {"broker.rack": "$$$(ZONE)"}}, {}, "KAFKA_BROKER_RACK"),
    ("ZONE", {"staticSettings": {"broker.rack": "${my-vars::ZONE}"}}, {}, "KAFKA_BROKER_RACK"),
    ("DUMPS", {}, {"java_tool_options": "-XX:HeapDumpPath=$(DUMPS)"}, "JAVA_TOOL_OPTIONS"),
]


def referring_to(
    name: str, brokers: dict[str, Any], facts: dict[str, Any]
) -> tuple[hand_over.GuardedStatefulSet, dict[str, Any], dict[str, Any]]:
    """Return what brokers need whose values refer to a variable, our overlay's template without it, and its container."""
    spec = migration_spec(**brokers)
    known = replace(FACTS, variables=(name,), **facts)
    template = overlay(spec, known, "kafka", BrokerMode.KRAFT)["spec"]["template"]
    return hand_over.required(spec, known, "kafka"), template, template["spec"]["containers"][0]


@pytest.mark.parametrize(("name", "brokers", "facts", "referring"), REFERENCES)
def test_a_variable_to_which_a_value_of_ours_refers_must_stay(
    name: str, brokers: dict[str, Any], facts: dict[str, Any], referring: str
) -> None:
    """Bitnami's image ends without ``node.id``, and the kubelet leaves ``$(NAME)`` as it is."""
    needs, template, container = referring_to(name, brokers, facts)
    assert hand_over.lacking(needs, template) == (f"{name}, to which {referring} refers",)
    container["envFrom"] = [{"configMapRef": {"name": "others"}}]
    assert hand_over.lacking(needs, template) == ()
    del container["envFrom"]
    container["env"].insert(0, {"name": name, "value": "of the user's next release"})
    assert hand_over.lacking(needs, template) == ()


KUBELETS = [case for case in REFERENCES if case[0] in ("ZONE", "DUMPS") and "${" not in str(case)]


@pytest.mark.parametrize(("name", "brokers", "facts", "referring"), KUBELETS)
@pytest.mark.parametrize("env_from", [True, False])
def test_what_the_kubelet_expands_stands_before_ours(
    name: str, brokers: dict[str, Any], facts: dict[str, Any], referring: str, *, env_from: bool
) -> None:
    """``$(NAME)`` of a variable behind it stays as it is written (Kubernetes API reference, EnvVar v1 core)."""
    needs, template, container = referring_to(name, brokers, facts)
    if env_from:
        container["envFrom"] = [{"configMapRef": {"name": "others"}}]
    container["env"].append({"name": name, "value": "behind"})
    assert hand_over.lacking(needs, template) == (f"{name} before {referring}, which refers to it",)
    container["env"].insert(0, {"name": name, "value": "before"})
    assert hand_over.lacking(needs, template) == ()


@pytest.mark.parametrize("name", [case[0] for case in REFERENCES if case not in KUBELETS])
def test_what_the_process_reads_stands_anywhere(name: str) -> None:
    case = next(case for case in REFERENCES if case[0] == name and case not in KUBELETS)
    needs, template, container = referring_to(name, case[1], case[2])
    container["env"].append({"name": name, "value": "behind"})
    assert needs.references
    assert hand_over.lacking(needs, template) == ()


def live_template(spec: Any, known: Any, own: dict[str, str]) -> dict[str, Any]:
    """Return the template of the last roll: the user's variables in their order, ours in place of theirs and else last."""
    template: dict[str, Any] = overlay(spec, known, "kafka", BrokerMode.KRAFT)["spec"]["template"]
    container = template["spec"]["containers"][0]
    values = own | {entry["name"]: entry["value"] for entry in container["env"]}
    container["env"] = [{"name": name, "value": value} for name, value in values.items()]
    return template


CHAINS: list[tuple[dict[str, Any], dict[str, str], tuple[str, str]]] = [
    (
        {"staticSettings": {"broker.rack": "$(ZONE)"}},
        {"REGION": "r", "SITE": "$(REGION)-1", "ZONE": "$(SITE)a"},
        ("REGION", "SITE"),
    ),
    (
        {"envPrefix": BITNAMI},
        {"POD_NAME": "kafka-0", "KAFKA_BROKER_ID_COMMAND": "echo ${POD_NAME##*-}"},
        ("POD_NAME", "KAFKA_BROKER_ID_COMMAND"),
    ),
    ({"staticSettings": {"broker.rack": "$(ZONE)"}}, {"SITE": "s", "ZONE": "${env:SITE}"}, ("SITE", "ZONE")),
    ({}, {"PASSWORD": "p", LOGIN: 'x required password="$(PASSWORD)";'}, ("PASSWORD", LOGIN)),
]


@pytest.mark.parametrize(("brokers", "own", "link"), CHAINS)
def test_what_those_refer_to_to_which_ours_refer_must_stay(
    brokers: dict[str, Any], own: dict[str, str], link: tuple[str, str]
) -> None:
    gone, referring = link
    spec = migration_spec(**brokers)
    known = replace(FACTS, variables=tuple(own))
    template = live_template(spec, known, own)
    needs = hand_over.required(spec, known, "kafka", template)
    assert hand_over.lacking(needs, template) == ()
    assert not [r for r in needs.references if "password=" in r.value], "the status shows no text of the user's"
    env = template["spec"]["containers"][0]["env"]
    template["spec"]["containers"][0]["env"] = [entry for entry in env if entry["name"] != gone]
    assert hand_over.lacking(needs, template) == (f"{gone}, to which {referring} refers",)
    next(entry for entry in env if entry["name"] == referring)["value"] = "mine"
    assert hand_over.lacking(needs, template) == (), "nothing refers to it any more"


@pytest.mark.parametrize("env_from", [True, False])
def test_what_stayed_text_from_the_beginning_is_no_reference(*, env_from: bool) -> None:
    """The brokers run with the text. The template of the last roll never lacks anything."""
    spec = migration_spec(staticSettings={"broker.rack": "$(ZONE)"})
    own = {"KAFKA_BROKER_RACK": "r", "ZONE": "z", "JAVA_TOOL_OPTIONS": "$(JAVA_TOOL_OPTIONS) -Dmine"}
    known = replace(FACTS, variables=tuple(own), java_tool_options=own["JAVA_TOOL_OPTIONS"])
    template = live_template(spec, known, own)
    if env_from:
        template["spec"]["containers"][0]["envFrom"] = [{"configMapRef": {"name": "others"}}]
    needs = hand_over.required(spec, known, "kafka", template)
    assert hand_over.lacking(needs, template) == ()
    assert [r.name for r in needs.references] == (["JAVA_TOOL_OPTIONS"] if env_from else [])


def test_a_value_with_more_text_still_refers() -> None:
    spec = migration_spec()
    known = replace(FACTS, variables=("DUMPS",), java_tool_options="-XX:HeapDumpPath=$(DUMPS)")
    needs = hand_over.required(spec, known, "kafka")
    template = overlay(spec, known, "kafka", BrokerMode.KRAFT)["spec"]["template"]
    env = template["spec"]["containers"][0]["env"]
    next(entry for entry in env if entry["name"] == "JAVA_TOOL_OPTIONS")["value"] += " -Dmore=1"
    assert hand_over.lacking(needs, template) == ("DUMPS, to which JAVA_TOOL_OPTIONS refers",)


SECRETS = {"name": "secrets", "mountPath": "/etc/secrets/"}


def with_file(line: str) -> tuple[Any, Any, dict[str, Any]]:
    """Return spec, facts and the template of the last roll of brokers whose properties file has a line."""
    spec = migration_spec("Properties")
    own = {"REGION": "r", "ZONE": "$(REGION)-a"}
    known = replace(FACTS, variables=tuple(own), properties_text=f"{FACTS.properties_text}\n{line}\n")
    template = live_template(spec, known, own)
    template["spec"]["containers"][0]["volumeMounts"] = [dict(SECRETS)]
    return spec, known, template


@pytest.mark.parametrize(
    "line", ["broker.rack=${env:ZONE}", "broker.rack=a-${vars::ZONE}", "broker.rack=$${env:\\\n ZONE}"]
)
def test_a_variable_to_which_the_file_refers_must_stay(line: str) -> None:
    spec, known, template = with_file(line)
    needs = hand_over.required(spec, known, "kafka", template)
    container = template["spec"]["containers"][0]
    assert hand_over.lacking(needs, template) == ()
    container["env"] = [entry for entry in container["env"] if entry["name"] != "REGION"]
    assert hand_over.lacking(needs, template) == ("REGION, to which ZONE refers",)
    container["env"] = [entry for entry in container["env"] if entry["name"] != "ZONE"]
    assert hand_over.lacking(needs, template) == ("ZONE, to which the properties file refers",)
    container["envFrom"] = [{"configMapRef": {"name": "others"}}]
    assert hand_over.lacking(needs, template) == ()
    del container["envFrom"]
    template["metadata"]["annotations"][ANNOTATION_BROKER_MODE] = "KRaft"
    assert hand_over.lacking(needs, template), "the operator's file is still mounted"
    template["spec"]["volumes"][0]["configMap"]["name"] = "mine"
    assert hand_over.lacking(needs, template) == (), "the owner's own file"


def test_kafka_reads_no_reference_of_the_kubelets_in_a_file() -> None:
    spec, known, template = with_file("broker.rack=$(ZONE)")
    assert hand_over.required(spec, known, "kafka", template).references == ()


@pytest.mark.parametrize("value", ["${file:/etc/secrets/kafka.properties:rack}", "${dir:/etc/secrets:rack}"])
@pytest.mark.parametrize("style", STYLES)
def test_a_mount_to_which_a_reference_leads_must_stay(style: str, value: str) -> None:
    """Without its file Kafka does not start (``FileConfigProvider``), or takes the text for the value (``DirectoryConfigProvider``)."""
    path = value.split(":")[1]
    if style == "Properties":
        spec, known, template = with_file(f"broker.rack={value}")
    else:
        spec = migration_spec(staticSettings={"broker.rack": value})
        known = FACTS
        template = live_template(spec, known, {})
        template["spec"]["containers"][0]["volumeMounts"] = [dict(SECRETS)]
    needs = hand_over.required(spec, known, "kafka", template)
    container = template["spec"]["containers"][0]
    assert hand_over.lacking(needs, template) == ()
    referring = "the properties file" if style == "Properties" else "KAFKA_BROKER_RACK"
    for others in ([], [{"name": "other", "mountPath": "/etc/secret"}], [{"name": "other", "mountPath": f"{path}x"}]):
        container["volumeMounts"] = others
        assert hand_over.lacking(needs, template) == (f"a mount with {path}, to which {referring} refers",)
    container["volumeMounts"] = [{"name": "another", "mountPath": path}]
    assert hand_over.lacking(needs, template) == ()


@pytest.mark.parametrize("value", ["${file:/opt/kafka/rack.properties:rack}", "${file:/etc/secrets-2/rack:ZONE}"])
def test_a_file_of_the_image_needs_no_mount(value: str) -> None:
    spec, known, template = with_file(f"broker.rack={value}")
    assert hand_over.required(spec, known, "kafka", template).references == ()


def test_another_way_to_the_id_refers_to_nothing() -> None:
    spec = migration_spec(envPrefix=BITNAMI)
    known = replace(FACTS, variables=("KAFKA_BROKER_ID_COMMAND",))
    needs = hand_over.required(spec, known, "kafka")
    template = overlay(spec, known, "kafka", BrokerMode.KRAFT)["spec"]["template"]
    env = template["spec"]["containers"][0]["env"]
    next(entry for entry in env if entry["name"] == "KAFKA_NODE_ID_COMMAND")["value"] = "hostname | grep -o [0-9]*$"
    assert hand_over.lacking(needs, template) == ()


@pytest.mark.parametrize("style", STYLES)
def test_options_from_env_from_need_it(style: str) -> None:
    """The JVM refuses ``$(JAVA_TOOL_OPTIONS)``, which nobody expands without ``envFrom``."""
    spec = migration_spec(style)
    options = "JAVA_TOOL_OPTIONS"
    known = replace(FACTS, java_tool_options=f"$({options})", inherited=frozenset({options}))
    needs = hand_over.required(spec, known, "kafka")
    template = overlay(spec, known, "kafka", BrokerMode.KRAFT)["spec"]["template"]
    assert hand_over.lacking(needs, template) == (f"{options}, to which {options} refers",)
    template["spec"]["containers"][0]["envFrom"] = [{"secretRef": {"name": "options"}}]
    assert hand_over.lacking(needs, template) == ()


@pytest.mark.parametrize("value", ["$$(HEAP)", "${HEAP:-1g}", "HEAP", "$(OTHER)"])
def test_what_is_no_reference_needs_nothing(value: str) -> None:
    known = replace(FACTS, variables=("HEAP",), java_tool_options=value)
    assert hand_over.required(migration_spec(), known, "kafka").references == ()


def test_a_template_without_the_container_lacks_all() -> None:
    changed = kraft_set("Env")
    changed["spec"]["template"]["spec"]["containers"][0]["name"] = "broker"
    assert len(hand_over.lacking(needed("Env"), changed["spec"]["template"])) == len(needed("Env").variables)


def test_properties_are_those_of_our_configmap_or_the_owners_word() -> None:
    changed = kraft_set("Properties")
    changed["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"] = "kafka-config"
    assert hand_over.lacking(needed("Properties"), changed["spec"]["template"])
    changed["spec"]["template"]["metadata"]["annotations"][ANNOTATION_BROKER_MODE] = "KRaft"
    assert hand_over.lacking(needed("Properties"), changed["spec"]["template"]) == ()
    assert hand_over.owner_renders(needed("Properties"), changed)


# ------------------------------------------------------------------------------------------------ owners


def managed(style: str, manager: str, operation: str = "Apply", without: str = "") -> dict[str, Any]:
    """Return a ``managedFields`` entry of somebody who has all that KRaft needs, but for one variable."""
    env = {f'k:{{"name":"{v.name}"}}': {"f:value": {}} for v in needed(style).variables if v.name != without}
    pod: dict[str, Any] = {"f:containers": {'k:{"name":"kafka"}': {"f:env": env}}}
    if needed(style).volume:
        pod["f:volumes"] = {f'k:{{"name":"{needed(style).volume}"}}': {"f:configMap": {"f:name": {}}}}
    return {"manager": manager, "operation": operation, "fieldsV1": {"f:spec": {"f:template": {"f:spec": pod}}}}


@pytest.mark.parametrize("style", STYLES)
def test_a_server_side_apply_of_another_manager_is_the_owners(style: str) -> None:
    live = kraft_set(style)
    assert not hand_over.owner_renders(needed(style), live), "nobody is on record"
    live["metadata"]["managedFields"] = [managed(style, "kraftbridge")]
    assert not hand_over.owner_renders(needed(style), live), "our own overlay is no release of the owner's"
    live["metadata"]["managedFields"].append(managed(style, "kustomize-controller"))
    assert hand_over.owner_renders(needed(style), live)


def test_half_an_owner_is_none() -> None:
    live = kraft_set("Env")
    live["metadata"]["managedFields"] = [
        managed("Env", "argocd", without="KAFKA_PROCESS_ROLES"),
        managed("Env", "kubectl-edit", "Update"),
    ]
    assert not hand_over.owner_renders(needed("Env"), live)


@pytest.mark.parametrize("stale", [True, False])
def test_kubectl_apply_leaves_what_it_applied(*, stale: bool) -> None:
    live = kraft_set("Env")
    applied = kraft_set("Env")
    if stale:
        variables(applied)[:] = [{"name": "KAFKA_ZOOKEEPER_CONNECT", "value": "zookeeper:2181"}]
    live["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(applied)}
    assert hand_over.owner_renders(needed("Env"), live) is not stale


def test_an_owner_on_record_does_not_hide_that_the_template_lacks_something() -> None:
    live = kraft_set("Env")
    live["metadata"]["managedFields"] = [managed("Env", "argocd")]
    variables(live)[:] = []
    assert not hand_over.owner_renders(needed("Env"), live)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(
    ("values", "refused"), [(["true"], True), (["Yes "], True), (["true", "false"], False), ([], False)]
)
def test_a_variable_with_which_the_image_looks_for_zookeeper_must_not_come_back(
    style: str, values: list[str], *, refused: bool
) -> None:
    live = kraft_set(style)
    variables(live).extend({"name": "KAFKA_ZOOKEEPER_BOOTSTRAP_SCRAM_USERS", "value": value} for value in values)
    lost = hand_over.lacking(needed(style), live["spec"]["template"])
    assert lost == ((f"no KAFKA_ZOOKEEPER_BOOTSTRAP_SCRAM_USERS={values[0]}",) if refused else ())


# --------------------------------------------------------------------------------------------- manifests


def test_values_for_charts_render_what_is_required() -> None:
    files = hand_over.broker_manifests(migration_spec(), {"kafka": FACTS}, "demo")
    assert set(files) == {
        "brokers.yaml",
        "kustomize-patch.yaml",
        "values-bitnami-kafka.yaml",
        "values-cp-kafka-kafka.yaml",
    }
    bitnami = yaml.safe_load(files["values-bitnami-kafka.yaml"])
    template = {"spec": {"containers": [{"name": "kafka", "env": bitnami["extraEnvVars"]}]}}
    assert hand_over.lacking(needed("Env"), template) == ()
    confluent = yaml.safe_load(files["values-cp-kafka-kafka.yaml"])
    # As the chart names them: KAFKA_ in front, dots become underscores.
    env = [{"name": f"KAFKA_{k}".replace(".", "_").upper(), "value": v} for k, v in confluent["configurationOverrides"].items()]  # fmt: skip
    env += [{"name": k, "value": v} for k, v in confluent["customEnv"].items()]
    assert hand_over.lacking(needed("Env"), {"spec": {"containers": [{"name": "kafka", "env": env}]}}) == ()
    (patch,) = yaml.safe_load_all(files["kustomize-patch.yaml"])
    assert "namespace" not in patch["metadata"]
    assert hand_over.lacking(needed("Env"), patch["spec"]["template"]) == ()


def test_bitnamis_charts_up_to_23_get_values_for_the_variables_that_they_render() -> None:
    """Helm cannot patch a list with two entries of one name: the chart's own, and one of ``extraEnvVars``."""
    rendered = ("KAFKA_CFG_LISTENER_SECURITY_PROTOCOL_MAP", "KAFKA_CFG_ZOOKEEPER_CONNECT")
    spec = migration_spec()
    spec = spec.model_copy(update={"brokers": spec.brokers.model_copy(update={"env_prefix": "KAFKA_CFG_"})})
    files = hand_over.broker_manifests(spec, {"kafka": replace(FACTS, variables=("HEAP", *rendered))}, "demo")
    values = yaml.safe_load(files["values-bitnami-kafka.yaml"])
    assert not {entry["name"] for entry in values["extraEnvVars"]} & set(rendered)
    assert values["listenerSecurityProtocolMap"].startswith("CONTROLLER:")
    assert values["zookeeper"] == {"enabled": False}
    assert values["externalZookeeper"] == {"servers": []}
    (patch,) = yaml.safe_load_all(files["kustomize-patch.yaml"])
    names = [entry["name"] for entry in patch["spec"]["template"]["spec"]["containers"][0]["env"]]
    assert set(rendered) <= set(names), "only Helm has this trouble"


def test_the_patch_names_the_users_variables_in_their_order_and_ours_last() -> None:
    """As kustomize merges: entries of the patch first, in its order. Kubernetes restarts every pod if the order differs from the live one."""
    facts = replace(FACTS, variables=("HEAP", "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP", "POD_NAME"))
    files = hand_over.broker_manifests(migration_spec(), {"kafka": facts}, "demo")
    (patch,) = yaml.safe_load_all(files["kustomize-patch.yaml"])
    env = patch["spec"]["template"]["spec"]["containers"][0]["env"]
    assert [e["name"] for e in env[:3]] == list(facts.variables)
    assert env[0] == {"name": "HEAP"}
    assert env[1]["value"]
    added = [e["name"] for e in env[3:]]
    assert added == sorted(added)
    assert {"CLUSTER_ID", "JAVA_TOOL_OPTIONS", "KAFKA_PROCESS_ROLES"} <= set(added)


def test_values_of_properties_name_the_configmap() -> None:
    files = hand_over.broker_manifests(migration_spec("Properties"), {"kafka": FACTS}, "demo")
    assert set(files) == {"brokers.yaml", "kustomize-patch.yaml", "values-bitnami-kafka.yaml"}
    values = yaml.safe_load(files["values-bitnami-kafka.yaml"])
    assert values["broker"]["existingConfigmap"] == needed("Properties").config_map
    assert values["kraft"]["enabled"]
    assert not values["zookeeper"]["enabled"]
    assert values["externalZookeeper"] == {"servers": []}
    assert values["kraft"]["clusterId"] == FACTS.cluster_id
    assert {d["kind"] for d in yaml.safe_load_all(files["brokers.yaml"])} == {"StatefulSet", "ConfigMap"}


def test_an_exported_object_can_be_applied_again() -> None:
    live = {
        "metadata": {"name": "c", "namespace": "kafka", "uid": "1", "resourceVersion": "7", "managedFields": [], "labels": {"a": "b"}},
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": {"volumeName": "pv-1"}, "status": {"phase": "Bound"},
    }  # fmt: skip
    assert hand_over.exported(live) == {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "c", "namespace": "kafka", "labels": {"a": "b"}},
        "spec": {"volumeName": "pv-1"},
    }


def test_a_secret_with_the_properties_file_is_guarded_and_shown_in_no_manifest() -> None:
    spec = migration_spec("Properties", properties={"volume": "config"})
    facts = replace(FACTS, files=MountedFiles(FilesKind.SECRET, "kafka-secret", {"other": "cGFzc3dvcmQ="}))
    wanted = hand_over.required(spec, facts, "kafka")
    assert (wanted.config_map, wanted.secret) == ("", "kafka-secret-kraftbridge-kraft")
    template = overlay(spec, facts, "kafka", BrokerMode.KRAFT)["spec"]["template"]
    assert hand_over.lacking(wanted, template) == ()
    template["spec"]["volumes"] = [{"name": "config", "configMap": {"name": wanted.secret}}]
    assert hand_over.lacking(wanted, template) == ("volume config with Secret kafka-secret-kraftbridge-kraft",)
    files = hand_over.broker_manifests(spec, {"kafka": facts}, "demo")
    assert not any("cGFzc3dvcmQ=" in text or "kind: Secret" in text for text in files.values())
    assert "secretName: kafka-secret-kraftbridge-kraft" in files["brokers.yaml"]
