"""The znodes that show where a migration stands: payloads, and ACLs of what a KRaft controller writes.

Functions that parse a payload raise ValueError, KeyError, TypeError or `MetadataError` on one that they cannot read.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from kraftbridge.models.observation import BrokerZnode, ControllerZnode
from kraftbridge.models.survey import AclEntry, ZooKeeperAccess

CANARY_QUOTA: Final = "producer_byte_rate"

_ACL_TOPICS: Final = 1_000
"""How many topics' ACLs are looked at: a thousand answers come in half a second."""
_WRITTEN_BY_KRAFT: Final = (
    "/", "/controller", "/controller_epoch", "/migration", "/brokers", "/brokers/ids", "/brokers/topics", "/config", "/config/topics",
    "/config/brokers", "/config/users", "/config/clients", "/config/ips", "/config/changes", "/admin", "/admin/delete_topics",
    "/kafka-acl", "/kafka-acl-extended", "/delegation_token", "/latest_producer_id_block", "/feature", "/isr_change_notification",
)  # fmt: skip
"""Znodes that a KRaft controller reads or writes in the copy and in dual-write (``ZkMigrationClient`` and its parts, ``ZkData``)."""

Znode = tuple[bytes, Any]
"""Payload and ``ZnodeStat``."""


def cluster_id(node: Znode) -> str:
    """Read ``/cluster/id``."""
    return str(_json(node)["id"])


def controller_znode(node: Znode | None) -> ControllerZnode | None:
    """Read ``/controller``; version 1 of its payload has no KRaft epoch (KIP-866)."""
    if node is None:
        return None
    fields = _json(node)
    return ControllerZnode(
        broker_id=int(fields["brokerid"]),
        kraft_controller_epoch=int(fields.get("kraftControllerEpoch", -1)),
        ephemeral=node[1].ephemeralOwner != 0,
    )


def broker_znode(broker_id: int, node: Znode) -> BrokerZnode:
    """Read ``/brokers/ids/N``."""
    # an endpoint is LISTENER://host:port, and the host may be an IPv6 address in brackets
    hosts = [str(e).partition("://")[2].rpartition(":")[0].strip("[]") for e in _json(node).get("endpoints", [])]
    return BrokerZnode(id=broker_id, hosts=tuple(dict.fromkeys(hosts)))


def reassigns(node: Znode | None) -> bool:
    """Tell whether ``/admin/reassign_partitions`` holds any partition (the way before KIP-455)."""
    return node is not None and bool(_json(node).get("partitions"))


def canary_quota(node: Znode | None) -> float | None:
    """Read our quota from ``/config/users/NAME``, None when it is absent."""
    if node is None or not node[0]:
        return None
    value = (_json(node).get("config") or {}).get(CANARY_QUOTA)
    return None if value is None else float(value)


def _json(node: Znode) -> dict[str, Any]:
    parsed = json.loads(node[0])
    if not isinstance(parsed, dict):
        raise ValueError(f"{node[0]!r:.200} is no JSON object")  # noqa: TRY004 - a payload's value is wrong, no type of ours
    return parsed


def read_access(client: KazooClient, result: Callable[[Any], Any]) -> ZooKeeperAccess:
    """Return the ACLs of everything that a KRaft controller writes, as far as our session may read them.

    Parameters
    ----------
    result
        Waits for an asynchronous answer; None for a znode that does not exist.
    """
    acls: dict[str, tuple[AclEntry, ...]] = {}
    denied: list[str] = []
    try:
        topics = sorted(result(client.get_children_async("/brokers/topics")) or [])
    except NoAuthError:
        return ZooKeeperAccess({}, ("/brokers/topics",), frozenset())
    looked_at = topics[:_ACL_TOPICS]
    paths = (*_WRITTEN_BY_KRAFT, *(f"/brokers/topics/{t}" for t in looked_at))
    for path, answer in {p: client.get_acls_async(p) for p in paths}.items():
        try:
            found = result(answer)
        except NoAuthError:
            denied.append(path)
            continue
        if found is not None:
            acls[path] = tuple(_entry(acl) for acl in found[0])
    return ZooKeeperAccess(acls, tuple(denied), frozenset(topics), len(topics) - len(looked_at))


def _entry(acl: Any) -> AclEntry:
    letters = zip("rwcda", (1, 2, 4, 8, 16), strict=True)  # ZooDefs.Perms
    return AclEntry(str(acl.id.scheme), str(acl.id.id), frozenset(c for c, bit in letters if acl.perms & bit))
