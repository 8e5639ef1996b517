"""The kopf handlers: start and end of the process, a migration's daemon, an index of phases, deletion.

Only this module imports kopf. Handlers are thin and call ``services``.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

import kopf
from prometheus_client import start_http_server

from kraftbridge.config import Settings
from kraftbridge.constants import ANNOTATION_ABANDON, FINALIZER, GROUP, PLURAL, VERSION
from kraftbridge.exceptions import MigrationError
from kraftbridge.outside.serving import every_address
from kraftbridge.phases.machine import deletion_blocker
from kraftbridge.services.fleet import Fleet, Health
from kraftbridge.services.reconcile import Reconciler, refusal_event
from kraftbridge.storage.kubernetes import KubernetesStore

BEAT_SECONDS: Final = 1.0


@kopf.on.startup()
async def start(settings: kopf.OperatorSettings, memo: kopf.Memo, **_: Any) -> None:
    """Create the fleet and configure kopf."""
    ours = Settings()
    settings.persistence.finalizer = FINALIZER
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP)
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=GROUP, key="last-handled")
    # Post only the operator's own events: kopf's have the type Error, which Kubernetes does not know.
    settings.posting.enabled = False
    # A deletion waits for a step that is under way; by default kopf looks only a minute later whether it has ended.
    settings.background.cancellation_polling = 1.0
    settings.watching.server_timeout = 270
    settings.watching.client_timeout = 300
    # Do not log a line per tick and per probe.
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)
    logging.getLogger("kopf.activities").setLevel(logging.WARNING)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
    logging.getLogger("kazoo").setLevel(logging.WARNING)
    logging.getLogger("kafka").setLevel(logging.ERROR)
    # Health first: it must answer while everything else starts.
    memo.health = Health(ours.liveness_port)
    memo.beating = asyncio.create_task(_beat(memo.health))
    memo.fleet = Fleet(Reconciler(KubernetesStore.connect(), ours))
    start_http_server(ours.metrics_port, addr=every_address())


@kopf.on.cleanup()
async def stop(memo: kopf.Memo, **_: Any) -> None:
    """Release the Leases and close every connection."""
    if "fleet" in memo:
        await asyncio.get_running_loop().run_in_executor(None, memo.fleet.close)
    if "health" in memo:
        memo.beating.cancel()
        memo.health.close()


async def _beat(health: Health) -> None:
    while True:
        health.beat()
        await asyncio.sleep(BEAT_SECONDS)


logger = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 30.0
"""Longest wait of the daemon. An edit of spec ends the wait at once; this covers an edit whose watch event was lost."""
_ERROR_SECONDS: Final = 2.0


@kopf.daemon(GROUP, VERSION, PLURAL, initial_delay=0)
async def drive(
    *, namespace: str | None, name: str, uid: str, meta: kopf.Meta, memo: Any, stopped: Any, **_: Any
) -> None:
    """Reconcile the migration whenever a step is due.

    A coroutine costs no thread while nothing is due. Steps run on worker threads of the fleet, never on kopf's.
    """
    fleet: Fleet = memo.fleet
    while not stopped:
        edited = fleet.edited(uid)
        edited.clear()
        wait = fleet.due_in(uid, int(meta.get("generation", 0)))
        if wait > 0:
            await _rest(stopped, edited, min(wait, _LOOK_SECONDS))
            continue
        try:
            await fleet.step(str(namespace), name, uid)
        except MigrationError as error:
            logger.warning("%s/%s: %s", namespace, name, error)
            await stopped.wait(_ERROR_SECONDS)
        except Exception:
            logger.exception("%s/%s: the step failed; another one follows", namespace, name)
            await stopped.wait(_ERROR_SECONDS)


async def _rest(stopped: Any, edited: asyncio.Event, seconds: float) -> None:
    """Wait until the time is over, the spec was edited, or kopf stops the daemon."""

    async def until_stopped() -> None:
        await stopped.wait(seconds)

    waits = [asyncio.create_task(until_stopped()), asyncio.create_task(edited.wait())]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


@kopf.on.event(GROUP, VERSION, PLURAL)
async def note(
    *,
    type: str | None,  # noqa: A002 - kopf's name
    namespace: str | None,
    uid: str,
    body: kopf.Body,
    memo: Any,
    **_: Any,
) -> None:
    """Record every migration's phase, reconciled or not, and wake its daemon after an edit of spec."""
    generation = int(body.metadata.get("generation", 0))
    memo.fleet.note(uid, namespace or "", body.get("status") or {}, generation, gone=type == "DELETED")


@kopf.on.delete(GROUP, VERSION, PLURAL)
async def delete(
    *, namespace: str | None, name: str, uid: str, annotations: kopf.Annotations, memo: Any, retry: int, **_: Any
) -> None:
    """Release a migration that owns no object of the user; reconcile any other until it owns none or is abandoned."""
    fleet: Fleet = memo.fleet
    place = str(namespace), name
    abandoned = annotations.get(ANNOTATION_ABANDON) == "true"
    if not abandoned and not await _nothing_is_left(fleet, *place):
        try:
            status = await fleet.step(*place, uid)
        except MigrationError as error:
            raise kopf.TemporaryError(str(error), delay=2) from error
        blocker = deletion_blocker(status) if status is not None else "somebody else wrote it at the same time"
        if blocker:
            if retry % 120 == 0:
                migration = {"metadata": {"namespace": namespace, "name": name, "uid": uid}}
                await fleet.run(fleet.reconciler.post, migration, refusal_event(f"Deletion waits: {blocker}"))
            raise kopf.TemporaryError(blocker, delay=1)
    try:
        if abandoned:
            await fleet.run(fleet.reconciler.abandon, *place, uid)
        await fleet.run(fleet.reconciler.let_go, *place, uid)
    except MigrationError as error:
        if not await _nothing_is_left(fleet, *place):
            raise kopf.TemporaryError(str(error), delay=2) from error
    await fleet.run(fleet.reconciler.forget, *place, uid)


async def _nothing_is_left(fleet: Fleet, namespace: str, name: str) -> bool:
    try:
        return await fleet.run(fleet.reconciler.nothing_is_left, namespace, name)
    except MigrationError as error:
        raise kopf.TemporaryError(str(error), delay=2) from error
