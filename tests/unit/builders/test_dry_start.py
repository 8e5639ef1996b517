"""A copy of a broker's pod has what starts Kafka, and nothing that could do harm."""

from __future__ import annotations

import base64
import copy
import json
from dataclasses import replace
from typing import Any

import pytest

from kraftbridge.builders.broker_overlays import BrokerFacts
from kraftbridge.builders.dry_start_pods import (
    API,
    API_FILE,
    DIRECTORY,
    LISTENER_FILE,
    SCHEDULING_GATE,
    CopyFacts,
    DryStartFacts,
    copy_name,
    copy_pod,
    field_value,
    network_policy,
    overlaid,
    probe_pod,
    run_secret,
)
from kraftbridge.copies.admission import API_DIRECTORY
from kraftbridge.models.dry_start import CopyKey, ListenerOfControllers
from kraftbridge.models.mounted_files import FilesKind, MountedFiles
from kraftbridge.models.phase import BrokerMode
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.outside.properties import parse_properties

FACTS = DryStartFacts("shop", "main", "uid-1", "r1", "operator:1", ("10.0.0.1:2181", "10.96.0.1:443"))

STATEFUL_SET: dict[str, Any] = {
    "metadata": {"name": "kafka"},
    "spec": {
        "serviceName": "kafka-headless",
        "replicas": 3,
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}],
        "template": {
            "metadata": {"labels": {"app": "kafka"}, "annotations": {"sidecar.istio.io/inject": "true"}},
            "spec": {
                "hostNetwork": True,
                "hostPID": True,
                "hostIPC": True,
                "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["zookeeper"]}],
                "dnsPolicy": "ClusterFirst",
                "serviceAccountName": "kafka",
                "affinity": {"podAntiAffinity": {}},
                "topologySpreadConstraints": [{}],
                "priorityClassName": "high",
                "nodeSelector": {"kubernetes.io/arch": "amd64"},
                "tolerations": [{"key": "kafka"}],
                "securityContext": {"fsGroup": 1001, "sysctls": [{"name": "net.core.somaxconn", "value": "1"}]},
                "initContainers": [
                    {
                        "name": "prepare",
                        "image": "kafka:1",
                        "command": ["sh", "-c", "keytool"],
                        "securityContext": {"privileged": True},
                    },
                    {"name": "native-sidecar", "image": "mesh:1", "restartPolicy": "Always"},
                ],
                "containers": [
                    {
                        "name": "kafka",
                        "image": "kafka:1",
                        "command": ["sh", "-c", "exec start"],
                        "ports": [{"containerPort": 9092, "hostPort": 9092}],
                        "env": [
                            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                            {"name": "ZONE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['zone']"}}},
                            {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                            {"name": "JAVA_TOOL_OPTIONS", "value": "-Duser=1"},
                            {"name": "_JAVA_OPTIONS", "value": "-Xmx8g"},
                            {"name": "BROKER", "value": "$(POD_NAME)"},
                        ],
                        "envFrom": [{"configMapRef": {"name": "more"}}],
                        "lifecycle": {"preStop": {"exec": {"command": ["stop"]}}},
                        "livenessProbe": {},
                        "readinessProbe": {},
                        "startupProbe": {},
                        "volumeDevices": [{"name": "raw", "devicePath": "/dev/x"}],
                        "resources": {"requests": {"cpu": "2", "memory": "8Gi"}, "limits": {"memory": "8Gi"}},
                        "securityContext": {
                            "runAsUser": 1001,
                            "privileged": True,
                            "capabilities": {"add": ["SYS_ADMIN"], "drop": ["NET_RAW"]},
                        },
                        "volumeMounts": [
                            {"name": "data", "mountPath": "/data", "subPath": "kafka"},
                            {"name": "host", "mountPath": "/host"},
                            {"name": "config", "mountPath": "/config"},
                        ],
                    },
                    {"name": "exporter", "image": "exporter:1"},
                ],
                "volumes": [
                    {"name": "host", "hostPath": {"path": "/var/lib/kafka"}},
                    {"name": "claim", "persistentVolumeClaim": {"claimName": "shared"}},
                    {"name": "csi", "csi": {"driver": "secrets-store.csi.k8s.io"}},
                    {"name": "config", "configMap": {"name": "kafka-config", "defaultMode": 0o755}},
                    {"name": "secret", "secret": {"secretName": "keys"}},
                    {"name": "info", "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
                    {
                        "name": "mixed",
                        "projected": {
                            "sources": [
                                {"serviceAccountToken": {"path": "token"}},
                                {"configMap": {"name": "c"}},
                                {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
                            ]
                        },
                    },
                ],
            },
        },
    },
}  # fmt: skip
LIVE: dict[str, Any] = {
    "metadata": {"name": "kafka-1", "namespace": "shop", "uid": "u", "labels": {"app": "kafka", "zone": "b"}},
    "spec": {"nodeName": "n1", "serviceAccountName": "kafka", "imagePullSecrets": [{"name": "pull"}]},
    "status": {"podIP": "10.1.2.3", "hostIP": "10.9.9.9", "podIPs": [{"ip": "10.1.2.3"}, {"ip": "fd00::3"}]},
}
EACH = CopyFacts(
    CopyKey("kafka", 1, BrokerMode.ZOOKEEPER), STATEFUL_SET, LIVE, "kafka", 101, "cluster-id", ("/data/a", "/else/b")
)


@pytest.fixture
def pod() -> dict[str, Any]:
    return copy_pod(FACTS, EACH)


def texts(secret: dict[str, Any]) -> dict[str, str]:
    return {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}


def container(pod: dict[str, Any], name: str) -> dict[str, Any]:
    return next(c for c in (*pod["spec"]["initContainers"], *pod["spec"]["containers"]) if c["name"] == name)


def variables(pod: dict[str, Any], name: str) -> dict[str, Any]:
    return {e["name"]: e.get("value", e.get("valueFrom")) for e in container(pod, name)["env"]}


def test_only_the_kafka_container_and_init_containers_that_end_are_copied(pod: dict[str, Any]) -> None:
    assert [c["name"] for c in pod["spec"]["containers"]] == ["kafka"]
    assert [c["name"] for c in pod["spec"]["initContainers"]] == ["kraftbridge-prepare", "prepare"]


def test_a_copy_keeps_image_command_and_references_of_the_user(pod: dict[str, Any]) -> None:
    kafka = container(pod, "kafka")
    assert (kafka["image"], kafka["command"], kafka["envFrom"]) == (
        "kafka:1",
        ["sh", "-c", "exec start"],
        [{"configMapRef": {"name": "more"}}],
    )
    assert variables(pod, "kafka")["PASSWORD"] == {"secretKeyRef": {"name": "s", "key": "k"}}
    assert pod["spec"]["imagePullSecrets"] == [{"name": "pull"}]


def test_hooks_probes_ports_devices_and_privileges_are_left_out(pod: dict[str, Any]) -> None:
    left_out = {"lifecycle", "livenessProbe", "readinessProbe", "startupProbe", "ports", "volumeDevices"}
    assert not left_out & container(pod, "kafka").keys()
    assert container(pod, "kafka")["securityContext"] == {"runAsUser": 1001, "capabilities": {"drop": ["NET_RAW"]}}
    assert "privileged" not in container(pod, "prepare")["securityContext"]


def test_host_namespaces_affinity_priority_and_account_are_left_out(pod: dict[str, Any]) -> None:
    left_out = {"hostNetwork", "hostPID", "hostIPC", "hostAliases", "affinity", "topologySpreadConstraints"}
    assert not (left_out | {"priorityClassName", "serviceAccountName", "nodeName"}) & pod["spec"].keys()
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert pod["spec"]["securityContext"] == {"fsGroup": 1001}
    assert pod["spec"]["nodeSelector"] == {"kubernetes.io/arch": "amd64"}


def test_no_name_resolves_and_no_service_or_injector_takes_the_pod_for_the_users(pod: dict[str, Any]) -> None:
    assert pod["spec"]["dnsPolicy"] == "None"
    assert pod["spec"]["dnsConfig"]["nameservers"] == ["127.0.0.1"]
    assert "app" not in pod["metadata"]["labels"]
    assert pod["metadata"]["annotations"]["sidecar.istio.io/inject"] == "false"
    assert pod["metadata"]["labels"]["sidecar.istio.io/inject"] == "false"
    assert pod["metadata"]["annotations"]["vault.hashicorp.com/agent-inject"] == "false"


def test_a_copy_waits_for_inspection_and_ends_by_itself(pod: dict[str, Any]) -> None:
    assert pod["spec"]["schedulingGates"] == [{"name": SCHEDULING_GATE}]
    assert pod["spec"]["restartPolicy"] == "Never"
    assert 0 < pod["spec"]["activeDeadlineSeconds"] <= 180


def test_host_name_and_pod_name_end_in_the_ordinal(pod: dict[str, Any]) -> None:
    assert pod["spec"]["hostname"] == "kafka-1"
    assert pod["spec"]["subdomain"] == "kafka-headless"
    assert pod["metadata"]["name"] == copy_name(EACH.key, "r1") == "kafka-dry-38edd8-zookeeper-1"


def test_every_volume_but_those_that_kubernetes_renders_is_an_empty_directory(pod: dict[str, Any]) -> None:
    volumes = {v["name"]: v for v in pod["spec"]["volumes"]}
    for name in ("data", "host", "claim", "csi"):
        assert volumes[name] == {"name": name, "emptyDir": {"sizeLimit": "2Gi"}}
    assert volumes["config"]["configMap"] == {"name": "kafka-config", "defaultMode": 0o755}
    assert volumes["secret"]["secret"] == {"secretName": "keys"}
    assert not any(v.keys() & {"hostPath", "persistentVolumeClaim", "csi", "nfs"} for v in volumes.values())


def test_volumes_of_field_references_have_the_live_pods_values_and_no_token(pod: dict[str, Any]) -> None:
    data = texts(run_secret(FACTS, "salt", [EACH]))
    volumes = {v["name"]: v for v in pod["spec"]["volumes"]}
    (item,) = volumes["info"]["secret"]["items"]
    assert data[item["key"]] == 'app="kafka"\nzone="b"'
    config, downward = volumes["mixed"]["projected"]["sources"]
    assert config == {"configMap": {"name": "c"}}
    (item,) = downward["secret"]["items"]
    assert (item["path"], data[item["key"]]) == ("name", "kafka-1")
    assert data["salt"] == "salt"


def test_a_copy_learns_what_the_controllers_listener_asks_for_and_no_password(pod: dict[str, Any]) -> None:
    listener = ListenerOfControllers("SASL_SSL", "-----PEM-----\n", "", {"broker": "of-the-broker"})
    secret = texts(run_secret(FACTS, "salt", [EACH], listener))
    told = parse_properties(secret[LISTENER_FILE])
    assert (told["protocol"], told["certificate"]) == ("SASL_SSL", "-----PEM-----\n")
    assert len(told["user.broker"]) == 64
    assert "of-the-broker" not in str(secret)
    assert (
        told["user.broker"]
        != parse_properties(texts(run_secret(FACTS, "another", [], listener))[LISTENER_FILE])["user.broker"]
    )
    (volume,) = [v for v in pod["spec"]["volumes"] if v["name"] == "kraftbridge-dry-start-run"]
    assert [item["key"] for item in volume["secret"]["items"]] == ["salt", LISTENER_FILE, API_FILE]
    assert f"--listener=/kraftbridge-run/{LISTENER_FILE}" in container(pod, "kraftbridge-prepare")["command"]
    assert texts(run_secret(FACTS, "salt", [EACH]))[LISTENER_FILE] == "", "a plain listener: nothing is compared"


def test_field_references_have_the_live_pods_values(pod: dict[str, Any]) -> None:
    found = variables(pod, "kafka")
    assert (found["POD_NAME"], found["POD_IP"], found["ZONE"]) == ("kafka-1", "10.1.2.3", "b")
    names = [e["name"] for e in container(pod, "kafka")["env"]]
    assert names.index("POD_NAME") < names.index("BROKER")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.namespace", "shop"),
        ("metadata.uid", "u"),
        ("metadata.annotations['none']", ""),
        ("spec.nodeName", "n1"),
        ("spec.serviceAccountName", "kafka"),
        ("status.hostIP", "10.9.9.9"),
        ("status.podIPs", "10.1.2.3,fd00::3"),
    ],
)
def test_field_value(path: str, value: str) -> None:
    assert field_value(EACH, path) == value


def test_every_jvm_loads_the_agent_and_the_users_options_stay(pod: dict[str, Any]) -> None:
    agent = f"-javaagent:{DIRECTORY}/agent.jar={DIRECTORY}"
    for name in ("kafka", "prepare"):
        found = variables(pod, name)
        assert agent in found["JAVA_TOOL_OPTIONS"]
        assert (
            found["_JAVA_OPTIONS"]
            == f"-Xms16m -Xmx96m -XX:+IgnoreUnrecognizedVMOptions -XX:TieredStopAtLevel=1 {agent}"
        )
        assert {"name": "kraftbridge-dry-start", "mountPath": DIRECTORY} in container(pod, name)["volumeMounts"]
    found = variables(pod, "kafka")
    assert found["KRAFTBRIDGE_USERS_JAVA_TOOL_OPTIONS"] == "-Duser=1"
    assert found["JAVA_TOOL_OPTIONS"] == f"{agent} $(KRAFTBRIDGE_USERS_JAVA_TOOL_OPTIONS)"


def test_the_first_container_proves_the_fence_and_fills_what_the_mode_would_find(pod: dict[str, Any]) -> None:
    first = pod["spec"]["initContainers"][0]
    assert first["image"] == "operator:1"
    assert [a for a in first["command"] if a.startswith("--closed")] == [
        "--closed=10.0.0.1:2181",
        "--closed=10.96.0.1:443",
    ]
    assert "--meta-properties=/kraftbridge-volumes/data/kafka/a" in first["command"]
    assert not any("else" in a for a in first["command"]), "a directory of the image is empty in every new pod"
    assert {"name": "META_PROPERTIES", "value": "version=0\nbroker.id=101\ncluster.id=cluster-id\n"} in first["env"]
    assert {"name": "data", "mountPath": "/kraftbridge-volumes/data"} in first["volumeMounts"]
    assert "kraftbridge-dry-start-run" not in {
        m["name"] for c in (container(pod, "kafka"), container(pod, "prepare")) for m in c["volumeMounts"]
    }


@pytest.mark.parametrize("user", [None, 0, 1001])
def test_our_own_containers_keep_to_the_restricted_standard_without_a_fixed_user(user: int | None) -> None:
    changed = copy.deepcopy(STATEFUL_SET)
    changed["spec"]["template"]["spec"]["securityContext"]["runAsUser"] = user
    first = copy_pod(FACTS, replace(EACH, stateful_set=changed))["spec"]["initContainers"][0]["securityContext"]
    assert first["runAsNonRoot"] is (user != 0)
    assert first["seccompProfile"] == {"type": "RuntimeDefault"}
    assert "runAsUser" not in first
    assert probe_pod(FACTS, ())["spec"]["containers"][0]["securityContext"]["runAsNonRoot"] is True


def test_requests_are_small_and_limits_stay(pod: dict[str, Any]) -> None:
    assert container(pod, "kafka")["resources"] == {
        "requests": {"cpu": "20m", "memory": "64Mi"},
        "limits": {"memory": "8Gi"},
    }


@pytest.mark.parametrize("quality", ["BestEffort", "Burstable", "Guaranteed", ""])
def test_a_copy_takes_no_processor_from_brokers_that_claim_none(quality: str) -> None:
    """With a request a copy's cgroup would outweigh every pod without one: seven copies on two cores made producers wait for seconds."""
    live = {**EACH.live, "status": {**EACH.live.get("status", {}), "qosClass": quality}}
    changed = copy.deepcopy(STATEFUL_SET)
    if quality == "BestEffort":
        for each in changed["spec"]["template"]["spec"]["containers"]:
            each.pop("resources", None)
    pod = copy_pod(FACTS, replace(EACH, live=live, stateful_set=changed))
    claims = [c.get("resources") or {} for c in (*pod["spec"]["initContainers"], *pod["spec"]["containers"])]
    assert any(claims) is (quality != "BestEffort")


@pytest.mark.parametrize(
    "claimed", [{}, {"requests": {"memory": "8Gi"}}, {"requests": {"cpu": "2"}}, {"limits": {"cpu": "2"}}]
)
def test_a_copy_requests_processor_only_where_the_live_pod_does(claimed: dict[str, Any]) -> None:
    live = {**EACH.live, "spec": {**EACH.live.get("spec", {}), "containers": [{"name": "kafka", "resources": claimed}]}}
    pod = copy_pod(FACTS, replace(EACH, live=live))
    requested = [
        "cpu" in c["resources"]["requests"] for c in (*pod["spec"]["initContainers"], *pod["spec"]["containers"])
    ]
    assert set(requested) == {"cpu" in str(claimed)}


def test_requests_that_a_script_reads_stay() -> None:
    changed = copy.deepcopy(STATEFUL_SET)
    env = changed["spec"]["template"]["spec"]["containers"][0]["env"]
    env.append({"name": "M", "valueFrom": {"resourceFieldRef": {"resource": "requests.memory"}}})
    pod = copy_pod(FACTS, replace(EACH, stateful_set=changed))
    assert container(pod, "kafka")["resources"]["requests"] == {"cpu": "2", "memory": "8Gi"}


def test_the_policy_selects_probe_and_copies_and_lets_nothing_through(pod: dict[str, Any]) -> None:
    policy = network_policy(FACTS)["spec"]
    assert (policy["policyTypes"], policy["ingress"], policy["egress"]) == (["Ingress", "Egress"], [], [])
    selected = policy["podSelector"]["matchLabels"].items()
    probe = probe_pod(FACTS, FACTS.closed)
    for each in (pod, probe):
        assert selected <= each["metadata"]["labels"].items()
    assert probe["spec"]["containers"][0]["command"][3:] == ["--closed=10.0.0.1:2181", "--closed=10.96.0.1:443"]


def spec(**brokers: Any) -> MigrationSpec:
    return MigrationSpec.model_validate(
        {
            "target": "KRaft",
            "zookeeper": {"connect": "zookeeper:2181"},
            "brokers": {"statefulSets": [{"name": "kafka"}], "container": "kafka", "bootstrapServers": "kafka:9092", "configStyle": "Env", **brokers},
        }
    )  # fmt: skip


def test_a_modes_overlay_is_merged_as_server_side_apply_would() -> None:
    facts = BrokerFacts("shop", "main-kraft", "cluster.local", "cluster-id", {}, "-Duser=1")
    changed, files = overlaid(spec(), facts, "main", STATEFUL_SET, BrokerMode.KRAFT)
    pod = copy_pod(
        FACTS, replace(EACH, key=replace(EACH.key, mode=BrokerMode.KRAFT), stateful_set=changed, files=files)
    )
    found = variables(pod, "kafka")
    assert found["KAFKA_PROCESS_ROLES"] == "broker"
    assert found["POD_NAME"] == "kafka-1"
    assert "-Duser=1" in found["KRAFTBRIDGE_USERS_JAVA_TOOL_OPTIONS"]
    assert not files
    same, _ = overlaid(spec(), facts, "main", STATEFUL_SET, BrokerMode.ZOOKEEPER)
    assert same == STATEFUL_SET


@pytest.mark.parametrize("mode", BrokerMode)
def test_in_no_copy_the_image_writes_to_zookeeper(mode: BrokerMode) -> None:
    writer = "KAFKA_ZOOKEEPER_BOOTSTRAP_SCRAM_USERS"
    facts = BrokerFacts("shop", "main-kraft", "cluster.local", "id", {}, "", zookeeper_writers=(writer,))
    changed, _ = overlaid(spec(), facts, "main", STATEFUL_SET, mode)
    pod = copy_pod(FACTS, replace(EACH, key=replace(EACH.key, mode=mode), stateful_set=changed))
    assert variables(pod, "kafka")[writer] == "false"
    assert writer not in str(STATEFUL_SET), "the user's own is not touched"


def test_a_modes_properties_file_comes_from_the_runs_secret() -> None:
    style = {
        "configStyle": "Properties",
        "properties": {"volume": "config", "configMap": "kafka-config", "key": "server.properties"},
    }
    facts = BrokerFacts(
        "shop", "main-kraft", "cluster.local", "cluster-id", {}, "", "broker.id=1\nzookeeper.connect=z\n"
    )
    changed, files = overlaid(spec(**style), facts, "main", STATEFUL_SET, BrokerMode.MIGRATION)
    each = replace(EACH, key=replace(EACH.key, mode=BrokerMode.MIGRATION), stateful_set=changed, files=files)
    volume = next(v for v in copy_pod(FACTS, each)["spec"]["volumes"] if v["name"] == "config")
    (source,) = volume["projected"]["sources"]
    (item,) = source["secret"]["items"]
    assert item["path"] == "server.properties"
    assert "zookeeper.metadata.migration.enable=true" in texts(run_secret(FACTS, "s", [each]))[item["key"]]


@pytest.mark.parametrize("kind", FilesKind)
def test_a_copy_has_every_key_of_the_properties_volume_where_the_user_puts_it(kind: FilesKind) -> None:
    """Scripts beside the file come from the user's own object, under the paths and modes of the user's volume."""
    style = {"configStyle": "Properties", "properties": {"volume": "config", "key": "broker.properties"}}
    items = [{"key": "broker.properties", "path": "conf/broker.properties"}, {"key": "start.sh", "path": "start.sh"}]
    reference = {"name": "own"} if kind is FilesKind.CONFIG_MAP else {"secretName": "own"}
    field = f"{kind[:1].lower()}{kind[1:]}"
    own = copy.deepcopy(STATEFUL_SET)
    template = own["spec"]["template"]["spec"]
    template["volumes"] = [
        *(v for v in template.get("volumes", []) if v["name"] != "config"),
        {"name": "config", field: {**reference, "items": items, "defaultMode": 0o555}},
    ]
    mount = {"name": "config", "mountPath": "/etc/kafka/broker.properties", "subPath": "conf/broker.properties"}
    kafka = next(c for c in template["containers"] if c["name"] == "kafka")
    kafka["volumeMounts"] = [*(m for m in kafka.get("volumeMounts", []) if m["name"] != "config"), mount]
    mounted = MountedFiles(kind, "own", {"broker.properties": "", "start.sh": ""})
    facts = BrokerFacts("shop", "main-kraft", "cluster.local", "cluster-id", {}, "", "broker.id=1\n", files=mounted)
    changed, files = overlaid(spec(**style), facts, "main", own, BrokerMode.KRAFT)
    key = replace(EACH.key, mode=BrokerMode.KRAFT)
    each = replace(EACH, key=key, stateful_set=changed, files=files, mounted=mounted)
    pod = copy_pod(FACTS, each)
    volume = next(v for v in pod["spec"]["volumes"] if v["name"] == "config")["projected"]
    ours, theirs = volume["sources"]
    assert volume["defaultMode"] == 0o555
    assert [i["path"] for i in ours["secret"]["items"]] == ["conf/broker.properties"]
    assert "process.roles=broker" in texts(run_secret(FACTS, "s", [each]))[ours["secret"]["items"][0]["key"]]
    assert theirs == {field: {"name": "own", "items": [{"key": "start.sh", "path": "start.sh"}]}}
    assert mount in next(c for c in pod["spec"]["containers"] if c["name"] == "kafka")["volumeMounts"]


@pytest.mark.parametrize("inherits", [True, False])
def test_java_options_that_envfrom_gives_stay_beside_the_agent(inherits: bool) -> None:
    own = copy.deepcopy(STATEFUL_SET)
    kafka = next(c for c in own["spec"]["template"]["spec"]["containers"] if c["name"] == "kafka")
    kafka["env"] = [e for e in kafka.get("env", []) if e["name"] != "JAVA_TOOL_OPTIONS"]
    found = variables(copy_pod(FACTS, replace(EACH, stateful_set=own, inherits_options=inherits)), "kafka")
    assert found.get("KRAFTBRIDGE_USERS_JAVA_TOOL_OPTIONS") == ("$(JAVA_TOOL_OPTIONS)" if inherits else None)
    assert found["JAVA_TOOL_OPTIONS"].startswith("-javaagent:")
    assert found["JAVA_TOOL_OPTIONS"].endswith("$(KRAFTBRIDGE_USERS_JAVA_TOOL_OPTIONS)") is inherits


@pytest.mark.parametrize(
    ("source", "claims", "filled"),
    [
        ({"emptyDir": {}}, (), False),
        ({"ephemeral": {"volumeClaimTemplate": {}}}, (), False),
        ({"brandNew": {}}, (), False),
        ({"hostPath": {"path": "/mnt"}}, (), True),
        ({"persistentVolumeClaim": {"claimName": "c"}}, (), True),
        ({"emptyDir": {}}, ("data",), True),
    ],
)
def test_a_disk_that_the_restart_finds_blank_is_blank_in_the_copy(
    source: dict[str, Any], claims: tuple[str, ...], *, filled: bool
) -> None:
    kafka = {"name": "kafka", "image": "x", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    template = {"metadata": {}, "spec": {"containers": [kafka], "volumes": [{"name": "data", **source}]}}
    stateful_set = {
        "metadata": {"name": "kafka"},
        "spec": {"template": template, "volumeClaimTemplates": [{"metadata": {"name": name}} for name in claims]},
    }
    key = CopyKey("kafka", 0, BrokerMode.KRAFT)
    live = {"metadata": {"name": "kafka-0"}, "spec": template["spec"], "status": {}}
    copied = CopyFacts(key, stateful_set, live, "kafka", 0, "cluster-id", ("/data/kafka",))
    made = copy_pod(DryStartFacts("kafka", "shop", "u", "run", "operator:1", ()), copied)
    command = made["spec"]["initContainers"][0]["command"]
    assert ("--meta-properties=/kraftbridge-volumes/data/kafka" in command) is filled


# ------------------------------------------------------------------------------------------- the API server's stand-in

TOKEN = {"name": "kube-api-access-x7k2p", "mountPath": API_DIRECTORY, "readOnly": True}
"""What the service account's admission plugin mounts into each container of a pod with automount."""


def copy_of_a_pod_with_a_token(**starter: Any) -> dict[str, Any]:
    stateful_set = copy.deepcopy(STATEFUL_SET)
    stateful_set["spec"]["template"]["spec"]["initContainers"][0] |= starter
    live = copy.deepcopy(LIVE)
    live["spec"]["initContainers"] = [{"name": "prepare", "volumeMounts": [TOKEN]}]
    return copy_pod(FACTS, replace(EACH, stateful_set=stateful_set, live=live))


def test_an_init_container_that_had_a_token_asks_the_stand_in_and_gets_no_token() -> None:
    spec = copy_of_a_pod_with_a_token(
        env=[{"name": "KUBERNETES_SERVICE_HOST", "value": "10.96.0.1"}, {"name": "A", "value": "b"}],
        volumeMounts=[{"name": "mixed", "mountPath": API_DIRECTORY}],
    )["spec"]
    prepare, stand_in, users = spec["initContainers"]
    assert (prepare["name"], stand_in["name"], users["name"]) == ("kraftbridge-prepare", API, "prepare")
    assert stand_in["restartPolicy"] == "Always", "it lives while the init containers behind it run"
    assert stand_in["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    variables = {entry["name"]: entry.get("value") for entry in users["env"]}
    assert variables["A"] == "b"
    assert variables["KUBERNETES_SERVICE_HOST"] == "127.0.0.1"
    assert [m["name"] for m in users["volumeMounts"] if m["mountPath"] == API_DIRECTORY] == [API]
    assert {"name": API, "emptyDir": {"sizeLimit": "64Mi"}} in spec["volumes"]
    assert spec["automountServiceAccountToken"] is False
    assert "serviceAccountToken" not in json.dumps(spec)


def test_an_init_container_that_only_the_template_has_asks_where_the_pod_has_a_token() -> None:
    live = copy.deepcopy(LIVE)
    live["spec"]["containers"] = [{"name": "kafka", "volumeMounts": [TOKEN]}]
    names = [c["name"] for c in copy_pod(FACTS, replace(EACH, live=live))["spec"]["initContainers"]]
    assert names == ["kraftbridge-prepare", API, "prepare"]
    live["spec"]["initContainers"] = [{"name": "prepare", "volumeMounts": []}]
    names = [c["name"] for c in copy_pod(FACTS, replace(EACH, live=live))["spec"]["initContainers"]]
    assert names == ["kraftbridge-prepare", "prepare"], "it had none, whatever the others have"


def test_without_a_token_nothing_stands_in(pod: dict[str, Any]) -> None:
    assert API not in json.dumps(pod["spec"]).replace(API_FILE, "")


def test_what_the_stand_in_answers_with_shows_no_environment() -> None:
    service = {
        "kind": "Service",
        "metadata": {"name": "kafka-1-external", "managedFields": [{}]},
        "spec": {"ports": [{"nodePort": 30001}]},
        "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.7"}]}},
    }
    pod = {"kind": "Pod", **LIVE, "spec": {**LIVE["spec"], "containers": [{"env": [{"name": "P", "value": "secret"}]}]}}
    told = json.loads(texts(run_secret(FACTS, "salt", [EACH], None, (service, pod)))[API_FILE])
    assert told[0]["spec"]["ports"] == [{"nodePort": 30001}]
    assert told[0]["status"] == service["status"]
    assert told[1]["spec"] == {"nodeName": "n1"}
    assert told[1]["status"]["hostIP"] == "10.9.9.9"
    assert "managedFields" not in told[0]["metadata"]
