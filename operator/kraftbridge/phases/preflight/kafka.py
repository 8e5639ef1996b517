"""Findings about the brokers' running configuration, the principal's rights in Kafka, and the ACLs of ZooKeeper. Pure.

The template is only the channel by which the migration changes settings. An image may ignore it (a mounted properties file), and a script may set
values that it does not show. So preflight judges the running settings, and the controllers get those. DescribeConfigs is not complete either: it hides
the values of secrets and of plugins' settings (``ConfigHelper``). A dry start shows those of Kafka's own authorizers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from kraftbridge.constants import CONTROLLER_LISTENER, CONTROLLER_LISTENER_PREFIX, FORBID_PEM_FILES, OVERLAID_SETTINGS
from kraftbridge.models.broker_settings import (
    AUTHORIZER,
    CLASSES,
    COPIED,
    IGNORED_BY_KRAFT,
    LOADED_BY_CONTROLLERS,
    may_change,
)
from kraftbridge.models.catalogue import Code
from kraftbridge.models.dry_start import DryStartState
from kraftbridge.models.observation import StatefulSetState, Unobserved
from kraftbridge.models.phase import BrokerMode, Phase
from kraftbridge.models.rehearsal import NOT_REHEARSED
from kraftbridge.models.report import CompareServed
from kraftbridge.models.status import FindingStatus, finding, first, some
from kraftbridge.models.survey import AclEntry, BrokerSetting, SettingSource, Survey
from kraftbridge.phases.draft import Draft, StepContext
from kraftbridge.phases.preflight import dry_start as dry_starts
from kraftbridge.phases.preflight import rehearsal as rehearsals

Seen = Mapping[int, Mapping[str, BrokerSetting]]
"""Running settings by broker id and name."""

CHANGED_FROM_THE_TEMPLATE = (AUTHORIZER, "listener.security.protocol.map")
"""Settings whose new value the migration computes from the template; a value that the template does not show would be lost."""

HIDDEN_BY_KAFKA = {
    "super.users": "spec.controllers.superUsers",
    "allow.everyone.if.no.acl.found": "spec.controllers.config",
}
"""Settings of authorizers that the controllers need, whose values no broker serves, and where to give them."""

MIGRATION_FLAG = "zookeeper.metadata.migration.enable"

_EXPANDED = ("$(", "${")


def seen_settings(survey: Survey, dry_start: DryStartState | Unobserved) -> Seen:
    """Return what the brokers that answered run with; a value that Kafka hides is taken from the broker's copy in its present mode."""
    if isinstance(survey.brokers, Unobserved):
        return {}
    return {
        broker: _completed({s.name: s for s in settings}, _given(broker, dry_start))
        for broker, settings in survey.brokers.items()
        if not isinstance(settings, Unobserved)
    }


def _given(broker: int, dry_start: DryStartState | Unobserved) -> Mapping[str, str]:
    """Return the values that a broker's copy in its present mode shows; none without a dry start of what is there now."""
    report = None if isinstance(dry_start, Unobserved) else dry_start.current
    for copy in report.copies if report is not None else ():
        if (
            copy.broker_id == broker
            and copy.key.mode is BrokerMode.ZOOKEEPER
            and copy.start is not None
            and copy.start.valid
        ):
            return {name: s.value for name, s in copy.start.settings.items() if s.value is not None}
    return {}


def _completed(settings: dict[str, BrokerSetting], given: Mapping[str, str]) -> dict[str, BrokerSetting]:
    hidden = [s for s in settings.values() if s.value is None and s.source is SettingSource.STATIC and s.name in given]
    return settings | {s.name: replace(s, value=given[s.name]) for s in hidden}


def _overridden_settings(step: StepContext, seen: Seen) -> Iterator[FindingStatus]:
    """Find settings that run with another value than the template states."""
    sets, ids = step.stateful_sets(), step.registered_broker_ids()
    if isinstance(sets, Unobserved) or not ids:
        return  # other findings report it
    for item in sets:
        running = {ids[pod.name]: seen[ids[pod.name]] for pod in item.pods if ids[pod.name] in seen}
        for broker, settings in running.items():
            yield from _of_broker(item, broker, settings)
        yield from _absent_from_template(item, running)
    yield from _hidden(step, sets, seen)


def _of_broker(item: StatefulSetState, broker: int, running: Mapping[str, BrokerSetting]) -> Iterator[FindingStatus]:
    name = f"broker/{broker}"
    if "broker.id" not in running and "node.id" not in running:
        yield finding(Code.GENERATED_BROKER_IDS, name, stated="neither broker.id nor node.id is set")
    for setting in (*COPIED, *CHANGED_FROM_THE_TEMPLATE):
        stated = item.settings.get(setting, "").strip()
        own = running.get(setting)
        if setting in item.unreadable_settings or any(part in stated for part in _EXPANDED):
            continue  # the template does not say the value
        if own is not None and (own.source is not SettingSource.STATIC or own.value is None):
            continue  # nobody set it, or Kafka hides its value
        if stated and (own is None or _normal(stated) != _normal(own.value or "")):
            running_as = "without it" if own is None else f"with {own.value}"
            yield finding(
                Code.SETTING_NOT_RUNNING,
                name,
                setting=setting,
                stated=stated,
                stateful_set=item.name,
                running=running_as,
            )


def _absent_from_template(item: StatefulSetState, seen: Seen) -> Iterator[FindingStatus]:
    """Find settings that the brokers run with and their template does not set; brokers with the same value share a finding."""
    for setting in CHANGED_FROM_THE_TEMPLATE:
        if item.settings.get(setting, "").strip() or setting in item.unreadable_settings:
            continue
        brokers: dict[str, list[int]] = {}
        for broker, running in sorted(seen.items()):
            own = running.get(setting)
            if own is not None and own.source is SettingSource.STATIC and own.value is not None:
                brokers.setdefault(own.value, []).append(broker)
        for value, ids in brokers.items():
            yield finding(
                Code.SETTING_HIDDEN,
                f"StatefulSet/{item.name}",
                brokers=first(ids),
                setting=setting,
                value=value,
            )


def _hidden(step: StepContext, sets: tuple[StatefulSetState, ...], seen: Seen) -> Iterator[FindingStatus]:
    """Ask for what no broker serves, and neither a template nor a copy shows."""
    if dry_starts.awaited(step):
        return  # the copies may show it; the gate stays closed until then
    given = {"super.users": bool(step.spec.controllers.super_users)}
    for setting, place in HIDDEN_BY_KAFKA.items():
        running = any(setting in settings and settings[setting].value is None for settings in seen.values())
        shown = any(item.settings.get(setting) for item in sets)
        if running and not shown and not given.get(setting) and setting not in step.spec.controllers.config:
            yield finding(Code.SETTING_NOT_SERVED, "brokers", setting=setting, place=place)


def taken_over(survey: Survey, dry_start: DryStartState | Unobserved) -> dict[str, str]:
    """Return the running settings that the controllers take over from the brokers.

    If brokers differ, the value of the broker with the highest id counts.
    """
    found: dict[str, str] = {}
    for _, settings in sorted(seen_settings(survey, dry_start).items()):
        found |= {
            name: own.value
            for name in (*COPIED, *CHANGED_FROM_THE_TEMPLATE)
            if (own := settings.get(name)) is not None and own.value and own.source is SettingSource.STATIC
        }
    return found


def broker_modes(step: StepContext) -> dict[int, BrokerMode]:
    """Return the mode that each broker runs, as its pod shows it."""
    sets = step.stateful_sets()
    pods = () if isinstance(sets, Unobserved) else (p for s in sets for p in s.pods)
    ids = step.status.broker_ids
    return {ids[p.name]: BrokerMode.of(p.configuration) for p in pods if p.name in ids}


def taken_anew(step: StepContext, survey: Survey) -> dict[str, str]:
    """Return the settings that the controllers take over from the brokers as they run now.

    What the migration itself has set on a broker, and what Kafka hides, stays as it was recorded.
    """
    known, modes = step.status.broker_settings, broker_modes(step)
    found: dict[str, str] = {}
    for broker, settings in sorted(seen_settings(survey, step.observation.dry_start).items()):
        mode = modes.get(broker)
        ours = set() if mode is BrokerMode.ZOOKEEPER else step.spec.brokers.static_settings.keys()
        for name in (*COPIED, *CHANGED_FROM_THE_TEMPLATE):
            own = settings.get(name)
            hidden = own is not None and own.source is SettingSource.STATIC and own.value is None
            if hidden or name in ours or _is_overlaid(name, mode):
                value = known.get(name)
            else:
                value = own.value if own is not None and own.source is SettingSource.STATIC else None
            if value:
                found[name] = value
    return {name: _kept(known.get(name), value) for name, value in found.items()}


def _kept(known: str | None, value: str) -> str:
    """Return a value as it was recorded if only its spelling differs."""
    return known if known is not None and _normal(known) == _normal(value) else value


def _normal(value: str) -> tuple[str, ...]:
    """Return a value in a canonical form: sorted list, without spaces, booleans in lower case."""
    parts = (part.strip() for part in value.split(","))
    return tuple(sorted(part.lower() if part.lower() in {"true", "false"} else part for part in parts if part))


DEFAULT_PRINCIPAL_BUILDER = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"

_KAFKAS_OWN = ("org.apache.kafka.", "kafka.")
"""Packages of Kafka itself, which every image has."""

TOKEN_KEYS = frozenset({"delegation.token.secret.key", "delegation.token.master.key"})
"""In KRaft the controllers create delegation tokens and need the key (``DelegationTokenControlManager``)."""

NEEDED_OPERATIONS = ("DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")
"""Operations on the cluster resource: DESCRIBE for quorum and reassignments, DESCRIBE_CONFIGS for configurations, ALTER_CONFIGS for the canary quota
(``KafkaApis.handleAlterClientQuotasRequest``)."""

ALL_PERMISSIONS = frozenset("cdrwa")


def is_told(step: StepContext, item: StatefulSetState, setting: str) -> bool:
    """Return whether every broker of a StatefulSet says with which value of a setting it runs, whoever chose the value."""
    survey, ids = step.observation.survey, step.registered_broker_ids()
    if isinstance(survey, Unobserved) or isinstance(survey.brokers, Unobserved) or not ids or not item.pods:
        return False
    for pod in item.pods:
        settings = survey.brokers.get(ids.get(pod.name, -1))
        if settings is None or isinstance(settings, Unobserved):
            return False
        if not any(s.name == setting for s in settings):
            return False
    return True


def findings(draft: Draft, survey: Survey) -> Iterator[FindingStatus]:
    """Find configuration that Kafka refuses or ignores in KRaft mode, and metadata that the principal may not see."""
    yield from _visibility(draft, survey)
    yield from _reassignments(draft, survey)
    yield from _listener(survey)
    yield from _brokers(draft, survey)
    yield from _access(draft, survey)
    yield from _other_users(draft, survey)


def findings_anew(step: StepContext, survey: Survey) -> Iterator[FindingStatus]:
    """Find what preflight would find in the settings that the brokers run with now; asked again before each forward step.

    The flag that the migration sets itself is left out. Brokers in migration or KRaft mode were compared with what they were (`becoming`), and
    copies and rehearsal judge the brokers' own templates, so what needs those is asked only until the first broker restarts.
    """
    if step.status.phase is Phase.PROVISIONING_QUORUM:
        yield from _visibility(step, survey)
        yield from _brokers(step, survey)
        return
    modes, seen = broker_modes(step), seen_settings(survey, step.observation.dry_start)
    own = {broker: _own(settings, modes.get(broker)) for broker, settings in seen.items()}
    for broker, settings in own.items():
        yield from _refused(broker, settings)
    yield from _needed_by_controllers(step, survey, own)
    # The copy has read the passwords once every broker has registered.
    yield from _secrets(step, {b: s for b, s in own.items() if modes.get(b) is BrokerMode.ZOOKEEPER})


def _own(settings: Mapping[str, BrokerSetting], mode: BrokerMode | None) -> dict[str, BrokerSetting]:
    """Return a broker's settings without the flag that the overlay of migration mode sets."""
    return {n: s for n, s in settings.items() if mode is BrokerMode.ZOOKEEPER or n != MIGRATION_FLAG}


def _is_overlaid(setting: str, mode: BrokerMode | None) -> bool:
    return mode is not BrokerMode.ZOOKEEPER and (setting in OVERLAID_SETTINGS or may_change(setting))


def _visibility(step: StepContext, survey: Survey) -> Iterator[FindingStatus]:
    name, seen = f"Kafka/{step.spec.brokers.bootstrap_servers}", survey.visibility
    if isinstance(seen, Unobserved):
        yield finding(Code.VISIBILITY_UNKNOWN, name, reason=seen)
        return
    needed = (*NEEDED_OPERATIONS, *(("ALTER",) if step.spec.metadata_version else ()))
    if lacking := [o for o in needed if o not in seen.cluster_operations]:
        yield finding(Code.OPERATIONS_MISSING, name, operations=", ".join(lacking))
    if unread := seen.topics_without_configs:
        match step.spec.verification.compare_served:
            case CompareServed.ALWAYS:
                yield finding(Code.TOPIC_CONFIGS_NEEDED, name, count=len(unread), topics=some(unread))
            case CompareServed.IF_ALLOWED:
                yield finding(Code.TOPIC_CONFIGS_HIDDEN, name, count=len(unread), topics=some(unread))
            case CompareServed.NEVER:
                pass
    if isinstance(survey.zookeeper, Unobserved) or survey.zookeeper.denied:
        return  # another finding reports it
    if hidden := survey.zookeeper.topics - seen.topics:
        yield finding(Code.TOPICS_HIDDEN, name, count=len(hidden), topics=some(hidden))


def _listener(survey: Survey) -> Iterator[FindingStatus]:
    problems = survey.listener_problems
    if isinstance(problems, Unobserved):
        yield finding(Code.LISTENER_SECRET_UNKNOWN, "controllers", reason=problems)
        return
    for problem in problems:
        yield finding(Code.LISTENER_CERTIFICATE_UNUSABLE, "controllers", problem=problem)


def _reassignments(draft: Draft, survey: Survey) -> Iterator[FindingStatus]:
    name = f"Kafka/{draft.spec.brokers.bootstrap_servers}"
    if isinstance(survey.reassigning, Unobserved):
        yield finding(Code.REASSIGNMENTS_UNKNOWN, name, reason=survey.reassigning)
    elif survey.reassigning:
        yield finding(
            Code.REASSIGNMENT_RUNNING, name, what=f"{len(survey.reassigning)} partition(s), {some(survey.reassigning)}"
        )


# ----------------------------------------------------------------------------------------- configuration


def _brokers(step: StepContext, survey: Survey) -> Iterator[FindingStatus]:
    if isinstance(survey.brokers, Unobserved):
        yield finding(Code.BROKER_CONFIGURATION_UNKNOWN, "brokers", reason=survey.brokers)
        return
    for broker, settings in survey.brokers.items():
        if isinstance(settings, Unobserved):
            yield finding(Code.BROKER_CONFIGURATION_UNKNOWN, f"broker/{broker}", reason=settings)
    seen = seen_settings(survey, step.observation.dry_start)
    given = _given_certificates(step)
    for broker, running in seen.items():
        yield from _refused(broker, running)
        if broker not in given or FORBID_PEM_FILES & running.keys():
            yield from _credentials(step, broker, running)
    yield from _overridden_settings(step, seen)
    yield from _left_aside(seen)
    yield from _needed_by_controllers(step, survey, seen)
    yield from _unproven_plugins(step, survey)
    yield from _secrets(step, seen)


def _given_certificates(step: StepContext) -> frozenset[int]:
    """Return the brokers to which the overlay gives a certificate for the controllers' listener."""
    sets, ids = step.stateful_sets(), step.registered_broker_ids()
    if isinstance(sets, Unobserved) or not ids:
        return frozenset()
    return frozenset(ids[pod.name] for item in sets if item.issued_secret for pod in item.pods)


def _credentials(step: StepContext, broker: int, settings: Mapping[str, BrokerSetting]) -> Iterator[FindingStatus]:
    """Find a broker whose configuration has no certificate or login for the controllers' listener.

    Notes
    -----
    A broker is a client of this listener with the settings of a server (``NodeToControllerChannelManagerImpl``, ``JaasContext.Type.SERVER``): its
    TLS settings may lack the listener's prefix, its login is in ``listener.name.controller.<mechanism>.sasl.jaas.config`` or a JAAS file.
    """
    listener = step.spec.controllers.listener
    if not listener.has_files:
        return

    def has(*names: str) -> bool:
        return any(prefix + name in settings for prefix in (CONTROLLER_LISTENER_PREFIX, "") for name in names)

    protocol, lacking = listener.security_protocol, []
    if protocol == "SSL" and not has("ssl.keystore.location", "ssl.keystore.key"):
        lacking.append(f"{CONTROLLER_LISTENER_PREFIX}ssl.keystore.location")
    if protocol.endswith("SSL") and not has("ssl.truststore.location", "ssl.truststore.certificates"):
        lacking.append(f"{CONTROLLER_LISTENER_PREFIX}ssl.truststore.location")
    if protocol.startswith("SASL_"):
        mechanism = settings.get("sasl.mechanism.controller.protocol")
        if mechanism is None:  # Kafka's default is GSSAPI
            lacking.append("sasl.mechanism.controller.protocol")
        name = ((mechanism.value if mechanism is not None else None) or "plain").lower()
        if f"{CONTROLLER_LISTENER_PREFIX}{name}.sasl.jaas.config" not in settings:
            lacking.append(f"{CONTROLLER_LISTENER_PREFIX}{name}.sasl.jaas.config")
    if lacking:
        issued = step.status.listener_certificates
        held = "the trust and the login" if listener.issues_logins else "the key stores"
        files = "" if issued is None else f" (Secret {issued.brokers_secret} has {held})"
        yield finding(
            Code.BROKER_CREDENTIALS_MISSING,
            f"broker/{broker}",
            protocol=protocol,
            lacking=" and ".join(lacking) + files,
        )


def _refused(broker: int, settings: Mapping[str, BrokerSetting]) -> Iterator[FindingStatus]:
    """Find settings with which this broker does not start in migration or KRaft mode (``KafkaConfig.validateValues``, 3.9)."""
    name = f"broker/{broker}"
    if (setting := settings.get("control.plane.listener.name")) is not None:
        yield finding(Code.CONTROL_PLANE_LISTENER, name, value=setting.value, source=setting.source)
    if "authorizer.zookeeper.url" in settings:
        yield finding(Code.AUTHORIZER_ZOOKEEPER_ELSEWHERE, name)
    protocols = settings.get("listener.security.protocol.map")
    if protocols is not None and protocols.source is not SettingSource.STATIC:
        yield finding(Code.DYNAMIC_LISTENER_MAP, name, broker=broker, value=protocols.value)
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
    flagged = settings.get(MIGRATION_FLAG)
    if CONTROLLER_LISTENER in names and "controller.quorum.voters" not in settings:
        yield finding(Code.LISTENER_NAME_TAKEN, name, listener=CONTROLLER_LISTENER)
    if flagged is not None and (flagged.value or "").lower() == "true":
        yield finding(Code.MIGRATION_FLAG_ALREADY_SET, name, source=flagged.source)
    if (setting := settings.get("controlled.shutdown.enable")) is not None and setting.value == "false":
        yield finding(Code.CONTROLLED_SHUTDOWN_DISABLED, name)


def _left_aside(seen: Mapping[int, Mapping[str, BrokerSetting]]) -> Iterator[FindingStatus]:
    every = [(b, s) for b, each in seen.items() for s in each.values() if s.source is not SettingSource.DEFAULT]
    ignored = {s.name for _, s in every if s.name in IGNORED_BY_KRAFT}
    if ignored:
        yield finding(Code.SETTINGS_IGNORED_BY_KRAFT, "brokers", settings=some(ignored, 20))
    if dynamic := {s.name for _, s in every if s.name in ignored and s.source is not SettingSource.STATIC}:
        yield finding(Code.DYNAMIC_SETTINGS_IGNORED_BY_KRAFT, "brokers", settings=some(dynamic, 20))
    if strange := {s.name for _, s in every if not s.known and s.source is not SettingSource.STATIC}:
        yield finding(Code.DYNAMIC_SETTINGS_UNKNOWN, "brokers", settings=some(strange, 20))


def _needed_by_controllers(
    step: StepContext, survey: Survey, seen: Mapping[int, Mapping[str, BrokerSetting]]
) -> Iterator[FindingStatus]:
    values = {name: setting for settings in seen.values() for name, setting in settings.items()}
    ours = step.spec.controllers.config
    for plugin in CLASSES:
        if plugin in values and plugin not in ours and values[plugin].value != DEFAULT_PRINCIPAL_BUILDER:
            yield finding(Code.PLUGIN_NOT_ON_CONTROLLERS, plugin, setting=plugin, value=values[plugin].value)
    logins = dict.fromkeys(login for each in seen.values() if (login := inter_broker_login(each)) is not None)
    certificates = dict.fromkeys(tls for each in seen.values() if (tls := inter_broker_tls(each)) is not None)
    if logins or certificates or TOKEN_KEYS & values.keys():
        listener = survey.listener_settings
        if isinstance(listener, Unobserved):
            if not isinstance(survey.listener_problems, Unobserved):  # else `_listener` reports it
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
            for tls in certificates:
                if parts := tls.lacking(given):
                    yield finding(
                        Code.INTER_BROKER_TLS_MISSING,
                        "controllers",
                        listener=tls.listener,
                        protocol=tls.protocol,
                        lacking=" and ".join(parts),
                    )
    yield from _trials(survey)
    users = values.get("super.users")
    if users is not None and values.get("authorizer.class.name") is not None:
        lacking = {u.strip() for u in (users.value or "").split(";") if u.strip()} - set(
            step.spec.controllers.super_users
        )
        if lacking:
            yield finding(Code.SUPER_USERS_MISSING_ON_CONTROLLERS, "controllers", users=some(lacking))


def _trials(survey: Survey) -> Iterator[FindingStatus]:
    """Find brokers that do not let the controllers in."""
    if isinstance(survey.inter_broker, Unobserved):
        yield finding(
            Code.INTER_BROKER_LOGIN_NOT_TRIED, "brokers", listener="(all brokers)", reason=survey.inter_broker
        )
        return
    for broker, trial in sorted(survey.inter_broker.items()):
        name, listener = f"broker/{broker}", f"{trial.listener} ({trial.address})"
        if trial.tried:
            yield finding(Code.INTER_BROKER_LOGIN_REFUSED, name, listener=listener, reason=trial.reason)
        else:
            yield finding(Code.INTER_BROKER_LOGIN_NOT_TRIED, name, listener=listener, reason=trial.reason)


def _unproven_plugins(step: StepContext, survey: Survey) -> Iterator[FindingStatus]:
    """Find classes that nothing has loaded from the controllers' image.

    A copy of a broker's pod loads them if brokers and controllers run the same image. The rehearsal starts a controller of that image with its classes.
    """
    state, sets = step.observation.dry_start, step.stateful_sets()
    if dry_starts.awaited(step):
        return  # the copies may show it; the gate stays closed until then
    report = None if isinstance(state, Unobserved) else state.current
    controllers = step.spec.controllers
    same = set() if isinstance(sets, Unobserved) else {s.name for s in sets if s.image == controllers.image}
    starts = [c.start for c in (report.copies if report else ()) if c.key.stateful_set in same and c.start is not None]
    for plugin in LOADED_BY_CONTROLLERS:
        value = controllers.config.get(plugin, "")
        if plugin == AUTHORIZER:  # the controllers take over the brokers'
            stated = [] if isinstance(sets, Unobserved) else [s.settings.get(plugin, "").strip() for s in sets]
            value = taken_over(survey, state).get(plugin) or next((v for v in reversed(stated) if v), value)
        if not value or value.startswith(_KAFKAS_OWN):
            continue
        if plugin not in NOT_REHEARSED and rehearsals.starts_controllers(step):
            continue
        loaded = (s for s in starts if plugin in s.settings and plugin not in (*s.missing_classes, *s.mounted_classes))
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


@dataclass(frozen=True, slots=True)
class _Tls:
    """What a controller needs for the TLS of a broker's inter-broker listener."""

    listener: str
    protocol: str
    client_certificate: bool

    def lacking(self, given: Collection[str]) -> list[str]:
        """Return what a configuration lacks; a setting may have the listener's prefix or none (``AbstractConfig.valuesWithPrefixOverride``)."""
        prefix = f"listener.name.{self.listener.lower()}."
        wanted = {"ssl.truststore.location": ("ssl.truststore.location", "ssl.truststore.certificates")}
        if self.client_certificate:
            wanted["ssl.keystore.location"] = ("ssl.keystore.location", "ssl.keystore.key")
        return [
            prefix + name
            for name, alternatives in wanted.items()
            if not any(before + alternative in given for before in (prefix, "") for alternative in alternatives)
        ]


def inter_broker_tls(values: Mapping[str, BrokerSetting]) -> _Tls | None:
    """Return what a controller needs for the TLS of a broker's inter-broker listener; None if the listener has none.

    Notes
    -----
    A listener with SASL asks for client certificates only where ``ssl.client.auth`` has its prefix (KIP-684).
    """
    listener, protocol = inter_broker_listener(values)
    if not protocol.endswith("SSL"):
        return None
    asks = values.get(f"listener.name.{listener.lower()}.ssl.client.auth")
    if asks is None and protocol == "SSL":
        asks = values.get("ssl.client.auth")
    # A value that Kafka hides may be `required`.
    return _Tls(listener, protocol, asks is not None and (asks.value or "required") == "required")


def inter_broker_listener(values: Mapping[str, BrokerSetting]) -> tuple[str, str]:
    """Return name and security protocol of a broker's inter-broker listener."""
    listener = _value(values, "inter.broker.listener.name") or _value(
        values, "security.inter.broker.protocol", "PLAINTEXT"
    )
    pairs = (
        pair.partition(":") for pair in _value(values, "listener.security.protocol.map").split(",") if pair.strip()
    )
    return listener, {name.strip(): kind.strip() for name, _, kind in pairs}.get(listener, listener)


def _value(values: Mapping[str, BrokerSetting], name: str, default: str = "") -> str:
    return ((values[name].value if name in values else None) or default).strip()


def inter_broker_login(values: Mapping[str, BrokerSetting]) -> _Login | None:
    """Return what a controller needs to log in to a broker's inter-broker listener; None if that is no SASL listener.

    Notes
    -----
    A controller in migration mode sends LeaderAndIsr and UpdateMetadata to that listener (``MigrationPropagator``). It is a client there with the
    server's login context, which is this setting or a JAAS file (``JaasContext.loadServerContext``); controllers have no such file.
    """
    listener, protocol = inter_broker_listener(values)
    if not protocol.startswith("SASL_"):
        return None
    return _Login(listener, protocol, _value(values, "sasl.mechanism.inter.broker.protocol", "GSSAPI"))


def _secrets(step: StepContext, seen: Mapping[int, Mapping[str, BrokerSetting]]) -> Iterator[FindingStatus]:
    secret = {
        s.name
        for settings in seen.values()
        for s in settings.values()
        if s.sensitive and s.known and s.source is not SettingSource.STATIC
    }
    if not secret:
        return
    if step.spec.controllers.password_encoder_secret is None:
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
            identity=" and ".join(survey.zookeeper_identities) or "no credentials",
        )
    closed = [path for path, acl in access.acls.items() if not _granted(acl, survey) >= ALL_PERMISSIONS]
    # CREATE and DELETE are checked on the parent, so such a znode itself may be read-only.
    if closed:
        yield finding(
            Code.ZOOKEEPER_ACL_FORBIDS_KRAFT,
            name,
            count=len(closed),
            identity=" and ".join(survey.zookeeper_identities) or "no credentials",
            paths=some(closed),
        )
    if access.topics_without_acl:
        yield finding(Code.ZOOKEEPER_ACLS_SAMPLED, name, count=access.topics_without_acl)


def _other_users(draft: Draft, survey: Survey) -> Iterator[FindingStatus]:
    name, users = f"ZooKeeper/{draft.spec.zookeeper.connect}", survey.zookeeper_users
    if isinstance(users, Unobserved):
        if not isinstance(survey.zookeeper, Unobserved):  # else another finding reports it
            yield finding(Code.ZOOKEEPER_USERS_UNKNOWN, name, reason=users)
        return
    if isinstance(users.clients, Unobserved):
        yield finding(Code.ZOOKEEPER_USERS_UNKNOWN, name, reason=users.clients)
    elif users.clients:
        yield finding(Code.ZOOKEEPER_CLIENTS_OF_OTHERS, name, addresses=some(users.clients))
    if users.znodes:
        yield finding(Code.ZOOKEEPER_ZNODES_OF_OTHERS, name, paths=some(users.znodes))
    if users.groups:
        yield finding(Code.CONSUMERS_IN_ZOOKEEPER, name, count=len(users.groups), groups=some(users.groups))


def _granted(acl: tuple[AclEntry, ...], survey: Survey) -> frozenset[str]:
    def ours(entry: AclEntry) -> bool:
        # The id of a user of SASL may have a realm; that of a certificate is its whole subject, which may contain any character.
        name = entry.id.split("@")[0] if entry.scheme == "sasl" else entry.id
        return f"{entry.scheme}:{name}" in survey.zookeeper_identities

    return frozenset[str]().union(*(e.permissions for e in acl if (e.scheme, e.id) == ("world", "anyone") or ours(e)))
