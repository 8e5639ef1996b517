"""Programs and ports of this host that tests use: found, fetched by Maven, and ended with the process that started them."""

from __future__ import annotations

import ctypes
import fcntl
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Final

_PORTS: Final = range(20_000, 32_000)
"""Below the ephemeral range, so that no outgoing connection takes a port while its node restarts."""
_given_ports: set[int] = set()
_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None)
_MAVEN_SECONDS: Final = 900


def installed_tool(name: str, package: str, purpose: str) -> str:
    """Return a program's path.

    Raises
    ------
    RuntimeError
        It is not installed; the message names the Debian package.
    """
    found = shutil.which(name)
    if found is None:
        raise RuntimeError(f"{purpose} need {name}: install it (Debian: {package}) and run them again")
    return found


def free_port() -> int:
    """Return a port of the loopback interface that nobody listens on, never the same one twice in this process.

    A node is given all its ports before it opens the first one, so a free port is not yet a different port.
    """
    for port in random.sample([each for each in _PORTS if each not in _given_ports], 200):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given_ports.add(port)
        return port
    raise RuntimeError(f"no free port in {_PORTS}")


def die_with_parent() -> None:
    """End this process when the thread that started it ends, also by SIGKILL (``preexec_fn`` of a child process)."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def maven_jars(kind: str, version: str, pom: str) -> Path:
    """Return the directory with the runtime dependencies of a POM, fetched once per machine and anew when the POM changes.

    Parameters
    ----------
    kind
        Name of the directory in the cache: ``kafka-libs``.
    version
        Name of the directory below it.
    pom
        Text of the POM.
    """
    maven = installed_tool("mvn", "maven", "the integration tests")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kraftbridge" / kind
    cache.mkdir(parents=True, exist_ok=True)
    libraries = cache / version
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = libraries / "pom.xml"
        if stamp.exists() and stamp.read_text() == pom:
            return libraries
        fresh = Path(tempfile.mkdtemp(dir=cache))
        (fresh / "pom.xml").write_text(pom)
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={fresh}", "-DincludeScope=runtime"]
        command = [maven, "-q", "-B", "-f", str(fresh / "pom.xml"), *goal]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_MAVEN_SECONDS)
        if done.returncode:
            shutil.rmtree(fresh, ignore_errors=True)
            raise RuntimeError(f"Maven could not fetch {kind} {version}:\n{done.stdout[-4000:]}{done.stderr}")
        shutil.rmtree(libraries, ignore_errors=True)
        fresh.rename(libraries)  # only a complete directory has this name
    return libraries
