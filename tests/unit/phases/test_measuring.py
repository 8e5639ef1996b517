"""`spec.measure`: three lines, and never in the way of a migration."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.observations import Situation, cluster, open_gate, zookeeper

from kraftbridge.models.decision import Action, Decision, RemoveProbeTopic, StartProbe
from kraftbridge.models.measurement import MeasuredMode, Measurement, ProbeResult
from kraftbridge.models.observation import ActionOutcome
from kraftbridge.models.phase import FORWARD, Phase, Target
from kraftbridge.models.status import WaitKind

POINTS = [
    (Phase.PROVISIONING_QUORUM, MeasuredMode.ZOOKEEPER),
    (Phase.DUAL_WRITE, MeasuredMode.DUAL_WRITE),
    (Phase.COMPLETED, MeasuredMode.KRAFT),
]
RESULT = ProbeResult("", 20, 2.0, 9.0, 3.0, 11.0)


def measuring(phase: Phase) -> Situation:
    return open_gate(phase).asking(measure=True)


def probes(decision: Decision) -> list[Action]:
    return [a for a in decision.actions if isinstance(a, StartProbe | RemoveProbeTopic)]


def begun(phase: Phase) -> tuple[Situation, StartProbe]:
    fine = measuring(phase)
    decision = fine.decide()
    (probe,) = probes(decision)
    assert isinstance(probe, StartProbe)
    return fine.after(decision), probe


@pytest.mark.parametrize(("phase", "mode"), POINTS)
def test_each_line_is_measured_once_and_then_the_gate_is_as_open_as_before(phase: Phase, mode: MeasuredMode) -> None:
    waiting, probe = begun(phase)
    (line,) = waiting.status.measurements
    assert (line.mode, line.finished_at, waiting.status.phase) == (mode, None, phase)
    again = waiting.later(5).decide()
    assert not probes(again), "it is under way"
    assert again.status.phase is phase
    assert again.status.waiting is not None
    assert again.status.waiting.kind is WaitKind.HOLD
    done = waiting.later(10).observing(probe=replace(RESULT, topic=probe.topic)).decide()
    (line,) = done.status.measurements
    assert (line.changes, line.acknowledged_p50_ms, line.visible_p99_ms, line.note) == (20, 2.0, 11.0, "")
    assert line.finished_at is not None
    without = open_gate(phase).decide()
    assert done.status.phase is without.status.phase
    assert not probes(done)
    assert not probes(waiting.after(done).later(11).decide())


@pytest.mark.parametrize("phase", FORWARD)
def test_nothing_is_measured_unasked(phase: Phase) -> None:
    decision = open_gate(phase).decide()
    assert not probes(decision)
    assert decision.status.measurements == ()


@pytest.mark.parametrize("phase", [p for p, _ in POINTS])
def test_an_unhealthy_cluster_is_not_measured(phase: Phase) -> None:
    assert not probes(
        measuring(phase).observing(cluster=cluster(under_replicated=("orders-0",), under_replicated_count=1)).decide()
    )


def test_a_blocked_preflight_is_not_measured() -> None:
    blocked = measuring(Phase.PREFLIGHT).observing(zookeeper=zookeeper(taken_over=False, brokers=()))
    decision = blocked.decide()
    assert decision.status.phase is Phase.PREFLIGHT
    assert not probes(decision)


@pytest.mark.parametrize("phase", [p for p, _ in POINTS])
def test_a_failed_probe_is_a_note_and_no_more(phase: Phase) -> None:
    waiting, probe = begun(phase)
    words = "CreateTopic refused: TopicAuthorizationFailedError (29); the principal needs Create on the topic"
    done = waiting.later(1).observing(probe=ProbeResult(probe.topic, note=words)).decide()
    assert done.status.measurements[0].note == words
    assert done.status.measurements[0].visible_p50_ms is None
    assert done.status.phase is open_gate(phase).decide().status.phase


@pytest.mark.parametrize("phase", [p for p, _ in POINTS])
def test_a_probe_that_died_with_its_operator_is_not_waited_for_and_its_topic_is_removed(phase: Phase) -> None:
    waiting, probe = begun(phase)
    assert not probes(waiting.later(44).decide())
    given_up = waiting.later(46)
    decision = given_up.decide()
    assert probes(decision) == [RemoveProbeTopic(probe.topic)]
    failed = given_up.after(decision).later(1).observing(outcomes=(ActionOutcome("RemoveProbeTopic", "no broker"),))
    assert probes(failed.decide()) == [RemoveProbeTopic(probe.topic)]
    done = given_up.after(decision).later(1).decide()
    assert not probes(done)
    (line,) = done.status.measurements
    assert line.finished_at is not None
    assert "restarted" in line.note
    assert done.status.phase is open_gate(phase).decide().status.phase
    patience = given_up.after(decision).later(91).observing(outcomes=failed.observation.outcomes).decide()
    assert patience.status.measurements[0].finished_at is not None, "not for ever"


def test_the_result_of_another_line_is_not_taken_for_this_one() -> None:
    waiting, _ = begun(Phase.DUAL_WRITE)
    other = replace(RESULT, topic="kraftbridge-probe-00000000-1-zookeeper")
    assert waiting.later(3).observing(probe=other).decide().status.measurements[0].finished_at is None


def test_a_rollback_in_the_middle_leaves_no_topic_and_no_open_line() -> None:
    waiting, probe = begun(Phase.DUAL_WRITE)
    left = waiting.asking(Target.ZOOKEEPER).decide()
    assert left.status.phase is Phase.ROLLING_BACK
    decision = waiting.asking(Target.ZOOKEEPER).after(left).later(50).decide()
    assert RemoveProbeTopic(probe.topic) in decision.actions


def test_a_second_attempt_is_measured_anew() -> None:
    former = Measurement(mode=MeasuredMode.ZOOKEEPER, attempt=1, started_at=open_gate(Phase.DUAL_WRITE).now)
    former = former.model_copy(update={"finished_at": former.started_at})
    second = measuring(Phase.PROVISIONING_QUORUM).with_status(attempt=2, measurements=(former,))
    (probe,) = probes(second.decide())
    assert "-2-" in probe.topic  # type: ignore[union-attr]
