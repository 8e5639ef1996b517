"""Invalid input results in a clear condition, and no object of the user changes."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from e2e.harness.foreign import ForeignCluster
from e2e.harness.kube import CommandFailedError, Kube, eventually
from e2e.harness.migration import Migration, View, controller_sets, controller_volumes, manifest
from e2e.harness.operator_install import migrated

NAMESPACE = "kafka-bad-input"


@pytest.fixture(scope="module")
def cluster(kube: Kube) -> Iterator[ForeignCluster]:
    foreign = ForeignCluster(kube, NAMESPACE)
    with migrated(foreign):
        yield foreign


@pytest.fixture
def owners_objects(cluster: ForeignCluster) -> Iterator[None]:
    """Compare the user's StatefulSet and pods before and after."""
    before = _owned(cluster)
    yield
    assert _owned(cluster) == before


def _owned(cluster: ForeignCluster) -> dict[str, Any]:
    stateful_set = cluster.kube.get("statefulset", cluster.brokers, NAMESPACE)
    assert stateful_set is not None
    pods = cluster.kube.list("pods", NAMESPACE, f"app={cluster.brokers}")
    return {
        "spec": stateful_set["spec"],
        "annotations": stateful_set["metadata"]["annotations"],
        "pods": sorted(p["metadata"]["uid"] for p in pods),
    }


def _applied(cluster: ForeignCluster, name: str, change: dict[str, Any]) -> Migration:
    resource = manifest(cluster, name, runner="Job")
    for path, value in change.items():
        *parents, last = path.split(".")
        node = resource["spec"]
        for parent in parents:
            node = node[parent]
        node[last] = value
    cluster.kube.apply(json.dumps(resource), NAMESPACE)
    return Migration(cluster.kube, NAMESPACE, name)


def _stalled(migration: Migration, timeout_s: float, phase: str = "") -> View:
    """Return what the user sees as soon as the migration is stalled: in this phase, or in any."""

    def look() -> View | None:
        view = migration.view()
        if view is None or not view.blocked:
            return None
        return view if phase in ("", view.phase) else None

    found: View = eventually(look, f"{migration.name} says why it is stalled, {phase or 'in any phase'}", timeout_s)
    return found


def _passed(migration: Migration) -> View | None:
    view = migration.view()
    return view if view is not None and view.condition("PreflightPassed")["status"] == "True" else None


def _phase(migration: Migration) -> str:
    view = migration.view()
    return "" if view is None else view.phase


@pytest.mark.usefixtures("owners_objects")
@pytest.mark.parametrize(
    ("name", "change", "code", "words"),
    [
        ("no-such-set", {"brokers.statefulSets": [{"name": "nobody"}]}, "StatefulSetMissing", "nobody"),
        ("no-zookeeper", {"zookeeper.connect": "nowhere:2181/kafka"}, "ZooKeeperUnreachable", "nowhere:2181"),
        ("no-chroot", {"zookeeper.connect": "zookeeper-0.zookeeper:2181/other"}, "ClusterIdMissing", "/other"),
        ("no-container", {"brokers.container": "broker"}, "ContainerMissing", "broker"),
        ("not-accepted", {"preflight.accepted": []}, "ControllerListenerPlaintext", "encryption"),
        ("id-collision", {"controllers.firstNodeId": 2}, "NodeIdCollision", "[2]"),
    ],
)
def test_a_blocking_finding_is_named(
    cluster: ForeignCluster, name: str, change: dict[str, Any], code: str, words: str
) -> None:
    migration = _applied(cluster, name, change)
    try:
        view = _stalled(migration, 60)
        assert view.phase == "Preflight"
        assert view.condition("PreflightPassed")["status"] == "False"
        found = {f["code"]: f for f in view.status["findings"] if not f["accepted"] and f["severity"] == "Blocking"}
        assert code in found
        assert words in found[code]["reason"] + found[code]["object"]
        assert found[code]["fix"]
        assert controller_sets(cluster.kube, NAMESPACE, name) == set()
    finally:
        cluster.kube.kubectl("delete", "kafkamigrations.kraftbridge.dev", name, "-n", NAMESPACE, "--timeout=60s")


@pytest.mark.usefixtures("owners_objects")
def test_metadata_with_which_kafka_sticks_is_refused_with_its_znode(cluster: ForeignCluster) -> None:
    """On a copy, in a pod that reaches nothing. Mended, this cluster has no entity left to compare, and its user asks to rehearse again."""
    znode = cluster.plant_quota()
    migration = _applied(cluster, "trapped", {"target": "Preflight", "rehearsal": {"enabled": True}})
    try:
        view = _stalled(migration, 180)
        assert view.phase == "Preflight"
        assert view.rehearsal["verdict"] == "Fails", view.rehearsal
        assert [mend["znode"] for mend in view.rehearsal["mends"]] == [znode]
        finding = view.finding("RehearsalFails")
        assert finding is not None
        assert znode in finding["fix"]
        assert controller_sets(cluster.kube, NAMESPACE, "trapped") == set()
        cluster.mend_quota()
        migration.rehearse_again()
        passed = eventually(lambda: _passed(migration), "the mended tree works", 120)
        assert "there was nothing to compare" in passed.rehearsal["reason"]
        assert passed.rehearsal["count"] > view.rehearsal["count"]
        assert passed.phase == "Preflight"
    finally:
        cluster.mend_quota()
        cluster.kube.kubectl("delete", "kafkamigrations.kraftbridge.dev", "trapped", "-n", NAMESPACE, "--timeout=60s")


@pytest.mark.usefixtures("owners_objects")
def test_an_image_that_never_starts_is_named(cluster: ForeignCluster) -> None:
    change = {"controllers.image": "localhost/no-such-image:1", "rollback": {"controllerVolumes": "Remove"}}
    migration = _applied(cluster, "no-image", change)
    try:
        view = _stalled(migration, 120)
        assert view.phase == "Preflight"
        finding = view.finding("ImageNotPullable")
        assert finding is not None
        assert "no-such-image" in finding["reason"]
        migration.accept(finding["code"], finding["object"])
        view = _stalled(migration, 120, phase="ProvisioningQuorum")
        assert "no-such-image" in view.blocked
        assert controller_volumes(cluster.kube, NAMESPACE, "no-image") != set()
        migration.set_target("ZooKeeper")
        eventually(lambda: _phase(migration) == "RolledBack", "the migration is rolled back", 60)
        assert controller_sets(cluster.kube, NAMESPACE, "no-image") == set()
        eventually(
            lambda: not controller_volumes(cluster.kube, NAMESPACE, "no-image"),
            "the controllers' volumes are removed, as asked",
            60,
        )
    finally:
        cluster.kube.kubectl("delete", "kafkamigrations.kraftbridge.dev", "no-image", "-n", NAMESPACE, "--timeout=60s")
        for left in controller_sets(cluster.kube, NAMESPACE, "no-image"):
            cluster.kube.kubectl("delete", "statefulset", left, "-n", NAMESPACE, "--ignore-not-found")


@pytest.mark.usefixtures("owners_objects")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"target": "Kraft"}, "Unsupported value"),
        ({"brokers.statefulSets": []}, "statefulSets"),
        ({"brokers": {}}, "Required value"),
        ({"zookeeper.connect": ""}, "zookeeper.connect"),
        ({"controllers.replicas": 2}, "Unsupported value"),
    ],
)
def test_the_api_server_refuses_a_wrong_spec(cluster: ForeignCluster, change: dict[str, Any], words: str) -> None:
    with pytest.raises(CommandFailedError, match=words):
        _applied(cluster, "refused", change)
