"""What a user of the API sees of the running operator: steps, refusals, deletion. One process serves all tests of the module."""

from __future__ import annotations

import threading
import time

import kopf
import pytest
from tests.component.conftest import Cluster

from kraftbridge import handlers
from kraftbridge.constants import ANNOTATION_ABANDON, ANNOTATION_CONFIGURATION, ANNOTATION_LOCK, FINALIZER, KIND
from kraftbridge.models.conditions import ConditionType
from kraftbridge.models.status import MigrationStatus
from kraftbridge.services.reconcile import Reconciler


def delete(cluster: Cluster, name: str) -> None:
    stamp = {"metadata": {"deletionTimestamp": cluster.store.clock.now.isoformat()}}
    cluster.store.merge_patch("", KIND, "kafka", name, stamp)


@pytest.fixture
def resting(cluster: Cluster) -> None:
    """Let the migration ``demo`` rest at its quorum, unless a test before this one brought it so far or further."""
    if cluster.migration("demo") is None:
        cluster.create("demo", target="QuorumReady")
        cluster.eventually(lambda: cluster.condition("demo", "Ready") == ("True", "TargetReached"))


@pytest.fixture
def half_way(cluster: Cluster, resting: None) -> None:
    """Let the migration ``demo`` go on to its brokers while no operator runs."""
    if cluster.status("demo")["phase"] in {"TakingOver", "DualWrite"}:
        return
    cluster.operator.stop()
    cluster.store.merge_patch("", KIND, "kafka", "demo", {"spec": {"target": "DualWrite"}})
    cluster.operator.start()
    cluster.eventually(lambda: cluster.status("demo").get("phase") == "TakingOver")


def status_writes(cluster: Cluster, name: str) -> list[tuple[str, str]]:
    return [w for w in list(cluster.api.writes) if w[1].endswith(f"/kafkamigrations/{name}/status")]


def test_handlers_are_registered() -> None:
    registry = kopf.get_default_registry()
    assert [h.fn for h in registry._spawning.get_all_handlers()] == [handlers.drive]
    assert handlers.delete in [h.fn for h in registry._changing.get_all_handlers()]


def test_a_spec_that_cannot_be_used_is_told_in_conditions(cluster: Cluster) -> None:
    cluster.create("invalid", brokers={"statefulSets": [], "bootstrapServers": "kafka:9092"})
    cluster.eventually(lambda: cluster.condition("invalid", "Stalled") == ("True", "InvalidSpec"))
    status = cluster.status("invalid")
    assert "spec.brokers.statefulSets" in status["message"] or "stateful" in status["message"].lower()
    assert {c["type"] for c in status["conditions"]} == set(ConditionType)
    assert cluster.condition("invalid", "Ready")[0] == "False"
    delete(cluster, "invalid")
    cluster.eventually(lambda: cluster.migration("invalid") is None)


def test_a_blocking_finding_is_told_and_changes_nothing(cluster: Cluster) -> None:
    cluster.create("absent", brokers={"statefulSets": [{"name": "nowhere"}], "bootstrapServers": "kafka:9092"})
    cluster.eventually(lambda: cluster.condition("absent", "Stalled")[0] == "True")
    status = cluster.status("absent")
    assert "StatefulSetMissing" in {f["code"] for f in status["findings"]}
    assert "nowhere" in status["message"]
    harmless = ("/events", "/selfsubjectaccessreviews")
    others = [w for w in cluster.api.writes if "/kafkamigrations/" not in w[1] and not w[1].endswith(harmless)]
    assert others == []
    assert FINALIZER in cluster.migration("absent")["metadata"]["finalizers"]  # type: ignore[index]
    delete(cluster, "absent")
    cluster.eventually(lambda: cluster.migration("absent") is None)


def test_the_channel_is_found_recorded_and_never_chosen_again(cluster: Cluster) -> None:
    found, guessed = "configStyle: Env, envPrefix: KAFKA_CFG_", "configStyle: Env, envPrefix: KAFKA_"
    cluster.dry_starts.reaching = found
    template = cluster.store.objects["StatefulSet", "kafka", "kafka"]["spec"]["template"]
    env = template["spec"]["containers"][0]["env"]
    own = list(env)
    env += [{**e, "name": e["name"].replace("KAFKA_", "KAFKA_CFG_", 1)} for e in own]
    brokers = {"statefulSets": [{"name": "kafka"}], "bootstrapServers": "kafka:9092", "configStyle": "Auto"}
    cluster.create("auto", target="QuorumReady", brokers=brokers)
    cluster.eventually(lambda: cluster.condition("auto", "Ready") == ("True", "TargetReached"))
    channel = cluster.status("auto")["channel"]
    assert (channel["configStyle"], channel["envPrefix"]) == ("Env", "KAFKA_CFG_")
    assert channel["provenBy"] == "copies of kafka-0, kafka-2 in Migration and KRaft mode"
    runs = [a.digest for a in cluster.dry_starts.started if a.choosing]
    assert runs == [f"same {guessed}", f"same {found}"], "the guess, then the one that its trials found"

    # The template changes while no operator runs: another channel reaches the brokers now.
    cluster.operator.stop()
    cluster.dry_starts.template, cluster.dry_starts.reaching = "edited", guessed
    cluster.store.merge_patch("", KIND, "kafka", "auto", {"spec": {"target": "DualWrite"}})
    cluster.operator.start()
    cluster.eventually(lambda: cluster.condition("auto", "Stalled") == ("True", "BlockingFindings"))
    status = cluster.status("auto")
    assert status["phase"] == "ProvisioningQuorum"
    assert f"The channel cannot change now ({found})" in status["message"]
    assert status["channel"] == channel
    assert ANNOTATION_CONFIGURATION not in template["metadata"].get("annotations", {}), "no broker was changed"

    cluster.store.merge_patch("", KIND, "kafka", "auto", {"spec": {"target": "ZooKeeper"}})
    cluster.eventually(lambda: cluster.status("auto").get("phase") == "RolledBack")
    assert cluster.status("auto")["channel"] == channel
    delete(cluster, "auto")
    cluster.eventually(lambda: cluster.migration("auto") is None)
    cluster.dry_starts.template, env[:] = "same", own


@pytest.mark.usefixtures("resting")
def test_the_daemon_walks_and_writes_each_status_in_one_request(cluster: Cluster) -> None:
    status = cluster.status("demo")
    assert status["phase"] == "ProvisioningQuorum"
    assert status["observedGeneration"] == cluster.migration("demo")["metadata"]["generation"]  # type: ignore[index]
    writes = status_writes(cluster, "demo")
    assert writes
    assert {method for method, _ in writes} <= {"PATCH", "PUT"}
    assert ("StatefulSet", "kafka", status["controllers"]["name"]) in cluster.store.objects
    # kopf's own bookkeeping stays away from status, and at rest nobody writes.
    assert set(status) >= {"phase", "conditions", "history"}
    assert "kopf" not in status
    assert "tick" not in status
    before = len(status_writes(cluster, "demo"))
    cluster.store.settle()
    cluster.eventually(lambda: len(cluster.store.calls) > 0)
    assert len(status_writes(cluster, "demo")) <= before + 1


@pytest.mark.usefixtures("half_way")
def test_another_process_goes_on_where_one_stopped(cluster: Cluster) -> None:
    cluster.eventually(lambda: cluster.store.objects["StatefulSet", "kafka", "kafka"]["metadata"].get("annotations"))


@pytest.mark.usefixtures("half_way")
def test_a_migration_half_way_is_not_deleted_until_it_is_abandoned(cluster: Cluster) -> None:
    delete(cluster, "demo")
    waits = cluster.eventually(
        lambda: [e for e in cluster.api.posted_events if "Deletion waits" in e.get("note", e.get("message", ""))],
        seconds=20,
    )
    assert waits[0]["type"] == "Warning"
    cluster.eventually(lambda: cluster.condition("demo", "Stalled") == ("True", "DeletionWaits"))
    assert "spec.target to ZooKeeper" in cluster.status("demo")["message"]
    assert cluster.migration("demo") is not None
    controllers = ("StatefulSet", "kafka", cluster.status("demo")["controllers"]["name"])
    assert controllers in cluster.store.objects
    cluster.store.merge_patch("", KIND, "kafka", "demo", {"metadata": {"annotations": {ANNOTATION_ABANDON: "true"}}})
    cluster.eventually(lambda: cluster.migration("demo") is None)
    assert controllers in cluster.store.objects, "the quorum outlives its migration"
    assert ("Lease", "kafka", "kraftbridge-kafka") not in cluster.store.objects
    brokers = cluster.store.objects["StatefulSet", "kafka", "kafka"]
    assert not brokers["metadata"].get("annotations", {}).get(ANNOTATION_LOCK), "its owner may change it again"


def test_a_namespace_that_is_deleted_is_not_held_up(cluster: Cluster) -> None:
    cluster.create("doomed", target="DualWrite")
    cluster.eventually(lambda: cluster.status("doomed").get("phase") == "TakingOver")
    stamp = {"metadata": {"deletionTimestamp": cluster.store.clock.now.isoformat()}}
    cluster.store.merge_patch("", "Namespace", None, "kafka", stamp)
    delete(cluster, "doomed")
    cluster.eventually(lambda: cluster.migration("doomed") is None)


def test_a_deletion_waits_for_the_step_under_way_and_not_for_a_minute(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, under_way = Reconciler.step, threading.Event()

    def slow_step(self: Reconciler, namespace: str, name: str) -> MigrationStatus | None:
        if name == "slow":
            under_way.set()
            time.sleep(1)
        return step(self, namespace, name)

    monkeypatch.setattr(Reconciler, "step", slow_step)
    cluster.create("slow", brokers={"statefulSets": [{"name": "nowhere"}], "bootstrapServers": "kafka:9092"})
    cluster.eventually(lambda: cluster.condition("slow", "Stalled")[0] == "True")
    under_way.clear()
    assert under_way.wait(30)
    delete(cluster, "slow")
    cluster.eventually(lambda: cluster.migration("slow") is None)
