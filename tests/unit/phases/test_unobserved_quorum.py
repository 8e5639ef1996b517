"""While no controller answers, no phase is entered that needs the quorum, and the status says so."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.observations import IDENTITY, NOW, Situation, issued_listener, open_gate

from kraftbridge.models.conditions import Condition, ConditionType, Reason, condition, with_condition
from kraftbridge.models.decision import Decision
from kraftbridge.models.issued import IssuedSecret
from kraftbridge.models.observation import NOT_NEEDED, Unobserved
from kraftbridge.models.phase import Phase
from kraftbridge.models.spec import ListenerSpec

SILENT = Unobserved("controllers 3000,3001,3002", "no leader: 3000: CERTIFICATE_VERIFY_FAILED")
NEEDING = [Phase.DUAL_WRITE, Phase.ROLLING_BROKERS, Phase.AWAITING_FINALIZATION]


def ready(case: Situation) -> Situation:
    """Return the same with a quorum that was ready."""
    known = case.status.conditions
    told = with_condition(
        known, ConditionType.QUORUM_READY, "True", Reason.DONE, "", now=NOW, generation=IDENTITY.generation
    )
    return case.with_status(conditions=told)


def quorum_ready(decision: Decision) -> Condition:
    found = condition(decision.status.conditions, ConditionType.QUORUM_READY)
    assert found is not None
    return found


@pytest.mark.parametrize("phase", NEEDING)
def test_no_phase_is_entered_while_the_controllers_do_not_answer(phase: Phase) -> None:
    assert open_gate(phase).decide().status.phase is not phase
    silent = open_gate(phase).observing(quorum=SILENT).decide()
    assert silent.status.phase is phase
    assert str(SILENT) in silent.status.message


@pytest.mark.parametrize("phase", [*NEEDING, Phase.COMPLETED])
def test_quorum_ready_follows_what_the_controllers_answer(phase: Phase) -> None:
    case = ready(open_gate(phase))
    silent = case.observing(quorum=SILENT).decide()
    assert (quorum_ready(silent).status, quorum_ready(silent).reason) == ("Unknown", Reason.UNKNOWN)
    assert quorum_ready(silent).message == str(SILENT)
    back = case.after(silent).decide()
    assert (quorum_ready(back).status, quorum_ready(back).reason) == ("True", Reason.DONE)
    unasked = case.after(silent).observing(quorum=NOT_NEEDED).decide()
    assert quorum_ready(unasked).status == "Unknown", "nobody asked, so nobody knows better"


def test_a_quorum_that_was_never_ready_is_not_reported_as_unknown() -> None:
    silent = open_gate(Phase.PROVISIONING_QUORUM).observing(quorum=SILENT).decide()
    assert quorum_ready(silent).status == "False"


def issuing(phase: Phase) -> Situation:
    fine = open_gate(phase)
    listener = ListenerSpec.model_validate({"securityProtocol": "SSL", "generate": True})
    controllers = fine.spec.controllers.model_copy(update={"listener": listener})
    return fine.asking(controllers=controllers).observing(issued=issued_listener())


@pytest.mark.parametrize("phase", [Phase.DUAL_WRITE, Phase.ROLLING_BROKERS])
def test_a_lost_secret_that_cannot_be_issued_is_named(phase: Phase) -> None:
    """Seen on a cluster: both Secrets deleted, and the message had only CERTIFICATE_VERIFY_FAILED."""
    gone = IssuedSecret("demo-authority", exists=False, problem="it does not exist, and certificates that it issued do")
    lost = IssuedSecret("demo-controllers", exists=False)
    case = issuing(phase).observing(issued=issued_listener(authority=gone, controllers=lost))
    decision = case.observing(quorum=SILENT).decide()
    assert "Secret demo-controllers does not exist" in decision.status.message
    assert "Restore Secret demo-authority from a backup" in decision.status.message
    stalled = condition(decision.status.conditions, ConditionType.STALLED)
    assert stalled is not None
    assert (stalled.status, stalled.reason) == ("True", Reason.FINDINGS)


def test_an_edited_secret_is_named_while_the_controllers_do_not_answer() -> None:
    edited = replace(issued_listener().controllers, problem="its key does not fit its certificate")
    case = issuing(Phase.ROLLING_BROKERS).observing(issued=issued_listener(controllers=edited), quorum=SILENT)
    assert "Secret demo-controllers: its key does not fit its certificate" in case.decide().status.message


def test_secrets_as_they_are_issued_are_not_blamed() -> None:
    decision = issuing(Phase.ROLLING_BROKERS).observing(quorum=SILENT).decide()
    assert str(SILENT) in decision.status.message
    assert "Secret" not in decision.status.message
