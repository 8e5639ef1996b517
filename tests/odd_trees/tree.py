"""A small sound tree with every kind of znode; plants change copies of it."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kraftbridge.metadata.zookeeper.reader import read_dump, write_dump
from kraftbridge.metadata.zookeeper.znodes import Znode

DATA = Path(__file__).resolve().parents[1] / "data/metadata/zk_before_migration.jsonl.gz"
ENCODER_SECRET = "labsecret"
"""``password.encoder.secret`` of the cluster that the committed dump is of."""
CONTROLLER_EPOCH = 7


@dataclass
class Tree:
    """Znodes by path; paths have no chroot."""

    nodes: dict[str, bytes | None] = field(default_factory=dict)

    def put(self, path: str, data: Any = None) -> None:
        """Write a znode and the folders above it; what is no bytes is written as JSON."""
        parent = path.rpartition("/")[0]
        if parent and parent not in self.nodes:
            self.put(parent)
        self.nodes[path] = data if data is None or isinstance(data, bytes) else as_json(data)

    def remove(self, path: str) -> None:
        """Remove a znode with everything below it."""
        for each in [p for p in self.nodes if p == path or p.startswith(f"{path}/")]:
            del self.nodes[each]

    def znodes(self) -> Iterator[Znode]:
        """Yield its znodes, parents first."""
        return (Znode(path, data) for path, data in sorted(self.nodes.items()))

    def write(self, file: Path) -> Path:
        """Write it as a dump."""
        write_dump(self.znodes(), file, "")
        return file


def as_json(body: Any) -> bytes:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def topic_id(name: str) -> str:
    """Return a topic id that depends on the name alone."""
    return base64.urlsafe_b64encode(hashlib.sha256(name.encode()).digest()[:16]).decode().rstrip("=")


def topic_body(name: str, partitions: int = 1) -> dict[str, Any]:
    replicas = {str(p): [(p + r) % 3 for r in range(3)] for p in range(partitions)}
    return {
        "partitions": replicas,
        "topic_id": topic_id(name),
        "adding_replicas": {},
        "removing_replicas": {},
        "version": 3,
    }


def state_body(partition: int = 0) -> dict[str, Any]:
    replicas = [(partition + r) % 3 for r in range(3)]
    return {
        "controller_epoch": CONTROLLER_EPOCH,
        "leader": replicas[0],
        "version": 1,
        "leader_epoch": 3,
        "isr": replicas,
    }


def put_topic(tree: Tree, name: str, partitions: int = 1) -> str:
    """Add a sound topic; return its path."""
    path = f"/brokers/topics/{name}"
    tree.put(path, topic_body(name, partitions))
    for number in range(partitions):
        tree.put(f"{path}/partitions/{number}/state", state_body(number))
    tree.put(f"/config/topics/{name}", config())
    return path


def config(**values: Any) -> dict[str, Any]:
    return {"version": 1, "config": {name.replace("__", "."): value for name, value in values.items()}}


def acl_entry(**values: Any) -> dict[str, Any]:
    return {"principal": "User:a", "permissionType": "Allow", "host": "*", "operation": "Read"} | values


def scram(**values: Any) -> str:
    parts = {"salt": "YWJjZA==", "stored_key": "YWJj", "server_key": "YWJj", "iterations": "4096"} | values
    return ",".join(f"{name}={value}" for name, value in parts.items() if value is not None)


def token(identity: str) -> dict[str, Any]:
    return {
        "version": 3, "owner": "User%3Aalice", "tokenRequester": "User%3Aalice", "renewers": ["User%3Abob"],
        "issueTimestamp": 1795170891285, "maxTimestamp": 1895170891285, "expiryTimestamp": 1895170891285, "tokenId": identity,
    }  # fmt: skip


def producer_ids() -> dict[str, Any]:
    return {"version": 1, "broker": 0, "block_start": "0", "block_end": "999"}


def broker(identity: int) -> dict[str, Any]:
    return {
        "features": {}, "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"}, "endpoints": [f"PLAINTEXT://127.0.0.1:{9092 + identity}"],
        "jmx_port": -1, "port": 9092 + identity, "host": "127.0.0.1", "version": 5, "timestamp": "1795172221433", "rack": f"r{identity}",
    }  # fmt: skip


def encoded_password() -> tuple[str, str]:
    """Return name and value of a password that real brokers encrypted with `ENCODER_SECRET`."""
    data = next(node.data for node in read_dump(DATA, "/kafka") if node.path == "/config/brokers/0")
    values: dict[str, str] = json.loads(data or b"")["config"]
    return next((name, value) for name, value in values.items() if "encryptedPassword" in value)


_FOLDERS: Iterable[str] = (
    "/admin/delete_topics", "/brokers/seqid", "/cluster", "/config/changes", "/consumers", "/isr_change_notification",
    "/log_dir_event_notification", "/kafka-acl-changes", "/kafka-acl-extended-changes", "/delegation_token/token_changes",
    "/kafka-acl/Topic", "/kafka-acl/Group", "/kafka-acl/Cluster", "/kafka-acl/TransactionalId", "/kafka-acl/DelegationToken", "/kafka-acl/User",
)  # fmt: skip


def sound_tree() -> Tree:
    """Return a tree that Kafka migrates and that has no finding."""
    tree = Tree()
    for folder in _FOLDERS:
        tree.put(folder)
    tree.put("/cluster/id", {"version": "1", "id": "dx6gdXaeTPWBoHCS0D4i2A"})
    tree.put("/controller", {"version": 2, "brokerid": 2, "timestamp": "1795172221718", "kraftControllerEpoch": -1})
    tree.put("/controller_epoch", str(CONTROLLER_EPOCH).encode())
    tree.put("/feature", {"features": {}, "version": 2, "status": 1})
    tree.put("/latest_producer_id_block", producer_ids())
    for identity in range(3):
        tree.put(f"/brokers/ids/{identity}", broker(identity))
    put_topic(tree, "sound", 3)
    tree.put("/config/topics/sound", config(retention__ms="1000", cleanup__policy="delete"))
    name, value = encoded_password()
    tree.put("/config/brokers/0", {"version": 1, "config": {name: value, "log.cleaner.threads": "2"}})
    tree.put("/config/brokers/<default>", config(log__retention__ms="172800000"))
    tree.put("/config/users/alice", {"version": 1, "config": {"SCRAM-SHA-256": scram(), "producer_byte_rate": "1000"}})
    tree.put("/config/users/alice/clients/one", config(request_percentage="50.5"))
    tree.put("/config/users/<default>", config(consumer_byte_rate="1000"))
    tree.put("/config/clients/one", config(producer_byte_rate="1000"))
    tree.put("/config/clients/<default>", config(controller_mutation_rate="10"))
    tree.put("/config/ips/10.1.2.3", config(connection_creation_rate="100"))
    tree.put("/kafka-acl/Topic/sound", {"version": 1, "acls": [acl_entry()]})
    tree.put("/kafka-acl-extended/prefixed/Topic/so", {"version": 1, "acls": [acl_entry(operation="Write")]})
    tree.put("/delegation_token/tokens/sound-token", token("sound-token"))
    return tree
