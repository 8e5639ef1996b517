"""Findings about what the running brokers are configured with, what the principal may see, and who may write ZooKeeper. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from kraftbridge.models.observation import Unobserved
from kraftbridge.models.status import FindingStatus, Severity
from kraftbridge.models.survey import AclEntry, BrokerSetting, SettingSource, Survey
from kraftbridge.phases.draft import Draft
from kraftbridge.phases.preflight.finding import block, finding, some

CONTROLLER_LISTENER = "CONTROLLER"
"""Name of the listener that the migration adds (``controller.listener.names``)."""

IGNORED_BY_KRAFT = frozenset(
    {"broker.id.generation.enable", "reserved.broker.max.id", "inter.broker.protocol.version", "password.encoder.secret",
     "password.encoder.old.secret", "password.encoder.cipher.algorithm", "password.encoder.key.length",
     "password.encoder.iterations", "password.encoder.keyfactory.algorithm", "log.message.format.version"}
)  # fmt: skip
"""Settings besides ``zookeeper.*`` that a KRaft broker of 3.9 reads and leaves aside (Kafka's manual, "ZooKeeper to KRaft": "Configs removed
or changed"; ``KafkaConfig``, ``DynamicBrokerConfig``: passwords are not encoded in KRaft)."""

POLICIES = ("create.topic.policy.class.name", "alter.config.policy.class.name")
"""In KRaft the controllers apply them (``ControllerServer``), so class and setting must be there, not on the brokers."""

TOKEN_KEYS = frozenset({"delegation.token.secret.key", "delegation.token.master.key"})
"""In KRaft the controllers make tokens, and need the key (``DelegationTokenControlManager``)."""

NEEDED_OPERATIONS = ("DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")
"""On the cluster: quorum and reassignments, configurations, and the canary quota (``KafkaApis``: AlterClientQuotas asks for ALTER_CONFIGS)."""

ALL_PERMISSIONS = frozenset("cdrwa")


def findings(draft: Draft, survey: Survey) -> Iterator[FindingStatus]:
    """Return what Kafka in KRaft mode would refuse, ignore or not see."""
    yield from _visibility(draft, survey)
    yield from _reassignments(draft, survey)
    yield from _brokers(draft, survey)
    yield from _access(draft, survey)


def _visibility(draft: Draft, survey: Survey) -> Iterator[FindingStatus]:
    name, seen = f"Kafka/{draft.spec.brokers.bootstrap_servers}", survey.visibility
    if isinstance(seen, Unobserved):
        yield block("VisibilityUnknown", name, str(seen), "Check spec.brokers.bootstrapServers and clientConfigSecret")
        return
    needed = (*NEEDED_OPERATIONS, *(("ALTER",) if draft.spec.metadata_version else ()))
    if lacking := [o for o in needed if o not in seen.cluster_operations]:
        yield block(
            "OperationsMissing",
            name,
            f"The operator's principal may not {', '.join(lacking)} the cluster (DescribeCluster's authorized operations)",
            "Grant them by ACL on the cluster resource to the principal of spec.brokers.clientConfigSecret",
        )
    if isinstance(survey.zookeeper, Unobserved) or survey.zookeeper.denied:
        return  # a finding of its own
    if hidden := survey.zookeeper.topics - seen.topics:
        yield block(
            "TopicsHidden",
            name,
            f"Metadata does not show {len(hidden)} topic(s) that ZooKeeper has: {some(hidden)}",
            "Grant DESCRIBE and DESCRIBE_CONFIGS on every topic to the principal of spec.brokers.clientConfigSecret: what it may not see, nobody can verify",
        )


def _reassignments(draft: Draft, survey: Survey) -> Iterator[FindingStatus]:
    name = f"Kafka/{draft.spec.brokers.bootstrap_servers}"
    if isinstance(survey.reassigning, Unobserved):
        yield block(
            "ReassignmentsUnknown",
            name,
            str(survey.reassigning),
            "Let the operator's principal DESCRIBE the cluster",
        )
    elif survey.reassigning:
        yield block(
            "ReassignmentRunning",
            name,
            f"{len(survey.reassigning)} partition(s) are being reassigned: {some(survey.reassigning)}",
            "Let it finish, or cancel it (kafka-reassign-partitions --cancel)",
        )


# ----------------------------------------------------------------------------------------- configuration


def _brokers(draft: Draft, survey: Survey) -> Iterator[FindingStatus]:
    if isinstance(survey.brokers, Unobserved):
        yield block(
            "BrokerConfigurationUnknown",
            "brokers",
            str(survey.brokers),
            "Check spec.brokers.bootstrapServers and clientConfigSecret",
        )
        return
    seen: dict[int, dict[str, BrokerSetting]] = {}
    for broker, settings in survey.brokers.items():
        if isinstance(settings, Unobserved):
            yield block(
                "BrokerConfigurationUnknown",
                f"broker/{broker}",
                str(settings),
                "Let the operator's principal reach every broker and DESCRIBE_CONFIGS the cluster",
            )
        else:
            seen[broker] = {s.name: s for s in settings}
            yield from _refused(broker, seen[broker])
    yield from _left_aside(seen)
    yield from _needed_by_controllers(draft, survey, seen)
    yield from _secrets(draft, seen)


def _refused(broker: int, settings: Mapping[str, BrokerSetting]) -> Iterator[FindingStatus]:
    """Return what keeps this broker from starting in migration mode or as a KRaft broker (``KafkaConfig.validateValues``, 3.9)."""
    name = f"broker/{broker}"
    if (setting := settings.get("control.plane.listener.name")) is not None:
        yield block(
            "ControlPlaneListener",
            name,
            f"It runs with control.plane.listener.name={setting.value} ({setting.source}), which does not exist in KRaft",
            "Remove it from the brokers' configuration",
        )
    running = settings.get("inter.broker.protocol.version")
    if running is not None and not re.match(r"3\.9|[4-9]", running.value or ""):
        yield block(
            "InterBrokerProtocolTooLow",
            name,
            f"It runs with inter.broker.protocol.version={running.value} ({running.source}); the migration needs 3.9",
            "Set inter.broker.protocol.version=3.9 and restart the broker",
        )
    names = [
        part.split(":")[0].strip()
        for key in ("listeners", "advertised.listeners", "listener.security.protocol.map")
        for part in ((settings[key].value or "") if key in settings else "").split(",")
    ]
    flagged = settings.get("zookeeper.metadata.migration.enable")
    if CONTROLLER_LISTENER in names and "controller.quorum.voters" not in settings:
        yield block(
            "ListenerNameTaken",
            name,
            f"It has a listener {CONTROLLER_LISTENER} of its own, which is the name of the KRaft controllers' listener",
            "Rename that listener in listeners, advertised.listeners and listener.security.protocol.map",
        )
    if flagged is not None and (flagged.value or "").lower() == "true":
        yield block(
            "MigrationFlagAlreadySet",
            name,
            f"It runs with zookeeper.metadata.migration.enable=true ({flagged.source}), not by us",
            "Remove it and restart the broker",
        )
    if (setting := settings.get("controlled.shutdown.enable")) is not None and setting.value == "false":
        yield finding(
            Severity.WARNING,
            "ControlledShutdownDisabled",
            name,
            "controlled.shutdown.enable is false: it keeps its leaderships until it is gone, so each of its restarts stalls clients",
            "Set controlled.shutdown.enable=true",
        )


def _left_aside(seen: Mapping[int, Mapping[str, BrokerSetting]]) -> Iterator[FindingStatus]:
    every = [(b, s) for b, settings in seen.items() for s in settings.values()]
    ignored = {s.name for _, s in every if s.name in IGNORED_BY_KRAFT or s.name.startswith("zookeeper.")}
    if ignored:
        yield finding(
            Severity.INFORMATION,
            "SettingsIgnoredByKRaft",
            "brokers",
            f"KRaft brokers leave these aside: {some(ignored, 20)}",
            "Remove them with your next release after the migration; they do no harm",
        )
    if dynamic := {s.name for _, s in every if s.name in ignored and s.source is not SettingSource.STATIC}:
        yield finding(
            Severity.WARNING,
            "DynamicSettingsIgnoredByKRaft",
            "brokers",
            f"These are set dynamically, are copied and have no effect in KRaft: {some(dynamic, 20)}",
            "Delete them with kafka-configs --alter --delete-config",
        )
    if strange := {s.name for _, s in every if not s.known and s.source is not SettingSource.STATIC}:
        yield finding(
            Severity.WARNING,
            "DynamicSettingsUnknown",
            "brokers",
            f"Kafka does not know these dynamic settings; KRaft brokers log an error for each and drop them: {some(strange, 20)}",
            "Delete them with kafka-configs --alter --delete-config, unless a plugin of yours reads them",
        )


def _needed_by_controllers(
    draft: Draft, survey: Survey, seen: Mapping[int, Mapping[str, BrokerSetting]]
) -> Iterator[FindingStatus]:
    values = {name: setting for settings in seen.values() for name, setting in settings.items()}
    ours = draft.spec.controllers.config
    for policy in POLICIES:
        if policy in values and policy not in ours:
            yield block(
                "PolicyNotOnControllers",
                policy,
                f"Brokers run with {policy}={values[policy].value}; in KRaft the controllers apply it, and they would not have it",
                "Set it in spec.controllers.config with an image that has the class, or accept this finding and do without",
            )
    if TOKEN_KEYS & values.keys():
        listener = survey.listener_settings
        if isinstance(listener, Unobserved):
            yield block(
                "ListenerSecretUnknown",
                "controllers",
                str(listener),
                "Let the operator read the Secret of spec.controllers.listener.secretName",
            )
        elif not TOKEN_KEYS & (listener | ours.keys()):
            yield block(
                "DelegationTokenKeyMissing",
                "controllers",
                "The brokers use delegation tokens; in KRaft the controllers make them, and they have no delegation.token.secret.key",
                "Add the brokers' key to listener.properties in the Secret of spec.controllers.listener.secretName",
            )
    users = values.get("super.users")
    if users is not None and values.get("authorizer.class.name") is not None:
        lacking = {u.strip() for u in (users.value or "").split(";") if u.strip()} - set(
            draft.spec.controllers.super_users
        )
        if lacking:
            yield block(
                "SuperUsersMissingOnControllers",
                "controllers",
                f"{some(lacking)} are super users of the brokers and not of the controllers, which know no ACL before the copy: brokers could not register",
                "Add them to spec.controllers.superUsers, or accept this finding when none of them is the brokers' own principal",
            )


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
        yield block(
            "NoPasswordEncoderSecret",
            "brokers",
            f"Passwords are set dynamically ({some(secret)}); without password.encoder.secret the controllers copy their cipher text",
            "Set spec.controllers.passwordEncoderSecret to the brokers' password.encoder.secret",
        )
    yield finding(
        Severity.WARNING,
        "SecretsInMetadataLog",
        "brokers",
        f"Dynamic passwords ({some(secret)}) are encrypted in ZooKeeper and plain text in KRaft's metadata log",
        "Move them into the brokers' static configuration, or protect the controllers' and brokers' volumes accordingly",
    )


# ------------------------------------------------------------------------------------------------ ZooKeeper


def _access(draft: Draft, survey: Survey) -> Iterator[FindingStatus]:
    name, access = f"ZooKeeper/{draft.spec.zookeeper.connect}", survey.zookeeper
    if isinstance(access, Unobserved):
        yield block("ZooKeeperAclsUnknown", name, str(access), "Check spec.zookeeper.connect and its Secret")
        return
    if access.denied:
        yield block(
            "ZooKeeperAclDenied",
            name,
            f"The ACL of {some(access.denied)} may not even be read with {survey.zookeeper_identity or 'no credentials'}",
            "Give credentials of the brokers' principal in spec.zookeeper.secretName",
        )
    closed = [path for path, acl in access.acls.items() if not _granted(acl, survey) >= ALL_PERMISSIONS]
    # A znode that only its parent's CREATE and DELETE concern may be read-only itself.
    if closed:
        yield block(
            "ZooKeeperAclForbidsKRaft",
            name,
            f"{len(closed)} znode(s) may not be written by the KRaft controllers with {survey.zookeeper_identity or 'no credentials'}: {some(closed)}",
            "Reset the ACLs with zookeeper-security-migration --zookeeper.acl=unsecure, or give the brokers' credentials in spec.zookeeper.secretName with scheme=sasl, which the controllers use as well; accept this finding only where they authenticate by certificate",
        )
    if access.topics_without_acl:
        yield finding(
            Severity.INFORMATION,
            "ZooKeeperAclsSampled",
            name,
            f"The ACLs of {access.topics_without_acl} topics' znodes were not looked at",
            "Nothing, when zookeeper.set.acl never changed; else compare them yourself",
        )


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
