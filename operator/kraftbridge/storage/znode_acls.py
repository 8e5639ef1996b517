"""ACLs of the znodes that a KRaft controller reads and writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from kraftbridge.models.survey import AclEntry, ZooKeeperAccess

_ACL_TOPICS: Final = 1_000
"""How many topics' ACLs are looked at: a thousand answers come in half a second."""
_WRITTEN_BY_KRAFT: Final = (
    "/", "/controller", "/controller_epoch", "/migration", "/brokers", "/brokers/ids", "/brokers/topics", "/config", "/config/topics",
    "/config/brokers", "/config/users", "/config/clients", "/config/ips", "/config/changes", "/admin", "/admin/delete_topics",
    "/kafka-acl", "/kafka-acl-extended", "/delegation_token", "/latest_producer_id_block", "/feature", "/isr_change_notification",
)  # fmt: skip
"""Znodes that a KRaft controller reads or writes in the copy and in dual-write (``ZkMigrationClient`` and its parts, ``ZkData``)."""


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
