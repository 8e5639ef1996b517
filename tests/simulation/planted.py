"""Bugs planted into `decide`, to see that the simulation finds them: one trusts, one is careless, one hurries, one keeps nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from kraftbridge.phases import gates, healing, rollback, verifying
from kraftbridge.phases.draft import Draft, Wait


def _verdict_is_taken_for_granted(*_: Any) -> None:
    """Open every gate as though its verification had passed."""


def _nobody_asks_for_isr(_draft: Draft) -> list[str]:
    """Take the cluster for healthy."""
    return []


def _nobody_waits_for_the_controller(_draft: Draft) -> Wait | None:
    """Roll back without asking whom each broker takes for the controller."""


def _nothing_is_kept(*_: Any) -> bool:
    """Overwrite what has not been archived."""
    return True


PLANTED: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "trusting": (verifying, "ensure_verdict", _verdict_is_taken_for_granted),
    "careless": (gates, "cluster_blockers", _nobody_asks_for_isr),
    "hurried": (rollback, "_controller_agreed", _nobody_waits_for_the_controller),
    "unkept": (healing, "_archived", _nothing_is_kept),
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Plant one of the bugs; ``""`` plants none."""
    if not name:
        yield
        return
    module, attribute, bug = PLANTED[name]
    with mock.patch.object(module, attribute, bug):
        yield
