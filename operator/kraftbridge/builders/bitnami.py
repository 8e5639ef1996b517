"""What Bitnami's image for Kafka 3.9 makes of its variables, where a migration has to know it. Pure.

Sources: ``libkafka.sh`` and ``setup.sh`` of the image.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

PREFIX: Final = "KAFKA_CFG_"
CLUSTER_ID: Final = "KAFKA_KRAFT_CLUSTER_ID"
"""Cluster id with which the image formats a disk that has none;
otherwise it invents one (``kafka_kraft_storage_initialize``)."""
NODE_ID_COMMAND: Final = "KAFKA_NODE_ID_COMMAND"
"""Shell command whose output becomes ``node.id`` (``kafka_dynamic_environment_variables``)."""

_ALIASED: Final = (
    "advertised.listeners",
    "broker.id",
    "node.id",
    "controller.quorum.voters",
    "process.roles",
    "default.replication.factor",
    "delete.topic.enable",
    "inter.broker.listener.name",
    "listeners",
    "listener.security.protocol.map",
    "log.dirs",
    "log.flush.interval.messages",
    "log.flush.interval.ms",
    "log.message.format.version",
    "log.retention.bytes",
    "log.retention.hours",
    "log.segment.bytes",
    "message.max.bytes",
    "num.io.threads",
    "num.network.threads",
    "num.partitions",
    "num.recovery.threads.per.data.dir",
    "offsets.topic.replication.factor",
    "socket.receive.buffer.bytes",
    "socket.request.max.bytes",
    "socket.send.buffer.bytes",
    "ssl.endpoint.identification.algorithm",
    "transaction.state.log.min.isr",
    "transaction.state.log.replication.factor",
    "zookeeper.connect",
    "zookeeper.connection.timeout.ms",
)
ALIASES: Final[Mapping[str, str]] = {
    "KAFKA_LOGS_DIRS": "log.dirs",
    "KAFKA_SEGMENT_BYTES": "log.segment.bytes",
    "KAFKA_MAX_MESSAGE_BYTES": "message.max.bytes",
    "KAFKA_ZOOKEEPER_CONNECT_TIMEOUT_MS": "zookeeper.connection.timeout.ms",
    "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "auto.create.topics.enable",
    **{f"KAFKA_{setting.replace('.', '_').upper()}": setting for setting in _ALIASED},
}
"""Variables without ``CFG`` that the image takes as settings, with the setting.
Each wins over the one with ``CFG`` (``kafka_create_alias_environment_variables``)."""

ZOOKEEPER_WRITERS: Final = ("KAFKA_ZOOKEEPER_BOOTSTRAP_SCRAM_USERS",)
"""Variables with which the image writes to ZooKeeper at each start (``kafka_zookeeper_create_sasl_scram_users``).

With ``1``, ``yes`` or ``true`` (``is_boolean_yes``) no broker starts on KRaft.
The chart's admission policy names them as well.
"""


def writes_to_zookeeper(variables: Mapping[str, str]) -> tuple[str, ...]:
    """Return the variables with which the image writes to ZooKeeper at each start."""
    return tuple(v for v in ZOOKEEPER_WRITERS if variables.get(v, "").strip().lower() in ("1", "yes", "true"))


def alias_of(setting: str) -> str:
    """Return the variable without ``CFG`` of a setting, ``""`` if the image has none."""
    variable = f"KAFKA_{setting.replace('.', '_').upper()}"
    if ALIASES.get(variable) != setting:
        return ""
    return variable


def without_zookeeper(given: Collection[str]) -> str:
    """Return the variable that must be empty in KRaft mode.

    The image refuses ``process.roles`` beside ``zookeeper.connect`` (``kafka_validate``).

    Parameters
    ----------
    given
        Names of the container's variables.
    """
    alias = alias_of("zookeeper.connect")
    if alias in given:
        return alias
    return f"{PREFIX}ZOOKEEPER_CONNECT"


# The image's script ends at a variable that is not set (nounset), also where a mounted file makes it ignore the id.
_KEPT_ID: Final = (
    f'dirs="${{{PREFIX}LOG_DIRS:-/bitnami/kafka/data}}"; '
    f'echo "${{{PREFIX}BROKER_ID:-${{{PREFIX}NODE_ID:-}}}}" | grep . '
    """|| sed -n -E 's/^(broker|node)[.]id=//p' "${dirs%%,*}/meta.properties" 2>/dev/null || true"""
)
"""Prints the id that the image or its user gives, and else that of the disk."""


def node_id_command(given: Collection[str]) -> dict[str, str]:
    """Return the variable that gives a KRaft broker its id as ``node.id``; empty if the user sets one.

    The image demands ``node.id`` (``kafka_validate``).

    The id is that of ``broker.id``, wherever the image takes it from:
    a variable, an ``export`` in the command, or a command of its own.
    The charts 12.4 to 23 take it from ``meta.properties``: ``broker.id`` in ZooKeeper mode, and ``node.id`` in
    KRaft mode (``setup.sh``). A disk keeps the key with which it was formatted: a broker that comes from ZooKeeper has
    ``broker.id`` (version 0) also on KRaft, and a disk that was blank at a KRaft start has ``node.id`` (version 1).
    So the command reads both.

    Parameters
    ----------
    given
        Names of the container's variables.
    """
    if {NODE_ID_COMMAND, f"{PREFIX}NODE_ID", alias_of("node.id")} & set(given):
        return {}
    for command in ("KAFKA_BROKER_ID_COMMAND", "BROKER_ID_COMMAND"):
        if command in given:
            return {NODE_ID_COMMAND: f'eval "${command}"'}
    return {NODE_ID_COMMAND: _KEPT_ID}
