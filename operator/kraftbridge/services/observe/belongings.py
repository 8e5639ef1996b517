"""Reads which of the controllers' objects exist, and which of their pods are left without the StatefulSet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kraftbridge.builders import names
from kraftbridge.constants import LABEL_ROLE
from kraftbridge.exceptions import ActionError
from kraftbridge.models.observation import PodState
from kraftbridge.models.status import ControllersStatus
from kraftbridge.services.observe.workloads import is_owned, pod_state
from kraftbridge.storage.ports import ReadPort

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Belongings:
    """The controllers' objects beside StatefulSet and pods."""

    missing: tuple[str, ...]
    """``Kind/name`` of those that do not exist. The certificates have a restoration of their own."""
    claims: Mapping[int, str]
    """UID of each voter's PersistentVolumeClaim that exists."""
    configurations: Mapping[str, str]
    """UID of each ConfigMap with a configuration, by name."""


def look(
    kubernetes: ReadPort, namespace: str, migration: str, controllers: ControllersStatus, mounted: str
) -> Belongings:
    """Return the controllers' objects; ``mounted``: the configuration that their template names."""
    return Belongings(
        missing(kubernetes, namespace, controllers, mounted),
        claims(kubernetes, namespace, controllers),
        configurations(kubernetes, namespace, selector(migration), controllers.name),
    )


def missing(kubernetes: ReadPort, namespace: str, controllers: ControllersStatus, mounted: str) -> tuple[str, ...]:
    """Return ``Kind/name`` of the objects beside the StatefulSet that do not exist."""
    return tuple(
        f"{kind}/{name}"
        for api_version, kind, name in names.controllers_objects(controllers.name, mounted)
        if kubernetes.get(api_version, kind, namespace, name) is None
    )


def configurations(kubernetes: ReadPort, namespace: str, label_selector: str, controllers: str) -> dict[str, str]:
    """Return the UID of each ConfigMap with a configuration of these controllers, by name."""
    listed = kubernetes.list("v1", "ConfigMap", namespace, label_selector)
    found = {each["metadata"]["name"]: str(each["metadata"]["uid"]) for each in listed}
    return {name: uid for name, uid in found.items() if names.is_configuration(controllers, name)}


def claims(kubernetes: ReadPort, namespace: str, controllers: ControllersStatus) -> dict[int, str]:
    """Return the UID of each voter's PersistentVolumeClaim that exists."""
    uids = {}
    for node_id in controllers.node_ids:
        claim = kubernetes.get(
            "v1", "PersistentVolumeClaim", namespace, names.controller_claim(controllers.name, node_id)
        )
        if claim is not None:
            uids[node_id] = claim["metadata"]["uid"]
    return uids


def check_claims(kubernetes: ReadPort, namespace: str, controllers: ControllersStatus) -> None:
    """Refuse to create the StatefulSet unless every claim exists with its recorded UID.

    Its controller would make blank volumes.

    Raises
    ------
    ActionError
        A claim is gone or another one, and there is no StatefulSet.
    """
    if kubernetes.get("apps/v1", "StatefulSet", namespace, controllers.name) is not None:
        return
    present = {str(node_id): uid for node_id, uid in claims(kubernetes, namespace, controllers).items()}
    lost = sorted(node_id for node_id, uid in controllers.volume_uids.items() if present.get(node_id) != uid)
    if lost:
        raise ActionError(
            f"StatefulSet {namespace}/{controllers.name} is not created: "
            f"the recorded claim of controller {', '.join(lost)} does not exist"
        )


def selector(migration: str) -> str:
    """Return the label selector of the controllers' pods, and of their configurations, of every attempt."""
    return ",".join(f"{k}={v}" for k, v in names.labels(migration, **{LABEL_ROLE: "controller"}).items())


def left_pods(pods: Sequence[Object], controllers: ControllersStatus, owner: str) -> tuple[PodState, ...]:
    """Return this attempt's pods that the StatefulSet with UID ``owner`` does not own (``""``: there is none).

    A pod on a node that is lost stays in the API until its Node is deleted or tainted as out of service
    (Kubernetes' pod garbage collector), and runs until then as far as anybody can know.
    """
    expected = {f"{controllers.name}-{i}" for i in controllers.node_ids}
    mine = [pod for pod in pods if pod["metadata"]["name"] in expected]
    return tuple(pod_state(pod) for pod in mine if not is_owned(pod, owner))
