"""What counts as a difference of a broker before and after its restart, and what a start in KRaft mode will refuse."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.observations import IDENTITY, NOW, broker_now, broker_record, open_gate

from kraftbridge.models.broker_record import (
    BrokerNow,
    BrokerRecord,
    Certificate,
    Difference,
    DifferenceKind,
    Effect,
    EffectiveSetting,
    ListenerState,
    OffsetsNow,
    PartitionOffsets,
    packed,
    unpacked,
)
from kraftbridge.models.broker_settings import RULES, may_change
from kraftbridge.models.config_values import ConfigType
from kraftbridge.models.observation import Unobserved
from kraftbridge.models.phase import Phase
from kraftbridge.models.survey import SettingSource, Stated
from kraftbridge.phases.becoming.listeners import differing_listeners
from kraftbridge.phases.becoming.offsets import RECORD_HOLDS_FOR, differing_offsets, unknown_offsets
from kraftbridge.phases.becoming.refusals import THREAD_POOLS, Refusal, falling, refusals
from kraftbridge.phases.becoming.settings import alike, differing_settings, unknown_settings
from kraftbridge.phases.draft import StepContext
from kraftbridge.phases.preflight.dynamic_settings import of_brokers

STATIC, DEFAULT = SettingSource.STATIC, SettingSource.DEFAULT
OF_ALL, OF_ONE = SettingSource.DYNAMIC_DEFAULT, SettingSource.DYNAMIC_BROKER
TP = ("orders", 0)
REPORTER = "org.apache.kafka.common.metrics.JmxReporter"


def setting(value: str | None, *stated: tuple[SettingSource, str | None], sensitive: bool = False) -> EffectiveSetting:
    return EffectiveSetting(value, sensitive, ConfigType.STRING, tuple(Stated(*each) for each in stated))


def record(**settings: EffectiveSetting) -> BrokerRecord:
    return broker_record(0, "uid", settings={name.replace("_", "."): s for name, s in settings.items()})


def now(**settings: EffectiveSetting) -> BrokerNow:
    return broker_now(0, settings={name.replace("_", "."): s for name, s in settings.items()})


def only(found: Any) -> Difference:
    (difference,) = found
    return difference


# ------------------------------------------------------------------------------------------------ settings


def test_a_stored_setting_that_does_not_hold_is_refused_whatever_its_source_says() -> None:
    before = record(log_retention_ms=setting("-1", (OF_ALL, "-1"), (DEFAULT, "604800000")))
    after = replace(
        now(log_retention_ms=setting("604800000", (OF_ALL, "-1"), (DEFAULT, "604800000"))),
        refusals=("Cluster default configs could not be applied: [log.retention.ms, num.io.threads]",),
    )
    found = only(differing_settings(before, after))
    assert (found.kind, found.effect, found.before, found.after) == (
        DifferenceKind.REFUSED, Effect.DESTROYS, "-1", "604800000",
    )  # fmt: skip
    assert "could not be applied" in found.line


def test_a_broker_that_has_no_record_must_still_keep_what_is_stored() -> None:
    nothing = broker_record(0, "uid", settings=Unobserved("broker 0", "down"))
    after = now(max_connections=setting("2147483647", (OF_ONE, "100")))
    assert only(differing_settings(nothing, after)).kind is DifferenceKind.REFUSED


@pytest.mark.parametrize(
    ("name", "before", "after", "effect"),
    [
        ("min.insync.replicas", "2", "1", Effect.DESTROYS),
        ("log.cleanup.policy", "compact", "delete", Effect.DESTROYS),
        ("listener.name.external.ssl.keystore.location", "/a", "/b", Effect.CUTS_OFF),
        ("authorizer.class.name", "kafka.security.authorizer.AclAuthorizer", "", Effect.CUTS_OFF),
        ("listeners", "A://:1", "A://:2", Effect.CUTS_OFF),
        ("message.max.bytes", "1000", "2000", Effect.CHANGES),
    ],
)
def test_another_value_of_any_setting_is_a_difference(name: str, before: str, after: str, effect: Effect) -> None:
    found = only(
        differing_settings(
            broker_record(0, "uid", settings={name: setting(before, (STATIC, before))}),
            broker_now(0, settings={name: setting(after, (STATIC, after))}),
        )
    )
    assert (found.what, found.effect) == (name, effect)


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("authorizer.class.name", "kafka.security.authorizer.AclAuthorizer", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        ("listener.security.protocol.map", "A:SSL,B:PLAINTEXT", "CONTROLLER:SSL,A:SSL,B:PLAINTEXT"),
        ("zookeeper.connect", "zk:2181", None),
        ("process.roles", "", "broker"),
        ("controller.quorum.voters", "", "3000@c:9093"),
        ("log.initial.task.delay.ms", "30000", "900000"),
        ("advertised.listeners", "A://10.0.0.1:9092", "A://10.0.0.2:9092"),
    ],
)  # fmt: skip
def test_what_the_mode_changes_is_no_difference(name: str, before: str, after: str | None) -> None:
    was = broker_record(0, "uid", settings={name: setting(before)}, pod_ip="10.0.0.1")
    is_now = broker_now(0, settings={name: setting(after)}, pod_ip="10.0.0.2")
    assert list(differing_settings(was, is_now)) == []


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("num.recovery.threads.per.data.dir", setting("1", (DEFAULT, "1")), setting("2", (DEFAULT, "2"))),
        ("metric.reporters", setting("", (DEFAULT, "")), setting(REPORTER, (DEFAULT, REPORTER))),
        ("group.share.max.groups", setting("10", (DEFAULT, "10")), None),
        ("log.message.format.version", setting("3.0-IV1", (STATIC, "3.0-IV1")), None),
        ("a.setting.of.kafka.4", None, setting("7", (DEFAULT, "7"))),
    ],
)
def test_between_3_9_and_kafka_4_defaults_and_what_one_of_them_lacks_may_differ(
    name: str, before: EffectiveSetting | None, after: EffectiveSetting | None
) -> None:
    """There and back alike; within one release the same is a difference, where both have the setting."""
    former, later = ({} if each is None else {name: each} for each in (before, after))
    there = broker_record(0, "uid", settings=former), broker_now(0, settings=later)
    back = broker_record(0, "uid", settings=later), broker_now(0, settings=former)
    for one, other in (there, back):
        assert list(differing_settings(one, other, kafka4=True)) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (setting("3", (STATIC, "3")), setting("2", (DEFAULT, "2"))),
        (setting("1", (DEFAULT, "1")), setting("9", (DEFAULT, "9"))),
        (setting("1", (DEFAULT, "1")), setting("2", (STATIC, "2"))),
    ],
)
def test_with_kafka_4_a_stated_setting_and_an_unknown_default_must_hold(
    before: EffectiveSetting, after: EffectiveSetting
) -> None:
    name = "num.recovery.threads.per.data.dir"
    one, other = broker_record(0, "uid", settings={name: before}), broker_now(0, settings={name: after})
    assert only(differing_settings(one, other, kafka4=True)).before == before.value


def test_a_setting_that_somebody_changed_during_the_restart_is_no_difference() -> None:
    was = record(message_max_bytes=setting("5", (STATIC, "5")), leader_throttle=setting("9", (OF_ALL, "9")))
    changed = now(
        message_max_bytes=setting("7", (OF_ALL, "7"), (STATIC, "5")), leader_throttle=setting("1", (STATIC, "1"))
    )
    assert list(differing_settings(was, changed)) == []
    kept = record(log_retention_ms=setting("-1", (OF_ALL, "-1"), (DEFAULT, "9")))
    assert list(differing_settings(kept, now(log_retention_ms=setting("8", (OF_ALL, "8"), (DEFAULT, "9"))))) == []
    assert list(differing_settings(kept, now(log_retention_ms=setting("9", (DEFAULT, "9")))))


def test_a_map_that_loses_a_listener_is_a_difference() -> None:
    was = broker_record(0, "uid", settings={"listener.security.protocol.map": setting("A:SSL,B:SSL")})
    is_now = broker_now(0, settings={"listener.security.protocol.map": setting("CONTROLLER:SSL,A:SSL")})
    assert list(differing_settings(was, is_now))


def test_a_hidden_dynamic_setting_without_the_log_of_the_start_is_unknown() -> None:
    silent = Unobserved("log", "not readable")
    hidden = setting(None, (OF_ONE, None), sensitive=True)
    after = replace(broker_now(0, settings={"ssl.keystore.password": hidden}), refusals=silent)
    assert "ssl.keystore.password" in unknown_settings(after)
    assert unknown_settings(replace(after, refusals=())) == ""
    assert unknown_settings(replace(broker_now(0), refusals=silent)) == ""
    line = "Per-broker configs of 0 could not be applied: [ssl.keystore.password]"
    found = only(differing_settings(broker_record(0, "u", settings={}), replace(after, refusals=(line,))))
    assert (found.kind, found.line) == (DifferenceKind.REFUSED, line)


@given(st.sampled_from(sorted(RULES)), st.text(max_size=8), st.text(max_size=8))
def test_no_setting_changes_unnoticed(name: str, before: str, after: str) -> None:
    was = broker_record(0, "uid", settings={name: setting(before)}, pod_ip="")
    found = list(differing_settings(was, broker_now(0, settings={name: setting(after)})))
    quiet = alike(before, after, ConfigType.STRING) or may_change(name) or name == "listener.security.protocol.map"
    assert quiet or [d.what for d in found] == [name]


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        ("False", "false", ConfigType.BOOLEAN),
        ("compact, delete", "compact,delete", ConfigType.LIST),
        ("0.50", "0.5", ConfigType.DOUBLE),
        ("10485760", "1.048576E7", ConfigType.DOUBLE),
    ],
)
def test_spellings_of_one_value_are_alike(one: str, other: str, kind: ConfigType) -> None:
    assert alike(one, other, kind)
    assert not alike(one, f"{other}1", kind)


# ------------------------------------------------------------------------------------------------ offsets


def offsets(before: PartitionOffsets, after: OffsetsNow, age: timedelta = timedelta(0)) -> list[DifferenceKind]:
    was = broker_record(0, "uid", offsets={TP: before}, taken_at=NOW - age)
    return [d.kind for d in differing_offsets(was, broker_now(0, offsets={TP: after}), NOW)]


@pytest.mark.parametrize(
    ("before", "after", "kinds"),
    [
        (PartitionOffsets(0, 100, 0), OffsetsNow(0, 100, 0), []),
        (PartitionOffsets(0, 100, 0), OffsetsNow(0, 120, 0), []),
        (PartitionOffsets(0, 100, 0), OffsetsNow(0, 99, 0), [DifferenceKind.LOG_END]),
        # its own log begins later than its leader's: it has deleted
        (PartitionOffsets(0, 100, 0), OffsetsNow(0, 100, 40), [DifferenceKind.LOG_START]),
        # it leads
        (PartitionOffsets(0, 100, 0), OffsetsNow(40, 100, 40, leads=True), [DifferenceKind.LOG_START]),
        # another broker leads, and has deleted: by retention, or because a client asked
        (PartitionOffsets(0, 100, 0), OffsetsNow(40, 100, 40), []),
        # retention by age explains it
        (PartitionOffsets(0, 100, 50), OffsetsNow(40, 100, 40, leads=True), []),
        (PartitionOffsets(0, 100, 30), OffsetsNow(40, 100, 40, leads=True), [DifferenceKind.LOG_START]),
        # retention by size explains it, while that much is left
        (PartitionOffsets(0, 100, 0, 1000), OffsetsNow(40, 100, 40, True, own_bytes=1000), []),
        (PartitionOffsets(0, 100, 0, 1000), OffsetsNow(40, 100, 40, True, own_bytes=999), [DifferenceKind.LOG_START]),
        (PartitionOffsets(0, 100, 0), OffsetsNow(100, 100, 100, leads=True), [DifferenceKind.LOG_START]),
    ],
)
def test_records_that_are_gone(before: PartitionOffsets, after: OffsetsNow, kinds: list[DifferenceKind]) -> None:
    assert offsets(before, after) == kinds


def test_an_old_record_says_nothing_of_the_beginning_but_of_the_end() -> None:
    age = RECORD_HOLDS_FOR + timedelta(seconds=1)
    assert offsets(PartitionOffsets(0, 100, 0), OffsetsNow(40, 100, 40, leads=True), age) == []
    assert offsets(PartitionOffsets(0, 100, 0), OffsetsNow(0, 99, 0), age) == [DifferenceKind.LOG_END]


def test_a_deleted_topic_is_no_difference_and_a_silent_leader_is_unknown() -> None:
    was = broker_record(0, "uid", offsets={TP: PartitionOffsets(0, 100, 0)})
    assert list(differing_offsets(was, broker_now(0, offsets={}), NOW)) == []
    assert "orders-0: no leader" in unknown_offsets(broker_now(0, offsets={TP: "no leader"}))
    assert unknown_offsets(broker_now(0, offsets=Unobserved("broker", "silent")))


# ------------------------------------------------------------------------------------------------ listeners

CERTIFICATE = Certificate(("CN=kafka-0", "kafka-0.kafka"), "CN=ca", NOW + timedelta(days=90))
FINE = ListenerState("EXTERNAL", "kafka-0.example", 9094, "", CERTIFICATE, ("PLAIN", "SCRAM-SHA-512"))


@pytest.mark.parametrize(
    "after",
    [
        (),
        (replace(FINE, trouble="connection refused"),),
        (replace(FINE, port=9095),),
        (replace(FINE, host="localhost"),),
        (replace(FINE, mechanisms=("PLAIN",)),),
        (replace(FINE, certificate=None),),
        (replace(FINE, certificate=replace(CERTIFICATE, names=("CN=other",))),),
        (replace(FINE, certificate=replace(CERTIFICATE, not_after=NOW)),),
    ],
)
def test_what_a_client_sees_otherwise_cuts_it_off(after: tuple[ListenerState, ...]) -> None:
    was = broker_record(0, "uid", listeners=(FINE,))
    assert only(differing_listeners(was, broker_now(0, listeners=after))).effect is Effect.CUTS_OFF


def test_a_renewed_certificate_and_a_new_address_of_the_pod_are_no_difference() -> None:
    renewed = replace(FINE, certificate=replace(CERTIFICATE, not_after=NOW + timedelta(days=180)))
    by_address = ListenerState("POD", "10.0.0.1", 9092)
    was = broker_record(0, "uid", listeners=(FINE, by_address), pod_ip="10.0.0.1")
    is_now = broker_now(0, listeners=(renewed, replace(by_address, host="10.0.0.9")), pod_ip="10.0.0.9")
    assert list(differing_listeners(was, is_now)) == []


def test_a_listener_that_was_not_reached_before_is_not_judged() -> None:
    was = broker_record(0, "uid", listeners=(replace(FINE, trouble="no route"),))
    assert list(differing_listeners(was, broker_now(0, listeners=()))) == []


# ------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize("name", sorted(THREAD_POOLS))
@given(static=st.integers(1, 200), stored=st.integers(1, 2000))
def test_the_steps_of_a_thread_pool_are_each_accepted_and_end_at_one_that_is_not_refused(
    name: str, static: int, stored: int
) -> None:
    """DynamicThreadPool: at least half (rounded down) and at most double of what holds then."""

    def accepted(value: int, present: int) -> bool:
        return present // 2 <= value <= present * 2

    settings = {name: setting(str(stored), (OF_ALL, str(stored)), (STATIC, str(static)))}
    found = refusals(settings, {})
    assert bool(found) is not accepted(stored, static)
    for refusal in found:
        present = stored
        for step in refusal.steps:
            assert accepted(step, present)
            present = step
        assert accepted(present, static)
        assert refusals(settings, {name: str(stored)}) == ()


@pytest.mark.parametrize(
    "name", ["listeners", "advertised.listeners", "ssl.keystore.location", "listener.name.internal.ssl.keystore.type"]
)
def test_endpoints_and_key_stores_need_an_equal_static_value(name: str) -> None:
    dynamic = setting("x", (OF_ONE, "x"), (STATIC, "y"))
    assert [r.name for r in refusals({name: dynamic}, {})] == [name]
    assert [r.name for r in refusals({name: setting("x", (OF_ONE, "x"))}, {})] == [name]
    assert refusals({name: setting("x", (OF_ONE, "x"), (STATIC, "x"))}, {}) == ()
    assert refusals({name: dynamic}, {name: "x"}) == ()
    assert refusals({name: setting("y", (STATIC, "y"))}, {}) == ()


@pytest.mark.parametrize("name", ["ssl.keystore.password", "listener.name.internal.ssl.keystore.key"])
def test_a_password_of_a_key_store_needs_a_static_value(name: str) -> None:
    """Kafka serves no value of a password, so only its places are compared."""
    alone = setting(None, (OF_ONE, None), sensitive=True)
    assert refusals({name: alone}, {}) == (Refusal(name, None, "none", is_default=False),)
    assert [r.name for r in refusals({name: setting(None, (OF_ALL, None), (DEFAULT, None), sensitive=True)}, {})] == [
        name
    ]
    assert refusals({name: alone}, {name: "given"}) == ()
    assert refusals({name: setting(None, (OF_ONE, None), (STATIC, None), sensitive=True)}, {}) == ()
    assert refusals({"sasl.jaas.config": alone}, {}) == ()


def test_a_password_that_falls_is_unset_where_no_static_one_exists() -> None:
    alone = setting(None, (OF_ONE, None), sensitive=True)
    beside = setting(None, (OF_ONE, None), (STATIC, None), sensitive=True)
    assert falling({"a": alone, "b": beside}) == {"a": "", "b": "its static value"}


def test_the_finding_names_a_password_without_a_static_value() -> None:
    alone = {"ssl.keystore.password": setting(None, (OF_ONE, None), sensitive=True)}
    case = open_gate(Phase.PREFLIGHT)
    step = StepContext(IDENTITY, case.spec, case.observation, NOW, case.status)
    (found,) = of_brokers(step, {0: alone})
    assert "ssl.keystore.password (hidden, static none)" in found.reason
    assert "ssl.keystore.password becomes unset" in found.reason
    assert found.fix == "Give the brokers ssl.keystore.password as static settings"


# ------------------------------------------------------------------------------------------------ record


@given(
    st.dictionaries(st.tuples(st.text(max_size=6), st.integers(0, 50)), st.integers(0, 2**60), max_size=20),
    st.dictionaries(st.text(max_size=6), st.none() | st.text(max_size=6), max_size=6),
)
def test_a_record_survives_its_config_map(tps: dict[tuple[str, int], int], values: dict[str, str | None]) -> None:
    written = broker_record(
        3, "uid", listeners=(FINE, replace(FINE, certificate=None, trouble="x")),
        settings={name: setting(value, (OF_ALL, value)) for name, value in values.items()},
        offsets={tp: PartitionOffsets(o, o + 5, o + 2, o, tp[0]) for tp, o in tps.items()},
    )  # fmt: skip
    assert unpacked(packed(written)) == written
    silent = replace(written, settings=Unobserved("broker 3", "down"))
    assert unpacked(packed(silent)) == silent


@pytest.mark.parametrize("data", [b"", b"x", packed(broker_record(0, "u"))[:-9]])
def test_a_broken_record_is_said_to_be_one(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any words will do
        unpacked(data)
