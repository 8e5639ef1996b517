"""Stops the controllers of a migration that is rolled back, and deletes their objects."""

from __future__ import annotations

from typing import Any

from kraftbridge.builders import names
from kraftbridge.exceptions import ActionError
from kraftbridge.models.decision import StopControllers
from kraftbridge.models.phase import ControllerMode
from kraftbridge.services.observe.workloads import pods_selector
from kraftbridge.storage.ports import KubernetesPort

_STATEFUL_SET = ("apps/v1", "StatefulSet")
_GRACE_SECONDS = 1
"""``KafkaRaftClient.shutdown`` lets a leader wait five seconds for a successor that does not exist. The mirror was checked before."""


def stop_controllers(kubernetes: KubernetesPort, namespace: str, action: StopControllers) -> None:
    """Delete the StatefulSet, then its pods at once.

    First, the StatefulSet becomes the owner of its other objects, so that Kubernetes' garbage collection deletes them: the operator has
    no right to delete Secrets, Services or volumes. ``persistentVolumeClaimRetentionPolicy`` deletes the volumes if the user chose
    that.

    Raises
    ------
    ActionError
        The StatefulSet's controller has not taken the volumes over yet; repeat it.
    """
    stateful_set = kubernetes.get(*_STATEFUL_SET, namespace, action.name)
    if stateful_set is None:
        return
    uid = stateful_set["metadata"]["uid"]
    if "deletionTimestamp" not in stateful_set["metadata"]:
        owner = {**dict(zip(("apiVersion", "kind"), _STATEFUL_SET, strict=True)), "name": action.name, "uid": uid}
        for api_version, kind, name in belongings(action.name):
            if kubernetes.get(api_version, kind, namespace, name) is not None:
                patch = {"metadata": {"ownerReferences": [owner]}}
                kubernetes.merge_patch(api_version, kind, namespace, name, patch)
        if action.volumes:
            _release_volumes(kubernetes, namespace, action, uid)
        kubernetes.delete(*_STATEFUL_SET, namespace, action.name, uid=uid, propagation="Foreground")
    for pod in kubernetes.list("v1", "Pod", namespace, pods_selector(stateful_set)):
        if _is_owned_by(pod, uid):
            meta = pod["metadata"]
            kubernetes.delete("v1", "Pod", namespace, meta["name"], uid=meta["uid"], grace_seconds=_GRACE_SECONDS)


def belongings(name: str) -> list[tuple[str, str, str]]:
    """Return API version, kind and name of the controllers' objects, without StatefulSet and volumes."""
    return [
        ("v1", "Service", name),
        ("networking.k8s.io/v1", "NetworkPolicy", name),
        ("policy/v1", "PodDisruptionBudget", name),
        *(("v1", "ConfigMap", names.controllers_config_map(name, mode)) for mode in ControllerMode),
        ("v1", "Secret", names.log_access_secret(name)),
        ("v1", "Secret", names.log_reader_secret(name)),
    ]


def _release_volumes(kubernetes: KubernetesPort, namespace: str, action: StopControllers, uid: str) -> None:
    policy = {"spec": {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Retain"}}}
    kubernetes.merge_patch(*_STATEFUL_SET, namespace, action.name, policy)
    claims = (names.controller_claim(action.name, i) for i in action.node_ids)
    found = {c: kubernetes.get("v1", "PersistentVolumeClaim", namespace, c) for c in claims}
    kept = [name for name, claim in found.items() if claim is not None and not _is_owned_by(claim, uid)]
    if kept:
        raise ActionError(f"the StatefulSet's controller has not taken over the volumes {', '.join(kept)} yet")


def _is_owned_by(obj: dict[str, Any], uid: str) -> bool:
    return any(o.get("uid") == uid for o in obj["metadata"].get("ownerReferences", []))
