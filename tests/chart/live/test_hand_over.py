"""After ``Completed`` on a real API server: a release that would take brokers back to ZooKeeper is refused, one that renders KRaft passes.

The values of the right release are those of the final manifest; the chart here takes them by the names that the charts of others have.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kraftbridge.builders import hand_over
from kraftbridge.builders.broker_overlays import BrokerFacts, overlay
from kraftbridge.models.phase import BrokerMode
from kraftbridge.models.spec import MigrationSpec

from .conftest import GROUP, NAMESPACE, OPERATOR, PLURAL, SOMEBODY, Cluster, eventually

MIGRATION = "hand-over"
MANIFEST = "hand-over-final-manifest-1"
FIRST = {"PROTOCOLS": "PLAINTEXT:PLAINTEXT", "AUTHORIZER": "kafka.security.authorizer.AclAuthorizer"}
TEMPLATE = """\
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: {{ .Values.name }}
spec:
  replicas: 0
  serviceName: {{ .Values.name }}
  selector: {matchLabels: {app: {{ .Values.name }}}}
  template:
    metadata:
      labels: {app: {{ .Values.name }}}
      {{- with .Values.broker }}{{- with .podAnnotations }}
      annotations: {{- toYaml . | nindent 8 }}
      {{- end }}{{- end }}
    spec:
      containers:
        - name: kafka
          image: {{ .Values.image }}
          env: {{- concat .Values.own .Values.extraEnvVars | toYaml | nindent 12 }}
      volumes:
        - name: config
          configMap: {name: {{ dig "existingConfigmap" "kafka-config" (.Values.broker | default dict) }}}
"""
OWN = [
    {"name": "KAFKA_ZOOKEEPER_CONNECT", "value": "zookeeper:2181"},
    {"name": "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP", "value": "PLAINTEXT:PLAINTEXT"},
    {"name": "KAFKA_AUTHORIZER_CLASS_NAME", "value": "kafka.security.authorizer.AclAuthorizer"},
]
OVERWRITTEN = ("KAFKA_LISTENER_SECURITY_PROTOCOL_MAP", "KAFKA_AUTHORIZER_CLASS_NAME")
Release = Callable[..., Any]


def migration_spec(name: str, style: str) -> dict[str, Any]:
    brokers: dict[str, Any] = {"statefulSets": [{"name": name}], "bootstrapServers": "kafka:9092", "configStyle": style}
    if style == "Properties":
        brokers["properties"] = {"configMap": "kafka-config", "key": "server.properties", "volume": "config"}
    return {"target": "KRaft", "zookeeper": {"connect": "zookeeper:2181"}, "brokers": brokers}


def facts(spec: MigrationSpec) -> BrokerFacts:
    settings = {
        "listener.security.protocol.map": OWN[1]["value"],
        "authorizer.class.name": OWN[2]["value"],
    }
    text = "" if spec.brokers.properties is None else "zookeeper.connect=zookeeper:2181\n"
    return BrokerFacts(
        NAMESPACE,
        f"{MIGRATION}-kraft-1",
        "cluster.local",
        "uuuuuuuuuuuuuuuuuuuuuA",
        settings,
        "",
        text,
        tuple(e["name"] for e in OWN),
    )


@pytest.fixture
def release(cluster: Cluster, helm_binary: str, tmp_path: Path) -> Iterator[Release]:
    """Return a function that installs or upgrades a release of brokers as somebody; it returns helm's answer."""
    chart = tmp_path / "chart"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: brokers\nversion: 0.1.0\n")
    (chart / "templates/brokers.yaml").write_text(TEMPLATE)
    made: set[str] = set()

    def run(name: str, *options: str, **values: Any) -> subprocess.CompletedProcess[str]:
        made.add(name)
        defaults = {"name": name, "image": "none:1", "own": OWN, "extraEnvVars": []}
        command = [
            helm_binary, "upgrade", "--install", name, str(chart), "--namespace", NAMESPACE, "--values", "-", *options,
            "--kube-as-user", SOMEBODY, "--kube-as-group", "system:masters", "--kube-as-group", "system:authenticated",
        ]  # fmt: skip
        command += ["--kube-context", cluster.context] if cluster.context else []
        return subprocess.run(
            command, input=yaml.safe_dump(defaults | values), capture_output=True, text=True, check=False,
            env=cluster.environment, timeout=60,
        )  # fmt: skip

    yield run
    for name in made:
        cluster.do("delete", "statefulset", name, "--ignore-not-found", user=OPERATOR)
    cluster.run("delete", "secret", "--selector", "owner=helm")
    cluster.run("delete", PLURAL, MIGRATION, "--ignore-not-found")


def complete(cluster: Cluster, release: Release, name: str, style: str = "Env") -> dict[str, Any]:
    """Install brokers, overlay them as the operator does, and record the hand-over; return the final manifest's Bitnami values."""
    answer = release(name)
    assert answer.returncode == 0, answer.stderr
    raw = migration_spec(name, style)
    spec = MigrationSpec.model_validate(raw)
    known = facts(spec)
    ours = ("apply", "--server-side", "--force-conflicts", "--field-manager=kraftbridge", "--filename", "-")
    cluster.do(*ours, stdin=json.dumps(overlay(spec, known, name, BrokerMode.KRAFT)), user=OPERATOR)
    cluster.apply({"apiVersion": f"{GROUP}/v1alpha1", "kind": "KafkaMigration", "metadata": {"name": MIGRATION, "namespace": NAMESPACE}, "spec": raw})  # fmt: skip
    needed = hand_over.required(spec, known, name).model_dump(mode="json", by_alias=True)
    record(cluster, {"guarded": True, "statefulSets": [needed]})
    eventually(
        lambda: (
            cluster.run(
                "set", "env", f"statefulset/{name}", "--dry-run=server", *stale_change(style), user=SOMEBODY
            ).returncode
            != 0
            if style == "Env"
            else repoint(cluster, name, "kafka-config", dry_run=True) != ""
        ),
        "the policy takes effect",
        60,
    )
    values: dict[str, Any] = yaml.safe_load(hand_over.broker_manifests(spec, {name: known}, MIGRATION)[f"values-bitnami-{name}.yaml"])  # fmt: skip
    return values


def stale_change(style: str) -> tuple[str, ...]:
    return ("KAFKA_PROCESS_ROLES-",) if style == "Env" else ()


def repoint(cluster: Cluster, name: str, config_map: str, *, dry_run: bool = False) -> str:
    """Let the volume mount another ConfigMap; return the words of a refusal."""
    patch = {"spec": {"template": {"spec": {"volumes": [{"name": "config", "configMap": {"name": config_map}}]}}}}
    options = ("--dry-run=server",) if dry_run else ()
    answer = cluster.run("patch", "statefulset", name, "--patch", json.dumps(patch), *options, user=SOMEBODY)
    return "" if answer.returncode == 0 else answer.stderr


def record(cluster: Cluster, handed_over: dict[str, Any]) -> None:
    status = {"phase": "Completed", "finalManifest": MANIFEST, "handOver": handed_over}
    assert cluster.patch(MIGRATION, {"status": status}, dry_run=False) == ""


def revision(cluster: Cluster, name: str) -> str:
    """Return the revision of the template once its controller has seen the newest one: pods of another one are restarted."""

    def seen() -> bool:
        found = cluster.get("statefulset", name)
        return bool(found["status"].get("observedGeneration", 0) >= found["metadata"]["generation"])

    eventually(seen, "the StatefulSet controller sees the newest template")
    return str(cluster.get("statefulset", name)["status"]["updateRevision"])


def test_a_stale_upgrade_is_refused_and_says_which_values_it_lacks(cluster: Cluster, release: Release) -> None:
    complete(cluster, release, "stale")
    before = cluster.get("statefulset", "stale")["spec"]
    answer = release("stale", image="none:2")
    assert answer.returncode != 0, "the release went through"
    assert (
        f"StatefulSet {NAMESPACE}/stale: KafkaMigration {NAMESPACE}/{MIGRATION} has taken its Kafka brokers to KRaft"
        in answer.stderr
    )
    assert cluster.get("statefulset", "stale")["spec"] == before


def test_what_replaces_the_whole_template_is_told_all_that_it_lacks(cluster: Cluster, release: Release) -> None:
    complete(cluster, release, "replaced")
    found = cluster.get("statefulset", "replaced")
    found["spec"]["template"]["spec"]["containers"][0]["env"] = OWN
    answer = cluster.refused("replace", "--filename", "-", stdin=json.dumps(found), user=SOMEBODY)
    for words in (
        "Add to the environment of container kafka: ",
        "KAFKA_PROCESS_ROLES=broker",
        "KAFKA_AUTHORIZER_CLASS_NAME=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP with the entry CONTROLLER:SSL",
        f"ConfigMap {MANIFEST} has these values",
        "spec.handOver of the KafkaMigration to Release",
    ):
        assert words in answer


def test_the_final_manifests_values_pass_and_restart_nothing(cluster: Cluster, release: Release) -> None:
    values = complete(cluster, release, "right")
    before = revision(cluster, "right")
    overwritten = [e for e in values["extraEnvVars"] if e["name"] in OVERWRITTEN]
    own = [next((o for o in overwritten if o["name"] == e["name"]), e) for e in OWN]
    added = [e for e in values["extraEnvVars"] if e["name"] not in OVERWRITTEN]
    answer = release("right", **values | {"own": own, "extraEnvVars": added})
    assert answer.returncode == 0, answer.stderr
    assert revision(cluster, "right") == before, "the template changed: Kubernetes restarts every broker"
    # Another change of the template passes as well.
    answer = release("right", **values | {"own": own, "extraEnvVars": added, "image": "none:2"})
    assert answer.returncode == 0, answer.stderr
    assert revision(cluster, "right") != before


@pytest.mark.parametrize("end", ["release", "delete"])
def test_the_guard_ends_with_the_word_in_spec_and_with_the_resource(
    cluster: Cluster, release: Release, end: str
) -> None:
    name = f"ended-by-{end}"
    complete(cluster, release, name)
    if end == "release":
        record(cluster, {"guarded": False})
    else:
        cluster.do("delete", PLURAL, MIGRATION)
    attempt = ("set", "env", f"statefulset/{name}", "KAFKA_PROCESS_ROLES-", "--dry-run=server")
    eventually(lambda: cluster.run(*attempt, user=SOMEBODY).returncode == 0, "nothing is refused any more")


def test_a_statefulset_made_anew_needs_the_same(cluster: Cluster, release: Release) -> None:
    values = complete(cluster, release, "anew")
    cluster.do("delete", "statefulset", "anew", user=SOMEBODY)
    answer = release("anew")
    assert answer.returncode != 0, "a StatefulSet that starts ZooKeeper brokers was created"
    assert "KAFKA_PROCESS_ROLES=broker" in answer.stderr
    own = [e for e in OWN if e["name"] not in OVERWRITTEN]
    answer = release("anew", **values | {"own": own})
    assert answer.returncode == 0, answer.stderr


def test_properties_need_the_kraft_configmap_or_the_owners_word(cluster: Cluster, release: Release) -> None:
    values = complete(cluster, release, "properties", "Properties")
    before = revision(cluster, "properties")
    answer = repoint(cluster, "properties", "kafka-config")
    assert f"Let volume config mount ConfigMap {values['broker']['existingConfigmap']}" in answer
    stale = release("properties", image="none:2")
    assert stale.returncode != 0
    right = release("properties", **values)
    assert right.returncode == 0, right.stderr
    assert revision(cluster, "properties") == before
    own = json.dumps({"spec": {"template": {"metadata": {"annotations": {f"{GROUP}/broker-mode": "KRaft"}}}}})
    cluster.do("patch", "statefulset", "properties", "--patch", own, user=SOMEBODY)
    assert repoint(cluster, "properties", "my-kraft-config") == ""


def test_a_properties_file_in_a_secret_needs_the_kraft_secret(cluster: Cluster, release: Release) -> None:
    complete(cluster, release, "in-secret", "Properties")
    needed = {"name": "in-secret", "container": "kafka", "volume": "config", "secret": "kafka-kraftbridge-kraft"}
    record(cluster, {"guarded": True, "statefulSets": [needed]})
    words = "Let volume config mount Secret kafka-kraftbridge-kraft"
    eventually(lambda: words in repoint(cluster, "in-secret", "kafka-config", dry_run=True), "the new record counts")

    def mount(secret: str) -> bool:
        volume = {"name": "config", "configMap": None, "secret": {"secretName": secret}}
        patch = json.dumps({"spec": {"template": {"spec": {"volumes": [volume]}}}})
        return cluster.run("patch", "statefulset", "in-secret", "--patch", patch, user=SOMEBODY).returncode == 0

    assert not mount("kafka")
    assert mount("kafka-kraftbridge-kraft")


def test_a_variable_with_which_the_image_looks_for_zookeeper_is_refused(cluster: Cluster, release: Release) -> None:
    """Bitnami's chart renders it as long as the release has a ZooKeeper; a broker on KRaft ends with it."""
    complete(cluster, release, "writer", "Properties")
    attempt = ("set", "env", "statefulset/writer", "--dry-run=server")
    answer = cluster.refused(*attempt, "KAFKA_ZOOKEEPER_BOOTSTRAP_SCRAM_USERS=true", user=SOMEBODY)
    assert "remove KAFKA_ZOOKEEPER_BOOTSTRAP_SCRAM_USERS=true from container kafka" in answer
    cluster.do(*attempt, "KAFKA_ZOOKEEPER_BOOTSTRAP_SCRAM_USERS=false", user=SOMEBODY)


def test_the_brokers_login_to_the_controllers_must_stay(cluster: Cluster, release: Release) -> None:
    """Without it a broker comes up and reaches no controller: a release from before the preparation of the migration has none."""
    complete(cluster, release, "login")
    login = "KAFKA_LISTENER_NAME_CONTROLLER_PLAIN_SASL_JAAS_CONFIG"
    cluster.do("set", "env", "statefulset/login", f"{login}=mine", user=SOMEBODY)
    needed = {"name": "login", "container": "kafka", "presentVariables": [login]}
    record(cluster, {"guarded": True, "statefulSets": [needed]})
    attempt = ("set", "env", "statefulset/login", "--dry-run=server")
    eventually(lambda: cluster.run(*attempt, f"{login}-", user=SOMEBODY).returncode != 0, "the new record counts")
    answer = cluster.refused(*attempt, f"{login}-", user=SOMEBODY)
    assert (
        f"Its brokers need their login to the controllers: give container kafka its variables {login} again" in answer
    )
    cluster.do(*attempt, f"{login}=another", user=SOMEBODY)
    elsewhere = {"name": "kafka", "envFrom": [{"secretRef": {"name": "logins"}}]}
    patch = json.dumps({"spec": {"template": {"spec": {"containers": [elsewhere]}}}})
    cluster.do("patch", "statefulset", "login", "--patch", patch, user=SOMEBODY)
    cluster.do(*attempt, f"{login}-", user=SOMEBODY)


def test_a_variable_to_which_a_value_of_ours_refers_must_stay(cluster: Cluster, release: Release) -> None:
    complete(cluster, release, "referring")
    ours = {"name": "KAFKA_NODE_ID_COMMAND", "value": 'eval "$KAFKA_BROKER_ID_COMMAND"'}
    referred = "KAFKA_BROKER_ID_COMMAND"
    env = [ours, {"name": referred, "value": "hostname"}]
    patch = json.dumps({"spec": {"template": {"spec": {"containers": [{"name": "kafka", "env": env}]}}}})
    cluster.do("patch", "statefulset", "referring", "--patch", patch, user=SOMEBODY)
    needed = {"name": "referring", "container": "kafka", "references": [{**ours, "refersTo": [referred]}]}
    record(cluster, {"guarded": True, "statefulSets": [needed]})
    attempt = ("set", "env", "statefulset/referring", "--dry-run=server")
    eventually(lambda: cluster.run(*attempt, f"{referred}-", user=SOMEBODY).returncode != 0, "the new record counts")
    words = f"{ours['name']} refers to {referred}. Give container kafka these variables again, or other values"
    assert words in cluster.refused(*attempt, f"{referred}-", user=SOMEBODY)
    cluster.do(*attempt, f"{referred}=another", user=SOMEBODY)
    cluster.do(*attempt, f"{referred}-", f"{ours['name']}=hostname", user=SOMEBODY)


def test_what_the_kubelet_expands_must_stand_before_the_variable_that_refers_to_it(
    cluster: Cluster, release: Release
) -> None:
    complete(cluster, release, "ordered")
    found = cluster.get("statefulset", "ordered")
    del found["metadata"]["resourceVersion"]
    others = found["spec"]["template"]["spec"]["containers"][0]["env"]
    rack = {"name": "KAFKA_BROKER_RACK", "value": "$(ZONE)-1"}
    zone = {"name": "ZONE", "value": "a"}
    reference = {"name": rack["name"], "value": "$(ZONE)", "refersTo": [zone["name"]]}
    record(cluster, {"guarded": True, "statefulSets": [{"name": "ordered", "container": "kafka", "references": [reference]}]})  # fmt: skip
    attempt = ("replace", "--dry-run=server", "--filename", "-")

    def replacement(*env: dict[str, str], env_from: bool = False) -> str:
        container = found["spec"]["template"]["spec"]["containers"][0]
        container["env"] = [*others, *env]
        container["envFrom"] = [{"configMapRef": {"name": "others"}}] if env_from else []
        return json.dumps(found)

    def is_admitted(*env: dict[str, str], env_from: bool = False) -> bool:
        stdin = replacement(*env, env_from=env_from)
        return cluster.run(*attempt, stdin=stdin, user=SOMEBODY).returncode == 0

    eventually(lambda: not is_admitted(rack), "the new record counts")
    words = "KAFKA_BROKER_RACK refers to ZONE. Give container kafka these variables again, or other values"
    assert words in cluster.refused(*attempt, stdin=replacement(rack, zone), user=SOMEBODY)
    assert is_admitted(zone, rack)
    assert is_admitted(zone, rack, zone), "the kubelet has the first one by then"
    assert is_admitted(rack, zone, rack), "of two the later one counts"
    assert is_admitted(rack, env_from=True), "it may come from there"
    assert not is_admitted(rack, zone, env_from=True)
    assert is_admitted({**rack, "value": "mine"}), "nothing refers to it"


def test_what_the_properties_file_refers_to_must_stay(cluster: Cluster, release: Release) -> None:
    values = complete(cluster, release, "file-refers", "Properties")
    ours = values["broker"]["existingConfigmap"]
    found = cluster.get("statefulset", "file-refers")
    del found["metadata"]["resourceVersion"]
    template = found["spec"]["template"]
    template["metadata"].setdefault("annotations", {})["example.org/try"] = (
        "a template that is not new is not looked at"
    )
    pod = template["spec"]
    container = pod["containers"][0]
    others = container["env"]
    zone = {"name": "ZONE", "value": "a"}
    references = [
        {"name": "", "value": "${env:ZONE}", "refersTo": ["ZONE"]},
        {"name": "", "value": "${file:/etc/secrets/kafka:rack}", "refersTo": [], "paths": ["/etc/secrets/kafka"]},
    ]
    needed = {"name": "file-refers", "container": "kafka", "volume": "config", "configMap": ours}
    record(cluster, {"guarded": True, "statefulSets": [{**needed, "references": references}]})
    attempt = ("replace", "--dry-run=server", "--filename", "-")

    def replacement(*env: dict[str, str], mounted_at: str = "") -> str:
        container["env"] = [*others, *env]
        container["volumeMounts"] = [{"name": "config", "mountPath": mounted_at}] if mounted_at else []
        return json.dumps(found)

    def is_admitted(*env: dict[str, str], mounted_at: str = "") -> bool:
        stdin = replacement(*env, mounted_at=mounted_at)
        return cluster.run(*attempt, stdin=stdin, user=SOMEBODY).returncode == 0

    eventually(lambda: not is_admitted(), "the new record counts")
    answer = cluster.refused(*attempt, stdin=replacement(), user=SOMEBODY)
    assert "the properties file refers to ZONE; the properties file refers to /etc/secrets/kafka. Give" in answer
    assert not is_admitted(zone)
    assert not is_admitted(zone, mounted_at="/etc/secret")
    assert not is_admitted(mounted_at="/etc/secrets")
    assert is_admitted(zone, mounted_at="/etc/secrets/")
    assert is_admitted(zone, mounted_at="/etc/secrets/kafka")
    template["metadata"]["annotations"][f"{GROUP}/broker-mode"] = "KRaft"
    assert not is_admitted()
    pod["volumes"] = [{"name": "config", "configMap": {"name": "mine"}}]
    assert is_admitted(), "the file is the owner's"


def test_the_brokers_certificate_for_the_controllers_must_stay(cluster: Cluster, release: Release) -> None:
    complete(cluster, release, "certificate")
    mounted = {"name": "kraftbridge-listener", "secret": {"secretName": "issued"}}
    mount = {"name": "kraftbridge-listener", "mountPath": "/etc/kraftbridge-listener"}
    kafka = {"name": "kafka", "volumeMounts": [mount]}
    patch = json.dumps({"spec": {"template": {"spec": {"volumes": [mounted], "containers": [kafka]}}}})
    cluster.do("patch", "statefulset", "certificate", "--patch", patch, user=SOMEBODY)
    record(
        cluster,
        {"guarded": True, "statefulSets": [{"name": "certificate", "container": "kafka", "issuedSecret": "issued"}]},
    )
    unmounted = {"name": "kafka", "volumeMounts": [{"$patch": "delete", "mountPath": mount["mountPath"]}]}
    loose = json.dumps({"spec": {"template": {"spec": {"containers": [unmounted]}}}})
    no_volume = [{"$patch": "delete", "name": "kraftbridge-listener"}]
    gone = json.dumps({"spec": {"template": {"spec": {"volumes": no_volume, "containers": [unmounted]}}}})
    attempt = ("patch", "statefulset", "certificate", "--dry-run=server", "--patch")
    eventually(lambda: cluster.run(*attempt, gone, user=SOMEBODY).returncode != 0, "the new record counts")
    for change in (gone, loose):
        assert "mount Secret issued in container kafka" in cluster.refused(*attempt, change, user=SOMEBODY)
    cluster.do("set", "env", "statefulset/certificate", "--dry-run=server", "OTHER=1", user=SOMEBODY)


def test_a_variable_that_bitnamis_image_does_not_accept_on_kraft_is_refused(cluster: Cluster, release: Release) -> None:
    complete(cluster, release, "filled")
    variable = "KAFKA_CFG_ZOOKEEPER_CONNECT"
    record(
        cluster,
        {"guarded": True, "statefulSets": [{"name": "filled", "container": "kafka", "emptyVariables": [variable]}]},
    )
    attempt = ("set", "env", "statefulset/filled", "--dry-run=server")
    wrong = f"{variable}=zookeeper:2181"
    eventually(lambda: cluster.run(*attempt, wrong, user=SOMEBODY).returncode != 0, "the new record counts")
    answer = cluster.refused(*attempt, wrong, user=SOMEBODY)
    assert f"Its image does not start on KRaft with {variable}: remove it from container kafka" in answer
    cluster.do(*attempt, f"{variable}=", user=SOMEBODY)
    entry = {"name": variable, "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}
    patch = json.dumps({"spec": {"template": {"spec": {"containers": [{"name": "kafka", "env": [entry]}]}}}})
    cluster.refused("patch", "statefulset", "filled", "--patch", patch, user=SOMEBODY)


def test_a_protocol_with_which_no_kraft_broker_starts_is_refused(cluster: Cluster, release: Release) -> None:
    complete(cluster, release, "protocol")
    attempt = ("set", "env", "statefulset/protocol", "--dry-run=server")
    variable = "KAFKA_INTER_BROKER_PROTOCOL_VERSION"
    for version in ("2.8", "2.4-IV1", "3.0-IV0"):
        answer = cluster.refused(*attempt, f"{variable}={version}", user=SOMEBODY)
        assert f"remove {variable}={version} from container kafka" in answer
    for version in ("3.9", "3.0-IV1", "3.0"):
        cluster.do(*attempt, f"{variable}={version}", user=SOMEBODY)


def test_of_two_entries_of_one_variable_the_later_one_counts(cluster: Cluster, release: Release) -> None:
    values = complete(cluster, release, "twice")
    found = cluster.get("statefulset", "twice")
    env = found["spec"]["template"]["spec"]["containers"][0]["env"]
    roles = next(entry for entry in values["extraEnvVars"] if entry["name"] == "KAFKA_PROCESS_ROLES")
    others = [entry for entry in env if entry["name"] != roles["name"]]
    hidden = {"name": roles["name"], "value": "controller"}
    attempt = ("replace", "--dry-run=server", "--filename", "-")
    found["spec"]["template"]["spec"]["containers"][0]["env"] = [roles, *others, hidden]
    assert "KAFKA_PROCESS_ROLES=broker" in cluster.refused(*attempt, stdin=json.dumps(found), user=SOMEBODY)
    found["spec"]["template"]["spec"]["containers"][0]["env"] = [hidden, *others, roles]
    cluster.do(*attempt, stdin=json.dumps(found), user=SOMEBODY)


def test_other_writers_of_a_guarded_statefulset_are_free(cluster: Cluster, release: Release) -> None:
    complete(cluster, release, "free-otherwise")
    for change in (
        ("scale", "statefulset", "free-otherwise", "--replicas=1"),
        ("rollout", "restart", "statefulset/free-otherwise"),
    ):
        cluster.do(*change, user=SOMEBODY)
