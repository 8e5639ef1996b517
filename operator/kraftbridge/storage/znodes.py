"""Payloads of the znodes that we read; pure. Each function raises ValueError, KeyError or TypeError on what it can't read."""

from __future__ import annotations

import json
from typing import Any, Final

from kraftbridge.models.observation import BrokerZnode, ControllerZnode, MigrationZnode

CANARY_QUOTA: Final = "producer_byte_rate"

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


def migration_znode(node: Znode) -> MigrationZnode:
    """Read ``/migration``."""
    fields = _json(node)
    return MigrationZnode(
        kraft_controller_id=int(fields["kraft_controller_id"]),
        kraft_controller_epoch=int(fields["kraft_controller_epoch"]),
        kraft_metadata_offset=int(fields["kraft_metadata_offset"]),
        kraft_metadata_epoch=int(fields["kraft_metadata_epoch"]),
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
