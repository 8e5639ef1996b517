"""DualWrite: the KRaft controller writes both stores, which are verified before any broker leaves ZooKeeper. Pure."""

from __future__ import annotations

from kraftbridge.models.phase import BrokerMode, Phase, Target
from kraftbridge.models.report import Profile
from kraftbridge.phases import canary, gates, healing, verifying
from kraftbridge.phases.draft import Draft, Enter, Outcome, Wait, reached, soak
from kraftbridge.phases.forward.nodes import reconcile_nodes


def run_dual_write_phase(draft: Draft) -> Outcome:
    """Soak while ZooKeeper-mode brokers run under the KRaft controller, then verify both stores."""
    if (waiting := reconcile_nodes(draft, BrokerMode.MIGRATION)) is not None:
        return waiting
    verifying.launch_ahead(draft, Profile.DUAL_WRITE, Phase.ROLLING_BROKERS)
    if (waiting := healing.ensure_mirror_moves(draft)) is not None:
        return waiting
    if (waiting := canary.remove(draft)) is not None:
        return waiting
    if (waiting := soak(draft, draft.spec.strategy.hybrid_soak_seconds)) is not None:
        return waiting
    if (waiting := verifying.ensure_verdict(draft, Profile.DUAL_WRITE, Phase.ROLLING_BROKERS)) is not None:
        return waiting
    if draft.spec.target is Target.DUAL_WRITE:
        return reached("Both stores are written and equal; set spec.target to KRaftBrokers or KRaft to continue")
    if blockers := gates.cluster_blockers(draft):
        return Wait(f"before any broker restarts: {blockers[0]}")
    return Enter(Phase.ROLLING_BROKERS)
