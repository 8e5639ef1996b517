"""The znodes of a fake cluster, as Kafka writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from kraftbridge.models.observation import BrokerZnode, ControllerZnode, MigrationZnode, ZooKeeperState

_SESSION: Final = 16
"""Session of every ephemeral znode."""
CLUSTER_ID: Final = "kVx3Yk9aSZ2mJ0wq1Yl5Wg"


def at_rest(brokers: int) -> Mapping[str, tuple[bytes, int]]:
    """Return the znodes of a cluster that no migration has begun for: data and owning session by path."""
    return of(
        ZooKeeperState(
            cluster_id=CLUSTER_ID,
            controller=ControllerZnode(0, -1, ephemeral=True),
            controller_epoch=3,
            migration=None,
            brokers=tuple(BrokerZnode(i, (f"kafka-{i}.kafka",)) for i in range(brokers)),
            pending_topic_deletions=(),
            reassignments=False,
            canary=None,
        )
    )


def of(state: ZooKeeperState) -> Mapping[str, tuple[bytes, int]]:
    """Return the znodes of a state: data and owning session by path."""
    found = {
        "/cluster/id": (_text({"version": "1", "id": state.cluster_id}), 0),
        "/controller_epoch": (str(state.controller_epoch).encode(), 0),
    }
    for broker in state.brokers:
        endpoints = [f"{name}://{host}:9092" for host in broker.hosts for name in ("INTERNAL", "PLAINTEXT")]
        found[f"/brokers/ids/{broker.id}"] = (_text({"version": 5, "endpoints": endpoints}), _SESSION)
    if state.controller is not None:
        held = {"version": 2, "brokerid": state.controller.broker_id}
        epoch = {"kraftControllerEpoch": state.controller.kraft_controller_epoch}
        owner = _SESSION if state.controller.ephemeral else 0
        found["/controller"] = (_text(held | epoch), owner)
    if isinstance(state.migration, MigrationZnode):
        fields = {
            "version": 0,
            "kraft_controller_id": state.migration.kraft_controller_id,
            "kraft_controller_epoch": state.migration.kraft_controller_epoch,
            "kraft_metadata_offset": state.migration.kraft_metadata_offset,
            "kraft_metadata_epoch": state.migration.kraft_metadata_epoch,
        }
        found["/migration"] = (_text(fields), 0)
    if state.canary is not None:
        quota = {"version": 1, "config": {"producer_byte_rate": str(state.canary)}}
        found["/config/users/kraftbridge-canary"] = (_text(quota), 0)
    return found


def _text(document: Mapping[str, object]) -> bytes:
    return json.dumps(document).encode()
