"""Volumes of a limited size for the controllers, so that one can be filled: the embedded cluster's storage class has no limits."""

import contextlib
import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from e2e.harness.kube import Kube, run

STORAGE_CLASS = "kraftbridge-e2e-small"
SIZE_MIB = 160
"""Kafka maps 10 MiB of index per open segment, the operator asks for a few MiB of log: filled on purpose, never by itself."""


@dataclass(frozen=True)
class SmallVolumes:
    """PersistentVolumes on file systems in memory, one per claim of one quorum."""

    kube: Kube
    namespace: str
    directory: Path
    claims: tuple[str, ...]

    def make(self) -> None:
        """Mount the file systems and make their volumes."""
        self.remove()
        kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": STORAGE_CLASS}}
        self.kube.kubectl("apply", "-f", "-", stdin=json.dumps(kind | {"provisioner": "kubernetes.io/no-provisioner"}))
        for claim in self.claims:
            path = self._path(claim)
            path.mkdir(parents=True, exist_ok=True)
            run("mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m,mode=0777", "tmpfs", path)
            self.kube.kubectl("create", "-f", "-", stdin=json.dumps(self._volume(claim)))

    def remove(self) -> None:
        """Remove what an earlier run left, too."""
        for claim in self.claims:
            self.kube.kubectl("delete", "persistentvolume", self._name(claim), "--ignore-not-found", "--wait=false")
            if os.path.ismount(self._path(claim)):
                subprocess.run(["umount", "--lazy", str(self._path(claim))], check=False)
            with contextlib.suppress(OSError):
                self._path(claim).rmdir()
        self.kube.kubectl("delete", "storageclass", STORAGE_CLASS, "--ignore-not-found")

    def fill(self, claim: str) -> Path:
        """Fill the volume of a claim to its last byte; return the file that does it."""
        filler = self._path(claim) / "filler"
        for size in (1 << 20, 1 << 12, 1):
            with filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))
        return filler

    def _name(self, claim: str) -> str:
        return f"{self.namespace}-{claim}"

    def _path(self, claim: str) -> Path:
        return self.directory / self._name(claim)

    def _volume(self, claim: str) -> dict[str, object]:
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": self._name(claim)},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": STORAGE_CLASS,
                "claimRef": {"namespace": self.namespace, "name": claim},
                "hostPath": {"path": str(self._path(claim)), "type": "Directory"},
            },
        }
