"""What the API server made of a pod that was sent to it, compared whole. Pure.

Admission may put anything into a pod: a directory of the node in place of an empty one, another account, a capability.
So everything that the API server's answer has beyond the pod that was sent, or that it lacks, is a change.
Two kinds of changes are none that matter: what Kubernetes itself is known to add, which is a closed list here,
and what admission did to a running pod of the brokers, too, compared with its StatefulSet's template.
A few things are never let pass, because with them a copy is no longer fenced.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from typing_extensions import override

from kraftbridge.models.objects import entries, section

Path = tuple[str, ...]

API_DIRECTORY: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where containers look for the files of their service account."""
NOT_OF_NODE: Final = ("configMap", "secret", "projected", "downwardAPI")
"""Sources of volumes that the kubelet renders: no disk and no other machine is behind them."""
_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")
_KEYS: Final[Mapping[str, str]] = {
    **dict.fromkeys(_CONTAINERS, "name"),
    "volumes": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "schedulingGates": "name",
    "resourceClaims": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ownerReferences": "uid",
}
"""Lists by the field that names an entry (``listMapKey`` and ``patchMergeKey`` in the API's types)."""
_ORDERED: Final = ("containers", "initContainers", "env")
"""Lists whose order changes a start."""
_ORDER: Final = "order of "
_METADATA: Final = ("labels", "annotations", "ownerReferences", "finalizers")
_QUANTITIES: Final = ("limits", "requests", "overhead")
_QUANTITY: Final = re.compile(r"([+-]?[0-9.]+)(?:[eE]([+-]?[0-9]+)|([numkMGTPE]|[KMGTPE]i)?)")
_SUFFIXES: Final[Mapping[str, Decimal]] = {
    **{suffix: Decimal(1000) ** (power - 3) for power, suffix in enumerate("num")},
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", 1)},
    "": Decimal(1),
}
_ANY: Final = object()
_DEFAULTS: Final[Mapping[str, tuple[Any, ...]]] = {
    "spec restartPolicy": ("Always",),
    "spec dnsPolicy": ("ClusterFirst",),
    "spec terminationGracePeriodSeconds": (30,),
    "spec schedulerName": ("default-scheduler",),
    "spec enableServiceLinks": (True,),
    "spec serviceAccountName": ("default",),
    "spec serviceAccount": ("default",),
    "spec priorityClassName": (_ANY,),
    "spec preemptionPolicy": (_ANY,),
    "spec containers * terminationMessagePath": ("/dev/termination-log",),
    "spec containers * terminationMessagePolicy": ("File",),
    "spec containers * imagePullPolicy": ("Always", "IfNotPresent"),
    "spec containers * ports * protocol": ("TCP",),
    "spec containers * env * valueFrom fieldRef apiVersion": ("v1",),
    "spec containers * env * valueFrom resourceFieldRef divisor": ("0",),
    **{
        f"spec containers * {probe} {field}": (value,)
        for probe in ("startupProbe", "livenessProbe", "readinessProbe")
        for field, value in {
            "timeoutSeconds": 1,
            "periodSeconds": 10,
            "successThreshold": 1,
            "failureThreshold": 3,
            "httpGet scheme": "HTTP",
        }.items()
    },
    **{f"spec volumes * {kind} defaultMode": (0o644,) for kind in NOT_OF_NODE},
    "spec volumes * downwardAPI items * fieldRef apiVersion": ("v1",),
    "spec volumes * projected sources * downwardAPI items * fieldRef apiVersion": ("v1",),
    "spec volumes * projected sources * serviceAccountToken expirationSeconds": (3600,),
}
"""What the API server writes where a field was left out (``pkg/apis/core/v1/defaults.go``; admission plugins
``ServiceAccount`` and ``Priority``)."""
_RECORDS: Final = (
    "kubernetes.io/limit-ranger",
    "openshift.io/scc",
    "security.openshift.io/validated-scc-subject-type",
    "policies.kyverno.io/last-applied-patches",
)
"""Annotations that only record what admission did; what it did is compared itself."""
_LIMIT_RANGER: Final = "kubernetes.io/limit-ranger"
_TOLERATED: Final = (
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/memory-pressure",
)
"""Taints that the plugins ``DefaultTolerationSeconds`` and ``PodTolerationRestriction`` let pods tolerate."""
_JOB_LABELS: Final = (
    "controller-uid",
    "job-name",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
)
_COMMON_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage")
_NEVER: Final = (
    *("spec hostNetwork", "spec hostPID", "spec hostIPC", "spec hostAliases", "spec dnsPolicy", "spec nodeName"),
    *("spec automountServiceAccountToken", "spec serviceAccountName", "spec serviceAccount", "spec restartPolicy"),
    *("spec activeDeadlineSeconds", "spec hostname", "spec subdomain", "spec schedulingGates"),
    "spec dnsConfig",
    "spec ephemeralContainers",
    "spec containers * securityContext privileged",
    "spec containers * securityContext procMount",
    "spec containers * securityContext capabilities add",
    "spec containers * volumeDevices",
    "spec containers * ports",
    "spec securityContext sysctls",
    "metadata ownerReferences",
    "metadata finalizers",
    "metadata labels controller-revision-hash",
    "metadata labels statefulset.kubernetes.io/pod-name",
    "metadata labels apps.kubernetes.io/pod-index",
)
"""What a running pod has by its own controller, and what takes a copy out of its fence or to its node:
that a running pod has it, too, is no excuse."""
_OF_OWN_NETWORK: Final = frozenset({"NET_ADMIN", "NET_RAW"})
"""Capabilities with which a mesh's init container changes the pod's own network namespace, and nothing else."""
_DIFFER_BY_POD: Final = ("env", "args", "resources")
"""Fields in which an injected container names the pod that it is in."""


class _Entry(str):
    """Names an entry of a list in a path."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that the API server's answer has otherwise than what was sent."""

    path: Path
    sent: Any
    """None where it was added."""
    made: Any
    """None where it was taken away."""

    @property
    def pattern(self) -> str:
        """The path without the names of entries."""
        parts = ["*" if isinstance(part, _Entry) else part for part in self.path]
        if len(parts) > 1 and parts[1] in _CONTAINERS[:2]:
            parts[1] = _CONTAINERS[0]
        return " ".join(parts)

    @property
    def entry(self) -> bool:
        """Whether it is about a whole entry of a list."""
        return isinstance(self.path[-1], _Entry)

    def is_below(self, patterns: Iterable[str]) -> bool:
        """Return whether it is about one of these fields, or about a part of one."""
        return any(self.pattern == each or self.pattern.startswith(f"{each} ") for each in patterns)

    @override
    def __str__(self) -> str:
        words = _words(self.path)
        return f"the loss of {words}" if _is_empty(self.made) else words


@dataclass(frozen=True, slots=True)
class Alike:
    """What admission did to running pods, compared with the templates that they were made from."""

    changes: tuple[Change, ...] = ()
    containers: frozenset[str] = frozenset()
    """Names of the containers in these pods."""
    priority: int = 0
    """The highest of them."""
    requested: frozenset[str] = frozenset()
    """Resources that one of them requests."""

    def covers(self, change: Change) -> bool:
        """Return whether admission did the same to one of the running pods."""
        if change.is_below(_NEVER) or _leaves_the_fence(change):
            return False
        return any(self._is_same(change, other) for other in self.changes)

    def _is_same(self, change: Change, other: Change) -> bool:
        if _is_of_container(change) and change.path[2] not in self.containers and not change.entry:
            # A container of ours: what admission did to any container of the running pod.
            is_same_field = change.pattern == other.pattern and change.path[3:] == other.path[3:]
            return is_same_field and (_same(change.path, change.made, other.made) or _is_mirrored(change, other))
        if change.path != other.path:
            return False
        if change.pattern == "spec containers *":
            return _injected(change.made) == _injected(other.made)
        return _same(change.path, change.made, other.made)


def alike(pods: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> Alike:
    """Return what admission did to running pods.

    Parameters
    ----------
    pods
        The template of each pod's StatefulSet, and the pod.
    """
    changes: list[Change] = []
    running = []
    for template, pod in pods:
        changes += _changes_of(template, pod)
        running.append(section(pod, "spec"))
    containers = [container for spec in running for kind in _CONTAINERS for container in entries(spec, kind)]
    return Alike(
        tuple({(str(change.path), str(change.made)): change for change in changes}.values()),
        frozenset(container["name"] for container in containers),
        max((spec.get("priority") or 0 for spec in running), default=0),
        frozenset(name for container in containers for name in section(container, "resources", "requests")),
    )


def additions(
    sent: Mapping[str, Any], made: Mapping[str, Any], done: Alike | None = None, *, by_job: bool = False
) -> tuple[str, ...]:
    """Return what admission put into a pod, changed in it or took away, in words.

    Parameters
    ----------
    sent
        The pod as it was sent.
    made
        The pod as the API server keeps it.
    done
        What admission did to running pods.
    by_job
        Whether a Job made the pod from ``sent``: it adds its own labels and owner, and the scheduler names a node.
    """
    done = done or Alike()
    found = [change for change in _changes_of(sent, made) if not _is_known(change, sent, made, done)]
    if by_job:
        found = [change for change in found if not _is_of_job(change)]
    return tuple(dict.fromkeys(str(change) for change in found if not done.covers(change)))


# ------------------------------------------------------------------------------------------------- comparing


def _changes_of(sent: Mapping[str, Any], made: Mapping[str, Any]) -> Iterator[Change]:
    for part in _METADATA:
        yield from _changes(
            ("metadata", part), section(sent, "metadata").get(part), section(made, "metadata").get(part)
        )
    yield from _changes(("spec",), section(sent, "spec"), section(made, "spec"))


def _changes(path: Path, sent: Any, made: Any) -> Iterator[Change]:
    """Yield what differs below a path: the smallest parts of objects, and whole entries of lists."""
    if _same(path, sent, made):
        return
    if _are_lists_of_objects(sent, made):
        yield from _changed_order(path, sent, made)
        sent, made = _by_name(path[-1], sent, made)
    is_new_or_gone = isinstance(path[-1], _Entry) and (sent is None or made is None)
    if is_new_or_gone or not isinstance(sent or made, Mapping) or not isinstance(made or sent, Mapping):
        yield Change(path, sent, made)
        return
    for name in {**(sent or {}), **(made or {})}:
        yield from _changes((*path, name), (sent or {}).get(name), (made or {}).get(name))


def _are_lists_of_objects(*values: Any) -> bool:
    lists = [value for value in values if not _is_empty(value)]
    return all(isinstance(value, list) and all(isinstance(entry, Mapping) for entry in value) for value in lists)


def _by_name(field: str, sent: Any, made: Any) -> tuple[Mapping[_Entry, Any], Mapping[_Entry, Any]]:
    """Return both lists by what names their entries: a field, else their place, else all of an entry."""
    lists = [sent or [], made or []]
    key = _KEYS.get(field)
    if key is not None:
        named = [{_Entry(entry.get(key)): entry for entry in each} for each in lists]
    elif field != "tolerations" and len(lists[0]) == len(lists[1]):
        named = [{_Entry(place): entry for place, entry in enumerate(each)} for each in lists]
    else:
        named = [{_Entry(json.dumps(entry, sort_keys=True)): entry for entry in each} for each in lists]
    return named[0], named[1]


def _changed_order(path: Path, sent: Any, made: Any) -> Iterator[Change]:
    if path[-1] not in _ORDERED:
        return
    both = [[entry["name"] for entry in each or []] for each in (sent, made)]
    common = [[name for name in dict.fromkeys(names) if name in both[0] and name in both[1]] for names in both]
    if common[0] != common[1]:
        yield Change((*path[:-1], f"{_ORDER}{path[-1]}"), common[0], common[1])


def _same(path: Path, sent: Any, made: Any) -> bool:
    if _is_empty(sent) and _is_empty(made):
        return True
    is_quantity = path[-1] == "sizeLimit" or (len(path) > 1 and path[-2] in _QUANTITIES)
    if is_quantity and not _is_empty(sent) and not _is_empty(made):
        return _amount(sent) == _amount(made)
    return bool(sent == made) and isinstance(sent, bool) == isinstance(made, bool)


def _is_empty(value: Any) -> bool:
    """Return whether a value is one that the API server leaves out, or that says nothing."""
    return value is None or (isinstance(value, str | list | Mapping) and not value)


def _amount(quantity: Any) -> Decimal | str:
    """Return a quantity as a number: ``0.5`` is kept as ``500m`` (``resource.Quantity``, canonical form)."""
    text = str(quantity)
    found = _QUANTITY.fullmatch(text)
    if found is None:
        return text
    number, exponent, suffix = found.groups()
    return Decimal(number) * (Decimal(10) ** int(exponent or 0)) * _SUFFIXES[suffix or ""]


# ------------------------------------------------------------------------------------------------ what is known


def _is_known(change: Change, sent: Mapping[str, Any], made: Mapping[str, Any], done: Alike) -> bool:
    """Return whether Kubernetes itself does that."""
    asked = sent["spec"]
    spec = made["spec"]
    match change.pattern.split():
        case ["metadata", "annotations", *_]:
            return change.path[-1] in _RECORDS
        case ["spec", "priority"]:
            return bool(asked.get("priorityClassName")) or (spec.get("priority") or 0) <= max(done.priority, 0)
        case ["spec", "serviceAccount"] if asked.get("serviceAccountName"):
            return bool(change.made == asked["serviceAccountName"])
        case ["spec", "tolerations", "*"] if change.sent is None:
            return change.made.get("key") in _TOLERATED
        case ["spec", "imagePullSecrets", "*"]:
            return not asked.get("imagePullSecrets")
        case ["spec", "containers", "*", "imagePullPolicy"]:
            return change.made in ("Always", "IfNotPresent") if change.sent is None else change.made == "Always"
        case ["spec", "containers", "*", "resources", kind, resource]:
            return _is_known_resource(change, kind, resource, made, done)
        case _:
            pass
    wanted = _DEFAULTS.get(change.pattern, ())
    return _is_empty(change.sent) and any(value is _ANY or value == change.made for value in wanted)


def _is_known_resource(change: Change, kind: str, resource: str, made: Mapping[str, Any], done: Alike) -> bool:
    """Return whether the API server or ``LimitRanger`` filled in a resource, or a request changes no start."""
    if resource not in _COMMON_RESOURCES or change.made is None:
        return False
    if change.sent is None and _LIMIT_RANGER in section(made, "metadata", "annotations"):
        return True
    if kind == "limits":
        return False
    name = change.path[2]
    ours = [c for part in _CONTAINERS for c in entries(made, "spec", part) if c["name"] == name]
    limits = section(ours[0], "resources", "limits")
    return resource in done.requested or (change.sent is None and limits.get(resource) == change.made)


def _is_of_job(change: Change) -> bool:
    """Return whether the Job's controller or the scheduler does that (``JobController``, ``Binding``)."""
    if change.pattern.startswith("metadata labels"):
        return change.path[-1] in _JOB_LABELS
    return change.is_below(["spec nodeName", "metadata ownerReferences", "metadata finalizers"])


# ---------------------------------------------------------------------------------------------------- alike


def _is_of_container(change: Change) -> bool:
    return change.is_below(["spec containers *"])


def _leaves_the_fence(change: Change) -> bool:
    """Return whether something that was put in brings a disk, another machine, the node or the API server along."""
    if change.pattern == "spec volumes *":
        return not _is_harmless_volume(change.made)
    if change.pattern.startswith("spec volumes *"):
        return True
    if change.pattern == "spec containers *":
        context = section(change.made, "securityContext")
        capabilities = set(entries(context, "capabilities", "add"))
        host_ports = any(port.get("hostPort") for port in entries(change.made, "ports"))
        is_of_node = context.get("privileged") or context.get("procMount") or host_ports
        return bool(is_of_node or not capabilities <= _OF_OWN_NETWORK or entries(change.made, "volumeDevices"))
    return change.path[-1].startswith(_ORDER)


def _is_harmless_volume(volume: Mapping[str, Any] | None) -> bool:
    if volume is None:
        return False
    kinds = volume.keys() - {"name"}
    tokens = [source for source in entries(volume, "projected", "sources") if "serviceAccountToken" in source]
    # Without an audience it is one for the API server.
    is_for_others = all(source["serviceAccountToken"].get("audience") for source in tokens)
    return kinds <= {"emptyDir", *NOT_OF_NODE} and is_for_others


def _injected(container: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what of an injected container is the same in every pod."""
    shown = {name: value for name, value in (container or {}).items() if name not in _DIFFER_BY_POD}
    mounts = [mount for mount in entries(container, "volumeMounts") if mount["mountPath"] != API_DIRECTORY]
    return {**shown, "volumeMounts": mounts}


def _is_mirrored(change: Change, other: Change) -> bool:
    """Return whether an image was renamed as another one was: to the same registry, or to its digest."""
    images = (change.sent, change.made, other.sent, other.made)
    if change.path[-1] != "image" or not all(isinstance(image, str) for image in images):
        return False
    sent, made, their_sent, their_made = map(_image, images)
    if sent.tail != made.tail or their_sent.tail != their_made.tail:
        return False
    is_same_place = made.place == sent.place or made.host == their_made.host != their_sent.host
    is_same_digest = made.digest == sent.digest or bool(their_made.digest and not their_sent.digest and not sent.digest)
    return is_same_place and is_same_digest


@dataclass(frozen=True, slots=True)
class _Image:
    place: str
    tail: str
    """Last part of the name, with the tag."""
    digest: str

    @property
    def host(self) -> str:
        return self.place.partition("/")[0]


def _image(reference: str) -> _Image:
    name, _, digest = reference.partition("@")
    place, _, tail = name.rpartition("/")
    return _Image(place, tail, digest)


# ---------------------------------------------------------------------------------------------------- words


def _words(path: Path) -> str:
    """Return the name of a field, the innermost first; values may be secret, and are not shown."""
    match path:
        case ("spec", field, name, *rest) if field in _CONTAINERS:
            owner = f"container {name}"
        case ("spec", "volumes", name, *rest):
            owner = f"volume {name}"
        case ("metadata", "labels" | "annotations" as kind, *rest):
            return f"{kind.removesuffix('s')} {' '.join(rest)}".strip()
        case _:
            return _dotted(path[1:])
    return f"{_dotted(rest)} of {owner}" if rest else owner


def _dotted(path: Sequence[str]) -> str:
    """Return the names of fields with dots, and the names of entries behind a space."""
    text = ""
    for part in path:
        if not isinstance(part, _Entry):
            text += f".{part}" if text else part
        elif not part.isdecimal() and not part.startswith("{"):
            text += f" {part}"
    return text
