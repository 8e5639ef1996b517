"""Creates a support archive: the resource, its objects, events, logs, reports, and no secrets."""

from __future__ import annotations

import io
import tarfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import ValidationError

from kraftbridge import __version__
from kraftbridge.constants import API_VERSION, KIND, LABEL_MIGRATION
from kraftbridge.exceptions import MigrationError, ObservationError
from kraftbridge.models.objects import entries, section, started_again
from kraftbridge.models.redaction import Redactor
from kraftbridge.models.report import REPORT_KEY
from kraftbridge.phases.recorded_step import ASKED_KEY, STEP_KEY, RecordedStep, read_step
from kraftbridge.plugin.redaction import (
    redacted_json,
    secrets_in,
    secrets_of_pod,
    secrets_of_spec,
    values_of,
    without_unknown_settings,
)
from kraftbridge.plugin.session import PluginError, ReadMigration, unpacked
from kraftbridge.storage.ports import KubernetesPort

LOG_LINES: Final = 5000
_STEP_BYTES: Final = 256 * 1024 * 1024
STEP_FILE: Final = "step.json"
"""Name, in the archive, of what the operator was told and decided (`kraftbridge.phases.recorded_step`)."""
_KINDS: Final = (
    ("v1", "ConfigMap"),
    ("v1", "Service"),
    ("v1", "PersistentVolumeClaim"),
    ("policy/v1", "PodDisruptionBudget"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("batch/v1", "Job"),
    ("sparkoperator.k8s.io/v1beta2", "SparkApplication"),
)
_OPERATOR_LABEL: Final = "app.kubernetes.io/name=kraftbridge"


@dataclass
class Bundle:
    """Files of an archive by name, and the objects that could not be read."""

    files: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    def write(self, path: Path, now: datetime) -> None:
        """Write the archive (gzip, mode 0600)."""
        with tarfile.open(path, "w:gz") as archive:
            for name, text in sorted(self.files.items()):
                data = text.encode()
                entry = tarfile.TarInfo(f"{path.name.removesuffix('.tar.gz')}/{name}")
                entry.size = len(data)
                entry.mtime = int(now.timestamp())
                entry.mode = 0o600
                archive.addfile(entry, io.BytesIO(data))
        path.chmod(0o600)


def collect(
    kubernetes: KubernetesPort,
    migration: ReadMigration,
    operator_namespace: str,
    now: datetime,
    missing: Sequence[str] = (),
) -> Bundle:
    """Return a migration's bundle. It lists the objects that could not be read, after what is known to be ``missing``.

    Raises
    ------
    PluginError
        A file still contains a known secret value. Nothing is written.
    """
    return _Collector(kubernetes, migration, operator_namespace, now, Bundle(missing=[*missing])).run()


def step_of(archive: Path) -> RecordedStep:
    """Return the recorded step of an archive.

    Raises
    ------
    PluginError
        It is no archive, it has no step, or its step is one of a release that observed otherwise.
    """
    try:
        with tarfile.open(archive) as files:
            for member in files:
                is_step = member.isreg() and Path(member.name).name == STEP_FILE
                held = files.extractfile(member) if is_step else None
                if held is not None:
                    return read_step(held.read(_STEP_BYTES).decode())
    except ValidationError as error:
        raise PluginError(
            f"{archive}: its step does not fit kraftbridge {__version__}, so replay it with the release that wrote it: "
            f"{error}"
        ) from error
    except (OSError, EOFError, tarfile.TarError, zlib.error, ValueError) as error:
        raise PluginError(f"{archive}: {error}") from error
    raise PluginError(f"{archive} has no {STEP_FILE}: the operator recorded no step for it (see its README.txt)")


class _Collector:
    def __init__(
        self,
        kubernetes: KubernetesPort,
        migration: ReadMigration,
        operator_namespace: str,
        now: datetime,
        bundle: Bundle,
    ) -> None:
        self._kubernetes = kubernetes
        self._migration = migration
        self._operator_namespace = operator_namespace
        self._now = now
        self._bundle = bundle
        self._texts: dict[str, str] = {}
        self._objects: dict[str, Mapping[str, Any]] = {}
        self._step = ""

    def run(self) -> Bundle:
        namespace = self._migration.namespace
        name = self._migration.name
        self._keep("migration.yaml", self._migration.resource)
        sets = list(filter(self._concerns, self._list("apps/v1", "StatefulSet", namespace)))
        for stateful_set in sets:
            self._keep(f"objects/StatefulSet-{stateful_set['metadata']['name']}.yaml", stateful_set)
        selector = f"{LABEL_MIGRATION}={name}"
        for api_version, kind in _KINDS:
            for obj in self._list(api_version, kind, namespace, selector):
                self._object(kind, obj)
        pods = self._pods(sets)
        for pod in pods:
            self._keep(f"objects/Pod-{pod['metadata']['namespace']}-{pod['metadata']['name']}.yaml", pod)
            self._logs(pod)
        self._events(pods, sets)
        redactor = Redactor(self._known(sets, pods))
        self._texts |= {path: _yaml(without_unknown_settings(obj, redactor)) for path, obj in self._objects.items()}
        self._bundle.files = {path: redactor.redact(text) for path, text in self._texts.items()}
        if self._step:
            self._bundle.files[STEP_FILE] = redacted_json(redactor, self._step)
        left = [path for path, text in self._bundle.files.items() if redactor.found_in(text)]
        if left:
            raise PluginError(
                f"a secret is still in {', '.join(left)} after redaction; nothing was written: please report this"
            )
        self._bundle.files["README.txt"] = self._readme()
        return self._bundle

    # ---------------------------------------------------------------- what is read

    def _list(self, api_version: str, kind: str, namespace: str, selector: str = "") -> tuple[dict[str, Any], ...]:
        try:
            if not self._kubernetes.serves(api_version, kind):
                return ()
            return self._kubernetes.list(api_version, kind, namespace, selector)
        except ObservationError as error:
            self._bundle.missing.append(f"{kind} objects in namespace {namespace}: {error}")
            return ()

    def _concerns(self, stateful_set: Mapping[str, Any]) -> bool:
        metadata = stateful_set["metadata"]
        brokers = {ref.name for ref in self._migration.spec.brokers.stateful_sets}
        return metadata["name"] in brokers or self._is_labelled(stateful_set)

    def _is_labelled(self, obj: Mapping[str, Any]) -> bool:
        return bool(section(obj, "metadata", "labels").get(LABEL_MIGRATION) == self._migration.name)

    def _pods(self, sets: list[dict[str, Any]]) -> list[dict[str, Any]]:
        owners = {stateful_set["metadata"]["uid"] for stateful_set in sets}

        def is_ours(pod: Mapping[str, Any]) -> bool:
            references = entries(pod, "metadata", "ownerReferences")
            return self._is_labelled(pod) or any(owner.get("uid") in owners for owner in references)

        pods = filter(is_ours, self._list("v1", "Pod", self._migration.namespace))
        return [*pods, *self._list("v1", "Pod", self._operator_namespace, _OPERATOR_LABEL)]

    def _object(self, kind: str, obj: Mapping[str, Any]) -> None:
        name = obj["metadata"]["name"]
        data = dict(section(obj, "data"))
        if kind == "ConfigMap" and REPORT_KEY in data:
            try:
                self._texts[f"reports/{name}.json"] = unpacked(data.pop(REPORT_KEY))
            except PluginError as error:
                self._bundle.missing.append(f"report in ConfigMap {name}: {error}")
            obj = {**obj, "data": data}
        binary = dict(section(obj, "binaryData"))
        if kind == "ConfigMap" and STEP_KEY in binary:
            try:
                self._step = unpacked(binary.pop(STEP_KEY))
            except PluginError as error:
                self._bundle.missing.append(f"step in ConfigMap {name}: {error}")
            obj = {**obj, "binaryData": binary}
        elif kind == "ConfigMap" and ASKED_KEY in data:
            self._bundle.missing.append(f"{STEP_FILE}: the step is too large for a ConfigMap")
        self._keep(f"objects/{kind}-{name}.yaml", obj)

    def _logs(self, pod: Mapping[str, Any]) -> None:
        namespace = pod["metadata"]["namespace"]
        name = pod["metadata"]["name"]
        restarted = started_again(pod)
        for container in (*entries(pod, "spec", "initContainers"), *pod["spec"]["containers"]):
            self._log(namespace, name, container["name"])
            if container["name"] in restarted:
                self._log(namespace, name, container["name"], previous=True)

    def _log(self, namespace: str, pod: str, container: str, *, previous: bool = False) -> None:
        name = f"{pod}-{container}-previous" if previous else f"{pod}-{container}"
        try:
            text = self._kubernetes.pod_logs(namespace, pod, container, LOG_LINES, previous=previous)
        except MigrationError as error:
            self._bundle.missing.append(f"log of {name}: {error}")
            return
        if text is not None:
            self._texts[f"logs/{name}.log"] = text

    def _events(self, pods: list[dict[str, Any]], sets: list[dict[str, Any]]) -> None:
        names = {o["metadata"]["name"] for o in (*pods, *sets)} | {self._migration.name}
        listed = self._list("v1", "Event", self._migration.namespace)
        events = sorted((event for event in listed if _involved(event) in names), key=_happened_at)
        self._texts["events.yaml"] = yaml.safe_dump_all(map(_tidy, events), sort_keys=False)

    def _keep(self, path: str, obj: Mapping[str, Any]) -> None:
        self._objects[path] = _tidy(obj)

    # ---------------------------------------------------------------- what must not be in it

    def _known(self, sets: list[dict[str, Any]], pods: list[dict[str, Any]]) -> set[str]:
        values: set[str] = set()
        names = secrets_of_spec(self._migration.spec)
        for stateful_set in sets:
            template = stateful_set["spec"]["template"]
            names |= secrets_of_pod(template)
            for container in (*entries(template, "spec", "initContainers"), *template["spec"]["containers"]):
                values |= secrets_in(yaml.safe_dump(container.get("env", []))) | _sensitive_variables(container)
        for pod in pods:
            if pod["metadata"]["namespace"] == self._migration.namespace:
                names |= secrets_of_pod(pod["spec"])
        ours = self._list("v1", "Secret", self._migration.namespace, f"{LABEL_MIGRATION}={self._migration.name}")
        values = values.union(*map(values_of, ours))
        for name in sorted(names):
            try:
                secret = self._kubernetes.get("v1", "Secret", self._migration.namespace, name)
            except ObservationError as error:
                self._bundle.missing.append(f"Secret {name}, whose values would have been looked for: {error}")
                continue
            values |= values_of(secret or {})
        return values - _HARMLESS

    def _readme(self) -> str:
        missing = "".join(f"  {words}\n" for words in self._bundle.missing or ["nothing"])
        return (
            f"Support archive of {KIND} {self._migration.namespace}/{self._migration.name} ({API_VERSION}), "
            f"{self._now:%Y-%m-%d %H:%M:%S} UTC, kubectl-kraftbridge {__version__}.\n"
            "Secrets are not in it: their values and what looks like one are replaced. "
            "Look through it before you send it.\n"
            f"What could not be read:\n{missing}"
        )


_HARMLESS: Final = frozenset(
    {"", "true", "false", "none", "null", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "required;"}
)


def _sensitive_variables(container: Mapping[str, Any]) -> set[str]:
    values: set[str] = set()
    for variable in container.get("env", []):
        if isinstance(variable.get("value"), str):
            values |= secrets_in(f"{variable['name']}={variable['value']}")
    return values


def _yaml(obj: Any) -> str:
    return yaml.safe_dump(obj, sort_keys=False, width=10_000)


def _involved(event: Mapping[str, Any]) -> str:
    return str((event.get("involvedObject") or event.get("regarding") or {}).get("name", ""))


def _happened_at(event: Mapping[str, Any]) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp"))


def _tidy(obj: Mapping[str, Any]) -> dict[str, Any]:
    metadata = dict(obj.get("metadata", {}))
    metadata.pop("managedFields", None)
    annotations = dict(metadata.get("annotations", {}))
    # A copy of the whole object as its user wrote it.
    annotations.pop("kubectl.kubernetes.io/last-applied-configuration", None)
    return {**obj, "metadata": {**metadata, "annotations": annotations}}
