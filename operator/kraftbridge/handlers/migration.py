"""The timer, which is the only writer of a migration, and deletion."""

from __future__ import annotations

import time
from typing import Any

import kopf

from kraftbridge.constants import ANNOTATION_ABANDON, GROUP, PLURAL, VERSION
from kraftbridge.exceptions import MigrationError
from kraftbridge.phases.machine import deletion_blocker
from kraftbridge.services.reconcile import Reconciler, refusal_event

TICK_SECONDS = 0.5
"""The timer ticks quickly and returns at once until a step is due; each step says when to look again."""


HASTE_SECONDS = 20.0
"""How long one tick may go on with steps that are wanted sooner than the next tick."""


@kopf.timer(GROUP, VERSION, PLURAL, interval=TICK_SECONDS)
def tick(*, namespace: str | None, name: str, uid: str, meta: kopf.Meta, memo: Any, **_: Any) -> None:
    """Take the migration one step further when one is due."""
    reconciler: Reconciler = memo.reconciler
    if reconciler.due(uid, int(meta.get("generation", 0))):
        try:
            status = reconciler.step(str(namespace), name)
            # Right after an act or a new phase, and while there is no controller, a tick is too long to wait.
            until = time.monotonic() + HASTE_SECONDS
            while time.monotonic() < until and (wait := reconciler.due_in(uid)) < TICK_SECONDS / 2:
                if status is None and wait <= 0.0:
                    break  # it is gone
                time.sleep(max(wait, 0.0))
                status = reconciler.step(str(namespace), name)
        except MigrationError as e:
            raise kopf.TemporaryError(str(e), delay=2) from e


@kopf.on.delete(GROUP, VERSION, PLURAL)
def delete(
    *, namespace: str | None, name: str, uid: str, annotations: kopf.Annotations, memo: Any, retry: int, **_: Any
) -> None:
    """Let a migration go that holds nothing of the user's; drive any other on until it does, or until it is abandoned."""
    reconciler: Reconciler = memo.reconciler
    if annotations.get(ANNOTATION_ABANDON) != "true" and not _nothing_is_left(reconciler, str(namespace), name):
        try:
            status = reconciler.step(str(namespace), name)
        except MigrationError as e:
            raise kopf.TemporaryError(str(e), delay=2) from e
        blocker = deletion_blocker(status) if status is not None else "somebody wrote it at the same time"
        if blocker:
            if retry % 120 == 0:
                migration = {"metadata": {"namespace": namespace, "name": name, "uid": uid}}
                reconciler.post(migration, refusal_event(f"Deletion waits: {blocker}"))
            raise kopf.TemporaryError(blocker, delay=1)
    try:
        reconciler.let_go(str(namespace), name)
    except MigrationError as e:
        if not _nothing_is_left(reconciler, str(namespace), name):
            raise kopf.TemporaryError(str(e), delay=2) from e
    reconciler.forget(str(namespace), name, uid)


def _nothing_is_left(reconciler: Reconciler, namespace: str, name: str) -> bool:
    try:
        return reconciler.nothing_is_left(namespace, name)
    except MigrationError as e:
        raise kopf.TemporaryError(str(e), delay=2) from e
