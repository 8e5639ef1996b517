"""Volumes of a limited size for the controllers, so that a test can fill one. The embedded cluster's storage class enforces no limit."""

import contextlib
import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from e2e.harness.kube import Kube, run

STORAGE_CLASS = "kraftbridge-e2e-small"
SIZE_MIB = 160
"""Large enough for normal operation: Kafka maps 10 MiB of index per open segment, and the log takes a few MiB."""


@dataclass(frozen=True)
class SmallVolumes:
    """PersistentVolumes on file systems in memory, one for each node of a quorum; which claim binds which is the cluster's choice."""

    kube: Kube
    namespace: str
    directory: Path
    volumes: tuple[str, ...]

    def make(self) -> None:
        """Mount the file systems and create PersistentVolumes for them."""
        self.remove()
        kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": STORAGE_CLASS}}
        self.kube.kubectl("apply", "-f", "-", stdin=json.dumps(kind | {"provisioner": "kubernetes.io/no-provisioner"}))
        for volume in self.volumes:
            path = self._path(volume)
            path.mkdir(parents=True, exist_ok=True)
            run("mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m,mode=0777", "tmpfs", path)
            self.kube.kubectl("create", "-f", "-", stdin=json.dumps(self._volume(volume)))

    def remove(self) -> None:
        """Remove what an earlier run left, too."""
        for volume in self.volumes:
            self.kube.kubectl("delete", "persistentvolume", self._name(volume), "--ignore-not-found", "--wait=false")
            if os.path.ismount(self._path(volume)):
                subprocess.run(["umount", "--lazy", str(self._path(volume))], check=False)
            with contextlib.suppress(OSError):
                self._path(volume).rmdir()
        self.kube.kubectl("delete", "storageclass", STORAGE_CLASS, "--ignore-not-found")

    def fill(self, claim: str) -> Path:
        """Fill the volume of a claim to its last byte; return the file that does it."""
        bound = self.kube.get("persistentvolumeclaim", claim, self.namespace)["spec"]["volumeName"]
        filler = self.directory / bound / "filler"
        for size in (1 << 20, 1 << 12, 1):
            with filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))
        return filler

    def _name(self, volume: str) -> str:
        return f"{self.namespace}-{volume}"

    def _path(self, volume: str) -> Path:
        return self.directory / self._name(volume)

    def _volume(self, volume: str) -> dict[str, object]:
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": self._name(volume)},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": STORAGE_CLASS,
                "hostPath": {"path": str(self._path(volume)), "type": "Directory"},
            },
        }
