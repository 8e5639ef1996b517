"""A dynamic listener map hides the static one, in which the migration names the controllers' listener (``DynamicListenerConfig``, Kafka 3.9.2)."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from tests.support.kafka_processes import CHROOT, MIGRATION, ZOOKEEPER, kafka_processes, wait_for

from kraftbridge.models.survey import SettingSource
from kraftbridge.storage.kafka_brokers import BrokerClient
from kraftbridge.storage.zookeeper import ZooKeeperStore

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kafka-processes")]
NAME = "listener.security.protocol.map"
WITHOUT_CONTROLLERS = "PLAINTEXT:PLAINTEXT,EXTRA:PLAINTEXT"


def test_a_broker_with_a_dynamic_listener_map_does_not_start_in_migration_mode() -> None:
    with kafka_processes([0], [3000]) as processes:
        processes.start_zookeeper()
        processes.start_broker(0, ZOOKEEPER)
        zookeeper = ZooKeeperStore(processes.zookeeper_hosts, CHROOT)
        brokers = BrokerClient(processes.bootstrap_servers, {})
        admin = processes.admin_client()

        def alter(operation: AlterConfigOpType, value: str | None) -> None:
            entry = ConfigEntry(NAME, value, incremental_operation=operation)
            resource = ConfigResource(ResourceType.BROKER, "0", incremental_configs=[entry])
            for future in admin.incremental_alter_configs([resource]).values():
                future.result(150)

        def dynamic() -> str | None:
            settings = brokers.broker_settings()[0]
            assert isinstance(settings, tuple)
            return next(
                (s.value for s in settings if s.name == NAME and s.source is SettingSource.DYNAMIC_BROKER), None
            )

        try:
            cluster_id = wait_for("the cluster", lambda: zookeeper.observe().cluster_id)
            alter(AlterConfigOpType.SET, WITHOUT_CONTROLLERS)
            wait_for("the dynamic map, as preflight sees it", lambda: dynamic() == WITHOUT_CONTROLLERS)
            processes.format_controller(3000, cluster_id)
            processes.start_controller(3000)
            processes.stop("broker-0")
            processes.start_broker(0, MIGRATION, wait=False)
            wait_for("the broker's end", lambda: processes.ended("broker-0"))
            assert "Fatal error during KafkaServer startup" in processes.tail("broker-0", 200)
            assert "SecurityProtocol.CONTROLLER" in processes.tail("broker-0", 200)
        finally:
            zookeeper.close()
            brokers.close()
