"""What log lines of Kafka and of our own start script say about why a migration waits, and what helps. Pure.

The lines are those of Kafka 3.9's classes named beside them; ``kafka.zk``'s exceptions carry ZooKeeper's own codes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class ClueKind(StrEnum):
    """What a log line gives away; the order is that of how much it explains."""

    DISK_FULL = "DiskFull"
    OUT_OF_MEMORY = "OutOfMemory"
    CONFIG_REFUSED = "ConfigRefused"
    BLANK_VOLUME = "BlankVolume"
    WRONG_CLUSTER_ID = "WrongClusterId"
    NO_AUTH_IN_ZOOKEEPER = "NoAuthInZooKeeper"
    AUTHENTICATION_FAILED = "AuthenticationFailed"
    NOT_AUTHORIZED = "NotAuthorized"
    NAME_NOT_RESOLVED = "NameNotResolved"
    BROKER_ZNODE_EXISTS = "BrokerZnodeExists"
    MIGRATION_ZNODE_CONFLICT = "MigrationZnodeConflict"
    CONTROLLERS_NOT_READY = "ControllersNotReady"
    BROKERS_NOT_REGISTERED = "BrokersNotRegistered"
    ZOOKEEPER_SESSION = "ZooKeeperSession"
    LOG_DIR_FAILED = "LogDirFailed"
    FATAL = "Fatal"
    DRIVER_STATE = "DriverState"


@dataclass(frozen=True, slots=True)
class Clue:
    """One recognized line."""

    kind: ClueKind
    detail: str = ""
    """The part of the line that names something: broker ids, a znode, a host, Kafka's own words."""


@dataclass(frozen=True, slots=True)
class _Sign:
    pattern: re.Pattern[str]
    says: str
    """``{}`` stands for the detail."""
    fix: str


_SIGNS: Final[dict[ClueKind, _Sign]] = {
    ClueKind.DISK_FULL: _Sign(
        re.compile(r"No space left on device"), "its disk is full", "Enlarge its volume, or free space on it"
    ),
    ClueKind.OUT_OF_MEMORY: _Sign(
        re.compile(r"java\.lang\.OutOfMemoryError: ?(.*)"), "it ran out of memory ({})", "Raise its heap and memory limit"
    ),
    ClueKind.CONFIG_REFUSED: _Sign(  # KafkaConfig.validateValues, AbstractConfig
        re.compile(r"(?:ConfigException: |IllegalArgumentException: requirement failed: )(.+)"),
        "Kafka refuses its configuration: {}",
        "Correct that setting; the operator's own ones are in status.changedFields",
    ),
    ClueKind.BLANK_VOLUME: _Sign(
        re.compile(r"volume of controller \d+ is blank and formatting is not allowed"),
        "its volume is blank although it was formatted before; a blank voter would vote",
        "See docs/operations.md before you let it start",
    ),
    ClueKind.WRONG_CLUSTER_ID: _Sign(  # RaftManager, BrokerMetadataCheckpoint
        re.compile(r"(INCONSISTENT_CLUSTER_ID|Invalid cluster\.id in: .+)"),
        "it belongs to another cluster ({})",
        "Its volume holds another cluster's data: give it the volume that it had, or a new one if it was never formatted",
    ),
    ClueKind.NO_AUTH_IN_ZOOKEEPER: _Sign(
        re.compile(r"KeeperErrorCode = NoAuth(?: for (\S+))?"),
        "ZooKeeper refuses it znode {} (NoAuth)",
        "Reset the ACLs (zookeeper-security-migration --zookeeper.acl=unsecure), or give it the brokers' credentials",
    ),
    ClueKind.AUTHENTICATION_FAILED: _Sign(
        re.compile(r"((?:Sasl|Ssl)AuthenticationException: .+|SSL handshake failed.*|Authentication failed.*)"),
        "a connection is refused: {}",
        "Compare listener.properties of the controllers with the brokers' settings for listener CONTROLLER",
    ),
    ClueKind.NOT_AUTHORIZED: _Sign(
        re.compile(r"(CLUSTER_AUTHORIZATION_FAILED|ClusterAuthorizationException.*)"),
        "the controllers do not authorize it ({})",
        "Add the brokers' principal to spec.controllers.superUsers",
    ),
    ClueKind.NAME_NOT_RESOLVED: _Sign(
        re.compile(r"(?:UnknownHostException: |Couldn't resolve server )(\S+)"),
        "the name {} does not resolve",
        "Look at the cluster's DNS and at the headless Service of that name",
    ),
    ClueKind.BROKER_ZNODE_EXISTS: _Sign(  # KafkaZkClient.registerBroker
        re.compile(r"KeeperErrorCode = NodeExists(?: for (/brokers/ids/\d+))?"),
        "its former session still holds {}",
        "Wait for zookeeper.session.timeout.ms: the znode goes with that session",
    ),
    ClueKind.MIGRATION_ZNODE_CONFLICT: _Sign(  # KafkaZkClient.retryMigrationRequestsUntilConnected
        re.compile(r"Conditional update on KRaft Migration ZNode failed"),
        "it cannot write /migration (conditional update failed), so dual-write stands still",
        "Restart the active controller: the next one writes the whole image anew",
    ),
    ClueKind.CONTROLLERS_NOT_READY: _Sign(  # KRaftMigrationDriver.WaitForControllerQuorumEvent
        re.compile(r"[Ss]till waiting for all controller nodes ready to begin the migration(.*)"),
        "not every controller is ready to migrate{}",
        "Look at the controller that it names; one that follows its leader but never registers is restarted by the operator",
    ),
    ClueKind.BROKERS_NOT_REGISTERED: _Sign(  # KRaftMigrationDriver.areZkBrokersReadyForMigration
        re.compile(r"Still waiting for ZK brokers \[?([\d, ]+)\]?"),
        "it waits for ZK brokers [{}] to register with KRaft",
        "Look at these brokers' logs: they must run in migration mode, reach the controllers' listener and be authorized there; one that no longer exists must not be in any assignment",
    ),
    ClueKind.ZOOKEEPER_SESSION: _Sign(
        re.compile(r"KeeperErrorCode = (ConnectionLoss|SessionExpired)"),
        "it has no session with ZooKeeper ({})",
        "Look at the ZooKeeper ensemble",
    ),
    ClueKind.LOG_DIR_FAILED: _Sign(  # ReplicaManager, LogManager
        re.compile(r"(?:Shutdown broker because all log dirs in (.+?) have failed|Error while (?:reading|writing) .* in dir (\S+))"),
        "its log directory {} failed",
        "Look at that volume",
    ),
    ClueKind.FATAL: _Sign(  # ProcessTerminatingFaultHandler, KafkaServer
        re.compile(r"(?:Encountered fatal fault: |Fatal error during \w+ startup\. Prepare to shutdown|Exiting Kafka due to fatal exception)(.*)"),
        "it ended by itself: {}",
        "Its log says why, in the lines before",
    ),
    ClueKind.DRIVER_STATE: _Sign(  # KRaftMigrationDriver.transitionTo
        re.compile(r"transitioning from \w+ to (\w+) state"),
        "its migration driver is in state {}",
        "",
    ),
}  # fmt: skip


def clues_in(log: str) -> tuple[Clue, ...]:
    """Return what a log says, the last line of each kind, most telling first."""
    found: dict[ClueKind, Clue] = {}
    for line in log.splitlines():
        for kind, sign in _SIGNS.items():
            if (match := sign.pattern.search(line)) is not None:
                detail = next((g for g in match.groups() if g), "").strip()
                found[kind] = Clue(kind, detail[:200])
    return tuple(found[kind] for kind in ClueKind if kind in found)


def in_words(clue: Clue) -> str:
    """Return what a clue says."""
    return _SIGNS[clue.kind].says.format(clue.detail).replace(" ()", "")


def fix_of(clue: Clue) -> str:
    """Return what helps; ``""`` for one that only describes."""
    return _SIGNS[clue.kind].fix
