"""Answers that hold for some seconds, so that not every step asks for them anew."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


def _monotonic() -> float:
    """Return the clock that all answers age by; looked up at each call, so that tests can move it."""
    return time.monotonic()


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """An answer, what it was asked for, and when."""

    value: T
    asked: object = None
    read_at: float = field(default_factory=_monotonic)

    def holds(self, seconds: float, asked: object = None) -> bool:
        """Return whether the answer is younger than ``seconds`` and answers the same question."""
        return self.asked == asked and time.monotonic() - self.read_at < seconds


class Answers(Generic[K, T]):
    """The last answer for each key."""

    def __init__(self) -> None:
        self._answers: dict[K, Answer[T]] = {}

    def get(self, key: K, seconds: float, read: Callable[[], T], asked: object = None) -> T:
        """Return the answer for a key; read it if there is none that holds."""
        answer = self._answers.get(key)
        if answer is None or not answer.holds(seconds, asked):
            read_at = time.monotonic()
            answer = self._answers[key] = Answer(read(), asked, read_at)
        return answer.value

    def forget(self, key: K) -> None:
        """Remove the answer for a key."""
        self._answers.pop(key, None)


class Outcomes:
    """The refusals of what was tried, by a digest of it. What was refused is tried again sooner."""

    def __init__(self, accepted_seconds: float, refused_seconds: float) -> None:
        self._accepted_seconds = accepted_seconds
        self._refused_seconds = refused_seconds
        self._outcomes: dict[str, Answer[str | None]] = {}
        self._lock = threading.Lock()

    def recall(self, digest: str) -> Answer[str | None] | None:
        """Return the refusal, or that there was none; None if it has to be tried."""
        with self._lock:
            self._outcomes = {k: o for k, o in self._outcomes.items() if o.holds(self._accepted_seconds)}
            outcome = self._outcomes.get(digest)
        if outcome is None or outcome.value is None:
            return outcome
        return outcome if outcome.holds(self._refused_seconds) else None

    def keep(self, digest: str, refusal: str | None, tried_at: float) -> None:
        """Remember an outcome."""
        with self._lock:
            self._outcomes[digest] = Answer(refusal, read_at=tried_at)
