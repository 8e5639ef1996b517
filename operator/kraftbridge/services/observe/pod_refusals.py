"""Reads why the API server refuses to create a workload's pods: quota, Pod Security, admission policy or webhook."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from kraftbridge.exceptions import ObservationError
from kraftbridge.models.objects import section
from kraftbridge.services.answers import Answers
from kraftbridge.storage.ports import Object, ReadPort

_MOST_WORDS: Final = 300


@dataclass(frozen=True, slots=True)
class FailedCreates:
    """What the controller of a workload was told."""

    words: str
    """The API server's last answer; empty if it refused nothing."""
    count: int = 0
    """How often it refused."""
    last_at: str = ""
    """When it refused last, by the API server's clock."""


def failed_creates(kubernetes: ReadPort, workload: Object, kind: str) -> FailedCreates:
    """Return what the controller of a Job or StatefulSet was told when it could not create a pod.

    Raises
    ------
    ObservationError
        The events cannot be read.

    Notes
    -----
    The workload's status does not tell: its controller posts the event ``FailedCreate`` with the API server's answer
    and tries again (``RealPodControl.createPods``, ``StatefulPodControl.recordPodEvent``).
    Equal events are counted in one (``events.go``, ``EventCorrelator``).
    """
    metadata = workload["metadata"]
    selector = f"involvedObject.kind={kind},involvedObject.name={metadata['name']},reason=FailedCreate"
    events = kubernetes.list("v1", "Event", metadata["namespace"], field_selector=selector)
    mine = [e for e in events if e.get("involvedObject", {}).get("uid") == metadata.get("uid")]
    if not mine:
        return FailedCreates("")
    last = max(mine, key=_last_at)
    words = str(last.get("message", "")).removeprefix("Error creating: ").strip()
    if len(words) > _MOST_WORDS:
        words = words[:_MOST_WORDS] + "…"
    return FailedCreates(words, sum(map(_count, mine)), _last_at(last))


def _count(event: Object) -> int:
    return int(event.get("count") or section(event, "series").get("count") or 1)


def _last_at(event: Object) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")


LACKING_SECONDS: Final = 10.0
"""A pod is made within a second after its predecessor is gone; an older event may tell of a former refusal."""
READ_EVERY_SECONDS: Final = 5.0


class PodRefusals:
    """Tells why StatefulSets lack pods; reads the events only while one lacks a pod for some time."""

    def __init__(self, kubernetes: ReadPort) -> None:
        self._kubernetes = kubernetes
        self._lacking_since: dict[str, float] = {}
        self._answers: Answers[str, str] = Answers()

    def of(self, stateful_set: Object, pods: int) -> str:
        """Return why the API server refuses a pod of a StatefulSet that has so many; ``""`` if it refuses none."""
        uid = stateful_set["metadata"]["uid"]
        now = time.monotonic()
        if pods >= stateful_set["spec"].get("replicas", 1):
            self._lacking_since.pop(uid, None)
            self._answers.forget(uid)
            return ""
        if now - self._lacking_since.setdefault(uid, now) < LACKING_SECONDS:
            return ""
        return self._answers.get(uid, READ_EVERY_SECONDS, lambda: self._read(stateful_set))

    def _read(self, stateful_set: Object) -> str:
        try:
            failed = failed_creates(self._kubernetes, stateful_set, "StatefulSet")
        except ObservationError as error:
            return f"why cannot be read ({error})"
        if not failed.words:
            return ""
        return f"the API server refuses it (last at {failed.last_at}): {failed.words}"
