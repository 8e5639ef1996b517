"""Names and labels of the operator's objects."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping

from kraftbridge.constants import GROUP, LABEL_MIGRATION, UID_LENGTH
from kraftbridge.models.phase import ControllerMode
from kraftbridge.models.runs import RUNS, RunKind
from kraftbridge.models.status import controllers_format, keyed_name

MANAGED_BY = {"app.kubernetes.io/managed-by": "kraftbridge", "app.kubernetes.io/part-of": "kraftbridge"}


def labels(migration: str, **extra: str) -> dict[str, str]:
    """Return the labels of everything that belongs to a migration."""
    return {**MANAGED_BY, LABEL_MIGRATION: migration, **extra}


_CONTENT_LENGTH = 10
"""Digits of the hash of a configuration in the name of its ConfigMap."""
_CLEAN = "clean"
"""Stands for the mode of controllers without the operator's image, whose start script is another one."""


def controllers_configuration(
    controllers: str, mode: ControllerMode, data: Mapping[str, str], *, clean: bool = False
) -> str:
    """Return the name of the ConfigMap with a configuration of the controllers: its mode, and a hash of its content.

    Another content has another name, so a pod finds what it began with as long as the ConfigMap exists.
    """
    return f"{controllers}-{_CLEAN if clean else mode.lower()}-{_content(data)}"


def is_configuration(controllers: str, name: str) -> bool:
    """Return whether a ConfigMap's name is that of a configuration of these controllers."""
    modes = "|".join([_CLEAN, *(mode.lower() for mode in ControllerMode)])
    return re.fullmatch(rf"{re.escape(controllers)}-({modes})-[0-9a-f]{{{_CONTENT_LENGTH}}}", name) is not None


def has_its_content(name: str, data: Mapping[str, str]) -> bool:
    """Return whether a ConfigMap of a configuration has the content that its name says."""
    return name.endswith(f"-{_content(data)}")


def _content(data: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(dict(data), sort_keys=True).encode()).hexdigest()[:_CONTENT_LENGTH]


def controllers_objects(controllers: str, mounted: str = "") -> list[tuple[str, str, str]]:
    """Return API version, kind and name of the objects that the controllers' pods need to start or to be reached.

    ``mounted``: the ConfigMap with the configuration that their template names, ``""`` without a template.
    """
    return [
        ("v1", "Service", controllers),
        *([("v1", "ConfigMap", mounted)] if mounted else []),
        ("v1", "ConfigMap", controllers_format(controllers)),
        ("networking.k8s.io/v1", "NetworkPolicy", controllers),
        ("policy/v1", "PodDisruptionBudget", controllers),
        ("v1", "Secret", log_access_secret(controllers)),
        ("v1", "Secret", log_reader_secret(controllers)),
    ]


def log_access_secret(controllers: str) -> str:
    """Return the name of the Secret with the log servers' certificate, key and token."""
    return f"{controllers}-log-server"


def issued_listener_secret(controllers: str) -> str:
    """Return the name of the Secret with the issued certificate of the controllers' listener and with its logins."""
    return f"{controllers}-listener"


def issued_brokers_secret(migration: str, uid: str) -> str:
    """Return the name of the Secret with the brokers' certificate, login and trust for the controllers' listener.

    Every attempt uses the same.
    """
    return keyed_name(f"{migration}-listener-brokers", uid, 1)


def spark_secret(migration: str, uid: str) -> str:
    """Return the name of the Secret with which driver and executors of verifications authenticate.

    Every attempt uses the same.
    """
    return keyed_name(f"{migration}-spark", uid, 1)


def issuing_authority_secret(migration: str, uid: str) -> str:
    """Return the name of the Secret with the authority of the controllers' listener and the passwords of its logins.

    Every attempt uses the same.
    """
    return keyed_name(f"{migration}-listener-ca", uid, 1)


def archive_config_map(migration: str, uid: str, attempt: int) -> str:
    """Return the name of the ConfigMap with the znodes that a rollback removed."""
    return keyed_name(f"{migration}-rollback", uid, attempt)


def abandoned_config_map(migration: str, uid: str) -> str:
    """Return the name of the ConfigMap that lists what an abandoned migration leaves behind."""
    return keyed_name(f"{migration}-abandoned", uid, 1)


def step_config_map(migration: str, uid: str) -> str:
    """Return the name of the ConfigMap with a recorded step."""
    return keyed_name(f"{migration}-step", uid, 1)


def uid_in(name: str, migration: str) -> str:
    """Return the part of a UID that an object's name carries, ``""`` when it carries none."""
    parts = (
        r"kraft",
        r"before-copy",
        r"before",
        r"rollback",
        r"abandoned",
        r"findings",
        r"final-manifest",
        r"listener-ca",
        r"listener-brokers",
        r"spark",
        r"kept-[ab]",
    )
    match = re.search(rf"(?:^|-){re.escape(migration)}-(?:(?:{'|'.join(parts)})-)?([^-]{{{UID_LENGTH}}})(?:-|$)", name)
    return match[1] if match else ""


KEPT_COPY_KEY = "log.tar.gz"
"""Key of a Secret with a part of a kept copy."""


def part_of(name: str, number: int) -> str:
    """Return the name of the object with one part of a whole that no object can hold; the first has the plain name."""
    if number == 0:
        return name
    return f"{name}-part-{number}"


def log_reader_secret(controllers: str) -> str:
    """Return the name of the Secret with the CA certificate and token for readers of the logs."""
    return f"{controllers}-log-reader"


def verification_config_map(run_id: str) -> str:
    """Return the name of a verification's ConfigMap."""
    return RUNS[RunKind.VERIFICATION].report(run_id)


def verification_rights(run_id: str) -> str:
    """Return the name of a verification's Role and RoleBinding, and of the ConfigMap that owns them."""
    return RUNS[RunKind.VERIFICATION].rights(run_id)


def controller_host(controllers: str, namespace: str, node_id: int, cluster_domain: str) -> str:
    """Return the stable DNS name of one controller's pod."""
    return f"{controllers}-{node_id}.{controllers}.{namespace}.svc.{cluster_domain}"


def controller_hosts(controllers: str, namespace: str, node_ids: Iterable[int], cluster_domain: str) -> dict[int, str]:
    """Return the stable DNS name of each controller's pod by node id."""
    return {i: controller_host(controllers, namespace, i, cluster_domain) for i in node_ids}


def controller_claim(controllers: str, node_id: int) -> str:
    """Return the name of a controller's PersistentVolumeClaim; the StatefulSet's name, and so the attempt, is in it."""
    return f"data-{controllers}-{node_id}"


def tree_claim(controllers: str) -> str:
    """Return the name of the PersistentVolumeClaim with the tree from before the takeover.

    The attempt is part of the controllers' name.
    """
    return f"{controllers}-tree"


def tree_key_secret(controllers: str) -> str:
    """Return the name of the Secret with the key of the hashes in that tree. The attempt is part of it."""
    return f"{controllers}-tree-key"


def broker_config_map(source: str, mode: str) -> str:
    """Return the name of the ConfigMap or Secret that a ``Properties`` style StatefulSet mounts in a mode."""
    return f"{source}-{GROUP.partition('.')[0]}-{mode.lower()}"
