"""The rehearsal in preflight: it is awaited, judged, repeated, and closes the gate unless its finding is accepted by name."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.support.observations import (
    IDENTITY,
    NOW,
    REHEARSAL,
    REHEARSED,
    Situation,
    open_gate,
    rehearsed,
    spec_document,
)

from kraftbridge.models.conditions import ConditionType, condition
from kraftbridge.models.decision import (
    CollectRun,
    Decision,
    FenceRun,
    LaunchRun,
    RemoveRun,
)
from kraftbridge.models.entities import EntityKind
from kraftbridge.models.observation import RehearsalProgress, RehearsalRun, RehearsalState, Unobserved
from kraftbridge.models.phase import Phase, Target
from kraftbridge.models.rehearsal import (
    Ending,
    Forecast,
    Mend,
    RehearsalResult,
    RehearsalVerdict,
    TreeSize,
    heap_bytes,
)
from kraftbridge.models.report import AttributeDifference, Difference, DifferenceState
from kraftbridge.models.runs import RunKind
from kraftbridge.models.spec import AcceptedFinding, MigrationSpec, RehearsalSpec
from kraftbridge.models.status import (
    RehearsalRunStatus,
    RehearsalStatus,
    RehearsedLoss,
    WaitKind,
    tuned_controllers,
)

RUN, DIGEST = REHEARSAL, REHEARSED
MIB = 1 << 20


def enabled(phase: Phase = Phase.PREFLIGHT, **changes: Any) -> Situation:
    """Return a healthy situation with a rehearsal that nobody has begun."""
    return open_gate(phase).asking(rehearsal=RehearsalSpec(**changes)).with_status(rehearsal=None)


def under_way(progress: RehearsalProgress, launched_at: datetime = NOW, **run: Any) -> Situation:
    record = RehearsalStatus(
        count=1, running=RehearsalRunStatus(run_id=RUN, digest=DIGEST, launched_at=launched_at)
    )  # fmt: skip
    state = RehearsalState(DIGEST, RehearsalRun(RUN, progress, **run))
    return enabled().with_status(rehearsal=record).observing(rehearsal=state)


def result(verdict: RehearsalVerdict = RehearsalVerdict.WORKS, **changes: Any) -> RehearsalResult:
    fields: dict[str, Any] = {
        "verdict": verdict,
        "reason": "as it is",
        "ending": Ending.DUAL_WRITE,
        "tree": TreeSize(partitions=330),
        "forecast": Forecast(copy_seconds=1.5, sync_seconds=1.0, no_controller_seconds=2.75, heap_bytes=128 * MIB),
        "started_at": NOW,
        "finished_at": NOW,
    }
    return RehearsalResult(**(fields | changes))


def passed(decision: Decision) -> bool:
    found = condition(decision.status.conditions, ConditionType.PREFLIGHT_PASSED)
    return found is not None and found.status == "True"


def blocking(decision: Decision) -> list[tuple[str, str]]:
    return [(f.code, f.object) for f in decision.status.findings if f.severity == "Blocking" and not f.accepted]


def test_a_rehearsal_is_on_unless_spec_says_otherwise() -> None:
    assert MigrationSpec.model_validate(spec_document()).rehearsal.enabled


def test_nothing_is_rehearsed_where_spec_says_so() -> None:
    decision = enabled(enabled=False).decide()
    assert decision.status.phase is Phase.PROVISIONING_QUORUM
    assert decision.status.rehearsal is None


def test_preflight_rehearses_before_anything_is_touched() -> None:
    decision = enabled().decide()
    assert decision.status.phase is Phase.PREFLIGHT
    assert LaunchRun(RunKind.REHEARSAL, RUN) in decision.actions
    assert decision.status.rehearsal is not None
    assert decision.status.rehearsal.running is not None
    assert not passed(decision)


def test_it_is_launched_only_with_the_brokers_settings_on_record() -> None:
    """The controllers' configuration, and so what is judged, is made from them."""
    decision = enabled().with_status(broker_settings={}).decide()
    assert decision.actions == ()
    assert decision.status.phase is Phase.PREFLIGHT


@pytest.mark.parametrize(
    ("progress", "action"),
    [
        (RehearsalProgress.MISSING, LaunchRun(RunKind.REHEARSAL, RUN)),
        (RehearsalProgress.READING, None),
        (RehearsalProgress.UNFENCED, FenceRun(RunKind.REHEARSAL, RUN)),
        (RehearsalProgress.RUNNING, None),
        (RehearsalProgress.ENDED, CollectRun(RunKind.REHEARSAL, RUN)),
    ],
)
def test_each_step_of_its_pod_is_followed(progress: RehearsalProgress, action: object) -> None:
    decision = under_way(progress).decide()
    assert decision.actions == (() if action is None else (action,))
    assert decision.status.phase is Phase.PREFLIGHT
    assert not passed(decision)


def test_a_rehearsal_that_works_opens_the_gate_and_is_on_record() -> None:
    case = under_way(RehearsalProgress.FINISHED, result=result())
    decision = case.decide()
    record = decision.status.rehearsal
    assert record is not None
    assert (record.verdict, record.copy_seconds, record.sync_seconds) == (RehearsalVerdict.WORKS, 1.5, 1.0)
    assert (record.seconds_without_controller, record.heap_needed_bytes, record.partitions) == (2.75, 128 * MIB, 330)
    assert decision.status.impact.forecast_takeover_milliseconds == 2750
    assert RemoveRun(RunKind.REHEARSAL, RUN, keep_report=True) in decision.actions
    following = case.after(decision).observing(rehearsal=RehearsalState(DIGEST)).decide()
    assert following.status.phase is Phase.PROVISIONING_QUORUM


@pytest.mark.parametrize(
    ("verdict", "code", "obj"),
    [
        (RehearsalVerdict.FAILS, "RehearsalFails", "rehearsal"),
        (RehearsalVerdict.UNKNOWN, "RehearsalUnknown", "rehearsal"),
        (RehearsalVerdict.LOSES, "RehearsalLoses", "topic-config t"),
    ],
)
def test_another_verdict_closes_the_gate_until_it_is_accepted_by_name(
    verdict: RehearsalVerdict, code: str, obj: str
) -> None:
    losses = (RehearsedLoss(entity="topic-config t", what="it is gone"),) if verdict is RehearsalVerdict.LOSES else ()
    case = enabled().with_status(rehearsal=rehearsed(verdict, losses=losses, differing=len(losses)))
    decision = case.decide()
    assert decision.status.phase is Phase.PREFLIGHT
    assert blocking(decision) == [(code, obj)]
    assert decision.actions == ()  # repeated a minute later, not at once
    accepted = case.spec.preflight.model_copy(update={"accepted": (AcceptedFinding(code=code, object=obj),)})
    assert case.asking(preflight=accepted).decide().status.phase is Phase.PROVISIONING_QUORUM
    other = case.spec.preflight.model_copy(update={"accepted": (AcceptedFinding(code=code, object="another"),)})
    assert case.asking(preflight=other).decide().status.phase is Phase.PREFLIGHT


def test_every_lost_entity_is_named_and_the_rest_is_counted() -> None:
    differences = [
        Difference(kind=EntityKind.TOPIC, key=f"t{i}", state=DifferenceState.EXTRA, absent_in=["log"])
        for i in range(30)
    ]  # fmt: skip
    found = result(RehearsalVerdict.LOSES, differing=40, differences=differences)
    case = under_way(RehearsalProgress.FINISHED, result=found)
    following = case.after(case.decide()).observing(rehearsal=RehearsalState(DIGEST)).decide()
    objects = [obj for code, obj in blocking(following) if code == "RehearsalLoses"]
    assert len(objects) == 21
    assert {"topic t0", "topic t19", "rehearsal"} <= set(objects)
    rest = next(f for f in following.status.findings if f.object == "rehearsal")
    assert "20 of 40" in rest.reason


def test_a_loss_without_a_lost_entity_is_told_by_its_reason() -> None:
    """The copy is whole, and the sync left ZooKeeper otherwise."""
    case = enabled().with_status(rehearsal=rehearsed(RehearsalVerdict.LOSES, losses=(), differing=0))
    (found,) = (f for f in case.decide().status.findings if f.code == "RehearsalLoses")
    assert found.object == "rehearsal"
    assert "findings of their own" not in found.reason


def test_a_changed_entity_is_told_by_its_attributes() -> None:
    changed = Difference(
        kind=EntityKind.TOPIC,
        key="t",
        state=DifferenceState.CHANGED,
        attributes=[AttributeDifference(name="id", values={})],
    )
    case = under_way(RehearsalProgress.FINISHED, result=result(RehearsalVerdict.LOSES, differing=1, differences=[changed]))  # fmt: skip
    record = case.decide().status.rehearsal
    assert record is not None
    assert record.losses == (RehearsedLoss(entity="topic t", what="the copy changes id"),)


def test_a_failure_names_the_znode_and_what_mends_it() -> None:
    mend = Mend(
        code="QuotaInvalid", znode="/config/users/u", problem="unknown", command="kafka-configs --delete-config x"
    )
    case = under_way(RehearsalProgress.FINISHED, result=result(RehearsalVerdict.FAILS, mends=[mend]))
    following = case.after(case.decide()).observing(rehearsal=RehearsalState(DIGEST)).decide()
    (finding,) = [f for f in following.status.findings if f.code == "RehearsalFails"]
    assert "/config/users/u: kafka-configs --delete-config x" in finding.fix


def test_what_closes_the_gate_is_repeated_a_minute_later_and_stays_visible_meanwhile() -> None:
    case = enabled().with_status(rehearsal=rehearsed(RehearsalVerdict.FAILS, seconds_ago=61))
    decision = case.decide()
    second = RUN[:-1] + "2"
    assert decision.actions == (LaunchRun(RunKind.REHEARSAL, second),)
    assert blocking(decision) == [("RehearsalFails", "rehearsal")]
    assert decision.requeue_after < timedelta(seconds=1)  # its pod is followed
    state = RehearsalState(DIGEST, RehearsalRun(second, RehearsalProgress.FINISHED, result=result()))
    mended = case.after(decision).observing(rehearsal=state).decide()
    assert RemoveRun(RunKind.REHEARSAL, RUN, keep_report=False) in mended.actions  # the report before
    assert case.after(mended).observing(rehearsal=RehearsalState(DIGEST)).decide().status.phase is (
        Phase.PROVISIONING_QUORUM
    )


def test_a_long_rehearsal_is_repeated_less_often() -> None:
    record = rehearsed(RehearsalVerdict.FAILS, seconds_ago=100, launched_at=NOW - timedelta(seconds=400))
    assert enabled().with_status(rehearsal=record).decide().actions == ()


def test_an_accepted_finding_is_not_repeated() -> None:
    case = enabled().with_status(rehearsal=rehearsed(RehearsalVerdict.FAILS, seconds_ago=3000))
    accepted = case.spec.preflight.model_copy(update={"accepted": (AcceptedFinding(code="RehearsalFails"),)})
    assert case.asking(preflight=accepted).decide().status.phase is Phase.PROVISIONING_QUORUM


@pytest.mark.parametrize("phase", [Phase.PREFLIGHT, Phase.PROVISIONING_QUORUM])
def test_it_is_repeated_when_what_it_judged_changed_or_when_it_is_old(phase: Phase) -> None:
    works = enabled(phase, max_age_seconds=600).with_status(rehearsal=rehearsed(RehearsalVerdict.WORKS))
    assert works.decide().status.phase is not phase
    changed = works.observing(rehearsal=RehearsalState("another digest")).decide()
    assert changed.status.phase is phase
    assert changed.actions == (LaunchRun(RunKind.REHEARSAL, RUN[:-1] + "2"),)
    old = works.with_status(rehearsal=rehearsed(RehearsalVerdict.WORKS, seconds_ago=601)).decide()
    assert old.actions == (LaunchRun(RunKind.REHEARSAL, RUN[:-1] + "2"),)


def test_a_verdict_that_fails_before_the_takeover_closes_that_gate_too() -> None:
    case = enabled(Phase.PROVISIONING_QUORUM).with_status(rehearsal=rehearsed(RehearsalVerdict.FAILS))
    decision = case.decide()
    assert decision.status.phase is Phase.PROVISIONING_QUORUM
    assert decision.status.waiting is not None
    assert decision.status.waiting.kind is WaitKind.USER
    assert "RehearsalFails" in decision.status.message


@pytest.mark.parametrize("phase", [Phase.PREFLIGHT, Phase.PROVISIONING_QUORUM])
def test_unknown_is_never_yes(phase: Phase) -> None:
    works = enabled(phase).with_status(rehearsal=rehearsed(RehearsalVerdict.WORKS))
    blind = works.observing(rehearsal=Unobserved("rehearsal", "403")).decide()
    assert blind.status.phase is phase
    assert blind.actions == ()


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (under_way(RehearsalProgress.CANNOT_START, message="ErrImagePull"), "ErrImagePull"),
        (under_way(RehearsalProgress.RUNNING, launched_at=NOW - timedelta(seconds=1801)), "no result within 1800 s"),
        (under_way(RehearsalProgress.FINISHED, message="it cannot be read"), "it cannot be read"),
    ],
    ids=["never starts", "hangs", "unreadable"],
)
def test_a_rehearsal_without_a_result_is_unknown(case: Situation, words: str) -> None:
    decision = case.decide()
    record = decision.status.rehearsal
    assert record is not None
    assert record.verdict is RehearsalVerdict.UNKNOWN
    assert words in record.reason
    assert RemoveRun(RunKind.REHEARSAL, RUN, keep_report=True) in decision.actions
    following = case.after(decision).observing(rehearsal=RehearsalState(DIGEST)).decide()
    assert blocking(following) == [("RehearsalUnknown", "rehearsal")]


def test_another_blocking_finding_is_dealt_with_first() -> None:
    case = enabled()
    blind = case.observing(redundancy=Unobserved("topics", "silent")).decide()
    assert not any(isinstance(a, LaunchRun) for a in blind.actions)


def test_a_heap_that_is_too_small_blocks() -> None:
    case = enabled().with_status(rehearsal=rehearsed(RehearsalVerdict.WORKS, heap_needed_bytes=832 * MIB))
    controllers = case.spec.controllers.model_copy(update={"heap_options": "-Xms512m -Xmx512m"})
    small = case.asking(controllers=controllers).decide()
    assert blocking(small) == [("ControllerHeapTooSmall", "controllers")]
    assert "832 MiB; spec.controllers.heapOptions allows 512 MiB" in small.status.findings[0].reason
    controllers = case.spec.controllers.model_copy(update={"heap_options": "-Xmx1g"})
    assert case.asking(controllers=controllers).decide().status.phase is Phase.PROVISIONING_QUORUM


def test_without_a_heap_in_spec_the_controllers_get_what_the_rehearsals_called_for() -> None:
    """It only grows: another one would restart the controllers."""
    case = enabled()
    assert tuned_controllers(case.spec, case.status).heap_options == "-Xms512m -Xmx512m"
    for measured, options in [(640, "-Xms640m -Xmx640m"), (576, "-Xms640m -Xmx640m"), (768, "-Xms768m -Xmx768m")]:
        running = RehearsalRunStatus(run_id=RUN, digest=DIGEST, launched_at=NOW)
        record = (case.status.rehearsal or RehearsalStatus()).model_copy(update={"running": running})
        forecast = Forecast(heap_bytes=measured * MIB)
        run = RehearsalRun(RUN, RehearsalProgress.FINISHED, result=result(forecast=forecast))
        following = case.with_status(rehearsal=record).observing(rehearsal=RehearsalState(DIGEST, run))
        case = following.after(following.decide()).observing(rehearsal=RehearsalState(DIGEST))
        assert tuned_controllers(case.spec, case.status).heap_options == options
    assert case.decide().status.phase is Phase.PROVISIONING_QUORUM
    own = case.asking(controllers=case.spec.controllers.model_copy(update={"heap_options": "-Xmx2g"}))
    assert tuned_controllers(own.spec, own.status).heap_options == "-Xmx2g"


def test_a_memory_limit_that_has_no_room_for_the_tuned_heap_blocks() -> None:
    case = enabled().with_status(rehearsal=rehearsed(RehearsalVerdict.WORKS, heap_needed_bytes=768 * MIB))
    assert case.decide().status.phase is Phase.PROVISIONING_QUORUM, "its limit is 1 GiB, of which 256 MiB are not heap"
    small = case.with_status(rehearsal=rehearsed(RehearsalVerdict.WORKS, heap_needed_bytes=832 * MIB)).decide()
    assert blocking(small) == [("ControllerHeapTooSmall", "controllers")]
    assert "the memory limit in spec.controllers.resources allows 768 MiB" in small.status.findings[0].reason
    assert "at least 1088 MiB" in small.status.findings[0].fix


@pytest.mark.parametrize(
    ("options", "expected"),
    [("-Xms512m -Xmx512m", 512 * MIB), ("-Xmx1g -Xmx2G", 2048 * MIB), ("-Xmx1024", 1024), ("-Xms1g", None), ("", None)],
)
def test_the_heap_that_options_give(options: str, expected: int | None) -> None:
    assert heap_bytes(options) == expected


def test_the_batch_size_that_was_measured_stays() -> None:
    """Another one would restart the controllers."""
    case = under_way(RehearsalProgress.FINISHED, result=result())
    record = case.status.rehearsal
    assert record is not None
    before = record.model_copy(update={"minimum_batch_size": 2000})
    after = case.with_status(rehearsal=before).decide().status.rehearsal
    assert after is not None
    assert after.minimum_batch_size == 2000


def test_a_rehearsal_that_is_launched_or_ends_is_progress() -> None:
    """The phase's deadline counts from the last progress."""
    for case in (enabled(), under_way(RehearsalProgress.FINISHED, result=result())):
        assert case.decide().status.progress_at == NOW


def test_switched_off_while_it_runs_it_is_removed() -> None:
    case = under_way(RehearsalProgress.RUNNING).asking(rehearsal=RehearsalSpec(enabled=False))
    decision = case.decide()
    assert RemoveRun(RunKind.REHEARSAL, RUN, keep_report=False) in decision.actions
    assert decision.status.phase is Phase.PROVISIONING_QUORUM


def test_status_survives_the_api_server() -> None:
    decision = under_way(RehearsalProgress.FINISHED, result=result()).decide()
    text = decision.status.model_dump_json(by_alias=True, exclude_none=True)
    assert type(decision.status).model_validate_json(text) == decision.status
    assert replace(IDENTITY, rehearse="again") != IDENTITY


def test_a_result_that_is_collected_late_is_as_old_as_it_is() -> None:
    """The operator was away for two hours while the rehearsal's result waited for it."""
    finished = NOW - timedelta(hours=2)
    case = under_way(RehearsalProgress.FINISHED, result=result(finished_at=finished))
    record = case.decide().status.rehearsal
    assert record is not None
    assert record.finished_at == finished
    late = enabled(max_age_seconds=3600).with_status(rehearsal=record)
    assert [type(a) for a in late.decide().actions] == [LaunchRun]


def test_a_quorum_that_waits_for_the_user_rehearses_on_demand_and_not_by_age() -> None:
    """The annotation is part of the fingerprint."""
    old = rehearsed(RehearsalVerdict.WORKS, seconds_ago=601)
    waiting = enabled(Phase.PROVISIONING_QUORUM, max_age_seconds=600).asking(Target.QUORUM_READY)
    assert waiting.with_status(rehearsal=old).decide().actions == ()
    asked = waiting.with_status(rehearsal=old).observing(rehearsal=RehearsalState("asked again")).decide()
    assert asked.actions == (LaunchRun(RunKind.REHEARSAL, RUN[:-1] + "2"),)
