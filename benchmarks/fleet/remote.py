"""Connects the processes of the fleet benchmark. Imports nothing of the operator."""

from __future__ import annotations

import re
import tempfile
import time
from multiprocessing.managers import BaseManager
from pathlib import Path
from typing import Any, Final

KEY: Final = b"fleet"
"""Both ends are processes of one benchmark, on a socket in a private directory."""
POLICY: Final = "fleet-policy"
"""Name of the admission policy that the fakes have."""
HONEST: Final = "honest"
"""Migration of a large cluster, whose large answers come over sockets."""
HOSTILE: Final = (
    "frame",
    "children",
    "replies",
    "cons",
    "topics",
    "partitions",
    "answer",
    "truststore",
    "report",
    "record",
)
"""What the hostile migrations do, each in a namespace of its own."""
WALKING: Final = frozenset({HONEST, "report", "record"})
"""Those that go beyond preflight, so the fakes are their controllers."""
WIRED: Final = ("gone-", "wired-")
"""Namespaces whose ZooKeeper and brokers are asked over sockets only."""


def namespace_of(name: str) -> str:
    """Return the namespace of an honest or hostile migration."""
    return f"walks-{name}" if name in WALKING else f"wired-{name}"


class Remote(BaseManager):
    """Connects the processes of the benchmark."""


def tunables() -> str:
    """Return how the operator's image allocates memory."""
    found = re.search(
        r"^ENV GLIBC_TUNABLES=(\S+)$", (Path(__file__).parents[2] / "Dockerfile").read_text(), re.MULTILINE
    )
    if found is None:
        raise RuntimeError("the Dockerfile sets no GLIBC_TUNABLES")
    return found[1]


def settings_of_the_operator(rolling: int) -> dict[str, str]:
    """Return the environment of the operator, and of whoever walks a migration to `Completed` for it."""
    return {
        "GLIBC_TUNABLES": tunables(),
        "KRAFTBRIDGE_OPERATOR_IMAGE": "operator:bench",
        "KRAFTBRIDGE_VERIFIER_IMAGE": "verifier:bench",
        "KRAFTBRIDGE_ADMISSION_POLICY": POLICY,
        "KRAFTBRIDGE_DRY_START": "false",
        "KRAFTBRIDGE_METRICS_PORT": "0",
        "KRAFTBRIDGE_MAX_CONCURRENT_ROLLS": str(max(rolling, 1)),
    }


def connect(directory: Path) -> Any:
    """Return the surroundings that serve in ``directory``."""
    Remote.register("surroundings")
    remote = Remote(address=str(directory / "socket"), authkey=KEY)
    until = time.monotonic() + 60
    while True:
        try:
            remote.connect()
            return remote.surroundings()  # type: ignore[attr-defined]
        except (FileNotFoundError, ConnectionRefusedError):
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def new_directory() -> Path:
    """Return a private directory for the socket and the kubeconfig."""
    return Path(tempfile.mkdtemp(prefix="kraftbridge-fleet-"))
