"""After ``Completed``: guarded until the owner renders KRaft or the user says so, and an alarm for a template that does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.observations import BROKER_SET, NEEDED, NOW, Situation, broker_set, open_gate

from kraftbridge.models.conditions import Condition, ConditionType, condition
from kraftbridge.models.decision import Decision, PublishFinalManifest, ReleaseStatefulSet
from kraftbridge.models.observation import Unobserved
from kraftbridge.models.phase import BrokerMode, Phase
from kraftbridge.models.spec import HandOver
from kraftbridge.models.status import HandOverStatus

GUARDED = HandOverStatus(guarded=True, stateful_sets=(NEEDED,))


def completed(*, lacking: tuple[str, ...] = (), owner_renders: bool = False, writer: str = "") -> Situation:
    """Return a migration whose StatefulSets were given back, under guard."""
    item = replace(broker_set(BrokerMode.KRAFT), lock="", lacking=lacking, owner_renders=owner_renders, last_writer=writer)  # fmt: skip
    return open_gate(Phase.COMPLETED).observing(stateful_sets=(item,)).with_status(hand_over=GUARDED, given_back_at=NOW)


def said(decision: Decision, kind: ConditionType = ConditionType.HANDED_OVER) -> Condition:
    found = condition(decision.status.conditions, kind)
    assert found is not None
    return found


def test_what_the_templates_need_is_on_record_before_the_lock_goes() -> None:
    held = open_gate(Phase.COMPLETED).observing(stateful_sets=(broker_set(BrokerMode.KRAFT),))
    decision = held.decide()
    assert decision.status.hand_over == GUARDED
    assert ReleaseStatefulSet(BROKER_SET) in decision.actions


def test_a_statefulset_whose_needs_are_unknown_is_given_back_unguarded() -> None:
    """Its original state is lost. A lock that nothing can end is worse than no guard, and the status says which it is."""
    unknown = replace(broker_set(BrokerMode.KRAFT), required=None)
    decision = open_gate(Phase.COMPLETED).observing(stateful_sets=(unknown,)).decide()
    assert decision.actions == (PublishFinalManifest(), ReleaseStatefulSet(BROKER_SET))
    assert said(decision).reason == "NotGuarded"
    assert [e.message for e in decision.events if "is not known" in e.message]
    before = open_gate(Phase.COMPLETED).observing(stateful_sets=(replace(unknown, lock=""),)).decide()
    assert said(before).reason == "NotGuarded", "an older operator gave it back"
    assert before.status.hand_over is None


def test_guarded_says_what_to_do_and_the_migration_is_ready() -> None:
    decision = completed().decide()
    assert (said(decision).status, said(decision).reason) == ("False", "Guarded")
    assert said(decision, ConditionType.READY).status == "True"
    assert "set spec.handOver to Release" in decision.status.message


@pytest.mark.parametrize("policy", [False, Unobserved("API server", "timeout")])
def test_without_the_policy_nothing_is_called_guarded(policy: bool | Unobserved) -> None:
    assert said(completed().observing(admission_policy=policy).decide()).reason == "NotGuarded"


@pytest.mark.parametrize("policy", [True, False])
def test_a_template_that_lacks_something_is_an_alarm(*, policy: bool) -> None:
    stale = completed(lacking=("KAFKA_PROCESS_ROLES=broker",), writer="helm (Update at 2026-03-04T05:00:00Z)")
    decision = stale.observing(admission_policy=policy).decide()
    assert said(decision).reason == "TemplateNotKRaft"
    assert said(decision, ConditionType.STALLED).status == "True"
    assert said(decision, ConditionType.READY).status == "False"
    assert [e.reason for e in decision.events].count("Alarm") == 1
    assert decision.status.hand_over is not None
    assert decision.status.hand_over.missing == ("StatefulSet kafka: KAFKA_PROCESS_ROLES=broker",)
    assert "last written by helm" in decision.status.message
    again = replace(stale, status=decision.status).decide()
    assert not [e for e in again.events if e.reason == "Alarm"], "told once"
    mended = replace(completed(), status=decision.status).decide()
    assert said(mended).reason == "Guarded"
    assert said(mended, ConditionType.STALLED).status == "False"
    assert mended.status.hand_over == GUARDED


def test_the_guard_ends_once_the_owner_renders_kraft_and_stays_ended() -> None:
    decision = completed(owner_renders=True).decide()
    assert (said(decision).status, said(decision).reason) == ("True", "Done")
    assert decision.status.hand_over is not None
    assert (decision.status.hand_over.guarded, decision.status.hand_over.ended_at) == (False, NOW)
    # On the way to a dynamic quorum the voters go: nobody is alarmed any more.
    later = replace(completed(lacking=("KAFKA_CONTROLLER_QUORUM_VOTERS=…",)), status=decision.status).decide()
    assert said(later, ConditionType.READY).status == "True"


def test_every_owner_has_to_render_it() -> None:
    sets = completed(owner_renders=True).observation.stateful_sets[0]
    assert not isinstance(sets, Unobserved)
    other = replace(sets, name="kafka-b", owner_renders=False)
    both = completed().observing(stateful_sets=(sets, other))
    spec = both.spec.model_copy(update={"brokers": both.spec.brokers.model_copy(update={"stateful_sets": both.spec.brokers.stateful_sets * 2})})  # fmt: skip
    assert said(replace(both, spec=spec).decide()).reason == "Guarded"


@pytest.mark.parametrize("lacking", [(), ("KAFKA_PROCESS_ROLES=broker",)])
def test_the_word_in_spec_ends_it(lacking: tuple[str, ...]) -> None:
    decision = completed(lacking=lacking).asking(hand_over=HandOver.RELEASE).decide()
    assert (said(decision).status, said(decision).reason) == ("True", "Released")
    assert decision.status.hand_over is not None
    assert not decision.status.hand_over.guarded
    assert said(decision, ConditionType.READY).status == "True"
