"""Every broker setting of Kafka 3.9: what becomes of it in a migration to KRaft. Pure data.

Preflight's findings, the controllers' configuration and ``docs/broker-settings.md`` follow from it. Names are those of
``KafkaConfig.configDef`` of 3.9.1, which ``tests/integration/test_broker_settings.py`` compares, and of what plugins of Kafka's own read.
Sources: Kafka's manual, "ZooKeeper to KRaft Migration" and "KRaft: Configs removed or changed"; ``ControllerServer``, ``ControllerApis``,
``QuorumController``, ``BrokerServer`` of 3.9.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Fate(StrEnum):
    """Effect of the migration on a broker's setting."""

    STAYS = "stays"
    """The KRaft broker reads it as before."""
    MOVES = "moves to the controllers"
    """In KRaft, or while the controllers call brokers that use ZooKeeper, the controllers read it; brokers may keep it."""
    DIES = "dies"
    """A KRaft broker ignores it; remove it after the migration."""
    MUST_NOT_BE = "must not be"
    """The migration sets it, or KRaft refuses it: preflight blocks where it is set before."""


class Carry(StrEnum):
    """Way in which a setting gets to the controllers."""

    COPIED = "copied by the operator"
    """The operator copies it from the configuration of the running brokers."""
    SET = "set by the operator"
    GIVEN = "given by you"
    """A secret, or a class that the controllers' image must have: ``spec.controllers`` or the listener's Secret."""


@dataclass(frozen=True, slots=True)
class BrokerSettingRule:
    """One row of the table."""

    name: str
    fate: Fate
    carry: Carry | None = None
    """Of a setting that moves."""
    why: str = ""


_STAYS: Final = ["advertised.listeners", "alter.log.dirs.replication.quota.window.num", "alter.log.dirs.replication.quota.window.size.seconds", "auto.create.topics.enable", "auto.include.jmx.reporter", "background.threads", "broker.heartbeat.interval.ms", "broker.id", "broker.rack", "compression.gzip.level", "compression.lz4.level", "compression.type", "compression.zstd.level", "connection.failed.authentication.delay.ms", "connections.max.idle.ms", "connections.max.reauth.ms", "controlled.shutdown.enable", "controller.socket.timeout.ms", "delete.records.purgatory.purge.interval.requests", "early.start.listeners", "fetch.max.bytes", "fetch.purgatory.purge.interval.requests", "group.consumer.assignors", "group.consumer.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms", "group.consumer.max.session.timeout.ms", "group.consumer.max.size", "group.consumer.migration.policy", "group.consumer.min.heartbeat.interval.ms", "group.consumer.min.session.timeout.ms", "group.consumer.session.timeout.ms", "group.coordinator.append.linger.ms", "group.coordinator.new.enable", "group.coordinator.rebalance.protocols", "group.coordinator.threads", "group.initial.rebalance.delay.ms", "group.max.session.timeout.ms", "group.max.size", "group.min.session.timeout.ms", "group.share.delivery.count.limit", "group.share.enable", "group.share.heartbeat.interval.ms", "group.share.max.groups", "group.share.max.heartbeat.interval.ms", "group.share.max.record.lock.duration.ms", "group.share.max.session.timeout.ms", "group.share.max.size", "group.share.min.heartbeat.interval.ms", "group.share.min.record.lock.duration.ms", "group.share.min.session.timeout.ms", "group.share.partition.max.record.locks", "group.share.record.lock.duration.ms", "group.share.session.timeout.ms", "initial.broker.registration.timeout.ms", "kafka.metrics.polling.interval.secs", "kafka.metrics.reporters", "listeners", "log.cleaner.backoff.ms", "log.cleaner.dedupe.buffer.size", "log.cleaner.delete.retention.ms", "log.cleaner.enable", "log.cleaner.io.buffer.load.factor", "log.cleaner.io.buffer.size", "log.cleaner.io.max.bytes.per.second", "log.cleaner.max.compaction.lag.ms", "log.cleaner.min.cleanable.ratio", "log.cleaner.min.compaction.lag.ms", "log.cleaner.threads", "log.cleanup.policy", "log.dir", "log.dir.failure.timeout.ms", "log.dirs", "log.flush.interval.messages", "log.flush.interval.ms", "log.flush.offset.checkpoint.interval.ms", "log.flush.scheduler.interval.ms", "log.flush.start.offset.checkpoint.interval.ms", "log.index.interval.bytes", "log.index.size.max.bytes", "log.initial.task.delay.ms", "log.local.retention.bytes", "log.local.retention.ms", "log.message.downconversion.enable", "log.message.timestamp.after.max.ms", "log.message.timestamp.before.max.ms", "log.message.timestamp.difference.max.ms", "log.message.timestamp.type", "log.preallocate", "log.retention.bytes", "log.retention.check.interval.ms", "log.retention.hours", "log.retention.minutes", "log.retention.ms", "log.roll.hours", "log.roll.jitter.hours", "log.roll.jitter.ms", "log.roll.ms", "log.segment.bytes", "log.segment.delete.delay.ms", "max.connection.creation.rate", "max.connections", "max.connections.per.ip", "max.connections.per.ip.overrides", "max.incremental.fetch.session.cache.slots", "max.request.partition.size.limit", "message.max.bytes", "metadata.log.dir", "metadata.log.max.record.bytes.between.snapshots", "metadata.log.max.snapshot.interval.ms", "metadata.log.segment.bytes", "metadata.log.segment.min.bytes", "metadata.log.segment.ms", "metadata.max.idle.interval.ms", "metadata.max.retention.bytes", "metadata.max.retention.ms", "metric.reporters", "metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms", "num.io.threads", "num.network.threads", "num.recovery.threads.per.data.dir", "num.replica.alter.log.dirs.threads", "num.replica.fetchers", "offset.metadata.max.bytes", "offsets.commit.required.acks", "offsets.commit.timeout.ms", "offsets.load.buffer.size", "offsets.retention.check.interval.ms", "offsets.retention.minutes", "offsets.topic.compression.codec", "offsets.topic.num.partitions", "offsets.topic.replication.factor", "offsets.topic.segment.bytes", "producer.id.expiration.check.interval.ms", "producer.id.expiration.ms", "producer.purgatory.purge.interval.requests", "queued.max.request.bytes", "queued.max.requests", "quota.window.num", "quota.window.size.seconds", "remote.fetch.max.wait.ms", "remote.log.index.file.cache.total.size.bytes", "remote.log.manager.copier.thread.pool.size", "remote.log.manager.copy.max.bytes.per.second", "remote.log.manager.copy.quota.window.num", "remote.log.manager.copy.quota.window.size.seconds", "remote.log.manager.expiration.thread.pool.size", "remote.log.manager.fetch.max.bytes.per.second", "remote.log.manager.fetch.quota.window.num", "remote.log.manager.fetch.quota.window.size.seconds", "remote.log.manager.task.interval.ms", "remote.log.manager.task.retry.backoff.max.ms", "remote.log.manager.task.retry.backoff.ms", "remote.log.manager.task.retry.jitter", "remote.log.manager.thread.pool.size", "remote.log.metadata.custom.metadata.max.bytes", "remote.log.metadata.manager.class.name", "remote.log.metadata.manager.class.path", "remote.log.metadata.manager.impl.prefix", "remote.log.metadata.manager.listener.name", "remote.log.reader.max.pending.tasks", "remote.log.reader.threads", "remote.log.storage.manager.class.name", "remote.log.storage.manager.class.path", "remote.log.storage.manager.impl.prefix", "replica.fetch.backoff.ms", "replica.fetch.max.bytes", "replica.fetch.min.bytes", "replica.fetch.response.max.bytes", "replica.fetch.wait.max.ms", "replica.high.watermark.checkpoint.interval.ms", "replica.lag.time.max.ms", "replica.selector.class", "replica.socket.receive.buffer.bytes", "replica.socket.timeout.ms", "replication.quota.window.num", "replication.quota.window.size.seconds", "request.timeout.ms", "sasl.client.callback.handler.class", "sasl.jaas.config", "sasl.kerberos.kinit.cmd", "sasl.kerberos.min.time.before.relogin", "sasl.kerberos.service.name", "sasl.kerberos.ticket.renew.jitter", "sasl.kerberos.ticket.renew.window.factor", "sasl.login.callback.handler.class", "sasl.login.class", "sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms", "sasl.login.refresh.buffer.seconds", "sasl.login.refresh.min.period.seconds", "sasl.login.refresh.window.factor", "sasl.login.refresh.window.jitter", "sasl.login.retry.backoff.max.ms", "sasl.login.retry.backoff.ms", "sasl.mechanism.controller.protocol", "sasl.oauthbearer.clock.skew.seconds", "sasl.oauthbearer.expected.audience", "sasl.oauthbearer.expected.issuer", "sasl.oauthbearer.jwks.endpoint.refresh.ms", "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "sasl.oauthbearer.jwks.endpoint.url", "sasl.oauthbearer.scope.claim.name", "sasl.oauthbearer.sub.claim.name", "sasl.oauthbearer.token.endpoint.url", "sasl.server.callback.handler.class", "sasl.server.max.receive.size", "security.providers", "server.max.startup.time.ms", "socket.connection.setup.timeout.max.ms", "socket.connection.setup.timeout.ms", "socket.listen.backlog.size", "socket.receive.buffer.bytes", "socket.request.max.bytes", "socket.send.buffer.bytes", "ssl.allow.dn.changes", "ssl.allow.san.changes", "ssl.cipher.suites", "ssl.client.auth", "ssl.enabled.protocols", "ssl.endpoint.identification.algorithm", "ssl.engine.factory.class", "ssl.key.password", "ssl.keymanager.algorithm", "ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.type", "ssl.protocol", "ssl.provider", "ssl.secure.random.implementation", "ssl.trustmanager.algorithm", "ssl.truststore.certificates", "ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.type", "telemetry.max.bytes", "transaction.abort.timed.out.transaction.cleanup.interval.ms", "transaction.max.timeout.ms", "transaction.partition.verification.enable", "transaction.remove.expired.transaction.cleanup.interval.ms", "transaction.state.log.load.buffer.size", "transaction.state.log.min.isr", "transaction.state.log.num.partitions", "transaction.state.log.replication.factor", "transaction.state.log.segment.bytes", "transactional.id.expiration.ms", "unstable.api.versions.enable", "unstable.feature.versions.enable"]  # fmt: skip

_DEFAULTS: Final = "applied to new topics by the controllers"
_CALLS: Final = "the controllers call the brokers' inter-broker listener during the migration"
_TOKENS: Final = "in KRaft the controllers make and expire delegation tokens (DelegationTokenControlManager)"
_PRINCIPALS: Final = "the controllers read the principals of forwarded requests"
_MOVES: Final = (
    ("allow.everyone.if.no.acl.found", Carry.COPIED, "the controllers authorize what brokers forward (StandardAuthorizer)"),
    ("alter.config.policy.class.name", Carry.GIVEN, "the controllers apply it; the class must be in their image"),
    ("authorizer.class.name", Carry.SET, "AclAuthorizer becomes StandardAuthorizer on brokers and controllers (KIP-801); another class must be in the controllers' image"),
    ("auto.leader.rebalance.enable", Carry.COPIED, "the controllers elect preferred leaders (QuorumController)"),
    ("broker.session.timeout.ms", Carry.COPIED, "the controllers fence brokers that are silent"),
    ("client.quota.callback.class", Carry.GIVEN, "the controllers create it, too (QuotaFactory); the class must be in their image"),
    ("controller.quota.window.num", Carry.COPIED, "the controllers apply controller_mutation_rate"),
    ("controller.quota.window.size.seconds", Carry.COPIED, "the controllers apply controller_mutation_rate"),
    ("create.topic.policy.class.name", Carry.GIVEN, "the controllers apply it; the class must be in their image"),
    ("default.replication.factor", Carry.COPIED, _DEFAULTS),
    ("delegation.token.expiry.check.interval.ms", Carry.COPIED, _TOKENS),
    ("delegation.token.expiry.time.ms", Carry.COPIED, _TOKENS),
    ("delegation.token.master.key", Carry.GIVEN, _TOKENS),
    ("delegation.token.max.lifetime.ms", Carry.COPIED, _TOKENS),
    ("delegation.token.secret.key", Carry.GIVEN, _TOKENS),
    ("delete.topic.enable", Carry.COPIED, "the controllers delete topics (ControllerApis): without it, true"),
    ("eligible.leader.replicas.enable", Carry.COPIED, "the controllers elect leaders"),
    ("inter.broker.listener.name", Carry.COPIED, _CALLS),
    ("leader.imbalance.check.interval.seconds", Carry.COPIED, "the controllers elect preferred leaders"),
    ("leader.imbalance.per.broker.percentage", Carry.COPIED, "the controllers elect preferred leaders"),
    ("listener.security.protocol.map", Carry.SET, f"{_CALLS}; brokers get the controllers' listener in it"),
    ("min.insync.replicas", Carry.COPIED, _DEFAULTS),
    ("num.partitions", Carry.COPIED, _DEFAULTS),
    ("password.encoder.secret", Carry.GIVEN, "the controllers decrypt dynamic passwords in the copy; dies after the migration"),
    ("principal.builder.class", Carry.GIVEN, f"{_PRINCIPALS}; the class must be in their image"),
    ("remote.log.storage.system.enable", Carry.COPIED, "the controllers refuse remote.storage.enable of a topic without it (ControllerConfigurationValidator)"),
    ("sasl.enabled.mechanisms", Carry.COPIED, _CALLS),
    ("sasl.kerberos.principal.to.local.rules", Carry.COPIED, _PRINCIPALS),
    ("sasl.mechanism.inter.broker.protocol", Carry.COPIED, _CALLS),
    ("security.inter.broker.protocol", Carry.COPIED, _CALLS),
    ("ssl.principal.mapping.rules", Carry.COPIED, "the controllers name the brokers that connect by certificate"),
    ("super.users", Carry.GIVEN, "the controllers know no ACL before the copy: spec.controllers.superUsers"),
    ("unclean.leader.election.enable", Carry.COPIED, "the controllers elect leaders"),
    ("unclean.leader.election.interval.ms", Carry.COPIED, "the controllers elect leaders"),
    ("zookeeper.clientCnxnSocket", Carry.COPIED, "the controllers write ZooKeeper during the migration; dies after it"),
    ("zookeeper.set.acl", Carry.COPIED, "the controllers write ZooKeeper during the migration; dies after it"),
)  # fmt: skip

_PASSWORDS: Final = "passwords are not encoded in KRaft"
_ZOOKEEPER: Final = "a KRaft broker does not use ZooKeeper"
_DIES: Final = (
    ("broker.id.generation.enable", "KRaft brokers need an id of their own"),
    ("controlled.shutdown.max.retries", "a KRaft broker asks by its heartbeats"),
    ("controlled.shutdown.retry.backoff.ms", "a KRaft broker asks by its heartbeats"),
    ("inter.broker.protocol.version", "metadata.version takes its place (KIP-778)"),
    ("log.message.format.version", "3.0 or later is what is written (KIP-724)"),
    *((f"password.encoder.{name}", _PASSWORDS) for name in ("cipher.algorithm", "iterations", "key.length", "keyfactory.algorithm", "old.secret")),
    ("reserved.broker.max.id", "KRaft brokers need an id of their own"),
    *((f"zookeeper.{name}", _ZOOKEEPER) for name in (
        "connect", "connection.timeout.ms", "max.in.flight.requests", "metadata.migration.min.batch.size", "session.timeout.ms", "ssl.cipher.suites",
        "ssl.client.enable", "ssl.crl.enable", "ssl.enabled.protocols", "ssl.endpoint.identification.algorithm", "ssl.keystore.location",
        "ssl.keystore.password", "ssl.keystore.type", "ssl.ocsp.enable", "ssl.protocol", "ssl.truststore.location", "ssl.truststore.password",
        "ssl.truststore.type",
    )),
)  # fmt: skip

_MUST_NOT_BE: Final = (
    ("authorizer.zookeeper.url", "ACLs in another ZooKeeper are not copied"),
    ("control.plane.listener.name", "KRaft refuses it"),
    ("controller.listener.names", "the migration sets it"),
    *((f"controller.quorum.{name}", "the migration sets the quorum") for name in (
        "append.linger.ms", "bootstrap.servers", "election.backoff.max.ms", "election.timeout.ms", "fetch.timeout.ms", "request.timeout.ms",
        "retry.backoff.ms", "voters",
    )),
    ("node.id", "broker.id of a broker that uses ZooKeeper; both may be set where they are equal"),
    ("process.roles", "this is no broker that uses ZooKeeper"),
    ("zookeeper.metadata.migration.enable", "the migration sets it"),
)  # fmt: skip

RULES: Final[dict[str, BrokerSettingRule]] = {
    rule.name: rule
    for rule in sorted(
        (
            *(BrokerSettingRule(name, Fate.STAYS) for name in _STAYS),
            *(BrokerSettingRule(name, Fate.MOVES, carry, why) for name, carry, why in _MOVES),
            *(BrokerSettingRule(name, Fate.DIES, None, why) for name, why in _DIES),
            *(BrokerSettingRule(name, Fate.MUST_NOT_BE, None, why) for name, why in _MUST_NOT_BE),
        ),
        key=lambda rule: rule.name,
    )
}
"""Every setting by its name."""

OF_AUTHORIZERS: Final = frozenset({"allow.everyone.if.no.acl.found", "authorizer.zookeeper.url", "super.users"})
"""Rows that are not in ``KafkaConfig.configDef``: Kafka's own authorizers read them, and DescribeConfigs hides their values."""

COPIED: Final = tuple(name for name, rule in RULES.items() if rule.carry is Carry.COPIED)
"""Settings that the controllers get from the brokers' configuration."""

CLASSES: Final = tuple(name for name, rule in RULES.items() if rule.carry is Carry.GIVEN and ".class" in name)
"""Plugins of the controllers that ``spec.controllers.config`` names; their image must have the classes."""

AUTHORIZER: Final = "authorizer.class.name"

LOADED_BY_CONTROLLERS: Final = (AUTHORIZER, *CLASSES)
"""Settings whose class the controllers' image must have; the controllers take over the authorizer from the brokers."""

IGNORED_BY_KRAFT: Final = frozenset(
    name
    for name, rule in RULES.items()
    if rule.fate is Fate.DIES or name.startswith(("zookeeper.", "password.encoder."))
)
"""Settings that a KRaft broker ignores."""

MAY_CHANGE: Final = frozenset(
    {
        "broker.id.generation.enable",
        "controller.listener.names",
        "early.start.listeners",
        "inter.broker.protocol.version",
        "log.initial.task.delay.ms",
        "log.message.format.version",
        "node.id",
        "process.roles",
    }
)
"""Settings whose value a change of the mode changes: the overlay sets them, or a KRaft broker ignores them."""
_MAY_CHANGE_PREFIXES: Final = ("controller.quorum.", "listener.name.controller.", "password.encoder.", "zookeeper.")

_DESTROYING: Final = frozenset(
    {
        "log.cleaner.delete.retention.ms",
        "log.cleanup.policy",
        "log.local.retention.bytes",
        "log.local.retention.ms",
        "log.retention.bytes",
        "log.retention.hours",
        "log.retention.minutes",
        "log.retention.ms",
        "min.insync.replicas",
        "offsets.retention.minutes",
        "unclean.leader.election.enable",
    }
)
_CUTTING_OFF: Final = frozenset(
    {
        "advertised.listeners",
        "allow.everyone.if.no.acl.found",
        "authorizer.class.name",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
        "listeners",
        "principal.builder.class",
        "security.inter.broker.protocol",
        "super.users",
    }
)


def may_change(name: str) -> bool:
    """Return whether a restart in another mode may change the value of a setting."""
    return name in MAY_CHANGE or name.startswith(_MAY_CHANGE_PREFIXES)


def without_listener(name: str) -> str:
    """Return a setting's name without ``listener.name.<listener>.`` (KIP-103)."""
    if not name.startswith("listener.name."):
        return name
    return name.removeprefix("listener.name.").partition(".")[2]


def destroys(name: str) -> bool:
    """Return whether another value of a setting deletes records, or lets them be lost."""
    return name in _DESTROYING


def cuts_off(name: str) -> bool:
    """Return whether another value of a setting decides who reaches the broker, and who may do what."""
    base = without_listener(name)
    return base in _CUTTING_OFF or base.startswith(("ssl.", "sasl."))
