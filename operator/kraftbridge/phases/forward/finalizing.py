"""Finalizing: restarts the controllers without migration mode, which ends the migration for good (KIP-866). Pure."""

from __future__ import annotations

from datetime import timedelta

from kraftbridge.models.observation import Unobserved
from kraftbridge.models.phase import BrokerMode, ControllerMode, Phase, ZkMigrationState
from kraftbridge.models.report import Profile
from kraftbridge.models.status import OperationKind, WaitKind
from kraftbridge.phases import broker_restarts, controller_restarts, gates, restarts, verifying
from kraftbridge.phases.draft import Draft, Enter, Outcome, Wait


def run_finalizing_phase(draft: Draft) -> Outcome:
    """Restart the controllers without migration mode, the active one last.

    The first active controller without ``zookeeper.metadata.migration.enable`` writes the end of the migration to the log (KIP-866).
    """
    controller_restarts.keep_controllers(draft, ControllerMode.FINAL)
    broker_restarts.reassert_brokers(draft, BrokerMode.KRAFT)
    operation = draft.status.operation
    of_controller = operation is not None and operation.kind is OperationKind.RESTART_CONTROLLER
    if not of_controller and (waiting := broker_restarts.roll_brokers(draft, BrokerMode.KRAFT)) is not None:
        return waiting  # another writer changed the operator's fields
    if (waiting := controller_restarts.finish_controller_restart(draft, ControllerMode.FINAL)) is not None:
        return waiting
    workload = draft.observation.controllers
    if isinstance(workload, Unobserved) or workload.stateful_set is None:
        return Wait(
            str(workload)
            if isinstance(workload, Unobserved)
            else "the controllers' StatefulSet does not exist; Finalizing needs it"
        )
    stateful_set = workload.stateful_set
    if not stateful_set.configuration.startswith(f"{ControllerMode.FINAL}-") or not stateful_set.observed:
        return Wait("the final configuration of the controllers is being applied")
    pending = [
        p
        for p in stateful_set.pods
        if p.configuration != stateful_set.configuration or p.revision != stateful_set.update_revision
    ]
    if pending:
        if blockers := (gates.quorum_blockers(draft) or gates.cluster_blockers(draft)):
            return Wait(f"before the next controller restarts: {blockers[0]}")
        active = draft.observation.active_controller
        pending.sort(key=lambda p: (active is not None and p.ordinal == active.node_id, p.ordinal))
        return restarts.paused(draft) or controller_restarts.restart_controller(draft, pending[0])
    verifying.launch_ahead(draft, Profile.REPLICAS, Phase.COMPLETED)
    blockers = gates.quorum_blockers(draft) or gates.migration_state_blockers(draft, ZkMigrationState.POST_MIGRATION)
    blockers = blockers or gates.broker_registration_blockers(draft) or gates.cluster_blockers(draft)
    if blockers:
        # The controller fences a broker that cannot find the new leader only after broker.session.timeout.ms, so the hold restarts.
        draft.update(hold_until=None)
        return Wait(blockers[0])
    if draft.status.hold_until is None:
        seconds = draft.spec.strategy.session_timeout_hold_seconds
        draft.update(hold_until=draft.now + timedelta(seconds=seconds))
    if draft.status.hold_until is not None and draft.now < draft.status.hold_until:
        return Wait(
            "holding for longer than broker.session.timeout.ms, to see that every broker heartbeats to the new controllers",
            WaitKind.HOLD,
        )
    if (waiting := verifying.ensure_verdict(draft, Profile.REPLICAS, Phase.COMPLETED)) is not None:
        return waiting
    draft.update(hold_until=None, hold_reason="")
    return Enter(Phase.COMPLETED)
