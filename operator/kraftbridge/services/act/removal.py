"""Removes the controllers' objects after a rollback, and lists what an abandoned migration leaves behind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import yaml

from kraftbridge.builders import names
from kraftbridge.constants import ANNOTATION_CONFIGURATION
from kraftbridge.exceptions import ActionError
from kraftbridge.models.decision import AT_ONCE_SECONDS, RemoveConfigurations, StopControllers
from kraftbridge.models.objects import section
from kraftbridge.models.phase import Phase
from kraftbridge.models.status import MigrationStatus, before_secrets, controllers_format
from kraftbridge.phases.draft import Identity, Migration
from kraftbridge.services.observe import belongings as read_belongings
from kraftbridge.services.observe.workloads import (
    is_member,
    is_observed,
    is_owned,
    mounted_config_maps,
    pods_selector,
)
from kraftbridge.storage.ports import KubernetesPort, ReadPort

_STATEFUL_SET = ("apps/v1", "StatefulSet")


def stop_controllers(kubernetes: KubernetesPort, namespace: str, action: StopControllers) -> None:
    """Delete the StatefulSet, then its pods at once.

    First, the StatefulSet becomes the owner of its other objects, so that Kubernetes' garbage collection deletes them:
    the operator has no right to delete Secrets, Services or volumes.
    ``persistentVolumeClaimRetentionPolicy`` deletes the volumes if the user chose that.

    Raises
    ------
    ActionError
        The StatefulSet's controller has not taken the volumes over yet; repeat it.
    """
    stateful_set = kubernetes.get(*_STATEFUL_SET, namespace, action.name)
    if stateful_set is None:
        for node_id in action.node_ids:  # somebody deleted it without its pods
            _stop_pod(kubernetes, namespace, kubernetes.get("v1", "Pod", namespace, f"{action.name}-{node_id}"))
        return
    uid = stateful_set["metadata"]["uid"]
    if "deletionTimestamp" not in stateful_set["metadata"]:
        api_version, kind = _STATEFUL_SET
        owner = {"apiVersion": api_version, "kind": kind, "name": action.name, "uid": uid}
        for api_version, kind, name in (
            *belongings(action.name),
            *configurations(kubernetes, namespace, pods_selector(stateful_set), action.name),
        ):
            if kubernetes.get(api_version, kind, namespace, name) is not None:
                _give_owner(kubernetes, (api_version, kind, namespace, name), owner)
        if action.volumes:
            _release_volumes(kubernetes, namespace, action, uid)
        kubernetes.delete(*_STATEFUL_SET, namespace, action.name, uid=uid, propagation="Foreground")
    for pod in kubernetes.list("v1", "Pod", namespace, pods_selector(stateful_set)):
        if is_member(pod, stateful_set):
            _stop_pod(kubernetes, namespace, pod)


_NOT_YOURS: Final = "cannot set an ownerRef"
"""Words of the admission plugin ``OwnerReferencesPermissionEnforcement``."""


def _give_owner(kubernetes: KubernetesPort, which: tuple[str, str, str, str], owner: Mapping[str, Any]) -> None:
    try:
        kubernetes.merge_patch(*which, {"metadata": {"ownerReferences": [owner]}})
    except ActionError as error:
        if _NOT_YOURS not in str(error):
            raise
        advice = "Upgrade the chart with rbac.deleteObjects=true; the rollback then goes on by itself"
        raise type(error)(f"{error}. {advice}") from error


def _stop_pod(kubernetes: KubernetesPort, namespace: str, pod: Mapping[str, Any] | None) -> None:
    """Stop a pod at once, never by force: the API forgets it only once its node says that it has ended."""
    if pod is not None:
        meta = pod["metadata"]
        kubernetes.delete("v1", "Pod", namespace, meta["name"], uid=meta["uid"], grace_seconds=AT_ONCE_SECONDS)


def belongings(name: str) -> list[tuple[str, str, str]]:
    """Return API version, kind and name of the controllers' objects.

    StatefulSet, `configurations` and volumes are not among them.
    """
    return [
        ("v1", "Service", name),
        ("networking.k8s.io/v1", "NetworkPolicy", name),
        ("policy/v1", "PodDisruptionBudget", name),
        ("v1", "ConfigMap", controllers_format(name)),
        ("v1", "Secret", names.log_access_secret(name)),
        ("v1", "Secret", names.log_reader_secret(name)),
        ("v1", "Secret", names.issued_listener_secret(name)),
    ]


def configurations(
    kubernetes: ReadPort, namespace: str, label_selector: str, controllers: str
) -> list[tuple[str, str, str]]:
    """Return API version, kind and name of the ConfigMaps with configurations of the controllers."""
    found = read_belongings.configurations(kubernetes, namespace, label_selector, controllers)
    return [("v1", "ConfigMap", name) for name in sorted(found)]


def remove_configurations(kubernetes: KubernetesPort, namespace: str, action: RemoveConfigurations) -> None:
    """Delete configurations that neither the template nor a pod mounts now; the others stay.

    Raises
    ------
    ActionError
        The StatefulSet is gone, or its controller has not observed its template: nobody can tell what its pods mount.
    """
    stateful_set = kubernetes.get(*_STATEFUL_SET, namespace, action.stateful_set)
    if stateful_set is None or not is_observed(stateful_set):
        raise ActionError(f"it is not known what the pods of StatefulSet {namespace}/{action.stateful_set} mount")
    pods = kubernetes.list("v1", "Pod", namespace, pods_selector(stateful_set))
    mounted = mounted_config_maps(stateful_set, pods)
    for name, uid in action.config_maps:
        if name not in mounted:
            kubernetes.delete("v1", "ConfigMap", namespace, name, uid=uid)


def _release_volumes(kubernetes: KubernetesPort, namespace: str, action: StopControllers, uid: str) -> None:
    policy = {"spec": {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Retain"}}}
    kubernetes.merge_patch(*_STATEFUL_SET, namespace, action.name, policy)
    kept = []
    for node_id in action.node_ids:
        name = names.controller_claim(action.name, node_id)
        claim = kubernetes.get("v1", "PersistentVolumeClaim", namespace, name)
        if claim is not None and not is_owned(claim, uid):
            kept.append(name)
    if kept:
        raise ActionError(f"the StatefulSet's controller has not taken over the volumes {', '.join(kept)} yet")


LEFT_BEHIND_KEY = "left-behind.yaml"


def config_map(kubernetes: KubernetesPort, migration: Migration) -> dict[str, Any] | None:
    """Return the ConfigMap with the list; None if the migration changed nothing.

    Raises
    ------
    ObservationError
        The API server does not answer.
    """
    identity = migration.identity
    status = migration.status
    if status.controllers is None and status.phase is Phase.PREFLIGHT:
        return None
    of_kraft = status.phase is not Phase.UPGRADING_BROKERS and status.phase.row.changes_brokers
    claimed = of_kraft and not status.phase.at_rest
    document = {
        "migration": f"{identity.namespace}/{identity.name}",
        "uid": identity.uid,
        "phase": str(status.phase),
        "abandonedAt": datetime.now(UTC).isoformat(timespec="seconds"),
        "objects": list(_objects(kubernetes, identity, status)),
        "brokers": [_brokers(kubernetes, identity.namespace, ref.name) for ref in migration.spec.brokers.stateful_sets],
        "changedFields": [field.model_dump(mode="json", by_alias=True) for field in status.changed_fields],
        "znodes": ["/controller", "/migration"] if claimed else [],
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": names.abandoned_config_map(identity.name, identity.uid),
            "namespace": identity.namespace,
            "labels": names.labels(identity.name),
        },
        "data": {LEFT_BEHIND_KEY: yaml.safe_dump(document, sort_keys=False)},
    }


def _objects(kubernetes: KubernetesPort, identity: Identity, status: MigrationStatus) -> Iterator[str]:
    """Yield ``Kind/name`` of the existing objects."""
    before = before_secrets(identity.name, identity.uid, status.attempt)
    wanted = [
        *(("v1", "Secret", name) for name in before),
        ("v1", "Secret", names.issuing_authority_secret(identity.name, identity.uid)),
        ("v1", "Secret", names.issued_brokers_secret(identity.name, identity.uid)),
    ]
    if status.controllers is not None:
        name = status.controllers.name
        wanted += [(*_STATEFUL_SET, name), *belongings(name)]
        wanted += configurations(kubernetes, identity.namespace, read_belongings.selector(identity.name), name)
        wanted += [
            ("v1", "PersistentVolumeClaim", names.controller_claim(name, i)) for i in status.controllers.node_ids
        ]
    for api_version, kind, name in wanted:
        if kubernetes.get(api_version, kind, identity.namespace, name) is not None:
            yield f"{kind}/{name}"


def _brokers(kubernetes: KubernetesPort, namespace: str, name: str) -> dict[str, Any]:
    """Return the configuration that a StatefulSet of brokers renders, and what each of its pods runs."""
    stateful_set = kubernetes.get(*_STATEFUL_SET, namespace, name)
    if stateful_set is None:
        return {"statefulSet": name, "exists": False}

    def configuration(metadata: Mapping[str, Any]) -> str:
        return str(section(metadata, "annotations").get(ANNOTATION_CONFIGURATION, "the user's own"))

    pods = kubernetes.list("v1", "Pod", namespace, pods_selector(stateful_set))
    return {
        "statefulSet": name,
        "template": configuration(section(stateful_set, "spec", "template", "metadata")),
        "updateStrategy": section(stateful_set, "spec", "updateStrategy").get("type", ""),
        "pods": {pod["metadata"]["name"]: configuration(pod["metadata"]) for pod in pods},
    }
