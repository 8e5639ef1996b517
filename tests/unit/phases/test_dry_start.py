"""Findings of the dry start: each disagreement blocks by a name of its own, and nothing that is missing passes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.observations import (
    BROKER_IDS,
    NOW,
    RUNNING,
    Situation,
    broker_set,
    dry_start_of,
    open_gate,
    setting,
    survey,
)

from kraftbridge.copies.dry_start import differences_from_overlay
from kraftbridge.models.catalogue import Severity
from kraftbridge.models.decision import LaunchRun
from kraftbridge.models.dry_start import (
    ContainerImage,
    CopyOutcome,
    DryStartReport,
    DryStartStage,
    DryStartState,
    GivenSetting,
    JavaProgram,
)
from kraftbridge.models.observation import Unobserved
from kraftbridge.models.phase import BrokerMode, Phase
from kraftbridge.models.runs import RunKind
from kraftbridge.models.status import AddressCachesStatus, DryStartStatus, FindingStatus

FINE = dry_start_of()
ZOOKEEPER, MIGRATION, KRAFT = BrokerMode.ZOOKEEPER, BrokerMode.MIGRATION, BrokerMode.KRAFT


def situation(state: DryStartState | Unobserved) -> Situation:
    return open_gate(Phase.PREFLIGHT).observing(dry_start=state)


@pytest.mark.parametrize(("before", "after"), [("", "3.9.1"), ("3.9.1", ""), ("", ""), ("3.9.1", "3.9.2")])
def test_options_are_compared_unless_both_copies_tell_another_release(before: str, after: str) -> None:
    assert FINE.report is not None
    own = next(c for c in FINE.report.copies if c.key.mode is ZOOKEEPER)
    other = next(c for c in FINE.report.copies if c.key == replace(own.key, mode=MIGRATION))
    assert own.start is not None
    assert other.start is not None
    present = replace(own, start=replace(own.start, kafka=before))
    option = {"java.security.krb5.conf": GivenSetting("/elsewhere")}
    migrated = replace(other, start=replace(other.start, kafka=after, system_properties=option))
    assert "java.security.krb5.conf" in str(differences_from_overlay(present, migrated))
    assert present.start is not None
    former = replace(present, start=replace(present.start, kafka="2.8.2"))
    newer = replace(migrated, start=replace(migrated.start, kafka="3.9.1"))  # type: ignore[type-var]
    assert "krb5" not in str(differences_from_overlay(former, newer))


def changed(mode: BrokerMode, **changes: Any) -> DryStartState:
    """Return the faithful dry start with its copies of one mode changed."""
    assert FINE.report is not None
    return with_copies([replace(c, **changes) if c.key.mode is mode else c for c in FINE.report.copies])


def with_copies(copies: list[CopyOutcome]) -> DryStartState:
    return replace(FINE, report=DryStartReport("same", tuple(copies)))


def with_settings(mode: BrokerMode, more: Mapping[str, GivenSetting], without: str = "") -> DryStartState:
    assert FINE.report is not None
    copies = []
    for each in FINE.report.copies:
        if each.key.mode is mode and each.start is not None:
            settings = {n: s for n, s in {**each.start.settings, **more}.items() if n != without}
            copies.append(replace(each, start=replace(each.start, settings=settings)))
        else:
            copies.append(each)
    return with_copies(copies)


OF_COPIES = ("DryStart", "BrokerCredentials", "AddressesCached")
"""How the codes of findings begin that tell what copies of pods showed."""


def found(case: Situation) -> dict[str, FindingStatus]:
    return {f.code: f for f in case.decide().status.findings if f.code.startswith(OF_COPIES)}


def test_a_faithful_dry_start_opens_the_gate() -> None:
    decision = situation(FINE).decide()
    assert decision.status.phase is Phase.PROVISIONING_QUORUM
    assert found(situation(FINE)) == {}
    assert not [a for a in decision.actions if isinstance(a, LaunchRun)]


@pytest.mark.parametrize("report", [None, DryStartReport("older")])
def test_without_a_report_of_what_is_there_now_a_dry_start_runs_and_the_gate_waits(
    report: DryStartReport | None,
) -> None:
    decision = situation(DryStartState("same", report=report)).decide()
    assert decision.status.dry_start is not None
    run = decision.status.dry_start.running
    assert run is not None
    assert LaunchRun(RunKind.DRY_START, run.run_id) in decision.actions
    assert (run.digest, run.stage) == ("same", DryStartStage.PROBE)
    assert run.broker_ids.keys() == {"kafka-0", "kafka-1", "kafka-2"}
    assert decision.status.phase is Phase.PREFLIGHT
    assert "Copies of the brokers' pods" in decision.status.message


def test_a_dry_start_under_way_is_awaited_and_not_begun_again() -> None:
    case = situation(DryStartState("same"))
    running = case.decide().status.dry_start
    decision = case.with_status(dry_start=running).decide()
    assert decision.status.phase is Phase.PREFLIGHT
    assert decision.status.dry_start == running


@pytest.mark.parametrize("under_way", [True, False])
def test_a_blocked_preflight_says_whether_copies_are_still_started(under_way: bool) -> None:
    state = DryStartState("same") if under_way else FINE
    case = situation(state).observing(survey=Unobserved("survey", "403"))
    message = case.decide().status.message
    assert "blocking finding" in message
    assert ("Copies of the brokers' pods are started" in message) is under_way


def test_a_lost_overlay_names_what_makes_the_mode_first() -> None:
    """An image that passes every variable of its prefix to Kafka turns those of a wrong prefix into settings of its own."""
    assert FINE.report is not None
    copies = []
    for each in FINE.report.copies:
        overlay = dict.fromkeys(("a.setting", "b.setting", "c.setting", "process.roles"), "x")
        if each.key.mode is KRAFT and each.start is not None:
            strange = {f"cfg.{n}": GivenSetting("x") for n in overlay}
            copies.append(replace(each, overlay=overlay, start=replace(each.start, settings=strange)))
        else:
            copies.append(each)
    reason = found(situation(with_copies(copies)))["DryStartOverlayLost"].reason
    assert "start with exactly what the migration sets: process.roles is not set instead of 'x'; a.setting is" in reason


def test_an_operator_without_dry_starts_says_so_and_begins_none() -> None:
    case = situation(DryStartState("", off=True))
    decision = case.decide()
    assert found(case).keys() == {"DryStartOff"}
    assert decision.status.phase is Phase.PROVISIONING_QUORUM
    assert not [a for a in decision.actions if isinstance(a, LaunchRun)]


@pytest.mark.parametrize("issued", ["", "demo-listener-brokers"])
def test_the_copies_that_have_the_credentials_say_whether_these_will_do(issued: str) -> None:
    """Where the overlay brings the certificate, the copy in the present mode has none."""
    sets = (replace(broker_set(), issued_secret=issued),)
    telling, silent = (MIGRATION, ZOOKEEPER) if issued else (ZOOKEEPER, MIGRATION)
    assert FINE.report is not None
    for mode in (telling, silent):
        copies = [
            replace(c, start=replace(c.start, refusals=("no trust",))) if c.key.mode is mode and c.start else c
            for c in FINE.report.copies
        ]
        case = situation(with_copies(copies)).observing(stateful_sets=sets)
        assert ("BrokerCredentialsRefused" in found(case)) is (mode is telling)


def test_a_lost_overlay_is_not_told_again_as_a_missing_certificate() -> None:
    assert FINE.report is not None
    overlay = {"listener.name.controller.ssl.keystore.location": "/etc/kraftbridge-listener/keystore.pem"}
    copies = [
        replace(c, overlay=overlay, start=replace(c.start, refusals=("no certificate",)))
        if c.key.mode is MIGRATION and c.start
        else c
        for c in FINE.report.copies
    ]
    sets = (replace(broker_set(), issued_secret="demo-listener-brokers"),)
    case = situation(with_copies(copies)).observing(stateful_sets=sets)
    assert "DryStartOverlayLost" in found(case)
    assert "BrokerCredentialsRefused" not in found(case)


def test_what_was_not_looked_at_blocks() -> None:
    case = situation(Unobserved("StatefulSet kafka", "403"))
    assert "403" in found(case)["DryStartUnknown"].reason
    assert case.decide().status.phase is Phase.PREFLIGHT


def test_an_image_that_writes_to_zookeeper_is_told_and_blocks_nothing() -> None:
    writes = replace(broker_set(), writes_to_zookeeper=("KAFKA_ZOOKEEPER_BOOTSTRAP_SCRAM_USERS",))
    decision = situation(FINE).observing(stateful_sets=(writes,)).decide()
    (told,) = [f for f in decision.status.findings if f.code == "ImageWritesToZooKeeper"]
    assert told.severity is Severity.INFORMATION
    assert "sets KAFKA_ZOOKEEPER_BOOTSTRAP_SCRAM_USERS=false from the first restart on" in told.reason
    assert decision.status.phase is Phase.PROVISIONING_QUORUM


@pytest.mark.parametrize(
    ("mode", "name", "value", "lost"),
    [
        (KRAFT, "node.id", "{id}", False),
        (KRAFT, "node.id", "77", True),
        (MIGRATION, "node.id", "{id}", True),
        (KRAFT, "zookeeper.connect", "", False),
        (KRAFT, "zookeeper.connect", "elsewhere:2181", True),
        (MIGRATION, "zookeeper.connect", "", True),
        (KRAFT, "listener.name.controller.sasl.enabled.mechanisms", "PLAIN", False),
        (MIGRATION, "listener.name.controller.sasl.enabled.mechanisms", "PLAIN", False),
        (KRAFT, "listener.name.controller.plain.sasl.jaas.config", "another", True),
        (KRAFT, "listener.name.client.sasl.enabled.mechanisms", "PLAIN", True),
    ],
)
def test_what_an_image_adds_to_a_mode_passes_only_where_it_changes_nothing_for_the_broker(
    mode: BrokerMode, name: str, value: str, *, lost: bool
) -> None:
    """Bitnami's image demands ``node.id`` in KRaft mode and no ``zookeeper.connect``, and makes settings of the controllers' listener."""
    assert FINE.report is not None
    copies = []
    for each in FINE.report.copies:
        if each.key.mode is mode and each.start is not None:
            given = GivenSetting(value.format(id=each.broker_id))
            copies.append(replace(each, start=replace(each.start, settings={**each.start.settings, name: given})))
        else:
            copies.append(each)
    assert ("DryStartOverlayLost" in found(situation(with_copies(copies)))) is lost


@pytest.mark.parametrize(
    ("state", "code", "words"),
    [
        (replace(FINE, report=DryStartReport("same", reached=("10.0.0.1:2181",))), "DryStartUnfenced", "10.0.0.1:2181"),
        (replace(FINE, report=DryStartReport("same", problem="the probe pod did not run")), "DryStartImpossible", "probe pod"),
        (replace(FINE, report=DryStartReport("same")), "DryStartImpossible", "no copy was made of kafka-0"),
        (changed(ZOOKEEPER, start=None, problem="container kafka ended with code 127", words="java: not found"), "DryStartImpossible", "java: not found"),
        (changed(KRAFT, start=None, problem="container kafka ended with code 1", words="please set KAFKA_PROCESS_ROLES"), "DryStartFailed", "please set"),
        (with_settings(ZOOKEEPER, {"authorizer.class.name": GivenSetting("x.Y")}), "DryStartDiffers", "authorizer.class.name is 'x.Y' instead of not set"),
        (with_settings(ZOOKEEPER, {}, "num.network.threads"), "DryStartDiffers", "num.network.threads is not set instead of '4'"),
        (with_settings(MIGRATION, {}, "kraftbridge.mode"), "DryStartOverlayLost", "kraftbridge.mode is not set instead of 'migration'"),
        (with_settings(KRAFT, {"log.dirs": GivenSetting("/tmp")}), "DryStartOverlayLost", "log.dirs is '/tmp' instead of not set"),
        (with_settings(KRAFT, {"ssl.key.password": GivenSetting(hash="ab")}), "DryStartOverlayLost", "ssl.key.password is a value that is not shown"),
    ],
)  # fmt: skip
def test_each_disagreement_blocks(state: DryStartState, code: str, words: str) -> None:
    case = situation(state)
    assert words in found(case)[code].reason
    assert case.decide().status.phase is Phase.PREFLIGHT


@pytest.mark.parametrize(
    ("in_kraft", "words"),
    [
        ({}, "reaches the brokers in every mode: configStyle: Properties, properties: {…}"),
        (
            {"start": None, "problem": "container kafka ended with code 1", "words": "KAFKA_X must be set"},
            'does not start with it in KRaft mode: container kafka ended with code 1; the image says: "KAFKA_X must be set": configStyle: Properties',
        ),
    ],
)
def test_the_channel_that_reaches_the_brokers_is_proposed(in_kraft: dict[str, Any], words: str) -> None:
    assert FINE.report is not None
    lost = with_settings(MIGRATION, {}, "kraftbridge.mode")
    assert lost.report is not None
    by_mode = {c.key.mode: c for c in FINE.report.copies if c.key.ordinal == 0}
    trials = []
    for channel, spoiled in (("configStyle: Env, envPrefix: KAFKA_CFG_", True), ("configStyle: Properties, properties: {…}", False)):  # fmt: skip
        for mode in (MIGRATION, KRAFT):
            key = replace(by_mode[mode].key, channel=channel)
            overlay = {"process.roles": "lost"} if spoiled else by_mode[mode].overlay
            more = in_kraft if mode is KRAFT and not spoiled else {}
            trials.append(replace(by_mode[mode], key=key, overlay=overlay, **more))
    state = replace(lost, report=replace(lost.report, trials=tuple(trials)))
    assert words in found(situation(state))["DryStartOverlayLost"].fix
    in_vain = replace(lost, report=replace(lost.report, trials=tuple(trials[:2])))
    assert "tried these in vain: configStyle: Env, envPrefix: KAFKA_CFG_" in found(situation(in_vain))["DryStartOverlayLost"].fix  # fmt: skip


def test_kafkas_refusal_names_the_setting() -> None:
    assert FINE.report is not None
    copies = [
        replace(
            c, start=replace(c.start, valid=False, complaint="Invalid value many for configuration num.network.threads")
        )
        if c.key.mode is KRAFT and c.start is not None
        else c
        for c in FINE.report.copies
    ]
    refused = found(situation(with_copies(copies)))["DryStartRefused"]
    assert "many" in refused.reason
    assert "num.network.threads" in refused.fix


def test_credentials_that_the_controllers_listener_would_refuse_block() -> None:
    assert FINE.report is not None

    def told(**changes: Any) -> dict[str, Any]:
        copies = [replace(c, start=replace(c.start, **changes)) if c.start else c for c in FINE.report.copies]  # type: ignore[union-attr]
        case = situation(with_copies(copies))
        assert case.decide().status.phase is Phase.PREFLIGHT
        return found(case)

    refused = told(refusals=("the listener has no user ann", "no trust"))["BrokerCredentialsRefused"]
    assert refused.object == "broker/2"
    assert "do not accept each other: the listener has no user ann; no trust. The broker" in refused.reason
    assert "a class has them" in told(untried="a class has them")["BrokerCredentialsNotTried"].reason
    state = replace(FINE, report=replace(FINE.report, untried="ca.pem is no file of the Secret"))
    assert "ca.pem is no file" in found(situation(state))["BrokerCredentialsNotTried"].reason


def test_an_image_that_names_a_variable_has_its_setting_named() -> None:
    state = changed(KRAFT, start=None, problem="ended", words="KAFKA_NUM_NETWORK_THREADS must be set")
    assert "num.network.threads" in found(situation(state))["DryStartFailed"].fix


def test_what_the_image_would_do_to_the_cluster_at_each_start_is_told_and_blocks_nothing() -> None:
    assert FINE.report is not None
    program = JavaProgram("kafka.admin.ConfigCommand", "--zookeeper z:2181", ran=False)
    formats = JavaProgram("kafka.tools.StorageTool", "format", ran=True)
    copies = [
        replace(c, start=replace(c.start, programs=(program, formats))) if c.start is not None else c
        for c in FINE.report.copies
    ]
    case = situation(with_copies(copies))
    assert (
        "kafka.admin.ConfigCommand --zookeeper z:2181 (KRaft, Migration, ZooKeeper mode)"
        in found(case)["DryStartPrograms"].reason
    )
    assert "StorageTool" not in found(case)["DryStartPrograms"].reason
    assert case.decide().status.phase is Phase.PROVISIONING_QUORUM


SAME = ContainerImage(
    "kafka", "kafka:1", "kafka@sha256:a", "kafka:1", "docker-pullable://mirror/kafka@sha256:a", "n1", "n2"
)
MOVED = replace(SAME, copy_id="sha256:b")
INIT = ContainerImage("prepare", "tool:1", "sha256:c", "tool:1", "sha256:d", "n1", "n1")


def test_a_tag_that_moved_blocks_with_both_digests() -> None:
    assert found(situation(changed(ZOOKEEPER, images=(SAME,)))) == {}
    case = situation(changed(ZOOKEEPER, images=(INIT, MOVED)))
    assert case.decide().status.phase is Phase.PREFLIGHT
    assert found(case)["DryStartOtherImage"].reason.endswith(
        "container prepare of pod kafka-0 runs tool:1 (sha256:c), and a copy of it started tool:1 (sha256:d); the same for 2 more pod(s); "
        "container kafka of pod kafka-0 runs kafka:1 (sha256:a) on node n1, and a copy of it started kafka:1 (sha256:b) on node n2; the same for 2 more pod(s)"
    )
    in_kraft = found(situation(changed(KRAFT, images=(MOVED,))))["DryStartOtherImage"].reason
    assert "(sha256:b) on node n2; the same for 1 more pod(s)" in in_kraft, "the first and the last pod"


@pytest.mark.parametrize("lost", [{"live_id": ""}, {"copy_id": ""}])
def test_an_image_that_is_not_known_is_none_that_did_not_move(lost: dict[str, str]) -> None:
    unknown = replace(SAME, **lost)  # type: ignore[arg-type]
    assert "(its digest is not known)" in found(situation(changed(ZOOKEEPER, images=(unknown,))))["DryStartOtherImage"].reason  # fmt: skip
    failed = found(situation(changed(ZOOKEEPER, images=(unknown,), start=None, problem="ImagePullBackOff")))
    assert failed.keys() == {"DryStartImpossible"}, "its containers never started"
    both = found(situation(changed(ZOOKEEPER, images=(MOVED,), start=None, problem="ended")))
    assert both.keys() == {"DryStartImpossible", "DryStartOtherImage"}


@pytest.mark.parametrize(
    ("age", "accepted", "repeated"), [(61.0, False, True), (59.0, False, False), (61.0, True, False)]
)
def test_copies_are_made_again_while_a_tag_that_moved_blocks(age: float, accepted: bool, repeated: bool) -> None:
    ended = DryStartStatus(count=1, run_id="demo-dry-start-1", digest="same", finished_at=NOW - timedelta(seconds=age))
    case = situation(changed(ZOOKEEPER, images=(MOVED,))).with_status(dry_start=ended)
    if accepted:
        document = {"accepted": [{"code": "DryStartOtherImage", "object": "*"}]}
        case = case.asking(preflight=type(case.spec.preflight).model_validate(document))
    decision = case.decide()
    assert len([a for a in decision.actions if isinstance(a, LaunchRun)]) == repeated
    again = case.with_status(dry_start=decision.status.dry_start).decide()
    assert again.status.dry_start == decision.status.dry_start, "one at a time"
    assert [f.code for f in decision.status.findings] == ["DryStartOtherImage"], "it stands until the next report"
    assert decision.status.phase is (Phase.PROVISIONING_QUORUM if accepted else Phase.PREFLIGHT)


@pytest.mark.parametrize(("age_seconds", "repeated"), [(61.0, True), (59.0, False)])
def test_copies_are_made_again_where_a_pod_was_away(age_seconds: float, repeated: bool) -> None:
    """Nothing else changes when it is back, and the finding would stand for ever."""
    assert FINE.report is not None
    partial = replace(FINE, report=replace(FINE.report, copies=FINE.report.copies[1:]))
    finished_at = NOW - timedelta(seconds=age_seconds)
    ended = DryStartStatus(count=1, run_id="demo-dry-start-1", digest="same", finished_at=finished_at)
    decision = situation(partial).with_status(dry_start=ended).decide()
    assert [f.code for f in decision.status.findings if f.severity == "Blocking"] == ["DryStartImpossible"]
    assert len([a for a in decision.actions if isinstance(a, LaunchRun)]) == repeated


@pytest.mark.parametrize("code", ["DryStartImpossible", "DryStartUnfenced", "DryStartDiffers"])
def test_what_may_be_accepted_opens_the_gate_and_stays_visible(code: str) -> None:
    states = {
        "DryStartImpossible": changed(ZOOKEEPER, start=None, problem="ended"),
        "DryStartUnfenced": replace(FINE, report=replace(FINE.report, reached=("10.0.0.1:2181",))),  # type: ignore[type-var]
        "DryStartDiffers": changed(ZOOKEEPER, broker_id=7),
    }
    if code == "DryStartDiffers":
        brokers = {i: (*RUNNING, setting("num.network.threads", "5")) for i in BROKER_IDS}
        case = situation(FINE).observing(survey=survey(brokers=brokers))
        # The other modes of these copies start the same settings as the present one.
    else:
        case = situation(states[code])
    assert case.decide().status.phase is Phase.PREFLIGHT
    accepted = case.spec.preflight.model_copy(update={"accepted": ({"code": code, "object": "*"},)})
    accepted = type(case.spec.preflight).model_validate(accepted.model_dump())
    decision = case.asking(preflight=accepted).decide()
    assert decision.status.phase is Phase.PROVISIONING_QUORUM
    assert [f.accepted for f in decision.status.findings if f.code == code] == [True]


def caching(seconds: Mapping[BrokerMode, int | None]) -> DryStartState:
    """Return a dry start whose JVMs cache addresses that long in each mode."""
    report = dry_start_of().report
    assert report is not None
    copies = []
    for copy in report.copies:
        assert copy.start is not None
        copies.append(replace(copy, start=replace(copy.start, address_cache_seconds=seconds.get(copy.key.mode))))
    return with_copies(copies)


def test_preflight_records_how_long_the_jvms_cache_addresses() -> None:
    told = {BrokerMode.ZOOKEEPER: 60, BrokerMode.MIGRATION: 1, BrokerMode.KRAFT: 2}
    recorded = situation(caching(told)).decide().status.address_caches
    assert recorded == AddressCachesStatus(template_seconds=60, operator_seconds=2)
    known = situation(caching({})).with_status(address_caches=recorded)
    assert known.decide().status.address_caches == recorded, "JVMs that do not tell change nothing"
    assert situation(caching({})).decide().status.address_caches == AddressCachesStatus(
        template_seconds=30, operator_seconds=1
    )


def test_a_jvm_that_does_not_tell_counts_as_one_by_default_beside_one_that_does() -> None:
    told = caching(dict.fromkeys((BrokerMode.ZOOKEEPER, BrokerMode.MIGRATION, BrokerMode.KRAFT), 0))
    assert told.report is not None
    silent = {(BrokerMode.ZOOKEEPER, 1), (BrokerMode.KRAFT, 0)}
    copies = [
        replace(copy, start=replace(copy.start, address_cache_seconds=None))
        if copy.start is not None and (copy.key.mode, copy.key.ordinal) in silent
        else copy
        for copy in told.report.copies
    ]
    recorded = situation(with_copies(copies)).decide().status.address_caches
    assert recorded == AddressCachesStatus(template_seconds=30, operator_seconds=1)


@pytest.mark.parametrize("mode", [BrokerMode.ZOOKEEPER, BrokerMode.MIGRATION, BrokerMode.KRAFT])
def test_a_jvm_that_caches_addresses_for_ever_blocks_until_that_is_accepted(mode: BrokerMode) -> None:
    told = dict.fromkeys((BrokerMode.ZOOKEEPER, BrokerMode.MIGRATION, BrokerMode.KRAFT), 1) | {mode: -1}
    case = situation(caching(told))
    names = found(case)
    assert names["AddressesCachedForEver"].severity is Severity.BLOCKING
    assert f"In {mode} mode the JVM of pod kafka-0" in names["AddressesCachedForEver"].reason
    caches = case.decide().status.address_caches
    # A pause helps the JVMs of the other mode, which share the record.
    assert caches == AddressCachesStatus(template_seconds=told[BrokerMode.ZOOKEEPER], operator_seconds=1)


def test_a_jvm_that_caches_addresses_for_ever_does_not_hide_one_that_does_it_for_minutes() -> None:
    told = {BrokerMode.ZOOKEEPER: -1, BrokerMode.MIGRATION: 600, BrokerMode.KRAFT: -1}
    caches = situation(caching(told)).decide().status.address_caches
    assert caches == AddressCachesStatus(template_seconds=-1, operator_seconds=600)
