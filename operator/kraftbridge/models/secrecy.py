"""Which settings are secret, judged by their name: the one list for comparisons, dumps, pages and the support bundle.

Kafka hides what is a password, and what it does not know (``KafkaConfig.maybeSensitive``).
``tests/integration/test_broker_settings.py`` compares the names and the types with those of Kafka 3.9.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from kraftbridge.models.broker_settings import RULES, without_listener

PASSWORDS: Final = frozenset(
    {
        "delegation.token.master.key",
        "delegation.token.secret.key",
        "password.encoder.old.secret",
        "password.encoder.secret",
        "sasl.jaas.config",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.password",
        "ssl.truststore.certificates",
        "ssl.truststore.password",
        "zookeeper.ssl.keystore.password",
        "zookeeper.ssl.truststore.password",
    }
)
"""Settings of a broker whose type is ``PASSWORD`` (``KafkaConfig.configDef``)."""

OF_TOPICS: Final = frozenset(
    {
        "cleanup.policy",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "follower.replication.throttled.replicas",
        "index.interval.bytes",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "message.downconversion.enable",
        "message.format.version",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.difference.max.ms",
        "message.timestamp.type",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "preallocate",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
        "unclean.leader.election.enable",
    }
)
"""Settings of a topic (``LogConfig.configNames``); none is a password."""

_OF_OTHERS: Final = frozenset(
    {
        # Of quotas (`QuotaConfig`).
        "connection_creation_rate",
        "consumer_byte_rate",
        "controller_mutation_rate",
        "producer_byte_rate",
        "request_percentage",
        # Of groups (KIP-848) and of subscriptions to client metrics (`ClientMetricsConfigs`).
        "consumer.heartbeat.interval.ms",
        "consumer.session.timeout.ms",
        "interval.ms",
        "match",
        "metrics",
        # Of a broker that throttles a reassignment (`DynamicConfig.Broker`).
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)
_KNOWN: Final = frozenset(RULES) | OF_TOPICS | _OF_OTHERS
_MECHANISM: Final = re.compile(r"^(?:plain|gssapi|oauthbearer|scram-sha-256|scram-sha-512)\.(?=\w)")
"""Prefix of a setting for one SASL mechanism of a listener (``ListenerName.saslMechanismConfigPrefix``)."""

SENSITIVE_NAME: Final = (
    r"passw(?:or)?d|passwrd|passphrase|pwd|(?<![a-z])pass(?![a-z])|storepass|keypass|secret|token|jaas|credential"
    r"|(?:private|api|access|account|signing|signature|encryption|auth|master|session|license|shared|storage|encoded"
    r"|stored|server|client|service)[._\-]?key(?!store)|[._\-]key\b|keystore[._]key|certificate[._]chain"
    r"|truststore[._]certificates|user[._\-]?info|signature|\bsalt|hmac"
)
"""Words in the name of a secret, as a regular expression: for texts whose names are not Kafka's settings."""


def is_password(name: str) -> bool:
    """Return whether Kafka 3.9 defines a setting as a password, also with the prefix of a listener or mechanism."""
    return _own_name(name) in PASSWORDS


def is_secret_setting(name: str) -> bool:
    """Return whether the value of a setting is secret: a password, or what Kafka 3.9 does not define."""
    return is_password(name) or _own_name(name) not in _KNOWN


def secret_values(settings: Mapping[str, str]) -> Iterator[str]:
    """Yield the values of secret settings."""
    return (value for name, value in settings.items() if is_secret_setting(name))


def _own_name(name: str) -> str:
    return _MECHANISM.sub("", without_listener(name), count=1)
