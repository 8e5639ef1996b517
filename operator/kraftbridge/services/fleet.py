"""The migrations of this process: steps each on worker threads when it is due, and serves the health endpoint."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, Final, ParamSpec, TypeVar

from typing_extensions import override

from kraftbridge.models.objects import entries
from kraftbridge.models.phase import Phase
from kraftbridge.models.status import MigrationStatus, WaitKind
from kraftbridge.outside.serving import DualStackServer
from kraftbridge.services.metrics import STEP_LAG_SECONDS
from kraftbridge.services.pace import Lane, needs_place
from kraftbridge.services.reconcile import Reconciler

WORKERS: Final = {Lane.HEALTHY: 12, Lane.NEW: 8, Lane.SLOW: 12}
HASTE_SECONDS: Final = 20.0
"""How long one worker continues with a migration whose next step is due at once."""
HASTE_WAIT_SECONDS: Final = 0.25
P = ParamSpec("P")
T = TypeVar("T")


def _wait(status: Mapping[str, Any]) -> WaitKind | None:
    """Return what a migration waits for by its raw status, None where that is not told or not known."""
    waiting = status.get("waiting")
    if not isinstance(waiting, Mapping):
        return None
    with suppress(ValueError):
        return WaitKind(str(waiting.get("kind")))
    return None


class Fleet:
    """All migrations of this operator.

    Parameters
    ----------
    reconciler
        Executes the steps of one migration.
    """

    def __init__(self, reconciler: Reconciler) -> None:
        self.reconciler = reconciler
        self._workers = {
            lane: ThreadPoolExecutor(max_workers=most, thread_name_prefix=f"step {lane}")
            for lane, most in WORKERS.items()
        }
        self._others = ThreadPoolExecutor(max_workers=4, thread_name_prefix="deletion")
        self._edits: dict[str, asyncio.Event] = {}
        """By UID; used on the event loop only."""

    def close(self) -> None:
        """End all workers and connections. A running step stops before its next action."""
        self.reconciler.release_leases()
        self.reconciler.close()
        for pool in (*self._workers.values(), self._others):
            pool.shutdown(wait=False, cancel_futures=True)

    def due_in(self, uid: str, generation: int) -> float:
        """Return the seconds until a step is due; 0 or less if it is due now."""
        return 0.0 if self.reconciler.due(uid, generation) else self.reconciler.due_in(uid)

    def edited(self, uid: str) -> asyncio.Event:
        """Return the event that is set after an edit of a migration's spec."""
        return self._edits.setdefault(uid, asyncio.Event())

    def note(self, uid: str, namespace: str, status: Mapping[str, Any], generation: int, *, gone: bool) -> None:
        """Record a migration's status and generation from a watch event, maybe before its first step here."""
        if gone:
            self.reconciler.rolls.forget(uid)
            self._edits.pop(uid, None)
            return
        if self.due_in(uid, generation) <= 0:
            self.edited(uid).set()
        phase = Phase.PREFLIGHT
        with suppress(ValueError):
            phase = Phase(str(status.get("phase")))
        conditions = {condition.get("type"): condition.get("status") for condition in entries(status, "conditions")}
        stalled = conditions.get("Stalled") == "True"
        self.reconciler.rolls.note(uid, namespace, needs_place=needs_place(phase, _wait(status), stalled=stalled))
        self.reconciler.note(uid, phase, stalled=stalled)

    async def step(self, namespace: str, name: str, uid: str) -> MigrationStatus | None:
        """Run a step on a worker of the migration's lane, and further steps while they are due at once.

        Raises
        ------
        ObservationError
            The API server does not answer.
        """
        asked = time.monotonic()
        loop = asyncio.get_running_loop()
        workers = self._workers[self.reconciler.lane(uid)]
        return await loop.run_in_executor(workers, self._step, namespace, name, uid, asked)

    async def run(self, act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run work other than a step on a worker thread, for example for a deletion."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._others, lambda: act(*args, **kwargs))

    def _step(self, namespace: str, name: str, uid: str, asked: float) -> MigrationStatus | None:
        STEP_LAG_SECONDS.observe(time.monotonic() - asked)
        status = self.reconciler.step(namespace, name)
        # After an action or a new phase, and while there is no controller, the event loop would take too long.
        until = time.monotonic() + HASTE_SECONDS
        while time.monotonic() < until:
            wait = self.reconciler.due_in(uid)
            is_gone = status is None and wait <= 0.0
            if is_gone or wait >= HASTE_WAIT_SECONDS:
                break
            time.sleep(max(wait, 0.0))
            status = self.reconciler.step(namespace, name)
        return status


STALE_SECONDS: Final = 60.0
"""An event loop that does not turn for this long is considered hung."""


class Health:
    """Serves ``/healthz``: 200 while the event loop turns, 503 otherwise.

    Parameters
    ----------
    port
        0 for any free port; `port` returns it.
    clock
        Returns seconds. Tests replace it.
    """

    def __init__(self, port: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._beat = clock()
        health = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                code, text = health.answer(self.path)
                self.send_response(code)
                self.send_header("Content-Type", "text/plain; charset=utf-8")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            @override
            def log_message(self, format: str, *args: object) -> None:
                """Log nothing, because probes are frequent."""

        self._server = DualStackServer(("", port), Handler)
        threading.Thread(target=self._server.serve_forever, name="health", daemon=True).start()

    @property
    def port(self) -> int:
        """The port of the server."""
        return int(self._server.server_address[1])

    def beat(self) -> None:
        """Record that the event loop turns."""
        self._beat = self._clock()

    def answer(self, path: str) -> tuple[HTTPStatus, bytes]:
        """Return status and body for a probe of ``path``."""
        if path.partition("?")[0] != "/healthz":
            return HTTPStatus.NOT_FOUND, b"not found\n"
        age = self._clock() - self._beat
        if age > STALE_SECONDS:
            return HTTPStatus.SERVICE_UNAVAILABLE, f"the event loop has not turned for {age:.0f} s\n".encode()
        return HTTPStatus.OK, b"ok\n"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
