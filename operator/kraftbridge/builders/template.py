"""What a container of a pod template gives to its process: variables and ``--override`` arguments. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kraftbridge.models.mounted_files import FilesKind, MountedFiles
from kraftbridge.models.objects import entries, section, variables_of

Read = Callable[[FilesKind, str], MountedFiles | None]
"""Returns a ConfigMap or Secret of the pod's namespace; None if it does not exist."""

EXPANSION: Final = re.compile(r"\$\$|\$\(([-._a-zA-Z][-._a-zA-Z0-9]*)\)")
"""``$(NAME)``, which the kubelet expands; ``$$`` escapes it (Kubernetes API reference, EnvVar v1 core)."""
_OVERRIDE: Final = "--override"
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
    unknown: set[str] = set()
    secret: set[str] = set()
    for kind, variable, value in _inherited(container, read):
        values[variable] = value
        secret.discard(variable)
        if kind is FilesKind.SECRET:
            secret.add(variable)
    variables = entries(container, "env")
    for entry in variables:
        name = entry["name"]
        secret.discard(name)
        unknown.discard(name)
        stated = _value_of(entry, values, namespace, read)
        if "secretKeyRef" in section(entry, "valueFrom"):
            secret.add(name)
        if stated is None:
            values.pop(name, None)
            unknown.add(name)
        else:
            values[name] = stated
    return ContainerEnvironment(
        values=values,
        unknown=frozenset(unknown),
        references=frozenset(n for n, entry in variables_of(container).items() if entry.get("valueFrom") is not None),
        secret=frozenset(secret),
        inherited=frozenset(values.keys() - {entry["name"] for entry in variables}),
    )


def _inherited(container: Mapping[str, Any], read: Read) -> Iterator[tuple[FilesKind, str, str]]:
    """Yield the variables of ``envFrom`` with the kind of object that gives them."""
    for source in entries(container, "envFrom"):
        for kind, reference in _references(source, "configMapRef", "secretRef"):
            files = read(kind, reference["name"])
            if files is None:
                continue
            for key in files.keys:
                yield kind, f"{source.get('prefix') or ''}{key}", files.text(key)


def _references(
    source: Mapping[str, Any], config_map: str, secret: str
) -> Iterator[tuple[FilesKind, Mapping[str, Any]]]:
    for field_name, kind in ((config_map, FilesKind.CONFIG_MAP), (secret, FilesKind.SECRET)):
        reference = section(source, field_name)
        if reference.get("name"):
            yield kind, reference


def _value_of(entry: Mapping[str, Any], values: Mapping[str, str], namespace: str, read: Read) -> str | None:
    """Return the value of an entry of ``env``; None where it is not known."""
    reference = entry.get("valueFrom")
    if reference is None:
        return _expanded(str(entry.get("value") or ""), values)
    for kind, source in _references(reference, "configMapKeyRef", "secretKeyRef"):
        key = str(source.get("key", ""))
        files = read(kind, source["name"])
        if files is None or key not in files.keys:
            return None
        return files.text(key)
    return namespace if section(reference, "fieldRef").get("fieldPath") in _KNOWN_FIELDS else None


def _expanded(value: str, values: Mapping[str, str]) -> str:
    """Return a value with the variables before it in place of ``$(NAME)``; a name that is not known stays as it is."""
    return EXPANSION.sub(lambda m: "$" if m[0] == "$$" else values.get(m[1], m[0]), value)


def overrides_of(container: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings that ``--override key=value`` in command and arguments gives to Kafka; the last one counts.

    A shell's command line is one argument. A value with ``$`` is returned as it is written there.

    Notes
    -----
    ``kafka.Kafka.getPropsFromArgs``: overrides win over the properties file.
    """
    words: list[str] = []
    for argument in (*entries(container, "command"), *entries(container, "args")):
        words += _words(str(argument))
    overrides = {}
    for word, following in zip(words, [*words[1:], ""], strict=False):
        option, joined, pair = word.partition("=")
        if option != _OVERRIDE:
            continue
        name, equals, value = (pair if joined else following).partition("=")
        if equals:
            overrides[name.strip()] = value.strip()
    return overrides


def _words(argument: str) -> list[str]:
    if _OVERRIDE not in argument or argument.partition("=")[0] == _OVERRIDE:
        return [argument]
    try:
        return shlex.split(argument)
    except ValueError:
        return argument.split()
