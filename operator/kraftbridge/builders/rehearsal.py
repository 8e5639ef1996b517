"""A rehearsal's objects: ConfigMap with the request, Job of one pod, and the NetworkPolicy that closes it. Pure.

ZooKeeper and controller are containers of the controllers' image, brokers of their own;
the verifier's image reads the tree, starts both and compares the result with the tree.
The copy of the tree, the metadata log and all output are on a volume in memory.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kraftbridge.builders import names, pods
from kraftbridge.builders.broker_overlays import render_properties, short_hash
from kraftbridge.builders.controllers import RESTRICTED, ControllersFacts, controller_settings, pod_security_context
from kraftbridge.constants import API_VERSION, KIND, LABEL_ROLE, LABEL_RUN
from kraftbridge.models.phase import ControllerMode
from kraftbridge.models.rehearsal import (
    BROKERS_FOLDER,
    BROKERS_KEY,
    PLAN_KEY,
    PROPERTIES_KEY,
    REQUEST_KEY,
    RehearsalRequest,
    RehearsedSettings,
    heap_bytes,
)
from kraftbridge.models.report import ZooKeeperAccess, digest_of
from kraftbridge.models.runs import RUNS, RunKind
from kraftbridge.models.spec import MigrationSpec, Placement

Object = dict[str, Any]

ROLE: Final = RUNS[RunKind.REHEARSAL].role
"""Value of the role label."""
CONTAINER: Final = "rehearsal"
"""The container whose log holds the result."""
READER: Final = "read"
"""The init container that reads the tree."""
FENCE: Final = "fence"
"""The init container that ends well only when nothing can be reached any more that the reader has reached."""
BROKER: Final = "broker"
"""Begins the name of each container that runs brokers, one for each of their images."""
KEPT_SECONDS: Final = 3_600
"""How long a Job stays after its end, should its removal be lost."""
FILES_SIZE: Final = "4Gi"
"""Size limit of the volume in memory, which without one may take the node's.
The files of 1,000,000 partitions take 606 MiB (``docs/rehearsal.md``, Sizes): six times that."""
BATCH_SIZE: Final = "zookeeper.metadata.migration.min.batch.size"
_MIB: Final = 1 << 20
_HEAP_BYTES: Final = 1024 * _MIB
_ZOOKEEPER_HEAP_BYTES: Final = 1024 * _MIB
_WORK: Final = "/rehearsal"
_REQUEST: Final = "/etc/kraftbridge/request"
_MOUNTS: Final = "/etc/kraftbridge"
_GRACE_SECONDS: Final = 120


@dataclass(frozen=True, slots=True)
class RehearsalFacts:
    """What a rehearsal's objects are computed from."""

    run_id: str
    migration_uid: str
    verifier_image: str
    controllers: ControllersFacts
    brokers: tuple[RehearsedSettings, ...] = ()
    """The brokers that are started in KRaft mode, as a dry start shows them."""
    pull_secrets: tuple[str, ...] = ()
    """Secrets with which the brokers' pods pull their images."""
    beyond_the_cluster: tuple[str, ...] = ()
    """Addresses that the fence must close where the pod reached them before."""
    plan: tuple[str, ...] = ()
    """The rolling restarts that are ahead, which the page shows."""

    @property
    def images(self) -> dict[str, list[int]]:
        """Brokers by image."""
        found: dict[str, list[int]] = {}
        for broker in self.brokers:
            found.setdefault(broker.image, []).append(broker.broker)
        return found


def fingerprint(
    spec: MigrationSpec, facts: ControllersFacts, asked: str, brokers: Sequence[RehearsedSettings] = ()
) -> str:
    """Return the fingerprint of what a rehearsal judges, but for the tree.

    Parameters
    ----------
    asked
        Value of the annotation that asks for another rehearsal.
    brokers
        The brokers that are started in KRaft mode.
    """
    controllers = spec.controllers
    return short_hash(
        (
            rehearsed_settings(spec, facts),
            controllers.image,
            controllers.heap_options,
            repr(controllers.password_encoder_secret),
            controllers.listener.secret_name,
            spec.zookeeper.connect,
            release_version(facts),
            asked,
            *(broker.to_json() for broker in brokers),
        )
    )


def rehearsed_settings(spec: MigrationSpec, facts: ControllersFacts) -> dict[str, str]:
    """Return the real controllers' settings without the batch size that an earlier rehearsal called for."""
    settings = controller_settings(spec, facts, ControllerMode.MIGRATION)
    if BATCH_SIZE not in spec.controllers.config:
        settings.pop(BATCH_SIZE, None)
    return settings


def release_version(facts: ControllersFacts) -> str:
    """Return the brokers' ``inter.broker.protocol.version``.

    Their registrations and the controllers' metadata.version follow from it.
    """
    return facts.broker_settings.get("inter.broker.protocol.version", "3.9")


def request(spec: MigrationSpec, facts: RehearsalFacts) -> RehearsalRequest:
    """Return what the pod is asked."""
    encoder = spec.controllers.password_encoder_secret
    zookeeper_path = f"{_MOUNTS}/zookeeper" if spec.zookeeper.secret_name else None
    return RehearsalRequest(
        run_id=facts.run_id,
        zookeeper=ZooKeeperAccess(connect=spec.zookeeper.connect, secret_path=zookeeper_path),
        bootstrap_servers=spec.brokers.bootstrap_servers,
        beyond_the_cluster=facts.beyond_the_cluster,
        release_version=release_version(facts.controllers),
        heap_bytes=max(_HEAP_BYTES, heap_bytes(spec.controllers.heap_options or "") or 0),
        zookeeper_heap_bytes=_ZOOKEEPER_HEAP_BYTES,
        password_encoder_secret_path=f"{_MOUNTS}/password-encoder/{encoder.key}" if encoder is not None else None,
        listener_path=f"{_MOUNTS}/listener/listener.properties" if spec.controllers.listener.secret_name else None,
        timeout_seconds=spec.rehearsal.timeout_seconds,
    )


def config_map(spec: MigrationSpec, facts: RehearsalFacts) -> Object:
    """Return the ConfigMap with request and configuration, to which the result is added."""
    brokers = json.dumps([json.loads(broker.to_json()) for broker in facts.brokers])
    packed = base64.b64encode(gzip.compress(brokers.encode(), mtime=0)).decode()
    plan = {PLAN_KEY: "\n".join(facts.plan)} if facts.plan else {}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _meta(facts, facts.run_id),
        "data": {
            REQUEST_KEY: request(spec, facts).to_json(),
            PROPERTIES_KEY: render_properties(rehearsed_settings(spec, facts.controllers)),
            **plan,
        },
        "binaryData": {BROKERS_KEY: packed} if facts.brokers else {},
    }


def network_policy(facts: RehearsalFacts) -> Object:
    """Return the policy that lets nothing in or out of the pod of this run; one object for all runs of a migration."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _meta(facts, policy_name(facts.controllers.migration)),
        "spec": {
            "podSelector": {"matchLabels": _labels(facts)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [],
            "egress": [],
        },
    }


def policy_name(migration: str) -> str:
    """Return the name of a migration's NetworkPolicy for rehearsals."""
    return f"{migration}-rehearsal"


def job(spec: MigrationSpec, facts: RehearsalFacts) -> Object:
    """Return the Job; its pod reads the tree at once and starts Kafka behind the fence."""
    controllers = spec.controllers
    secrets = _secrets(spec)
    # It runs where the controllers may run.
    placement = Placement(node_selector=controllers.node_selector, tolerations=controllers.tolerations)
    settings = pods.completed(spec.pods, facts.controllers.pod_defaults)
    pod: Object = {
        "restartPolicy": "Never",
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 2,
        # All containers write to one volume, and so run as the controllers' user.
        "securityContext": pod_security_context(),
        # In this order: no container of Kafka's image starts before the fence is proven.
        "initContainers": [_ours(spec, facts, READER, "read", secrets), _ours(spec, facts, FENCE, "fence", {})],
        "containers": [
            _ours(spec, facts, CONTAINER, "run", secrets),
            _kafkas(spec, "zookeeper", _twice("zookeeper")),
            _kafkas(spec, "controller", _twice("format", "controller")),
            *(
                _kafkas(spec, f"{BROKER}-{number}", [f"{BROKERS_FOLDER}/broker-{broker}" for broker in brokers], image)
                for number, (image, brokers) in enumerate(facts.images.items())
            ),
        ],
        "imagePullSecrets": [{"name": name} for name in facts.pull_secrets],
        "volumes": [
            {"name": "work", "emptyDir": {"medium": "Memory", "sizeLimit": FILES_SIZE}},
            {"name": "request", "configMap": {"name": facts.run_id}},
            *({"name": n, "secret": {"secretName": s}} for n, s in secrets.items()),
        ],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _meta(facts, facts.run_id),
        # No retries: a rehearsal that ended without a verdict is launched anew under another id.
        "spec": {
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "activeDeadlineSeconds": spec.rehearsal.timeout_seconds + _GRACE_SECONDS,
            "template": pods.with_settings({"metadata": {"labels": _labels(facts)}, "spec": pod}, settings, placement),
        },
    }


def _secrets(spec: MigrationSpec) -> dict[str, str]:
    """Return Secret by mount name; none of them is mounted into the containers that run Kafka."""
    secrets = {}
    if spec.zookeeper.secret_name:
        secrets["zookeeper"] = spec.zookeeper.secret_name
    if spec.controllers.password_encoder_secret is not None:
        secrets["password-encoder"] = spec.controllers.password_encoder_secret.name
    if spec.controllers.listener.secret_name:
        secrets["listener"] = spec.controllers.listener.secret_name
    return secrets


def _ours(spec: MigrationSpec, facts: RehearsalFacts, name: str, part: str, secrets: Mapping[str, str]) -> Object:
    # Who may write ConfigMaps must not choose where the reader logs in with what is mounted.
    digest = ["--request-digest", digest_of(request(spec, facts).to_json())] if part == "read" else []
    return {
        "name": name,
        "image": facts.verifier_image,
        "imagePullPolicy": spec.verification.image_pull_policy,
        "command": ["python", "-m", "kraftbridge.rehearsal.job", part, "--request", _REQUEST, "--work", _WORK, *digest],
        "resources": spec.rehearsal.resources,
        # The last lines of a container that was ended from outside say more than its exit code.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": RESTRICTED,
        "volumeMounts": [
            {"name": "work", "mountPath": _WORK},
            {"name": "request", "mountPath": _REQUEST, "readOnly": True},
            *({"name": n, "mountPath": f"{_MOUNTS}/{n}", "readOnly": True} for n in secrets),
        ],
    }


def _twice(*names: str) -> list[str]:
    """Return processes that run for the whole tree, and then for the one of the brokers."""
    return [*names, *(f"{BROKERS_FOLDER}/{name}" for name in names)]


def _kafkas(spec: MigrationSpec, name: str, runs: Sequence[str], image: str | None = None) -> Object:
    return {
        "name": name,
        "image": image or spec.controllers.image,
        "imagePullPolicy": spec.controllers.image_pull_policy if image is None else "IfNotPresent",
        "command": ["sh", f"{_WORK}/runner.sh"],
        "env": [{"name": "WORK", "value": _WORK}, {"name": "NAMES", "value": " ".join(runs)}],
        "workingDir": _WORK,
        "resources": spec.rehearsal.resources,
        "securityContext": RESTRICTED,
        "volumeMounts": [{"name": "work", "mountPath": _WORK}],
    }


def _labels(facts: RehearsalFacts) -> dict[str, str]:
    return names.labels(facts.controllers.migration, **{LABEL_ROLE: ROLE, LABEL_RUN: facts.run_id})


def _meta(facts: RehearsalFacts, name: str) -> Object:
    owner = {"apiVersion": API_VERSION, "kind": KIND, "name": facts.controllers.migration, "uid": facts.migration_uid}
    return {
        "name": name,
        "namespace": facts.controllers.namespace,
        "labels": _labels(facts),
        "ownerReferences": [owner],
    }
