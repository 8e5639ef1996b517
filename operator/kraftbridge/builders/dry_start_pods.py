"""Objects of a dry start: fenced copies of the brokers' pods, the NetworkPolicy that closes them, the probe pod. Pure.

A copy has the user's image, init containers, command and environment, and nothing that could do harm:
no other container of the user, no hook or probe, no host namespace, no privilege, no token, no disk and no name that
resolves. Init containers that ask the API server are answered by a stand-in with what was read before.
What it has on disk is what the live pod's volumes would hold.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import hmac
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Final

from kraftbridge.builders import names, pods
from kraftbridge.builders.broker_overlays import (
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
from kraftbridge.copies.admission import API_DIRECTORY, NOT_OF_NODE
from kraftbridge.models.dry_start import CopyKey, ListenerOfControllers
from kraftbridge.models.mounted_files import MountedFiles, mounted_object
from kraftbridge.models.objects import entries, section, variables_of
from kraftbridge.models.phase import BrokerMode
from kraftbridge.models.runs import RUNS, RunKind
from kraftbridge.models.spec import MigrationSpec, PodSettings
from kraftbridge.models.volumes import Keeping, keeping_of, volume_kinds

Object = dict[str, Any]

ROLE: Final = RUNS[RunKind.DRY_START].role
"""Value of the role label; no Service, budget or affinity of the user selects it."""
DIRECTORY: Final = "/kraftbridge-dry-start"
"""Volume with agent, salt and the agent's notes, in every container of a copy."""
LISTENER_FILE: Final = "controllers"
"""File with what the controllers' listener shows and asks for; empty where it is a plain one."""
VOLUMES: Final = "/kraftbridge-volumes"
"""Where the container that prepares a copy sees the volumes of the Kafka container."""
DEADLINE_SECONDS: Final = 120
"""``activeDeadlineSeconds`` of every pod: a copy that waits for somebody ends by itself,
also when the operator is gone. It counts from ``status.startTime``, when a kubelet takes the pod: not while its gate
holds it, nor while it finds no node (``PodSpec``, ``PodStatus``)."""
SCHEDULING_GATE: Final = "kraftbridge.dev/inspected"
"""Keeps the scheduler from placing a pod until the operator has compared the admitted pod with the requested one."""
JAVA_TOOL_OPTIONS: Final = "JAVA_TOOL_OPTIONS"
_VOLUME: Final = "kraftbridge-dry-start"
API: Final = f"{_VOLUME}-api"
"""Our container that stands in for the API server, and its volume."""
API_FILE: Final = "api.json"
"""Key of the objects that it answers with, in the run's Secret."""
_API_HOST: Final = "127.0.0.1"
_API_PORT: Final = 16443
PREPARE: Final = "kraftbridge-prepare"
"""Our init container in each copy."""
PROBE: Final = "probe"
"""The container that tries the fence."""
_SMALL_FILES: Final[Mapping[str, Any]] = {"sizeLimit": "64Mi"}
"""Volume with agent, notes or answers of ours."""
_IN_PLACE_OF_VOLUMES: Final[Mapping[str, Any]] = {"sizeLimit": "2Gi"}
"""What a copy may write where the broker has a claim, a directory of its node, or an empty directory.
An image copies plugins and renders files there; records never."""
_AGENT: Final = f"-javaagent:{DIRECTORY}/agent.jar={DIRECTORY}"
_JVM: Final = "-Xms16m -Xmx96m -XX:+IgnoreUnrecognizedVMOptions -XX:TieredStopAtLevel=1"
"""A small heap, and the quick compiler alone: a copy lives for a second, and several start at once."""
_USERS_OPTIONS: Final = "KRAFTBRIDGE_USERS_JAVA_TOOL_OPTIONS"
RESTRICTED: Final[Mapping[str, Any]] = {
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""What the ``restricted`` Pod Security Standard asks for;
the operator's image has a numeric user, and no user is fixed here."""
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
_PLAIN_FIELDS: Final = (
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.podIP",
    "status.hostIP",
)
"""Field references whose value is the field's text."""
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
    """Id of the run, by which its pods are found."""
    operator_image: str
    closed: tuple[str, ...]
    """Addresses (``host:port``) that must not be reachable; none where the user accepts an unfenced dry start."""
    pods: PodSettings = field(default_factory=PodSettings)
    """``spec.pods``, `pods.completed`."""

    def metadata(self, name: str, **more: Any) -> Object:
        """Return the metadata of an object of the run.

        The migration owns it, so that nothing outlives both run and migration.
        """
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
    return f"{key.stateful_set[:180]}-dry-{short_hash([run])[:6]}-{key.mode.lower()}{channel}-{key.ordinal}"


def probe_name(run: str) -> str:
    """Return the name of the pod that tries the fence of a run."""
    return f"{run}-probe"


def overlaid(
    spec: MigrationSpec, facts: BrokerFacts, migration: str, stateful_set: Mapping[str, Any], mode: BrokerMode
) -> tuple[Object, dict[str, str]]:
    """Return a StatefulSet as the mode's overlay makes it, and the files of its properties volume.

    There are no files in ``Env`` style.
    Server-side apply merges ``env``, ``containers`` and ``volumes`` by name; so does this.
    In ZooKeeper mode only the image's own writing to ZooKeeper is switched off:
    a copy reaches none, and the image would wait for it before it starts Kafka.
    """
    changed = copy.deepcopy(dict(stateful_set))
    if mode is BrokerMode.ZOOKEEPER:
        _set_variables(changed, spec.brokers.container, dict.fromkeys(facts.zookeeper_writers, "false"))
        return changed, {}
    wanted = overlay(spec, facts, changed["metadata"]["name"], mode)["spec"]["template"]
    pod = changed["spec"]["template"]["spec"]
    (patch,) = wanted["spec"]["containers"]
    _set_variables(changed, patch["name"], {entry["name"]: entry["value"] for entry in patch["env"]})
    overlays = (patch, *entries(wanted, "spec", "initContainers"))
    images = {each["name"]: each["image"] for each in overlays if "image" in each}
    for container in (*entries(pod, "containers"), *entries(pod, "initContainers")):
        if container["name"] in images:
            container["image"] = images[container["name"]]
    kafka = _containers_of(changed).get(patch["name"])
    if kafka is not None and "volumeMounts" in patch:
        mounts = [*entries(kafka, "volumeMounts"), *patch["volumeMounts"]]
        kafka["volumeMounts"] = list({mount["mountPath"]: mount for mount in mounts}.values())
    pod["volumes"] = with_volumes(entries(pod, "volumes"), entries(wanted, "spec", "volumes"))
    source = spec.brokers.properties
    if source is None or properties_object(spec, facts, migration, mode) is None:
        return changed, {}
    return changed, {source.key: properties_file(spec, facts, mode)}


def _containers_of(stateful_set: Mapping[str, Any]) -> dict[str, Object]:
    """Return the containers of a StatefulSet's template by name."""
    return {c["name"]: c for c in entries(stateful_set, "spec", "template", "spec", "containers")}


def _set_variables(stateful_set: Object, name: str, wanted: Mapping[str, str]) -> None:
    container = _containers_of(stateful_set).get(name)
    if container is None or not wanted:
        return
    by_name = dict(variables_of(container))
    by_name |= {variable: {"name": variable, "value": value} for variable, value in wanted.items()}
    container["env"] = list(by_name.values())


def run_secret(
    facts: DryStartFacts,
    salt: str,
    copies: Iterable[CopyFacts],
    listener: ListenerOfControllers | None = None,
    answers: Sequence[Object] = (),
) -> Object:
    """Return the Secret with the run's salt and with the files that copies get in place of what they cannot have.

    With the controllers' listener, copies also get what it shows and asks for; passwords as hashes with the run's salt.

    Init containers that ask the API server are given ``answers``, Services and pods.

    It is applied anew for each run, and without copies at its end: the operator has no right to delete Secrets.
    """
    data = {
        "salt": salt,
        LISTENER_FILE: "" if listener is None else _listener_file(listener, salt),
        API_FILE: json.dumps([_answer(obj) for obj in answers]),
    }
    for copied in copies:
        prefix = copy_name(copied.key, facts.run)
        data |= {f"{prefix}.{key}": text for key, text in {**copied.files, **_downward_files(copied)}.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": facts.metadata(run_name(facts.migration)),
        "data": {key: base64.b64encode(text.encode()).decode() for key, text in data.items()},
    }


def _answer(obj: Mapping[str, Any]) -> Object:
    """Return an object as init containers are shown it: of a pod, no environment."""
    metadata = _kept(section(obj, "metadata"), ("name", "namespace", "uid", "labels", "annotations"))
    shown = {"kind": obj["kind"], "metadata": metadata, **_kept(obj, ("status",))}
    spec = section(obj, "spec")
    return {**shown, "spec": _kept(spec, ("nodeName", "hostname", "subdomain")) if obj["kind"] == "Pod" else dict(spec)}


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
    """Return the policy that lets nothing in or out of the run's pods.

    Other policies may open them again, which the probe finds.
    """
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
        "name": PROBE,
        "image": facts.operator_image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-m", "kraftbridge.pods.fence", *(f"--closed={address}" for address in closed)],
        "resources": facts.pods.helper_resources or small_resources(),
        "securityContext": dict(RESTRICTED),
    }
    pod = pod_of_run(facts, probe_name(facts.run), {"containers": [container]})
    return pods.with_settings(pod, facts.pods)


def copy_pod(facts: DryStartFacts, copied: CopyFacts) -> Object:
    """Return a fenced copy of a broker's pod.

    Raises
    ------
    KeyError
        The template has no Kafka container.
    """
    template = copied.stateful_set["spec"]["template"]["spec"]
    kafka = _container(_containers_of(copied.stateful_set)[copied.container], copied)
    starters = starters_of(copied.stateful_set)
    stand_in = [{"name": API, "emptyDir": dict(_SMALL_FILES)}] if asks_api_server(copied.live, starters) else []
    volumes = [_volume(v, facts, copied) for v in _declared_volumes(copied)]
    spec: Object = {
        **_kept(template, _KEPT_OF_POD),
        "hostname": copied.key.pod,
        "initContainers": [_prepare(facts, copied, volumes), *_starters(facts, copied, starters)],
        "containers": [kafka],
        "volumes": [{"name": _VOLUME, "emptyDir": dict(_SMALL_FILES)}, *stand_in, *_run_files(facts), *volumes],
    }
    if service := copied.stateful_set["spec"].get("serviceName"):
        spec["subdomain"] = service
    if pull := copied.live.get("spec", {}).get("imagePullSecrets"):
        spec["imagePullSecrets"] = copy.deepcopy(pull)  # those of the service account, too
    if security := template.get("securityContext"):
        # Kernel parameters are the node's in part.
        spec["securityContext"] = _without(security, ("sysctls",))
    return pods.copied_with_settings(pod_of_run(facts, copy_name(copied.key, facts.run), spec), facts.pods)


def _kept(source: Mapping[str, Any], keys: Collection[str]) -> Object:
    """Return a copy of these fields."""
    return {key: copy.deepcopy(source[key]) for key in keys if key in source}


def _without(source: Mapping[str, Any], keys: Collection[str]) -> Object:
    """Return a copy of all other fields."""
    return {key: copy.deepcopy(value) for key, value in source.items() if key not in keys}


def pod_of_run(facts: DryStartFacts, name: str, spec: Object) -> Object:
    """Return a pod of the run behind its gate: it ends by itself, has no token, and resolves no name."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": facts.metadata(
            name,
            labels={**facts.labels, **_kept(NO_INJECTION, _NO_INJECTION_LABELS)},
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


def _container(container: Mapping[str, Any], copied: CopyFacts) -> Object:
    kept = _kept(container, _KEPT_OF_CONTAINER)
    kept["env"] = _environment(entries(container, "env"), copied, kafka=container["name"] == copied.container)
    mounts = copy.deepcopy(entries(container, "volumeMounts"))
    kept["volumeMounts"] = [{"name": _VOLUME, "mountPath": DIRECTORY}, *mounts]
    resources = section(container, "resources")
    kept["resources"] = _no_more_than(copied, resources, requests=not _reads_requests(copied))
    security = _without(section(container, "securityContext"), ("privileged", "procMount"))
    if "capabilities" in security:
        security["capabilities"] = _kept(security["capabilities"], ("drop",))
    kept["securityContext"] = security
    return kept


def _environment(present: Sequence[Mapping[str, Any]], copied: CopyFacts, *, kafka: bool) -> list[Object]:
    """Return a container's environment with the live pod's values of field references, and with the agent.

    ``JAVA_TOOL_OPTIONS`` and ``_JAVA_OPTIONS`` both name the agent:
    an entrypoint that clears one is held by the other (``Arguments::parse``).
    """
    variables: list[Object] = []
    for entry in present:
        reference = section(entry, "valueFrom")
        if "fieldRef" in reference:
            variables.append({"name": entry["name"], "value": field_value(copied, reference["fieldRef"]["fieldPath"])})
        elif entry["name"] == JAVA_TOOL_OPTIONS:
            variables.append({**copy.deepcopy(dict(entry)), "name": _USERS_OPTIONS})
        elif entry["name"] != "_JAVA_OPTIONS":
            variables.append(copy.deepcopy(dict(entry)))
    users = any(v["name"] == _USERS_OPTIONS for v in variables)
    if not users and copied.inherits_options and kafka:
        variables.append({"name": _USERS_OPTIONS, "value": INHERITED_OPTIONS})
        users = True
    return [
        *variables,
        {"name": JAVA_TOOL_OPTIONS, "value": f"{_AGENT} $({_USERS_OPTIONS})" if users else _AGENT},
        {"name": "_JAVA_OPTIONS", "value": f"{_JVM} {_AGENT}"},
    ]


def field_value(copied: CopyFacts, path: str) -> str:
    """Return what a field reference gives in the live pod (downward API), ``""`` where it has none."""
    place, bracket, key = path.partition("['")
    part, _, name = place.partition(".")
    values = section(copied.live, part)
    if place in ("metadata.labels", "metadata.annotations"):
        texts = section(values, name)
        if bracket:
            return str(texts.get(key.removesuffix("']"), ""))
        return "\n".join(f'{k}="{_escaped(str(v))}"' for k, v in sorted(texts.items()))
    if path in ("status.podIPs", "status.hostIPs"):
        return ",".join(str(entry["ip"]) for entry in entries(values, name))
    if path == "metadata.name":
        return str(values.get("name", copied.key.pod))
    return str(values.get(name, "")) if path in _PLAIN_FIELDS else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def small_resources() -> Object:
    """Return the resources of a container of ours that does next to nothing."""
    return _small({})


def _small(resources: Mapping[str, Any], *, requests: bool = True) -> Object:
    """Return resources with small requests; limits stay, since scripts compute from them and quotas count them."""
    limits = {k: v for k, v in section(resources, "limits").items() if k in ("cpu", "memory")}
    if not requests:
        return {"requests": dict(section(resources, "requests")), "limits": limits}
    return {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": limits or {"memory": "512Mi"}}


def _no_more_than(copied: CopyFacts, resources: Mapping[str, Any], *, requests: bool = True) -> Object:
    """Return small resources that get no processor before the live pod.

    A request outweighs every pod without one (``cpu.weight``).
    """
    if section(copied.live, "status").get("qosClass") == "BestEffort":
        return {}
    small = _small(resources, requests=requests)
    if requests and _claims_no_processor(copied.live):
        small["requests"].pop("cpu", None)
    return small


def _claims_no_processor(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod has containers, and none of them requests or limits the processor."""
    resources = [section(container, "resources") for container in entries(pod, "spec", "containers")]
    claimed = {key for part in resources for key in (*section(part, "requests"), *section(part, "limits"))}
    return bool(resources) and "cpu" not in claimed


def asks_api_server(live: Mapping[str, Any], starters: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether an init container of a template has, or would have, a token for the API server."""
    return any(_has_token(live, starter["name"]) for starter in starters)


def _has_token(live: Mapping[str, Any], name: str) -> bool:
    """Return whether an init container of a running pod has a token, as its template or admission mounts it.

    One that only a newer template has gets what the pod's other containers have: automount is the pod's.
    """
    containers = {c["name"]: c for kind in ("initContainers", "containers") for c in entries(live, "spec", kind)}
    looked_at = [containers[name]] if name in containers else list(containers.values())
    return any(mount["mountPath"] == API_DIRECTORY for c in looked_at for mount in entries(c, "volumeMounts"))


def _starters(facts: DryStartFacts, copied: CopyFacts, starters: Sequence[Object]) -> Iterator[Object]:
    """Yield the init containers of the user; those that had a token ask our stand-in for the API server."""
    if asks_api_server(copied.live, starters):
        yield _api_server(facts, copied)
    for starter in starters:
        container = _container(starter, copied)
        yield _asking(container) if _has_token(copied.live, starter["name"]) else container


def _asking(container: Object) -> Object:
    """Return an init container that finds the stand-in where it finds the API server."""
    port = str(_API_PORT)
    place = {
        "KUBERNETES_SERVICE_HOST": _API_HOST,
        "KUBERNETES_SERVICE_PORT": port,
        "KUBERNETES_SERVICE_PORT_HTTPS": port,
    }
    others = [entry for entry in container["env"] if entry["name"] not in place]
    mounts = [mount for mount in container["volumeMounts"] if mount["mountPath"] != API_DIRECTORY]
    return {
        **container,
        "env": [*({"name": name, "value": value} for name, value in place.items()), *others],
        "volumeMounts": [*mounts, {"name": API, "mountPath": API_DIRECTORY, "readOnly": True}],
    }


def _api_server(facts: DryStartFacts, copied: CopyFacts) -> Object:
    """Return the sidecar that stands in for the API server; the next init container waits for its files."""
    return {
        "name": API,
        "image": facts.operator_image,
        "imagePullPolicy": "IfNotPresent",
        "restartPolicy": "Always",
        "command": [
            "python3",
            "-m",
            "kraftbridge.pods.api_answers",
            f"--address={_API_HOST}:{_API_PORT}",
            f"--objects=/kraftbridge-run/{API_FILE}",
            f"--namespace={facts.namespace}",
            f"--identity={API_DIRECTORY}",
        ],
        "startupProbe": {
            "exec": {"command": ["test", "-e", f"{API_DIRECTORY}/token"]},
            "periodSeconds": 1,
            "failureThreshold": 60,
        },
        "resources": facts.pods.helper_resources or _no_more_than(copied, {}),
        "securityContext": {**RESTRICTED, "runAsNonRoot": not _runs_as_root(copied)},
        "volumeMounts": [
            {"name": API, "mountPath": API_DIRECTORY},
            {"name": f"{_VOLUME}-run", "mountPath": "/kraftbridge-run", "readOnly": True},
        ],
    }


def _runs_as_root(copied: CopyFacts) -> bool:
    return bool(section(copied.stateful_set["spec"]["template"]["spec"], "securityContext").get("runAsUser") == 0)


def starters_of(stateful_set: Mapping[str, Any]) -> list[Object]:
    """Return the init containers that end; a native sidecar (restartPolicy Always) is no step of the start."""
    declared = entries(stateful_set, "spec", "template", "spec", "initContainers")
    return [container for container in declared if container.get("restartPolicy") != "Always"]


def _reads_requests(copied: CopyFacts) -> bool:
    return "'resource': 'requests." in str(copied.stateful_set["spec"]["template"]["spec"])


def _prepare(facts: DryStartFacts, copied: CopyFacts, volumes: Sequence[Object]) -> Object:
    """Return the first init container: it tests the fence, provides agent and salt, and fills the data directories."""
    text = f"version=0\nbroker.id={copied.broker_id}\ncluster.id={copied.cluster_id}\n"
    # A disk that the restart would find blank is blank here, too.
    kinds = volume_kinds(copied.stateful_set)
    empty = {v["name"] for v in volumes if "emptyDir" in v}
    kept = {name for name in empty if keeping_of(kinds.get(name, "")) is not Keeping.GOES}
    places = [_place(copied, directory) for directory in dict.fromkeys(copied.log_dirs)]
    to_fill = [place for place in places if place is not None and place[0] in kept]
    return {
        "name": PREPARE,
        "image": facts.operator_image,
        "imagePullPolicy": "IfNotPresent",
        "command": [
            "python3",
            "-m",
            "kraftbridge.pods.fence",
            *(f"--closed={address}" for address in facts.closed),
            f"--agent={DIRECTORY}",
            "--salt=/kraftbridge-run/salt",
            f"--listener=/kraftbridge-run/{LISTENER_FILE}",
            *(f"--meta-properties={VOLUMES}/{volume}/{path}" for volume, path in to_fill),
        ],
        "env": [{"name": "META_PROPERTIES", "value": text}],
        "resources": facts.pods.helper_resources or _no_more_than(copied, {}),
        "securityContext": {**RESTRICTED, "runAsNonRoot": not _runs_as_root(copied)},
        "volumeMounts": [
            {"name": _VOLUME, "mountPath": DIRECTORY},
            {"name": f"{_VOLUME}-run", "mountPath": "/kraftbridge-run", "readOnly": True},
            *({"name": volume, "mountPath": f"{VOLUMES}/{volume}"} for volume in dict(to_fill)),
        ],
    }


def _place(copied: CopyFacts, directory: str) -> tuple[str, str] | None:
    """Return the volume that a data directory is on, and its path there; None when it is on no volume."""
    path = PurePosixPath(directory)
    mounts = entries(_containers_of(copied.stateful_set)[copied.container], "volumeMounts")
    mounts = [m for m in mounts if path.is_relative_to(m["mountPath"]) and "subPathExpr" not in m]
    if not mounts:
        return None
    mount = max(mounts, key=lambda m: len(PurePosixPath(m["mountPath"]).parts))
    return mount["name"], str(PurePosixPath(mount.get("subPath", "")) / path.relative_to(mount["mountPath"]))


# ----------------------------------------------------------------------------------------------------- volumes


def _declared_volumes(copied: CopyFacts) -> list[Object]:
    claims = entries(copied.stateful_set, "spec", "volumeClaimTemplates")
    claimed = sorted({claim["metadata"]["name"] for claim in claims})
    declared = entries(copied.stateful_set, "spec", "template", "spec", "volumes")
    return [*({"name": name} for name in claimed), *(v for v in declared if v["name"] not in claimed)]


def _volume(volume: Mapping[str, Any], facts: DryStartFacts, copied: CopyFacts) -> Object:
    """Return a volume of the copy: the same for what Kubernetes renders, else an empty directory."""
    name = volume["name"]
    kind = next((k for k in NOT_OF_NODE if volume.get(k) is not None), None)
    if kind is None:
        return {"name": name, "emptyDir": dict(_IN_PLACE_OF_VOLUMES)}
    if copied.files and _carries_our_files(volume, copied):
        return _properties_volume(volume, facts, copied)
    if kind == "downwardAPI":
        return {"name": name, "secret": _ours(facts, copied, _downward_items(name, volume["downwardAPI"]))}
    if kind == "projected":
        sources = list(_copied_sources(volume, facts, copied))
        return {"name": name, "projected": {**volume["projected"], "sources": sources}}
    return {"name": name, kind: copy.deepcopy(volume[kind])}


def _copied_sources(volume: Mapping[str, Any], facts: DryStartFacts, copied: CopyFacts) -> Iterator[Object]:
    """Yield the sources of a projected volume without tokens of service accounts."""
    for index, source in enumerate(entries(volume, "projected", "sources")):
        if "downwardAPI" in source:
            ours = _ours(facts, copied, _downward_items(f"{volume['name']}-{index}", source["downwardAPI"]))
            yield {"secret": {"name": ours["secretName"], "items": ours["items"]}}
        elif "configMap" in source or "secret" in source:
            yield copy.deepcopy(source)


def _carries_our_files(volume: Mapping[str, Any], copied: CopyFacts) -> bool:
    mounted = mounted_object([volume], volume["name"])
    return mounted is not None and mounted[1].endswith(f"-kraftbridge-{copied.key.mode.lower()}")


def _properties_volume(volume: Mapping[str, Any], facts: DryStartFacts, copied: CopyFacts) -> Object:
    """Return the volume with the mode's file from the run's Secret, and the other keys from the user's own object."""
    reference = volume.get("configMap") or volume.get("secret") or {}
    others = copied.mounted.keys if copied.mounted is not None else ()
    items = reference.get("items") or [{"key": k, "path": k} for k in dict.fromkeys((*copied.files, *others))]
    prefix = copy_name(copied.key, facts.run)
    ours = [{**i, "key": f"{prefix}.{i['key']}"} for i in items if i["key"] in copied.files]
    kept = [dict(i) for i in items if i["key"] not in copied.files]
    sources: list[Object] = [{"secret": {"name": run_name(facts.migration), "items": ours}}]
    if kept and copied.mounted is not None:
        kind = f"{copied.mounted.kind[:1].lower()}{copied.mounted.kind[1:]}"
        sources.append({kind: {"name": copied.mounted.name, "items": kept}})
    return {"name": volume["name"], "projected": {"sources": sources, **_kept(reference, ("defaultMode",))}}


def _ours(facts: DryStartFacts, copied: CopyFacts, items: Mapping[str, str]) -> Object:
    prefix = copy_name(copied.key, facts.run)
    return {
        "secretName": run_name(facts.migration),
        "items": [{"key": f"{prefix}.{key}", "path": path} for key, path in sorted(items.items())],
    }


def _run_files(facts: DryStartFacts) -> list[Object]:
    files = ("salt", LISTENER_FILE, API_FILE)
    secret = {"secretName": run_name(facts.migration), "items": [{"key": name, "path": name} for name in files]}
    return [{"name": f"{_VOLUME}-run", "secret": secret}]


def _downward_items(name: str, source: Mapping[str, Any]) -> dict[str, str]:
    """Return the path of each field reference of a volume, by its key in our Secret.

    Resource references are left out.
    """
    return {key: item["path"] for key, item in _field_references(name, source)}


def _field_references(name: str, source: Mapping[str, Any]) -> Iterator[tuple[str, Object]]:
    """Yield the field references of a ``downwardAPI`` source with their keys in our Secret."""
    for item in entries(source, "items"):
        if "fieldRef" in item:
            yield f"{name}-{short_hash([item['path']])}", item


def _downward_sources(volume: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each ``downwardAPI`` source of a volume, with the beginning of its keys in our Secret."""
    yield volume["name"], section(volume, "downwardAPI")
    for index, source in enumerate(entries(volume, "projected", "sources")):
        yield f"{volume['name']}-{index}", section(source, "downwardAPI")


def _downward_files(copied: CopyFacts) -> dict[str, str]:
    files = {}
    for volume in _declared_volumes(copied):
        for name, source in _downward_sources(volume):
            for key, item in _field_references(name, source):
                files[key] = field_value(copied, item["fieldRef"]["fieldPath"])
    return files
