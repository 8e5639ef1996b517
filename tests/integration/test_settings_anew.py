"""What a real broker tells of the settings that the controllers share, in each mode: only what its owner changed is a change."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from tests.support.kafka_processes import CHROOT, KRAFT, MIGRATION, ZOOKEEPER, kafka_processes, wait_for
from tests.support.observations import broker_set, open_gate, survey

from kraftbridge.models.observation import MigrationZnode
from kraftbridge.models.phase import BrokerMode, Phase
from kraftbridge.models.survey import BrokerSetting, Survey
from kraftbridge.phases.draft import StepContext
from kraftbridge.phases.preflight.findings import blocking, findings_anew
from kraftbridge.phases.preflight.kafka import taken_anew
from kraftbridge.storage.kafka_brokers import BrokerClient
from kraftbridge.storage.zookeeper import ZooKeeperStore

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kafka-processes")]
OWN = "min.insync.replicas=1\nunclean.leader.election.enable=false\nzookeeper.set.acl=false\n"
SECONDS = 2.0
"""What an unchanged cluster may cost before a restart."""


def step_of(mode: BrokerMode, present: Survey, known: dict[str, str]) -> StepContext:
    """Return a step of a migration whose only broker runs this mode."""
    fine = open_gate(Phase.DUAL_WRITE)
    stateful_set = broker_set(mode)
    alone = replace(stateful_set, replicas=1, pods=stateful_set.pods[:1])
    status = fine.status.model_copy(update={"broker_settings": known, "broker_ids": {alone.pods[0].name: 0}})
    observation = replace(fine.observation, stateful_sets=(alone,), survey=present)
    return StepContext(fine.identity, fine.spec, observation, fine.now, status)


def test_only_what_the_owner_changes_is_a_change_in_every_mode() -> None:
    with kafka_processes([0], [3000]) as processes:
        processes.extra_broker_settings[0] = f"{OWN}listener.security.protocol.map=PLAINTEXT:PLAINTEXT\n"
        processes.start_zookeeper()
        processes.start_broker(0, ZOOKEEPER)
        zookeeper = ZooKeeperStore(processes.zookeeper_hosts, CHROOT)
        brokers = BrokerClient(processes.bootstrap_servers, {})

        def settings() -> tuple[BrokerSetting, ...] | None:
            found = brokers.broker_settings().get(0)
            return found if isinstance(found, tuple) else None

        def present() -> Survey:
            return survey(brokers={0: wait_for("the broker's settings", settings)})

        def taken(mode: BrokerMode, known: dict[str, str]) -> dict[str, str]:
            now = present()
            step = step_of(mode, now, known)
            assert blocking(findings_anew(step, now)) == ()
            return taken_anew(step, now)

        def is_mirrored() -> bool:
            migration = zookeeper.observe().migration
            return isinstance(migration, MigrationZnode) and migration.kraft_metadata_offset >= 0

        try:
            cluster_id = wait_for("the cluster", lambda: zookeeper.observe().cluster_id)
            known = taken(BrokerMode.ZOOKEEPER, {})
            assert known.items() >= {"min.insync.replicas": "1", "zookeeper.set.acl": "false"}.items()
            processes.extra_broker_settings[0] = OWN
            processes.format_controller(3000, cluster_id)
            processes.start_controller(3000)
            for mode, kafka_mode in ((BrokerMode.MIGRATION, MIGRATION), (BrokerMode.KRAFT, KRAFT)):
                processes.stop("broker-0")
                processes.start_broker(0, kafka_mode)
                wait_for("dual-write", is_mirrored)
                assert taken(mode, known) == known
                began = time.monotonic()
                brokers.broker_settings()
                assert time.monotonic() - began < SECONDS
            processes.extra_broker_settings[0] = OWN.replace("min.insync.replicas=1", "min.insync.replicas=2")
            processes.stop("broker-0")
            processes.start_broker(0, KRAFT)
            assert taken(BrokerMode.KRAFT, known) == known | {"min.insync.replicas": "2"}
        finally:
            zookeeper.close()
            brokers.close()
