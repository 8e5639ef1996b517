"""The pods that let a node get the images of the next pods, and start nothing of them. Pure."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

from kraftbridge.builders import pods
from kraftbridge.builders.broker_overlays import short_hash
from kraftbridge.builders.dry_start_pods import RESTRICTED, DryStartFacts, Object, pod_of_run, small_resources
from kraftbridge.copies.image_pulls import Wanted
from kraftbridge.models.dry_start import PullKey
from kraftbridge.models.objects import entries, section
from kraftbridge.models.runs import PULL_LIMIT

NO_PROGRAM: Final = "/kraftbridge-gets-this-image-and-starts-nothing"
"""No image has it: once the node has the image, the container runtime refuses to start the container."""
_KEPT: Final = (
    "nodeSelector",
    "tolerations",
    "imagePullSecrets",
    "serviceAccountName",  # the API server gives its secrets to a pod that names none
    "runtimeClassName",
    "schedulerName",
)
_NODE_AFFINITY: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def pull_name(key: PullKey, run: str) -> str:
    """Return the name of the pod that pulls an owner's images on a node."""
    return f"{run}-pull-{short_hash([key.owner, key.node])[:10]}"


def pull_pod(facts: DryStartFacts, wanted: Wanted, key: PullKey) -> Object:
    """Return a pod that goes to one node or nowhere: wherever the scheduler would place the owner's pods.

    It asks for no anti-affinity and no volume: a pod may move to a node once another one has left it.
    """
    containers = [
        {
            "name": f"image-{number}",
            "image": image,
            **({"imagePullPolicy": policy} if policy else {}),
            "command": [NO_PROGRAM],
            "resources": facts.pods.helper_resources or small_resources(),
            "securityContext": dict(RESTRICTED),
        }
        for number, (image, policy) in enumerate(sorted(wanted.images.items()), 1)
    ]
    spec: Object = {name: copy.deepcopy(wanted.template[name]) for name in _KEPT if name in wanted.template}
    spec |= {"affinity": {"nodeAffinity": {_NODE_AFFINITY: _on(key.node, wanted.template)}}, "containers": containers}
    pod = pod_of_run(facts, pull_name(key, facts.run), spec)
    del pod["spec"]["schedulingGates"]
    pod["spec"]["activeDeadlineSeconds"] = int(2 * PULL_LIMIT.total_seconds())
    # The owner's pods do not get the pull secrets of `spec.pods` unless their template has them.
    return pods.copied_with_settings(pod, facts.pods.model_copy(update={"image_pull_secrets": ()}))


def _on(node: str, template: Mapping[str, Any]) -> Object:
    """Return the node affinity of a template, with this node in each of its terms, of which one must hold.

    A term that asks for nothing matches no node (``NodeSelectorTerm``), and stays what it is.
    """
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = entries(section(template, "affinity", "nodeAffinity", _NODE_AFFINITY), "nodeSelectorTerms")
    if not terms:
        return {"nodeSelectorTerms": [{"matchFields": [field]}]}
    named = [
        {**copy.deepcopy(dict(term)), "matchFields": [*entries(term, "matchFields"), field]} if term else {}
        for term in terms
    ]
    return {"nodeSelectorTerms": named}
