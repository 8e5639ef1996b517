"""What Kubernetes tells of a pod, in the operator's words."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kraftbridge.models.pod_problem import PodProblem, problem_of
from kraftbridge.services.observe.workloads import (
    environment_of,
    is_member,
    own_state,
    pod_state,
    pods_of,
    pods_selector,
    without_agent,
)
from kraftbridge.services.original_state import plain_environment

TRACE = """[2026-11-20 17:00:01,123] ERROR Encountered fatal fault: Error handling state (org.apache.kafka)
org.apache.kafka.common.errors.KafkaStorageException: Error while appending records
Caused by: java.io.IOException: No space left on device
\tat java.base/sun.nio.ch.FileDispatcherImpl.write0(Native Method)
"""


def pod(*containers: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": "demo-kraft-3001", "uid": "u", "labels": {"apps.kubernetes.io/pod-index": "3001"}}
    return {"metadata": metadata, "status": {"containerStatuses": list(containers)}}


def crashed(message: str) -> dict[str, Any]:
    waiting = {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container"}
    ended = {"exitCode": 1, "message": message}
    return {"name": "kafka", "state": {"waiting": waiting}, "lastState": {"terminated": ended}}


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (TRACE, "last exit code 1: Caused by: java.io.IOException: No space left on device"),
        ("volume of controller 3001 is blank\n", "last exit code 1: volume of controller 3001 is blank"),
        ("", "last exit code 1"),
    ],
)
def test_a_container_that_crashes_is_quoted(log: str, words: str) -> None:
    trouble = pod_state(pod(crashed(log))).trouble
    assert trouble.startswith("CrashLoopBackOff of container kafka")
    assert trouble.endswith(words)


def test_a_pod_runs_since_its_last_container_began() -> None:
    kafka = {"name": "kafka", "state": {"running": {"startedAt": "2026-11-20T17:00:02Z"}}}
    other = {"name": "log-server", "state": {"running": {"startedAt": "2026-11-20T17:00:01Z"}}}
    assert pod_state(pod(kafka, other)).running_since == datetime(2026, 11, 20, 17, 0, 2, tzinfo=UTC)
    assert pod_state(pod(kafka, crashed(""))).running_since is None
    assert pod_state(pod()).running_since is None


@pytest.mark.parametrize(
    ("name", "owner", "index", "ordinal"),
    [
        ("kafka-0", "uid", "0", 0),
        ("kafka-11", "uid", None, 11),
        ("kafka-1", "uid", "7", 1),  # anybody can change a label
        ("kafka-debug", "uid", None, None),
        ("kafka-b-0", "uid", None, None),
        ("kafka-²", "uid", None, None),
        ("kafka", "uid", "0", None),
        ("kafka-0", "another", "0", None),
        ("kafka-0", None, "0", None),
    ],
)
def test_a_pod_is_a_statefulsets_by_owner_and_name(
    name: str, owner: str | None, index: str | None, ordinal: int | None
) -> None:
    found = pod()
    found["metadata"] = {
        "name": name,
        "uid": "u",
        "labels": {} if index is None else {"apps.kubernetes.io/pod-index": index},
    }
    found["metadata"]["ownerReferences"] = [] if owner is None else [{"uid": owner, "controller": True}]
    stateful_set = {"metadata": {"name": "kafka", "uid": "uid"}}
    assert [p.ordinal for p in pods_of(stateful_set, [found])] == ([] if ordinal is None else [ordinal])
    assert is_member(found, stateful_set) is (ordinal is not None)


@pytest.mark.parametrize(
    ("entries", "environment"),
    [
        ([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}], {"A": "2"}),
        ([{"name": "A", "value": "1"}, {"name": "A", "valueFrom": {"fieldRef": {}}}], {}),
        ([{"name": "A", "valueFrom": {"fieldRef": {}}}, {"name": "A", "value": "2"}], {"A": "2"}),
    ],
)
def test_of_two_entries_of_one_variable_the_later_one_counts(
    entries: list[dict[str, Any]], environment: dict[str, str]
) -> None:
    container = {"name": "kafka", "env": entries}
    assert environment_of(container) == environment
    assert plain_environment(container).references == ({"A"} - environment.keys())


def test_a_selector_with_expressions_selects_no_more_than_it_says() -> None:
    expressions = [
        {"key": "app", "operator": "In", "values": ["kafka", "kafka-b"]},
        {"key": "tier", "operator": "NotIn", "values": ["test"]},
        {"key": "zone", "operator": "Exists"},
        {"key": "old", "operator": "DoesNotExist"},
    ]
    selector = {"matchLabels": {"team": "a"}, "matchExpressions": expressions}
    stateful_set = {"metadata": {"name": "kafka"}, "spec": {"selector": selector}}
    assert pods_selector(stateful_set) == "team=a,app in (kafka,kafka-b),tier notin (test),zone,!old"
    selector["matchExpressions"] = [{"key": "app", "operator": "Like"}]
    with pytest.raises(ValueError, match="kafka: unknown operator Like"):
        pods_selector(stateful_set)


@pytest.mark.parametrize(
    ("values", "writes"), [(["true"], True), (["Yes"], True), (["true", "false"], False), ([], False)]
)
def test_the_later_of_two_entries_says_whether_an_image_writes_to_zookeeper(values: list[str], writes: bool) -> None:
    variable = "KAFKA_ZOOKEEPER_BOOTSTRAP_SCRAM_USERS"
    container = {"name": "kafka", "env": [{"name": variable, "value": v} for v in values]}
    template = {
        "metadata": {},
        "spec": {"containers": [container, {"name": "other", "env": [{"name": variable, "value": "true"}]}]},
    }
    stateful_set = {"metadata": {"name": "kafka", "uid": "u"}, "spec": {"template": template}}
    assert own_state(stateful_set, [], "kafka").writes_to_zookeeper == ((variable,) if writes else ())


def test_a_pods_images_are_the_digests_of_the_containers_that_started() -> None:
    digest = "sha256:" + "1" * 64
    kafka = {"name": "kafka", "imageID": f"docker.io/library/kafka@{digest}"}
    described = pod(kafka, {"name": "starting", "imageID": ""})
    described["status"]["initContainerStatuses"] = [{"name": "prepare", "imageID": digest}]
    assert pod_state(described).images == {("kafka", digest), ("prepare", digest)}


def test_a_pod_that_ends_shows_when_it_is_killed_and_how_its_containers_ended() -> None:
    ended = {"name": "kafka", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
    crashed_before = {"name": "proxy", "state": {"running": {}}, "lastState": {"terminated": {"exitCode": 1}}}
    described = pod(ended, {"name": "other", "state": {"terminated": {"exitCode": 0}}}, crashed_before)
    described["metadata"] |= {
        "creationTimestamp": "2026-11-20T17:00:00Z",
        "deletionTimestamp": "2026-11-20T18:05:00Z",
        "deletionGracePeriodSeconds": 300,
    }
    state = pod_state(described)
    assert state.exits == {("kafka", 137, "OOMKilled"), ("other", 0, "")}
    assert state.created_at == datetime(2026, 11, 20, 17, 0, tzinfo=UTC)
    assert state.kill_due_at == datetime(2026, 11, 20, 18, 5, tzinfo=UTC)
    assert state.grace_seconds == 300
    running = pod_state(pod(crashed_before))
    assert (running.kill_due_at, running.grace_seconds, running.exits) == (None, None, frozenset())


CRASHING = "CrashLoopBackOff of container kafka: back-off, last exit code 1"


@pytest.mark.parametrize(
    ("trouble", "problem"),
    [
        ("", None),
        ("ImagePullBackOff of container kafka: Back-off pulling image", PodProblem.IMAGE),
        ("ImagePullBackOff", PodProblem.IMAGE),
        ("ErrImageNeverPull of container agent: ", PodProblem.IMAGE),
        ("CreateContainerConfigError of container kafka: secret not found", PodProblem.CONFIGURATION),
        (CRASHING, PodProblem.CRASHING),
        ("CrashLoopBackOff: last exit 1", PodProblem.CRASHING),
        (f"{CRASHING}37 (OOMKilled)", PodProblem.MEMORY),
        (f"{CRASHING}: java.lang.OutOfMemoryError: Java heap space", PodProblem.MEMORY),
        ("Unschedulable: 0/3 nodes are available", PodProblem.CAPACITY),
        ("NodeLost: node worker-2 does not answer", PodProblem.NODE_LOST),
        ("SchedulerError: no such volume", PodProblem.OTHER),
    ],
)
def test_a_trouble_is_of_one_kind(trouble: str, problem: PodProblem | None) -> None:
    assert problem_of(trouble) is problem


def test_a_container_that_was_killed_for_its_memory_says_so() -> None:
    killed = crashed("")
    killed["lastState"]["terminated"] |= {"exitCode": 137, "reason": "OOMKilled"}
    assert pod_state(pod(killed)).problem is PodProblem.MEMORY


def readiness(**status: dict[str, str]) -> dict[str, Any]:
    seen = pod()
    seen["spec"] = {"nodeName": "worker-2"}
    seen["status"]["conditions"] = [{"type": kind, **condition} for kind, condition in status.items()]
    return seen


@pytest.mark.parametrize(
    ("ready", "containers", "is_lost"),
    [
        ({"status": "False"}, {"status": "True"}, True),
        ({"status": "False", "reason": "ReadinessGatesNotReady"}, {"status": "True"}, False),
        ({"status": "False", "reason": "ContainersNotReady"}, {"status": "False"}, False),
        ({"status": "True", "lastTransitionTime": "2026-11-20T17:00:02Z"}, {"status": "True"}, False),
    ],
    ids=["taken away", "a gate of its own", "not ready", "ready"],
)
def test_a_pod_whose_readiness_the_node_controller_took_is_on_a_lost_node(
    ready: dict[str, str], containers: dict[str, str], *, is_lost: bool
) -> None:
    state = pod_state(readiness(Ready=ready, ContainersReady=containers))
    assert (state.problem is PodProblem.NODE_LOST) is is_lost
    assert ("worker-2" in state.down) is is_lost


def test_a_controller_without_the_agent_is_told_by_the_port_that_it_does_not_open() -> None:
    stateful_set = {"metadata": {"name": "demo-kraft", "uid": "owner"}}

    def member(ordinal: int, *containers: dict[str, Any], owner: str = "owner") -> dict[str, Any]:
        metadata = {"name": f"demo-kraft-{ordinal}", "uid": f"u{ordinal}", "ownerReferences": [{"uid": owner}]}
        return {"metadata": metadata, "spec": {"containers": list(containers)}}

    controller = {"name": "controller", "containerPort": 9093}
    metrics = {"name": "metrics", "containerPort": 9404}
    pods = [
        member(3000, {"name": "kafka", "ports": [controller, metrics]}),
        member(3001, {"name": "kafka", "ports": [controller]}),
        member(3002, {"name": "other"}),
        member(3003, {"name": "kafka", "ports": [controller]}, owner="another"),
    ]
    assert without_agent(stateful_set, pods) == {3001}
