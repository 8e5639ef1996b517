"""AwaitingFinalization: the last phase from which a migration can be rolled back. Pure."""

from __future__ import annotations

from kraftbridge.models.conditions import Reason
from kraftbridge.models.phase import BrokerMode, Phase, Target
from kraftbridge.models.report import Profile
from kraftbridge.phases import gates, healing, verifying
from kraftbridge.phases.draft import Draft, Enter, Outcome, Wait, reached, soak
from kraftbridge.phases.forward.nodes import reconcile_nodes


def run_awaiting_finalization_phase(draft: Draft) -> Outcome:
    """Soak while every broker runs KRaft and ZooKeeper is still written, then wait for ``spec.target`` KRaft."""
    if (waiting := reconcile_nodes(draft, BrokerMode.KRAFT) or healing.fail_over_stuck_mirror(draft)) is not None:
        return waiting
    if (waiting := soak(draft, draft.spec.strategy.pure_soak_seconds)) is not None:
        return waiting
    if draft.spec.target is not Target.KRAFT:
        message = "Brokers run KRaft and ZooKeeper is still written: set spec.target to KRaft to finalize (this cannot be rolled back), or to ZooKeeper to roll back"
        return reached(message, Reason.AWAITING_USER)
    if blockers := (
        gates.broker_registration_blockers(draft)
        or gates.dual_write_blockers(draft)
        or gates.quorum_blockers(draft)
        or gates.cluster_blockers(draft)
    ):
        return Wait(f"before finalization: {blockers[0]}")
    # The run that opened this phase opens this gate as well while its verdict is fresh.
    if (waiting := verifying.ensure_verdict(draft, Profile.DUAL_WRITE, Phase.AWAITING_FINALIZATION)) is not None:
        return waiting
    return Enter(Phase.FINALIZING)
