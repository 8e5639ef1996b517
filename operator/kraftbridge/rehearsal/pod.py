"""A rehearsal in a pod: ZooKeeper, controller and brokers run in containers, controlled by files on a shared volume.

The containers share the pod's network namespace, so every port is a loopback port here too.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kraftbridge.constants import FIND_KAFKA, NO_KAFKA
from kraftbridge.exceptions import RehearsalError
from kraftbridge.outside.shell import command, joined
from kraftbridge.rehearsal.processes import (
    FORMAT,
    FORMAT_CLASS,
    LOG4J,
    heap_option,
    jvm_options,
    last_words,
    log4j_option,
)

_FORMAT_HEAP_BYTES: Final = 256 << 20
_FORMAT_SECONDS: Final = 120.0
STOP: Final = "stop"
"""The processes of a directory end when this file exists in it."""
END: Final = "end"
"""The containers end when this file exists in the shared volume."""
_STOP_SECONDS: Final = 20.0
_PAUSE_SECONDS: Final = 0.1
_NOT_THE_IMAGES: Final = ("KAFKA_OPTS", "KAFKA_GC_LOG_OPTS", "JMX_PORT", "KAFKA_DEBUG")
"""Variables with which an image's own agents and ports would collide: both processes share the pod's network."""

RUNNER: Final = (
    """set -u
cd "$WORK"
"""
    + FIND_KAFKA
    + """export RUN_CLASS="$tools/kafka-run-class$ending"
until [ -e END ]; do
  for name in $NAMES; do
    if [ ! -e "$name.command" ] || [ -e "$name.exit" ]; then continue; fi
    [ -n "$tools" ] || echo "NO_KAFKA" >>"$name.log"
    sh "$name.command" >>"$name.log" 2>&1 &
    child=$!
    while kill -0 "$child" 2>/dev/null; do
      if [ -e END ] || [ -e "$(dirname "$name")/STOP" ]; then kill -9 "$child" 2>/dev/null; fi
      sleep 0.2
    done
    wait "$child"
    echo $? >"$name.exit.part"
    mv "$name.exit.part" "$name.exit"
  done
  sleep 0.2
done
""".replace("NO_KAFKA", NO_KAFKA)
    .replace("END", END)
    .replace("STOP", STOP)
)
"""Start command of the containers (``sh -c``): ``WORK`` is the shared volume, ``NAMES`` the processes.
A name may have a directory before it."""


@dataclass(slots=True)
class PodProcesses:
    """The scratch processes in containers that run `RUNNER`."""

    work: Path
    """The shared volume, or a directory of it."""
    further_jar: Path | None = None
    """First on the class path."""
    _started: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.work / "log4j.properties").write_text(LOG4J)

    def format_storage(self, properties: Path, cluster_id: str, release_version: str) -> None:
        """Format the controller's log directory."""
        arguments = [FORMAT_CLASS, "format", f"--cluster-id={cluster_id}", "--config", str(properties)]
        arguments += ["--release-version", release_version]
        self._command(FORMAT, _FORMAT_HEAP_BYTES, arguments)
        deadline = time.monotonic() + _FORMAT_SECONDS
        while (code := self.exit_code(FORMAT)) is None:
            if time.monotonic() > deadline:
                raise RehearsalError(
                    f"the controller's container did not format its storage in {_FORMAT_SECONDS:.0f} s"
                )
            time.sleep(_PAUSE_SECONDS)
        if code:
            output = (self.work / f"{FORMAT}.log").read_text(errors="replace")
            raise RehearsalError(f"the scratch controller's storage could not be formatted: {last_words(output)}")

    def start(self, name: str, heap_bytes: int, main_class: str, *arguments: str) -> None:
        """Start a process."""
        self._command(name, heap_bytes, [main_class, *arguments])

    def _command(self, name: str, heap_bytes: int, arguments: Sequence[str]) -> None:
        (self.work / f"{name}.log").touch()
        # Kafka's own script finds java and the jars, with those that the image adds,
        # as it does for the real controllers.
        environment = {
            "KAFKA_HEAP_OPTS": heap_option(heap_bytes),
            "KAFKA_JVM_PERFORMANCE_OPTS": " ".join(jvm_options(name, self.work)),
            "KAFKA_LOG4J_OPTS": log4j_option(self.work),
            "LOG_DIR": str(self.work / "logs"),
            **dict.fromkeys(_NOT_THE_IMAGES, ""),
        }
        lines = [command(f"export {variable}={{value}}", value=value) for variable, value in environment.items()]
        if self.further_jar is not None:
            # Kafka's script appends its own jars.
            lines.append(command("export CLASSPATH={jar}${{CLASSPATH:+:$CLASSPATH}}", jar=str(self.further_jar)))
        part = self.work / f"{name}.command.part"
        part.write_text("\n".join([*lines, f'exec "$RUN_CLASS" {joined(arguments)}', ""]))
        part.replace(self.work / f"{name}.command")
        self._started.append(name)

    def exit_code(self, name: str) -> int | None:
        """Return the exit code of a process; None while it runs."""
        try:
            return int((self.work / f"{name}.exit").read_text())
        except FileNotFoundError:
            return None

    def close(self) -> None:
        """End all processes. The containers wait for those of another directory, or for their own end."""
        (self.work / STOP).touch()
        deadline = time.monotonic() + _STOP_SECONDS
        while any(self.exit_code(name) is None for name in self._started) and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)
