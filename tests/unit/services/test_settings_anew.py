"""The brokers' settings change while a migration rests: the controllers follow, or the migration says what to do."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.services.conftest import Operator

from kraftbridge.models.conditions import ConditionType, Reason, condition
from kraftbridge.models.phase import Phase
from kraftbridge.models.survey import BrokerSetting, SettingSource
from kraftbridge.outside.properties import parse_properties
from kraftbridge.services.observe import observer

ACL = "kafka.security.authorizer.AclAuthorizer"
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
TIGHTENED = {
    "authorizer.class.name": ACL,
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    "delete.topic.enable": "false",
}


class Brokers:
    """The settings of the brokers, which their owner changes: in the pod template, and in what runs."""

    def __init__(self, operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
        self.operator = operator
        self.asked = 0
        self.values = {
            "inter.broker.protocol.version": "3.9",
            "listener.security.protocol.map": "INTERNAL:PLAINTEXT",
            "min.insync.replicas": "1",
        }
        self.own: dict[int, tuple[BrokerSetting, ...]] = {}
        """What one broker has besides."""
        monkeypatch.setattr(operator.kafka, "broker_settings", self.settings)
        monkeypatch.setattr(observer, "SURVEY_EVERY_SECONDS", 0.0)
        container = self._container(operator.kubernetes.objects["StatefulSet", "kafka", "kafka"])
        container["env"] = [e for e in container["env"] if "AUTHORIZER" not in e["name"]]
        operator.kubernetes.settle()

    def settings(self) -> dict[int, tuple[BrokerSetting, ...]]:
        """Return what each broker runs with."""
        self.asked += 1
        return {broker: self._of(broker) for broker in self.operator.kafka.broker_modes()}

    def _of(self, broker: int) -> tuple[BrokerSetting, ...]:
        static = {"broker.id": str(broker)} | self.values
        found = [BrokerSetting(n, v, SettingSource.STATIC, sensitive=False, known=True) for n, v in static.items()]
        return (*found, *self.own.get(broker, ()))

    @staticmethod
    def _container(stateful_set: dict[str, Any]) -> dict[str, Any]:
        container: dict[str, Any] = stateful_set["spec"]["template"]["spec"]["containers"][0]
        return container

    def change(self, **values: str) -> None:
        """Set values in the template and roll the brokers, as their owner would."""
        operator = self.operator
        live = operator.kubernetes.get("", "StatefulSet", "kafka", "kafka")
        assert live is not None
        container = self._container(live)
        for name, value in values.items():
            variable = f"KAFKA_{name.upper().replace('.', '_')}"
            container["env"] = [e for e in container["env"] if e["name"] != variable]
            container["env"].append({"name": variable, "value": value})
        operator.kubernetes.merge_patch("", "StatefulSet", "kafka", "kafka", {"spec": live["spec"]})
        self.values |= values
        dry_starts: Any = operator.reconciler._dry_starts
        dry_starts.template = f"{dry_starts.template} changed"
        operator.kubernetes.settle()


def rules_with(operator: Operator) -> dict[str, str]:
    """Return the configuration of the controllers."""
    text = operator.kubernetes.objects[operator.configuration()]["data"]
    return parse_properties(text["controller.properties"])


def stalled(operator: Operator) -> str:
    """Return why the migration stalls because of a finding, ``""`` when it does not."""
    found = condition(operator.status().conditions, ConditionType.STALLED)
    return found.message if found is not None and found.status == "True" and found.reason is Reason.FINDINGS else ""


def setting(name: str, value: str, source: SettingSource = SettingSource.STATIC) -> BrokerSetting:
    return BrokerSetting(name, value, source, sensitive=False, known=True)


def not_yet_restarted(operator: Operator, times: int) -> list[int]:
    """Take steps until one broker has restarted that often and was compared; return the others."""
    while True:
        status = operator.status()
        others = [n.id for n in status.nodes if n.restarts < times]
        if len(others) < len(status.nodes) and status.operation is None and status.broker_comparison is not None:
            known = {n.id: n.compared for n in status.nodes}
            if known[status.broker_comparison.node_id] == status.broker_comparison.process:
                return others
        operator.step(0.5)


@pytest.fixture
def brokers(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> Brokers:
    return Brokers(operator, monkeypatch)


def test_the_controllers_take_over_with_the_settings_that_the_brokers_run_with_then(
    operator: Operator, brokers: Brokers
) -> None:
    operator.edit(target="QuorumReady")
    operator.walk(Phase.PROVISIONING_QUORUM)
    operator.rest(20)
    assert condition(operator.status().conditions, ConditionType.READY).status == "True"  # type: ignore[union-attr]
    assert "authorizer.class.name" not in rules_with(operator)
    brokers.change(**TIGHTENED)
    operator.edit(target="KRaftBrokers")
    operator.walk(Phase.TAKING_OVER)
    assert {n: rules_with(operator).get(n) for n in TIGHTENED} == TIGHTENED | {"authorizer.class.name": STANDARD}
    status = operator.status()
    assert status.controllers is not None
    assert status.controllers.change is None, "every controller runs with them before a broker restarts"
    assert status.broker_settings.items() >= TIGHTENED.items()
    operator.walk(Phase.AWAITING_FINALIZATION)


def test_nothing_restarts_and_little_is_asked_when_nothing_changed(operator: Operator, brokers: Brokers) -> None:
    operator.edit(target="QuorumReady")
    operator.walk(Phase.PROVISIONING_QUORUM)
    operator.rest(20)
    before = brokers.asked
    operator.rest(20)
    assert brokers.asked == before, "nobody is asked at rest"
    operator.edit(target="KRaftBrokers")
    operator.walk(Phase.TAKING_OVER)
    status = operator.status()
    assert status.controllers is not None
    assert status.controllers.rendered is not None
    assert status.controllers.rendered.broker_settings == status.broker_settings
    assert not any("brokers' settings" in e.message for e in operator.kubernetes.events)


def test_a_finding_about_the_present_settings_keeps_the_takeover_closed_until_it_is_mended(
    operator: Operator, brokers: Brokers
) -> None:
    operator.edit(target="QuorumReady")
    operator.walk(Phase.PROVISIONING_QUORUM)
    operator.rest(20)
    brokers.change(**{"create.topic.policy.class.name": "com.example.Policy", "min.insync.replicas": "2"})
    operator.edit(target="KRaftBrokers")
    operator.rest(30)
    assert operator.status().phase is Phase.PROVISIONING_QUORUM
    assert "PluginNotOnControllers" in stalled(operator)
    assert "min.insync.replicas was 1 and is 2" in stalled(operator)
    del brokers.values["create.topic.policy.class.name"]
    operator.walk(Phase.TAKING_OVER)
    assert rules_with(operator)["min.insync.replicas"] == "2"


def test_a_finding_in_the_middle_stops_the_next_restart_and_no_rollback(operator: Operator, brokers: Brokers) -> None:
    operator.walk(Phase.TAKING_OVER)
    others = not_yet_restarted(operator, 1)
    mapped = setting("listener.security.protocol.map", "INTERNAL:SSL", SettingSource.DYNAMIC_DEFAULT)
    brokers.own = {others[-1]: (mapped,)}
    operator.rest(30)
    assert operator.status().phase is Phase.TAKING_OVER
    assert "DynamicListenerMap" in stalled(operator)
    assert "1 of 3 brokers have restarted in phase TakingOver, and all of them serve" in stalled(operator)
    assert sum(n.restarts for n in operator.status().nodes) == 1
    operator.edit(target="ZooKeeper")
    operator.walk(Phase.ROLLED_BACK)


def test_a_setting_that_changes_in_the_middle_reaches_the_controllers_before_they_rule(
    operator: Operator, brokers: Brokers
) -> None:
    operator.walk(Phase.TAKING_OVER)
    brokers.own = {b: (setting("delete.topic.enable", "false"),) for b in not_yet_restarted(operator, 1)}
    while sum(n.restarts for n in operator.status().nodes) < 2:
        operator.step()
    assert rules_with(operator)["delete.topic.enable"] == "false"
    status = operator.status()
    assert status.controllers is not None
    assert status.controllers.change is None


def test_once_the_controllers_rule_a_finding_about_them_does_not_strand_the_roll(
    operator: Operator, brokers: Brokers
) -> None:
    operator.walk(Phase.ROLLING_BROKERS)
    others = not_yet_restarted(operator, 2)
    brokers.own = {others[-1]: (setting("client.quota.callback.class", "com.example.Callback"),)}
    operator.walk(Phase.AWAITING_FINALIZATION)
    operator.edit(target="KRaft")
    operator.rest(20)
    assert operator.status().phase is Phase.AWAITING_FINALIZATION
    assert "PluginNotOnControllers" in stalled(operator)
    operator.edit(target="ZooKeeper")
    operator.walk(Phase.ROLLED_BACK)
