"""The dry start's agent, compiled from its source, and entrypoints of images that run under it as processes on this host."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.programs import die_with_parent, installed_tool

REPOSITORY = Path(__file__).resolve().parents[2]
SALT = "not the salt of a real run"


def compiled_agent(folder: Path) -> Path:
    """Compile the agent as the operator's image does; return the jar."""
    installed_tool("javac", "openjdk-17-jdk-headless", "the dry start's tests")
    jar = folder / "agent.jar"
    subprocess.run([REPOSITORY / "agent" / "build.sh", jar], check=True, timeout=120)
    return jar


@dataclass(frozen=True)
class Ended:
    """How an entrypoint ended."""

    code: int
    output: str
    """Standard output and standard error, as a container's log has them."""


def run_entrypoint(
    script: str, folder: Path, agent: Path, libraries: Path, environment: Mapping[str, str] | None = None
) -> Ended:
    """Run a shell script as a container's entrypoint under the agent; ``$LIBS`` is Kafka's class path, ``$HERE`` its folder."""
    work = folder / "dry-start"
    work.mkdir(exist_ok=True)
    (work / "salt").write_text(SALT)
    option = f"-javaagent:{agent}={work}"
    variables = {
        "PATH": os.environ["PATH"],
        "LIBS": f"{libraries}/*",
        "HERE": str(folder),
        "JAVA_TOOL_OPTIONS": option,
        "_JAVA_OPTIONS": f"-Xms16m -Xmx96m {option}",
        **(environment or {}),
    }
    done = subprocess.run(
        ["bash", "-c", script],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=variables,
        timeout=60,
        preexec_fn=die_with_parent,
    )
    return Ended(done.returncode, done.stdout)
