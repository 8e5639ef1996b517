"""What the pods show that only let nodes get images: which image a next pod could not start from there. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kraftbridge.models.dry_start import ImagePull, PullKey
from kraftbridge.models.objects import entries, section
from kraftbridge.models.pod_problem import STARTS_AFTER_PULL

_UNDER_WAY: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Reasons of a container that waits for its image, or for its turn (``kuberuntime``, ``kubelet_pods.go``)."""
_GIVEN_UP: Final = "ContainerStatusUnknown"
"""Reason of a container that has not started when its pod ends (``status_manager.go``, ``TerminatePod``)."""
_MOST_WORDS: Final = 300


@dataclass(frozen=True, slots=True)
class Wanted:
    """The images of the pods of one owner, and what decides where these pods may go and how they are pulled."""

    owner: str
    """``StatefulSet/NAME``, or ``controllers``."""
    images: Mapping[str, str]
    """Pull policy of each image; ``""`` for the default of its tag."""
    template: Mapping[str, Any]
    """Spec of such a pod."""


def images_of(*pod_specs: Mapping[str, Any]) -> dict[str, str]:
    """Return the images of all containers of some pods with their pull policy, the strictest where they differ."""
    found: dict[str, str] = {}
    for spec in pod_specs:
        for container in (*entries(spec, "initContainers"), *entries(spec, "containers")):
            image = container.get("image", "")
            policy = container.get("imagePullPolicy", "")
            if image and found.get(image) != "Always":
                found[image] = policy
    return found


def has_tried(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod has got every image, or finds no place on its node: no later look shows more.

    A refusal is none of these: the kubelet tries again.
    """
    if _has_no_place(pod):
        return True
    status = section(pod, "status")
    statuses = entries(status, "containerStatuses")
    if status.get("phase") in ("Succeeded", "Failed"):
        return True
    return bool(statuses) and all(_waits_for(container) is None for container in statuses)


def failures(pod: Mapping[str, Any] | None, key: PullKey, refused: str, limit_seconds: float) -> tuple[ImagePull, ...]:
    """Return the images that a node could not get.

    Parameters
    ----------
    pod
        None if it is gone, or was never made.
    refused
        Why it was not made; ``""`` if it was.
    limit_seconds
        How long it was waited for.
    """
    if refused or pod is None:
        return (ImagePull(key, "", refused or "the pod that was to pull the images there is gone"),)
    if _has_no_place(pod):
        return ()
    status = section(pod, "status")
    images = {container["name"]: container["image"] for container in entries(pod, "spec", "containers")}
    waits = {container["name"]: _waits_for(container) for container in entries(status, "containerStatuses")}
    late = _end_of(status) or f"the node did not get it within {limit_seconds:.0f} s"
    unknown = {name: waits.get(name, late) for name in images}
    return tuple(
        ImagePull(key, images[name], (words or late)[:_MOST_WORDS])
        for name, words in unknown.items()
        if words is not None
    )


def untried(shown: Mapping[PullKey, Mapping[str, Any] | None]) -> tuple[ImagePull, ...]:
    """Return the owners whose pods no node takes now, by the pods that pull: not one of their images was tried."""
    by_owner: dict[str, list[Mapping[str, Any] | None]] = {}
    for key, pod in shown.items():
        by_owner.setdefault(key.owner, []).append(pod)
    return tuple(
        ImagePull(PullKey(owner, ""), "", f"no node takes a pod of {owner} now")
        for owner, pods in by_owner.items()
        if all(pod is not None and _has_no_place(pod) for pod in pods)
    )


def _has_no_place(pod: Mapping[str, Any]) -> bool:
    """Return whether scheduler or kubelet keep a pod from the one node that it asks for (``PredicateAdmitHandler``)."""
    status = section(pod, "status")
    conditions = {each["type"]: each for each in entries(status, "conditions")}
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
        return True
    reason = status.get("reason", "") if status.get("phase") == "Failed" else ""
    return bool(reason.startswith("OutOf") or reason == "NodeAffinity")


def _end_of(status: Mapping[str, Any]) -> str:
    """Return what ended a pod before its node had all images, ``""`` if nothing did."""
    if status.get("phase") != "Failed" or "reason" not in status:
        return ""
    return f"the pod that was to pull it ended: {status['reason']} {status.get('message', '')}".strip()


def _waits_for(container: Mapping[str, Any]) -> str | None:
    """Return why a container has no image yet, ``""`` if Kubernetes does not tell; None once it has one.

    The kubelet gets the image first, and then finds that the image has no such program (``startContainer``).
    """
    state = section(container, "state")
    waiting = state.get("waiting")
    if waiting is None:
        has_begun = bool(state) and section(state, "terminated").get("reason") != _GIVEN_UP
        return None if has_begun else ""
    reason = waiting.get("reason", "")
    if reason in STARTS_AFTER_PULL:
        return None
    return "" if reason in _UNDER_WAY else f"{reason}: {waiting.get('message', '')}".strip()
