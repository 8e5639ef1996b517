"""Reads each object of the API server once in a step, whoever asks for it.

What a step observes is then one picture: two parts of it cannot contradict each other. An act decides on none of it:
`kraftbridge.services.act.checked` reads what it compares afresh.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from kraftbridge.models.survey import Right
from kraftbridge.storage.ports import LOG_BYTES, Object, ReadPort

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


class ReadOnce:
    """Reads the API server: within `step` each object and each list once, outside of it every time anew.

    Threads take part in a step that run in a copy of its context (`contextvars.copy_context`).
    """

    def __init__(self, kubernetes: ReadPort) -> None:
        self._kubernetes = kubernetes

    @contextmanager
    def step(self) -> Iterator[None]:
        """Read each object once until the end of the block."""
        token = _STEP.set(_Readings())
        try:
            yield
        finally:
            _STEP.reset(token)

    def get(self, api_version: str, kind: str, namespace: str | None, name: str) -> Object | None:
        """Return an object, or None if it does not exist. Callers must not change it."""
        return self._once(
            ("get", api_version, kind, namespace, name),
            lambda: self._kubernetes.get(api_version, kind, namespace, name),
        )

    def list(
        self, api_version: str, kind: str, namespace: str | None, label_selector: str = "", *, field_selector: str = ""
    ) -> tuple[Object, ...]:
        """Return all objects of a kind with these labels and fields. Callers must not change them."""
        return self._once(
            ("list", api_version, kind, namespace, label_selector, field_selector),
            lambda: self._kubernetes.list(api_version, kind, namespace, label_selector, field_selector=field_selector),
        )

    def try_apply(self, obj: Mapping[str, Any]) -> None:
        """Apply server-side as a dry run: admission answers, and nothing is stored."""
        self._kubernetes.try_apply(obj)

    def serves(self, api_version: str, kind: str) -> bool:
        """Return whether the API server serves a kind."""
        return self._kubernetes.serves(api_version, kind)

    def may(self, right: Right, namespace: str | None) -> bool:
        """Return whether this client has a right, as the API server answers."""
        return self._kubernetes.may(right, namespace)

    def pod_logs(
        self,
        namespace: str,
        pod: str,
        container: str,
        tail_lines: int | None = 100,
        *,
        previous: bool = False,
        since_seconds: int | None = None,
        limit_bytes: int = LOG_BYTES,
    ) -> str | None:
        """Return the last lines of a container's log, or None if the pod does not exist."""
        return self._kubernetes.pod_logs(
            namespace,
            pod,
            container,
            tail_lines,
            previous=previous,
            since_seconds=since_seconds,
            limit_bytes=limit_bytes,
        )

    @staticmethod
    def _once(question: Hashable, read: Callable[[], T]) -> T:
        readings = _STEP.get()
        return read() if readings is None else readings.once(question, read)
