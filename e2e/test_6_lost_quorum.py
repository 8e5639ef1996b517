"""All controllers lose their volumes, under load: back to ZooKeeper out of dual-write, and from the kept copy once all brokers run KRaft."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from e2e.harness.bare import OF_THE_LOAD, inventory_differences
from e2e.harness.foreign import ForeignCluster
from e2e.harness.kube import REPOSITORY, Kube
from e2e.harness.load import Load, client_impact
from e2e.harness.migration import Migration, View, manifest
from e2e.harness.operator_install import OperatorInstall

NAMESPACE = "kafka-lost-quorum"
ARTIFACTS = REPOSITORY / ".artifacts/lost-quorum"
TIMEOUT_S = 900
KINDS = "kafkamigrations.kraftbridge.dev"

pytestmark = [pytest.mark.long, pytest.mark.timeout(2400)]


@pytest.fixture(scope="module")
def cluster(kube: Kube) -> Iterator[ForeignCluster]:
    foreign = ForeignCluster(kube, NAMESPACE)
    foreign.up()
    foreign.seed()
    operator = OperatorInstall(kube, NAMESPACE)
    operator.install_spark_operator()
    operator.install()
    yield foreign
    # While the operator is there to take its finalizer away.
    kube.kubectl("delete", KINDS, "--all", "-n", NAMESPACE, "--timeout=60s")
    operator.uninstall()
    foreign.down()


@dataclass(frozen=True)
class Story:
    """The migration, its clients, and what was there before it."""

    migration: Migration
    load: Load
    inventory: dict[str, Any]


@pytest.fixture(scope="module")
def story(cluster: ForeignCluster) -> Story:
    load = Load(cluster)
    load.start()
    inventory = cluster.inventory()
    resource = manifest(cluster, target="DualWrite", runner="Job")
    cluster.kube.apply(json.dumps(resource), NAMESPACE)
    return Story(Migration(cluster.kube, NAMESPACE), load, inventory)


def test_out_of_dual_write_the_way_back_needs_no_controllers(cluster: ForeignCluster, story: Story) -> None:
    reached(story, "DualWrite")
    lost = lose_all_volumes(cluster, story)
    assert "acceptLoss" in lost.message
    assert lost.condition("RollbackPossible")["reason"] == "QuorumLost"
    story.migration.patch({"spec": {"target": "ZooKeeper", "rollback": {"acceptLoss": True}}})
    reached(story, "RolledBack")
    assert inventory_differences(story.inventory, cluster.inventory(), OF_THE_LOAD) == []


def test_once_all_brokers_run_kraft_the_controllers_are_restored_from_the_kept_copy(
    cluster: ForeignCluster, story: Story
) -> None:
    story.migration.patch({"spec": {"target": "KRaftBrokers", "rollback": {"acceptLoss": False}}})
    before = reached(story, "AwaitingFinalization")
    kept = before.status["keptCopy"]
    lost = lose_all_volumes(cluster, story)
    assert kept["id"] in lost.message
    story.migration.patch({"spec": {"restoreControllersFrom": kept["id"]}})
    restored = until(story, lambda view: bool((view.status.get("restoration") or {}).get("finishedAt")))
    assert "lostQuorum" not in restored.status
    story.migration.patch({"spec": {"restoreControllersFrom": None}})
    until(story, lambda view: view.phase == "AwaitingFinalization" and is_ready(view))
    assert inventory_differences(story.inventory, cluster.inventory(), OF_THE_LOAD) == []
    story.migration.set_target("KRaft")
    done = reached(story, "Completed")
    lines = story.load.stop()
    impact = client_impact(lines)
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    (ARTIFACTS / "load.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (ARTIFACTS / "kmig.json").write_text(json.dumps(done.resource, indent=2))
    (ARTIFACTS / "impact.json").write_text(json.dumps(impact.as_json(), indent=2))
    assert impact.lost == 0, json.dumps(impact.as_json())
    assert cluster.prove_serving()


def lose_all_volumes(cluster: ForeignCluster, story: Story) -> View:
    """Delete every controller's claim with its pod; return the migration once it says what each way out loses."""
    kube = cluster.kube
    name = controllers(story)["name"]
    pods = [f"{name}-{i}" for i in controllers(story)["nodeIds"]]
    kube.kubectl("delete", "persistentvolumeclaim", *(f"data-{pod}" for pod in pods), "-n", NAMESPACE, "--wait=false")
    kube.kubectl("delete", "pod", *pods, "-n", NAMESPACE, "--grace-period=1")

    def told(view: View) -> bool:
        return view.condition("Stalled")["reason"] == "QuorumLost" and "being" not in view.message

    return until(story, told)


def controllers(story: Story) -> dict[str, Any]:
    view = story.migration.view()
    assert view is not None
    found: dict[str, Any] = view.status["controllers"]
    return found


def is_ready(view: View) -> bool:
    return view.condition("Ready")["status"] == "True"


def reached(story: Story, phase: str) -> View:
    for view in story.migration.follow(TIMEOUT_S):
        story.load.look(view)
        if view.phase == phase and is_ready(view):
            return view
    raise AssertionError("following ends with the phase or an exception")


def until(story: Story, holds: Callable[[View], bool]) -> View:
    """Wait for a state of the migration, stalled or not."""
    end = time.monotonic() + TIMEOUT_S
    while True:
        view = story.migration.view()
        assert view is not None
        if holds(view):
            return view
        assert time.monotonic() < end, view.message
        time.sleep(1)
