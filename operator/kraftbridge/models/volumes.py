"""Which volumes of a pod keep their data when the pod is deleted.

Source: ``core/v1`` ``VolumeSource`` (https://kubernetes.io/docs/concepts/storage/volumes/).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any, Final

from kraftbridge.models.objects import entries


class Keeping(StrEnum):
    """What becomes of a volume's data with its pod."""

    STAYS = "stays"
    """The next pod of the same name finds it, wherever it runs."""
    ON_NODE = "on the node"
    """The next pod finds it on the same node only."""
    GOES = "goes"
    """It goes with the pod, or nobody knows."""


_CLAIM: Final = "persistentVolumeClaim"
_NETWORK: Final = frozenset(
    {"awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "fc", "flexVolume", "gcePersistentDisk",
     "glusterfs", "iscsi", "nfs", "portworxVolume", "quobyte", "rbd", "scaleIO", "storageos", "vsphereVolume"}
)  # fmt: skip
_WORDS: Final[Mapping[str, str]] = {
    "emptyDir": "in an emptyDir, which goes with the pod",
    "ephemeral": "in an ephemeral volume, whose claim goes with the pod",
    "csi": "in an inline CSI volume, which goes with the pod",
    "hostPath": "in a directory of its node, which the pod does not find on another node",
}


@dataclass(frozen=True, slots=True)
class Mount:
    """Where a container mounts a volume."""

    path: str
    volume: str
    kind: str
    """``VolumeSource`` of the volume, ``""`` if the template does not declare it."""

    @property
    def keeping(self) -> Keeping:
        """What becomes of its data with the pod."""
        return keeping_of(self.kind)

    @property
    def words(self) -> str:
        """Where its data is, as the end of a sentence."""
        known = _WORDS.get(self.kind, f"in a volume of kind {self.kind or 'unknown'}, which is not known to keep data")
        return f"{known} (volume {self.volume})"


def keeping_of(kind: str) -> Keeping:
    """Return what becomes of the data in a volume of a kind."""
    if kind == _CLAIM or kind in _NETWORK:
        return Keeping.STAYS
    return Keeping.ON_NODE if kind == "hostPath" else Keeping.GOES


def volume_kinds(stateful_set: Mapping[str, Any]) -> dict[str, str]:
    """Return the kind of each volume of a StatefulSet's pods. A claim template wins over a volume of its name."""
    declared = entries(stateful_set, "spec", "template", "spec", "volumes")
    kinds = {volume["name"]: _kind(volume) for volume in declared}
    claims = entries(stateful_set, "spec", "volumeClaimTemplates")
    return kinds | {claim["metadata"]["name"]: _CLAIM for claim in claims}


def _kind(volume: Mapping[str, Any]) -> str:
    return next((key for key, source in volume.items() if key != "name" and source is not None), "")


def mounts_of(stateful_set: Mapping[str, Any], container: str) -> tuple[Mount, ...]:
    """Return the mounts of a container of a StatefulSet's pods."""
    kinds = volume_kinds(stateful_set)
    containers = entries(stateful_set, "spec", "template", "spec", "containers")
    mounts = [mount for c in containers if c.get("name") == container for mount in entries(c, "volumeMounts")]
    return tuple(Mount(mount["mountPath"], mount["name"], kinds.get(mount["name"], "")) for mount in mounts)


def where_not_kept(mounts: Iterable[Mount], directory: str, mount_point: str = "") -> str:
    """Return where a directory is that does not stay for the next pod, as the end of a sentence; ``""`` if it stays.

    Parameters
    ----------
    mounts
        Of the container.
    directory
        Absolute path.
    mount_point
        What a copy of the pod shows to be mounted there; ``""`` if nobody has looked. A volume that the image declares
        (``VOLUME``) hides what the pod mounts above it, and only a copy shows it.
    """
    path = PurePosixPath(mount_point or directory)
    above = [mount for mount in mounts if path.is_relative_to(PurePosixPath(mount.path))]
    if mount_point:
        above = [mount for mount in above if PurePosixPath(mount.path) == path]
    if above:
        mount = max(above, key=lambda mount: len(PurePosixPath(mount.path).parts))
        return "" if mount.keeping is Keeping.STAYS else mount.words
    if mount_point and path != PurePosixPath("/"):
        return f"in a volume that no field of the pod mounts at {mount_point}: the image declares it (VOLUME)"
    return "on no volume: in the container's own file system"
