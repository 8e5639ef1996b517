"""Preflight with a dry start: copies of real brokers' pods, behind a real NetworkPolicy, start what runs and nothing else."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from e2e.harness.foreign import ForeignCluster
from e2e.harness.kube import CLUSTER, KAFKA_IMAGE, Kube, eventually, run
from e2e.harness.migration import Migration, View, manifest
from e2e.harness.operator_install import migrated

NAMESPACE = "kafka-dry-start"
UNDER_WAY = "Copies of the brokers' pods are started"
OPERATOR_IMAGE = "localhost/kraftbridge-operator:dev"
OTHER_IMAGE = "localhost/kraftbridge-busybox:1"
"""An image of the embedded cluster that is no Kafka."""
NO_IMAGE = "localhost/kraftbridge-nowhere:1"
KAFKA_VARIABLES = {"configStyle": "Env", "envPrefix": "KAFKA_"}
COPIES = "kraftbridge.dev/role=dry-start"
HOST_PATH = Path("/var/tmp/kraftbridge-dry-start-host-path")
OPEN = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "everything", "namespace": NAMESPACE},
    "spec": {"podSelector": {}, "policyTypes": ["Egress"], "egress": [{}]},
}


@pytest.fixture(scope="module")
def cluster(kube: Kube) -> Iterator[ForeignCluster]:
    foreign = ForeignCluster(kube, NAMESPACE)
    with migrated(foreign):
        yield foreign


def _judged(
    cluster: ForeignCluster, name: str, change: dict[str, Any] | None = None, controllers: dict[str, Any] | None = None
) -> View:
    """Apply a migration that stops after preflight; return it once preflight has passed or is blocked."""
    resource = manifest(cluster, name, target="Preflight", runner="Job")
    resource["spec"]["brokers"] |= change or {}
    resource["spec"]["controllers"] |= controllers or {}
    cluster.kube.apply(json.dumps(resource), NAMESPACE)
    migration = Migration(cluster.kube, NAMESPACE, name)

    def look() -> View | None:
        view = migration.view()
        if view is None:
            return None
        passed = view.status.get("conditions") and view.condition("PreflightPassed")["status"] == "True"
        # Another finding may block while copies still run.
        judged = passed or (view.blocked and UNDER_WAY not in view.message)
        return view if judged else None

    try:
        found: View = eventually(look, f"{name} is judged", 240)
        eventually(lambda: not cluster.kube.list("pods", NAMESPACE, COPIES), "the copies are gone", 60)
        return found
    finally:
        cluster.kube.kubectl("delete", "kafkamigrations.kraftbridge.dev", name, "-n", NAMESPACE, "--timeout=60s")


def _channel(view: View) -> dict[str, str]:
    """Return the channel that a dry start has proven."""
    channel = dict(view.status["channel"])
    assert channel.pop("provenAt"), channel
    assert "kafka" in channel.pop("provenBy"), channel
    assert channel.pop("fingerprint"), channel
    return {name: value for name, value in channel.items() if value}


def _dry_start_findings(view: View) -> list[str]:
    """Return the findings of the dry start, each as its code, reason and fix: one code may have a finding for each mode."""
    return [
        f"{f['code']}: {f['reason']}. {f['fix']}" for f in view.status["findings"] if f["code"].startswith("DryStart")
    ]


def test_copies_of_an_ordinary_cluster_start_what_runs(cluster: ForeignCluster) -> None:
    before = {p["metadata"]["uid"] for p in cluster.kube.list("pods", NAMESPACE, f"app={cluster.brokers}")}
    view = _judged(cluster, "faithful")
    assert _dry_start_findings(view) == []
    assert _channel(view) == KAFKA_VARIABLES
    assert view.condition("PreflightPassed")["status"] == "True"
    assert {p["metadata"]["uid"] for p in cluster.kube.list("pods", NAMESPACE, f"app={cluster.brokers}")} == before


def test_the_channel_is_found_where_the_first_guess_does_not_reach_the_brokers(cluster: ForeignCluster) -> None:
    """The user's prefix and the pod template suggest a channel that this image does not read."""
    decoy = {"name": "KAFKA_CFG_ZOOKEEPER_CONNECT", "value": cluster.zookeeper_connect}
    with _template(cluster, {"containers": [{"name": "kafka", "env": [decoy]}]}):
        view = _judged(cluster, "guessed", {"configStyle": "Auto", "envPrefix": "KAFKA_CFG_"})
    assert _dry_start_findings(view) == []
    assert _channel(view) == KAFKA_VARIABLES


def test_a_channel_that_does_not_reach_the_brokers_is_named(cluster: ForeignCluster) -> None:
    named = {"configStyle": "Env", "envPrefix": "KAFKA_CFG_"}
    in_migration, in_kraft = _dry_start_findings(_judged(cluster, "wrong-prefix", named))
    assert "DryStartOverlayLost: In Migration mode" in in_migration, in_migration
    assert "zookeeper.metadata.migration.enable is not set instead of 'true'" in in_migration, in_migration
    assert "DryStartOverlayLost: In KRaft mode" in in_kraft, in_kraft
    assert "process.roles is not set instead of 'broker'" in in_kraft, in_kraft


def test_what_reaches_for_the_cluster_or_the_node_does_no_harm_and_passes(cluster: ForeignCluster) -> None:
    """The template is changed and no broker restarts: an init container tries ZooKeeper by name and address, and writes to a host path."""
    (zookeeper,) = cluster.kube.list("pods", NAMESPACE, f"app={cluster.zookeeper}")
    brokers = cluster.kube.list("pods", NAMESPACE, f"app={cluster.brokers}")
    targets = " ".join(
        [
            f"{cluster.zookeeper}-0.{cluster.zookeeper}/2181",
            f"{zookeeper['status']['podIP']}/2181",
            *(f"{b['status']['podIP']}/9092" for b in brokers),
            f"{cluster.kube.get('service', 'kubernetes', 'default')['spec']['clusterIP']}/443",
        ]
    )
    script = f"""touch /host/written || exit 1
for target in {targets}; do if timeout 3 bash -c "exec 3<>/dev/tcp/$target" 2>/dev/null; then echo "error: reached $target"; exit 1; fi; done"""
    reach = {
        "name": "reach",
        "image": KAFKA_IMAGE,
        "command": ["bash", "-c", script],
        # The namespace enforces the restricted standard, and a copy must meet it as any pod.
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "host", "mountPath": "/host"}],
    }
    volume = {"name": "host", "hostPath": {"path": str(HOST_PATH), "type": "DirectoryOrCreate"}}
    with _template(cluster, {"initContainers": [reach], "volumes": [volume]}):
        assert _dry_start_findings(_judged(cluster, "reaching")) == []
    assert not cluster.kube.embedded or not HOST_PATH.exists(), "the copy had the node's disk"


ASK_FOR_A_SERVICE = """
import json, os, ssl, sys, urllib.request
files = "/var/run/secrets/kubernetes.io/serviceaccount/"
host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
path = f"/api/v1/namespaces/{open(files + 'namespace').read()}/{sys.argv[1]}"
request = urllib.request.Request(f"https://{host}:{port}{path}", headers={"Authorization": "Bearer " + open(files + "token").read()})
with urllib.request.urlopen(request, context=ssl.create_default_context(cafile=files + "ca.crt"), timeout=10) as answer:
    print(json.load(answer)["spec"]["ports"][0]["port"])
"""
"""What Bitnami's auto-discovery does with kubectl: it asks for a Service as the pod's service account."""


def _asking(what: str) -> dict[str, Any]:
    return {
        "name": "discover",
        "image": OPERATOR_IMAGE,
        "command": ["python3", "-c", ASK_FOR_A_SERVICE, what],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }


def test_an_init_container_that_asks_the_api_server_is_answered_in_the_copy(cluster: ForeignCluster) -> None:
    with _template(cluster, {"initContainers": [_asking(f"services/{cluster.brokers}")]}):
        assert _dry_start_findings(_judged(cluster, "discovering")) == []


def test_what_an_init_container_asks_in_vain_is_named(cluster: ForeignCluster) -> None:
    with _template(cluster, {"initContainers": [_asking("secrets/of-somebody")]}):
        found = _dry_start_findings(_judged(cluster, "asking-too-much"))
    assert found
    assert all("discover ended with code 1" in f and f"GET /api/v1/namespaces/{NAMESPACE}/secrets" in f for f in found)


def test_an_entrypoint_that_clears_the_environment_is_told(cluster: ForeignCluster) -> None:
    """Kafka itself starts in such a copy, and ends since it finds no ZooKeeper."""
    script = """printf 'broker.id=0\nzookeeper.connect=%s\nzookeeper.connection.timeout.ms=3000\nlog.dirs=/tmp/data\n' "$KAFKA_ZOOKEEPER_CONNECT" > /tmp/s
exec env -i PATH="$PATH" java -Xmx128m -cp '/opt/kafka/libs/*' kafka.Kafka /tmp/s"""
    with _template(cluster, {"containers": [{"name": "kafka", "command": ["bash", "-c", script]}]}):
        found = _dry_start_findings(_judged(cluster, "cleared"))
    assert found, "nothing was found"
    assert all(f.startswith("DryStartImpossible: ") and "no JVM that loaded the agent" in f for f in found), found


@contextmanager
def _template(cluster: ForeignCluster, pod: dict[str, Any]) -> Iterator[None]:
    """Change the brokers' pod template while no pod restarts, and give the former one back."""
    name = cluster.brokers
    before = cluster.kube.get("statefulset", name, NAMESPACE)["spec"]
    patch = ["patch", "statefulset", name, "-n", NAMESPACE, "--type"]
    hold = {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}, "template": {"spec": pod}}
    cluster.kube.kubectl(*patch, "strategic", "-p", json.dumps({"spec": hold}))
    try:
        yield
    finally:
        back = [{"op": "replace", "path": "/spec/template", "value": before["template"]}]
        cluster.kube.kubectl(*patch, "json", "-p", json.dumps(back))


def test_a_policy_that_opens_every_pod_is_found_before_any_copy_starts(cluster: ForeignCluster) -> None:
    cluster.kube.apply(json.dumps(OPEN), NAMESPACE)
    try:
        found = _dry_start_findings(_judged(cluster, "open"))
    finally:
        cluster.kube.kubectl("delete", "networkpolicy", "everything", "-n", NAMESPACE)
    assert [f.partition(":")[0] for f in found] == ["DryStartUnfenced"], found
    assert ":2181" in found[0]


def test_a_tag_that_moved_is_found_and_the_finding_ends_when_it_moves_back(cluster: ForeignCluster) -> None:
    """The brokers restart once, under a tag of this test. Then the tag names another image, and no pod restarts."""
    if not cluster.kube.embedded:
        pytest.skip("moving a tag needs the node's container runtime")
    tag, name = "localhost/kraftbridge-dry-start-moved:1", cluster.brokers
    run(CLUSTER, "tag-image", KAFKA_IMAGE, tag)
    before = cluster.kube.get("statefulset", name, NAMESPACE)["spec"]["template"]
    image = {"spec": {"template": {"spec": {"containers": [{"name": "kafka", "image": tag}]}}}}
    patch = ["patch", "statefulset", name, "-n", NAMESPACE, "--type"]
    cluster.kube.kubectl(*patch, "strategic", "-p", json.dumps(image))
    strategy = {"spec": {"updateStrategy": {"type": "RollingUpdate"}}}
    cluster.kube.kubectl(*patch, "merge", "-p", json.dumps(strategy))
    migration = Migration(cluster.kube, NAMESPACE, "moved")
    try:
        # A test before this one may have left pods that are older than the template.
        cluster.kube.rollout_complete(f"statefulset/{name}", NAMESPACE, timeout_s=300)
        (pod, *_) = cluster.kube.list("pods", NAMESPACE, f"app={name}")
        runs = pod["status"]["containerStatuses"][0]["imageID"]
        run(CLUSTER, "tag-image", OTHER_IMAGE, tag)
        cluster.kube.apply(json.dumps(manifest(cluster, "moved", target="Preflight", runner="Job")), NAMESPACE)

        def found() -> list[dict[str, Any]]:
            view = migration.view()
            return [f for f in view.status.get("findings", []) if f["code"] == "DryStartOtherImage"] if view else []

        (moved,) = eventually(found, "the tag that moved is a finding", 240)
        assert moved["object"] == f"StatefulSet/{name}"
        told = re.fullmatch(
            rf".* runs {tag} \((sha256:[0-9a-f]{{64}})\), and a copy of it started {tag} \((sha256:[0-9a-f]{{64}})\).*",
            moved["reason"],
        )
        assert told, moved["reason"]
        assert told[1] == runs != told[2]
        run(CLUSTER, "tag-image", KAFKA_IMAGE, tag)
        eventually(lambda: not found(), "the finding ends by itself once the tag names what runs", 240)
        eventually(
            lambda: (v := migration.view()) and v.condition("PreflightPassed")["status"] == "True", "it passes", 120
        )
    finally:
        cluster.kube.kubectl("delete", "kafkamigrations.kraftbridge.dev", "moved", "-n", NAMESPACE, "--timeout=60s")
        run(CLUSTER, "tag-image", KAFKA_IMAGE, tag)
        back = [{"op": "replace", "path": "/spec/template", "value": before}]
        cluster.kube.kubectl(*patch, "json", "-p", json.dumps(back))


def test_a_node_that_cannot_get_an_image_is_named(cluster: ForeignCluster) -> None:
    """The controllers' image, which no node has and no registry: the brokers' copies run, and their nodes have all of theirs."""
    view = _judged(cluster, "no-image", controllers={"image": NO_IMAGE})
    found = [f for f in view.status["findings"] if f["code"] == "ImageNotPullable"]
    assert [f["object"] for f in found] == ["controllers"]
    (node,) = cluster.kube.list("nodes")
    assert re.search(
        rf"node {node['metadata']['name']} .*{NO_IMAGE}: (ErrImagePull|ImagePullBackOff): ", found[0]["reason"]
    )
