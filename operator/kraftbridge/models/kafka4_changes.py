"""What Kafka 4.0 to 4.4 make of settings that 3.9 has otherwise: of brokers, of topics, of plugins. Pure data.

Source: each release's own code. ``tests/integration/test_kafka4_changes.py`` compares the tables with
``KafkaConfig.configDef``, ``LogConfig``, ``DynamicBrokerConfig`` and the plugins of the newest patch of each release,
and gives each setting values that 3.9 accepts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kraftbridge.models.metadata_version import Release

V4_0: Final = Release(4, 0)
V4_1: Final = Release(4, 1)
V4_2: Final = Release(4, 2)
V4_3: Final = Release(4, 3)
NEWEST: Final = Release(4, 4)
"""The newest release that the tables know."""


@dataclass(frozen=True, slots=True)
class Gone:
    """A setting that a release does not know any more. It ignores the setting without a word."""

    instead: str
    since: Release = V4_0


_REMOVE: Final = "remove it"
_TIMESTAMPS: Final = "log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms"
GONE: Final[Mapping[str, Gone]] = {
    "alter.config.policy.kraft.compatibility.enable": Gone(_REMOVE),
    "auto.include.jmx.reporter": Gone("name org.apache.kafka.common.metrics.JmxReporter in metric.reporters"),
    "broker.id.generation.enable": Gone("state node.id"),
    "control.plane.listener.name": Gone(_REMOVE),
    "controlled.shutdown.max.retries": Gone(_REMOVE),
    "controlled.shutdown.retry.backoff.ms": Gone(_REMOVE),
    "delegation.token.master.key": Gone("state the key as delegation.token.secret.key"),
    "eligible.leader.replicas.enable": Gone("raise the feature eligible.leader.replicas.version"),
    "group.coordinator.new.enable": Gone("raise the feature group.version", V4_1),
    "group.share.enable": Gone("raise the feature share.version", V4_3),
    "group.share.max.groups": Gone(_REMOVE, V4_1),
    "inter.broker.protocol.version": Gone("raise the feature metadata.version"),
    "leader.imbalance.per.broker.percentage": Gone(_REMOVE),
    "log.message.downconversion.enable": Gone(_REMOVE),
    "log.message.format.version": Gone(_REMOVE),
    "log.message.timestamp.difference.max.ms": Gone(f"state {_TIMESTAMPS}"),
    "metadata.log.segment.min.bytes": Gone(_REMOVE, V4_1),
    "offsets.commit.required.acks": Gone(_REMOVE),
    "password.encoder.cipher.algorithm": Gone(_REMOVE),
    "password.encoder.iterations": Gone(_REMOVE),
    "password.encoder.key.length": Gone(_REMOVE),
    "password.encoder.keyfactory.algorithm": Gone(_REMOVE),
    "password.encoder.old.secret": Gone(_REMOVE),
    "password.encoder.secret": Gone(_REMOVE),
    "reserved.broker.max.id": Gone("state node.id"),
    "zookeeper.clientCnxnSocket": Gone(_REMOVE),
    "zookeeper.connect": Gone(_REMOVE),
    "zookeeper.connection.timeout.ms": Gone(_REMOVE),
    "zookeeper.max.in.flight.requests": Gone(_REMOVE),
    "zookeeper.metadata.migration.enable": Gone(_REMOVE),
    "zookeeper.metadata.migration.min.batch.size": Gone(_REMOVE),
    "zookeeper.session.timeout.ms": Gone(_REMOVE),
    "zookeeper.set.acl": Gone(_REMOVE),
    "zookeeper.ssl.cipher.suites": Gone(_REMOVE),
    "zookeeper.ssl.client.enable": Gone(_REMOVE),
    "zookeeper.ssl.crl.enable": Gone(_REMOVE),
    "zookeeper.ssl.enabled.protocols": Gone(_REMOVE),
    "zookeeper.ssl.endpoint.identification.algorithm": Gone(_REMOVE),
    "zookeeper.ssl.keystore.location": Gone(_REMOVE),
    "zookeeper.ssl.keystore.password": Gone(_REMOVE),
    "zookeeper.ssl.keystore.type": Gone(_REMOVE),
    "zookeeper.ssl.ocsp.enable": Gone(_REMOVE),
    "zookeeper.ssl.protocol": Gone(_REMOVE),
    "zookeeper.ssl.truststore.location": Gone(_REMOVE),
    "zookeeper.ssl.truststore.password": Gone(_REMOVE),
    "zookeeper.ssl.truststore.type": Gone(_REMOVE),
}
"""Settings of brokers that are gone, with what takes their place. Kafka 4 also ignores them where they are dynamic."""

WITHOUT_EFFECT: Final = frozenset(
    name for name in GONE if name.startswith(("password.encoder.", "zookeeper."))
) | frozenset(
    {
        "broker.id.generation.enable",
        "control.plane.listener.name",
        "controlled.shutdown.max.retries",
        "controlled.shutdown.retry.backoff.ms",
        "inter.broker.protocol.version",
        "leader.imbalance.per.broker.percentage",
        "log.message.format.version",
        "reserved.broker.max.id",
    }
)
"""Those that 3.9 already ignores in KRaft mode: no node misses them."""

GONE_FROM_TOPICS: Final[Mapping[str, Gone]] = {
    "message.downconversion.enable": Gone(_REMOVE),
    "message.format.version": Gone(_REMOVE),
    "message.timestamp.difference.max.ms": Gone(
        "state message.timestamp.before.max.ms and message.timestamp.after.max.ms"
    ),
}
"""Settings of topics that are gone."""

NOT_DYNAMIC: Final[Mapping[str, Release]] = {
    "advertised.listeners": V4_0,
    "log.message.downconversion.enable": V4_0,
    "log.message.timestamp.difference.max.ms": V4_0,
}
"""Settings that could be dynamic in 3.9, with the first release that ignores them there."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The lowest value that a release accepts of a number. 3.9 accepts lower ones."""

    lowest: int
    since: Release


BOUNDS: Final[Mapping[str, Bound]] = {
    "controller.quorum.append.linger.ms": Bound(0, V4_1),
    "controller.quorum.election.backoff.max.ms": Bound(0, V4_1),
    "controller.quorum.election.timeout.ms": Bound(0, V4_1),
    "controller.quorum.fetch.timeout.ms": Bound(0, V4_1),
    "controller.quorum.request.timeout.ms": Bound(0, V4_1),
    "controller.quorum.retry.backoff.ms": Bound(0, V4_1),
    "log.segment.bytes": Bound(1048576, V4_0),
    "metadata.log.segment.bytes": Bound(8388608, V4_1),
    "num.replica.fetchers": Bound(1, V4_2),
    "remote.log.manager.copier.thread.pool.size": Bound(1, V4_0),
    "remote.log.manager.expiration.thread.pool.size": Bound(1, V4_0),
}
"""Numbers of brokers and controllers. A node does not start with a lower one in its own configuration.

It ignores one that is dynamic, with ``Dynamic broker config contains invalid values`` in its log.
"""

TOPIC_BOUNDS: Final[Mapping[str, Bound]] = {"segment.bytes": Bound(1048576, V4_1)}
"""Numbers of topics. A broker that finds a lower one does not start (``Error starting LogManager``)."""

NOT_EMPTY: Final[Mapping[str, Release]] = {"group.consumer.assignors": V4_2}
"""Lists that may be empty in 3.9, with the first release that does not start with an empty one."""


@dataclass(frozen=True, slots=True)
class NewDefault:
    """Another default than in 3.9, from a release on."""

    name: str
    since: Release
    before: str
    after: str


_JMX: Final = "org.apache.kafka.common.metrics.JmxReporter"
_ASSIGNORS: Final = "org.apache.kafka.coordinator.group.assignor."
_UNBOUNDED: Final = "9223372036854775807"
NEW_DEFAULTS: Final = (
    NewDefault("controller.listener.names", V4_2, "null", "<none>"),
    NewDefault(
        "group.consumer.assignors", V4_0, f"{_ASSIGNORS}UniformAssignor,{_ASSIGNORS}RangeAssignor", "uniform,range"
    ),
    NewDefault("group.consumer.migration.policy", V4_0, "disabled", "bidirectional"),
    NewDefault("group.coordinator.append.linger.ms", V4_0, "10", "5"),
    NewDefault("group.coordinator.append.linger.ms", V4_2, "10", "-1"),
    NewDefault("group.coordinator.new.enable", V4_0, "false", "true"),
    NewDefault("group.coordinator.rebalance.protocols", V4_0, "classic", "classic,consumer"),
    NewDefault("group.coordinator.rebalance.protocols", V4_1, "classic", "classic,consumer,streams"),
    NewDefault("group.coordinator.threads", V4_0, "1", "4"),
    NewDefault("group.share.partition.max.record.locks", V4_1, "200", "2000"),
    NewDefault("log.message.timestamp.after.max.ms", V4_0, _UNBOUNDED, "3600000"),
    NewDefault("metric.reporters", V4_0, "", _JMX),
    NewDefault("node.id", V4_0, "-1", "<none>"),
    NewDefault("num.recovery.threads.per.data.dir", V4_0, "1", "2"),
    NewDefault("process.roles", V4_0, "", "<none>"),
    NewDefault("remote.log.manager.copier.thread.pool.size", V4_0, "-1", "10"),
    NewDefault("remote.log.manager.expiration.thread.pool.size", V4_0, "-1", "10"),
    NewDefault("remote.log.manager.thread.pool.size", V4_0, "10", "2"),
    NewDefault("sasl.oauthbearer.expected.audience", V4_2, "null", ""),
)
"""Defaults of brokers. ``<none>``: it must be stated, which the migration or 3.9 in KRaft mode sees to."""
NEW_TOPIC_DEFAULTS: Final = (NewDefault("message.timestamp.after.max.ms", V4_0, _UNBOUNDED, "3600000"),)
"""Defaults of topics. The broker's setting of the same kind stands before them."""

_NOTHING: Final = frozenset({None, "", "null"})


def is_new_default(name: str, one: str | None, other: str | None) -> bool:
    """Return whether two values of a setting are the defaults of 3.9 and of a release of Kafka 4, in either order."""
    rows = [row for row in NEW_DEFAULTS if row.name == name]
    return any(
        (_is_same(row.before, before) and _is_same(row.after, after))
        for row in rows
        for before, after in ((one, other), (other, one))
    )


def _is_same(default: str, value: str | None) -> bool:
    return default == value or (default in _NOTHING and value in _NOTHING)


NEW_BEHAVIOUR: Final[Mapping[str, str]] = {
    "group.coordinator.rebalance.protocols": "consumers may also use the new protocol for groups (KIP-848)",
    "group.coordinator.threads": "four threads serve groups, not one",
    "log.message.timestamp.after.max.ms": "a record whose timestamp is more than one hour ahead is refused",
    "num.recovery.threads.per.data.dir": "two threads for each directory load the logs, not one",
}
"""Settings whose new default does something else unless it is stated, with what.

The others do not: ``metric.reporters`` names the reporter that 3.9 adds by itself, ``group.consumer.assignors`` names
the same two by their short names, and the rest is of tiered storage, of share groups and of the new groups.
"""

REPORTERS: Final = "metric.reporters"
JMX_REPORTER: Final = _JMX
"""Reporter that 3.9 adds to the named ones, unless ``auto.include.jmx.reporter`` is false, and Kafka 4 does not."""

_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer."
GONE_CLASSES: Final[Mapping[str, str]] = {
    "kafka.security.authorizer.AclAuthorizer": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    f"{_OAUTH}secured.OAuthBearerLoginCallbackHandler": f"{_OAUTH}OAuthBearerLoginCallbackHandler",
    f"{_OAUTH}secured.OAuthBearerValidatorCallbackHandler": f"{_OAUTH}OAuthBearerValidatorCallbackHandler",
}
"""Kafka's own classes for settings, which Kafka 4.0 does not have any more, with what takes their place."""
