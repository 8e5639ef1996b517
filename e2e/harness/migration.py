"""One KafkaMigration, as its user sees it: applied, followed, and given the next target."""

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from e2e.harness.foreign import ForeignCluster
from e2e.harness.kube import CONTROLLERS_IMAGE, Kube
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

GROUP, VERSION, PLURAL = "kraftbridge.dev", "v1alpha1", "kafkamigrations"
VERIFIER_IMAGE = "localhost/kraftbridge-verifier:dev"
POLL_S = 0.5
REQUEST_TIMEOUT_S = 20
NEEDS_HELP = {"BlockingFindings", "InvalidSpec", "Refused", "DeadlineExceeded"}

# What a user has to say yes to before this cluster may be migrated: its controllers talk in plain text, as its brokers do.
ACCEPTED = (("ControllerListenerPlaintext", "controllers"), ("SuperUserAnonymous", "controllers"))


CLIENTS_CACHE_SECONDS = 3
"""``strategy.addressCacheSeconds``: the load's clients keep an address for less than one second."""


def add_hold(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--hold``."""
    parser.add_argument(
        "--hold",
        type=int,
        default=CLIENTS_CACHE_SECONDS,
        metavar="SECONDS",
        help="strategy.addressCacheSeconds: how long clients cache addresses",
    )


def manifest(
    cluster: ForeignCluster,
    name: str = "demo",
    *,
    target: str = "KRaftBrokers",
    runner: str = "SparkApplication",
    address_cache_seconds: int = CLIENTS_CACHE_SECONDS,
    accepted: tuple[tuple[str, str], ...] = ACCEPTED,
    storage_class: str | None = None,
    rehearsal: bool = False,
    verifier_image: str = VERIFIER_IMAGE,
    pods: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the one resource that a user writes; what is None stays the operator's default.

    Parameters
    ----------
    rehearsal
        On where the test is about the rehearsal or the whole migration: it takes half a minute of each migration.
    verifier_image
        Empty for the one that the chart names.
    pods
        ``spec.pods``.
    """
    brokers: dict[str, Any] = {
        "statefulSets": [{"name": name} for name in cluster.stateful_sets],
        "container": "kafka",
        "bootstrapServers": cluster.bootstrap,
        **cluster.upgrade,
    }
    resource = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "KafkaMigration",
        "metadata": {"name": name, "namespace": cluster.namespace},
        "spec": {
            "target": target,
            "zookeeper": {"connect": cluster.zookeeper_connect},
            "brokers": brokers,
            "controllers": {
                "replicas": 3,
                "firstNodeId": 3000,
                "image": CONTROLLERS_IMAGE,
                "listener": {"securityProtocol": "PLAINTEXT"},
                "superUsers": ["User:ANONYMOUS"],
                "passwordEncoderSecret": {"name": f"{cluster.prefix}kafka-password-encoder", "key": "secret"},
                "storage": {"size": "1Gi"} | ({"storageClassName": storage_class} if storage_class else {}),
                "heapOptions": "-Xmx192m",
                "resources": {"requests": {"cpu": "100m", "memory": "384Mi"}},
            },
            "verification": {"runner": runner} | ({"image": verifier_image} if verifier_image else {}),
            "rehearsal": {"enabled": rehearsal},
            "preflight": {"accepted": [{"code": code, "object": where} for code, where in accepted]},
            "strategy": {"addressCacheSeconds": address_cache_seconds},
        },
    }
    if pods:
        resource["spec"]["pods"] = dict(pods)
    if cluster.secured:
        cluster.secured.change_spec(resource["spec"])
    return resource


def controllers_name(kube: Kube, namespace: str, migration: str) -> str:
    """Return the name of the controllers' StatefulSet of a migration's first attempt."""
    uid = kube.get("kafkamigrations.kraftbridge.dev", migration, namespace)["metadata"]["uid"]
    return f"{migration}-kraft-{uid[:8]}"


def controller_sets(kube: Kube, namespace: str, migration: str) -> set[str]:
    """Return the names of the controllers' StatefulSets of every migration of this name."""
    found = kube.list("statefulset", namespace, f"kraftbridge.dev/migration={migration}")
    return {stateful_set["metadata"]["name"] for stateful_set in found}


def controller_volumes(kube: Kube, namespace: str, migration: str) -> set[str]:
    """Return the names of the claims that a migration's controllers have, or have left."""
    claims = kube.list("persistentvolumeclaim", namespace, f"kraftbridge.dev/migration={migration}")
    names = {claim["metadata"]["name"] for claim in claims}
    return {name for name in names if not name.endswith("-tree")}  # that one keeps what ZooKeeper held


@dataclass(frozen=True)
class View:
    """A KafkaMigration at one time."""

    resource: dict[str, Any]

    @property
    def status(self) -> dict[str, Any]:
        return self.resource.get("status") or {}

    @property
    def phase(self) -> str:
        return self.status.get("phase") or ""

    @property
    def message(self) -> str:
        return self.status.get("message") or ""

    @property
    def brokers(self) -> str:
        return (self.status.get("brokers") or {}).get("summary") or ""

    @property
    def awaits_user(self) -> bool:
        """Whether the operator waits for the user to change ``spec.target``."""
        reconciling = self.condition("Reconciling")
        return reconciling["status"] == "False" and reconciling["reason"] == "AwaitingUser"

    @property
    def blocked(self) -> str:
        """Why the migration is stalled, or ``""``."""
        stalled, reconciling = self.condition("Stalled"), self.condition("Reconciling")
        if stalled["status"] == "True":
            return f"{stalled['reason']}: {stalled.get('message', '')}"
        if reconciling["status"] == "False" and reconciling["reason"] in NEEDS_HELP:
            return f"{reconciling['reason']}: {reconciling.get('message', '')}"
        return ""

    @property
    def blocking_findings(self) -> list[str]:
        """Preflight findings that nobody accepted, one line each."""
        return [
            f"{finding['code']} ({finding['object']}): {finding['reason']} {finding['fix']}"
            for finding in self.status.get("findings") or []
            if finding["severity"] == "Blocking" and not finding.get("accepted")
        ]

    @property
    def rehearsal(self) -> dict[str, Any]:
        return self.status.get("rehearsal") or {}

    def finding(self, code: str) -> dict[str, Any] | None:
        """Return the first finding of a code."""
        return next((f for f in self.status.get("findings") or [] if f["code"] == code), None)

    @property
    def verifications(self) -> list[dict[str, Any]]:
        return self.status.get("verifications") or []

    def condition(self, kind: str) -> dict[str, str]:
        """Return a condition; one that is not there is ``Unknown``."""
        conditions = self.status.get("conditions") or []
        found = next((condition for condition in conditions if condition["type"] == kind), None)
        return found or {"type": kind, "status": "Unknown", "reason": ""}


class Migration:
    """A KafkaMigration in the cluster."""

    def __init__(self, kube: Kube, namespace: str, name: str = "demo") -> None:
        self.kube, self.namespace, self.name = kube, namespace, name
        # Polling by kubectl would take a tenth of a core of the two that everything shares.
        loader = config.new_client_from_config(
            config_file=kube.environment.get("KUBECONFIG"), context=kube.context
        )  # fmt: skip
        self._objects = client.CustomObjectsApi(loader)

    def view(self) -> View | None:
        """Return it as it is now, None if there is none."""
        try:
            found = self._objects.get_namespaced_custom_object(
                GROUP, VERSION, self.namespace, PLURAL, self.name, _request_timeout=REQUEST_TIMEOUT_S
            )
            return View(found)
        except ApiException as error:
            if error.status == 404:
                return None
            raise

    def set_target(self, target: str) -> str:
        """Change ``spec.target`` as a user does, and return the command."""
        return self.patch({"spec": {"target": target}})

    def patch(self, patch: dict[str, Any]) -> str:
        """Merge something into it; return the command that does it."""
        text = json.dumps(patch, separators=(",", ":"))
        # Not by the short name: another resource of the same one would get the patch.
        self.kube.kubectl("patch", f"{PLURAL}.{GROUP}", self.name, "-n", self.namespace, "--type", "merge", "-p", text)
        return f"kubectl patch {PLURAL}.{GROUP} {self.name} -n {self.namespace} --type merge -p '{text}'"

    def accept(self, code: str, where: str = "*") -> None:
        """Accept one more finding."""
        view = self.view()
        assert view is not None, f"there is no KafkaMigration {self.name}"
        accepted = view.resource["spec"].get("preflight", {}).get("accepted", [])
        self.patch({"spec": {"preflight": {"accepted": [*accepted, {"code": code, "object": where}]}}})

    def rehearse_again(self) -> str:
        """Ask for another rehearsal; return the command that does it."""
        stamp = str(int(time.time()))
        annotation = f"kraftbridge.dev/rehearse={stamp}"
        resource = f"{PLURAL}.{GROUP}"
        self.kube.kubectl("annotate", resource, self.name, "-n", self.namespace, "--overwrite", annotation)
        return f"kubectl annotate {resource} {self.name} -n {self.namespace} --overwrite {annotation}"

    def follow(self, timeout_s: float) -> Iterator[View]:
        """Yield its state about twice a second.

        Raises
        ------
        TimeoutError
            When the time is up. The message contains the last status message.
        """
        deadline = time.monotonic() + timeout_s
        last: View | None = None
        while time.monotonic() < deadline:
            try:
                view = self.view()
            except (HTTPError, ApiException) as error:
                # The API server may be the one that was struck; only the time limit ends the wait for it.
                if isinstance(error, ApiException) and (error.status or 500) < 500:
                    raise
                view = None
            if view is not None:
                last = view
                yield view
            time.sleep(POLL_S)
        words = f"phase {last.phase}: {last.message}" if last else "the resource does not exist"
        raise TimeoutError(f"KafkaMigration {self.namespace}/{self.name} after {timeout_s:.0f} s: {words}")
