"""What Kafka 4 makes of the present settings is told from AwaitingFinalization on, and stops nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.observations import BROKER_IDS, NOW, Situation, open_gate, setting

from kraftbridge.models import kafka4_changes as changes
from kraftbridge.models.catalogue import Code
from kraftbridge.models.conditions import Condition, ConditionType, condition
from kraftbridge.models.observation import NOT_NEEDED, KafkaSettings, Unobserved
from kraftbridge.models.phase import Phase, Target
from kraftbridge.models.spec import BrokerMetricsSpec
from kraftbridge.models.status import FindingStatus, HandOverStatus, Kafka4Status, MigrationStatus
from kraftbridge.models.survey import BrokerSetting, SettingSource, Stated
from kraftbridge.phases.kafka4 import MAXIMUM_FINDINGS, Kind, Setting, of_setting
from kraftbridge.phases.old_clients import WATCHED_FOR

DEFAULTS_STATED = tuple(setting(name, "1") for name in sorted(changes.NEW_BEHAVIOUR))
"""Settings of a broker for which Kafka 4 has nothing to tell."""
JMX = changes.JMX_REPORTER


def settings(*stated: BrokerSetting, topics: dict[str, dict[str, str | None]] | None = None) -> KafkaSettings:
    others = dict.fromkeys(BROKER_IDS[1:], DEFAULTS_STATED)
    return KafkaSettings(
        {0: (*DEFAULTS_STATED, *stated), **others}, topics or {}, old_requests=dict.fromkeys(BROKER_IDS, ())
    )


def seeing(seen: KafkaSettings | Unobserved, phase: Phase = Phase.AWAITING_FINALIZATION) -> Situation:
    """The clients are known: the brokers' metrics have been watched for more than a week."""
    case = open_gate(phase).observing(kafka4=seen)
    brokers = case.spec.brokers.model_copy(update={"metrics": BrokerMetricsSpec(port=9404)})
    since = NOW - WATCHED_FOR - timedelta(minutes=1)
    return case.asking(brokers=brokers).with_status(kafka4=Kafka4Status(clients_since=since, clients_seen_at=NOW))


def told(seen: KafkaSettings) -> list[FindingStatus]:
    status = seeing(seen).decide().status
    assert status.kafka4 is not None
    return list(status.kafka4.findings)


def readiness(status: MigrationStatus) -> Condition:
    found = condition(status.conditions, ConditionType.READY_FOR_KAFKA4)
    assert found is not None
    return found


def test_a_cluster_that_kafka_4_takes_as_it_is_is_ready() -> None:
    status = seeing(settings()).decide().status
    assert status.kafka4 is not None
    assert (status.kafka4.findings, status.kafka4.total) == ((), 0)
    assert readiness(status).status == "True"


REFUSED = [
    pytest.param(settings(setting("log.segment.bytes", "1000")), "broker 0 (static)", "does not start", id="static"),
    pytest.param(
        settings(setting("log.segment.bytes", "1000", SettingSource.DYNAMIC_BROKER)),
        "broker 0 (dynamic)",
        "ignores it",
        id="dynamic",
    ),
    pytest.param(
        settings(setting("num.replica.fetchers", "0", SettingSource.DYNAMIC_DEFAULT)),
        "all brokers (dynamic)",
        "ignores it",
        id="dynamic-default",
    ),
    pytest.param(settings(topics={"small": {"segment.bytes": "1000"}}), "topic small", "does not start", id="topic"),
    pytest.param(
        settings(setting("group.consumer.assignors", " ")), "broker 0 (static)", "does not start", id="empty-list"
    ),
]


@pytest.mark.parametrize(("seen", "where", "effect"), REFUSED)
def test_what_kafka_4_refuses_is_told_with_its_place(seen: KafkaSettings, where: str, effect: str) -> None:
    (found,) = told(seen)
    assert found.code == Code.KAFKA4_REFUSES_VALUE
    assert found.object == where
    assert where in found.reason
    assert effect in found.reason
    unready = readiness(seeing(seen).decide().status)
    assert (unready.status, unready.reason) == ("False", "SettingsRefused")
    assert found.sentence in unready.message


ACCEPTED = [
    settings(setting("log.segment.bytes", "1048576")),
    settings(setting("num.replica.fetchers", "4")),
    settings(setting("log.segment.bytes", "not a number")),
    settings(topics={"t": {"segment.bytes": "1048576"}}),
    settings(setting("metric.reporters", f"org.apache.kafka.A,{JMX}")),
    settings(setting("metric.reporters", "")),
    settings(setting("num.io.threads", "8", SettingSource.DYNAMIC_DEFAULT)),
    settings(setting("inter.broker.protocol.version", "3.9-IV0", SettingSource.DEFAULT)),
    settings(setting("principal.builder.class", "org.apache.kafka.common.security.auth.Any")),
    settings(setting("broker.rack", "eu.west.Zone")),
]


@pytest.mark.parametrize("seen", ACCEPTED, ids=lambda seen: str(seen.brokers[0][len(DEFAULTS_STATED) :] or seen.topics))
def test_what_kafka_4_takes_as_before_is_not_told(seen: KafkaSettings) -> None:
    assert told(seen) == []


OTHERS = [
    (settings(setting("delegation.token.master.key", None)), Code.KAFKA4_DROPS_SETTING, "delegation.token.secret.key"),
    (settings(setting("log.message.timestamp.difference.max.ms", "9")), Code.KAFKA4_DROPS_SETTING, "after.max.ms"),
    (settings(topics={"t": {"message.timestamp.difference.max.ms": "9"}}), Code.KAFKA4_DROPS_SETTING, "topic t"),
    (settings(setting("zookeeper.connect", "z:2181")), Code.KAFKA4_IGNORES_REST, "zookeeper.connect=z:2181"),
    (
        settings(setting("advertised.listeners", "A://a:1", SettingSource.DYNAMIC_BROKER)),
        Code.KAFKA4_DROPS_SETTING,
        "broker 0 (dynamic)",
    ),
    (settings(setting("metric.reporters", "org.apache.kafka.A")), Code.KAFKA4_WITHOUT_JMX, JMX),
    (settings(setting("authorizer.class.name", "com.example.Gate")), Code.KAFKA4_PLUGIN_UNKNOWN, "com.example.Gate"),
    (
        settings(
            setting(
                "listener.name.a.oauthbearer.sasl.server.callback.handler.class",
                "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
            )
        ),
        Code.KAFKA4_LACKS_CLASS,
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
    ),
]


@pytest.mark.parametrize(("seen", "code", "word"), OTHERS, ids=[code for _, code, _ in OTHERS])
def test_what_changes_or_ends_with_kafka_4_is_told(seen: KafkaSettings, code: Code, word: str) -> None:
    (found,) = told(seen)
    assert found.code == code
    assert word in found.sentence
    ready = readiness(seeing(seen).decide().status)
    expected = {Code.KAFKA4_LACKS_CLASS: "False", Code.KAFKA4_PLUGIN_UNKNOWN: "Unknown"}
    assert ready.status == expected.get(code, "True")


def test_other_defaults_are_told_unless_every_broker_states_them() -> None:
    (found,) = told(replace(settings(), brokers={0: DEFAULTS_STATED, 1: DEFAULTS_STATED[1:]}))
    assert found.code == Code.KAFKA4_DEFAULTS_DIFFER
    assert DEFAULTS_STATED[0].name in found.reason
    assert DEFAULTS_STATED[1].name not in found.reason


def test_a_setting_of_many_brokers_is_one_finding() -> None:
    low = setting("log.segment.bytes", "1000")
    (found,) = told(replace(settings(), brokers=dict.fromkeys(range(12), (*DEFAULTS_STATED, low))))
    assert found.object == "broker 0 (static) and 11 more"
    assert "and 4 more" in found.reason


def test_a_static_value_below_a_dynamic_one_is_judged_too() -> None:
    stated = (Stated(SettingSource.DYNAMIC_BROKER, "2000000"), Stated(SettingSource.STATIC, "1000"))
    both = replace(setting("log.segment.bytes", "2000000", SettingSource.DYNAMIC_BROKER), stated=stated)
    (found,) = told(settings(both))
    assert found.object == "broker 0 (static)"


def test_the_controllers_settings_are_judged() -> None:
    case = seeing(settings())
    controllers = case.spec.controllers.model_copy(update={"config": {"metadata.log.segment.bytes": "1000"}})
    status = replace(case, spec=case.spec.model_copy(update={"controllers": controllers})).decide().status
    assert status.kafka4 is not None
    (found,) = status.kafka4.findings
    assert found.object == "spec.controllers.config"


def test_what_keeps_a_node_from_its_start_comes_first() -> None:
    seen = settings(setting("zookeeper.connect", "z"), setting("log.segment.bytes", "1"))
    assert [found.code for found in told(seen)] == [Code.KAFKA4_REFUSES_VALUE, Code.KAFKA4_IGNORES_REST]


def test_the_status_stays_small() -> None:
    topics: dict[str, dict[str, str | None]] = {f"t{i}": {"segment.bytes": str(i)} for i in range(200)}
    status = seeing(settings(topics=topics)).decide().status
    assert status.kafka4 is not None
    assert (len(status.kafka4.findings), status.kafka4.total) == (MAXIMUM_FINDINGS, 200)
    assert "197 more" in readiness(status).message


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (KafkaSettings({0: DEFAULTS_STATED, 1: Unobserved("broker 1", "no answer")}, {}), "broker 1"),
        (KafkaSettings({}, {}), "No broker"),
        (replace(settings(), hidden_topics=("secret",)), "secret"),
        (Unobserved("Kafka", "none answered"), "none answered"),
    ],
)
def test_what_is_not_known_is_not_ready(seen: KafkaSettings | Unobserved, why: str) -> None:
    found = readiness(seeing(seen).decide().status)
    assert found.status == "Unknown"
    assert why in found.message


@pytest.mark.parametrize("absent", BROKER_IDS)
def test_a_broker_that_does_not_run_is_not_ready(absent: int) -> None:
    seen = settings()
    running = {broker: told for broker, told in seen.brokers.items() if broker != absent}
    found = readiness(seeing(replace(seen, brokers=running)).decide().status)
    assert found.status == "Unknown"
    assert f"broker {absent}" in found.message


def test_a_class_of_which_nobody_knows_whether_kafka_4_loads_it_is_not_ready() -> None:
    found = readiness(seeing(settings(setting("authorizer.class.name", "com.example.Gate"))).decide().status)
    assert found.status == "Unknown"
    assert "com.example.Gate" in found.message


def test_a_refused_setting_stops_nothing() -> None:
    clean, refusing = settings(), settings(topics={"t": {"segment.bytes": "1"}})
    for phase in (Phase.AWAITING_FINALIZATION, Phase.COMPLETED):
        with_it, without = seeing(refusing, phase).decide(), seeing(clean, phase).decide()
        assert with_it.status.phase == without.status.phase
        assert with_it.actions == without.actions
        assert with_it.status.message == without.status.message


def test_it_is_not_told_before_every_broker_runs_kraft() -> None:
    for phase in (Phase.PREFLIGHT, Phase.DUAL_WRITE, Phase.ROLLING_BROKERS):
        status = open_gate(phase).decide().status
        assert status.kafka4 is None
        assert readiness(status).status == "Unknown"


def test_what_was_told_stays_while_nothing_is_asked() -> None:
    before = seeing(settings(setting("log.segment.bytes", "1"))).decide().status
    case = seeing(NOT_NEEDED)
    after = replace(case, status=before).decide().status
    assert after.kafka4 == before.kafka4
    assert readiness(after) == readiness(before)


PLACES = st.sampled_from(["broker 0 (static)", "broker 7 (dynamic)", "all brokers (dynamic)"])
NUMBERS = [(name, bound, kind) for name, bound in changes.BOUNDS.items() for kind in (Kind.STATIC, Kind.DYNAMIC)]
NUMBERS += [(name, bound, Kind.TOPIC) for name, bound in changes.TOPIC_BOUNDS.items()]


@given(st.sampled_from(NUMBERS), st.integers(min_value=-(2**31), max_value=2**31), PLACES)
def test_every_number_below_its_bound_is_refused_and_no_other(
    row: tuple[str, changes.Bound, Kind], number: int, place: str
) -> None:
    name, bound, kind = row
    found = list(of_setting(Setting(name, str(number), kind), [place]))
    assert bool(found) == (number < bound.lowest)
    for each in found:
        assert each.code == Code.KAFKA4_REFUSES_VALUE
        assert f"{name}={number}" in each.reason
        assert place in each.reason
        assert f"Kafka {bound.since}" in each.reason


GONE = [(name, kind) for name in changes.GONE for kind in (Kind.STATIC, Kind.DYNAMIC)]
GONE += [(name, Kind.TOPIC) for name in changes.GONE_FROM_TOPICS]
GONE += [(name, Kind.DYNAMIC) for name in changes.NOT_DYNAMIC]


@given(st.sampled_from(GONE), st.text("abc:/0", max_size=30), PLACES)
def test_every_setting_that_is_gone_is_told(row: tuple[str, Kind], value: str, place: str) -> None:
    name, kind = row
    found = list(of_setting(Setting(name, value, kind), [place]))
    assert len(found) == 1
    assert f"{name}={value}" in found[0].reason
    assert place in found[0].reason


@given(st.sampled_from(sorted(changes.GONE_CLASSES)), PLACES)
def test_every_class_that_is_gone_is_told(name: str, place: str) -> None:
    found = list(of_setting(Setting("any.class", f"x, {name}", Kind.STATIC), [place]))
    assert [each.code for each in found] == [Code.KAFKA4_LACKS_CLASS]
    assert name in found[0].reason
    assert place in found[0].reason
    assert changes.GONE_CLASSES[name] in found[0].fix


def test_it_ends_with_the_hand_over() -> None:
    seen = settings(setting("log.segment.bytes", "1"))
    case = seeing(seen, Phase.COMPLETED)
    ended = HandOverStatus(guarded=False, ended_at=case.now)
    status = replace(case, status=case.status.model_copy(update={"hand_over": ended})).decide().status
    assert status.kafka4 == case.status.kafka4
    assert Target.KRAFT is case.spec.target
