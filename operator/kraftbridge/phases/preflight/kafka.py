"""Findings about the brokers' running configuration, the principal's rights in Kafka, and the ACLs of ZooKeeper. Pure.

The template is only the channel by which the migration changes settings. An image may ignore it (a mounted properties
file), and a script may set values that it does not show. So preflight judges the running settings, and the controllers
get those. DescribeConfigs is not complete either: it hides the values of secrets and of plugins' settings
(``ConfigHelper``). A dry start shows those of Kafka's own authorizers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeGuard

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
from kraftbridge.models.dry_start import CopyOutcome, DryStartState, KafkaStart
from kraftbridge.models.observation import StatefulSetState, Unobserved
from kraftbridge.models.phase import BrokerMode, Phase
from kraftbridge.models.protocol import SETTING as PROTOCOL
from kraftbridge.models.rehearsal import NOT_REHEARSED
from kraftbridge.models.report import CompareServed
from kraftbridge.models.status import FindingStatus, finding, first, some
from kraftbridge.models.survey import DYNAMIC, AclEntry, BrokerSetting, SettingSource, Survey
from kraftbridge.outside.shell import Option, option
from kraftbridge.phases import upgrading
from kraftbridge.phases.draft import Draft, StepContext
from kraftbridge.phases.observed import broker_pods, observed, read_sets, told_settings
from kraftbridge.phases.preflight import dry_start as dry_starts
from kraftbridge.phases.preflight import rehearsal as rehearsals

Settings = Mapping[str, BrokerSetting]
"""Running settings of one broker by name."""
Seen = Mapping[int, Settings]
"""Running settings by broker id."""

CHANGED_FROM_THE_TEMPLATE = (AUTHORIZER, "listener.security.protocol.map")
"""Settings whose new value the migration computes from the template: what the template does not show would be lost."""
_TAKEN_OVER: Final = (*COPIED, *CHANGED_FROM_THE_TEMPLATE)
_MAY_BE_OURS: Final = frozenset(name for name in _TAKEN_OVER if name in OVERLAID_SETTINGS or may_change(name))
"""Of these, what the migration itself may have set on a broker that registers with the quorum."""

HIDDEN_BY_KAFKA = {
    "super.users": "spec.controllers.superUsers",
    "allow.everyone.if.no.acl.found": "spec.controllers.config",
}
"""Settings of authorizers that the controllers need, whose values no broker serves, and where to give them."""

ALTER_CONFIG_POLICY: Final = "alter.config.policy.class.name"
_ALTER_POLICY_SWITCH: Final = "alter.config.policy.kraft.compatibility.enable"
"""Kafka 3.9.2 and later 3.9: gives the policy in ZooKeeper mode the arguments of KRaft (KIP-1252)."""

MIGRATION_FLAG = "zookeeper.metadata.migration.enable"
_MECHANISM: Final = "sasl.mechanism.controller.protocol"

_LISTENERS: Final = ("listeners", "advertised.listeners", "listener.security.protocol.map")
_EXPANDED: Final = re.compile(r"\$[({]")
"""A value that Kubernetes or a script expands."""

_KEY_STORE: Final = ("ssl.keystore.location", "ssl.keystore.key")
_TRUST_STORE: Final = ("ssl.truststore.location", "ssl.truststore.certificates")
_STORES: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "SSL": (_KEY_STORE, _TRUST_STORE),
    "SASL_SSL": (_TRUST_STORE,),
}
"""What a client of the controllers' listener needs, by security protocol; one setting of each pair is enough."""


def seen_settings(survey: Survey, dry_start: DryStartState | Unobserved) -> Seen:
    """Return what the brokers run with; what Kafka hides is taken from a broker's copy in its present mode."""
    copies = _copies(dry_start)
    return {
        broker: _completed({s.name: s for s in settings}, _values_of_copy(broker, copies))
        for broker, settings in told_settings(survey).items()
    }


def _values_of_copy(broker: int, copies: Iterable[CopyOutcome]) -> Mapping[str, str]:
    """Return the values that a broker's copy in its present mode shows."""
    for copy in copies:
        start = dry_starts.valid_start(copy)
        if start is not None and (copy.broker_id, copy.key.mode) == (broker, BrokerMode.ZOOKEEPER):
            return {name: given.value for name, given in start.settings.items() if given.value is not None}
    return {}


def _copies(dry_start: DryStartState | Unobserved) -> tuple[CopyOutcome, ...]:
    """Return the copies of the last dry start, if it is about what is there now."""
    if isinstance(dry_start, Unobserved) or dry_start.current is None:
        return ()
    return dry_start.current.copies


def _completed(settings: dict[str, BrokerSetting], values: Mapping[str, str]) -> dict[str, BrokerSetting]:
    hidden = {name for name, setting in settings.items() if _is_static(setting) and setting.value is None}
    return settings | {name: replace(settings[name], value=values[name]) for name in hidden & values.keys()}


# --------------------------------------------------------------------------------------- values of settings


def _is_static(setting: BrokerSetting | None) -> TypeGuard[BrokerSetting]:
    """Return whether the broker's own configuration states a setting."""
    return setting is not None and setting.source is SettingSource.STATIC


def _static_value(setting: BrokerSetting | None) -> str | None:
    """Return the value that the broker's own configuration states; None also if Kafka hides it."""
    return setting.value if _is_static(setting) else None


def _text(values: Settings, name: str) -> str:
    """Return the value of a setting, ``""`` if it is not set, or if Kafka hides it."""
    setting = values.get(name)
    return "" if setting is None else setting.value or ""


def _value(values: Settings, name: str, default: str = "") -> str:
    return (_text(values, name) or default).strip()


def _normal(value: str) -> tuple[str, ...]:
    """Return a value in a canonical form: sorted list, without spaces, booleans in lower case."""
    parts = (part.strip() for part in value.split(","))
    return tuple(sorted(part.lower() if part.lower() in {"true", "false"} else part for part in parts if part))


def _flat(seen: Seen) -> list[BrokerSetting]:
    """Return the settings of all brokers."""
    return [setting for settings in seen.values() for setting in settings.values()]


# ------------------------------------------------------------------------- templates and running settings


def _overridden_settings(step: StepContext, seen: Seen) -> Iterator[FindingStatus]:
    """Find settings that run with another value than the template states."""
    ids = step.registered_broker_ids()
    if not ids:
        return  # other findings report it
    sets = read_sets(step)
    for stateful_set in sets:
        brokers = [ids[pod.name] for pod in stateful_set.pods]
        running = {broker: seen[broker] for broker in brokers if broker in seen}
        for broker, settings in running.items():
            yield from _of_broker(stateful_set, broker, settings)
        yield from _absent_from_template(stateful_set, running)
    yield from _hidden(step, sets, seen)


def _of_broker(stateful_set: StatefulSetState, broker: int, running: Settings) -> Iterator[FindingStatus]:
    name = f"broker/{broker}"
    if not {"broker.id", "node.id"} & running.keys():
        yield finding(Code.GENERATED_BROKER_IDS, name, stated="neither broker.id nor node.id is set")
    for setting in _TAKEN_OVER:
        stated = stateful_set.settings.get(setting, "").strip()
        value = _static_value(running.get(setting))
        if not stated or setting in stateful_set.unreadable_settings or _EXPANDED.search(stated):
            continue  # the template does not say the value
        if value is None and setting in running:
            continue  # nobody set it, or Kafka hides its value
        if value is None or _normal(stated) != _normal(value):
            yield finding(
                Code.SETTING_NOT_RUNNING,
                name,
                setting=setting,
                stated=stated,
                stateful_set=stateful_set.name,
                running="without it" if value is None else f"with {value}",
            )


def _absent_from_template(stateful_set: StatefulSetState, seen: Seen) -> Iterator[FindingStatus]:
    """Find settings that brokers run with and their template does not set; equal values share a finding."""
    for setting in CHANGED_FROM_THE_TEMPLATE:
        if stateful_set.settings.get(setting, "").strip() or setting in stateful_set.unreadable_settings:
            continue
        brokers: dict[str, list[int]] = {}
        for broker, running in sorted(seen.items()):
            value = _static_value(running.get(setting))
            if value:  # an empty one loses nothing: Bitnami's charts set authorizer.class.name= where they have none
                brokers.setdefault(value, []).append(broker)
        for value, ids in brokers.items():
            yield finding(
                Code.SETTING_HIDDEN,
                f"StatefulSet/{stateful_set.name}",
                brokers=first(ids),
                setting=setting,
                value=value,
            )


def _hidden(step: StepContext, sets: tuple[StatefulSetState, ...], seen: Seen) -> Iterator[FindingStatus]:
    """Ask for what no broker serves, and neither a template nor a copy shows."""
    if dry_starts.awaited(step):
        return  # the copies may show it; the gate stays closed until then
    hidden = {setting.name for setting in _flat(seen) if setting.value is None}
    given = set(step.spec.controllers.config)
    if step.spec.controllers.super_users:
        given.add("super.users")
    for setting, place in HIDDEN_BY_KAFKA.items():
        shown = any(stateful_set.settings.get(setting) for stateful_set in sets)
        if setting in hidden - given and not shown:
            yield finding(Code.SETTING_NOT_SERVED, "brokers", setting=setting, place=place)


def taken_over(survey: Survey, dry_start: DryStartState | Unobserved) -> dict[str, str]:
    """Return the running settings that the controllers take over from the brokers.

    If brokers differ, the value of the broker with the highest id counts.
    """
    taken: dict[str, str] = {}
    for _, settings in sorted(seen_settings(survey, dry_start).items()):
        values = {name: _static_value(settings.get(name)) for name in _TAKEN_OVER}
        taken |= {name: value for name, value in values.items() if value}
    return taken


def broker_modes(step: StepContext) -> dict[int, BrokerMode]:
    """Return the mode that each broker runs, as its pod shows it."""
    ids = step.status.broker_ids
    return {ids[pod.name]: BrokerMode.of(pod.configuration) for pod in broker_pods(step) if pod.name in ids}


def taken_anew(step: StepContext, survey: Survey) -> dict[str, str]:
    """Return the settings that the controllers take over from the brokers as they run now.

    What the migration itself has set on a broker, and what Kafka hides, stays as it was recorded.
    """
    recorded = step.status.broker_settings
    modes = broker_modes(step)
    set_by_us = _MAY_BE_OURS | step.spec.brokers.static_settings.keys()
    taken: dict[str, str] = {}
    for broker, settings in sorted(seen_settings(survey, step.observation.dry_start).items()):
        mode = modes.get(broker)
        ours = set_by_us if mode is None or mode.registers else frozenset()
        for name in _TAKEN_OVER:
            setting = settings.get(name)
            stays = name in ours or (_is_static(setting) and setting.value is None)
            if value := recorded.get(name) if stays else _static_value(setting):
                taken[name] = value
    return {name: _respelled(recorded.get(name, value), value) for name, value in taken.items()}


def _respelled(recorded: str, value: str) -> str:
    """Return a value as it was recorded if only its spelling differs."""
    return recorded if _normal(recorded) == _normal(value) else value


DEFAULT_PRINCIPAL_BUILDER = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"

_KAFKAS_OWN = ("org.apache.kafka.", "kafka.")
"""Packages of Kafka itself, which every image has."""

TOKEN_KEYS = frozenset({"delegation.token.secret.key", "delegation.token.master.key"})
"""In KRaft the controllers create delegation tokens and need the key (``DelegationTokenControlManager``)."""

NEEDED_OPERATIONS = ("DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")
"""Operations on the cluster resource.

DESCRIBE is for quorum and reassignments, DESCRIBE_CONFIGS for configurations, ALTER_CONFIGS for the canary quota
(``KafkaApis.handleAlterClientQuotasRequest``). ALTER comes with them for metadata.version, and for reassignments.
"""

ALL_PERMISSIONS = frozenset("cdrwa")


def is_told(step: StepContext, item: StatefulSetState, setting: str) -> bool:
    """Return whether every broker of a StatefulSet says with which value of a setting it runs, whoever chose it."""
    survey = step.observation.survey
    if isinstance(survey, Unobserved) or not item.pods:
        return False
    ids = step.registered_broker_ids()
    seen = seen_settings(survey, step.observation.dry_start)
    return all(setting in seen.get(ids.get(pod.name, -1), ()) for pod in item.pods)


def findings(draft: Draft, survey: Survey) -> Iterator[FindingStatus]:
    """Find configuration that Kafka refuses or ignores in KRaft mode, and metadata that the principal may not see."""
    yield from _visibility(draft, survey)
    yield from _reassignments(draft, survey)
    yield from _listener(survey)
    yield from _brokers(draft, survey)
    yield from _access(draft, survey)
    yield from _other_users(draft, survey)


def findings_anew(step: StepContext, survey: Survey) -> Iterator[FindingStatus]:
    """Find what preflight would find in the settings that the brokers run with now; asked before each forward step.

    The flag that the migration sets itself is left out. Brokers in migration or KRaft mode were compared with what they
    were (`becoming`), and copies and rehearsal judge the brokers' own templates, so what needs those is asked only
    until the first broker restarts.
    """
    if step.status.phase is Phase.PROVISIONING_QUORUM:
        yield from _visibility(step, survey)
        yield from _brokers(step, survey)
        return
    modes = broker_modes(step)
    seen = seen_settings(survey, step.observation.dry_start)
    own = {broker: _own(settings, modes.get(broker)) for broker, settings in seen.items()}
    for broker, settings in own.items():
        yield from _refused(step, broker, settings)
    yield from _needed_by_controllers(step, survey, own)
    # The copy has read the passwords once every broker has registered.
    on_zookeeper = {broker for broker, mode in modes.items() if not mode.registers}
    yield from _secrets(step, {b: s for b, s in own.items() if b in on_zookeeper})


def _own(settings: Settings, mode: BrokerMode | None) -> Settings:
    """Return a broker's settings without the flag that the overlay of migration mode sets."""
    if mode is not None and not mode.registers:
        return settings
    return {name: setting for name, setting in settings.items() if name != MIGRATION_FLAG}


def _visibility(step: StepContext, survey: Survey) -> Iterator[FindingStatus]:
    name = f"Kafka/{step.spec.brokers.bootstrap_servers}"
    visibility = survey.visibility
    if isinstance(visibility, Unobserved):
        yield finding(Code.VISIBILITY_UNKNOWN, name, reason=visibility)
        return
    needed = [*NEEDED_OPERATIONS]
    if step.spec.metadata_version or step.spec.brokers.upgrade is not None:
        needed.append("ALTER")
    lacking = [operation for operation in needed if operation not in visibility.cluster_operations]
    if lacking:
        needed = [operation.title().replace("_", "") for operation in lacking]
        yield finding(Code.OPERATIONS_MISSING, name, operations=", ".join(lacking), needed=needed)
    if unread := visibility.topics_without_configs:
        match step.spec.verification.compare_served:
            case CompareServed.ALWAYS:
                yield finding(Code.TOPIC_CONFIGS_NEEDED, name, count=len(unread), topics=some(unread))
            case CompareServed.IF_ALLOWED:
                yield finding(Code.TOPIC_CONFIGS_HIDDEN, name, count=len(unread), topics=some(unread))
            case CompareServed.NEVER:
                pass
    if isinstance(survey.zookeeper, Unobserved) or survey.zookeeper.denied:
        return  # another finding reports it
    hidden = survey.zookeeper.topics - visibility.topics
    if hidden:
        yield finding(Code.TOPICS_HIDDEN, name, count=len(hidden), topics=some(hidden))


def _listener(survey: Survey) -> Iterator[FindingStatus]:
    if isinstance(survey.listener_problems, Unobserved):
        yield finding(Code.LISTENER_SECRET_UNKNOWN, "controllers", reason=survey.listener_problems)
    for problem in observed(survey.listener_problems, ()):
        yield finding(Code.LISTENER_CERTIFICATE_UNUSABLE, "controllers", problem=problem)


def _reassignments(draft: Draft, survey: Survey) -> Iterator[FindingStatus]:
    name = f"Kafka/{draft.spec.brokers.bootstrap_servers}"
    if isinstance(survey.reassigning, Unobserved):
        yield finding(Code.REASSIGNMENTS_UNKNOWN, name, reason=survey.reassigning)
    if partitions := observed(survey.reassigning, ()):
        yield finding(Code.REASSIGNMENT_RUNNING, name, what=f"{len(partitions)} partition(s), {some(partitions)}")


# ----------------------------------------------------------------------------------------- configuration


def _brokers(step: StepContext, survey: Survey) -> Iterator[FindingStatus]:
    if isinstance(survey.brokers, Unobserved):
        yield finding(Code.BROKER_CONFIGURATION_UNKNOWN, "brokers", reason=survey.brokers)
        return
    for broker, settings in survey.brokers.items():
        if isinstance(settings, Unobserved):
            yield finding(Code.BROKER_CONFIGURATION_UNKNOWN, f"broker/{broker}", reason=settings)
    seen = seen_settings(survey, step.observation.dry_start)
    with_certificate = _given_certificates(step)
    for broker, running in seen.items():
        yield from _refused(step, broker, running)
        if broker not in with_certificate or FORBID_PEM_FILES & running.keys():
            yield from _credentials(step, broker, running)
    yield from _overridden_settings(step, seen)
    yield from _left_aside(seen)
    yield from _alter_config_policy(seen)
    yield from _needed_by_controllers(step, survey, seen)
    yield from _unproven_plugins(step, survey)
    yield from _secrets(step, seen)


def _given_certificates(step: StepContext) -> frozenset[int]:
    """Return the brokers to which the overlay gives a certificate for the controllers' listener."""
    ids = step.registered_broker_ids()
    given = [stateful_set for stateful_set in read_sets(step) if stateful_set.issued_secret]
    return frozenset(ids.get(pod.name, -1) for stateful_set in given for pod in stateful_set.pods)


def _credentials(step: StepContext, broker: int, settings: Settings) -> Iterator[FindingStatus]:
    """Find a broker whose configuration has no certificate or login for the controllers' listener.

    Notes
    -----
    A broker is a client of this listener with the settings of a server (``NodeToControllerChannelManagerImpl``,
    ``JaasContext.Type.SERVER``): its TLS settings may lack the listener's prefix, its login is in
    ``listener.name.controller.<mechanism>.sasl.jaas.config`` or a JAAS file.
    """
    listener = step.spec.controllers.listener
    if not listener.has_files:
        return
    protocol = listener.security_protocol
    lacking = _lacking_stores(settings, CONTROLLER_LISTENER_PREFIX, _STORES.get(protocol, ()))
    if protocol.startswith("SASL_"):
        lacking += _lacking_login(settings)
    if not lacking:
        return
    issued = step.status.listener_certificates
    files = ""
    if issued is not None:
        held = "the trust and the login" if listener.issues_logins else "the key stores"
        files = f" (Secret {issued.brokers_secret} has {held})"
    yield finding(
        Code.BROKER_CREDENTIALS_MISSING,
        f"broker/{broker}",
        protocol=protocol,
        lacking=" and ".join(lacking) + files,
    )


def _lacking_stores(given: Collection[str], prefix: str, stores: Iterable[tuple[str, str]]) -> list[str]:
    """Return the stores that a configuration lacks, by their first setting.

    A setting may have the listener's prefix or none (``AbstractConfig.valuesWithPrefixOverride``).
    """

    def has(store: tuple[str, str]) -> bool:
        return any(name in given or prefix + name in given for name in store)

    return [prefix + store[0] for store in stores if not has(store)]


def _lacking_login(settings: Settings) -> list[str]:
    mechanism = _text(settings, _MECHANISM) or "plain"
    # Kafka's default mechanism is GSSAPI.
    needed = (_MECHANISM, f"{CONTROLLER_LISTENER_PREFIX}{mechanism.lower()}.sasl.jaas.config")
    return [name for name in needed if name not in settings]


def _refused(step: StepContext, broker: int, settings: Settings) -> Iterator[FindingStatus]:
    """Find what does not let this broker start in migration or KRaft mode (``KafkaConfig.validateValues``, 3.9)."""
    name = f"broker/{broker}"
    control_plane = settings.get("control.plane.listener.name")
    if control_plane is not None:
        yield finding(Code.CONTROL_PLANE_LISTENER, name, value=control_plane.value, source=control_plane.source)
    if "authorizer.zookeeper.url" in settings:
        yield finding(Code.AUTHORIZER_ZOOKEEPER_ELSEWHERE, name)
    protocols = settings.get("listener.security.protocol.map")
    if protocols is not None and protocols.source is not SettingSource.STATIC:
        yield finding(
            Code.DYNAMIC_LISTENER_MAP, name, value=protocols.value, entity=_entity(_stored_at(broker, protocols))
        )
    running = settings.get(PROTOCOL)
    is_bridge = running is None or re.match(r"3\.9|[4-9]", running.value or "") is not None
    if not is_bridge and running is not None and not upgrading.is_needed(step.status):
        yield finding(
            Code.INTER_BROKER_PROTOCOL_TOO_LOW,
            name,
            stated=f"the broker runs with inter.broker.protocol.version={running.value} ({running.source})",
        )
    endpoints = ",".join(_text(settings, key) for key in _LISTENERS)
    listeners = {endpoint.split(":")[0].strip() for endpoint in endpoints.split(",")}
    if CONTROLLER_LISTENER in listeners and "controller.quorum.voters" not in settings:
        yield finding(Code.LISTENER_NAME_TAKEN, name, listener=CONTROLLER_LISTENER)
    if _text(settings, MIGRATION_FLAG).lower() == "true":
        yield finding(Code.MIGRATION_FLAG_ALREADY_SET, name, source=settings[MIGRATION_FLAG].source)
    if _text(settings, "controlled.shutdown.enable") == "false":
        yield finding(Code.CONTROLLED_SHUTDOWN_DISABLED, name)


def _left_aside(seen: Seen) -> Iterator[FindingStatus]:
    settings = _flat(seen)
    stated = {setting.name for setting in settings if setting.source is not SettingSource.DEFAULT}
    ignored = stated & IGNORED_BY_KRAFT
    if ignored:
        yield finding(Code.SETTINGS_IGNORED_BY_KRAFT, "brokers", settings=some(ignored, 20))
    for where, entity, names in _dynamic(seen, _is_ignored):
        listed = some(names, 20)
        yield finding(
            Code.DYNAMIC_SETTINGS_IGNORED_BY_KRAFT, where, settings=listed, entity=entity, names=",".join(names)
        )
    for where, entity, names in _dynamic(seen, _is_undefined):
        listed = some(names, 20)
        yield finding(Code.DYNAMIC_SETTINGS_UNKNOWN, where, settings=listed, entity=entity, names=",".join(names))


def _dynamic(seen: Seen, is_left: Callable[[BrokerSetting], bool]) -> Iterator[tuple[str, Option, list[str]]]:
    """Yield dynamic settings, those of each broker and those of all brokers apart, since one command deletes each."""
    names: dict[int | None, set[str]] = {}
    for broker, settings in seen.items():
        for setting in settings.values():
            if setting.source in DYNAMIC and is_left(setting):
                names.setdefault(_stored_at(broker, setting), set()).add(setting.name)
    for place in sorted(names, key=str):
        yield "brokers" if place is None else f"broker/{place}", _entity(place), sorted(names[place])


def _is_ignored(setting: BrokerSetting) -> bool:
    return setting.name in IGNORED_BY_KRAFT


def _is_undefined(setting: BrokerSetting) -> bool:
    return not setting.known


def _stored_at(broker: int, setting: BrokerSetting) -> int | None:
    """Return the broker for which a dynamic setting is stored; None for all brokers."""
    return None if setting.source is SettingSource.DYNAMIC_DEFAULT else broker


def _entity(broker: int | None) -> Option:
    return option("entity-default") if broker is None else option("entity-name", broker)


def _alter_config_policy(seen: Seen) -> Iterator[FindingStatus]:
    """Find a policy that gets other arguments in KRaft mode (``ZkAdminManager``, ``ConfigurationControlManager``)."""
    running = [settings for settings in seen.values() if _value(settings, _ALTER_POLICY_SWITCH).lower() != "true"]
    policies = {value for settings in running if (value := _value(settings, ALTER_CONFIG_POLICY))}
    for value in sorted(policies):
        yield finding(Code.ALTER_CONFIG_POLICY_DIFFERS, ALTER_CONFIG_POLICY, setting=ALTER_CONFIG_POLICY, value=value)


def _needed_by_controllers(step: StepContext, survey: Survey, seen: Seen) -> Iterator[FindingStatus]:
    values = {setting.name: setting for setting in _flat(seen)}
    for plugin in CLASSES:
        if plugin in values.keys() - step.spec.controllers.config and values[plugin].value != DEFAULT_PRINCIPAL_BUILDER:
            yield finding(Code.PLUGIN_NOT_ON_CONTROLLERS, plugin, setting=plugin, value=values[plugin].value)
    yield from _inter_broker_access(step, survey, seen, needs_key=not TOKEN_KEYS.isdisjoint(values))
    yield from _trials(survey)
    # Without an authorizer nobody is checked (KafkaConfig.createNewAuthorizer takes an empty class name for none).
    if _value(values, AUTHORIZER):
        users = {user.strip() for user in _text(values, "super.users").split(";")}
        lacking = users - {"", *step.spec.controllers.super_users}
        if lacking:
            yield finding(Code.SUPER_USERS_MISSING_ON_CONTROLLERS, "controllers", users=some(lacking))


def _inter_broker_access(step: StepContext, survey: Survey, seen: Seen, *, needs_key: bool) -> Iterator[FindingStatus]:
    """Find what the controllers lack to reach the brokers' inter-broker listeners, and for delegation tokens."""
    logins = dict.fromkeys(filter(None, map(inter_broker_login, seen.values())))
    certificates = dict.fromkeys(filter(None, map(inter_broker_tls, seen.values())))
    if not (logins or certificates or needs_key):
        return
    listener = survey.listener_settings
    if isinstance(listener, Unobserved):
        if not isinstance(survey.listener_problems, Unobserved):  # else `_listener` reports it
            yield finding(Code.LISTENER_SECRET_UNKNOWN, "controllers", reason=listener)
        return
    given = listener | step.spec.controllers.config.keys()
    if needs_key and not TOKEN_KEYS & given:
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


def _trials(survey: Survey) -> Iterator[FindingStatus]:
    """Find brokers that do not let the controllers in."""
    trials = survey.inter_broker
    if isinstance(trials, Unobserved):
        yield finding(Code.INTER_BROKER_LOGIN_NOT_TRIED, "brokers", listener="(all brokers)", reason=trials)
        return
    for broker, trial in sorted(trials.items()):
        name = f"broker/{broker}"
        listener = f"{trial.listener} ({trial.address})"
        if trial.tried:
            yield finding(Code.INTER_BROKER_LOGIN_REFUSED, name, listener=listener, reason=trial.reason)
        else:
            yield finding(Code.INTER_BROKER_LOGIN_NOT_TRIED, name, listener=listener, reason=trial.reason)


def _unproven_plugins(step: StepContext, survey: Survey) -> Iterator[FindingStatus]:
    """Find classes that nothing has loaded from the controllers' image.

    A copy of a broker's pod loads them if brokers and controllers run the same image.
    The rehearsal starts a controller of that image with its classes.
    """
    if dry_starts.awaited(step):
        return  # the copies may show it; the gate stays closed until then
    image = step.spec.controllers.image
    same = {stateful_set.name for stateful_set in read_sets(step) if stateful_set.image == image}
    starts = [copy.start for copy in _copies(step.observation.dry_start) if copy.key.stateful_set in same]
    rehearsed = frozenset[str]()
    if rehearsals.starts_controllers(step):
        rehearsed = frozenset(LOADED_BY_CONTROLLERS) - NOT_REHEARSED
    for plugin in LOADED_BY_CONTROLLERS:
        value = _class_of_controllers(step, survey, plugin)
        if not value or value.startswith(_KAFKAS_OWN) or plugin in rehearsed:
            continue
        if not any(_has_loaded(start, plugin, value) for start in starts):
            yield finding(Code.PLUGIN_NOT_PROVEN, plugin, setting=plugin, value=value, image=image)


def _class_of_controllers(step: StepContext, survey: Survey, plugin: str) -> str:
    """Return the class that the controllers load; they take over the authorizer of the brokers."""
    value = step.spec.controllers.config.get(plugin, "")
    if plugin != AUTHORIZER:
        return value
    running = taken_over(survey, step.observation.dry_start).get(plugin)
    stated = [stateful_set.settings.get(plugin, "").strip() for stateful_set in reversed(read_sets(step))]
    return next(filter(None, (running, *stated)), value)


def _has_loaded(start: KafkaStart | None, plugin: str, value: str) -> bool:
    """Return whether a copy has loaded a class from its image."""
    if start is None or plugin not in start.settings:
        return False
    return start.settings[plugin].value == value and plugin not in (*start.missing_classes, *start.mounted_classes)


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
        """Return what a configuration lacks."""
        stores = [_TRUST_STORE]
        if self.client_certificate:
            stores.append(_KEY_STORE)
        return _lacking_stores(given, f"listener.name.{self.listener.lower()}.", stores)


def inter_broker_tls(values: Settings) -> _Tls | None:
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
    return _Tls(listener, protocol, asks is not None and asks.value in (None, "", "required"))


def inter_broker_listener(values: Settings) -> tuple[str, str]:
    """Return name and security protocol of a broker's inter-broker listener."""
    default = _value(values, "security.inter.broker.protocol", "PLAINTEXT")
    listener = _value(values, "inter.broker.listener.name") or default
    pairs = (pair.partition(":") for pair in _value(values, "listener.security.protocol.map").split(","))
    protocols = {name.strip(): protocol.strip() for name, _, protocol in pairs}
    return listener, protocols.get(listener, listener)


def inter_broker_login(values: Settings) -> _Login | None:
    """Return what a controller needs to log in to a broker's inter-broker listener; None if that is no SASL listener.

    Notes
    -----
    A controller in migration mode sends LeaderAndIsr and UpdateMetadata to that listener (``MigrationPropagator``). It
    is a client there with the server's login context, which is this setting or a JAAS file
    (``JaasContext.loadServerContext``); controllers have no such file.
    """
    listener, protocol = inter_broker_listener(values)
    if not protocol.startswith("SASL_"):
        return None
    return _Login(listener, protocol, _value(values, "sasl.mechanism.inter.broker.protocol", "GSSAPI"))


def _secrets(step: StepContext, seen: Seen) -> Iterator[FindingStatus]:
    unstated = [setting for setting in _flat(seen) if not _is_static(setting)]
    passwords = {setting.name for setting in unstated if setting.sensitive and setting.known}
    if not passwords:
        return
    if step.spec.controllers.password_encoder_secret is None:
        yield finding(Code.PASSWORD_ENCODER_SECRET_MISSING, "brokers", passwords=some(passwords))
    yield finding(Code.PASSWORD_BECOMES_PLAIN, "brokers", passwords=some(passwords))


# ------------------------------------------------------------------------------------------------ ZooKeeper


def _access(draft: Draft, survey: Survey) -> Iterator[FindingStatus]:
    name = f"ZooKeeper/{draft.spec.zookeeper.connect}"
    access = survey.zookeeper
    if isinstance(access, Unobserved):
        yield finding(Code.ZOOKEEPER_ACLS_UNKNOWN, name, reason=access)
        return
    identity = " and ".join(survey.zookeeper_identities) or "no credentials"
    closed = [path for path, acl in access.acls.items() if not _granted(acl, survey) >= ALL_PERMISSIONS]
    if access.denied:
        yield finding(Code.ZOOKEEPER_ACL_DENIED, name, paths=some(access.denied), identity=identity)
    # CREATE and DELETE are checked on the parent, so such a znode itself may be read-only.
    if closed:
        yield finding(Code.ZOOKEEPER_ACL_FORBIDS_KRAFT, name, count=len(closed), paths=some(closed), identity=identity)
    if access.topics_without_acl:
        yield finding(Code.ZOOKEEPER_ACLS_SAMPLED, name, count=access.topics_without_acl)


def _other_users(draft: Draft, survey: Survey) -> Iterator[FindingStatus]:
    name = f"ZooKeeper/{draft.spec.zookeeper.connect}"
    users = survey.zookeeper_users
    if isinstance(users, Unobserved):
        if not isinstance(survey.zookeeper, Unobserved):  # else another finding reports it
            yield finding(Code.ZOOKEEPER_USERS_UNKNOWN, name, reason=users)
        return
    if isinstance(users.clients, Unobserved):
        yield finding(Code.ZOOKEEPER_USERS_UNKNOWN, name, reason=users.clients)
    if clients := observed(users.clients, ()):
        yield finding(Code.ZOOKEEPER_CLIENTS_OF_OTHERS, name, addresses=some(clients))
    if users.znodes:
        yield finding(Code.ZOOKEEPER_ZNODES_OF_OTHERS, name, paths=some(users.znodes))
    if users.groups:
        yield finding(Code.CONSUMERS_IN_ZOOKEEPER, name, count=len(users.groups), groups=some(users.groups))


def _granted(acl: tuple[AclEntry, ...], survey: Survey) -> frozenset[str]:
    """Return what an ACL permits to the controllers."""
    holders = {"world:anyone", *survey.zookeeper_identities}
    return frozenset[str]().union(*(entry.permissions for entry in acl if _holder(entry) in holders))


def _holder(entry: AclEntry) -> str:
    # The id of a user of SASL may have a realm; that of a certificate is its whole subject, with any character.
    name = entry.id.split("@")[0] if entry.scheme == "sasl" else entry.id
    return f"{entry.scheme}:{name}"
