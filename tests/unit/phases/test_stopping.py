"""A broker that had to be killed when it was restarted: what shows it, and what follows."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.observations import BROKER_IDS, NOW, Situation, rolling

from kraftbridge.models.conditions import ConditionType, Reason, condition
from kraftbridge.models.decision import Decision, RestartPod
from kraftbridge.models.observation import StartLog, Unobserved
from kraftbridge.models.phase import Phase
from kraftbridge.models.spec import AcceptedFinding
from kraftbridge.models.status import KilledBroker, Operation, OperationKind, WaitKind
from kraftbridge.phases.draft import StepContext
from kraftbridge.phases.nodes.stopping import wait_before_restart

GRACE = 300
DELETED_AT = NOW - timedelta(seconds=400)
DUE_AT = DELETED_AT + timedelta(seconds=GRACE)


def restarts(decision: Decision) -> list[int]:
    return [action.node_id for action in decision.actions if isinstance(action, RestartPod)]


def with_pod(situation: Situation, broker: int, **changes: Any) -> Situation:
    (item,) = situation.observation.stateful_sets
    pods = tuple(replace(p, **changes) if p.ordinal == broker else p for p in item.pods)  # type: ignore[union-attr]
    return situation.observing(stateful_sets=(replace(item, pods=pods),))  # type: ignore[type-var]


def stopping(phase: Phase, **seen: Any) -> Situation:
    """Return a roll in which the first broker stops; ``seen`` is what its pod shows."""
    fine = rolling(phase, 0)
    operation = Operation(
        kind=OperationKind.RESTART_BROKER, node_id=0, pod="kafka-0", pod_uid="old", started_at=DELETED_AT, serving=True
    )
    shown = {"uid": "old", "deleting": True, "ready": False, "kill_due_at": DUE_AT, "grace_seconds": GRACE} | seen
    return with_pod(fine.with_status(operation=operation), 0, **shown)


def returned(
    phase: Phase,
    after: float,
    exits: frozenset[tuple[str, int, str]] = frozenset(),
    *,
    seen: bool = True,
    **operation: Any,
) -> Situation:
    """Return the same once the next pod is back, which was created so many seconds after the deletion of the old one."""
    before = stopping(phase, exits=exits)
    status = before.step().status if seen else before.status
    assert status.operation is not None
    known = status.operation.model_copy(update=operation)
    back = rolling(phase, 1).with_status(operation=known)
    situation = with_pod(back, 0, uid="new", created_at=DELETED_AT + timedelta(seconds=after))
    return situation.observing(start_log=StartLog(process_of(situation), clean=True))


def process_of(situation: Situation) -> str:
    """Return the process of the first broker."""
    (item,) = situation.observation.stateful_sets
    return item.pods[0].process  # type: ignore[union-attr]


def killed(situation: Situation) -> KilledBroker | None:
    return situation.step().status.killed_broker


def accepting(situation: Situation, obj: str = "StatefulSet/kafka") -> Situation:
    accepted = (AcceptedFinding(code="BrokerKilled", object=obj),)
    return situation.asking(preflight=situation.spec.preflight.model_copy(update={"accepted": accepted}))


ROLLS = (Phase.TAKING_OVER, Phase.ROLLING_BROKERS)
KILLED = frozenset({("kafka", 137, "Error"), ("proxy", 0, "Completed")})
OUT_OF_MEMORY = frozenset({("kafka", 137, "OOMKilled")})
CLEAN = frozenset({("kafka", 143, "Error"), ("proxy", 137, "Error")})


def test_what_the_stopping_pod_shows_is_recorded_once() -> None:
    case = stopping(Phase.TAKING_OVER, exits=KILLED)
    decision = case.step()
    operation = decision.status.operation
    assert operation is not None
    assert (operation.kill_due_at, operation.grace_seconds, operation.exit_code) == (DUE_AT, GRACE, 137)
    assert case.after(decision).step().status.operation is operation
    # One that is shown no end any more keeps what was seen.
    gone = with_pod(case.after(decision), 0, exits=frozenset())
    assert gone.step().status.operation is operation


@pytest.mark.parametrize("phase", ROLLS)
@pytest.mark.parametrize(
    ("exits", "after", "words"),
    [
        (KILLED, 301, "it ran on for 300 s, and the kubelet killed it (exit code 137)"),
        (frozenset(), 300, "its pod was there for all of the 300 s that it had to end"),
        (frozenset(), 302, "its pod was there for all of the 300 s that it had to end"),
        (KILLED, 20, "its container was killed before its 300 s were over (exit code 137)"),
        (OUT_OF_MEMORY, 20, "it reached its memory limit while it ended"),
        (OUT_OF_MEMORY, 301, "it reached its memory limit while it ended"),
    ],
)
def test_a_broker_that_had_to_be_killed_is_recorded(phase: Phase, exits: Any, after: int, words: str) -> None:
    found = killed(returned(phase, after, exits))
    assert found is not None
    assert (found.node_id, found.pod, found.stateful_set, found.attempt) == (0, "kafka-0", "kafka", 1)
    assert (found.seconds, found.grace_seconds) == (after, GRACE)
    assert found.killed_at == DELETED_AT + timedelta(seconds=after)
    assert words in found.reason


@pytest.mark.parametrize(
    ("exits", "after"),
    [
        (frozenset(), 12),
        (frozenset(), 299),
        (CLEAN, 12),
        (CLEAN, 301),  # another container took the whole time
        (frozenset({("kafka", 0, "Completed")}), 301),
        (frozenset({("kafka", 1, "Error")}), 12),
    ],
)
def test_a_broker_that_ended_by_itself_is_none(exits: Any, after: int) -> None:
    assert killed(returned(Phase.TAKING_OVER, after, exits)) is None


UNCLEAN = "Recovering 61 logs from /data since no clean shutdown file was found"


def test_a_kafka_that_its_init_process_left_behind_is_told_by_the_next_start() -> None:
    """``tini`` around ``bash -c`` without ``exec``: the shell ends with 143 at once, and Kafka is killed with the container."""
    for seen, seconds in ((True, 12), (False, 0)):
        back = returned(Phase.TAKING_OVER, 12, CLEAN, seen=seen)
        process = process_of(back)
        found = killed(back.observing(start_log=StartLog(process, unclean=UNCLEAN)))
        assert found is not None
        assert found.reason == f"the next Kafka says: {UNCLEAN}"
        assert found.seconds == seconds
        assert killed(back.observing(start_log=StartLog("another", unclean=UNCLEAN))) is None
        assert killed(back.observing(start_log=StartLog(process, clean=True))) is None
    down_before = returned(Phase.TAKING_OVER, 12, CLEAN, serving=False)
    assert killed(down_before.observing(start_log=StartLog(process, unclean=UNCLEAN))) is None


def test_an_end_that_nobody_saw_is_known_by_the_next_start_alone() -> None:
    unseen = returned(Phase.TAKING_OVER, 400, seen=False)
    assert killed(unseen) is None
    silent = StartLog(process_of(unseen), whole=True)
    found = killed(unseen.observing(start_log=silent))
    assert found is not None
    assert (found.node_id, found.seconds) == (0, 0)
    assert (
        found.reason
        == "nobody saw it end, and the log of its next start has no line of LogManager that says how it did"
    )
    rolled_back = unseen.status.model_copy(update={"phase": Phase.ROLLING_BACK})
    assert killed(replace(unseen, status=rolled_back).observing(start_log=silent)) is None


@pytest.mark.parametrize("exits", [frozenset(), CLEAN, frozenset({("kafka", 0, "Completed")})])
def test_an_end_in_time_is_not_known_while_the_next_start_logs_nothing(exits: Any) -> None:
    """A shell that leaves Kafka behind ends in time, too, with 143 or with 0."""
    seen = returned(Phase.TAKING_OVER, 12, exits)
    silent = seen.observing(start_log=StartLog(process_of(seen), whole=True))
    found = killed(silent)
    assert found is not None
    assert "its pod went in time" in found.reason
    assert "no line of LogManager" in found.reason
    rolled_back = silent.status.model_copy(update={"phase": Phase.ROLLING_BACK})
    assert killed(replace(silent, status=rolled_back)) is None


def test_silence_counts_only_in_a_log_that_was_read_after_the_broker_was_back() -> None:
    """``LogManager`` says it while the broker starts; an answer of 4 s ago is from before that, and the broker serves by now."""
    back = returned(Phase.TAKING_OVER, 12, CLEAN)
    process = process_of(back)
    early = back.observing(start_log=StartLog(process))
    decision = early.step()
    assert decision.status.killed_broker is None
    assert decision.status.operation is not None
    assert decision.status.operation.back_process == process
    assert "the log of pod kafka-0 is not read yet" in decision.status.message
    later = early.after(decision)
    assert killed(later) is None
    told = later.observing(start_log=StartLog(process, clean=True, whole=True)).step()
    assert told.status.operation is None
    assert told.status.killed_broker is None
    assert killed(later.observing(start_log=StartLog(process, whole=True))) is not None


def test_what_the_next_start_told_once_holds() -> None:
    """Its line leaves the log with the next rotation, and another process of the pod tells of its own end."""
    back = returned(Phase.TAKING_OVER, 12, CLEAN)
    process = process_of(back)
    starting = with_pod(back, 0, ready=False)
    told = starting.observing(start_log=StartLog(process, clean=True)).step()
    assert told.status.operation is not None
    assert told.status.operation.clean_start
    rotated = back.with_status(operation=told.status.operation)
    for log in (StartLog(process), StartLog(process, unclean=UNCLEAN), Unobserved("log of pod kafka-0", "403")):
        ended = rotated.observing(start_log=log).step()
        assert ended.status.operation is None
        assert ended.status.killed_broker is None


def test_the_next_pod_may_be_replaced_in_its_turn() -> None:
    """A drain, or somebody's hand: the pod after that is created when the old one was long gone, and its log tells of another end."""
    back = returned(Phase.TAKING_OVER, 12)
    starting = with_pod(back, 0, ready=False).observing(start_log=StartLog(""))
    seen = starting.step().status.operation
    assert seen is not None
    assert seen.replaced_at == DELETED_AT + timedelta(seconds=12)
    again = with_pod(back.with_status(operation=seen), 0, uid="newer", created_at=DUE_AT + timedelta(seconds=30))
    clean = again.observing(start_log=StartLog(process_of(again), clean=True, whole=True)).step()
    assert clean.status.operation is None
    assert clean.status.killed_broker is None
    crashed = killed(again.observing(start_log=StartLog(process_of(again), unclean=UNCLEAN, whole=True)))
    assert crashed is not None
    assert UNCLEAN not in crashed.reason, "that is the end of the pod between them"
    assert "has no line of LogManager" in crashed.reason


def test_a_container_that_starts_again_tells_of_its_own_crash() -> None:
    """Kafka crashed once more before its log was read: the next log of that pod names the crash, not the restart."""
    back = returned(Phase.TAKING_OVER, 12)
    again = with_pod(back, 0, started_again=frozenset({back.spec.brokers.container}))
    crashed = killed(again.observing(start_log=StartLog(process_of(again), unclean=UNCLEAN, whole=True)))
    assert crashed is not None
    assert UNCLEAN not in crashed.reason
    sidecar = with_pod(back, 0, started_again=frozenset({"exporter"}))
    told = killed(sidecar.observing(start_log=StartLog(process_of(sidecar), unclean=UNCLEAN, whole=True)))
    assert told is not None
    assert UNCLEAN in told.reason


@pytest.mark.parametrize("seen", [True, False])
def test_a_restart_is_over_only_when_the_log_of_the_next_start_was_read(seen: bool) -> None:
    back = returned(Phase.TAKING_OVER, 12, seen=seen)
    assert back.step().status.operation is None
    for log in (Unobserved("log of pod kafka-0", "403"), StartLog("")):
        unread = back.observing(start_log=log)
        decision = unread.step()
        assert decision.status.operation is not None
        assert restarts(unread.decide()) == []
        assert "broker 0 is back, and how it ended before is not known: " in decision.status.message
        assert accepting(unread).step().status.operation is None
    assert (
        "log of pod kafka-0 could not be observed: 403"
        in back.observing(start_log=Unobserved("log of pod kafka-0", "403")).step().status.message
    )


def test_what_was_down_before_is_not_judged() -> None:
    down = returned(Phase.TAKING_OVER, 400, KILLED, serving=False)
    assert killed(down) is None
    assert down.observing(start_log=Unobserved("log", "403")).step().status.operation is None


def after_a_kill(phase: Phase, **changes: Any) -> Situation:
    fields: dict[str, Any] = {
        "node_id": 0,
        "pod": "kafka-0",
        "stateful_set": "kafka",
        "attempt": 1,
        "killed_at": NOW - timedelta(seconds=60),
        "seconds": 301,
        "grace_seconds": GRACE,
        "reason": "it ran on for 300 s, and the kubelet killed it (exit code 137)",
    }
    return rolling(phase, 1).with_status(killed_broker=KilledBroker(**(fields | changes)))


@pytest.mark.parametrize("phase", ROLLS)
def test_no_other_broker_restarts_after_one_was_killed_until_the_user_accepts_it(phase: Phase) -> None:
    following = restarts(rolling(phase, 1).decide())
    assert len(following) == 1
    held = after_a_kill(phase).decide()
    assert restarts(held) == []
    assert (
        "BrokerKilled on StatefulSet/kafka: Broker 0 (pod kafka-0) is not known to have ended by itself"
        in held.status.message
    )
    assert "after 301 s: it ran on for 300 s" in held.status.message
    assert held.status.waiting is not None
    assert held.status.waiting.kind is WaitKind.USER
    stalled = condition(held.status.conditions, ConditionType.STALLED)
    assert stalled is not None
    assert (stalled.status, stalled.reason) == ("True", Reason.FINDINGS)
    assert restarts(accepting(after_a_kill(phase)).decide()) == following
    assert restarts(accepting(after_a_kill(phase), "*").decide()) == following
    assert restarts(accepting(after_a_kill(phase), "StatefulSet/other").decide()) == []


def test_more_time_lets_the_roll_go_on_where_time_was_short() -> None:
    assert restarts(after_a_kill(Phase.TAKING_OVER).pacing(termination_grace_seconds=GRACE).decide()) == []
    assert restarts(after_a_kill(Phase.TAKING_OVER).pacing(termination_grace_seconds=GRACE + 1).decide()) != []
    early = after_a_kill(Phase.TAKING_OVER, seconds=20)
    assert restarts(early.pacing(termination_grace_seconds=GRACE + 1).decide()) == []


def test_a_kill_of_an_earlier_attempt_holds_nothing() -> None:
    assert restarts(after_a_kill(Phase.TAKING_OVER, attempt=0).decide()) != []


def test_a_broker_that_is_down_is_brought_back_nevertheless() -> None:
    down = with_pod(after_a_kill(Phase.TAKING_OVER), 2, ready=False, ready_since=None, trouble="CrashLoopBackOff: x")
    without = {i: replace(view, brokers=frozenset({0, 1})) for i, view in down.observation.cluster_by_broker.items()}  # type: ignore[union-attr,type-var]
    seen = down.observing(
        cluster=replace(down.observation.cluster, brokers=frozenset({0, 1})),  # type: ignore[type-var]
        cluster_by_broker={i: without[i] for i in BROKER_IDS if i != 2},
    )
    assert restarts(seen.decide()) == [2]


def test_a_broker_that_hung_when_its_restart_was_recorded_keeps_running_once_it_serves_again() -> None:
    """Broker 0 was killed. The API server was away for twenty minutes before broker 2 stopped, which hung no longer."""
    served = after_a_kill(Phase.TAKING_OVER)
    (item,) = served.observation.stateful_sets
    operation = Operation(
        kind=OperationKind.RESTART_BROKER,
        node_id=2,
        pod="kafka-2",
        pod_uid=item.pods[2].uid,  # type: ignore[union-attr]
        started_at=NOW - timedelta(seconds=20),
        serving=True,
    )
    recorded = served.with_status(operation=operation)
    held = recorded.decide()
    assert restarts(held) == []
    assert held.status.operation is None
    assert "its restart was cancelled before its pod stopped: BrokerKilled on StatefulSet/kafka" in held.status.message
    assert restarts(accepting(recorded).decide()) == [2]


def test_a_rollback_goes_on() -> None:
    case = after_a_kill(Phase.ROLLING_BROKERS)
    for phase, holds in ((Phase.ROLLING_BROKERS, True), (Phase.ROLLING_BACK, False)):
        status = case.status.model_copy(update={"phase": phase})
        step = StepContext(case.identity, case.spec, case.observation, case.now, status)
        assert (wait_before_restart(step) is not None) is holds
