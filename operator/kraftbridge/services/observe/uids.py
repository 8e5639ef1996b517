"""Reads what the brokers are made of: claims by UID, the chart's labels, and what took a StatefulSet's place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kraftbridge.models.objects import entries, section
from kraftbridge.models.observation import Renamed, Unobserved
from kraftbridge.models.status import RecordedObjects, RecordedStatefulSet
from kraftbridge.services.observe.workloads import is_owned, pods_selector
from kraftbridge.storage.ports import ReadPort

Object = Mapping[str, Any]

CHART_LABELS: Final = ("helm.sh/chart", "app.kubernetes.io/version")
"""Labels that charts give every object (Helm, "Labels and Annotations"; Kubernetes, "Recommended Labels")."""


def chart_of(stateful_set: Object) -> dict[str, str]:
    """Return the labels that tell the chart of a StatefulSet and the version of what it runs."""
    labels = section(stateful_set, "metadata", "labels")
    return {name: str(labels[name]) for name in CHART_LABELS if name in labels}


def claims_of(kubernetes: ReadPort, namespace: str, stateful_set: Object, pods: Sequence[Object]) -> dict[str, str]:
    """Return the UID of each claim that exists of a StatefulSet's pods, by name.

    Raises
    ------
    ObservationError
        The claims cannot be read.
    """
    wanted = _made_from_templates(stateful_set)
    for pod in pods:
        if is_owned(pod, stateful_set["metadata"]["uid"]):
            wanted |= _mounted(pod)
    if not wanted:
        return {}
    claims = kubernetes.list("v1", "PersistentVolumeClaim", namespace)
    uids = {claim["metadata"]["name"]: str(claim["metadata"]["uid"]) for claim in claims}
    return {name: uid for name, uid in sorted(uids.items()) if name in wanted}


def _made_from_templates(stateful_set: Object) -> set[str]:
    """Return the names that the StatefulSet controller gives to claims (``getPersistentVolumeClaimName``)."""
    spec = stateful_set["spec"]
    start = int(section(spec, "ordinals").get("start") or 0)
    ordinals = range(start, start + int(spec.get("replicas", 1)))
    templates = [claim["metadata"]["name"] for claim in entries(spec, "volumeClaimTemplates")]
    name = stateful_set["metadata"]["name"]
    return {f"{template}-{name}-{ordinal}" for template in templates for ordinal in ordinals}


def _mounted(pod: Object) -> set[str]:
    volumes = entries(pod, "spec", "volumes")
    names = (section(volume, "persistentVolumeClaim").get("claimName") for volume in volumes)
    return {str(name) for name in names if name}


def absent(
    kubernetes: ReadPort, namespace: str, name: str, objects: RecordedObjects | None, own: frozenset[str]
) -> Unobserved:
    """Return that a StatefulSet does not exist, and which one has taken its place if one shows that it has.

    Parameters
    ----------
    objects
        What the migration has recorded.
    own
        StatefulSets that have a place of their own in the migration.

    Raises
    ------
    ObservationError
        StatefulSets, pods or claims cannot be read.
    """
    source = f"StatefulSet {namespace}/{name}"
    nothing = Unobserved(source, "it does not exist")
    known = next((each for each in objects.stateful_sets if each.name == name), None) if objects is not None else None
    if objects is None or known is None:
        return nothing
    for item in kubernetes.list("apps/v1", "StatefulSet", namespace):
        other = item["metadata"]["name"]
        signs = [] if other in own else _signs(kubernetes, namespace, item, known, objects.claims)
        if signs:
            words = " and ".join(signs)
            reason = f"it does not exist; StatefulSet {other} has taken its place: it {words}"
            return Renamed(source, reason, name, other, words)
    return nothing


def _signs(
    kubernetes: ReadPort, namespace: str, item: Object, known: RecordedStatefulSet, claims: Mapping[str, str]
) -> list[str]:
    """Return what shows that a StatefulSet has taken the place of another one."""
    signs = []
    selector = pods_selector(item)
    if selector == known.selector:
        signs.append(f"has its selector ({selector})")
    pods = [pod for pod in kubernetes.list("v1", "Pod", namespace, selector) if is_owned(pod, item["metadata"]["uid"])]
    present = claims_of(kubernetes, namespace, item, pods)
    taken = sorted(name for name, uid in present.items() if claims.get(name) == uid)
    if taken:
        signs.append(f"has its claims ({', '.join(taken[:3])})")
    former = sorted(pod["metadata"]["name"] for pod in pods if pod["metadata"]["name"].startswith(f"{known.name}-"))
    if former and not item["metadata"]["name"].startswith(known.name):
        signs.append(f"owns its pods ({', '.join(former[:3])})")
    return signs
