"""Reads the scratch controller's output: the stages of the migration, repeated attempts, and errors."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Final

from kraftbridge.models.redaction import Redactor
from kraftbridge.models.rehearsal import Stage

_STAGES: Final = {
    "Now waiting for ZK brokers": Stage.QUORUM_READY,
    "Zk brokers are registered and ready": Stage.BROKERS_REGISTERED,
    "Claimed ZK controller leadership": Stage.CLAIMED,
    "Starting ZK migration": Stage.COPY_BEGINS,
    "Completed migration of metadata from": Stage.COPY_ENDS,
    "Performing a full metadata sync": Stage.SYNC_BEGINS,
    "to KRAFT_CONTROLLER_TO_BROKER_COMM state": Stage.SYNC_ENDS,
    "to DUAL_WRITE state": Stage.DUAL_WRITE,
}
"""Lines of ``KRaftMigrationDriver`` in Kafka 3.9."""
_RETRY: Final = re.compile("Will retry|Unhandled error in|Still waiting for ZK brokers")
"""Lines that ``KRaftMigrationDriver`` repeats, with doubling pauses, while it cannot continue."""
_WAITING: Final = re.compile(r"Still waiting for ZK brokers \[.*?\]")
"""Logged also for each registration that arrives, with the brokers that are still missing."""
_WITHOUT_COPY: Final = "Ignoring image"
"""Repeated while the driver waits for an image with ZooKeeper's content. Without a copy, no such image ever exists."""
_LEVEL: Final = re.compile(r"\[[^]]+\] (WARN|ERROR|FATAL) ")
_NORMAL: Final = re.compile(
    "since it is offline|Performing controller activation|could not be established|Error connecting to node"
    "|it is not connected|was not established|was unsuccessful|No meta.properties|Session establishment"
)
"""Errors that a controller without real brokers always logs."""
_MAXIMUM_WORDS: Final = 25
_MAXIMUM_CHARACTERS: Final = 400


@dataclass(slots=True)
class ControllerLog:
    """The output of the controller, read while it grows."""

    path: Path
    secrets: frozenset[str] = frozenset()
    """Values that `words` does not repeat."""
    stages: dict[Stage, datetime] = field(default_factory=dict)
    """Time of the first line of each stage."""
    retries: int = 0
    """Lines about repeated attempts since the last progress: a new stage, or others that are waited for."""
    _position: int = 0
    _waiting: str = ""

    def read_on(self) -> None:
        """Read the lines that were written since the last call."""
        with self.path.open("rb") as file:
            file.seek(self._position)
            raw = file.read()
        complete = raw[: raw.rfind(b"\n") + 1]
        self._position += len(complete)
        for line in complete.decode(errors="replace").splitlines():
            self._take(line)

    def _take(self, line: str) -> None:
        waiting = _WAITING.search(line)
        if waiting is not None and waiting[0] != self._waiting:
            self._waiting = waiting[0]
            self.retries = 0
        if self._is_retry(line):
            self.retries += 1
        for text, stage in _STAGES.items():
            if text in line and stage not in self.stages:
                self.stages[stage] = _time_of(line)
                self.retries = 0

    def _is_retry(self, line: str) -> bool:
        if _RETRY.search(line):
            return True
        return _WITHOUT_COPY in line and Stage.COPY_BEGINS not in self.stages

    def words(self) -> list[str]:
        """Return warnings and errors, each with its exception and the cause, without repetitions."""
        lines = self.path.read_text(errors="replace").splitlines()
        words: dict[str, str] = {}
        for number, line in enumerate(lines):
            if not self._is_complaint(line):
                continue
            text = re.sub(r"^\[[^]]+\] ", "", line)
            parts = [text, *_exception_below(lines[number + 1 : number + 80])]
            key = re.sub(r"\d+", "#", " ".join(parts))[:300]
            words.setdefault(key, " | ".join(without(self.secrets, part)[:_MAXIMUM_CHARACTERS] for part in parts))
        return list(words.values())[:_MAXIMUM_WORDS]

    def _is_complaint(self, line: str) -> bool:
        if _NORMAL.search(line):
            return False
        if "Still waiting for" in line and Stage.BROKERS_REGISTERED in self.stages:
            return False  # the controller waited, and then continued
        return bool(_LEVEL.match(line)) or self._is_retry(line)

    def faults(self) -> list[str]:
        """Return the faults that the controller reports and survives (``LoggingFaultHandler``)."""
        return [text for text in self.words() if "LoggingFaultHandler" in text and " fault: " in text]

    def summary(self, pattern: str) -> str | None:
        """Return the first group of a pattern, from the whole output."""
        match = re.search(pattern, self.path.read_text(errors="replace"))
        if match is None:
            return None
        return match[1][:_MAXIMUM_CHARACTERS]


VERSION: Final = r"Kafka version: (\S+)"
COPIED: Final = r"Completed migration of metadata from ZooKeeper to KRaft\. (\d+ records.*?)\. The current"
SYNCED: Final = r"(Made the following ZK writes[^{]*\{.*?\}|Did not make any ZK writes)"


HIDDEN: Final = "[hidden]"
"""As ``Password.HIDDEN`` in Kafka."""


def without(secrets: Iterable[str], text: str) -> str:
    """Return a text without secrets: known values, and what follows the name of one.

    Kafka's exceptions quote the data that they refuse, for example a whole SCRAM credential (``ScramCredentialUtils``).
    """
    return _redactor(frozenset(secrets)).redact(text)


@lru_cache(maxsize=2)
def _redactor(secrets: frozenset[str]) -> Redactor:
    """Return what knows the secrets of a rehearsal, which can be those of many thousand users."""
    return Redactor(secrets, HIDDEN, sentences=True)


def _exception_below(lines: Iterable[str]) -> list[str]:
    """Return the first line of an exception and its last cause, from the lines below an error."""
    first: list[str] = []
    cause: list[str] = []
    for line in takewhile(lambda line: not line.startswith("["), lines):
        if not first and line.strip() and not line.startswith("\t"):
            first = [line]
        elif line.startswith("Caused by"):
            cause = [line]
    return [*first, *cause]


def _time_of(line: str) -> datetime:
    match = re.match(r"\[(\d+-\d+-\d+ \d+:\d+:\d+),(\d+)\]", line)
    if match is None:
        return datetime.now(UTC)
    # The JVM writes local time; only differences count.
    return datetime.fromisoformat(f"{match[1]}.{match[2]}").astimezone(UTC)
