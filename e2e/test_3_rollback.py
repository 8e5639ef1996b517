"""A rollback from dual-write, under load, with brokers that are configured by a properties file."""

import json
from collections.abc import Iterator

import pytest
from e2e.harness.foreign import ForeignCluster, Style
from e2e.harness.kube import REPOSITORY, Kube
from e2e.harness.load import Load, client_impact
from e2e.harness.migration import Migration, View, controller_sets, controller_volumes, controllers_name, manifest
from e2e.harness.operator_install import OperatorInstall

NAMESPACE = "kafka-rollback"
ARTIFACTS = REPOSITORY / ".artifacts/rollback"
TIMEOUT_S = 900


@pytest.fixture(scope="module")
def cluster(kube: Kube) -> Iterator[ForeignCluster]:
    foreign = ForeignCluster(kube, NAMESPACE, Style.PROPERTIES)
    foreign.up()
    foreign.seed()
    operator = OperatorInstall(kube, NAMESPACE)
    operator.install()
    yield foreign
    # While the operator is there to take its finalizer away.
    kube.kubectl("delete", "kafkamigrations.kraftbridge.dev", "--all", "-n", NAMESPACE, "--timeout=60s")
    operator.uninstall()
    foreign.down()


def _rest(migration: Migration, phase: str) -> View:
    for view in migration.follow(TIMEOUT_S):
        if view.phase == phase and view.condition("Ready")["status"] == "True":
            return view
    raise AssertionError("following ends with the phase or an exception")


@pytest.mark.timeout(1800)
def test_back_from_dual_write(cluster: ForeignCluster) -> None:
    """Brokers, fields and owners are as before, nothing is lost, and the znodes of the migration are gone."""
    kube = cluster.kube
    before = _template(cluster)
    load = Load(cluster)
    load.start()  # makes __consumer_offsets
    inventory = cluster.inventory()
    kube.apply(json.dumps(manifest(cluster, target="DualWrite", runner="Job")), NAMESPACE)
    migration = Migration(kube, NAMESPACE)
    forward = _rest(migration, "DualWrite")
    assert forward.condition("RollbackPossible")["status"] == "True"
    migration.set_target("ZooKeeper")
    back = _rest(migration, "RolledBack")
    gates = {v["gate"]: v.get("verdict") for v in back.status["verifications"]}
    assert gates["RollingBack"] == "Consistent"
    assert _template(cluster) == before
    assert controller_sets(kube, NAMESPACE, "demo") == set()
    name = controllers_name(kube, NAMESPACE, "demo")
    assert controller_volumes(kube, NAMESPACE, "demo") == {f"data-{name}-{i}" for i in (3000, 3001, 3002)}
    lines = load.stop()
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    (ARTIFACTS / "load.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (ARTIFACTS / "kmig.json").write_text(json.dumps(back.resource, indent=2))
    impact = client_impact(lines)
    assert impact.unharmed, json.dumps(impact.as_json())
    assert cluster.inventory() == inventory
    assert cluster.prove_serving()


def _template(cluster: ForeignCluster) -> object:
    stateful_set = cluster.kube.get("statefulset", cluster.brokers, NAMESPACE)
    assert stateful_set is not None
    annotations = {k: v for k, v in stateful_set["metadata"].get("annotations", {}).items() if "kraftbridge" in k}
    return stateful_set["spec"], annotations
