"""The loop: publish before act, nothing lost with a process that dies, the user's own values kept once and for all."""

from __future__ import annotations

import base64
import copy
import json
import random
from typing import Any

import pytest
from tests.support.fakes import READ_VERBS, Killed
from tests.unit.services.conftest import Operator

from kraftbridge.constants import ANNOTATION_LOCK, API_VERSION, KIND
from kraftbridge.exceptions import ActionError, ActionRefusedError, ObservationError
from kraftbridge.models.conditions import ConditionType, condition
from kraftbridge.models.metadata_version import Upgrade
from kraftbridge.models.phase import FORWARD, Phase
from kraftbridge.models.report import Verdict
from kraftbridge.models.status import MetadataVersionStatus
from kraftbridge.phases.machine import deletion_blocker
from kraftbridge.services.fleet import HASTE_WAIT_SECONDS
from kraftbridge.services.observe import observer


def test_a_migration_walks_to_the_end(operator: Operator) -> None:
    operator.walk(Phase.COMPLETED)
    status = operator.rest()
    way = [phase for phase in FORWARD if phase is not Phase.UPGRADING_BROKERS and not phase.row.on_kafka4]
    assert [h.phase for h in status.history] == way
    assert set(operator.kafka.broker_modes().values()) == {"kraft"}
    assert set(operator.kafka.controller_flags().values()) == {False}
    stateful_set = operator.kubernetes.objects["StatefulSet", "kafka", "kafka"]
    assert ANNOTATION_LOCK not in stateful_set["metadata"]["annotations"]
    assert stateful_set["spec"]["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
    assert ("ConfigMap", "kafka", status.final_manifest) in operator.kubernetes.objects
    assert operator.kafka.canary is None
    ready = condition(status.conditions, ConditionType.READY)
    assert ready is not None
    assert ready.status == "True"


def test_nothing_at_rest_is_written_again(operator: Operator) -> None:
    operator.walk(Phase.COMPLETED)
    operator.rest()
    operator.kubernetes.calls.clear()
    operator.rest()
    assert [c for c in operator.kubernetes.calls if c[0] not in READ_VERBS] == []


def test_every_intent_is_published_before_it_is_acted_upon(operator: Operator) -> None:
    seen: list[tuple[str, dict[str, Any]]] = []

    def note(verb: str, kind: str, name: str) -> None:
        if verb == "evict":
            seen.append((name, copy.deepcopy(operator.migration()["status"])))

    operator.kubernetes.before_call = note
    operator.walk(Phase.COMPLETED)
    assert len(seen) == 9  # three brokers twice, three controllers once
    for name, status in seen:
        assert status["operation"]["pod"] == name
    published = [c[0] for c in operator.kubernetes.calls if c[0] in {"replace_status", "evict", "apply", "create"}]
    assert published[0] == "replace_status"


def test_on_a_conflict_nothing_is_done(operator: Operator) -> None:
    operator.walk(Phase.TAKING_OVER)

    def somebody_writes(verb: str, kind: str, _name: str) -> None:
        if verb == "replace_status":
            operator.migration()["metadata"]["resourceVersion"] += "0"

    operator.kubernetes.before_call = somebody_writes
    operator.kubernetes.calls.clear()
    before = copy.deepcopy(operator.migration().get("status"))
    for _ in range(5):
        operator.step()
    assert operator.acts() == []
    assert operator.migration().get("status") == before
    operator.kubernetes.before_call = lambda *_: None
    operator.walk(Phase.COMPLETED)


@pytest.mark.parametrize("error", [ActionError("500"), ObservationError("API server", "silent")])
def test_when_the_status_cannot_be_written_nothing_is_done(operator: Operator, error: Exception) -> None:
    operator.walk(Phase.TAKING_OVER)

    def refuse(verb: str, kind: str, _name: str) -> None:
        if verb == "replace_status":
            raise error

    operator.kubernetes.before_call = refuse
    operator.kubernetes.calls.clear()
    for _ in range(3):
        with pytest.raises((ActionError, ObservationError)):
            operator.step()
    assert operator.acts() == []


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_at_any_write_it_goes_on(operator: Operator, moment: str, seed: int) -> None:
    chance = random.Random(seed)
    kills = 0

    def die(verb: str, kind: str, name: str) -> None:
        nonlocal kills
        if verb not in READ_VERBS and chance.random() < 0.25:
            kills += 1
            raise Killed

    setattr(operator.kubernetes, f"{moment}_call", die)
    operator.walk(Phase.COMPLETED, steps=400)
    setattr(operator.kubernetes, f"{moment}_call", lambda *_: None)
    status = operator.rest()
    assert kills > 5
    assert set(operator.kafka.broker_modes().values()) == {"kraft"}
    assert ("ConfigMap", "kafka", status.final_manifest) in operator.kubernetes.objects
    assert operator.kafka.canary is None
    assert (
        operator.kubernetes.objects["StatefulSet", "kafka", "kafka"]["spec"]["updateStrategy"]["type"]
        == "RollingUpdate"
    )
    assert all(n.restarts == 2 for n in status.nodes if n.role == "broker")


@pytest.mark.parametrize("seed", range(4))
def test_writes_that_fail_are_tried_again(operator: Operator, seed: int) -> None:
    chance = random.Random(seed)

    def fail(verb: str, kind: str, name: str) -> None:
        if verb not in READ_VERBS | {"replace_status"} and chance.random() < 0.25:
            raise ActionError(f"{verb} {kind}/{name}: 503")

    operator.kubernetes.before_call = fail
    operator.walk(Phase.COMPLETED, steps=400)
    operator.kubernetes.before_call = lambda *_: None
    status = operator.rest()
    assert set(operator.kafka.broker_modes().values()) == {"kraft"}
    assert ("ConfigMap", "kafka", status.final_manifest) in operator.kubernetes.objects


def test_an_act_that_is_refused_for_good_is_told_and_stalls(operator: Operator) -> None:
    operator.walk(Phase.TAKING_OVER)

    def refuse(verb: str, kind: str, name: str) -> None:
        if verb == "merge_patch" and kind == "StatefulSet":
            raise ActionRefusedError("403: statefulsets is forbidden")

    operator.kubernetes.before_call = refuse
    for _ in range(2):
        operator.step()
    stalled = condition(operator.status().conditions, ConditionType.STALLED)
    assert stalled is not None
    assert (stalled.status, stalled.reason) == ("True", "Refused")
    assert "403" in stalled.message
    operator.kubernetes.before_call = lambda *_: None
    operator.walk(Phase.COMPLETED)


def test_a_refused_act_is_told_once(operator: Operator) -> None:
    operator.walk(Phase.TAKING_OVER)

    def refuse(verb: str, kind: str, name: str) -> None:
        if verb == "merge_patch" and kind == "StatefulSet":
            raise ActionRefusedError("403: statefulsets is forbidden")

    operator.kubernetes.before_call = refuse
    for _ in range(8):
        operator.step()
    assert len([e for e in operator.kubernetes.events if e.reason == "Stalled"]) == 1


def recorded(operator: Operator) -> dict[str, Any]:
    secret = operator.kubernetes.objects[
        "Secret", "kafka", f"demo-before-{operator.migration()['metadata']['uid'][:8]}"
    ]
    found: dict[str, Any] = json.loads(base64.b64decode(secret["data"]["kafka"]))
    return found


def test_former_values_are_recorded_once_before_anything_changes(operator: Operator) -> None:
    user = copy.deepcopy(operator.kubernetes.objects["StatefulSet", "kafka", "kafka"]["spec"])
    operator.walk(Phase.DUAL_WRITE)
    was = recorded(operator)
    assert was["updateStrategy"] == user["updateStrategy"]
    assert was["container"]["env"] == user["template"]["spec"]["containers"][0]["env"]
    # A lock that somebody takes away is set anew, and must not record our own values as the user's.
    operator.kubernetes.merge_patch(
        "", "StatefulSet", "kafka", "kafka", {"metadata": {"annotations": {ANNOTATION_LOCK: None}}}
    )
    operator.walk(Phase.COMPLETED)
    assert recorded(operator) == was


def test_the_migration_rolls_back_to_what_was_there(operator: Operator) -> None:
    before = copy.deepcopy(operator.kubernetes.objects["StatefulSet", "kafka", "kafka"]["spec"])
    operator.walk(Phase.ROLLING_BROKERS)
    operator.edit(target="ZooKeeper")
    operator.walk(Phase.ROLLED_BACK, steps=200)
    operator.rest()
    after = operator.kubernetes.objects["StatefulSet", "kafka", "kafka"]["spec"]
    by_name = {e["name"]: e.get("value") for e in after["template"]["spec"]["containers"][0]["env"]}
    assert by_name == {e["name"]: e["value"] for e in before["template"]["spec"]["containers"][0]["env"]}
    assert after["updateStrategy"] == before["updateStrategy"]
    assert set(operator.kafka.broker_modes().values()) == {"zookeeper"}
    assert not operator.kafka.controller_flags()
    assert not operator.kafka.claimed
    assert [k for k in operator.kubernetes.objects if k[0] == "PersistentVolumeClaim"], "archives stay"


def test_an_inconsistent_verdict_stops_before_the_brokers_leave_zookeeper(operator: Operator) -> None:
    operator.walk(Phase.DUAL_WRITE)
    operator.kubernetes.verdict = Verdict.INCONSISTENT
    for _ in range(20):
        operator.step()
    assert operator.status().phase is Phase.DUAL_WRITE
    assert set(operator.kafka.broker_modes().values()) == {"migration"}
    operator.kubernetes.verdict = Verdict.CONSISTENT
    operator.walk(Phase.COMPLETED, steps=200)


def test_an_unhealthy_cluster_is_left_alone(operator: Operator) -> None:
    operator.walk(Phase.TAKING_OVER)
    operator.kafka.under_replicated = ("topic-0",)
    for _ in range(20):
        operator.step()
    assert not [c for c in operator.kubernetes.calls if c[0] == "evict"]
    operator.kafka.under_replicated = ()
    operator.walk(Phase.COMPLETED)


@pytest.mark.parametrize(
    ("phase", "free"),
    [
        (Phase.PREFLIGHT, True), (Phase.TAKING_OVER, False), (Phase.DUAL_WRITE, False), (Phase.ROLLING_BROKERS, False),
        (Phase.FINALIZING, False), (Phase.COMPLETED, True),
    ],
)  # fmt: skip
def test_a_migration_half_way_holds_on_to_its_resource(operator: Operator, phase: Phase, free: bool) -> None:
    status = operator.status() if phase is Phase.PREFLIGHT else operator.walk(phase)
    blocker = deletion_blocker(status)
    if phase is Phase.COMPLETED:
        assert blocker, "the lock is still on the StatefulSet"
        for _ in range(5):
            operator.step()
        blocker = deletion_blocker(operator.status())
    assert (blocker == "") is free
    if not free:
        assert "abandon" in blocker


def test_a_spec_that_cannot_be_used_is_refused_and_changes_nothing(operator: Operator) -> None:
    operator.migration()["spec"]["brokers"] = {"statefulSets": []}
    operator.kubernetes.calls.clear()
    status = operator.step()
    assert status is not None
    stalled = condition(status.conditions, ConditionType.STALLED)
    assert stalled is not None
    assert (stalled.status, stalled.reason) == ("True", "InvalidSpec")
    assert "brokers" in stalled.message
    assert operator.acts() == []


def test_a_missing_migration_is_no_error(operator: Operator) -> None:
    operator.kubernetes.delete(API_VERSION, KIND, "kafka", "demo")
    assert operator.step() is None


def test_a_step_is_due_at_once_for_a_new_generation(operator: Operator) -> None:
    operator.step()
    uid, generation = operator.migration()["metadata"]["uid"], operator.migration()["metadata"]["generation"]
    assert operator.reconciler.due(uid, generation + 1)
    operator.reconciler.forget("kafka", "demo", uid)
    assert operator.reconciler.due(uid, generation)
    assert operator.kafka.closed == 3


@pytest.mark.parametrize("moment", ["get", "replace_status"])
def test_a_step_that_runs_when_the_leases_are_released_does_nothing_more(operator: Operator, moment: str) -> None:
    operator.walk(Phase.TAKING_OVER)
    operator.kubernetes.calls.clear()

    def released(verb: str, kind: str, _name: str) -> None:
        if verb == moment and kind == KIND:
            operator.kubernetes.before_call = lambda *_: None
            operator.reconciler.release_leases()

    operator.kubernetes.before_call = released
    operator.step()
    # Giving a Lease up is the only write besides the status that was under way.
    writes = [c for c in operator.kubernetes.calls if c[0] not in READ_VERBS and c[1] != KIND]
    assert {(c[0], c[1]) for c in writes} == {("merge_patch", "Lease")}
    operator.kubernetes.calls.clear()
    assert operator.step() is None
    assert operator.kubernetes.calls == []


def test_what_was_just_done_is_looked_at_at_once_but_what_failed_at_the_usual_pace(operator: Operator) -> None:
    operator.walk(Phase.TAKING_OVER)
    uid = operator.migration()["metadata"]["uid"]
    operator.kubernetes.calls.clear()
    operator.step()
    assert operator.acts() != []
    assert operator.reconciler.due_in(uid) <= 0.1

    def refuse(verb: str, kind: str, name: str) -> None:
        if verb in {"evict", "apply", "merge_patch"}:
            raise ActionError(f"{verb} {kind}/{name}: 503")

    operator.kubernetes.before_call = refuse
    operator.step()
    assert 0.3 < operator.reconciler.due_in(uid) <= 0.5


def test_while_a_node_is_away_it_looks_twice_as_often(operator: Operator) -> None:
    operator.walk(Phase.TAKING_OVER)
    uid, waits = operator.migration()["metadata"]["uid"], set()
    for _ in range(20):
        status = operator.step()
        assert status is not None
        if status.operation is not None:
            waits.add(operator.reconciler.due_in(uid))
    assert len(waits) > 2
    assert max(waits) < HASTE_WAIT_SECONDS, "or it waits for the event loop"


def test_an_act_that_is_repeated_is_repeated_at_the_usual_pace(operator: Operator) -> None:
    operator.walk(Phase.TAKING_OVER)
    uid, waits = operator.migration()["metadata"]["uid"], []
    operator.kubernetes.before_call = lambda *_: None
    for _ in range(4):
        # Taken back at once by somebody: the step that puts it back follows.
        operator.kubernetes.objects["StatefulSet", "kafka", "kafka"]["metadata"].get("annotations", {}).pop(
            ANNOTATION_LOCK, None
        )
        operator.step()
        waits.append(operator.reconciler.due_in(uid))
    assert [w <= 0.1 for w in waits] == [True, True, False, False]


def test_jobs_run_verifications_where_there_is_no_spark_operator(operator: Operator) -> None:
    operator.kubernetes.served.clear()
    operator.walk(Phase.TAKING_OVER)
    created = [c for c in operator.kubernetes.calls if c[0] == "create"]
    assert [c for c in created if c[1] == "Job"]
    assert not [c for c in created if c[1] == "SparkApplication"]


def version_of(operator: Operator) -> MetadataVersionStatus:
    version = operator.status().metadata_version
    assert version is not None
    return version


def version_ready(operator: Operator) -> bool:
    found = condition(operator.status().conditions, ConditionType.METADATA_VERSION_READY)
    return (
        found is not None
        and found.status == "True"
        and found.observed_generation == operator.migration()["metadata"]["generation"]
    )


def bring_to(operator: Operator, name: str, steps: int = 60) -> None:
    operator.edit(metadataVersion=name)
    walk_to_version(operator, name, steps)


def walk_to_version(operator: Operator, name: str, steps: int) -> None:
    for _ in range(steps):
        try:
            operator.step()
        except Killed:
            operator.restart()
        if version_ready(operator):
            return
    raise AssertionError(f"{name} not in force in {steps} steps: {version_of(operator)}")


def test_metadata_version_goes_down_and_up_again_verified_each_time(operator: Operator) -> None:
    operator.walk(Phase.COMPLETED)
    operator.rest()
    assert version_of(operator).current == "3.9-IV0"
    bring_to(operator, "3.7-IV2")
    assert (operator.kafka.level, version_of(operator).current) == (17, "3.7-IV2")
    bring_to(operator, "3.9")
    assert (operator.kafka.level, version_of(operator).current) == (21, "3.9-IV0")
    purposes = [v.purpose for v in operator.status().verifications if v.verdict is Verdict.CONSISTENT]
    assert purposes[-4:] == [f"metadata-version-{n}-{when}" for n in (1, 2) for when in ("before", "after")]
    assert operator.kafka.updates == [(17, Upgrade.SAFE_DOWNGRADE), (21, Upgrade.UPGRADE)]


def test_a_lossy_downgrade_is_refused_with_kafkas_word(operator: Operator) -> None:
    operator.walk(Phase.COMPLETED)
    operator.edit(metadataVersion="3.6")
    operator.rest()
    stalled = condition(operator.status().conditions, ConditionType.STALLED)
    assert stalled is not None
    assert (stalled.status, stalled.reason) == ("True", "Refused")
    assert "Invalid metadata.version 14. Refusing to perform the requested downgrade" in stalled.message
    assert operator.kafka.updates == []
    assert len([e for e in operator.kubernetes.events if e.reason == "Refused"]) == 1
    bring_to(operator, "3.8")
    assert operator.kafka.level == 20


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("moment", ["before", "after"])
def test_metadata_version_is_reached_through_kills_at_any_write(operator: Operator, moment: str, seed: int) -> None:
    operator.walk(Phase.COMPLETED)
    operator.rest()
    chance = random.Random(seed)

    def die(verb: str, kind: str, name: str) -> None:
        if verb not in {"get", "list", "serves"} and chance.random() < 0.3:
            raise Killed

    operator.edit(metadataVersion="3.8")
    setattr(operator.kubernetes, f"{moment}_call", die)
    walk_to_version(operator, "3.8", steps=300)
    setattr(operator.kubernetes, f"{moment}_call", lambda *_: None)
    assert operator.kafka.level == 20
    assert set(operator.kafka.updates) == {(20, Upgrade.SAFE_DOWNGRADE)}


def test_metadata_version_during_a_migration_waits(operator: Operator) -> None:
    operator.edit(metadataVersion="3.8")
    operator.walk(Phase.COMPLETED)
    assert operator.kafka.updates == []
    for _ in range(60):
        operator.step()
    assert operator.kafka.updates == [(20, Upgrade.SAFE_DOWNGRADE)]
    assert version_ready(operator)


def test_an_unknown_metadata_version_is_refused_by_its_name(operator: Operator) -> None:
    operator.walk(Phase.COMPLETED)
    operator.edit(metadataVersion="3.10")
    operator.rest()
    stalled = condition(operator.status().conditions, ConditionType.STALLED)
    assert stalled is not None
    assert (stalled.status, stalled.reason) == ("True", "InvalidSpec")
    assert "metadata.version '3.10' is unknown" in stalled.message
    assert operator.kafka.updates == []


def test_a_verifier_image_that_cannot_be_pulled_is_named_and_may_be_corrected(operator: Operator) -> None:
    kubernetes = operator.kubernetes
    kubernetes.verifier_trouble = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "nowhere:1"'}
    for _ in range(30):
        operator.step()
    stuck = operator.status()
    assert stuck.phase is Phase.PROVISIONING_QUORUM
    assert "ImagePullBackOff" in stuck.message
    assert "nowhere:1" in stuck.message
    assert stuck.verification_count > 1
    kubernetes.verifier_trouble = None
    operator.walk(Phase.TAKING_OVER)


def test_a_policy_that_keeps_the_controllers_out_holds_the_migration_until_its_owner_adds_a_rule(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observer, "PATHS_EVERY_SECONDS", 0.0)
    operator.kafka.walled = {1}
    operator.walk(Phase.PROVISIONING_QUORUM)
    held = operator.rest(60)
    assert held.phase is Phase.PROVISIONING_QUORUM
    assert "InterBrokerPathClosed on broker/1" in held.message
    assert "kafka-1.kafka.kafka.svc:9092 (listener PLAINTEXT)" in held.message
    operator.kafka.walled.clear()
    operator.walk(Phase.TAKING_OVER)
