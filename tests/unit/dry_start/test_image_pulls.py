"""What pods show that only let nodes get images. The statuses are those that the kubelets of three nodes wrote (containerd)."""

from __future__ import annotations

from typing import Any

import pytest

from kraftbridge.copies.image_pulls import failures, has_tried, images_of
from kraftbridge.models.dry_start import PullKey

KEY = PullKey("StatefulSet/kafka", "node-2")
STARTED_NOT = {
    "terminated": {
        "exitCode": 128,
        "reason": "StartError",
        "message": "failed to create containerd task: … no such file or directory",
    }
}
AS_ROOT = {
    "waiting": {"reason": "CreateContainerConfigError", "message": "container has runAsNonRoot and image runs as root"}
}
NOT_CREATED = {"waiting": {"reason": "CreateContainerError", "message": "no command specified"}}
UNDER_WAY = {"waiting": {"reason": "ContainerCreating"}}
REFUSED = {
    "waiting": {"reason": "ErrImagePull", "message": 'failed to resolve reference "registry/kafka:1": not found'}
}
BACK_OFF = {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "registry/kafka:1"'}}
NEVER = {"waiting": {"reason": "ErrImageNeverPull", "message": 'Container image "registry/kafka:1" is not present'}}


def pod(*states: dict[str, Any], phase: str = "Pending", **status: Any) -> dict[str, Any]:
    """Return a pod of so many containers, ``registry/kafka:1`` and so on, and what its node says of each."""
    names = [f"image-{number}" for number in range(1, len(states) + 1)]
    images = [f"registry/kafka:{number}" for number in range(1, len(states) + 1)]
    containers = [{"name": name, "image": image} for name, image in zip(names, images, strict=True)]
    statuses = [{"name": name, "state": state} for name, state in zip(names, states, strict=True)]
    return {"spec": {"containers": containers}, "status": {"phase": phase, "containerStatuses": statuses, **status}}


def found(shown: dict[str, Any] | None, refused: str = "") -> list[tuple[str, str]]:
    return [(pull.image, pull.problem) for pull in failures(shown, KEY, refused, 300.0)]


@pytest.mark.parametrize("state", [STARTED_NOT, AS_ROOT, NOT_CREATED, {"running": {"startedAt": "now"}}])
def test_a_node_has_the_image_of_a_container_whose_start_it_has_tried(state: dict[str, Any]) -> None:
    assert has_tried(pod(state))
    assert found(pod(state)) == []


@pytest.mark.parametrize("state", [REFUSED, BACK_OFF, NEVER])
def test_a_node_that_refuses_is_quoted_and_tries_again(state: dict[str, Any]) -> None:
    shown = pod(state, STARTED_NOT)
    assert not has_tried(shown)
    ((image, problem),) = found(shown)
    assert image == "registry/kafka:1"
    assert problem == f"{state['waiting']['reason']}: {state['waiting']['message']}"


@pytest.mark.parametrize("state", [UNDER_WAY, {}, {"waiting": {}}])
def test_an_image_that_has_not_come_is_not_there(state: dict[str, Any]) -> None:
    shown = pod(STARTED_NOT, state)
    assert not has_tried(shown)
    assert found(shown) == [("registry/kafka:2", "the node did not get it within 300 s")]


def test_a_pod_of_which_no_node_has_said_anything_has_no_image() -> None:
    shown = pod(STARTED_NOT)
    shown["status"] = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]}
    assert not has_tried(shown)
    assert [image for image, _ in found(shown)] == ["registry/kafka:1"]


def test_a_pod_that_ended_before_all_images_came_says_which_are_missing() -> None:
    """It is past its ``activeDeadlineSeconds``."""
    shown = pod(STARTED_NOT, UNDER_WAY, phase="Failed", reason="DeadlineExceeded")
    assert has_tried(shown)
    assert [image for image, _ in found(shown)] == ["registry/kafka:2"]


def test_a_node_that_takes_no_such_pod_is_not_judged() -> None:
    unscheduled = pod(STARTED_NOT)
    unscheduled["status"] = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}],
    }
    assert has_tried(unscheduled)
    assert found(unscheduled) == []
    rejected = pod(STARTED_NOT, phase="Failed", reason="OutOfpods")
    del rejected["status"]["containerStatuses"]
    assert has_tried(rejected)
    assert found(rejected) == []


@pytest.mark.parametrize("reason", ["Evicted", "DeadlineExceeded", "NodeShutdown", "UnexpectedAdmissionError"])
def test_a_pod_that_something_else_ended_shows_no_image(reason: str) -> None:
    """Its node may get such pods, and has shown nothing."""
    ended = pod(STARTED_NOT, phase="Failed", reason=reason, message="for this reason")
    del ended["status"]["containerStatuses"]
    assert has_tried(ended)
    ((image, problem),) = found(ended)
    assert image == "registry/kafka:1"
    assert problem == f"the pod that was to pull it ended: {reason} for this reason"


def test_a_container_that_its_node_gave_up_with_the_pod_shows_no_image() -> None:
    """Disk pressure evicts a pod whose image is being written: what never started counts as ended then."""
    given_up = {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown", "message": "could not be located"}}
    evicted = pod(STARTED_NOT, given_up, phase="Failed", reason="Evicted", message="low on ephemeral-storage")
    assert has_tried(evicted)
    assert found(evicted) == [
        ("registry/kafka:2", "the pod that was to pull it ended: Evicted low on ephemeral-storage")
    ]


def test_a_reason_that_nobody_here_knows_shows_no_image() -> None:
    """Kubelets and runtimes of later releases have further ones."""
    shown = pod(STARTED_NOT, {"waiting": {"reason": "ImageNotTrusted", "message": "no attestation"}})
    assert not has_tried(shown)
    assert found(shown) == [("registry/kafka:2", "ImageNotTrusted: no attestation")]


def test_a_pod_that_is_gone_or_was_never_made_shows_nothing() -> None:
    assert found(None) == [("", "the pod that was to pull the images there is gone")]
    assert found(None, "exceeded quota") == [("", "exceeded quota")]


def test_an_image_with_two_policies_is_pulled_by_the_stricter_one() -> None:
    def spec(policy: str) -> dict[str, Any]:
        return {"initContainers": [{"image": "a", "imagePullPolicy": policy}], "containers": [{"image": "b"}]}

    for policies in (("Always", "IfNotPresent"), ("IfNotPresent", "Always")):
        assert images_of(*map(spec, policies)) == {"a": "Always", "b": ""}
