"""The ConfigMap or Secret with a properties file that a volume of a pod template mounts."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class FilesKind(StrEnum):
    """Kind of the object that a volume with a properties file mounts."""

    CONFIG_MAP = "ConfigMap"
    SECRET = "Secret"  # noqa: S105 - a kind


@dataclass(frozen=True, slots=True)
class MountedFiles:
    """The ConfigMap or Secret that the volume of the properties file mounts in the user's own template."""

    kind: FilesKind
    name: str
    data: Mapping[str, str] = field(default_factory=dict)
    """``data`` as the API server returns it: base64 in a Secret."""
    binary_data: Mapping[str, str] = field(default_factory=dict)
    """``binaryData`` of a ConfigMap."""

    def text(self, key: str) -> str:
        """Return the text of a key, ``""`` if the object lacks it or its value is not UTF-8."""
        value = self.data.get(key, "")
        if self.kind is FilesKind.CONFIG_MAP:
            return value
        try:
            return base64.b64decode(value).decode()
        except ValueError:
            return ""

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys."""
        return (*self.data, *self.binary_data)


def mounted_object(volumes: Iterable[Mapping[str, Any]], name: str) -> tuple[FilesKind, str] | None:
    """Return kind and name of the ConfigMap or Secret that a volume mounts.

    None if there is no such volume, or if it mounts something else.
    """
    volume = next((v for v in volumes if v.get("name") == name), {})
    if config_map := (volume.get("configMap") or {}).get("name"):
        return FilesKind.CONFIG_MAP, str(config_map)
    if secret := (volume.get("secret") or {}).get("secretName"):
        return FilesKind.SECRET, str(secret)
    return None
