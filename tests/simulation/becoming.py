"""What the simulated brokers do with their settings: some clusters hold a dynamic set that a start in KRaft mode refuses, and no table knows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from kraftbridge.models.broker_record import (
    BrokerNow,
    BrokerRecord,
    EffectiveSetting,
    ListenerState,
    OffsetsNow,
    PartitionOffsets,
)
from kraftbridge.models.decision import RecordBroker
from kraftbridge.models.phase import BrokerMode
from kraftbridge.models.survey import SettingSource, Stated

FOR_EVER = "-1"
SEVEN_DAYS = "604800000"
OFFSETS = {("orders", 0): PartitionOffsets(0, 100, 0)}


@dataclass
class Becoming:
    """The brokers' settings."""

    refusing: bool = False
    """Whether records are kept by a dynamic setting that falls at a start in KRaft mode."""
    records: dict[str, BrokerRecord] = field(default_factory=dict)
    """By ConfigMap."""
    fallen: set[int] = field(default_factory=set)
    """Brokers that run without it."""

    def start(self, node: int, mode: BrokerMode) -> None:
        """Note how a broker starts."""
        self.fallen.discard(node)
        if self.refusing and mode is BrokerMode.KRAFT:
            self.fallen.add(node)

    def correct(self) -> None:
        """Let the user delete what Kafka refuses: the rest applies live."""
        self.refusing = False
        self.fallen.clear()

    def settings(self, node: int) -> dict[str, EffectiveSetting]:
        """Return the settings in force of a broker."""
        static = Stated(SettingSource.DEFAULT, SEVEN_DAYS)
        stored = Stated(SettingSource.DYNAMIC_DEFAULT, FOR_EVER)
        refused = (Stated(SettingSource.DYNAMIC_DEFAULT, "1000"),) if self.refusing else ()
        value = SEVEN_DAYS if node in self.fallen else FOR_EVER
        return {
            "log.retention.ms": EffectiveSetting(value, stated=(stored, static)),
            "max.connections.per.ip": EffectiveSetting(
                "1000" if refused and node not in self.fallen else "2147483647", stated=refused
            ),
        }

    def record(self, action: RecordBroker, at: datetime) -> None:
        """Keep what a broker is."""
        listeners = (ListenerState("INTERNAL", f"broker-{action.node_id}", 9092),)
        settings = self.settings(action.node_id)
        self.records[action.config_map] = BrokerRecord(
            action.node_id, action.pod_uid, action.pod_ip, at, settings, listeners, OFFSETS
        )

    def now(self, node: int) -> BrokerNow:
        """Return what a broker is now."""
        listeners = (ListenerState("INTERNAL", f"broker-{node}", 9092),)
        return BrokerNow(node, "", "", self.settings(node), listeners, {("orders", 0): OffsetsNow(0, 100, 0)}, ())
