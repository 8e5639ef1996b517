"""What runs is the truth: where a template hides or invents a setting of the brokers, preflight says so, and the controllers get what runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.observations import (
    BROKER_IDS,
    RUNNING,
    Situation,
    broker_set,
    dry_start_of,
    open_gate,
    setting,
    survey,
)

from kraftbridge.builders.controllers import ControllersFacts, controller_settings
from kraftbridge.models.dry_start import DryStartReport, DryStartState, GivenSetting
from kraftbridge.models.phase import BrokerMode, ControllerMode, Phase
from kraftbridge.models.rehearsal import RehearsalVerdict
from kraftbridge.models.spec import AcceptedFinding, PreflightSpec, RehearsalSpec
from kraftbridge.models.status import FindingStatus
from kraftbridge.models.survey import BrokerSetting, SettingSource

OFF = DryStartState("", off=True)
AUTHORIZER = setting("authorizer.class.name", "kafka.security.authorizer.AclAuthorizer")
HIDDEN_FLAG = setting("allow.everyone.if.no.acl.found", None, known=False)


def situation(
    *running: BrokerSetting, dry_start: DryStartState = OFF, template: dict[str, str] | None = None
) -> Situation:
    """Return preflight of brokers that run with further settings, with a template that says something else."""
    names = {s.name for s in running}
    base = [s for s in RUNNING if s.name not in names]
    case = open_gate(Phase.PREFLIGHT).observing(
        survey=survey(brokers=dict.fromkeys(BROKER_IDS, (*base, *running))), dry_start=dry_start
    )
    if template is None:
        return case
    item = broker_set()
    return case.observing(stateful_sets=(replace(item, settings={**item.settings, **template}),))


def found(case: Situation) -> dict[str, FindingStatus]:
    return {f.code: f for f in case.decide().status.findings}


def given(**settings: GivenSetting) -> DryStartState:
    """Return a dry start whose copies in the present mode show further settings."""
    state = dry_start_of(brokers=dict.fromkeys(BROKER_IDS, RUNNING))
    assert state.report is not None
    named = {name.replace("_", "."): value for name, value in settings.items()}
    copies = [
        replace(c, start=replace(c.start, settings={**c.start.settings, **named})) if c.start is not None else c
        for c in state.report.copies
    ]
    return replace(state, report=replace(state.report, copies=tuple(copies)))


@pytest.mark.parametrize(
    ("code", "case", "words"),
    [
        ("SettingHidden", situation(AUTHORIZER), "authorizer.class.name=kafka.security.authorizer.AclAuthorizer"),
        ("SettingHidden", situation(setting("listener.security.protocol.map", "A:SSL"), template={"listener.security.protocol.map": ""}), "listener.security.protocol.map=A:SSL"),
        ("SettingNotRunning", situation(template={"delete.topic.enable": "false"}), "sets delete.topic.enable=false, and the broker runs without it"),
        ("SettingNotRunning", situation(setting("unclean.leader.election.enable", "true"), template={"unclean.leader.election.enable": "false"}), "runs with true"),
        ("SettingNotServed", situation(HIDDEN_FLAG), "allow.everyone.if.no.acl.found"),
        ("AuthorizerZooKeeperElsewhere", situation(setting("authorizer.zookeeper.url", None, known=False)), "authorizer.zookeeper.url"),
        ("AuthorizerZooKeeperElsewhere", situation(template={"authorizer.zookeeper.url": "zk:2181/acls"}), "authorizer.zookeeper.url"),
        ("PluginNotOnControllers", situation(setting("principal.builder.class", "com.example.Names")), "com.example.Names"),
    ],
)  # fmt: skip
def test_a_disagreement_between_template_and_broker_blocks(code: str, case: Situation, words: str) -> None:
    assert code not in found(situation())
    assert words in found(case)[code].reason
    assert case.decide().status.phase is Phase.PREFLIGHT


def test_an_empty_value_that_the_template_does_not_show_blocks_nothing() -> None:
    """Bitnami's charts up to 23 render KAFKA_CFG_AUTHORIZER_CLASS_NAME without a value."""
    assert "SettingHidden" not in found(situation(setting("authorizer.class.name", "")))


def test_brokers_with_the_same_hidden_value_share_a_finding() -> None:
    case = situation(template={"listener.security.protocol.map": ""})
    running = [
        (*RUNNING, setting("listener.security.protocol.map", "A:SSL" if b < 2 else "A:SASL_SSL")) for b in BROKER_IDS
    ]
    case = case.observing(survey=survey(brokers=dict(zip(BROKER_IDS, running, strict=True))))
    hidden = [f for f in case.decide().status.findings if f.code == "SettingHidden"]
    assert [f.reason.partition(", and")[0] for f in hidden] == [
        "Brokers 0, 1 run with listener.security.protocol.map=A:SSL",
        "Brokers 2 run with listener.security.protocol.map=A:SASL_SSL",
    ]
    assert {f.object for f in hidden} == {"StatefulSet/kafka"}


PLUGIN = ("create.topic.policy.class.name", "com.example.Policy")


@pytest.mark.parametrize(
    ("config", "image", "missing", "blocks"),
    [
        (dict([PLUGIN]), "shop/kafka:1", (), False),
        (dict([PLUGIN]), "shop/kafka:1", (PLUGIN[0],), True),
        (dict([PLUGIN]), "apache/kafka:3.9.2", (), True),
        ({PLUGIN[0]: "com.example.Another"}, "shop/kafka:1", (), True),
        ({"principal.builder.class": "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"}, "apache/kafka:3.9.2", (), False),
        ({}, "apache/kafka:3.9.2", (), False),
    ],
)  # fmt: skip
def test_a_class_loads_in_a_copy_with_the_controllers_image_or_blocks(
    config: dict[str, str], image: str, missing: tuple[str, ...], blocks: bool
) -> None:
    state = dry_start_of()
    assert state.report is not None
    copies = [
        replace(c, start=replace(c.start, settings={**c.start.settings, PLUGIN[0]: GivenSetting(PLUGIN[1])}, missing_classes=missing))
        for c in state.report.copies
        if c.start is not None
    ]  # fmt: skip
    sets = (replace(broker_set(), image="shop/kafka:1"),)
    case = open_gate(Phase.PREFLIGHT).observing(
        stateful_sets=sets, dry_start=replace(state, report=replace(state.report, copies=tuple(copies)))
    )
    controllers = case.spec.controllers.model_copy(update={"image": image, "config": config})
    case = case.asking(controllers=controllers, rehearsal=RehearsalSpec(enabled=False))
    assert ("PluginNotProven" in found(case)) is blocks


@pytest.mark.parametrize(
    ("setting_name", "verdict", "accepted", "blocks"),
    [
        (PLUGIN[0], RehearsalVerdict.WORKS, (), False),
        (PLUGIN[0], None, (), False),  # the gate stays closed until there is one
        (PLUGIN[0], RehearsalVerdict.FAILS, (), False),  # that closes the gate
        (PLUGIN[0], RehearsalVerdict.FAILS, ("RehearsalFails",), True),
        (PLUGIN[0], RehearsalVerdict.UNKNOWN, ("RehearsalUnknown",), True),
        (PLUGIN[0], None, ("RehearsalUnknown",), True),
        (PLUGIN[0], RehearsalVerdict.LOSES, ("RehearsalLoses", "RehearsalFails"), False),  # its controller started
        ("principal.builder.class", RehearsalVerdict.WORKS, (), True),
    ],
)
def test_a_rehearsal_with_the_controllers_image_proves_its_classes(
    setting_name: str, verdict: RehearsalVerdict | None, accepted: tuple[str, ...], blocks: bool
) -> None:
    case = open_gate(Phase.PREFLIGHT)
    controllers = case.spec.controllers.model_copy(update={"image": "shop/own:1", "config": {setting_name: PLUGIN[1]}})
    preflight = PreflightSpec(accepted=tuple(AcceptedFinding(code=code) for code in accepted))
    case = case.asking(controllers=controllers, preflight=preflight)
    assert case.status.rehearsal is not None
    record = case.status.rehearsal.model_copy(update={"verdict": verdict}) if verdict is not None else None
    case = case.with_status(rehearsal=record)
    assert ("PluginNotProven" in found(case)) is blocks
    if blocks or verdict is None:
        assert case.decide().status.phase is Phase.PREFLIGHT


CUSTOM = ("authorizer.class.name", "com.example.Authorizer")


@pytest.mark.parametrize(
    ("running", "image", "unloaded", "blocks"),
    [
        (CUSTOM[1], "shop/kafka:1", {}, False),
        (CUSTOM[1], "shop/kafka:1", {"missing_classes": (CUSTOM[0],)}, True),
        (CUSTOM[1], "shop/kafka:1", {"mounted_classes": (CUSTOM[0],)}, True),
        (CUSTOM[1], "apache/kafka:3.9.2", {}, True),
        ("kafka.security.authorizer.AclAuthorizer", "apache/kafka:3.9.2", {}, False),
        ("org.apache.kafka.metadata.authorizer.StandardAuthorizer", "apache/kafka:3.9.2", {}, False),
    ],
)
@pytest.mark.parametrize("in_template", [True, False])
def test_the_authorizer_that_the_controllers_take_over_is_in_their_image_or_blocks(
    running: str, image: str, unloaded: dict[str, tuple[str, ...]], blocks: bool, in_template: bool
) -> None:
    state = given(authorizer_class_name=GivenSetting(running))
    assert state.report is not None
    copies = [replace(c, start=replace(c.start, **unloaded)) for c in state.report.copies if c.start is not None]
    case = situation(
        setting(CUSTOM[0], running),
        dry_start=replace(state, report=replace(state.report, copies=tuple(copies))),
    )
    item = broker_set()
    shown = {CUSTOM[0]: running} if in_template else {}
    case = case.observing(stateful_sets=(replace(item, image="shop/kafka:1", settings={**item.settings, **shown}),))
    controllers = case.spec.controllers.model_copy(update={"image": image})
    case = case.asking(controllers=controllers, rehearsal=RehearsalSpec(enabled=False))
    assert ("PluginNotProven" in found(case)) is blocks
    if blocks:
        assert (
            f"get {CUSTOM[0]}={CUSTOM[1]}, and nothing shows that image {image}"
            in found(case)["PluginNotProven"].reason
        )


def test_the_authorizer_of_the_template_counts_where_brokers_serve_none() -> None:
    case = situation(template={CUSTOM[0]: CUSTOM[1]}).asking(rehearsal=RehearsalSpec(enabled=False))
    assert CUSTOM[1] in found(case)["PluginNotProven"].reason


@pytest.mark.parametrize(
    ("running", "template", "blocks"),
    [
        ("3.9-IV0", "", False),  # an environment of another prefix, envFrom, a file that a script writes
        ("3.9-IV0", "3.8", True),
        ("3.8-IV0", "", True),
        (None, "", True),
    ],
)
def test_the_protocol_version_that_runs_counts_where_the_template_says_nothing(
    running: str | None, template: str, blocks: bool
) -> None:
    settings = [] if running is None else [setting("inter.broker.protocol.version", running)]
    case = situation(*settings, template={"inter.broker.protocol.version": template})
    assert ("InterBrokerProtocolTooLow" in found(case)) is blocks
    partly = survey(brokers={b: (*RUNNING, *settings) if b else RUNNING for b in BROKER_IDS})
    assert "InterBrokerProtocolTooLow" in found(case.observing(survey=partly))


@pytest.mark.parametrize(("running", "blocks"), [("3.9-IV0", False), ("3.8-IV0", True)])
def test_a_protocol_version_that_nobody_set_is_judged_by_what_runs(running: str, *, blocks: bool) -> None:
    """Neither Bitnami's chart nor cp-kafka's sets it; Kafka 3.9 then runs with 3.9 (``ReplicationConfigs.INTER_BROKER_PROTOCOL_VERSION_DEFAULT``)."""
    default = replace(setting("inter.broker.protocol.version", running), source=SettingSource.DEFAULT)
    case = situation(default, template={"inter.broker.protocol.version": ""})
    assert ("InterBrokerProtocolTooLow" in found(case)) is blocks
    ignored = found(case).get("SettingsIgnoredByKRaft")
    assert ignored is None or "inter.broker.protocol.version" not in ignored.reason
    assert "DryStartDiffers" not in found(case)


def test_an_absent_broker_id_is_a_generated_one() -> None:
    without = tuple(s for s in RUNNING if s.name != "broker.id")
    case = open_gate(Phase.PREFLIGHT).observing(
        survey=survey(brokers=dict.fromkeys(BROKER_IDS, without)), dry_start=OFF
    )
    assert "neither broker.id nor node.id is set" in found(case)["GeneratedBrokerIds"].reason
    assert case.decide().status.phase is Phase.PREFLIGHT


def test_the_order_of_a_list_and_the_case_of_a_flag_are_no_disagreement() -> None:
    running = setting("sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-256"), setting("delete.topic.enable", "false")
    template = {"sasl.enabled.mechanisms": "SCRAM-SHA-256, PLAIN", "delete.topic.enable": "False"}
    assert "SettingNotRunning" not in found(situation(*running, template=template))


def controllers_get(case: Situation) -> dict[str, str]:
    """Return the controllers' settings after preflight has passed."""
    recorded = case.after(case.decide())  # first the settings, which the rehearsal judges too
    status = recorded.decide().status
    assert status.phase is Phase.PROVISIONING_QUORUM, status.message
    facts = ControllersFacts(
        namespace="kafka",
        migration="demo",
        name="demo-kraft",
        cluster_domain="cluster.local",
        cluster_id="id",
        broker_settings=status.broker_settings,
        operator_image="i",
        operator_namespace="n",
        broker_selectors=(),
    )
    return controller_settings(case.spec, facts, ControllerMode.MIGRATION)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("delete.topic.enable", "false"),
        ("auto.leader.rebalance.enable", "false"),
        ("unclean.leader.election.enable", "true"),
        ("ssl.principal.mapping.rules", "RULE:^CN=(.*?),.*$/$1/"),
    ],
)
def test_what_runs_reaches_the_controllers_although_no_template_shows_it(name: str, value: str) -> None:
    assert controllers_get(situation()).get(name) != value
    assert controllers_get(situation(setting(name, value)))[name] == value


def test_a_dynamic_value_is_copied_by_kafka_itself_and_not_by_us() -> None:
    case = situation(setting("min.insync.replicas", "2", SettingSource.DYNAMIC_DEFAULT))
    assert controllers_get(case).get("min.insync.replicas") != "2"


def test_a_value_that_kafka_hides_is_taken_from_the_copy() -> None:
    shown = given(allow_everyone_if_no_acl_found=GivenSetting("true"))
    case = situation(HIDDEN_FLAG, dry_start=shown)
    assert "SettingNotServed" not in found(case)
    assert controllers_get(case)["allow.everyone.if.no.acl.found"] == "true"


def test_super_users_that_only_the_copy_shows_are_compared_with_the_controllers() -> None:
    shown = given(super_users=GivenSetting("User:admin;User:ops"))
    running = (AUTHORIZER, setting("super.users", None, known=False))
    template = {"authorizer.class.name": AUTHORIZER.value or ""}
    assert (
        "User:ops"
        in found(situation(*running, dry_start=shown, template=template))["SuperUsersMissingOnControllers"].reason
    )


@pytest.mark.parametrize(
    "state",
    [
        OFF,
        given(),
        given(allow_everyone_if_no_acl_found=GivenSetting(hash="ab")),
        replace(given(allow_everyone_if_no_acl_found=GivenSetting("true")), fingerprint="another"),
    ],
    ids=["off", "the copy lacks it", "the copy hides it", "a dry start of an older template"],
)
def test_without_a_copy_that_shows_it_a_hidden_value_stays_unknown(state: DryStartState) -> None:
    decision = situation(HIDDEN_FLAG, dry_start=state).decide()
    assert decision.status.phase is Phase.PREFLIGHT
    assert "allow.everyone.if.no.acl.found" not in decision.status.broker_settings


def test_a_copy_in_another_mode_or_one_that_kafka_refuses_shows_nothing() -> None:
    state = given(allow_everyone_if_no_acl_found=GivenSetting("true"))
    assert state.report is not None
    for spoil in ({"start": None}, {"refused": True}):
        copies: list[Any] = []
        for each in state.report.copies:
            if each.key.mode is not BrokerMode.ZOOKEEPER:
                copies.append(each)
            elif "refused" in spoil and each.start is not None:
                copies.append(replace(each, start=replace(each.start, valid=False)))
            else:
                copies.append(replace(each, start=None))
        spoiled = replace(state, report=DryStartReport("same", tuple(copies)))
        assert "SettingNotServed" in found(situation(HIDDEN_FLAG, dry_start=spoiled))
