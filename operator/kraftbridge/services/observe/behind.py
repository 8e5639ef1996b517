"""Reads what the brokers serve and ZooKeeper does not know, before a return to ZooKeeper without the controllers."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from kraftbridge.exceptions import ObservationError
from kraftbridge.models.status import ZooKeeperBehind
from kraftbridge.outside.json_text import parsed_json
from kraftbridge.services.clients import ClusterClients

_NAMED: Final = 100
_UNKNOWN: Final = -1


def zookeeper_behind(clients: ClusterClients, now: datetime) -> ZooKeeperBehind:
    """Return the partitions whose leader epoch is higher at the brokers, and the topics that only one side has.

    The next ZooKeeper-mode controller elects leaders from ZooKeeper's ISRs,
    and its followers truncate what the last leader had written (KIP-101, ``/brokers/topics/T/partitions/P/state``).

    Raises
    ------
    ObservationError
        No broker answers, or ZooKeeper cannot be read.
    """
    served, silent = clients.brokers.leader_epochs()
    topics = clients.zookeeper.topics()
    paths = {
        f"/brokers/topics/{topic}/partitions/{index}/state": (topic, index)
        for topic, index in served
        if topic in topics
    }
    states = clients.zookeeper.payloads(list(paths))
    higher = sorted(
        partition for path, partition in paths.items() if served[partition] > _leader_epoch(path, states[path])
    )
    if topics and not served:
        raise ObservationError("brokers", "those that answer serve no topic yet")
    of_brokers = {topic for topic, _ in served}
    only_served = sorted(of_brokers - topics)
    only_stored = sorted(topics - of_brokers)
    return ZooKeeperBehind(
        read_at=now,
        partitions=len(higher),
        partition_names=tuple(f"{topic}-{index}" for topic, index in higher[:_NAMED]),
        topics=len(only_served),
        topic_names=tuple(only_served[:_NAMED]),
        deleted_topics=len(only_stored),
        deleted_topic_names=tuple(only_stored[:_NAMED]),
        silent=tuple(sorted(silent)),
    )


def _leader_epoch(path: str, state: bytes | None) -> int:
    if state is None:
        return _UNKNOWN
    try:
        return int(parsed_json(state)["leader_epoch"])
    except (ValueError, KeyError, TypeError) as error:
        raise ObservationError(f"ZooKeeper {path}", f"it cannot be decoded: {error!r}") from error
