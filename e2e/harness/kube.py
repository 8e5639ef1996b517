"""kubectl, as a user would use it, against the embedded cluster or the cluster of ``KUBE_CONTEXT``."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
CLUSTER = REPOSITORY / "e2e/cluster/cluster"
MANIFESTS = REPOSITORY / "e2e/kafka"
OWNER_LABEL = "kraftbridge.dev/e2e"
KAFKA_IMAGE = "localhost/kraftbridge-kafka:3.9.1"
CONTROLLERS_IMAGE = "localhost/kraftbridge-kafka:3.9.2"
DOMAIN = os.environ.get("KRAFTBRIDGE_CLUSTER_DOMAIN") or "cluster.local"
"""DNS domain of the cluster. The operator is not told: it finds the domain itself."""


class CommandFailedError(Exception):
    """A command ended with an exit code other than zero. The message contains its output."""


class NotOursError(Exception):
    """The harness was asked to change an object that it did not create."""


def run(
    *command: str | Path,
    environment: Mapping[str, str] | None = None,
    stdin: str | None = None,
    timeout_s: float | None = None,
) -> str:
    """Return what a command prints.

    Raises
    ------
    CommandFailedError
        If its exit code is not zero.
    """
    done = subprocess.run(
        [str(part) for part in command],
        input=stdin,
        capture_output=True,
        text=True,
        env={**os.environ, **environment} if environment else None,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode:
        shown = " ".join(str(part) for part in command)
        raise CommandFailedError(
            f"{shown}: exit code {done.returncode}: {(done.stderr or done.stdout).strip()[-2000:]}"
        )
    return done.stdout


@dataclass(frozen=True)
class Kube:
    """A Kubernetes cluster, as kubectl and helm reach it."""

    context: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def embedded(self) -> bool:
        """Whether this is the cluster that ``e2e/cluster`` brings up."""
        return self.context is None

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout_s: float | None = None) -> str:
        """Return what kubectl prints."""
        context = ["--context", self.context] if self.context else []
        return run("kubectl", *context, *arguments, environment=self.environment, stdin=stdin, timeout_s=timeout_s)

    def helm(self, *arguments: str) -> str:
        """Run helm and return its output."""
        context = ["--kube-context", self.context] if self.context else []
        return run("helm", *context, *arguments, environment=self.environment)

    def get(self, kind: str, name: str, namespace: str | None = None) -> dict[str, Any] | None:
        """Return an object, or None if there is none of that name."""
        found = self.kubectl("get", kind, name, *_in(namespace), "--ignore-not-found", "-o", "json")
        return json.loads(found) if found.strip() else None

    def list(self, kind: str, namespace: str | None = None, selector: str = "") -> list[dict[str, Any]]:
        """Return the objects of a kind."""
        selection = ["-l", selector] if selector else []
        return json.loads(self.kubectl("get", kind, *_in(namespace), *selection, "-o", "json"))["items"]

    def apply(self, manifest: str | Path, namespace: str, **placeholders: str) -> None:
        """Apply a manifest client-side, as most users do. The file may contain ``${NAME}`` placeholders."""
        text = manifest
        if isinstance(manifest, Path):
            # safe_substitute leaves the shell's own ${...} alone.
            text = Template(manifest.read_text()).safe_substitute(placeholders)
        self.kubectl("apply", "-n", namespace, "-f", "-", stdin=text)

    def rollout_complete(self, workload: str, namespace: str, timeout_s: int) -> None:
        """Wait until a workload is ready; say why it is not if that takes too long."""
        try:
            self.kubectl("rollout", "status", workload, "-n", namespace, f"--timeout={timeout_s}s")
        except CommandFailedError as error:
            raise CommandFailedError(f"{error}\n{self.troubles(namespace)}") from error

    def troubles(self, namespace: str) -> str:
        """Return what keeps the pods of a namespace from being ready, one line each."""
        lines = []
        for pod in self.list("pods", namespace):
            for container in pod["status"].get("containerStatuses", []):
                for kind in ("waiting", "terminated"):
                    if state := container["state"].get(kind):
                        message = f"{state.get('reason', kind)} {state.get('message', '')}".strip()
                        lines.append(f"pod {pod['metadata']['name']}, container {container['name']}: {message}")
            lines += [
                f"pod {pod['metadata']['name']}: {condition.get('message', 'not scheduled')}"
                for condition in pod["status"].get("conditions", [])
                if condition["type"] == "PodScheduled" and condition["status"] != "True"
            ]
        return "\n".join(lines)

    def claim_namespace(self, namespace: str, standard: str = "restricted") -> None:
        """Create an empty namespace. Delete an earlier one of the same name first.

        Raises
        ------
        NotOursError
            If a namespace of that name exists without this harness's label.
        """
        self.remove_namespace(namespace)
        self.create_namespace(namespace, standard)

    def create_namespace(self, namespace: str, standard: str = "restricted") -> None:
        """Make a namespace with this harness's label, in which a Pod Security Standard is enforced."""
        labels = {OWNER_LABEL: "true", "pod-security.kubernetes.io/enforce": standard}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}
        self.kubectl("create", "-f", "-", stdin=json.dumps(body))

    def is_ours(self, namespace: str) -> bool | None:
        """Return whether a namespace was made by this harness; None if there is none."""
        found = self.get("namespace", namespace)
        return None if found is None else found["metadata"].get("labels", {}).get(OWNER_LABEL) == "true"

    def remove_namespace(self, namespace: str, timeout_s: int = 300) -> None:
        """Delete a namespace of ours and wait until it is gone."""
        ours = self.is_ours(namespace)
        if ours is None:
            return
        if not ours:
            raise NotOursError(
                f"namespace {namespace} exists and does not have the label {OWNER_LABEL}=true: "
                "it is not this harness's to delete; use another name or delete it yourself"
            )
        self.kubectl("delete", "namespace", namespace, "--wait=false")
        # All at once, brokers find no controller to hand their partitions to and wait out their grace period.
        self.kubectl("delete", "pods", "--all", "-n", namespace, "--grace-period=1", "--wait=false")
        eventually(lambda: self.get("namespace", namespace) is None, f"namespace {namespace} is gone", timeout_s, 1)


def _in(namespace: str | None) -> list[str]:
    return ["-n", namespace] if namespace else []


def embedded_kube() -> Kube:
    """Return the embedded cluster, which must be up."""
    lines = run("bash", "-c", f'eval "$({CLUSTER} env)" && printf "%s\\n%s" "$KUBECONFIG" "$PATH"')
    kubeconfig, path = lines.split("\n")
    return Kube(environment={"KUBECONFIG": kubeconfig, "PATH": path})


def current_kube() -> Kube:
    """Return the cluster of ``KUBE_CONTEXT``, or the embedded one."""
    context = os.environ.get("KUBE_CONTEXT")
    return Kube(context=context) if context else embedded_kube()


def eventually(holds: Callable[[], Any], what: str, timeout_s: float, pause_s: float = 0.5) -> Any:
    """Wait until something is true and return it.

    Raises
    ------
    TimeoutError
        If it is not within the time.
    """
    deadline = time.monotonic() + timeout_s
    while not (value := holds()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout_s:.0f} s: {what}")
        time.sleep(pause_s)
    return value
