"""Log lines of Kafka and of the controllers' start script that say why a node makes no progress. Pure.

Each pattern matches a line of Kafka 3.9; the comment names its class. Exceptions of ``kafka.zk`` carry ZooKeeper's own codes. Meaning and fix are in the
catalogue.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from kraftbridge.models.catalogue import Code


@dataclass(frozen=True, slots=True)
class Clue:
    """A log line that the catalogue explains."""

    code: Code
    detail: str = ""
    """The part of the line that names an object: broker ids, a znode, a host, or Kafka's own message."""


PATTERNS: Final[dict[Code, re.Pattern[str]]] = {
    Code.DISK_FULL: re.compile(r"No space left on device"),
    Code.OUT_OF_MEMORY: re.compile(r"java\.lang\.OutOfMemoryError: ?(.*)"),
    Code.CONFIG_REFUSED: re.compile(r"(?:ConfigException: |IllegalArgumentException: requirement failed: )(.+)"),  # KafkaConfig.validateValues, AbstractConfig
    Code.BLANK_VOLUME: re.compile(r"volume of controller \d+ is blank and formatting is not allowed"),
    Code.WRONG_CLUSTER_ID: re.compile(r"(INCONSISTENT_CLUSTER_ID|Invalid cluster\.id in: .+)"),  # RaftManager, BrokerMetadataCheckpoint
    Code.NO_AUTH_IN_ZOOKEEPER: re.compile(r"KeeperErrorCode = NoAuth(?: for (\S+))?"),
    Code.AUTHENTICATION_FAILED: re.compile(r"((?:Sasl|Ssl)AuthenticationException: .+|SSL handshake failed.*|Authentication failed.*)"),
    Code.NOT_AUTHORIZED: re.compile(r"(CLUSTER_AUTHORIZATION_FAILED|ClusterAuthorizationException.*)"),
    Code.NAME_NOT_RESOLVED: re.compile(r"(?:UnknownHostException: |Couldn't resolve server )(\S+)"),
    Code.BROKER_ZNODE_EXISTS: re.compile(r"KeeperErrorCode = NodeExists(?: for (/brokers/ids/\d+))?"),  # KafkaZkClient.registerBroker
    Code.MIGRATION_ZNODE_CONFLICT: re.compile(r"Conditional update on KRaft Migration ZNode failed"),  # KafkaZkClient.retryMigrationRequestsUntilConnected
    Code.CONTROLLERS_NOT_READY: re.compile(r"[Ss]till waiting for all controller nodes ready to begin the migration(.*)"),  # KRaftMigrationDriver.WaitForControllerQuorumEvent
    Code.BROKERS_NOT_REGISTERED: re.compile(r"Still waiting for ZK brokers \[?([\d, ]+)\]?"),  # KRaftMigrationDriver.areZkBrokersReadyForMigration
    Code.ZOOKEEPER_SESSION: re.compile(r"KeeperErrorCode = (ConnectionLoss|SessionExpired)"),
    Code.LOG_DIR_FAILED: re.compile(r"(?:Shutdown broker because all log dirs in (.+?) have failed|Error while (?:reading|writing) .* in dir (\S+))"),  # ReplicaManager, LogManager
    Code.FATAL: re.compile(r"(?:Encountered fatal fault: |Fatal error during \w+ startup\. Prepare to shutdown|Exiting Kafka due to fatal exception)(.*)"),  # ProcessTerminatingFaultHandler, KafkaServer
    Code.DRIVER_STATE: re.compile(r"transitioning from \w+ to (\w+) state"),  # KRaftMigrationDriver.transitionTo
}  # fmt: skip
"""In the order in which they explain most."""

MAXIMUM_DETAIL = 200
"""Characters."""


def clues_in(log: str) -> tuple[Clue, ...]:
    """Return the last line of each code in a log, in the order of `PATTERNS`."""
    found: dict[Code, Clue] = {}
    for line in log.splitlines():
        for code, pattern in PATTERNS.items():
            if (match := pattern.search(line)) is not None:
                detail = next((g for g in match.groups() if g), "").strip()
                found[code] = Clue(code, detail[:MAXIMUM_DETAIL])
    return tuple(found[code] for code in PATTERNS if code in found)


def meaning_of(clue: Clue) -> str:
    """Return what a clue says about its node, as the end of a sentence that begins with the node's name."""
    text = clue.code.meaning.format(detail=clue.detail).replace(" ()", "")
    return text[0].lower() + text[1:]
