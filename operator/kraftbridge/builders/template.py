"""What a container of a pod template gives to its process: variables, wherever they come from, and ``--override`` arguments. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kraftbridge.models.mounted_files import FilesKind, MountedFiles

Read = Callable[[FilesKind, str], MountedFiles | None]
"""Returns a ConfigMap or Secret of the pod's namespace; None if it does not exist."""

_EXPANSION: Final = re.compile(r"\$\$|\$\(([-._a-zA-Z][-._a-zA-Z0-9]*)\)")
_KNOWN_FIELDS: Final = ("metadata.namespace",)
"""Fields with the same value in every pod of a StatefulSet."""


@dataclass(frozen=True, slots=True)
class ContainerEnvironment:
    """The environment of a container, as the kubelet computes it (``makeEnvironmentVariables``)."""

    values: Mapping[str, str] = field(default_factory=dict)
    """Variables with known values."""
    unknown: frozenset[str] = frozenset()
    """Variables whose value differs from pod to pod, or whose ConfigMap or Secret cannot be read."""
    references: frozenset[str] = frozenset()
    """Entries of ``env`` with ``valueFrom``: server-side apply cannot replace them by a value (API server: 422)."""
    secret: frozenset[str] = frozenset()
    """Variables from a Secret; no message shows their values."""
    inherited: frozenset[str] = frozenset()
    """Variables from ``envFrom`` that no entry of ``env`` replaces."""


def container_environment(container: Mapping[str, Any], namespace: str, read: Read) -> ContainerEnvironment:
    """Return the environment of a container of a pod template.

    Parameters
    ----------
    container
        The container, with ``env`` and ``envFrom``.
    namespace
        Namespace of the pods.
    read
        Reads a ConfigMap or Secret.

    Notes
    -----
    ``envFrom`` comes first, and later sources win. ``env`` replaces it, and ``$(NAME)`` refers to variables before it
    (Kubernetes API reference, Container v1 core).
    """
    values: dict[str, str] = {}
    unknown, secret = set[str](), set[str]()
    for source in container.get("envFrom") or []:
        for kind, name in _references(source, "configMapRef", "secretRef"):
            found = read(kind, name)
            for key in found.keys if found is not None else ():
                variable = f"{source.get('prefix') or ''}{key}"
                values[variable] = "" if found is None else found.text(key)
                (secret.add if kind is FilesKind.SECRET else secret.discard)(variable)
    entries = container.get("env") or []
    for entry in entries:
        name, reference = entry["name"], entry.get("valueFrom")
        secret.discard(name)
        unknown.discard(name)
        value = _expanded(str(entry.get("value") or ""), values) if reference is None else None
        if reference is not None:
            value = _referenced(reference, namespace, read)
            if "secretKeyRef" in reference:
                secret.add(name)
        if value is None:
            values.pop(name, None)
            unknown.add(name)
        else:
            values[name] = value
    own = {e["name"] for e in entries}
    return ContainerEnvironment(
        values=values,
        unknown=frozenset(unknown),
        references=frozenset(e["name"] for e in entries if e.get("valueFrom") is not None),
        secret=frozenset(secret),
        inherited=frozenset(values.keys() - own),
    )


def _references(source: Mapping[str, Any], config_map: str, secret: str) -> Iterator[tuple[FilesKind, str]]:
    for field_name, kind in ((config_map, FilesKind.CONFIG_MAP), (secret, FilesKind.SECRET)):
        if name := (source.get(field_name) or {}).get("name"):
            yield kind, str(name)


def _referenced(reference: Mapping[str, Any], namespace: str, read: Read) -> str | None:
    for kind, name in _references(reference, "configMapKeyRef", "secretKeyRef"):
        key = str((reference.get("configMapKeyRef") or reference.get("secretKeyRef") or {}).get("key", ""))
        found = read(kind, name)
        return found.text(key) if found is not None and key in found.keys else None
    if (reference.get("fieldRef") or {}).get("fieldPath") in _KNOWN_FIELDS:
        return namespace
    return None


def _expanded(value: str, values: Mapping[str, str]) -> str:
    """Return a value with the variables before it in place of ``$(NAME)``; a name that is not known stays as it is."""
    return _EXPANSION.sub(lambda m: "$" if m[0] == "$$" else values.get(m[1], m[0]), value)


def overrides_of(container: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings that ``--override key=value`` in command and arguments gives to Kafka; the last one counts.

    A shell's command line is one argument. A value with ``$`` is returned as it is written there.

    Notes
    -----
    ``kafka.Kafka.getPropsFromArgs``: overrides win over the properties file.
    """
    words: list[str] = []
    for argument in (*(container.get("command") or []), *(container.get("args") or [])):
        words += _words(str(argument))
    found = {}
    for word, following in zip(words, [*words[1:], ""], strict=False):
        pair = (
            following
            if word == "--override"
            else word.removeprefix("--override=")
            if word.startswith("--override=")
            else ""
        )
        name, equals, value = pair.partition("=")
        if equals:
            found[name.strip()] = value.strip()
    return found


def _words(argument: str) -> list[str]:
    if "--override" not in argument or argument == "--override" or argument.startswith("--override="):
        return [argument]
    try:
        return shlex.split(argument)
    except ValueError:
        return argument.split()
