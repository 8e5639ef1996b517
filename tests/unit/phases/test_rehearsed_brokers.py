"""Brokers of a rehearsal: what Kafka refuses there is the finding, once, and what it did not judge the table judges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from e2e.harness.demo import KAFKA_SAYS, static_lines
from tests.support.observations import (
    BROKER_IDS,
    NOW,
    REHEARSAL,
    REHEARSED,
    RUNNING,
    Situation,
    dry_start_of,
    open_gate,
    rehearsed,
    setting,
    survey,
)

from kraftbridge.models.decision import Decision, LaunchRun
from kraftbridge.models.observation import RehearsalProgress, RehearsalRun, RehearsalState, Unobserved
from kraftbridge.models.phase import Phase
from kraftbridge.models.rehearsal import (
    BrokerRehearsal,
    ComparedSetting,
    Ending,
    Judgement,
    RehearsalResult,
    RehearsalVerdict,
)
from kraftbridge.models.runs import RunKind
from kraftbridge.models.spec import AcceptedFinding, RehearsalSpec
from kraftbridge.models.status import FindingStatus, RehearsedBroker, RehearsedSetting
from kraftbridge.models.survey import BrokerSetting, SettingSource, Stated

FAILS, WORKS, UNKNOWN = RehearsalVerdict.FAILS, RehearsalVerdict.WORKS, RehearsalVerdict.UNKNOWN
SAID = (
    "not in force in KRaft mode: two: ERROR Per-broker configs of 1 could not be applied | Dynamic thread count "
    "update validation failed for num.io.threads=8, value should not be greater than double the current value 2"
)
THREADS = RehearsedSetting(name="num.io.threads", stored="8", holds="2", held=False)
RETENTION = RehearsedSetting(name="log.retention.ms", stored="-1", held=False)


def dynamic(name: str, value: str, static: str) -> BrokerSetting:
    stated = (Stated(SettingSource.DYNAMIC_BROKER, value), Stated(SettingSource.STATIC, static))
    return replace(setting(name, value, SettingSource.DYNAMIC_BROKER), stated=stated)


def situation(
    *settings: BrokerSetting,
    brokers: Sequence[RehearsedBroker] = (),
    phase: Phase = Phase.PREFLIGHT,
    **record: Any,
) -> Situation:
    """Return preflight with dynamic settings of broker 1, after a rehearsal."""
    running = dict.fromkeys(BROKER_IDS, RUNNING) | {1: (*RUNNING, *settings)}
    return (
        open_gate(phase)
        .asking(rehearsal=RehearsalSpec())
        .observing(survey=survey(brokers=running), dry_start=dry_start_of(brokers=running))
        .with_status(rehearsal=rehearsed(WORKS, brokers=tuple(brokers), **record))
    )


def of_brokers(decision: Decision) -> list[FindingStatus]:
    return [f for f in decision.status.findings if f.object.startswith("broker/") and not f.accepted]


def refused(*settings: RehearsedSetting, reason: str = SAID) -> RehearsedBroker:
    return RehearsedBroker(brokers=(1,), verdict=FAILS, reason=reason, settings=settings)


LIVE = (dynamic("num.io.threads", "8", "2"), dynamic("log.retention.ms", "-1", "604800000"))


def test_kafkas_own_refusal_is_one_finding_with_the_static_line_to_add() -> None:
    decision = situation(*LIVE, brokers=[refused(THREADS, RETENTION)]).decide()
    (found,) = of_brokers(decision)
    assert (found.code, found.object) == ("DynamicSettingsRefused", "broker/1")
    assert "refuses num.io.threads (8, static 2)" in found.reason
    assert "num.io.threads becomes 2, log.retention.ms becomes its static value" in found.reason
    assert found.reason.endswith(
        "Kafka, in the rehearsal: Dynamic thread count update validation failed for num.io.threads=8, "
        "value should not be greater than double the current value 2"
    )
    assert "static line num.io.threads=8 (" in found.fix
    assert "--add-config num.io.threads=4" in found.fix, "the table knows the steps of a thread pool"
    assert decision.status.phase is Phase.PREFLIGHT
    # The demonstration's trap mends what is told so.
    assert KAFKA_SAYS in found.reason
    assert static_lines(found.fix) == {"num.io.threads": "8"}


def test_a_refusal_that_no_table_has_is_found_and_names_what_kafka_names() -> None:
    reason = "not in force: ERROR Cluster default configs could not be applied | Invalid value 0 for log.segment.bytes"
    settings = [RehearsedSetting(name=name, stored="0", holds="7", held=False) for name in ("a.b", "log.segment.bytes")]
    live = [dynamic(name, "0", "7") for name in ("a.b", "log.segment.bytes")]
    (found,) = of_brokers(situation(*live, brokers=[refused(*settings, reason=reason)]).decide())
    assert "refuses log.segment.bytes (0, static 7), and" in found.reason
    assert "a.b becomes 7" in found.reason
    assert "static line log.segment.bytes=0 (" in found.fix
    (silent,) = of_brokers(situation(*live, brokers=[refused(*settings, reason="not in force")]).decide())
    assert "refuses a.b (0, static 7), log.segment.bytes (0, static 7)" in silent.reason


def test_a_setting_that_kafka_takes_is_no_finding_of_the_table() -> None:
    held = THREADS.model_copy(update={"held": True, "holds": "8"})
    works = RehearsedBroker(brokers=(0, 1), verdict=WORKS, reason="it starts", settings=(held,))
    decision = situation(LIVE[0], brokers=[works]).decide()
    assert of_brokers(decision) == []
    assert decision.status.phase is Phase.PROVISIONING_QUORUM


@pytest.mark.parametrize(
    ("runs", "holds", "is_found"),
    [("2", "8", True), ("8", "8", False), ("8.0", "8.0", False), (None, None, False)],
    ids=["refused today", "held", "as Kafka spells it", "a secret"],
)
def test_what_the_running_broker_refuses_and_a_start_in_kraft_mode_applies_is_found(
    runs: str | None, holds: str | None, *, is_found: bool
) -> None:
    stored = None if holds is None else "8"
    live = replace(dynamic("num.io.threads", "8", "4"), value=runs)
    live = replace(live, stated=(Stated(SettingSource.DYNAMIC_BROKER, stored), *live.stated[1:]))
    held = RehearsedSetting(name="num.io.threads", stored=stored, holds=holds, held=True)
    case = situation(live, brokers=[RehearsedBroker(brokers=(1,), verdict=WORKS, reason="it starts", settings=(held,))])
    decision = case.decide()
    found = [(f.code, f.object) for f in of_brokers(decision)]
    assert found == ([("DynamicSettingsTakeEffect", "broker/1")] if is_found else [])
    if is_found:
        assert "num.io.threads (now 2, in KRaft mode 8)" in of_brokers(decision)[0].reason


@pytest.mark.parametrize(
    "case",
    [
        situation(LIVE[0]),
        situation(LIVE[0], brokers=[RehearsedBroker(brokers=(0,), verdict=WORKS, reason="another")]),
        situation(LIVE[0], brokers=[RehearsedBroker(brokers=(1,), verdict=WORKS, reason="without it")]),
        situation(
            dynamic("num.io.threads", "9", "2"),
            brokers=[RehearsedBroker(brokers=(1,), verdict=WORKS, reason="8", settings=(THREADS,))],
        ),
        situation(LIVE[0], brokers=[refused(THREADS)], digest="of other static settings"),
        situation(LIVE[0], brokers=[refused(THREADS)]).asking(rehearsal=RehearsalSpec(enabled=False)),
        situation(LIVE[0], brokers=[refused(THREADS)]).observing(rehearsal=Unobserved("ConfigMap", "silent")),
    ],
    ids=["none", "another broker", "another setting", "another value", "stale", "off", "not seen"],
)
def test_what_the_rehearsal_did_not_judge_the_table_judges(case: Situation) -> None:
    (found,) = of_brokers(case.decide())
    assert found.code == "DynamicSettingsRefused"
    assert "num.io.threads (" in found.reason
    assert "in the rehearsal" not in found.reason


def test_a_setting_that_was_replaced_is_judged_by_the_table_beside_kafkas_own_refusal() -> None:
    """One finding: the start is one."""
    store = dynamic("listener.name.a.ssl.keystore.location", "/b", "/a")
    (found,) = of_brokers(situation(*LIVE, store, brokers=[refused(THREADS, RETENTION)]).decide())
    assert "listener.name.a.ssl.keystore.location (/b, static /a), num.io.threads (8, static 2)" in found.reason


def test_a_failure_stands_until_another_rehearsal_also_where_the_setting_is_gone() -> None:
    """What is stored now may be as bad, and only Kafka knows."""
    case = situation(brokers=[refused(THREADS, RETENTION)])
    decision = case.decide()
    (found,) = of_brokers(decision)
    assert (found.code, found.object) == ("RehearsalFails", "broker/1")
    assert decision.status.phase is Phase.PREFLIGHT
    assert LaunchRun(RunKind.REHEARSAL, REHEARSAL[:-1] + "2") in case.later(61).decide().actions


@pytest.mark.parametrize("phase", [Phase.PREFLIGHT, Phase.PROVISIONING_QUORUM])
def test_what_the_user_accepts_of_a_broker_closes_no_gate_under_another_code(phase: Phase) -> None:
    accepted = AcceptedFinding(code="DynamicSettingsRefused", object="broker/1")
    for live in (LIVE, ()):
        case = situation(*live, brokers=[refused(THREADS, RETENTION)], phase=phase)
        own = case.spec.preflight.model_copy(update={"accepted": (accepted,)})
        assert case.asking(preflight=own).decide().status.phase is not phase


@pytest.mark.parametrize(
    ("verdict", "code", "words"),
    [
        (UNKNOWN, "RehearsalUnknown", "brokers 0, 2 in KRaft mode: it ran out of memory"),
        (FAILS, "RehearsalFails", "brokers 0, 2 in KRaft mode: it ran out of memory"),
    ],
)
def test_a_broker_of_which_nothing_is_known_or_that_does_not_start_closes_the_gate_until_it_is_accepted(
    verdict: RehearsalVerdict, code: str, words: str
) -> None:
    case = situation(brokers=[RehearsedBroker(brokers=(0, 2), verdict=verdict, reason="it ran out of memory")])
    decision = case.decide()
    (found,) = of_brokers(decision)
    assert (found.code, found.object, words in found.reason) == (code, "broker/0", True)
    assert decision.status.phase is Phase.PREFLIGHT
    accepted = case.spec.preflight.model_copy(update={"accepted": (AcceptedFinding(code=code, object="broker/0"),)})
    assert case.asking(preflight=accepted).decide().status.phase is Phase.PROVISIONING_QUORUM


def test_the_controllers_verdict_stays_what_it_was_beside_the_brokers() -> None:
    brokers = [
        BrokerRehearsal(broker=2, verdict=WORKS, reason="it starts"),
        BrokerRehearsal(
            broker=1,
            alike=[0],
            verdict=FAILS,
            reason="x" * 2000,
            compared=[
                ComparedSetting(name="held", stored="1", holds="1", held=True),
                ComparedSetting(name="a.secret", held=False),
            ],
        ),
    ]
    found = RehearsalResult(
        verdict=FAILS,
        reason="broker 1: no",
        controllers=Judgement(verdict=WORKS, reason="all 3 entities"),
        brokers=brokers,
        ending=Ending.DUAL_WRITE,
        started_at=NOW,
        finished_at=NOW,
    )
    case = situation(running={"run_id": REHEARSAL, "digest": REHEARSED, "launched_at": NOW})
    run = RehearsalRun(REHEARSAL, RehearsalProgress.FINISHED, result=found)
    record = case.observing(rehearsal=RehearsalState(REHEARSED, run)).decide().status.rehearsal
    assert record is not None
    assert (record.verdict, record.reason) == (WORKS, "all 3 entities")
    assert [(each.brokers, each.verdict, len(each.reason)) for each in record.brokers] == [
        ((1, 0), FAILS, 1000),
        ((2,), WORKS, 9),
    ]
    assert [setting.name for setting in record.brokers[0].settings] == ["a.secret", "held"]


def test_the_tables_finding_does_not_stand_in_the_way_of_the_rehearsal_and_a_running_dry_start_does() -> None:
    """So the finding comes from Kafka's own mouth, once it is known with which static settings."""
    case = situation(LIVE[0]).with_status(rehearsal=None)
    assert LaunchRun(RunKind.REHEARSAL, REHEARSAL) in case.decide().actions
    unrecorded = case.with_status(broker_settings={}).decide()
    assert not any(isinstance(action, LaunchRun) for action in unrecorded.actions)
    assert unrecorded.status.broker_settings
    state = case.observation.dry_start
    assert not isinstance(state, Unobserved)
    changed = case.observing(dry_start=replace(state, fingerprint="another"))
    assert LaunchRun(RunKind.REHEARSAL, REHEARSAL) not in changed.decide().actions


def test_a_refused_setting_is_rehearsed_again_after_a_minute() -> None:
    """Somebody may have mended it where nothing in Kubernetes changes."""
    case = situation(*LIVE, brokers=[refused(THREADS, RETENTION)], seconds_ago=61)
    assert LaunchRun(RunKind.REHEARSAL, REHEARSAL[:-1] + "2") in case.decide().actions
