"""Lists the objects that an abandoned migration leaves behind, in a ConfigMap that stays."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import yaml

from kraftbridge.builders import names
from kraftbridge.constants import ANNOTATION_CONFIGURATION
from kraftbridge.models.phase import Phase
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.models.status import MigrationStatus
from kraftbridge.phases.draft import Identity
from kraftbridge.services.act.stopping import belongings
from kraftbridge.services.observe.workloads import pods_selector
from kraftbridge.storage.ports import KubernetesPort

KEY = "left-behind.yaml"
_STATEFUL_SET = ("apps/v1", "StatefulSet")


def config_map(
    kubernetes: KubernetesPort, identity: Identity, spec: MigrationSpec, status: MigrationStatus
) -> dict[str, Any] | None:
    """Return the ConfigMap with the list; None if the migration changed nothing.

    Raises
    ------
    ObservationError
        The API server does not answer.
    """
    if status.controllers is None and status.phase is Phase.PREFLIGHT:
        return None
    claimed = status.phase not in (Phase.PREFLIGHT, Phase.PROVISIONING_QUORUM, Phase.COMPLETED, Phase.ROLLED_BACK)
    document = {
        "migration": f"{identity.namespace}/{identity.name}",
        "uid": identity.uid,
        "phase": str(status.phase),
        "abandonedAt": datetime.now(UTC).isoformat(timespec="seconds"),
        "objects": list(_objects(kubernetes, identity, status)),
        "brokers": [_brokers(kubernetes, identity.namespace, ref.name) for ref in spec.brokers.stateful_sets],
        "changedFields": [f.model_dump(mode="json", by_alias=True) for f in status.changed_fields],
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
        "data": {KEY: yaml.safe_dump(document, sort_keys=False)},
    }


def _objects(kubernetes: KubernetesPort, identity: Identity, status: MigrationStatus) -> Iterator[str]:
    """Yield ``Kind/name`` of the existing objects."""
    wanted = [("v1", "Secret", names.before_secret(identity.name, identity.uid, status.attempt))]
    if status.controllers is not None:
        name = status.controllers.name
        wanted += [(*_STATEFUL_SET, name), *belongings(name)]
        wanted += [
            ("v1", "PersistentVolumeClaim", names.controller_claim(name, i)) for i in status.controllers.node_ids
        ]
    for api_version, kind, name in wanted:
        if kubernetes.get(api_version, kind, identity.namespace, name) is not None:
            yield f"{kind}/{name}"


def _brokers(kubernetes: KubernetesPort, namespace: str, name: str) -> dict[str, Any]:
    """Return the configuration that a StatefulSet of brokers renders, and the configuration that each of its pods runs."""
    stateful_set = kubernetes.get(*_STATEFUL_SET, namespace, name)
    if stateful_set is None:
        return {"statefulSet": name, "exists": False}

    def configuration(metadata: dict[str, Any]) -> str:
        return str((metadata.get("annotations") or {}).get(ANNOTATION_CONFIGURATION, "the user's own"))

    pods = kubernetes.list("v1", "Pod", namespace, pods_selector(stateful_set))
    return {
        "statefulSet": name,
        "template": configuration(stateful_set["spec"]["template"].get("metadata") or {}),
        "updateStrategy": (stateful_set["spec"].get("updateStrategy") or {}).get("type", ""),
        "pods": {p["metadata"]["name"]: configuration(p["metadata"]) for p in pods},
    }
