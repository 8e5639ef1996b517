"""Reads each object of the API server once in a step, whoever asks for it.

What a step observes is then one picture: two parts of it cannot contradict each other. An act decides on none of it:
`kraftbridge.services.act.checked` reads what it compares afresh.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar

from typing_extensions import override

from kraftbridge.services.reads import ReadThrough
from kraftbridge.storage.ports import Object

T = TypeVar("T")


class _Readings:
    """What one step has read so far, by what was asked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: dict[Hashable, Future[Any]] = {}

    def once(self, question: Hashable, read: Callable[[], T]) -> T:
        """Return the answer to a question, asked by whoever comes first; its error is everybody's error."""
        with self._lock:
            answer = self._answers.get(question)
            is_first = answer is None
            if answer is None:
                answer = self._answers[question] = Future()
        if is_first:
            try:
                answer.set_result(read())
            except Exception as error:  # noqa: BLE001 - it is raised in each thread that asks
                answer.set_exception(error)
        result: T = answer.result()
        return result


_STEP: ContextVar[_Readings | None] = ContextVar("readings of the step", default=None)


class ReadOnce(ReadThrough):
    """Reads the API server: within `step` each object and each list once, outside of it every time anew.

    Threads take part in a step that run in a copy of its context (`contextvars.copy_context`).
    """

    @contextmanager
    def step(self) -> Iterator[None]:
        """Read each object once until the end of the block."""
        token = _STEP.set(_Readings())
        try:
            yield
        finally:
            _STEP.reset(token)

    @override
    def get(self, api_version: str, kind: str, namespace: str | None, name: str) -> Object | None:
        """Return an object, or None if it does not exist. Callers must not change it."""
        question = ("get", api_version, kind, namespace, name)
        return self._once(question, partial(super().get, api_version, kind, namespace, name))

    @override
    def list(
        self, api_version: str, kind: str, namespace: str | None, label_selector: str = "", *, field_selector: str = ""
    ) -> tuple[Object, ...]:
        """Return all objects of a kind with these labels and fields. Callers must not change them."""
        question = ("list", api_version, kind, namespace, label_selector, field_selector)
        read = partial(super().list, api_version, kind, namespace, label_selector, field_selector=field_selector)
        return self._once(question, read)

    @staticmethod
    def _once(question: Hashable, read: Callable[[], T]) -> T:
        readings = _STEP.get()
        return read() if readings is None else readings.once(question, read)
