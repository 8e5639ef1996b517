"""Findings of the survey: each with its code, object and fix; unknown blocks; what may be accepted opens the gate and stays visible."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.support.observations import (
    ANYONE,
    BROKER_IDS,
    BROKER_SET,
    GIB,
    RUNNING,
    Situation,
    broker_set,
    dry_start_of,
    issued_listener,
    open_gate,
    setting,
    survey,
)

from kraftbridge.models.catalogue import Code, Severity
from kraftbridge.models.observation import RefusedEndpoint, Unobserved
from kraftbridge.models.phase import Phase
from kraftbridge.models.report import CompareServed
from kraftbridge.models.spec import AcceptedFinding, PodSettings, PreflightSpec, VerificationSpec
from kraftbridge.models.status import FindingStatus
from kraftbridge.models.survey import (
    AclEntry,
    BrokerSetting,
    Budget,
    Capacity,
    Demand,
    Limit,
    LoginTrial,
    Quota,
    RefusedChange,
    Right,
    SettingSource,
    StorageClass,
    Survey,
    Visibility,
    ZooKeeperAcls,
    ZooKeeperUsers,
)
from kraftbridge.phases.preflight.kubernetes import shown

UNKNOWN = Unobserved("somebody", "silent")
FINE = survey()
NODE = FINE.capacity.rooms[0]  # type: ignore[union-attr]
DEMAND = FINE.demand
OPERATIONS = frozenset({"DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"})
SASL = (AclEntry("sasl", "kafka", frozenset("cdrwa")), AclEntry("world", "anyone", frozenset("r")))


def situation(**changes: Any) -> Situation:
    surroundings = survey(**changes)
    brokers = None if isinstance(surroundings.brokers, Unobserved) else surroundings.brokers
    return open_gate(Phase.PREFLIGHT).observing(survey=surroundings, dry_start=dry_start_of(brokers=brokers))


def found(case: Situation) -> dict[str, FindingStatus]:
    return {f.code: f for f in case.decide().status.findings}


def asking(**controllers: Any) -> Callable[[Situation], Situation]:
    return lambda s: s.asking(controllers=s.spec.controllers.model_copy(update=controllers))


def running(*settings: Any) -> dict[str, Any]:
    return {"brokers": {0: (*RUNNING, *settings), 1: (*RUNNING, *settings), 2: RUNNING}}


def limit(kind: str = "Container", **parts: dict[str, int]) -> tuple[Limit, ...]:
    empty: dict[str, dict[str, int]] = {"minimum": {}, "maximum": {}, "default": {}, "default_request": {}}
    return (Limit("limits", kind, **(empty | parts)),)


def budget(**changes: Any) -> Budget:
    return replace(FINE.budgets[0], **changes)  # type: ignore[index, type-var]


def unstated() -> Any:
    kafka, server = DEMAND.containers  # type: ignore[union-attr]
    return replace(DEMAND, containers=(replace(kafka, cpu_request=None, cpu_limit=None), server))  # type: ignore[type-var]


BLOCKING: dict[str, tuple[dict[str, Any], str, str]] = {
    "RightMissing": (
        {"missing_rights": (Right("create", "", "pods", "eviction"),)},
        "operator",
        "create pods/eviction",
    ),
    "ChangeRefused": (
        {"refused": (RefusedChange(f"StatefulSet/{BROKER_SET}", 'admission webhook "freeze.example" denied it'),)},
        f"StatefulSet/{BROKER_SET}",
        'admission webhook "freeze.example" denied it',
    ),
    "PodLabelsSelected": ({"selecting": ("StatefulSet/kafka",)}, "StatefulSet/kafka", "Its selector matches"),
    "NoDefaultStorageClass": ({"storage_classes": (StorageClass("slow", default=False),)}, "controllers", "slow"),
    "DisruptionBudgetForbidsAll": (
        {"budgets": (budget(disruptions_allowed=0),)},
        "PodDisruptionBudget/kafka",
        "all 3 pods are healthy",
    ),
    "SeveralDisruptionBudgets": (
        {"budgets": (budget(), budget(name="second"))},
        f"StatefulSet/{BROKER_SET}",
        "kafka, second",
    ),
    "BudgetsUnknown": ({"budgets": (budget(up_to_date=False),)}, "PodDisruptionBudget/kafka", "newest version"),
    "OwnedByController": ({"writers": {BROKER_SET: ("owner Kafka/shop",)}}, f"StatefulSet/{BROKER_SET}", "Kafka/shop"),
    "QuotaTooSmall": (
        {"quotas": (Quota("team", {"requests.memory": GIB}),)},
        "ResourceQuota/team",
        "1Gi is left",
    ),
    "QuotaNeedsRequests": (
        {"quotas": (Quota("team", {"requests.cpu": 9000}),), "demand": unstated()},
        "ResourceQuota/team",
        "requests.cpu",
    ),
    "NoQuotaForVerification": (
        {"quotas": (Quota("team", {"requests.cpu": 1780}),)},
        "ResourceQuota/team",
        "requests.cpu: besides the controllers, a verification needs 500m, and 250m is left",
    ),
    "LimitRangeRefuses": (
        {"limits": limit(maximum={"memory": GIB // 2, "cpu": 4000})},
        "LimitRange/limits",
        "container kafka states up to 1Gi memory",
    ),
    "NoRoomForControllers": (
        {"capacity": Capacity((replace(NODE, memory=2 * GIB),), all_pods_seen=True)},
        "controllers",
        "1 of 3 controllers find room",
    ),
    "NoRoomForVerification": (
        {"capacity": Capacity((replace(NODE, cpu=1900, memory=8 * GIB),), all_pods_seen=True)},
        "verification",
        "1 of the 2 pods of a verification find no room: executor 1 250m CPU, 1Gi memory",
    ),
    "OperationsMissing": (
        {"visibility": Visibility(frozenset({"t"}), OPERATIONS - {"ALTER_CONFIGS"})},
        "Kafka/kafka-0.kafka:9092",
        "ALTER_CONFIGS",
    ),
    "TopicsHidden": ({"visibility": Visibility(frozenset(), OPERATIONS)}, "Kafka/kafka-0.kafka:9092", "1 topic(s)"),
    "ReassignmentRunning": ({"reassigning": ("t-0", "t-1")}, "Kafka/kafka-0.kafka:9092", "t-0, t-1"),
    "ControlPlaneListener": (
        running(setting("control.plane.listener.name", "CP", SettingSource.DYNAMIC_DEFAULT)),
        "broker/0",
        "dynamic, of all brokers",
    ),
    "DynamicListenerMap": (
        running(setting("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT", SettingSource.DYNAMIC_BROKER)),
        "broker/0",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT",
    ),
    "InterBrokerProtocolTooLow": (
        running(setting("inter.broker.protocol.version", "3.8-IV0")),
        "broker/0",
        "inter.broker.protocol.version=3.8-IV0 (static)",
    ),
    "MigrationFlagAlreadySet": (
        running(setting("zookeeper.metadata.migration.enable", "true")),
        "broker/0",
        "not by this migration",
    ),
    "ListenerNameTaken": (
        running(setting("listeners", "PLAINTEXT://:9092,CONTROLLER://:9090")),
        "broker/0",
        "listener CONTROLLER",
    ),
    "PluginNotOnControllers": (
        running(setting("create.topic.policy.class.name", "com.example.Policy")),
        "create.topic.policy.class.name",
        "com.example.Policy",
    ),
    "InterBrokerLoginMissing": (
        running(
            setting("inter.broker.listener.name", "INTERNAL"),
            setting("listener.security.protocol.map", "CLIENT:PLAINTEXT, INTERNAL:SASL_PLAINTEXT"),
            setting("sasl.mechanism.inter.broker.protocol", "SCRAM-SHA-512"),
        ),
        "controllers",
        "INTERNAL with SASL_PLAINTEXT and SCRAM-SHA-512",
    ),
    "InterBrokerTlsMissing": (
        running(setting("listener.security.protocol.map", "PLAINTEXT:SSL")),
        "controllers",
        "listener PLAINTEXT with SSL. In migration the controllers connect to this listener, and their configuration lacks listener.name.plaintext.ssl.truststore",
    ),
    "InterBrokerLoginRefused": (
        {"inter_broker": {1: LoginTrial("INTERNAL", "kafka-1:9094", "no such user", tried=True)}},
        "broker/1",
        "does not let the controllers in at its inter-broker listener INTERNAL (kafka-1:9094): no such user",
    ),
    "InterBrokerLoginNotTried": (
        {"inter_broker": {2: LoginTrial("INTERNAL", "kafka-2:9094", "Connection refused", tried=False)}},
        "broker/2",
        "could not try the controllers' credentials at the broker's inter-broker listener INTERNAL (kafka-2:9094): Connection refused",
    ),
    "DelegationTokenKeyMissing": (running(setting("delegation.token.master.key", None)), "controllers", "secret.key"),
    "SuperUsersMissingOnControllers": (
        running(setting("super.users", "User:kafka;User:ann"), setting("authorizer.class.name", "x")),
        "controllers",
        "User:ann, User:kafka",
    ),
    "ZooKeeperAclDenied": (
        {"zookeeper": ZooKeeperAcls({}, ("/config/users",), frozenset({"t"}))},
        "ZooKeeper/zk-0.zk:2181/kafka",
        "/config/users",
    ),
    "ZooKeeperAclForbidsKRaft": (
        {"zookeeper": ZooKeeperAcls({"/controller": SASL, "/": ANYONE}, (), frozenset({"t"}))},
        "ZooKeeper/zk-0.zk:2181/kafka",
        "ZooKeeper does not let the KRaft controllers write 1 znode(s) with no credentials: /controller",
    ),
}


@pytest.mark.parametrize("code", BLOCKING)
def test_it_blocks_names_its_object_and_says_how_to_go_on(code: str) -> None:
    changes, obj, words = BLOCKING[code]
    case = situation(**changes)
    decision = case.decide()
    assert decision.status.phase is Phase.PREFLIGHT
    assert decision.actions == ()
    finding = next(f for f in decision.status.findings if f.code == code)
    assert (finding.severity, finding.object) == (Severity.BLOCKING, obj)
    assert words in finding.reason, finding.reason
    assert len(finding.fix) > 10
    accepted = case.asking(
        preflight=case.spec.preflight.model_validate({"accepted": [{"code": code, "object": obj}]})
    ).decide()
    others = [f for f in accepted.status.findings if f.severity is Severity.BLOCKING and f.object != obj]
    if Code(code).acceptable and not others:
        assert accepted.status.phase is Phase.PROVISIONING_QUORUM
        assert (code, True) in {(f.code, f.accepted) for f in accepted.status.findings}
    else:
        assert accepted.status.phase is Phase.PREFLIGHT


@pytest.mark.parametrize(
    ("address", "network"), [("203.0.113.5", "203.0.113.5/32"), ("2001:db8::5", "2001:db8::5/128")]
)
def test_an_address_that_the_operator_may_not_connect_to_blocks_with_the_value_to_add(
    address: str, network: str
) -> None:
    refused = (RefusedEndpoint("lb.example.com", 9094, address, "it is no pod or Service of namespace kafka"),)
    finding = found(situation().observing(refused=refused))[Code.ENDPOINT_NOT_ALLOWED]
    assert finding.object == "endpoint/lb.example.com:9094"
    assert finding.severity is Severity.BLOCKING
    assert f"add {network} to connect.allow" in finding.fix


def test_healthy_surroundings_say_nothing() -> None:
    assert situation().decide().status.findings == ()


@pytest.mark.parametrize(
    ("wanted", "code", "severity"),
    [
        ("Never", None, None),
        ("IfAllowed", "TopicConfigsHidden", Severity.WARNING),
        ("Always", "TopicConfigsNeeded", Severity.BLOCKING),
    ],
)
def test_a_missing_right_to_compare_brokers_is_named_and_blocks_only_where_the_user_insists(
    wanted: str, code: str | None, severity: Severity | None
) -> None:
    seen = Visibility(frozenset({"t"}), OPERATIONS, frozenset({"t"}))
    case = situation(visibility=seen)
    verification = case.spec.verification.model_copy(update={"compare_served": CompareServed(wanted)})
    shown = found(case.asking(verification=verification))
    assert {(f.code, f.severity, f.object) for f in shown.values()} == (
        {(code, severity, "Kafka/kafka-0.kafka:9092")} if code else set()
    )
    assert all("1 topic(s), t" in f.reason and "DescribeConfigs" in f.fix for f in shown.values())


PARTS = {
    "missing_rights": "RightsUnknown",
    "storage_classes": "StorageClassesUnknown",
    "quotas": "QuotasUnknown",
    "limits": "LimitsUnknown",
    "capacity": "CapacityUnknown",
    "demand": "CapacityUnknown",
    "budgets": "BudgetsUnknown",
    "writers": "WritersUnknown",
    "selecting": "PodLabelsUnknown",
    "refused": "ChangesUnknown",
    "visibility": "VisibilityUnknown",
    "reassigning": "ReassignmentsUnknown",
    "brokers": "BrokerConfigurationUnknown",
    "zookeeper": "ZooKeeperAclsUnknown",
    "listener_problems": "ListenerSecretUnknown",
}


@pytest.mark.parametrize("part", PARTS)
def test_each_unknown_part_is_a_blocking_finding_of_its_own(part: str) -> None:
    decision = situation(**{part: UNKNOWN}).decide()
    assert decision.status.phase is Phase.PREFLIGHT
    (finding,) = decision.status.findings
    assert (finding.code, finding.severity) == (PARTS[part], Severity.BLOCKING)
    assert "somebody could not be observed: silent" in finding.reason


def test_a_certificate_that_the_controllers_cannot_use_blocks() -> None:
    finding = found(situation(listener_problems=("tls.crt expired at 2026-01-02 03:04:05 UTC",)))[
        "ListenerCertificateUnusable"
    ]
    assert finding.severity is Severity.BLOCKING
    assert "tls.crt expired at 2026-01-02 03:04:05 UTC" in finding.reason


def test_a_survey_that_was_not_made_blocks() -> None:
    assert set(found(open_gate(Phase.PREFLIGHT).observing(survey=UNKNOWN))) == {"SurveyUnknown"}


def test_one_broker_whose_configuration_is_unknown_blocks_by_its_name() -> None:
    finding = found(situation(brokers={0: RUNNING, 1: UNKNOWN, 2: RUNNING}))["BrokerConfigurationUnknown"]
    assert finding.object == "broker/1"


@pytest.mark.parametrize(
    ("changes", "spoil", "code"),
    [
        ({"storage_classes": (StorageClass("a", default=True),)}, asking(storage={"storageClassName": "b"}), "StorageClassMissing"),
        (running(setting("delegation.token.secret.key", None)) | {"listener_settings": UNKNOWN}, None, "ListenerSecretUnknown"),
        (running(setting("ssl.keystore.password", None, SettingSource.DYNAMIC_BROKER)), asking(password_encoder_secret=None), "PasswordEncoderSecretMissing"),
        ({"visibility": Visibility(frozenset({"t"}), OPERATIONS)}, lambda s: s.asking(metadata_version="3.9"), "OperationsMissing"),
    ],
)  # fmt: skip
def test_it_depends_on_the_spec(
    changes: dict[str, Any], spoil: Callable[[Situation], Situation] | None, code: str
) -> None:
    if code == "StorageClassMissing":
        storage = open_gate(Phase.PREFLIGHT).spec.controllers.storage.model_copy(update={"storage_class_name": "b"})
        spoil = asking(storage=storage)
    case = situation(**changes)
    case = case if spoil is None else spoil(case)
    assert found(case)[code].severity is Severity.BLOCKING
    assert case.decide().status.phase is Phase.PREFLIGHT


@pytest.mark.parametrize(
    ("changes", "code", "severity"),
    [
        (running(setting("zookeeper.connect", "z")), "SettingsIgnoredByKRaft", Severity.INFORMATION),
        (running(setting("zookeeper.set.acl", "true", SettingSource.DYNAMIC_DEFAULT)), "DynamicSettingsIgnoredByKRaft", Severity.WARNING),
        (running(setting("my.plugin", "1", SettingSource.DYNAMIC_BROKER, known=False)), "DynamicSettingsUnknown", Severity.WARNING),
        (running(setting("controlled.shutdown.enable", "false")), "ControlledShutdownDisabled", Severity.WARNING),
        (running(setting("listener.name.client.plain.sasl.jaas.config", None, SettingSource.DYNAMIC_BROKER)), "PasswordBecomesPlain", Severity.WARNING),
        ({"writers": {BROKER_SET: ("field manager helm", "Helm release shop")}}, "FieldsManagedByOthers", Severity.WARNING),
        ({"capacity": replace(FINE.capacity, all_pods_seen=False)}, "CapacityPartlyKnown", Severity.INFORMATION),  # type: ignore[type-var]
        ({"zookeeper": replace(FINE.zookeeper, topics_without_acl=9)}, "ZooKeeperAclsSampled", Severity.INFORMATION),  # type: ignore[type-var]
        ({"zookeeper_users": ZooKeeperUsers(clients=("10.0.0.9",))}, "ZooKeeperClientsOfOthers", Severity.WARNING),
        ({"zookeeper_users": ZooKeeperUsers(znodes=("/kafka-manager",))}, "ZooKeeperZnodesOfOthers", Severity.WARNING),
        ({"zookeeper_users": ZooKeeperUsers(groups=("billing",))}, "ConsumersInZooKeeper", Severity.WARNING),
        ({"zookeeper_users": ZooKeeperUsers(clients=UNKNOWN)}, "ZooKeeperUsersUnknown", Severity.INFORMATION),
        ({"zookeeper_users": UNKNOWN}, "ZooKeeperUsersUnknown", Severity.INFORMATION),
    ],
)  # fmt: skip
def test_what_does_no_harm_is_told_and_blocks_nothing(changes: dict[str, Any], code: str, severity: Severity) -> None:
    decision = situation(**changes).decide()
    assert {f.code: f.severity for f in decision.status.findings}[code] is severity
    assert decision.status.phase is Phase.PROVISIONING_QUORUM


@pytest.mark.parametrize(
    "changes",
    [
        {
            "zookeeper_identities": ("sasl:kafka",),
            "zookeeper": ZooKeeperAcls({"/controller": SASL}, (), frozenset({"t"})),
        },
        {
            "zookeeper_identities": ("sasl:kafka",),
            "zookeeper": ZooKeeperAcls(
                {"/": (AclEntry("sasl", "kafka@REALM", frozenset("cdrwa")),)}, (), frozenset({"t"})
            ),
        },
        {
            "zookeeper_identities": ("sasl:other", "x509:CN=kafka@a,O=b"),
            "zookeeper": ZooKeeperAcls(
                {"/": (AclEntry("x509", "CN=kafka@a,O=b", frozenset("cdrwa")),)}, (), frozenset({"t"})
            ),
        },
        running(setting("listeners", "CONTROLLER_PLANE://:9090")),
        running(setting("super.users", "User:ann")),
        running(setting("super.users", "User:ann"), setting("authorizer.class.name", "")),
        running(setting("inter.broker.protocol.version", "3.9-IV0")),
        {"budgets": (budget(disruptions_allowed=0, healthy_pods=2),)},
        {"budgets": ()},
        {"quotas": (Quota("team", {"requests.memory": 6 * GIB, "configmaps": 0, "pods": 5}),)},
        {"limits": limit(minimum={"cpu": 10}, maximum={"memory": GIB})},
        {"limits": limit(default={"cpu": 250}), "quotas": (Quota("q", {"limits.cpu": 5000}),)},
    ],
)
def test_what_is_fine_is_no_finding(changes: dict[str, Any]) -> None:
    decision = situation(**changes).decide()
    assert not [f for f in decision.status.findings if f.severity is Severity.BLOCKING]
    assert decision.status.phase is Phase.PROVISIONING_QUORUM


def test_delegation_token_key_in_the_listeners_secret_is_enough() -> None:
    token = running(setting("delegation.token.master.key", None))
    assert "DelegationTokenKeyMissing" not in found(
        situation(**token, listener_settings=frozenset({"delegation.token.secret.key"}))
    )


SASL = (
    setting("security.inter.broker.protocol", "SASL_PLAINTEXT"),
    setting("sasl.mechanism.inter.broker.protocol", "PLAIN"),
)
SASL_LOGIN = "listener.name.sasl_plaintext.plain.sasl.jaas.config"


@pytest.mark.parametrize(
    ("brokers", "given", "login"),
    [
        (SASL, frozenset(), SASL_LOGIN),
        (SASL, frozenset({"sasl.jaas.config"}), SASL_LOGIN),  # a broker's listener does not read it (JaasContext)
        (SASL, frozenset({SASL_LOGIN}), None),
        ((), frozenset(), None),
        (
            (setting("inter.broker.listener.name", "A"), setting("listener.security.protocol.map", "A:SASL_SSL")),
            frozenset(),
            "listener.name.a.gssapi.sasl.jaas.config",
        ),
        (
            (setting("inter.broker.listener.name", "A"), setting("listener.security.protocol.map", "A:SSL,B:SASL_SSL")),
            frozenset(),
            None,
        ),
    ],
)
def test_controllers_need_a_login_for_the_brokers_sasl_listener(
    brokers: tuple[Any, ...], given: frozenset[str], login: str | None
) -> None:
    reported = found(situation(**running(*brokers), listener_settings=given)).get("InterBrokerLoginMissing")
    assert (reported is None) == (login is None)
    assert login is None or (reported is not None and login in reported.fix)


TLS_TRUST, TLS_OWN = "listener.name.int.ssl.truststore.location", "listener.name.int.ssl.keystore.location"
OF_INT = (
    setting("inter.broker.listener.name", "INT"),
    setting("listener.security.protocol.map", "CLIENT:PLAINTEXT,INT:SSL"),
)


@pytest.mark.parametrize(
    ("brokers", "given", "lacking"),
    [
        (OF_INT, {TLS_TRUST}, ()),
        (OF_INT, {"ssl.truststore.certificates"}, ()),
        (OF_INT, {"listener.name.client.ssl.truststore.location"}, (TLS_TRUST,)),
        ((*OF_INT, setting("ssl.client.auth", "required")), {TLS_TRUST}, (TLS_OWN,)),
        ((*OF_INT, setting("ssl.client.auth", "required")), set(), (TLS_TRUST, TLS_OWN)),
        ((*OF_INT, setting("ssl.client.auth", "required")), {TLS_TRUST, "listener.name.int.ssl.keystore.key"}, ()),
        ((*OF_INT, setting("ssl.client.auth", "requested")), {TLS_TRUST}, ()),
        ((*OF_INT, setting("listener.name.int.ssl.client.auth", "required")), {TLS_TRUST}, (TLS_OWN,)),
        ((*OF_INT, setting("listener.name.int.ssl.client.auth", None)), {TLS_TRUST}, (TLS_OWN,)),
        (
            (*OF_INT, setting("ssl.client.auth", "required"), setting("listener.name.int.ssl.client.auth", "none")),
            {TLS_TRUST},
            (),
        ),
        (  # a listener with SASL takes the setting of its own name only
            (
                OF_INT[0],
                setting("listener.security.protocol.map", "INT:SASL_SSL"),
                setting("ssl.client.auth", "required"),
            ),
            {TLS_TRUST},
            (),
        ),
        ((OF_INT[0], setting("listener.security.protocol.map", "INT:PLAINTEXT")), set(), ()),
        ((setting("listener.security.protocol.map", "SSL:SSL,PLAINTEXT:PLAINTEXT"),), set(), ()),
    ],
)
def test_controllers_need_certificates_for_the_brokers_tls_listener(
    brokers: tuple[Any, ...], given: set[str], lacking: tuple[str, ...]
) -> None:
    reported = found(situation(**running(*brokers), listener_settings=frozenset(given))).get("InterBrokerTlsMissing")
    assert (reported is None) == (not lacking)
    named = [] if reported is None else [name for name in (TLS_TRUST, TLS_OWN) if name in reported.reason]
    assert named == list(lacking)


KEYSTORE = setting("listener.name.controller.ssl.keystore.location", "/k.pem")
TRUSTSTORE = setting("ssl.truststore.certificates", None)
MECHANISM = setting("sasl.mechanism.controller.protocol", "PLAIN")
CONTROLLER_LOGIN = setting("listener.name.controller.plain.sasl.jaas.config", None)


@pytest.mark.parametrize(
    ("protocol", "brokers", "lacking"),
    [
        ("SSL", (), ["ssl.keystore.location", "ssl.truststore.location"]),
        ("SSL", (KEYSTORE,), ["ssl.truststore.location"]),
        ("SSL", (TRUSTSTORE,), ["ssl.keystore.location"]),
        ("SSL", (KEYSTORE, TRUSTSTORE), []),
        ("SASL_SSL", (TRUSTSTORE,), ["sasl.mechanism.controller.protocol", "plain.sasl.jaas.config"]),
        ("SASL_SSL", (TRUSTSTORE, MECHANISM), ["plain.sasl.jaas.config"]),
        ("SASL_SSL", (TRUSTSTORE, MECHANISM, CONTROLLER_LOGIN), []),
        ("SASL_PLAINTEXT", (MECHANISM, setting("sasl.jaas.config", None)), ["plain.sasl.jaas.config"]),
        ("SASL_PLAINTEXT", (MECHANISM, CONTROLLER_LOGIN), []),
        ("PLAINTEXT", (), []),
    ],
)  # fmt: skip
def test_brokers_need_a_certificate_or_login_for_the_controllers_listener(
    protocol: str, brokers: tuple[Any, ...], lacking: list[str]
) -> None:
    listener = {"security_protocol": protocol, "secret_name": "listener"}
    case = situation(brokers=dict.fromkeys((0, 1, 2), (*RUNNING, *brokers)))
    case = asking(listener=case.spec.controllers.listener.model_copy(update=listener))(case)
    reported = [f for f in case.decide().status.findings if f.code == "BrokerCredentialsMissing"]
    assert [f.object for f in reported] == (["broker/0", "broker/1", "broker/2"] if lacking else [])
    assert all(name in f.reason for f in reported for name in lacking)
    accepted = case.asking(preflight=PreflightSpec(accepted=(AcceptedFinding(code="BrokerCredentialsMissing"),)))
    assert all(f.accepted for f in accepted.decide().status.findings if f.code == "BrokerCredentialsMissing")


@pytest.mark.parametrize(
    ("listener", "held"),
    [
        ({"generate": True}, "(Secret demo-brokers has the key stores)"),
        ({"generate": True, "security_protocol": "SASL_SSL"}, "(Secret demo-brokers has the trust and the login)"),
    ],
)
def test_the_secret_with_the_brokers_part_is_named(listener: dict[str, Any], held: str) -> None:
    case = situation(brokers=dict.fromkeys((0, 1, 2), RUNNING)).observing(issued=issued_listener())
    case = asking(listener=case.spec.controllers.listener.model_copy(update=listener))(case)
    reported = [f for f in case.decide().status.findings if f.code == "BrokerCredentialsMissing"]
    assert len(reported) == 3
    assert all(held in f.reason for f in reported)


def test_brokers_that_get_the_issued_certificate_from_the_overlay_lack_none() -> None:
    case = situation(brokers=dict.fromkeys((0, 1, 2), RUNNING)).observing(issued=issued_listener())
    case = asking(listener=case.spec.controllers.listener.model_copy(update={"generate": True}))(case)
    assert "BrokerCredentialsMissing" in found(case)
    given = case.observing(stateful_sets=(replace(broker_set(), issued_secret="demo-brokers"),))
    assert "BrokerCredentialsMissing" not in found(given)
    # The template hides a password that the listener inherits.
    hidden = dict.fromkeys((0, 1, 2), (*RUNNING, setting("ssl.truststore.password", None)))
    assert "BrokerCredentialsMissing" in found(given.observing(survey=survey(brokers=hidden)))


def rooms(*changes: dict[str, Any]) -> Capacity:
    return Capacity(tuple(replace(NODE, node=f"n{i}", **c) for i, c in enumerate(changes)), all_pods_seen=True)


TAINT = {"key": "dedicated", "value": "kafka", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("capacity", "demand", "fits"),
    [
        (rooms({"cpu": 1530, "memory": 4 * GIB}), {}, True),
        (rooms({"cpu": 1529, "memory": 4 * GIB}), {}, False),
        (rooms({"pods": 2}), {}, False),
        (rooms({"usable": False}, {"usable": False}), {}, False),
        (rooms({}, {}), {"apart": True}, False),
        (rooms({}, {}, {}), {"apart": True}, True),
        (rooms({}, {}, {}), {"node_selector": {"zone": "1"}}, False),
        (rooms({"taints": (TAINT,)}), {}, False),
        (rooms({"taints": (TAINT,)}), {"tolerations": ({"key": "dedicated", "operator": "Exists"},)}, True),
        (rooms({"taints": (TAINT,)}), {"tolerations": ({"operator": "Exists"},)}, True),
        (rooms({"taints": (TAINT,)}), {"tolerations": ({"key": "dedicated", "value": "other"},)}, False),
        (rooms({"taints": (TAINT,)}), {"tolerations": ({"key": "dedicated", "value": "kafka", "effect": "NoExecute"},)}, False),
    ],
)  # fmt: skip
def test_room_is_counted_as_the_scheduler_counts_it(capacity: Capacity, demand: dict[str, Any], fits: bool) -> None:
    node = replace(capacity, rooms=tuple(replace(r, cpu=r.cpu, memory=max(r.memory, 4 * GIB)) for r in capacity.rooms))
    case: Survey = survey(capacity=node, demand=replace(DEMAND, **demand))  # type: ignore[type-var]
    codes = set(found(open_gate(Phase.PREFLIGHT).observing(survey=case)))
    assert ("NoRoomForControllers" not in codes) is fits


@pytest.mark.parametrize(
    ("capacity", "demand", "waiting"),
    [
        (rooms({"cpu": 2030, "memory": 8 * GIB}), {}, 0),
        (rooms({"cpu": 2029, "memory": 8 * GIB}), {}, 1),
        (rooms({"cpu": 4000, "memory": 5 * GIB}), {}, 1),
        (rooms({"cpu": 4000, "memory": 8 * GIB, "pods": 3}), {}, 2),
        (rooms({"cpu": 1530}, {"cpu": 250}, {"cpu": 250}), {}, 0),
        (rooms({"cpu": 2030, "memory": 8 * GIB, "taints": (TAINT,)}), {"tolerations": ({"operator": "Exists"},)}, 2),
        (rooms({"cpu": 600}, {"cpu": 600}, {"cpu": 600}), {"apart": True}, 2),
    ],
)
def test_room_for_a_verification_is_what_the_controllers_leave(
    capacity: Capacity, demand: dict[str, Any], waiting: int
) -> None:
    case: Survey = survey(capacity=capacity, demand=replace(DEMAND, **demand))  # type: ignore[type-var]
    reasons = found(open_gate(Phase.PREFLIGHT).observing(survey=case))
    assert "NoRoomForControllers" not in reasons
    assert ("NoRoomForVerification" in reasons) is (waiting > 0)
    if waiting:
        assert f" {waiting} of the 2 pods" in reasons["NoRoomForVerification"].reason


@pytest.mark.parametrize(
    ("placed", "waiting"),
    [
        ({}, True),
        ({"pods": PodSettings(tolerations=({"key": "dedicated", "operator": "Exists"},))}, False),
        ({"verification": VerificationSpec(tolerations=({"operator": "Exists"},))}, False),
        ({"pods": PodSettings(tolerations=({"operator": "Exists"},), node_selector={"disk": "ssd"})}, True),
    ],
)
def test_a_verification_finds_room_where_its_placement_lets_it(placed: dict[str, Any], waiting: bool) -> None:
    capacity = rooms({"cpu": 4000, "memory": 8 * GIB, "taints": (TAINT,)})
    case: Survey = survey(capacity=capacity, demand=replace(DEMAND, tolerations=({"operator": "Exists"},)))  # type: ignore[type-var]
    reasons = found(open_gate(Phase.PREFLIGHT).asking(**placed).observing(survey=case))
    assert ("NoRoomForVerification" in reasons) is waiting


@pytest.mark.parametrize(
    ("default", "words"),
    [
        ({"cpu": 100}, "would refuse a verification: container executor 1 requests 250m cpu, and its limit by default is 100m"),
        ({"memory": GIB // 2}, "would refuse the controllers: container kafka requests 1Gi memory, and its limit by default is 512Mi"),
    ],
)  # fmt: skip
def test_a_default_limit_below_a_request_refuses_the_pod(default: dict[str, int], words: str) -> None:
    """The API server refuses a pod whose request exceeds its limit, also a limit that LimitRanger put there."""
    bare = replace(DEMAND, containers=(Demand("kafka", 500, GIB, 1000, None),))  # type: ignore[type-var]
    reasons = found(open_gate(Phase.PREFLIGHT).observing(survey=survey(limits=limit(default=default), demand=bare)))
    assert words in reasons["LimitRangeRefuses"].reason


def test_a_quota_asks_init_containers_for_requests_too() -> None:
    stated, bare = Demand("agent", 10, 32 << 20, None, 128 << 20), Demand("agent", None, None, None, None)
    for starters, code in (((stated,), set()), ((stated, bare), {"QuotaNeedsRequests"})):
        demand = replace(DEMAND, init_containers=starters)  # type: ignore[type-var]
        case = survey(quotas=(Quota("team", {"requests.memory": 9 * GIB}),), demand=demand)
        assert set(found(open_gate(Phase.PREFLIGHT).observing(survey=case))) == code


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [("cpu", 500, "500m"), ("limits.cpu", 2000, "2"), ("requests.memory", 2**31, "2Gi"), ("memory", 1000, "1000"), ("pods", 3, "3")],
)  # fmt: skip
def test_amounts_are_shown_as_people_write_them(resource: str, amount: int, text: str) -> None:
    assert shown(resource, amount) == text


@pytest.mark.parametrize("secret", ["", "demo-brokers"])
@pytest.mark.parametrize(
    ("writers", "release"),
    [
        (("Helm release shop", "field manager helm"), "Helm release shop"),
        (("Flux HelmRelease shop",), "Flux HelmRelease shop"),
        (("field manager kubectl-client-side-apply", "Argo CD shop"), ""),
    ],
)
def test_a_volume_that_a_chart_has_to_render_later_is_told_before(
    writers: tuple[str, ...], release: str, secret: str
) -> None:
    """Of cp-helm-charts' cp-kafka each later release fails: it renders an empty list of volumes (seen with Helm 3.19)."""
    case = situation(writers={BROKER_SET: writers}).observing(
        stateful_sets=(replace(broker_set(), issued_secret=secret),)
    )
    told = found(case).get("VolumeNeededInRelease")
    assert (told is not None) is bool(release and secret)
    if told is not None:
        assert f"{release} has to render" in told.reason
        assert told.severity is Severity.WARNING


def test_all_who_write_a_statefulset_are_one_finding() -> None:
    decision = situation(writers={BROKER_SET: ("field manager helm", "Helm release shop")}).decide()
    (told,) = (f for f in decision.status.findings if f.code == "FieldsManagedByOthers")
    assert told.reason == "Others write the StatefulSet, too: field manager helm, Helm release shop"


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ((), False),
        ((setting("alter.config.policy.class.name", ""),), False),
        ((setting("alter.config.policy.class.name", "com.example.Policy"),), True),
        (
            (
                setting("alter.config.policy.class.name", "com.example.Policy"),
                setting("alter.config.policy.kraft.compatibility.enable", "false"),
            ),
            True,
        ),
        (
            (
                setting("alter.config.policy.class.name", "com.example.Policy"),
                setting("alter.config.policy.kraft.compatibility.enable", "true"),
            ),
            False,
        ),
        ((setting("create.topic.policy.class.name", "com.example.Policy"),), False),
    ],
)
def test_a_policy_that_gets_other_arguments_in_kraft_is_told(more: tuple[BrokerSetting, ...], *, told: bool) -> None:
    """KIP-1252. It is an advice, whoever gives the class to the controllers."""
    brokers = dict.fromkeys(BROKER_IDS, (*RUNNING, *more))
    case = open_gate(Phase.PREFLIGHT).observing(survey=survey(brokers=brokers), dry_start=dry_start_of(brokers=brokers))
    found = [f for f in case.decide().status.findings if f.code == "AlterConfigPolicyDiffers"]
    assert [(f.severity, f.object) for f in found] == [("Warning", "alter.config.policy.class.name")] * told
    assert all("com.example.Policy" in f.reason for f in found)
