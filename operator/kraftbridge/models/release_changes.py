"""What Kafka 3.9 makes of settings that a release from 2.4 on had otherwise. Pure data.

Source: ``KafkaConfig.configDef`` of each release; ``tests/integration/test_release_changes.py`` compares it with 3.9's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kraftbridge.models.metadata_version import Release


@dataclass(frozen=True, slots=True)
class ChangedDefault:
    """A default that is another one in 3.9."""

    name: str
    before: str | None
    after: str


_TLS: Final = "TLSv1.2,TLSv1.3"
_REMOTE_LOG_MANAGER: Final = "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"
_ASSIGNORS: Final = "org.apache.kafka.coordinator.group.assignor."
CHANGED_DEFAULTS: Final = (
    ChangedDefault("listeners", None, "PLAINTEXT://:9092"),
    ChangedDefault(
        "principal.builder.class",
        None,
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
    ),
    ChangedDefault("metadata.max.retention.bytes", "-1", "104857600"),
    ChangedDefault("remote.log.metadata.manager.class.name", None, _REMOTE_LOG_MANAGER),
    ChangedDefault("remote.log.metadata.manager.impl.prefix", None, "rlmm.config."),
    ChangedDefault("remote.log.storage.manager.impl.prefix", None, "rsm.config."),
    ChangedDefault("group.consumer.assignors", "", f"{_ASSIGNORS}UniformAssignor,{_ASSIGNORS}RangeAssignor"),
    ChangedDefault(
        "group.consumer.assignors",
        f"{_ASSIGNORS}RangeAssignor",
        f"{_ASSIGNORS}UniformAssignor,{_ASSIGNORS}RangeAssignor",
    ),
    ChangedDefault("remote.log.manager.copier.thread.pool.size", "10", "-1"),
    ChangedDefault("remote.log.manager.expiration.thread.pool.size", "10", "-1"),
    ChangedDefault("message.max.bytes", "1000012", "1048588"),
    ChangedDefault("replica.lag.time.max.ms", "10000", "30000"),
    ChangedDefault("socket.connection.setup.timeout.max.ms", "127000", "30000"),
    ChangedDefault("ssl.enabled.protocols", "TLSv1.2,TLSv1.1,TLSv1", _TLS),
    ChangedDefault("ssl.enabled.protocols", "TLSv1.2", _TLS),
    ChangedDefault("ssl.protocol", "TLS", "TLSv1.3"),
    ChangedDefault("ssl.protocol", "TLSv1.2", "TLSv1.3"),
    ChangedDefault("transaction.abort.timed.out.transaction.cleanup.interval.ms", "60000", "10000"),
)
"""Defaults that differ from those of a release between 2.4 and 3.8.

`CHANGED_BEHAVIOUR` says which of them change what a broker on ZooKeeper does. The others do not: ``listeners`` has the
value that older releases took from ``port``, ``socket.connection.setup.timeout.max.ms`` bounds how long a broker
waits for an address that does not answer, ``null`` was Kafka's own principal builder, ``ssl.protocol`` names the
newest version of those that are enabled, and the others are of tiered storage, of controllers and of the new consumer
groups, which are off.
The protocol and the message format are not here: the migration pins the one, and the other follows it.
"""

REMOVED: Final[Mapping[str, str]] = {
    "advertised.host.name": "state advertised.listeners",
    "advertised.port": "state advertised.listeners",
    "host.name": "state listeners",
    "port": "state listeners",
    "quota.consumer.default": "set consumer_byte_rate for the default client (kafka-configs --entity-type clients "
    "--entity-default)",
    "quota.producer.default": "set producer_byte_rate for the default client (kafka-configs --entity-type clients "
    "--entity-default)",
    "unstable.metadata.versions.enable": "remove it",
    "zookeeper.sync.time.ms": "remove it",
}
"""Settings that 3.9 does not know any more, with what takes their place. It ignores them without a word."""
WITHOUT_EFFECT: Final = frozenset({"unstable.metadata.versions.enable", "zookeeper.sync.time.ms"})
"""Removed settings that no broker missed."""

OF_CLIENTS: Final = frozenset({"max.partition.fetch.bytes", "max.request.size"})
"""Settings of clients, which no broker reads, that scripts of images write for brokers (Bitnami's, until 3.4)."""

INTERNAL: Final = frozenset(
    {
        "group.consumer.migration.policy",
        "group.coordinator.new.enable",
        "group.share.enable",
        "log.initial.task.delay.ms",
        "metadata.log.segment.min.bytes",
        "producer.id.expiration.check.interval.ms",
        "remote.log.manager.task.retry.backoff.max.ms",
        "remote.log.manager.task.retry.backoff.ms",
        "remote.log.manager.task.retry.jitter",
        "server.max.startup.time.ms",
        "unclean.leader.election.interval.ms",
        "unstable.api.versions.enable",
        "unstable.feature.versions.enable",
        "zookeeper.metadata.migration.min.batch.size",
    }
)
"""Settings that 3.9 has and tells nobody (``ConfigDef.defineInternal``). Kafka 3.4 tells them like all others."""

OLD_AUTHORIZER: Final = "kafka.security.auth.SimpleAclAuthorizer"
"""Authorizer that 3.0 removed."""

NEW_BEHAVIOUR: Final[Mapping[str, str]] = {
    "producer.id.expiration.ms": "a producer id that is not used expires after one day, not after "
    "transactional.id.expiration.ms (7 days)",
    "transaction.partition.verification.enable": "a broker asks the coordinator before it takes a transaction's first "
    "record for a partition",
}
"""Settings that are new since 2.8 and whose default changes what a broker does, with what changes."""


@dataclass(frozen=True, slots=True)
class ChangedBehaviour:
    """What another default changes for users."""

    since: Release
    """The first release that has it."""
    what: str


CHANGED_BEHAVIOUR: Final[Mapping[str, ChangedBehaviour]] = {
    "message.max.bytes": ChangedBehaviour(Release(2, 5), "the largest batch is 1048588 bytes, not 1000012"),
    "replica.lag.time.max.ms": ChangedBehaviour(
        Release(2, 5), "a replica that lags leaves its ISR after 30 s, not 10 s"
    ),
    "ssl.enabled.protocols": ChangedBehaviour(
        Release(2, 5), "TLS 1.0 and 1.1 are off: a client that knows no newer one cannot connect"
    ),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": ChangedBehaviour(
        Release(2, 5), "a transaction that is past its time ends within 10 s, not 60 s"
    ),
}
"""Settings whose former default did something else, unless the brokers state them."""


def is_changed_default(name: str, before: str | None, after: str | None) -> bool:
    """Return whether 3.9 has another default of a setting, and these are the two."""
    return ChangedDefault(name, before or None, after or "") in _KNOWN


_KNOWN: Final = frozenset(
    ChangedDefault(changed.name, changed.before or None, changed.after) for changed in CHANGED_DEFAULTS
)
