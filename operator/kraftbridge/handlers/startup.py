"""Start and end of the operator process."""

from __future__ import annotations

import logging
from typing import Any

import kopf
from prometheus_client import start_http_server

from kraftbridge.config import Settings
from kraftbridge.constants import FINALIZER, GROUP
from kraftbridge.services.reconcile import Reconciler
from kraftbridge.storage.kubernetes import KubernetesStore


@kopf.on.startup()
def start(settings: kopf.OperatorSettings, memo: kopf.Memo, **_: Any) -> None:
    """Make the reconciler and set kopf up."""
    ours = Settings()
    settings.persistence.finalizer = FINALIZER
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP)
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=GROUP, key="last-handled")
    # Our own events only: kopf's have the type Error, which Kubernetes does not know.
    settings.posting.enabled = False
    settings.execution.max_workers = 16
    # A deletion waits for a tick that is under way; by default kopf looks only a minute later whether it has ended.
    settings.background.cancellation_polling = 1.0
    settings.watching.server_timeout = 270
    settings.watching.client_timeout = 300
    # A line per tick and per probe says nothing.
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)
    logging.getLogger("kopf.activities").setLevel(logging.WARNING)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
    logging.getLogger("kazoo").setLevel(logging.WARNING)
    logging.getLogger("kafka").setLevel(logging.ERROR)
    memo.reconciler = Reconciler(KubernetesStore.connect(), ours)
    start_http_server(ours.metrics_port)


@kopf.on.cleanup()
def stop(memo: kopf.Memo, **_: Any) -> None:
    """Give the Leases up and close every connection."""
    if "reconciler" in memo:
        memo.reconciler.release_leases()
        memo.reconciler.close()


@kopf.on.probe(id="reconciler")
def alive(memo: kopf.Memo, **_: Any) -> str:
    """Answer the liveness probe."""
    return "ready" if "reconciler" in memo else "starting"
