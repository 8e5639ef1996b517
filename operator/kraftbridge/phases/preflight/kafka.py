"""Findings about the brokers' running configuration, the principal's rights in Kafka, and the ACLs of ZooKeeper. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kraftbridge.models.broker_settings import CLASSES, IGNORED_BY_KRAFT
from kraftbridge.models.catalogue import Code
from kraftbridge.models.observation import Unobserved
from kraftbridge.models.status import FindingStatus
from kraftbridge.models.survey import AclEntry, BrokerSetting, SettingSource, Survey
from kraftbridge.phases.draft import Draft
from kraftbridge.phases.preflight import effective
from kraftbridge.phases.preflight.finding import finding, some

CONTROLLER_LISTENER = "CONTROLLER"
"""Name of the listener that the migration adds (``controller.listener.names``)."""

DEFAULT_PRINCIPAL_BUILDER = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"

_KAFKAS_OWN = ("org.apache.kafka.", "kafka.")
"""Packages of Kafka itself, which every image has."""

TOKEN_KEYS = frozenset({"delegation.token.secret.key", "delegation.token.master.key"})
"""In KRaft the controllers create delegation tokens and need the key (``DelegationTokenControlManager``)."""

NEEDED_OPERATIONS = ("DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")
"""Operations on the cluster resource: DESCRIBE for quorum and reassignments, DESCRIBE_CONFIGS for configurations, ALTER_CONFIGS for the canary quota
(``KafkaApis.handleAlterClientQuotasRequest``)."""

ALL_PERMISSIONS = frozenset("cdrwa")


def findings(draft: Draft, survey: Survey) -> Iterator[FindingStatus]:
    """Find configuration that Kafka refuses or ignores in KRaft mode, and metadata that the principal may not see."""
    yield from _visibility(draft, survey)
    yield from _reassignments(draft, survey)
    yield from _brokers(draft, survey)
    yield from _access(draft, survey)


def _visibility(draft: Draft, survey: Survey) -> Iterator[FindingStatus]:
    name, seen = f"Kafka/{draft.spec.brokers.bootstrap_servers}", survey.visibility
    if isinstance(seen, Unobserved):
        yield finding(Code.VISIBILITY_UNKNOWN, name, reason=seen)
        return
    needed = (*NEEDED_OPERATIONS, *(("ALTER",) if draft.spec.metadata_version else ()))
    if lacking := [o for o in needed if o not in seen.cluster_operations]:
        yield finding(Code.OPERATIONS_MISSING, name, operations=", ".join(lacking))
    if isinstance(survey.zookeeper, Unobserved) or survey.zookeeper.denied:
        return  # another finding reports it
    if hidden := survey.zookeeper.topics - seen.topics:
        yield finding(Code.TOPICS_HIDDEN, name, count=len(hidden), topics=some(hidden))


def _reassignments(draft: Draft, survey: Survey) -> Iterator[FindingStatus]:
    name = f"Kafka/{draft.spec.brokers.bootstrap_servers}"
    if isinstance(survey.reassigning, Unobserved):
        yield finding(Code.REASSIGNMENTS_UNKNOWN, name, reason=survey.reassigning)
    elif survey.reassigning:
        yield finding(
            Code.REASSIGNMENT_RUNNING, name, what=f"{len(survey.reassigning)} partition(s), {some(survey.reassigning)}"
        )


# ----------------------------------------------------------------------------------------- configuration


def _brokers(draft: Draft, survey: Survey) -> Iterator[FindingStatus]:
    if isinstance(survey.brokers, Unobserved):
        yield finding(Code.BROKER_CONFIGURATION_UNKNOWN, "brokers", reason=survey.brokers)
        return
    for broker, settings in survey.brokers.items():
        if isinstance(settings, Unobserved):
            yield finding(Code.BROKER_CONFIGURATION_UNKNOWN, f"broker/{broker}", reason=settings)
    seen = effective.seen_settings(survey, draft.observation.dry_start)
    for broker, running in seen.items():
        yield from _refused(broker, running)
    yield from effective.findings(draft, seen)
    yield from _left_aside(seen)
    yield from _needed_by_controllers(draft, survey, seen)
    yield from _secrets(draft, seen)


def _refused(broker: int, settings: Mapping[str, BrokerSetting]) -> Iterator[FindingStatus]:
    """Find settings with which this broker does not start in migration or KRaft mode (``KafkaConfig.validateValues``, 3.9)."""
    name = f"broker/{broker}"
    if (setting := settings.get("control.plane.listener.name")) is not None:
        yield finding(Code.CONTROL_PLANE_LISTENER, name, value=setting.value, source=setting.source)
    if "authorizer.zookeeper.url" in settings:
        yield finding(Code.AUTHORIZER_ZOOKEEPER_ELSEWHERE, name)
    running = settings.get("inter.broker.protocol.version")
    if running is not None and not re.match(r"3\.9|[4-9]", running.value or ""):
        yield finding(
            Code.INTER_BROKER_PROTOCOL_TOO_LOW,
            name,
            stated=f"the broker runs with inter.broker.protocol.version={running.value} ({running.source})",
        )
    names = [
        part.split(":")[0].strip()
        for key in ("listeners", "advertised.listeners", "listener.security.protocol.map")
        for part in ((settings[key].value or "") if key in settings else "").split(",")
    ]
    flagged = settings.get("zookeeper.metadata.migration.enable")
    if CONTROLLER_LISTENER in names and "controller.quorum.voters" not in settings:
        yield finding(Code.LISTENER_NAME_TAKEN, name, listener=CONTROLLER_LISTENER)
    if flagged is not None and (flagged.value or "").lower() == "true":
        yield finding(Code.MIGRATION_FLAG_ALREADY_SET, name, source=flagged.source)
    if (setting := settings.get("controlled.shutdown.enable")) is not None and setting.value == "false":
        yield finding(Code.CONTROLLED_SHUTDOWN_DISABLED, name)


def _left_aside(seen: Mapping[int, Mapping[str, BrokerSetting]]) -> Iterator[FindingStatus]:
    every = [(b, s) for b, settings in seen.items() for s in settings.values()]
    ignored = {s.name for _, s in every if s.name in IGNORED_BY_KRAFT}
    if ignored:
        yield finding(Code.SETTINGS_IGNORED_BY_KRAFT, "brokers", settings=some(ignored, 20))
    if dynamic := {s.name for _, s in every if s.name in ignored and s.source is not SettingSource.STATIC}:
        yield finding(Code.DYNAMIC_SETTINGS_IGNORED_BY_KRAFT, "brokers", settings=some(dynamic, 20))
    if strange := {s.name for _, s in every if not s.known and s.source is not SettingSource.STATIC}:
        yield finding(Code.DYNAMIC_SETTINGS_UNKNOWN, "brokers", settings=some(strange, 20))


def _needed_by_controllers(
    draft: Draft, survey: Survey, seen: Mapping[int, Mapping[str, BrokerSetting]]
) -> Iterator[FindingStatus]:
    values = {name: setting for settings in seen.values() for name, setting in settings.items()}
    ours = draft.spec.controllers.config
    for plugin in CLASSES:
        if plugin in values and plugin not in ours and values[plugin].value != DEFAULT_PRINCIPAL_BUILDER:
            yield finding(Code.PLUGIN_NOT_ON_CONTROLLERS, plugin, setting=plugin, value=values[plugin].value)
    yield from _unproven_plugins(draft)
    logins = dict.fromkeys(login for each in seen.values() if (login := _inter_broker_login(each)) is not None)
    if logins or TOKEN_KEYS & values.keys():
        listener = survey.listener_settings
        if isinstance(listener, Unobserved):
            yield finding(Code.LISTENER_SECRET_UNKNOWN, "controllers", reason=listener)
        else:
            given = listener | ours.keys()
            if TOKEN_KEYS & values.keys() and not TOKEN_KEYS & given:
                yield finding(Code.DELEGATION_TOKEN_KEY_MISSING, "controllers")
            for login in logins:
                if login.setting not in given:
                    yield finding(
                        Code.INTER_BROKER_LOGIN_MISSING,
                        "controllers",
                        listener=login.listener,
                        protocol=login.protocol,
                        mechanism=login.mechanism,
                        setting=login.setting,
                    )
    users = values.get("super.users")
    if users is not None and values.get("authorizer.class.name") is not None:
        lacking = {u.strip() for u in (users.value or "").split(";") if u.strip()} - set(
            draft.spec.controllers.super_users
        )
        if lacking:
            yield finding(Code.SUPER_USERS_MISSING_ON_CONTROLLERS, "controllers", users=some(lacking))


def _unproven_plugins(draft: Draft) -> Iterator[FindingStatus]:
    """Find classes that only the controllers' image would have to load: a copy of a broker's pod loads them for the image that both run."""
    state, sets = draft.observation.dry_start, draft.stateful_sets()
    if not isinstance(state, Unobserved) and not state.off and state.current is None:
        return  # the copies that are awaited may show it; the gate stays closed until then
    report = None if isinstance(state, Unobserved) else state.current
    controllers = draft.spec.controllers
    same = set() if isinstance(sets, Unobserved) else {s.name for s in sets if s.image == controllers.image}
    starts = [c.start for c in (report.copies if report else ()) if c.key.stateful_set in same and c.start is not None]
    for plugin in CLASSES:
        value = controllers.config.get(plugin, "")
        if not value or value.startswith(_KAFKAS_OWN):
            continue
        loaded = (s for s in starts if plugin in s.settings and plugin not in s.missing_classes)
        if not any(s.settings[plugin].value == value for s in loaded):
            yield finding(Code.PLUGIN_NOT_PROVEN, plugin, setting=plugin, value=value, image=controllers.image)


@dataclass(frozen=True, slots=True)
class _Login:
    """What a controller needs to log in to a broker's inter-broker listener."""

    listener: str
    protocol: str
    mechanism: str

    @property
    def setting(self) -> str:
        return f"listener.name.{self.listener.lower()}.{self.mechanism.lower()}.sasl.jaas.config"


def _inter_broker_login(values: Mapping[str, BrokerSetting]) -> _Login | None:
    """Return what a controller needs to log in to a broker's inter-broker listener; None if that is no SASL listener.

    Notes
    -----
    A controller in migration mode sends LeaderAndIsr and UpdateMetadata to that listener (``MigrationPropagator``). It is a client there with the
    server's login context, which is this setting or a JAAS file (``JaasContext.loadServerContext``); controllers have no such file.
    """

    def value(name: str, default: str = "") -> str:
        return ((values[name].value if name in values else None) or default).strip()

    listener = value("inter.broker.listener.name") or value("security.inter.broker.protocol", "PLAINTEXT")
    pairs = (pair.partition(":") for pair in value("listener.security.protocol.map").split(",") if pair.strip())
    protocol = {name.strip(): kind.strip() for name, _, kind in pairs}.get(listener, listener)
    if not protocol.startswith("SASL_"):
        return None
    return _Login(listener, protocol, value("sasl.mechanism.inter.broker.protocol", "GSSAPI"))


def _secrets(draft: Draft, seen: Mapping[int, Mapping[str, BrokerSetting]]) -> Iterator[FindingStatus]:
    secret = {
        s.name
        for settings in seen.values()
        for s in settings.values()
        if s.sensitive and s.known and s.source is not SettingSource.STATIC
    }
    if not secret:
        return
    if draft.spec.controllers.password_encoder_secret is None:
        yield finding(Code.PASSWORD_ENCODER_SECRET_MISSING, "brokers", passwords=some(secret))
    yield finding(Code.PASSWORD_BECOMES_PLAIN, "brokers", passwords=some(secret))


# ------------------------------------------------------------------------------------------------ ZooKeeper


def _access(draft: Draft, survey: Survey) -> Iterator[FindingStatus]:
    name, access = f"ZooKeeper/{draft.spec.zookeeper.connect}", survey.zookeeper
    if isinstance(access, Unobserved):
        yield finding(Code.ZOOKEEPER_ACLS_UNKNOWN, name, reason=access)
        return
    if access.denied:
        yield finding(
            Code.ZOOKEEPER_ACL_DENIED,
            name,
            paths=some(access.denied),
            identity=survey.zookeeper_identity or "no credentials",
        )
    closed = [path for path, acl in access.acls.items() if not _granted(acl, survey) >= ALL_PERMISSIONS]
    # CREATE and DELETE are checked on the parent, so such a znode itself may be read-only.
    if closed:
        yield finding(
            Code.ZOOKEEPER_ACL_FORBIDS_KRAFT,
            name,
            count=len(closed),
            identity=survey.zookeeper_identity or "no credentials",
            paths=some(closed),
        )
    if access.topics_without_acl:
        yield finding(Code.ZOOKEEPER_ACLS_SAMPLED, name, count=access.topics_without_acl)


def _granted(acl: tuple[AclEntry, ...], survey: Survey) -> frozenset[str]:
    scheme, _, principal = survey.zookeeper_identity.partition(":")
    return frozenset[str]().union(
        *(
            e.permissions
            for e in acl
            if (e.scheme, e.id) == ("world", "anyone")
            or (scheme == e.scheme and principal and e.id.split("@")[0] == principal)
        )
    )
