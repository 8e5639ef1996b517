"""Settings of the user for pods that the operator creates (``spec.pods`` and the placement in its sections). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kraftbridge.builders.names import KEPT_COPY_KEY, part_of
from kraftbridge.models.objects import entries, section
from kraftbridge.models.spec import Placement, PodSettings, SecretReference

Object = dict[str, Any]


ASSIGNED_SECURITY_CONTEXT: Final[Mapping[str, Any]] = {
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""What is left of a pod's security context where the platform assigns user and groups."""
NO_MESH: Final[Mapping[str, str]] = {
    "sidecar.istio.io/inject": "false",
    "linkerd.io/inject": "disabled",
    "consul.hashicorp.com/connect-inject": "false",
    "kuma.io/sidecar-injection": "disabled",
    "openservicemesh.io/sidecar-injection": "disabled",
    "appmesh.k8s.aws/sidecarInjectorWebhook": "disabled",
}
"""Annotations that keep a mesh's proxy out of a pod.
A proxy accepts every connection that the pod opens, so nothing can be learned from one,
and a Job whose proxy goes on does not end."""
_MESH_LABELS: Final = ("sidecar.istio.io/inject", "kuma.io/sidecar-injection")
"""Those that newer releases read as labels (Istio 1.10, Kuma 1.4)."""
ZONE: Final = "topology.kubernetes.io/zone"


@dataclass(frozen=True, slots=True)
class PodDefaults:
    """What holds for pods besides ``spec.pods``."""

    image_pull_secrets: tuple[str, ...] = ()
    """Names of the Secrets that the chart names."""
    account_pull_secrets: tuple[str, ...] = ()
    """Names of the Secrets in the pods' service account.
    The API server gives them only to a pod that names none itself (admission plugin ``ServiceAccount``)."""
    assigned_users: bool = False
    """Whether the platform assigns the user ids of the namespace's pods."""


def completed(pods: PodSettings, defaults: PodDefaults) -> PodSettings:
    """Return ``spec.pods`` as it holds in this installation and namespace."""
    names = dict.fromkeys([*(s.name for s in pods.image_pull_secrets), *defaults.image_pull_secrets])
    if names:
        names |= dict.fromkeys(defaults.account_pull_secrets)
    changes: Object = {"image_pull_secrets": tuple(SecretReference(name=name) for name in names)}
    if defaults.assigned_users and not pods.security_context:
        changes["security_context"] = dict(ASSIGNED_SECURITY_CONTEXT)
    return pods.model_copy(update=changes)


def with_settings(template: Mapping[str, Any], pods: PodSettings, own: Placement | None = None) -> Object:
    """Return a pod, or a pod's template, with the user's settings.

    Parameters
    ----------
    template
        ``metadata`` and ``spec`` of the pod.
        What is in them holds unless the user sets the same field; labels and annotations always hold.
    pods
        ``spec.pods``, `completed`. Who wants a proxy in these pods says so there.
    own
        Placement in the section of the pod's kind. A field that is set there replaces that of ``pods``.
    """
    metadata = dict(template["metadata"])
    spec = dict(template["spec"])
    labels = section(metadata, "labels")
    no_proxy = {name: value for name, value in NO_MESH.items() if name not in pods.annotations.keys() | pods.labels}
    metadata["labels"] = {
        **{name: no_proxy[name] for name in _MESH_LABELS if name in no_proxy},
        **pods.labels,
        **labels,
    }
    metadata["annotations"] = {**no_proxy, **pods.annotations, **section(metadata, "annotations")}
    secrets = {secret["name"]: secret for secret in entries(spec, "imagePullSecrets")}
    secrets |= {secret.name: {"name": secret.name} for secret in pods.image_pull_secrets}
    if secrets:
        spec["imagePullSecrets"] = list(secrets.values())
    if pods.service_account_name is not None:
        spec.setdefault("serviceAccountName", pods.service_account_name)
    if pods.security_context:
        spec["securityContext"] = dict(pods.security_context)
    spec |= _placement(spec, pods, own or Placement(), labels)
    return {**template, "metadata": metadata, "spec": spec}


def copied_with_settings(pod: Mapping[str, Any], pods: PodSettings) -> Object:
    """Return a copy of a broker's pod with the user's settings.

    Its placement and security context are those of the copied pod.
    """
    kept = dict.fromkeys((*Placement.model_fields, "security_context"))
    return with_settings(pod, PodSettings.model_validate(pods.model_dump(exclude=set(kept))))


KEPT_COPY = "/etc/kraftbridge-copy"
"""Where the parts of a kept copy of the metadata log are mounted; their names sort in their order."""
_KEPT_COPY_VOLUME = "kept-copy"


def kept_copy_volume(secret: str, parts: int) -> dict[str, Any]:
    """Return the volume with all parts of a kept copy."""
    sources = [
        {"secret": {"name": part_of(secret, i), "items": [{"key": KEPT_COPY_KEY, "path": f"part-{i:04}"}]}}
        for i in range(parts)
    ]
    return {"name": _KEPT_COPY_VOLUME, "projected": {"sources": sources}}


def kept_copy_mount() -> dict[str, Any]:
    """Return the mount of that volume."""
    return {"name": _KEPT_COPY_VOLUME, "mountPath": KEPT_COPY, "readOnly": True}


def spread_over_nodes(selector: Mapping[str, str]) -> Object:
    """Return the affinity of pods that prefer different nodes."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": dict(selector)}}
    return {
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]
        }
    }


def spread_over_zones(selector: Mapping[str, str]) -> list[Object]:
    """Return the constraint of pods that prefer different zones.

    It says nothing on nodes without a zone (``PodTopologySpread``, scoring).
    """
    return [
        {
            "maxSkew": 1,
            "topologyKey": ZONE,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": dict(selector)},
        }
    ]


def _placement(spec: Mapping[str, Any], pods: PodSettings, own: Placement, labels: Mapping[str, str]) -> Object:
    ours = {"labelSelector": {"matchLabels": dict(labels)}}
    constraints = own.topology_spread_constraints or pods.topology_spread_constraints
    affinity = own.affinity or pods.affinity
    fields: Object = {
        "priorityClassName": own.priority_class_name or pods.priority_class_name,
        "nodeSelector": dict(own.node_selector or pods.node_selector),
        "tolerations": list(own.tolerations or pods.tolerations),
        "affinity": affinity and {**section(spec, "affinity"), **affinity},
        "topologySpreadConstraints": [{**ours, **constraint} for constraint in constraints],
    }
    return {name: value for name, value in fields.items() if value}
