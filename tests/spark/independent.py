"""A second opinion that shares no code with the verification but a connection: Kafka's own log dump and plain reads of ZooKeeper.

The log is decoded by `kafka.tools.DumpLogSegments` and added up here, by rules as short as they can be; ZooKeeper is read
znode by znode. Neither is a point in time: what differs while records are being written is looked at again.
"""

from __future__ import annotations

import json
import subprocess
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from kafka.protocol.metadata import MetadataRequest
from kazoo.exceptions import NoNodeError

from kraftbridge.kafka.client import Security
from kraftbridge.kafka.wire import Connection
from kraftbridge.models.entities import EntityKind

if TYPE_CHECKING:
    from tests.spark.live_cluster import LiveCluster

Identity = tuple[EntityKind, str]
State = dict[Identity, Any]
_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_ACL = (
    ("resourceType", {2: "Topic", 3: "Group", 4: "Cluster", 5: "TransactionalId", 6: "DelegationToken"}),
    ("patternType", {3: "LITERAL", 4: "PREFIXED"}),
    ("resourceName", None),
    ("principal", None),
    ("host", None),
    ("operation", {2: "All", 3: "Read", 4: "Write", 5: "Create", 6: "Delete", 7: "Alter", 8: "Describe"}),
    ("permissionType", {2: "Deny", 3: "Allow"}),
)
_FOLDERS = {"user": "users", "client-id": "clients", "ip": "ips"}
_ENCRYPTED = "password"


def differences(
    cluster: LiveCluster, seconds: float = 10.0, only: Collection[Identity] | None = None
) -> dict[Identity, tuple[Any, Any]]:
    """Return what differs for `seconds` without a change on either side: ZooKeeper's value and the log's.

    Parameters
    ----------
    only
        Entities to look at; all where it is left out, which ends only on a cluster at rest.
    """
    return _lasting(lambda: _differences_now(cluster, only), seconds)


def served_differences(
    cluster: LiveCluster, only: Collection[Identity], seconds: float = 10.0
) -> dict[Identity, tuple[Any, Any]]:
    """Return which of these any broker serves otherwise than the log has them, for `seconds` without a change: topics and partitions only."""
    asked = [identity for identity in only if identity[0] in {EntityKind.TOPIC, EntityKind.PARTITION}]
    return _lasting(lambda: _served_now(cluster, asked), seconds) if asked else {}


def _served_now(cluster: LiveCluster, only: Collection[Identity]) -> dict[Identity, tuple[Any, Any]]:
    served = [_served_state(port) for port in cluster.processes.broker_ports.values()]
    logged = log_state(cluster)
    return {
        identity: (state.get(identity), logged.get(identity))
        for identity in only
        for state in served
        if state.get(identity) != logged.get(identity)
    }


def _served_state(port: int) -> State:
    """Return the topics and partitions that one broker answers with when asked for all."""
    state: State = {}
    with Connection("127.0.0.1", port, Security(), 20.0) as wire:
        answer = wire.call(
            MetadataRequest, 20.0, min_version=10, max_version=12, topics=None, allow_auto_topic_creation=False
        )
    for topic in answer.topics:
        state[EntityKind.TOPIC, topic.name] = urlsafe_b64encode(topic.topic_id.bytes).rstrip(b"=").decode()
        for each in topic.partitions:
            parts = (each.leader_id, each.leader_epoch, sorted(each.isr_nodes), list(each.replica_nodes))
            state[EntityKind.PARTITION, f"{topic.name}-{each.partition_index}"] = parts
    return state


def _lasting(
    differing: Callable[[], dict[Identity, tuple[Any, Any]]], seconds: float
) -> dict[Identity, tuple[Any, Any]]:
    known = differing()
    since = dict.fromkeys(known, time.monotonic())
    while known and min(time.monotonic() - since[identity] for identity in known) < seconds:
        time.sleep(1)
        now = differing()
        since = {
            identity: since[identity] if known.get(identity) == pair else time.monotonic()
            for identity, pair in now.items()
        }
        known = now
    return known


def _differences_now(cluster: LiveCluster, only: Collection[Identity] | None) -> dict[Identity, tuple[Any, Any]]:
    held, logged = zookeeper_state(cluster), log_state(cluster)
    return {
        identity: (held.get(identity), logged.get(identity))
        for identity in (held.keys() | logged.keys() if only is None else only)
        if held.get(identity) != logged.get(identity)
    }


def log_records(cluster: LiveCluster) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield offset, type and fields of every record in a controller's log, as Kafka's own tool prints them."""
    processes = cluster.processes
    folder = processes.directory / f"controller-{min(processes.controller_ports)}" / "__cluster_metadata-0"
    files = ",".join(str(path) for path in sorted(folder.glob("*.log")))
    command = processes.tool_command(["kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files", files])
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as dump:
        assert dump.stdout is not None
        for line in dump.stdout:
            head, found, payload = line.partition(" payload: ")
            if found and payload.startswith('{"type"'):
                record = json.loads(payload)
                yield int(head.split()[2]), record["type"], record["data"]


def log_state(cluster: LiveCluster) -> State:
    """Return what the log says, added up from its first record."""
    names: dict[str, str] = {}
    state: State = {}
    configs: dict[Identity, dict[str, Any]] = {}
    acls: dict[str, Identity] = {}
    for _, kind, data in log_records(cluster):
        match kind:
            case "TOPIC_RECORD":
                names[data["topicId"]] = data["name"]
                state[EntityKind.TOPIC, data["name"]] = data["topicId"]
            case "REMOVE_TOPIC_RECORD":
                name = names.pop(data["topicId"])
                for identity in [each for each in state if _topic_of(each) == name]:
                    del state[identity]
                configs.pop((EntityKind.TOPIC_CONFIG, name), None)
            case "PARTITION_RECORD":
                key = f"{names[data['topicId']]}-{data['partitionId']}"
                parts = (data["leader"], data["leaderEpoch"], sorted(data["isr"]), data["replicas"])
                state[EntityKind.PARTITION, key] = parts
            case "PARTITION_CHANGE_RECORD":
                identity = EntityKind.PARTITION, f"{names[data['topicId']]}-{data['partitionId']}"
                leader, epoch, isr, replicas = state[identity]
                if data.get("leader", -2) != -2:
                    leader, epoch = data["leader"], epoch + 1
                isr = sorted(data.get("isr") or isr)
                state[identity] = (leader, epoch, isr, data.get("replicas") or replicas)
            case "CONFIG_RECORD" if data["resourceType"] in (2, 4):
                config = configs.setdefault(_config_identity(data), {})
                _set_or_remove(config, data["name"], data.get("value"))
            case "CLIENT_QUOTA_RECORD":
                quota = configs.setdefault((EntityKind.CLIENT_QUOTA, _quota_key(data["entity"])), {})
                _set_or_remove(quota, data["key"], None if data["remove"] else float(data["value"]))
            case "USER_SCRAM_CREDENTIAL_RECORD":
                parts = (data["salt"], data["storedKey"], data["serverKey"], data["iterations"])
                state[EntityKind.SCRAM_CREDENTIAL, f"{data['name']}/{_MECHANISMS[data['mechanism']]}"] = parts
            case "REMOVE_USER_SCRAM_CREDENTIAL_RECORD":
                del state[EntityKind.SCRAM_CREDENTIAL, f"{data['name']}/{_MECHANISMS[data['mechanism']]}"]
            case "ACCESS_CONTROL_ENTRY_RECORD":
                parts = [values[data[name]] if values else data[name] for name, values in _ACL]
                acls[data["id"]] = EntityKind.ACL, _acl_key(parts)
                state[acls[data["id"]]] = True
            case "REMOVE_ACCESS_CONTROL_ENTRY_RECORD":
                state.pop(acls.pop(data["id"]), None)
            case "ABORT_TRANSACTION_RECORD":
                raise AssertionError("an aborted copy is in this log: this short replay cannot tell")
    return state | {identity: values for identity, values in configs.items() if values}


def _set_or_remove(values: dict[str, Any], name: str, value: Any) -> None:
    if _ENCRYPTED in name:  # encrypted in ZooKeeper only: nothing that can be compared by eye
        return
    if value is None:
        values.pop(name, None)
    else:
        values[name] = value


def _topic_of(identity: Identity) -> str | None:
    kind, key = identity
    if kind is EntityKind.PARTITION:
        return key.rpartition("-")[0]
    return key if kind is EntityKind.TOPIC else None


def _config_identity(data: dict[str, Any]) -> Identity:
    if data["resourceType"] == 2:
        return EntityKind.TOPIC_CONFIG, data["resourceName"]
    return EntityKind.BROKER_CONFIG, data["resourceName"] or "<default>"


def _quota_key(entity: list[dict[str, Any]]) -> str:
    held = {part["entityType"]: part.get("entityName") for part in entity}
    return "/".join(
        f"{folder}/{'<default>' if held[kind] is None else quote(held[kind], safe='')}"
        for kind, folder in _FOLDERS.items()
        if kind in held
    )


def _acl_key(parts: list[str]) -> str:
    return json.dumps(parts, ensure_ascii=False, separators=(",", ":"))


def zookeeper_state(cluster: LiveCluster) -> State:
    """Return what ZooKeeper says, read znode by znode."""
    look = _Look(cluster)
    state: State = {}
    for topic in look.children("/brokers/topics"):
        body = look.json(f"/brokers/topics/{topic}")
        if body is None:
            continue
        state[EntityKind.TOPIC, topic] = body.get("topic_id")
        for partition, replicas in body["partitions"].items():
            found = look.json(f"/brokers/topics/{topic}/partitions/{partition}/state") or {}
            parts = (found.get("leader"), found.get("leader_epoch"), sorted(found.get("isr", [])), replicas)
            state[EntityKind.PARTITION, f"{topic}-{partition}"] = parts
    for kind, folder in ((EntityKind.TOPIC_CONFIG, "topics"), (EntityKind.BROKER_CONFIG, "brokers")):
        for name in look.children(f"/config/{folder}"):
            config = (look.json(f"/config/{folder}/{name}") or {}).get("config", {})
            values = {key: value for key, value in config.items() if _ENCRYPTED not in key}
            if values:
                state[kind, name] = values
    for user in look.children("/config/users"):
        state |= look.user(user)
        for client in look.children(f"/config/users/{user}/clients"):
            state |= look.quota(f"users/{user}/clients/{client}")
    for folder in ("clients", "ips"):
        for name in look.children(f"/config/{folder}"):
            state |= look.quota(f"{folder}/{name}")
    for root, pattern in (("/kafka-acl", "LITERAL"), ("/kafka-acl-extended/prefixed", "PREFIXED")):
        for kind in look.children(root):
            for name in look.children(f"{root}/{kind}"):
                for acl in (look.json(f"{root}/{kind}/{name}") or {}).get("acls", []):
                    parts = [kind, pattern, name, acl["principal"], acl["host"], acl["operation"]]
                    state[EntityKind.ACL, _acl_key([*parts, acl["permissionType"]])] = True
    return state


class _Look:
    def __init__(self, cluster: LiveCluster) -> None:
        self._client = cluster.zookeeper

    def json(self, path: str) -> Any:
        try:
            data, _ = self._client.get(path)
        except NoNodeError:
            return None
        return json.loads(data) if data else None

    def children(self, path: str) -> list[str]:
        try:
            found: list[str] = self._client.get_children(path)
        except NoNodeError:
            return []
        return found

    def quota(self, key: str) -> State:
        config = (self.json(f"/config/{key}") or {}).get("config", {})
        values = {name: float(value) for name, value in config.items() if not name.startswith("SCRAM-")}
        return {(EntityKind.CLIENT_QUOTA, key): values} if values else {}

    def user(self, name: str) -> State:
        state = self.quota(f"users/{name}")
        config = (self.json(f"/config/users/{name}") or {}).get("config", {})
        for mechanism in _MECHANISMS.values():
            if mechanism in config:
                held = dict(part.split("=", 1) for part in config[mechanism].split(","))
                parts = (held["salt"], held["stored_key"], held["server_key"], int(held["iterations"]))
                state[EntityKind.SCRAM_CREDENTIAL, f"{unquote(name)}/{mechanism}"] = parts
        return state
