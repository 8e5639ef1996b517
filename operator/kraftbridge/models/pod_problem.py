"""Why a pod does not run: one classification of what Kubernetes says, with what somebody can do about it."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class PodProblem(StrEnum):
    """What keeps a pod from running, and what ends it."""

    IMAGE = "Correct its image or the pull secret, or let its node reach the registry"
    CONFIGURATION = "Create the ConfigMap or Secret that it names, or correct its template"
    MEMORY = "Raise its heap and its memory limit"
    CRASHING = "Read the log of its last start"
    CAPACITY = "Make room on the nodes, or change what keeps it from them: requests, affinity, taints, a volume's zone"
    NODE_LOST = "Bring its node back, or taint it node.kubernetes.io/out-of-service: until then its pod is not replaced"
    NOT_CREATED = "Change the quota, policy or webhook that refuses it; its controller tries again by itself"
    OTHER = "Read its events"

    @property
    def repeats(self) -> bool:
        """Whether a container ends again and again; the log of its last start says why."""
        return self in (PodProblem.CRASHING, PodProblem.MEMORY)

    @property
    def may_pass(self) -> bool:
        """Whether it may end without anybody: a node gets room or comes back, or what a process waits for appears."""
        return self in (PodProblem.CRASHING, PodProblem.CAPACITY, PodProblem.NODE_LOST)


STARTS_AFTER_PULL: Final = frozenset(
    {
        "CreateContainerConfigError",
        "PreCreateHookError",
        "CreateContainerError",
        "PreStartHookError",
        "RunContainerError",
        "PostStartHookError",
        "CrashLoopBackOff",
    }
)
"""Reasons of a container that does not start although its node has the image (``kuberuntime_container.go``)."""
WAITS: Final = {
    "ImagePullBackOff": PodProblem.IMAGE,
    "ErrImagePull": PodProblem.IMAGE,
    "ErrImageNeverPull": PodProblem.IMAGE,
    "InvalidImageName": PodProblem.IMAGE,
    "CrashLoopBackOff": PodProblem.CRASHING,
    "CreateContainerConfigError": PodProblem.CONFIGURATION,
    "CreateContainerError": PodProblem.CONFIGURATION,
    "RunContainerError": PodProblem.CONFIGURATION,
}
"""Reasons for which a container waits that do not end by themselves
(``pkg/kubelet/images``, ``pkg/kubelet/container``)."""
UNSCHEDULABLE: Final = "Unschedulable"
OOM_KILLED: Final = "OOMKilled"
"""Reason of a container's end by the kernel, since it reached its memory limit."""
LOST_NODE: Final = "NodeLost"
UNSTARTED: Final = frozenset({"StartError", "ContainerCannotRun", "ContainerStatusUnknown", "Unknown"})
"""Reasons of a container's end that its process did not bring about.
The runtime could not start it (containerd's ``StartError``, other runtimes' ``ContainerCannotRun``), or lost it
(containerd's ``Unknown``, the kubelet's ``ContainerStatusUnknown``)."""
_REASONS: Final = {**WAITS, UNSCHEDULABLE: PodProblem.CAPACITY, LOST_NODE: PodProblem.NODE_LOST}


def problem_of(trouble: str) -> PodProblem | None:
    """Return the problem that a text like `PodState.trouble` is about, None for an empty one."""
    if not trouble:
        return None
    if OOM_KILLED in trouble or "OutOfMemoryError" in trouble:
        return PodProblem.MEMORY  # how the container ended last follows the reason why it waits
    return _REASONS.get(trouble.replace(":", " ").split(" ")[0], PodProblem.OTHER)
