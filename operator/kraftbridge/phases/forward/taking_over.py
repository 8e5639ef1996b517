"""TakingOver: restarts the brokers in migration mode; Kafka copies the metadata when the last one registers (KIP-866). Pure."""

from __future__ import annotations

from kraftbridge.models.conditions import ConditionType, Reason
from kraftbridge.models.phase import BrokerMode, Phase
from kraftbridge.models.report import Profile
from kraftbridge.phases import canary, controller_restarts, copied, gates, healing, verifying
from kraftbridge.phases.draft import Draft, Enter, Outcome, Wait
from kraftbridge.phases.forward.nodes import reconcile_nodes


def run_taking_over_phase(draft: Draft) -> Outcome:
    """Restart the brokers in migration mode; the controller copies the metadata once the last one registers (KIP-866)."""
    copied.keep_watching(draft)
    if (waiting := reconcile_nodes(draft, BrokerMode.MIGRATION)) is not None:
        return waiting
    draft.set_condition(
        ConditionType.BROKERS_IN_MIGRATION_MODE,
        "True",
        Reason.DONE,
        "Every broker is registered with the quorum in migration mode",
    )
    if gates.dual_write_blockers(draft):
        return (
            controller_restarts.ensure_voters_registered(draft)
            or healing.ensure_mirror_moves(draft)
            or Wait("the KRaft controller does not write ZooKeeper yet (dual-write)")
        )
    # Both at a time: the comparison takes seconds, and so does the change on its way.
    comparing, arriving = copied.ensure_nothing_lost(draft), canary.prove_change_arrives(draft)
    verifying.launch_ahead(draft, Profile.DUAL_WRITE, Phase.ROLLING_BROKERS)
    if (waiting := arriving or comparing) is not None:
        return waiting
    verified = (
        f"its differences are accepted by spec.verification.acceptedCopy ({draft.spec.verification.accepted_copy})"
        if copied.accepted(draft)
        else "it lost nothing"
    )
    draft.set_condition(
        ConditionType.METADATA_MIGRATED,
        "True",
        Reason.DONE,
        f"The copy is complete and {verified}; a change made after it is in both stores and served by every broker",
    )
    return Enter(Phase.DUAL_WRITE)
