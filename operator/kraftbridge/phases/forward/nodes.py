"""Reconciles brokers and controllers at the start of each phase from TakingOver to AwaitingFinalization. Pure."""

from __future__ import annotations

from kraftbridge.models.phase import BrokerMode
from kraftbridge.phases import broker_restarts, controller_change, healing
from kraftbridge.phases.draft import Draft, Wait


def reconcile_nodes(draft: Draft, mode: BrokerMode) -> Wait | None:
    """Keep every node configured and running as the phase needs it.

    In this order: put back the fields of a StatefulSet that somebody changed during a restart, roll out a change of ``spec.controllers``, finish a
    failover of the active controller, and restart the brokers that do not run ``mode``.

    Parameters
    ----------
    draft
        Decision of this step.
    mode
        Mode that every broker must run.

    Returns
    -------
    Wait or None
        The wait while a node changes; None when every node runs as the phase needs it.
    """
    broker_restarts.reassert_brokers(draft, mode)
    return (
        controller_change.roll_changed_controllers(draft)
        or healing.finish_failover(draft)
        or broker_restarts.roll_brokers(draft, mode)
    )
