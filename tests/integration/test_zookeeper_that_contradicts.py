"""A ZooKeeper that lost what the takeover wrote to it, under real processes: what Kafka does, and that the operator's client sees it."""

from __future__ import annotations

import shutil
import signal
import time

import pytest
from kazoo.client import KazooClient
from tests.integration.test_rollback_under_writes import BROKERS, Processes, into_dual_write, offset
from tests.support.kafka_processes import CHROOT, kafka_processes, wait_for

from kraftbridge.models.observation import MigrationZnode, ZooKeeperState
from kraftbridge.models.status import ZooKeeperHistory
from kraftbridge.phases.history import contradiction
from kraftbridge.storage.kafka_controllers import ControllerClient
from kraftbridge.storage.zookeeper import ZooKeeperStore

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.xdist_group("kafka-processes")]

CONTROLLER = 3000
INACTIVE = "KRaft controller indicates an active migration, but the ZK state does not."
"""``KRaftMigrationDriver.WaitForControllerQuorumEvent``."""
GOES_ON_SECONDS = 10.0


def recorded(seen: ZooKeeperState) -> ZooKeeperHistory:
    """Return the record of a reading."""
    assert isinstance(seen.migration, MigrationZnode)
    assert seen.controller is not None
    return ZooKeeperHistory.model_validate(
        {
            "attempt": 1, "cluster_id": seen.cluster_id, "migration_czxid": str(seen.migration_czxid), "migration_offset": str(offset(seen)),
            "kraft_epoch": seen.migration.kraft_controller_epoch, "claim_epoch": seen.controller.kraft_controller_epoch,
            "controller_epoch": seen.controller_epoch, "zxid": str(seen.zxid), "seen_at": "2026-01-01T00:00:00Z",
        }
    )  # fmt: skip


def fail_over(processes: Processes) -> None:
    processes.stop(f"controller-{CONTROLLER}", signal.SIGKILL)
    processes.start_controller(CONTROLLER)


def controllers_log(processes: Processes) -> str:
    return (processes.directory / f"controller-{CONTROLLER}.log").read_text()


def test_without_migration_and_controller_kafka_has_two_controllers_and_a_failover_does_not_help() -> None:
    with kafka_processes(BROKERS, (CONTROLLER,), Processes) as processes:
        zookeeper = ZooKeeperStore(processes.zookeeper_hosts, CHROOT)
        controllers = ControllerClient(processes.controller_addresses, {})
        into_dual_write(processes, controllers, zookeeper)
        known = recorded(zookeeper.observe())
        assert contradiction(known, zookeeper.observe(), None) == ""
        hand = KazooClient(processes.zookeeper_hosts + CHROOT)
        hand.start(30)
        hand.delete("/migration")
        wait_for("the driver's error", lambda: "NoNode for /migration" in controllers_log(processes))
        assert "/migration is gone" in contradiction(known, zookeeper.observe(), None)
        hand.delete("/controller")

        def broker_in_charge() -> bool:
            holder = zookeeper.observe().controller
            return holder is not None and holder.broker_id in BROKERS

        wait_for("a broker that is controller", broker_in_charge)
        assert controllers.quorum_state().leader_id == CONTROLLER, "and so is the KRaft controller"
        assert "/controller names broker" in contradiction(known, zookeeper.observe(), None)
        fail_over(processes)
        wait_for("the driver's refusal", lambda: INACTIVE in controllers_log(processes))
        time.sleep(GOES_ON_SECONDS)
        after = zookeeper.observe()
        assert offset(after) == -1, "Kafka has made another /migration, and mirrors nothing"
        assert broker_in_charge()
        assert "/migration was deleted and created anew" in contradiction(known, after, None)
        hand.stop()
        zookeeper.close()
        controllers.close()


def test_an_older_zookeeper_is_seen_and_a_failover_writes_it_anew() -> None:
    """Its server refuses every session that has seen newer transactions: the operator's, and the running controller's."""
    with kafka_processes(BROKERS, (CONTROLLER,), Processes) as processes:
        zookeeper = ZooKeeperStore(processes.zookeeper_hosts, CHROOT)
        controllers = ControllerClient(processes.controller_addresses, {})
        into_dual_write(processes, controllers, zookeeper)
        data, backup = processes.directory / "zookeeper-data", processes.directory / "backup"
        processes.stop("zookeeper", signal.SIGKILL)
        shutil.copytree(data, backup)
        processes.start_zookeeper()
        before = wait_for("ZooKeeper", lambda: offset(zookeeper.observe()) + 1)
        wait_for("the mirror", lambda: offset(zookeeper.observe()) > before + 20)
        wait_for("a canary", lambda: controllers.write_canary(4711, len(BROKERS)) is None)
        wait_for("the canary in ZooKeeper", lambda: zookeeper.observe().canary is not None)
        known = recorded(zookeeper.observe())
        processes.stop("zookeeper", signal.SIGKILL)
        shutil.rmtree(data)
        shutil.copytree(backup, data)
        processes.start_zookeeper()
        older = wait_for("a session of the operator", zookeeper.observe)
        assert older.canary is None
        found = contradiction(known, older, None)
        assert "the offset in /migration is" in found
        assert "its newest transaction is" in found
        time.sleep(GOES_ON_SECONDS)
        assert offset(zookeeper.observe()) == offset(older), "the running controller writes nothing to it"
        fail_over(processes)
        wait_for("the mirror", lambda: offset(zookeeper.observe()) > int(known.migration_offset))
        wait_for("the canary in ZooKeeper", lambda: zookeeper.observe().canary is not None)
        zookeeper.close()
        controllers.close()
