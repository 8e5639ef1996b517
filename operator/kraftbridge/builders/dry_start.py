"""Objects of a dry start: fenced copies of the brokers' pods, the NetworkPolicy that closes them, the probe pod. Pure.

A copy has the user's image, init containers, command and environment, and nothing that could do harm: no other container, no hook or probe, no host
namespace, no privilege, no token, no disk and no name that resolves. What it has on disk is what the live pod's volumes would hold.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Final

from kraftbridge.builders import names, pods
from kraftbridge.builders.brokers import (
    INHERITED_OPTIONS,
    BrokerFacts,
    overlay,
    properties_file,
    properties_object,
    render_properties,
    short_hash,
    with_volumes,
)
from kraftbridge.constants import API_VERSION, KIND, LABEL_ROLE, LABEL_RUN
from kraftbridge.models.dry_start import CopyKey, ListenerOfControllers
from kraftbridge.models.mounted_files import MountedFiles
from kraftbridge.models.phase import BrokerMode
from kraftbridge.models.spec import MigrationSpec, PodSettings

Object = dict[str, Any]

ROLE: Final = "dry-start"
"""Value of the role label; no Service, budget or affinity of the user selects it."""
DIRECTORY: Final = "/kraftbridge-dry-start"
"""Volume with agent, salt and the agent's notes, in every container of a copy."""
LISTENER_FILE: Final = "controllers"
"""File with what the controllers' listener shows and asks for; empty where it is a plain one."""
VOLUMES: Final = "/kraftbridge-volumes"
"""Where the container that prepares a copy sees the volumes of the Kafka container."""
DEADLINE_SECONDS: Final = 120
"""``activeDeadlineSeconds`` of every pod: a copy that waits for somebody ends by itself, also when the operator is gone."""
SCHEDULING_GATE: Final = "kraftbridge.dev/inspected"
"""Keeps the scheduler from placing a pod until the operator has compared the admitted pod with the requested one."""
JAVA_TOOL_OPTIONS: Final = "JAVA_TOOL_OPTIONS"
_VOLUME: Final = "kraftbridge-dry-start"
PREPARE: Final = "kraftbridge-prepare"
"""Our init container in each copy."""
_AGENT: Final = f"-javaagent:{DIRECTORY}/agent.jar={DIRECTORY}"
_JVM: Final = "-Xms16m -Xmx96m -XX:+IgnoreUnrecognizedVMOptions -XX:TieredStopAtLevel=1"
"""A small heap, and the quick compiler alone: a copy lives for a second, and all of them start at once."""
_USERS_OPTIONS: Final = "KRAFTBRIDGE_USERS_JAVA_TOOL_OPTIONS"
_RESTRICTED: Final[Mapping[str, Any]] = {
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""What the ``restricted`` Pod Security Standard asks for; the operator's image has a numeric user, and no user is fixed here."""
_KEPT_VOLUMES: Final = ("configMap", "secret", "projected", "downwardAPI")
_KEPT_OF_CONTAINER: Final = ("name", "image", "imagePullPolicy", "command", "args", "workingDir", "env", "envFrom")
_KEPT_OF_POD: Final = ("nodeSelector", "tolerations", "imagePullSecrets", "runtimeClassName", "enableServiceLinks")
NO_INJECTION: Final[Mapping[str, str]] = {
    "sidecar.istio.io/inject": "false",
    "linkerd.io/inject": "disabled",
    "consul.hashicorp.com/connect-inject": "false",
    "vault.hashicorp.com/agent-inject": "false",
    "vault.security.banzaicloud.io/mutate": "skip",
    "kuma.io/sidecar-injection": "disabled",
    "openservicemesh.io/sidecar-injection": "disabled",
    "appmesh.k8s.aws/sidecarInjectorWebhook": "disabled",
    "sidecar.opentelemetry.io/inject": "false",
    "instrumentation.opentelemetry.io/inject-java": "false",
    "dapr.io/enabled": "false",
    "admission.datadoghq.com/enabled": "false",
}
"""Annotations, and labels where an injector reads labels, that switch meshes' and secret stores' injectors off."""
_NO_INJECTION_LABELS: Final = (
    "sidecar.istio.io/inject",
    "kuma.io/sidecar-injection",
    "admission.datadoghq.com/enabled",
)


@dataclass(frozen=True, slots=True)
class DryStartFacts:
    """What all pods of one dry start have in common."""

    namespace: str
    migration: str
    uid: str
    run: str
    """Names the run's pods."""
    operator_image: str
    closed: tuple[str, ...]
    """Addresses (``host:port``) that must not be reachable; none where the user accepts an unfenced dry start."""
    pods: PodSettings = field(default_factory=PodSettings)
    """``spec.pods``, `pods.completed`."""

    def metadata(self, name: str, **more: Any) -> Object:
        """Return the metadata of an object of the run: the migration owns it, so that nothing outlives both run and migration."""
        owner = {"apiVersion": API_VERSION, "kind": KIND, "name": self.migration, "uid": self.uid}
        return {"name": name, "namespace": self.namespace, "labels": self.labels, "ownerReferences": [owner], **more}

    @property
    def labels(self) -> dict[str, str]:
        """Labels of the pods, by which the NetworkPolicy selects them."""
        return names.labels(self.migration, **{LABEL_ROLE: ROLE, LABEL_RUN: self.run})


@dataclass(frozen=True, slots=True)
class CopyFacts:
    """What one copy is made from."""

    key: CopyKey
    stateful_set: Mapping[str, Any]
    """The user's StatefulSet, with the mode's overlay (`overlaid`)."""
    live: Mapping[str, Any]
    """The running pod of the broker."""
    container: str
    broker_id: int
    cluster_id: str
    log_dirs: tuple[str, ...]
    """Of the running broker."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Properties file of the mode by its key, in ``Properties`` style."""
    inherits_options: bool = False
    """Whether ``envFrom`` gives ``JAVA_TOOL_OPTIONS``; the copy's agent must not replace it."""
    mounted: MountedFiles | None = None
    """What the volume of that file mounts in the user's template; the copy gets its other keys from there."""


def run_name(migration: str) -> str:
    """Return the name of a migration's Secret and NetworkPolicy for dry starts."""
    return f"{migration}-dry-start"


def copy_name(key: CopyKey, run: str) -> str:
    """Return a copy's name; it ends in the ordinal, from which shells compute broker ids."""
    channel = f"-{short_hash([key.channel])[:6]}" if key.channel else ""
    return f"{key.stateful_set[:180]}-dry-{run}-{key.mode.lower()}{channel}-{key.ordinal}"


def overlaid(
    spec: MigrationSpec, facts: BrokerFacts, migration: str, stateful_set: Mapping[str, Any], mode: BrokerMode
) -> tuple[Object, dict[str, str]]:
    """Return a StatefulSet as the mode's overlay makes it, and the files of the properties volume (none in ``Env`` style).

    Server-side apply merges ``env``, ``containers`` and ``volumes`` by name; so does this. In ZooKeeper mode only the image's own writing to
    ZooKeeper is switched off: a copy reaches none, and the image would wait for it before it starts Kafka.
    """
    changed = copy.deepcopy(dict(stateful_set))
    if mode is BrokerMode.ZOOKEEPER:
        _set_variables(changed, spec.brokers.container, dict.fromkeys(facts.zookeeper_writers, "false"))
        return changed, {}
    wanted = overlay(spec, facts, changed["metadata"]["name"], mode)["spec"]["template"]
    pod = changed["spec"]["template"]["spec"]
    (patch,) = wanted["spec"]["containers"]
    _set_variables(changed, patch["name"], {entry["name"]: entry["value"] for entry in patch["env"]})
    for container in pod["containers"]:
        if container["name"] == patch["name"] and "volumeMounts" in patch:
            by_path = {m["mountPath"]: m for m in (*(container.get("volumeMounts") or []), *patch["volumeMounts"])}
            container["volumeMounts"] = list(by_path.values())
    pod["volumes"] = with_volumes(pod.get("volumes") or [], wanted["spec"].get("volumes", []))
    source = spec.brokers.properties
    if source is None or properties_object(spec, facts, migration, mode) is None:
        return changed, {}
    return changed, {source.key: properties_file(spec, facts, mode)}


def _set_variables(stateful_set: Object, container: str, wanted: Mapping[str, str]) -> None:
    for each in stateful_set["spec"]["template"]["spec"]["containers"]:
        if each["name"] == container and wanted:
            by_name = {entry["name"]: entry for entry in each.get("env") or []}
            each["env"] = [*(by_name | {k: {"name": k, "value": v} for k, v in wanted.items()}).values()]


def run_secret(
    facts: DryStartFacts, salt: str, copies: Iterable[CopyFacts], listener: ListenerOfControllers | None = None
) -> Object:
    """Return the Secret with the run's salt and with the files that copies get in place of what they cannot have.

    With the controllers' listener, copies also get what it shows and asks for; passwords as hashes with the run's salt.

    It is applied anew for each run, and without copies at its end: the operator has no right to delete Secrets.
    """
    data = {"salt": salt, LISTENER_FILE: "" if listener is None else _listener_file(listener, salt)}
    for each in copies:
        prefix = copy_name(each.key, facts.run)
        data |= {f"{prefix}.{key}": text for key, text in each.files.items()}
        data |= {f"{prefix}.{key}": text for key, text in _downward_files(each).items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": facts.metadata(run_name(facts.migration)),
        "data": {key: base64.b64encode(text.encode()).decode() for key, text in data.items()},
    }


def _listener_file(listener: ListenerOfControllers, salt: str) -> str:
    """Return what the agent compares with the broker's own credentials, as a properties file."""
    hashes = {
        f"user.{user}": hmac.new(salt.encode(), password.encode(), hashlib.sha256).hexdigest()
        for user, password in listener.users.items()
    }
    parts = {
        "protocol": listener.protocol,
        "certificate": listener.certificate,
        "authorities": listener.authorities,
        "hashed": "true" if hashes else "",
    }
    return render_properties({name: value for name, value in (parts | hashes).items() if value})


def network_policy(facts: DryStartFacts) -> Object:
    """Return the policy that lets nothing in or out of the run's pods; other policies may open them again, which the probe finds."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": facts.metadata(run_name(facts.migration)),
        "spec": {
            "podSelector": {"matchLabels": names.labels(facts.migration, **{LABEL_ROLE: ROLE})},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [],
            "egress": [],
        },
    }


def probe_pod(facts: DryStartFacts, closed: tuple[str, ...]) -> Object:
    """Return the pod that must fail to reach every address; its exit code and termination message tell."""
    container = {
        "name": "probe",
        "image": facts.operator_image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-m", "kraftbridge.fence", *(f"--closed={address}" for address in closed)],
        "resources": facts.pods.helper_resources or _small({}),
        "securityContext": dict(_RESTRICTED),
    }
    pod = _pod(facts, f"{run_name(facts.migration)}-{facts.run}-probe", {"containers": [container]})
    return pods.with_settings(pod, facts.pods)


def copy_pod(facts: DryStartFacts, each: CopyFacts) -> Object:
    """Return a fenced copy of a broker's pod.

    Raises
    ------
    KeyError
        The template has no Kafka container.
    """
    template = each.stateful_set["spec"]["template"]["spec"]
    containers = {c["name"]: c for c in template.get("containers", [])}
    kafka = _container(containers[each.container], each)
    # A native sidecar (restartPolicy Always) is no step of the start, and never ends.
    starters = [_container(c, each) for c in template.get("initContainers") or [] if c.get("restartPolicy") != "Always"]
    volumes = [_volume(v, facts, each) for v in _declared_volumes(each)]
    spec: Object = {
        **{k: copy.deepcopy(template[k]) for k in _KEPT_OF_POD if k in template},
        "hostname": each.key.pod,
        "initContainers": [_prepare(facts, each, volumes), *starters],
        "containers": [kafka],
        "volumes": [{"name": _VOLUME, "emptyDir": {}}, *_run_files(facts), *volumes],
    }
    if service := each.stateful_set["spec"].get("serviceName"):
        spec["subdomain"] = service
    if pull := each.live.get("spec", {}).get("imagePullSecrets"):
        spec["imagePullSecrets"] = copy.deepcopy(pull)  # those of the service account, too
    if security := template.get("securityContext"):
        # Kernel parameters are the node's in part.
        spec["securityContext"] = {k: copy.deepcopy(v) for k, v in security.items() if k != "sysctls"}
    return pods.copied_with_settings(_pod(facts, copy_name(each.key, facts.run), spec), facts.pods)


def _pod(facts: DryStartFacts, name: str, spec: Object) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": facts.metadata(
            name,
            labels={**facts.labels, **{k: NO_INJECTION[k] for k in _NO_INJECTION_LABELS}},
            annotations=dict(NO_INJECTION),
        ),
        "spec": {
            **spec,
            "schedulingGates": [{"name": SCHEDULING_GATE}],
            "restartPolicy": "Never",
            "activeDeadlineSeconds": DEADLINE_SECONDS,
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            # Nobody listens there: every look-up is refused at once.
            "dnsPolicy": "None",
            "dnsConfig": {
                "nameservers": ["127.0.0.1"],
                "options": [{"name": "timeout", "value": "1"}, {"name": "attempts", "value": "1"}],
            },
        },
    }


# -------------------------------------------------------------------------------------------------- containers


def _container(container: Mapping[str, Any], each: CopyFacts) -> Object:
    kept = {k: copy.deepcopy(container[k]) for k in _KEPT_OF_CONTAINER if k in container}
    kept["env"] = _environment(container.get("env") or [], each, kafka=container["name"] == each.container)
    kept["volumeMounts"] = [
        {"name": _VOLUME, "mountPath": DIRECTORY},
        *(copy.deepcopy(m) for m in container.get("volumeMounts") or []),
    ]
    kept["resources"] = _no_more_than(each, container.get("resources") or {}, requests=not _reads_requests(each))
    security = {
        k: copy.deepcopy(v)
        for k, v in (container.get("securityContext") or {}).items()
        if k not in ("privileged", "procMount")
    }
    if "capabilities" in security:
        security["capabilities"] = {k: v for k, v in security["capabilities"].items() if k == "drop"}
    kept["securityContext"] = security
    return kept


def _environment(present: Sequence[Mapping[str, Any]], each: CopyFacts, *, kafka: bool) -> list[Object]:
    """Return a container's environment with the live pod's values of field references, and with the agent.

    ``JAVA_TOOL_OPTIONS`` and ``_JAVA_OPTIONS`` both name the agent: an entrypoint that clears one is held by the other (``Arguments::parse``).
    """
    variables: list[Object] = []
    for entry in present:
        reference = entry.get("valueFrom") or {}
        if "fieldRef" in reference:
            variables.append({"name": entry["name"], "value": field_value(each, reference["fieldRef"]["fieldPath"])})
        elif entry["name"] == JAVA_TOOL_OPTIONS:
            variables.append({**copy.deepcopy(dict(entry)), "name": _USERS_OPTIONS})
        elif entry["name"] != "_JAVA_OPTIONS":
            variables.append(copy.deepcopy(dict(entry)))
    users = any(v["name"] == _USERS_OPTIONS for v in variables)
    if not users and each.inherits_options and kafka:
        variables.append({"name": _USERS_OPTIONS, "value": INHERITED_OPTIONS})
        users = True
    return [
        *variables,
        {"name": JAVA_TOOL_OPTIONS, "value": f"{_AGENT} $({_USERS_OPTIONS})" if users else _AGENT},
        {"name": "_JAVA_OPTIONS", "value": f"{_JVM} {_AGENT}"},
    ]


def field_value(each: CopyFacts, path: str) -> str:
    """Return what a field reference gives in the live pod (downward API), ``""`` where it has none."""
    metadata, spec, status = (each.live.get(part) or {} for part in ("metadata", "spec", "status"))
    match path:
        case "metadata.name":
            return str(metadata.get("name", each.key.pod))
        case "metadata.namespace" | "metadata.uid":
            return str(metadata.get(path.rpartition(".")[2], ""))
        case "metadata.labels" | "metadata.annotations":
            entries = metadata.get(path.rpartition(".")[2]) or {}
            return "\n".join(f'{k}="{_escaped(str(v))}"' for k, v in sorted(entries.items()))
        case "spec.nodeName" | "spec.serviceAccountName":
            return str(spec.get(path.rpartition(".")[2], ""))
        case "status.podIP" | "status.hostIP":
            return str(status.get(path.rpartition(".")[2], ""))
        case "status.podIPs" | "status.hostIPs":
            return ",".join(str(entry["ip"]) for entry in status.get(path.rpartition(".")[2]) or [])
        case _:
            pass
    for part in ("labels", "annotations"):
        if path.startswith(f"metadata.{part}['"):
            return str((metadata.get(part) or {}).get(path[len(f"metadata.{part}['") : -2], ""))
    return ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _small(resources: Mapping[str, Any], *, requests: bool = True) -> Object:
    """Return resources with small requests; limits stay, since scripts compute from them and quotas count them."""
    limits = {k: v for k, v in (resources.get("limits") or {}).items() if k in ("cpu", "memory")}
    if not requests:
        return {"requests": dict(resources.get("requests") or {}), "limits": limits}
    return {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": limits or {"memory": "512Mi"}}


def _no_more_than(each: CopyFacts, resources: Mapping[str, Any], *, requests: bool = True) -> Object:
    """Return small resources that get no processor before the live pod: a request outweighs every pod without one (``cpu.weight``)."""
    if (each.live.get("status") or {}).get("qosClass") == "BestEffort":
        return {}
    small = _small(resources, requests=requests)
    claims = [c.get("resources") or {} for c in (each.live.get("spec") or {}).get("containers") or []]
    if requests and claims and not any("cpu" in (c.get(k) or {}) for c in claims for k in ("requests", "limits")):
        small["requests"].pop("cpu", None)
    return small


def _reads_requests(each: CopyFacts) -> bool:
    return "'resource': 'requests." in str(each.stateful_set["spec"]["template"]["spec"])


def _prepare(facts: DryStartFacts, each: CopyFacts, volumes: Sequence[Object]) -> Object:
    """Return the first init container: it tests the fence, provides agent and salt, and fills the data directories."""
    root = (each.stateful_set["spec"]["template"]["spec"].get("securityContext") or {}).get("runAsUser") == 0
    text = f"version=0\nbroker.id={each.broker_id}\ncluster.id={each.cluster_id}\n"
    empty = {v["name"] for v in volumes if "emptyDir" in v}
    placed = {d: p for d in each.log_dirs if (p := _place(each, d)) is not None and p[0] in empty}
    return {
        "name": PREPARE,
        "image": facts.operator_image,
        "imagePullPolicy": "IfNotPresent",
        "command": [
            "python3",
            "-m",
            "kraftbridge.fence",
            *(f"--closed={address}" for address in facts.closed),
            f"--agent={DIRECTORY}",
            "--salt=/kraftbridge-run/salt",
            f"--listener=/kraftbridge-run/{LISTENER_FILE}",
            *(f"--meta-properties={VOLUMES}/{volume}/{path}" for volume, path in placed.values()),
        ],
        "env": [{"name": "META_PROPERTIES", "value": text}],
        "resources": facts.pods.helper_resources or _no_more_than(each, {}),
        "securityContext": {**_RESTRICTED, "runAsNonRoot": not root},
        "volumeMounts": [
            {"name": _VOLUME, "mountPath": DIRECTORY},
            {"name": f"{_VOLUME}-run", "mountPath": "/kraftbridge-run", "readOnly": True},
            *(
                {"name": volume, "mountPath": f"{VOLUMES}/{volume}"}
                for volume in dict.fromkeys(v for v, _ in placed.values())
            ),
        ],
    }


def _place(each: CopyFacts, directory: str) -> tuple[str, str] | None:
    """Return the volume that a data directory is on, and its path there; None when it is on no volume."""
    containers = each.stateful_set["spec"]["template"]["spec"]["containers"]
    mounts = next(c for c in containers if c["name"] == each.container).get("volumeMounts") or []
    path = PurePosixPath(directory)
    found = [m for m in mounts if path.is_relative_to(m["mountPath"]) and "subPathExpr" not in m]
    if not found:
        return None
    mount = max(found, key=lambda m: len(PurePosixPath(m["mountPath"]).parts))
    return mount["name"], str(PurePosixPath(mount.get("subPath", "")) / path.relative_to(mount["mountPath"]))


# ----------------------------------------------------------------------------------------------------- volumes


def _declared_volumes(each: CopyFacts) -> list[Object]:
    claims = each.stateful_set["spec"].get("volumeClaimTemplates") or []
    claimed = {c["metadata"]["name"] for c in claims}
    declared = each.stateful_set["spec"]["template"]["spec"].get("volumes") or []
    return [*({"name": name} for name in sorted(claimed)), *(v for v in declared if v["name"] not in claimed)]


def _volume(volume: Mapping[str, Any], facts: DryStartFacts, each: CopyFacts) -> Object:
    """Return a volume of the copy: the same for what Kubernetes renders, else an empty directory."""
    name = volume["name"]
    kind = next((k for k in _KEPT_VOLUMES if volume.get(k) is not None), None)
    if kind is not None and each.files and _carries_our_files(volume, each):
        return _properties_volume(volume, facts, each)
    if kind == "downwardAPI":
        return {"name": name, "secret": _ours(facts, each, _downward_items(name, volume["downwardAPI"]))}
    if kind == "projected":
        sources = []
        for index, source in enumerate(volume["projected"].get("sources") or []):
            if "downwardAPI" in source:
                items = _downward_items(f"{name}-{index}", source["downwardAPI"])
                ours = _ours(facts, each, items)
                sources.append({"secret": {"name": ours["secretName"], "items": ours["items"]}})
            elif "configMap" in source or "secret" in source:
                sources.append(copy.deepcopy(source))
        return {"name": name, "projected": {**volume["projected"], "sources": sources}}
    if kind is None:
        return {"name": name, "emptyDir": {}}
    return {"name": name, kind: copy.deepcopy(volume[kind])}


def _carries_our_files(volume: Mapping[str, Any], each: CopyFacts) -> bool:
    name = (volume.get("configMap") or {}).get("name") or (volume.get("secret") or {}).get("secretName") or ""
    return str(name).endswith(f"-kraftbridge-{each.key.mode.lower()}")


def _properties_volume(volume: Mapping[str, Any], facts: DryStartFacts, each: CopyFacts) -> Object:
    """Return the volume with the mode's file from the run's Secret, and the other keys from the user's own object."""
    reference = volume.get("configMap") or volume.get("secret") or {}
    others = each.mounted.keys if each.mounted is not None else ()
    items = reference.get("items") or [{"key": k, "path": k} for k in dict.fromkeys((*each.files, *others))]
    prefix = copy_name(each.key, facts.run)
    ours = [{**i, "key": f"{prefix}.{i['key']}"} for i in items if i["key"] in each.files]
    kept = [dict(i) for i in items if i["key"] not in each.files]
    sources: list[Object] = [{"secret": {"name": run_name(facts.migration), "items": ours}}]
    if kept and each.mounted is not None:
        kind = f"{each.mounted.kind[:1].lower()}{each.mounted.kind[1:]}"
        sources.append({kind: {"name": each.mounted.name, "items": kept}})
    mode = {k: reference[k] for k in ("defaultMode",) if k in reference}
    return {"name": volume["name"], "projected": {"sources": sources, **mode}}


def _ours(facts: DryStartFacts, each: CopyFacts, items: Mapping[str, str]) -> Object:
    prefix = copy_name(each.key, facts.run)
    return {
        "secretName": run_name(facts.migration),
        "items": [{"key": f"{prefix}.{key}", "path": path} for key, path in sorted(items.items())],
    }


def _run_files(facts: DryStartFacts) -> list[Object]:
    files = ("salt", LISTENER_FILE)
    secret = {"secretName": run_name(facts.migration), "items": [{"key": name, "path": name} for name in files]}
    return [{"name": f"{_VOLUME}-run", "secret": secret}]


def _downward_items(name: str, source: Mapping[str, Any]) -> dict[str, str]:
    """Return the path of each field reference of a volume by its key in our Secret; resource references are left out."""
    return {f"{name}-{short_hash([i['path']])}": i["path"] for i in source.get("items") or [] if "fieldRef" in i}


def _downward_files(each: CopyFacts) -> dict[str, str]:
    found = {}
    for volume in _declared_volumes(each):
        sources = [(volume["name"], volume.get("downwardAPI"))]
        sources += [
            (f"{volume['name']}-{i}", s.get("downwardAPI"))
            for i, s in enumerate((volume.get("projected") or {}).get("sources") or [])
        ]
        for name, source in sources:
            for item in (source or {}).get("items") or []:
                if "fieldRef" in item:
                    found[f"{name}-{short_hash([item['path']])}"] = field_value(each, item["fieldRef"]["fieldPath"])
    return found


# --------------------------------------------------------------------------------------------------- admission


def additions(asked: Mapping[str, Any], made: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what admission put into a pod that could do harm or change its start; an API server's own defaults are none of these.

    Parameters
    ----------
    asked
        The pod as it was sent.
    made
        The pod as the API server keeps it.
    """
    wanted, spec = asked["spec"], made["spec"]
    found = []
    for part in ("containers", "initContainers"):
        before = {c["name"]: c for c in wanted.get(part) or []}
        for container in spec.get(part) or []:
            mine = before.pop(container["name"], None)
            what = f"container {container['name']}"
            if mine is None:
                found.append(what)
                continue
            found += [
                f"{key} of {what}"
                for key in ("image", "command", "args", "env", "envFrom", "lifecycle", "volumeMounts")
                if not _same(mine.get(key), container.get(key))
            ]
            if (container.get("securityContext") or {}).get("privileged"):
                found.append(f"privileges of {what}")
        found += [f"the loss of container {name}" for name in before]
    volumes = {v["name"] for v in wanted.get("volumes") or []}
    found += [f"volume {v['name']}" for v in spec.get("volumes") or [] if v["name"] not in volumes]
    found += [key for key in ("hostNetwork", "hostPID", "hostIPC", "hostAliases") if spec.get(key)]
    if spec.get("dnsPolicy") != "None" or spec.get("dnsConfig", {}).get("nameservers") != ["127.0.0.1"]:
        found.append("name resolution")
    if spec.get("automountServiceAccountToken") is not False:
        found.append("a service account token")
    labels = asked["metadata"]["labels"]
    if not labels.items() <= (made["metadata"].get("labels") or {}).items():
        found.append("labels")
    return tuple(found)


def _same(mine: Any, theirs: Any) -> bool:
    if not mine and not theirs:
        return True
    if isinstance(mine, list) and isinstance(theirs, list) and len(mine) == len(theirs):
        return all(_within(one, other) for one, other in zip(mine, theirs, strict=True))
    return bool(mine == theirs)


def _within(mine: Any, theirs: Any) -> bool:
    """Whether an entry is as asked, apart from fields that were left out and the API server fills in (``fieldRef.apiVersion``)."""
    if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
        return all(_within(value, theirs.get(key)) for key, value in mine.items() if value not in (None, "", False))
    return bool(mine == theirs)
