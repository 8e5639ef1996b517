"""Start and end of the operator process."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

import kopf
from prometheus_client import start_http_server

from kraftbridge.config import Settings
from kraftbridge.constants import FINALIZER, GROUP
from kraftbridge.services.fleet import Fleet
from kraftbridge.services.health import Health
from kraftbridge.services.reconcile import Reconciler
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
    start_http_server(ours.metrics_port)


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
