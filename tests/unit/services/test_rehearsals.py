"""A rehearsal of the operator: nothing starts before the fence, its result comes out of the pod's log, and a process that dies loses nothing."""

from __future__ import annotations

import base64
import gzip
import json
import random
from typing import Any

import pytest
from tests.support.fakes import READ_VERBS, FaithfulDryStarts, Killed
from tests.unit.services.conftest import Operator

from kraftbridge.constants import ANNOTATION_REHEARSE, LABEL_RUN
from kraftbridge.models.phase import Phase
from kraftbridge.models.rehearsal import BROKERS_KEY, RESULT_KEY, RESULT_MARK, RehearsalResult, RehearsalVerdict
from kraftbridge.models.status import RehearsalStatus

BATCH_SIZE = "zookeeper.metadata.migration.min.batch.size=2000"


@pytest.fixture
def rehearsing(operator: Operator) -> Operator:
    operator.edit(rehearsal={"enabled": True})
    return operator


def record(operator: Operator) -> RehearsalStatus:
    found = operator.status().rehearsal
    assert found is not None
    return found


def objects(operator: Operator, kind: str) -> dict[str, dict[str, Any]]:
    return {name: obj for (k, _, name), obj in operator.kubernetes.objects.items() if k == kind}


def test_it_rehearses_before_anything_is_touched_and_then_migrates(rehearsing: Operator) -> None:
    rehearsing.walk(Phase.PROVISIONING_QUORUM)
    calls = rehearsing.kubernetes.calls
    writes = [(kind, name) for verb, kind, name in calls if verb not in READ_VERBS | {"replace_status"}]
    kinds = {kind for kind, _ in writes} - {"Lease", "KafkaMigration"}  # the latter: this test's own edit
    assert kinds == {"ConfigMap", "Job", "NetworkPolicy"}  # no StatefulSet and no broker's pod
    found = record(rehearsing)
    assert (found.verdict, found.seconds_without_controller, found.running) == (RehearsalVerdict.WORKS, 2.0, None)
    result = objects(rehearsing, "ConfigMap")[found.report]["data"][RESULT_KEY]
    assert RehearsalResult.model_validate_json(result).verdict is RehearsalVerdict.WORKS
    assert objects(rehearsing, "Job") == {}
    rehearsing.walk(Phase.COMPLETED)
    assert record(rehearsing).count == 1


def test_the_fence_closes_this_run_once_it_has_read_the_tree(rehearsing: Operator) -> None:
    order: list[str] = []

    def note(verb: str, kind: str, name: str) -> None:
        if (verb, kind) in {("create", "Job"), ("apply", "NetworkPolicy")}:
            order.append(kind)

    rehearsing.kubernetes.before_call = note
    rehearsing.walk(Phase.PROVISIONING_QUORUM)
    assert order == ["Job", "NetworkPolicy"]
    policy = objects(rehearsing, "NetworkPolicy")["demo-rehearsal"]
    assert policy["spec"]["podSelector"]["matchLabels"][LABEL_RUN] == record(rehearsing).run_id


def test_a_pod_that_admission_changed_starts_no_kafka(rehearsing: Operator) -> None:
    kubernetes = rehearsing.kubernetes
    settle = kubernetes._settle_rehearsal

    def admitted(namespace: str | None, name: str, job: dict[str, Any]) -> None:
        settle(namespace, name, job)
        pod = kubernetes.objects["Pod", namespace, f"{name}-x7k2p"]
        work = next(volume for volume in pod["spec"]["volumes"] if volume["name"] == "work")
        work.clear()
        work.update(name="work", hostPath={"path": "/var/log"})

    kubernetes._settle_rehearsal = admitted  # type: ignore[method-assign]
    for _ in range(20):
        rehearsing.step()
    found = record(rehearsing)
    assert found.verdict is RehearsalVerdict.UNKNOWN
    assert "hostPath.path of volume work" in found.reason
    assert objects(rehearsing, "NetworkPolicy") == {}, "Kafka starts only in a closed pod"
    assert objects(rehearsing, "Job") == {}


def test_the_batch_size_that_it_calls_for_reaches_the_controllers(rehearsing: Operator) -> None:
    rehearsing.walk(Phase.TAKING_OVER)
    properties = rehearsing.kubernetes.objects[rehearsing.configuration()]["data"]
    assert BATCH_SIZE in properties["controller.properties"]
    request = objects(rehearsing, "ConfigMap")[record(rehearsing).report]["data"]
    assert BATCH_SIZE not in request["controller.properties"]
    rehearsing.walk(Phase.COMPLETED)
    final = rehearsing.kubernetes.objects[rehearsing.configuration()]["data"]
    assert "zookeeper." not in final["controller.properties"]


def test_the_heap_that_it_called_for_reaches_the_controllers(rehearsing: Operator) -> None:
    rehearsing.walk(Phase.TAKING_OVER)
    template = objects(rehearsing, "StatefulSet")[rehearsing.controllers()]["spec"]["template"]
    env = {e["name"]: e.get("value") for e in template["spec"]["containers"][0]["env"]}
    assert env["KAFKA_HEAP_OPTS"] == "-Xms832m -Xmx832m"
    assert record(rehearsing).count == 1, "the tuned heap is no change of what was judged"


def test_a_rehearsal_that_fails_touches_nothing_and_is_repeated(rehearsing: Operator) -> None:
    rehearsing.kubernetes.rehearsal = RehearsalVerdict.FAILS
    for _ in range(30):
        rehearsing.step()
    status = rehearsing.status()
    assert status.phase is Phase.PREFLIGHT
    assert [f.code for f in status.findings if f.severity == "Blocking" and not f.accepted] == ["RehearsalFails"]
    assert "StatefulSet" not in {kind for verb, kind, _ in rehearsing.kubernetes.calls if verb not in READ_VERBS}
    rehearsing.kubernetes.rehearsal = RehearsalVerdict.WORKS
    rehearsing.kubernetes.clock.advance(120)
    rehearsing.walk(Phase.PROVISIONING_QUORUM)
    assert record(rehearsing).count >= 2


def test_the_annotation_asks_for_another(rehearsing: Operator) -> None:
    rehearsing.edit(target="Preflight")
    for _ in range(30):
        rehearsing.step()
    assert record(rehearsing).count == 1
    metadata = {"annotations": {ANNOTATION_REHEARSE: "again"}}
    rehearsing.kubernetes.merge_patch("", "KafkaMigration", "kafka", "demo", {"metadata": metadata})
    for _ in range(30):
        rehearsing.step()
    assert (record(rehearsing).count, record(rehearsing).verdict) == (2, RehearsalVerdict.WORKS)


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (None, "its pod is gone"),
        ("Killed\n", "ended without a result; its log ends with: Killed"),
        (f"{RESULT_MARK}H4sIAAAA\n", "not whole"),
    ],
)
def test_a_log_without_a_result_is_unknown(rehearsing: Operator, log: str | None, words: str) -> None:
    kubernetes = rehearsing.kubernetes
    settle = kubernetes._settle_rehearsal

    def spoiled(namespace: str | None, name: str, job: dict[str, Any]) -> None:
        settle(namespace, name, job)
        for pod in list(kubernetes.logs):
            if "rehearsal" in pod and log is None:
                del kubernetes.logs[pod]
            elif "rehearsal" in pod:
                kubernetes.logs[pod] = str(log)

    kubernetes._settle_rehearsal = spoiled  # type: ignore[method-assign]
    for _ in range(20):
        rehearsing.step()
    found = record(rehearsing)
    assert found.verdict is RehearsalVerdict.UNKNOWN
    assert words in found.reason
    assert rehearsing.status().phase is Phase.PREFLIGHT


def test_a_pod_that_cannot_start_is_unknown_and_says_why(rehearsing: Operator) -> None:
    kubernetes = rehearsing.kubernetes
    waits = {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}

    def stuck(namespace: str | None, name: str, job: dict[str, Any]) -> None:
        labels = job["spec"]["template"]["metadata"]["labels"]
        pod = {
            "metadata": {"name": "p", "namespace": namespace, "labels": labels},
            "status": {"initContainerStatuses": [{"name": "read", "state": waits}]},
        }
        kubernetes._store(("Pod", namespace, "p"), pod)

    kubernetes._settle_rehearsal = stuck  # type: ignore[method-assign]
    for _ in range(12):
        rehearsing.step()
    assert record(rehearsing).verdict is RehearsalVerdict.UNKNOWN
    assert "ErrImagePull" in record(rehearsing).reason


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_at_any_write_it_goes_on(rehearsing: Operator, moment: str, seed: int) -> None:
    chance = random.Random(seed)

    def die(verb: str, kind: str, name: str) -> None:
        if verb not in READ_VERBS and chance.random() < 0.25:
            raise Killed

    setattr(rehearsing.kubernetes, f"{moment}_call", die)
    rehearsing.walk(Phase.PROVISIONING_QUORUM, steps=200)
    setattr(rehearsing.kubernetes, f"{moment}_call", lambda *_: None)
    assert record(rehearsing).verdict is RehearsalVerdict.WORKS
    assert record(rehearsing).report in objects(rehearsing, "ConfigMap")


def test_the_brokers_are_rehearsed_as_the_dry_start_shows_them(rehearsing: Operator) -> None:
    """With their own image, and the Secrets that pull it."""
    dry_starts = rehearsing.reconciler._dry_starts
    assert isinstance(dry_starts, FaithfulDryStarts)
    dry_starts.image = "cp-kafka:7.9"
    (stateful_set,) = objects(rehearsing, "StatefulSet").values()
    stateful_set["spec"]["template"]["spec"]["imagePullSecrets"] = [{"name": "registry"}]
    jobs: list[dict[str, Any]] = []

    def note(verb: str, kind: str, name: str) -> None:
        jobs.extend(objects(rehearsing, "Job").values())

    rehearsing.kubernetes.before_call = note
    rehearsing.walk(Phase.PROVISIONING_QUORUM)
    found = record(rehearsing)
    assert found.count == 1
    packed = objects(rehearsing, "ConfigMap")[found.report]["binaryData"][BROKERS_KEY]
    settings = json.loads(gzip.decompress(base64.b64decode(packed)))
    assert [(each["broker"], each["image"]) for each in settings] == [(i, "cp-kafka:7.9") for i in (0, 1, 2)]
    assert all("kraftbridge.mode" in each["leftOut"] for each in settings), settings
    pod = jobs[0]["spec"]["template"]["spec"]
    assert {"name": "registry"} in pod["imagePullSecrets"]
    assert [c["image"] for c in pod["containers"] if c["name"].startswith("broker-")] == ["cp-kafka:7.9"]
