"""The ZooKeeper tree of a real cluster to which nobody has written anything yet."""

from __future__ import annotations

from pathlib import Path

from tests.support.kafka_processes import ZOOKEEPER, kafka_processes, wait_for

from kraftbridge.metadata.zookeeper.reader import ZooKeeperReader, write_dump
from kraftbridge.metadata.zookeeper.znodes import Znode
from kraftbridge.models.report import ZooKeeperAccess


def dump_of_empty_cluster(path: Path) -> Path:
    """Start ZooKeeper and one broker, dump the tree, and end both."""
    with kafka_processes([0], []) as processes:
        processes.start_zookeeper()
        processes.start_broker(0, ZOOKEEPER)
        with ZooKeeperReader(ZooKeeperAccess(connect=f"{processes.zookeeper_hosts}/kafka")) as reader:

            def whole() -> list[Znode] | None:
                found = list(reader.walk())
                return found if {"/brokers/ids/0", "/controller"} <= {znode.path for znode in found} else None

            write_dump(wait_for("the broker is registered and is the controller", whole), path, "/kafka")
    return path
