"""RollingBrokers: restarts the brokers in KRaft mode, one at a time. Pure."""

from __future__ import annotations

from kraftbridge.models.conditions import ConditionType, Reason
from kraftbridge.models.phase import BrokerMode, Phase
from kraftbridge.models.report import Profile
from kraftbridge.phases import gates, healing, verifying
from kraftbridge.phases.draft import Draft, Enter, Outcome, Wait
from kraftbridge.phases.forward.nodes import reconcile_nodes


def run_rolling_brokers_phase(draft: Draft) -> Outcome:
    """Restart the brokers in KRaft mode, one at a time, then verify both stores again."""
    if (waiting := reconcile_nodes(draft, BrokerMode.KRAFT)) is not None:
        return waiting
    verifying.launch_ahead(draft, Profile.DUAL_WRITE, Phase.AWAITING_FINALIZATION)
    if (waiting := healing.ensure_mirror_moves(draft)) is not None:
        return waiting
    if blockers := (gates.broker_registration_blockers(draft) or gates.cluster_blockers(draft)):
        return Wait(blockers[0])
    draft.set_condition(
        ConditionType.BROKERS_ON_KRAFT, "True", Reason.DONE, "Every broker is registered as a KRaft broker"
    )
    if (waiting := verifying.ensure_verdict(draft, Profile.DUAL_WRITE, Phase.AWAITING_FINALIZATION)) is not None:
        return waiting
    return Enter(Phase.AWAITING_FINALIZATION)
