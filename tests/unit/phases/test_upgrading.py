"""The way to the bridge release: what preflight finds, the rolling restart, the word before the lift, and the comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.support.observations import (
    BROKER_IDS,
    BROKER_SET,
    CONTROLLERS,
    FINE_SETTINGS,
    FORMER_PROTOCOL,
    NOW,
    RUNNING,
    UPGRADE,
    Situation,
    broker_now,
    broker_record,
    broker_set,
    cluster,
    dry_start_of,
    launched_runs,
    open_gate,
    partly_rolled,
    record,
    rolling,
    setting,
    survey,
    zookeeper,
)

from kraftbridge.copies.dry_start import copies_of
from kraftbridge.models.broker_record import EffectiveSetting
from kraftbridge.models.catalogue import Severity
from kraftbridge.models.conditions import ConditionType, condition
from kraftbridge.models.config_values import ConfigType
from kraftbridge.models.decision import ConfigureBrokers, LaunchRun, LockStatefulSet, RestartPod
from kraftbridge.models.dry_start import (
    ContainerImage,
    CopyOutcome,
    DryStartReport,
    DryStartState,
    GivenSetting,
    KafkaStart,
)
from kraftbridge.models.observation import StatefulSetState, TopicRedundancy, Unobserved
from kraftbridge.models.phase import BrokerMode, Phase, Target
from kraftbridge.models.report import Profile, Verdict
from kraftbridge.models.spec import ConfigStyle, PropertiesSource, RollbackSpec, UpgradeSpec
from kraftbridge.models.status import (
    BrokerUpgradeStatus,
    DryStartStatus,
    FindingStatus,
    NodeStatus,
    Operation,
    OperationKind,
)
from kraftbridge.models.survey import BrokerSetting, SettingSource, Stated
from kraftbridge.phases.becoming.settings import differing_settings

PROTOCOL = "inter.broker.protocol.version"
UNKNOWN = Unobserved("somebody", "it is silent")
TEMPLATE = {name: value for name, value in FINE_SETTINGS.items() if name != PROTOCOL}
OLD, NEW = "sha256:" + "a" * 64, "sha256:" + "b" * 64


def running(protocol: str = FORMER_PROTOCOL, *more: BrokerSetting) -> tuple[BrokerSetting, ...]:
    return (*RUNNING, setting("num.network.threads", "4"), setting(PROTOCOL, protocol, SettingSource.DEFAULT), *more)


def copies(
    release: str = "3.9.2",
    former: str = "2.8.2",
    digest: str = NEW,
    modes: tuple[BrokerMode, ...] = (BrokerMode.UPGRADED,),
) -> DryStartState:
    """Return a dry start of every copy, of which those in other modes have the new image."""
    present = dry_start_of().report
    assert present is not None
    by_pod = {copy.key.pod: copy for copy in present.copies if copy.key.mode is BrokerMode.ZOOKEEPER}
    outcomes = []
    for key in copies_of(BROKER_SET, BROKER_IDS, modes):
        own = by_pod[key.pod]
        assert own.start is not None
        if key.mode is BrokerMode.ZOOKEEPER:
            image = ContainerImage("kafka", "kafka:2.8", OLD, "kafka:2.8", OLD)
            outcomes.append(replace(own, start=replace(own.start, kafka=former), images=(image,)))
            continue
        image = ContainerImage("kafka", "kafka:2.8", OLD, UPGRADE.image, digest)
        start = KafkaStart(valid=True, settings=own.start.settings, kafka=release)
        outcomes.append(CopyOutcome(key, own.broker_id, start, overlay={"broker.id": "0"}, images=(image,)))
    return DryStartState("same", report=DryStartReport("same", tuple(outcomes)))


def preflight(
    brokers: Mapping[int, tuple[BrokerSetting, ...]] | None = None,
    dry_start: DryStartState | None = None,
    upgrade: UpgradeSpec | None = UPGRADE,
    **of_set: Any,
) -> Situation:
    """Return preflight of brokers of 2.8 that are to be brought to 3.9."""
    case = open_gate(Phase.PREFLIGHT)
    item = replace(broker_set(), image="kafka:2.8", **({"settings": TEMPLATE} | of_set))
    return case.asking(brokers=case.spec.brokers.model_copy(update={"upgrade": upgrade})).observing(
        survey=survey(brokers=brokers or dict.fromkeys(BROKER_IDS, running())),
        stateful_sets=(item,),
        dry_start=dry_start or copies(),
    )


def found(case: Situation) -> dict[str, FindingStatus]:
    return {f.code: f for f in case.decide().status.findings}


# ------------------------------------------------------------------------------------------------- preflight


def written_by_the_former_image(state: DryStartState, written: Mapping[str, GivenSetting]) -> DryStartState:
    """Return a dry start in which the former image writes settings of its own, and the new one does not."""
    assert state.report is not None
    outcomes = []
    for copy in state.report.copies:
        assert copy.start is not None
        by_itself = written if copy.key.mode is BrokerMode.ZOOKEEPER else {}
        outcomes.append(replace(copy, start=replace(copy.start, settings={**copy.start.settings, **by_itself})))
    return replace(state, report=replace(state.report, copies=tuple(outcomes)))


def test_what_the_new_image_leaves_out_is_told_as_the_lines_that_give_it() -> None:
    """Bitnami's scripts for 3.4 write these into server.properties, and those for 3.9 do not."""
    written = {
        "group.initial.rebalance.delay.ms": GivenSetting("0"),
        "max.request.size": GivenSetting(hash="cd"),  # Kafka does not know it
        "sasl.mechanism.inter.broker.protocol": GivenSetting(""),
        "ssl.key.password": GivenSetting(hash="ab"),
        "port": GivenSetting("9092"),
    }
    own = tuple(setting(name, given.value or "") for name, given in written.items() if not given.sensitive)
    case = preflight(
        dict.fromkeys(BROKER_IDS, running(FORMER_PROTOCOL, *own)), written_by_the_former_image(copies(), written)
    )
    told = found(case)
    assert "DryStartOverlayLost" not in told, "the overlay reaches Kafka"
    assert told["DryStartLeavesOut"].fix == (
        "Add them to spec.brokers.upgrade.env as the brokers run with them: "
        'KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS: "0", KAFKA_SASL_MECHANISM_INTER_BROKER_PROTOCOL: "", '
        "KAFKA_SSL_KEY_PASSWORD: (not shown: as in the file that the image writes)"
    )
    assert case.decide().status.phase is Phase.PREFLIGHT


def test_a_setting_of_the_overlay_that_kafka_does_not_know_reaches_it_if_it_is_there() -> None:
    state = copies()
    assert state.report is not None
    name = "my.plugin.size"
    outcomes = []
    for copy in state.report.copies:
        assert copy.start is not None
        if copy.key.mode is BrokerMode.ZOOKEEPER:
            outcomes.append(copy)
            continue
        settings = {**copy.start.settings, name: GivenSetting(hash="ab")}
        overlay = {**copy.overlay, name: "7"}
        outcomes.append(replace(copy, start=replace(copy.start, settings=settings), overlay=overlay))
    told = found(preflight(dry_start=replace(state, report=replace(state.report, copies=tuple(outcomes)))))
    assert "DryStartOverlayLost" not in told


def test_an_overlay_that_is_lost_is_not_taken_for_what_an_image_leaves_out() -> None:
    state = copies()
    assert state.report is not None
    outcomes = [
        copy
        if copy.key.mode is BrokerMode.ZOOKEEPER
        else replace(copy, overlay={**copy.overlay, "process.roles": "broker"})
        for copy in state.report.copies
    ]
    told = found(preflight(dry_start=replace(state, report=replace(state.report, copies=tuple(outcomes)))))
    assert "DryStartOverlayLost" in told
    assert "DryStartLeavesOut" not in told


def test_brokers_of_2_8_pass_with_the_lowest_protocol_and_the_digest_that_the_copies_got() -> None:
    mixed = {0: running("3.4-IV0"), 1: running("2.8-IV1"), 2: running("3.9-IV0")}
    decision = preflight(mixed).decide()
    assert decision.status.phase is Phase.UPGRADING_BROKERS, decision.status.message
    upgrade = decision.status.broker_upgrade
    assert upgrade is not None
    assert (upgrade.needed, upgrade.protocol, upgrade.lifted_at) == (True, "2.8-IV1", None)
    assert upgrade.images == {f"{BROKER_SET}/kafka": NEW}
    assert decision.status.controllers is None
    assert not [f for f in decision.status.findings if f.severity == Severity.BLOCKING]
    assert "producer.id.expiration.ms" in found(preflight(mixed))["ReleaseDefaultsDiffer"].reason


def test_brokers_of_3_9_need_no_upgrade() -> None:
    decision = preflight(dict.fromkeys(BROKER_IDS, running("3.9-IV0")), dry_start_of()).decide()
    assert decision.status.phase is Phase.UPGRADING_BROKERS
    assert decision.status.broker_upgrade == BrokerUpgradeStatus(needed=False, protocol="3.9-IV0")


def test_without_the_word_in_spec_it_is_as_before_and_the_fix_names_it() -> None:
    case = preflight(dry_start=dry_start_of(), upgrade=None)
    codes = found(case)
    assert "spec.brokers.upgrade" in codes["InterBrokerProtocolTooLow"].fix
    assert "spec.brokers.upgrade" in codes["ImageTooOld"].fix
    assert case.decide().status.phase is Phase.PREFLIGHT
    assert case.decide().status.broker_upgrade is None


BLOCKED: dict[str, tuple[Situation, str]] = {
    "BrokersTooOld": (preflight(dict.fromkeys(BROKER_IDS, running("2.3-IV1")), copies(former="2.3.1")), "2.3"),
    "InterBrokerProtocolTooLow": (preflight({0: running(), 1: running("2.3-IV1"), 2: running()}), "2.3-IV1"),
    "UpgradeImageNotBridge": (preflight(dry_start=copies(release="4.0.0")), "starts Kafka 4.0"),
    "UpgradeNotProven": (preflight(dry_start=copies(digest="")), "digest"),
    "SettingRemoved": (
        preflight(dict.fromkeys(BROKER_IDS, running(FORMER_PROTOCOL, setting("advertised.host.name", "b")))),
        "advertised.host.name",
    ),
    "SettingInArguments": (preflight(overrides={PROTOCOL: "2.8"}), PROTOCOL),
}


@pytest.mark.parametrize("code", BLOCKED)
def test_what_blocks_and_changes_nothing(code: str) -> None:
    case, words = BLOCKED[code]
    decision = case.decide()
    assert decision.status.phase is Phase.PREFLIGHT
    found_here = next(f for f in decision.status.findings if f.code == code)
    assert (found_here.severity, words in found_here.reason or words in found_here.fix) == (Severity.BLOCKING, True)
    assert not [a for a in decision.actions if isinstance(a, ConfigureBrokers | RestartPod)]


@pytest.mark.parametrize(("former", "named"), [("2.4.1", True), ("2.8.2", False)])
def test_what_another_default_changes_for_users_is_named_for_the_releases_that_had_it(
    former: str, *, named: bool
) -> None:
    told = dict.fromkeys(BROKER_IDS, running(f"{former[:3]}-IV1"))
    modes = (BrokerMode.UPGRADED, BrokerMode.LIFTED)
    case = preflight(told, copies(former=former, modes=modes))
    assert ("TLS 1.0 and 1.1 are off" in found(case)["ReleaseDefaultsDiffer"].reason) is named
    stated = dict.fromkeys(BROKER_IDS, (*told[0], setting("ssl.enabled.protocols", "TLSv1.2")))
    assert "TLS 1.0" not in found(preflight(stated, copies(former=former, modes=modes)))["ReleaseDefaultsDiffer"].reason


def test_a_protocol_without_topic_ids_passes_and_says_that_the_brokers_restart_twice() -> None:
    told = {0: running(), 1: running("2.7-IV2"), 2: running("2.4-IV1")}
    case = preflight(told, copies(former="2.4.1", modes=(BrokerMode.UPGRADED, BrokerMode.LIFTED)))
    decision = case.decide()
    assert decision.status.phase is Phase.UPGRADING_BROKERS, decision.status.message
    assert decision.status.broker_upgrade is not None
    assert decision.status.broker_upgrade.protocol == "2.4-IV1"
    second = found(case)["SecondRollNeeded"]
    assert (second.severity, second.object, "2.4-IV1" in second.reason) == (Severity.INFORMATION, "brokers", True)
    assert "SecondRollNeeded" not in found(preflight())


def test_every_broker_is_tried_with_the_lifted_protocol_before_the_first_one_restarts() -> None:
    told = dict.fromkeys(BROKER_IDS, running("2.4-IV1"))
    assert preflight(told, copies(former="2.4.1")).decide().status.phase is Phase.PREFLIGHT
    assert "mode Lifted" in found(preflight(told, copies(former="2.4.1")))["UpgradeNotProven"].reason
    keys = copies_of(BROKER_SET, BROKER_IDS, (BrokerMode.UPGRADED, BrokerMode.LIFTED))
    assert [key.ordinal for key in keys if key.mode is BrokerMode.LIFTED] == list(BROKER_IDS)


def test_without_ids_nothing_is_rehearsed_in_preflight() -> None:
    told = dict.fromkeys(BROKER_IDS, running("2.4-IV1"))
    case = preflight(told, copies(former="2.4.1", modes=(BrokerMode.UPGRADED, BrokerMode.LIFTED)))
    case = case.with_status(rehearsal=None)
    assert case.decide().status.phase is Phase.UPGRADING_BROKERS
    assert case.decide().status.rehearsal is None
    assert preflight().with_status(rehearsal=None).decide().status.rehearsal is not None


def test_without_dry_starts_nothing_judges_the_image() -> None:
    assert "without dry starts" in found(preflight(dry_start=DryStartState("", off=True)))["UpgradeNotProven"].reason


def test_the_name_of_an_image_that_states_another_release_is_enough() -> None:
    case = preflight(upgrade=UpgradeSpec(image="apache/kafka:4.0.0"))
    assert found(case)["UpgradeImageNotBridge"].severity == Severity.BLOCKING


def test_a_protocol_in_the_properties_file_would_come_back_with_a_rollback() -> None:
    stated = TEMPLATE | {PROTOCOL: "2.8"}
    case = preflight(settings=stated, properties_from="ConfigMap/kafka-config")
    properties = PropertiesSource(volume="config")
    style = {"config_style": ConfigStyle.PROPERTIES, "properties": properties}
    case = case.asking(brokers=case.spec.brokers.model_copy(update=style))
    assert found(case)["ProtocolInFile"].severity == Severity.BLOCKING
    assert "ProtocolInFile" not in found(preflight(settings=stated)), "a variable is set to 3.9 by a rollback"


@pytest.mark.parametrize(("stated", "warns"), [("0.10.2", True), ("2.8", False)])
def test_a_message_format_that_ends_with_the_lift_is_a_warning(stated: str, *, warns: bool) -> None:
    told = running(FORMER_PROTOCOL, setting("log.message.format.version", stated))
    case = preflight(dict.fromkeys(BROKER_IDS, told))
    assert ("MessageFormatEnds" in found(case)) is warns


def test_a_broker_that_is_gone_since_preflight_recorded_it_need_not_tell_its_protocol() -> None:
    """Preflight rested for days, or a former attempt recorded it, and its StatefulSet was scaled down since."""
    case = preflight()
    present = {f"{BROKER_SET}-{broker}": broker for broker in BROKER_IDS}
    recorded = {**present, f"{BROKER_SET}-3": 3}
    upgrade = BrokerUpgradeStatus(needed=True, protocol=FORMER_PROTOCOL)
    decision = case.with_status(broker_ids=recorded, broker_upgrade=upgrade).decide()
    assert decision.status.phase is Phase.UPGRADING_BROKERS, decision.status.message
    assert decision.status.broker_ids == present


def test_a_broker_that_does_not_tell_its_protocol_keeps_preflight_closed() -> None:
    silent = {0: running(), 1: running(), 2: (*RUNNING, setting("num.network.threads", "4"))}
    decision = preflight(silent).decide()
    assert decision.status.phase is Phase.PREFLIGHT
    assert decision.status.broker_upgrade is None
    known = preflight(silent).with_status(broker_upgrade=BrokerUpgradeStatus(needed=True, protocol=FORMER_PROTOCOL))
    assert known.decide().status.phase is Phase.PREFLIGHT
    assert found(known)["InterBrokerProtocolTooLow"].object == "broker/2"


# ------------------------------------------------------------------------------------------------- the roll


def upgrading(done: int, **of_set: Any) -> Situation:
    """Return the rolling restart after ``done`` brokers: healthy, nothing under way."""
    item = partly_rolled(done, BrokerMode.UPGRADED, None, **of_set)
    told = {i: running() for i in BROKER_IDS}
    return open_gate(Phase.UPGRADING_BROKERS).observing(stateful_sets=(item,), survey=survey(brokers=told))


def restarted(case: Situation) -> list[str]:
    return [a.pod for a in case.decide().actions if isinstance(a, RestartPod)]


@pytest.mark.parametrize("done", [0, 1, 2])
def test_one_broker_restarts_the_controller_last(done: int) -> None:
    case = upgrading(done)
    order = [f"{BROKER_SET}-{i}" for i in (0, 2, 1)]
    pending = [name for name in order if int(name[-1]) >= done]
    assert restarted(case) == pending[:1]


CLOSING: dict[str, Callable[[Situation], Situation]] = {
    **{
        part: lambda s, part=part: s.observing(**{part: (UNKNOWN,) if part == "stateful_sets" else UNKNOWN})  # type: ignore[misc]
        for part in ("zookeeper", "cluster", "cluster_by_broker", "redundancy", "survey", "stateful_sets")
    },
    "under-replicated": lambda s: s.observing(cluster=cluster(under_replicated=("t-1",), under_replicated_count=1)),
    "a lone topic": lambda s: s.observing(redundancy=TopicRedundancy(("lonely",), (), read_at=NOW)),
    "no controller": lambda s: s.observing(zookeeper=zookeeper(taken_over=False, controller=None)),
    "a KRaft controller": lambda s: s.observing(zookeeper=zookeeper(taken_over=True)),
    "a hold": lambda s: s.with_status(hold_until=NOW + timedelta(seconds=9)),
    "the record is gone": lambda s: s.with_status(broker_upgrade=None),
    "drift": lambda s: s.observing(
        stateful_sets=(partly_rolled(1, BrokerMode.UPGRADED, None, drift=("image of kafka",)),)
    ),
}


@pytest.mark.parametrize("what", CLOSING)
def test_what_keeps_every_broker_running(what: str) -> None:
    assert restarted(upgrading(1)) != []
    assert restarted(CLOSING[what](upgrading(1))) == []


@pytest.mark.parametrize(("now", "restarts"), [(NEW, True), (OLD, False), ("sha256:" + "c" * 64, False)])
def test_a_broker_that_came_back_with_another_image_than_the_copies_is_the_last(now: str, *, restarts: bool) -> None:
    case = upgrading(1)
    (item,) = case.observation.stateful_sets
    assert isinstance(item, StatefulSetState)
    first, *others = item.pods
    images = [now, OLD, OLD]
    pods = tuple(replace(p, images=frozenset({("kafka", i)})) for p, i in zip((first, *others), images, strict=True))
    nodes = tuple(
        NodeStatus(
            id=i, role="broker", pod=f"{BROKER_SET}-{i}", stateful_set=BROKER_SET, mode="", images={"kafka": OLD}
        )
        for i in BROKER_IDS
    )
    record = BrokerUpgradeStatus(needed=True, protocol=FORMER_PROTOCOL, images={f"{BROKER_SET}/kafka": NEW})
    case = case.observing(stateful_sets=(replace(item, pods=pods),)).with_status(nodes=nodes, broker_upgrade=record)
    assert bool(restarted(case)) is restarts
    if not restarts:
        assert "came back with another image" in case.decide().status.message


def test_the_phase_rests_at_its_target_and_leads_on_to_the_quorum() -> None:
    resting = open_gate(Phase.UPGRADING_BROKERS, Target.BRIDGE_RELEASE).decide()
    ready = condition(resting.status.conditions, ConditionType.READY)
    assert ready is not None
    assert ready.status == "True"
    assert resting.actions == ()
    on = open_gate(Phase.UPGRADING_BROKERS).decide()
    assert on.status.phase is Phase.PROVISIONING_QUORUM
    assert on.status.controllers is not None


def before_the_first_restart(dry_start: DryStartState, protocol: str = FORMER_PROTOCOL) -> Situation:
    """Return the first step of the phase: nothing is verified, recorded or locked yet."""
    case = open_gate(Phase.UPGRADING_BROKERS).with_status(templates=(), verifications=())
    told = survey(brokers=dict.fromkeys(BROKER_IDS, running(protocol)))
    return case.observing(stateful_sets=(broker_set(),), dry_start=dry_start, survey=told)


def test_no_broker_restarts_before_what_each_serves_was_compared_with_zookeeper() -> None:
    """Nothing else tells what brokers had forgotten before from what they forget on the way."""
    entering = before_the_first_restart(copies())
    launched = entering.decide()
    assert launched_runs(launched) == [(Profile.UPGRADE, Phase.UPGRADING_BROKERS)]
    assert not [action for action in launched.actions if isinstance(action, ConfigureBrokers | RestartPod)]
    before = record(Profile.UPGRADE, Phase.UPGRADING_BROKERS)
    goes_on = entering.with_status(verifications=(before,)).decide()
    assert [type(action) for action in goes_on.actions] == [LockStatefulSet]


def test_the_image_of_copies_that_started_after_preflight_is_the_one_that_brokers_must_get() -> None:
    """The tag moved, and a dry start before the first restart has shown the image that it names now."""
    entering = before_the_first_restart(copies(digest=NEW))
    record_of_preflight = BrokerUpgradeStatus(
        needed=True, protocol=FORMER_PROTOCOL, images={f"{BROKER_SET}/kafka": "sha256:" + "d" * 64}
    )
    before = record(Profile.UPGRADE, Phase.UPGRADING_BROKERS)
    case = entering.with_status(templates=(), verifications=(before,), broker_upgrade=record_of_preflight)
    decision = case.decide()
    assert [type(action) for action in decision.actions] == [LockStatefulSet]
    assert decision.status.broker_upgrade is not None
    assert decision.status.broker_upgrade.images == {f"{BROKER_SET}/kafka": NEW}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"release": "3.8.1"}, "UpgradeImageNotBridge"),
        ({"release": "?"}, "UpgradeNotProven"),
        ({"digest": ""}, "UpgradeNotProven"),
        ({}, ""),
    ],
)
def test_a_dry_start_after_preflight_judges_the_new_image_too(changed: dict[str, str], words: str) -> None:
    """The pod template changed, so copies started anew, and the tag names another release by now."""
    entering = before_the_first_restart(copies(**changed))
    channel = entering.status.channel
    assert channel is not None
    before = record(Profile.UPGRADE, Phase.UPGRADING_BROKERS)
    former = channel.model_copy(update={"fingerprint": "of another template"})
    case = entering.with_status(templates=(), verifications=(before,), channel=former)
    decision = case.decide()
    assert words in decision.status.message
    assert [type(action) for action in decision.actions] == ([] if words else [LockStatefulSet])
    ended = DryStartStatus(count=1, run_id="ended", digest="same", finished_at=NOW - timedelta(minutes=2))
    again = [type(action) for action in case.with_status(dry_start=ended).decide().actions]
    assert again == ([LaunchRun] if words else [LockStatefulSet]), "the tag may name the right image by now"


@pytest.mark.parametrize("now", ["2.4-IV1", "3.4-IV0", "3.9-IV0"])
def test_another_protocol_than_in_preflight_is_taken_anew_before_the_first_restart(now: str) -> None:
    """Somebody raised it, or took an upgrade of its own back, while the first verification was under way."""
    before = record(Profile.UPGRADE, Phase.UPGRADING_BROKERS)
    decision = before_the_first_restart(copies(), now).with_status(verifications=(before,)).decide()
    assert decision.actions == ()
    assert decision.status.broker_upgrade == BrokerUpgradeStatus(needed=now != "3.9-IV0", protocol=now)


def test_before_the_first_restart_every_broker_must_tell_its_protocol() -> None:
    before = record(Profile.UPGRADE, Phase.UPGRADING_BROKERS)
    entering = before_the_first_restart(copies()).with_status(verifications=(before,))
    told = {**dict.fromkeys(BROKER_IDS, running()), 2: (*RUNNING,)}
    silent = tuple(each for each in told[2] if each.name != PROTOCOL)
    decision = entering.observing(survey=survey(brokers={**told, 2: silent})).decide()
    assert decision.actions == ()
    assert "it is not known yet" in decision.status.message


def test_what_brokers_serve_after_the_upgrade_opens_the_gate() -> None:
    case = open_gate(Phase.UPGRADING_BROKERS)
    before = record(Profile.UPGRADE, Phase.UPGRADING_BROKERS)
    launched = case.with_status(verifications=(before,)).decide()
    assert launched.status.phase is Phase.UPGRADING_BROKERS
    assert launched_runs(launched) == [(Profile.UPGRADE, Phase.PROVISIONING_QUORUM)]
    missed = record(Profile.UPGRADE, Phase.PROVISIONING_QUORUM, verdict=Verdict.INCONSISTENT, differing=2)
    held = case.with_status(verifications=(before, missed)).decide()
    assert held.status.phase is Phase.UPGRADING_BROKERS
    assert "restart the brokers that it names" in held.status.message


def test_between_two_rolling_restarts_another_verification_is_asked_for_than_after_both() -> None:
    case = open_gate(Phase.UPGRADING_BROKERS)
    upgrade = BrokerUpgradeStatus(needed=True, protocol="2.4")
    lifting = case.with_status(broker_upgrade=upgrade)
    asked = lifting.decide()
    assert [(run.gate, run.purpose) for run in asked.status.verifications[-1:]] == [
        (Phase.PROVISIONING_QUORUM, "before-lift")
    ]
    between = record(Profile.UPGRADE, Phase.PROVISIONING_QUORUM, "before-lift")
    waits = lifting.with_status(verifications=(between,)).decide()
    assert "giveUpFormerImage" in waits.status.message


def test_a_rest_whose_cluster_is_not_whole_is_not_ready() -> None:
    case = open_gate(Phase.UPGRADING_BROKERS, Target.BRIDGE_RELEASE)
    broken = case.observing(cluster=cluster(offline=("t-2",), offline_count=1)).decide()
    ready = condition(broken.status.conditions, ConditionType.READY)
    assert ready is not None
    assert ready.status == "False"


# ------------------------------------------------------------------------------------------------- the lift


def at_quorum(**upgrade: Any) -> Situation:
    """Return the gate before the takeover, with brokers that run the new image and the former protocol."""
    case = open_gate(Phase.PROVISIONING_QUORUM)
    record = BrokerUpgradeStatus(needed=True, protocol=FORMER_PROTOCOL).model_copy(update=upgrade)
    asked = case.asking(brokers=case.spec.brokers.model_copy(update={"upgrade": UPGRADE}))
    told = {i: running() for i in BROKER_IDS}
    return asked.with_status(broker_upgrade=record).observing(
        stateful_sets=(replace(broker_set(BrokerMode.UPGRADED), image=UPGRADE.image),), survey=survey(brokers=told)
    )


def test_no_broker_runs_3_9s_protocol_without_the_word() -> None:
    waiting = at_quorum().decide()
    assert waiting.status.phase is Phase.PROVISIONING_QUORUM
    assert "spec.rollback.giveUpFormerImage" in waiting.status.message
    said = condition(waiting.status.conditions, ConditionType.ROLLBACK_POSSIBLE)
    assert said is not None
    assert (said.status, "former image back" in said.message) == ("True", True)
    word = at_quorum().asking(rollback=RollbackSpec(give_up_former_image=True))
    assert word.decide().status.phase is Phase.TAKING_OVER, word.decide().status.message


def test_the_lift_is_recorded_before_the_first_template_has_it() -> None:
    case = rolling(Phase.TAKING_OVER, 0)
    record = BrokerUpgradeStatus(needed=True, protocol=FORMER_PROTOCOL)
    asked = case.asking(brokers=case.spec.brokers.model_copy(update={"upgrade": UPGRADE}))
    case = asked.with_status(broker_upgrade=record).observing(stateful_sets=(broker_set(BrokerMode.UPGRADED),))
    decision = case.decide()
    assert [a.mode for a in decision.actions if isinstance(a, ConfigureBrokers)] == [BrokerMode.MIGRATION]
    assert decision.status.broker_upgrade is not None
    assert decision.status.broker_upgrade.lifted_at == NOW
    said = condition(decision.status.conditions, ConditionType.ROLLBACK_POSSIBLE)
    assert said is not None
    assert f"keeps image {UPGRADE.image}" in said.message


def test_the_lift_is_recorded_too_where_the_first_template_has_it_while_a_controller_restarts() -> None:
    """All controllers were down at the takeover's first step, and one of them restarts: every template is rendered then."""
    case = rolling(Phase.TAKING_OVER, 0)
    record = BrokerUpgradeStatus(needed=True, protocol=FORMER_PROTOCOL)
    operation = Operation(
        kind=OperationKind.RESTART_CONTROLLER, node_id=100, pod=f"{CONTROLLERS}-0", pod_uid="former", started_at=NOW
    )
    asked = case.asking(brokers=case.spec.brokers.model_copy(update={"upgrade": UPGRADE}))
    case = asked.with_status(broker_upgrade=record, operation=operation)
    decision = case.observing(stateful_sets=(broker_set(BrokerMode.UPGRADED),)).decide()
    rendered = [a.mode for a in decision.actions if isinstance(a, ConfigureBrokers)]
    assert rendered in ([], [BrokerMode.MIGRATION])
    assert decision.status.broker_upgrade is not None
    assert (decision.status.broker_upgrade.lifted_at is not None) is bool(rendered)


@pytest.mark.parametrize(("lifted_at", "told"), [(NOW, True), (None, False)])
def test_the_end_of_a_rollback_says_that_the_former_image_must_not_come_back(
    lifted_at: datetime | None, *, told: bool
) -> None:
    """The StatefulSets are their owner's again, whose own release still names the former image."""
    upgrade = BrokerUpgradeStatus(needed=True, protocol=FORMER_PROTOCOL, lifted_at=lifted_at)
    case = open_gate(Phase.UPGRADING_BROKERS).asking(target=Target.ZOOKEEPER)
    message = case.with_status(phase=Phase.ROLLED_BACK, broker_upgrade=upgrade).decide().status.message
    assert message.startswith("Rolled back: the cluster runs on ZooKeeper")
    assert ("before you apply it" in message) is told


def test_a_template_that_lost_its_fields_gets_them_back_at_the_quorum() -> None:
    case = at_quorum()
    drifted = replace(broker_set(BrokerMode.UPGRADED), drift=("image of kafka",))
    decision = case.observing(stateful_sets=(drifted,)).decide()
    assert [a.mode for a in decision.actions if isinstance(a, ConfigureBrokers)] == [BrokerMode.UPGRADED]


# ------------------------------------------------------------------------------------- before and after a restart


def default(value: str | None) -> EffectiveSetting:
    return EffectiveSetting(value, stated=(Stated(SettingSource.DEFAULT, value),))


def stated(value: str) -> EffectiveSetting:
    return EffectiveSetting(value, stated=(Stated(SettingSource.STATIC, value),))


def typed(value: str, kind: ConfigType) -> EffectiveSetting:
    return EffectiveSetting(value, type=kind, stated=(Stated(SettingSource.STATIC, value),))


COMPARED: dict[str, tuple[dict[str, EffectiveSetting], dict[str, EffectiveSetting], bool]] = {
    "new in 3.9": ({}, {"telemetry.max.bytes": default("1048576")}, True),
    "gone in 3.9": ({"port": default("9092")}, {}, True),
    "told by nobody in 3.9": ({"producer.id.expiration.check.interval.ms": default("600000")}, {}, True),
    "another default": ({"listeners": default(None)}, {"listeners": default("PLAINTEXT://:9092")}, True),
    "another spelling of what had no type before 2.6": (
        {"quota.window.size.seconds": stated(" 1")},
        {"quota.window.size.seconds": typed("1", ConfigType.INT)},
        True,
    ),
    "an unknown change": ({"num.io.threads": default("8")}, {"num.io.threads": default("9")}, False),
    "an unknown loss": ({"num.io.threads": default("8")}, {}, False),
    "stated before": ({"host.name": stated("b")}, {}, False),
    "stated after": ({}, {"telemetry.max.bytes": stated("1")}, False),
    "stated and lost": ({"log.retention.ms": stated("-1")}, {"log.retention.ms": default("604800000")}, False),
}


@pytest.mark.parametrize("what", COMPARED)
def test_only_what_nobody_states_may_differ_with_the_release(what: str) -> None:
    before, after, is_fine = COMPARED[what]
    record = replace(broker_record(0, "uid"), settings=before)
    now = replace(broker_now(0), settings=after)
    assert (not list(differing_settings(record, now, new_release=True))) is is_fine
    if "spelling" not in what:
        assert list(differing_settings(record, now)), "a restart with the same release explains nothing"
