"""Brokers that the migration brings to Kafka 3.9: from Kafka 2.8 to KRaft, and back from each place on the way."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from tests.support.fakes import FaithfulDryStarts
from tests.unit.services.conftest import Operator

from kraftbridge.constants import ANNOTATION_CONFIGURATION, ANNOTATION_LOCK, KIND
from kraftbridge.models.conditions import Condition, ConditionType, condition
from kraftbridge.models.objects import section
from kraftbridge.models.phase import BrokerMode, Phase
from kraftbridge.phases.nodes.expanding import MOST_PARTITIONS

FORMER = "kafka:2.8"
IMAGE = "registry/kafka:3.9.2"
PROTOCOL = "KAFKA_INTER_BROKER_PROTOCOL_VERSION"


@pytest.fixture(params=["stated", "by default"])
def leg(operator: Operator, request: pytest.FixtureRequest) -> Operator:
    """Return a migration of brokers of 2.8; an init container shares their image, and another one does not."""
    template = brokers(operator)["spec"]["template"]["spec"]
    template["containers"][0]["image"] = FORMER
    template["initContainers"] = [{"name": "prepare", "image": FORMER}, {"name": "volumes", "image": "shell:1"}]
    env = template["containers"][0]["env"]
    stated = [e for e in env if e["name"] == PROTOCOL]
    for entry in stated:
        entry["value"] = "2.8"
    if request.param == "by default":
        template["containers"][0]["env"] = [e for e in env if e["name"] != PROTOCOL]
    restart_brokers(operator, FORMER)
    spec = operator.kubernetes.objects[KIND, "kafka", "demo"]["spec"]
    spec["brokers"]["upgrade"] = {"image": IMAGE, "env": {"KAFKA_LOG4J_OPTS": "-Dlog4j=new"}}
    return operator


def restart_brokers(operator: Operator, image: str) -> None:
    """Let every pod be made anew from the template, which has this image."""
    for pod in pods(operator):
        operator.kubernetes.delete("v1", "Pod", "kafka", pod["metadata"]["name"])
    for _ in range(3):
        operator.clock.advance(30)
        operator.kubernetes.settle()
    assert {now for now, _, _ in runs(operator)} == {image}


def brokers(operator: Operator) -> dict[str, Any]:
    found: dict[str, Any] = operator.kubernetes.objects["StatefulSet", "kafka", "kafka"]
    return found


def pods(operator: Operator) -> list[dict[str, Any]]:
    return list(operator.kubernetes.list("v1", "Pod", "kafka", "app=kafka"))


def environment(pod_spec: dict[str, Any]) -> dict[str, str]:
    return {e["name"]: e.get("value", "") for e in pod_spec["containers"][0]["env"]}


def runs(operator: Operator) -> set[tuple[str, str, str]]:
    """Return image, protocol and mode of every broker's pod."""
    return {
        (
            pod["spec"]["containers"][0]["image"],
            environment(pod["spec"]).get(PROTOCOL, "default"),
            BrokerMode.of(section(pod, "metadata", "annotations").get(ANNOTATION_CONFIGURATION, "")),
        )
        for pod in pods(operator)
    }


def changes_told(operator: Operator) -> list[str]:
    """Return what the operator has told of changes that somebody else made to the pod template."""
    return [event.message for event in operator.kubernetes.events if "somebody changed" in event.message]


def said(operator: Operator, kind: ConditionType) -> Condition:
    found = condition(operator.status().conditions, kind)
    assert found is not None
    return found


def test_the_leg_ends_with_the_new_image_and_the_protocol_that_ran(leg: Operator) -> None:
    leg.edit(target="BridgeRelease")
    leg.walk(Phase.UPGRADING_BROKERS)
    ran = "2.8" if environment(brokers(leg)["spec"]["template"]["spec"]).get(PROTOCOL) else "2.8-IV1"
    status = leg.rest(60)
    assert status.phase is Phase.UPGRADING_BROKERS
    assert said(leg, ConditionType.READY).status == "True", status.message
    assert runs(leg) == {(IMAGE, ran, BrokerMode.UPGRADED)}
    template = brokers(leg)["spec"]["template"]["spec"]
    assert {c["name"]: c["image"] for c in template["initContainers"]} == {"prepare": IMAGE, "volumes": "shell:1"}
    assert environment(template)["KAFKA_LOG4J_OPTS"] == "-Dlog4j=new"
    assert {node.restarts for node in status.nodes} == {1}
    assert status.controllers is None
    assert "former image back" in said(leg, ConditionType.ROLLBACK_POSSIBLE).message
    fields = {field.field for field in status.changed_fields}
    assert {"image of kafka", "image of prepare", f"env {PROTOCOL}"} <= fields


def test_no_broker_runs_a_newer_protocol_before_the_word(leg: Operator) -> None:
    leg.walk(Phase.PROVISIONING_QUORUM)
    status = leg.rest(40)
    assert status.phase is Phase.PROVISIONING_QUORUM
    assert "spec.rollback.giveUpFormerImage" in status.message
    assert {mode for _, _, mode in runs(leg)} == {BrokerMode.UPGRADED}
    assert status.broker_upgrade is not None
    assert status.broker_upgrade.lifted_at is None
    leg.edit(rollback={"giveUpFormerImage": True})
    leg.walk(Phase.DUAL_WRITE)
    assert runs(leg) == {(IMAGE, "3.9", BrokerMode.MIGRATION)}
    assert f"keeps image {IMAGE}" in said(leg, ConditionType.ROLLBACK_POSSIBLE).message


def test_the_whole_way_and_what_the_next_release_must_contain(leg: Operator) -> None:
    leg.edit(rollback={"giveUpFormerImage": True})
    leg.walk(Phase.COMPLETED, steps=300)
    status = leg.rest(12)
    assert runs(leg) == {(IMAGE, "3.9", BrokerMode.KRAFT)}
    assert {node.restarts for node in status.nodes if node.role == "broker"} == {3}
    assert changes_told(leg) == []
    files = leg.kubernetes.objects["ConfigMap", "kafka", status.final_manifest]["data"]
    (ours,) = yaml.safe_load_all(files["brokers.yaml"])
    pod = ours["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == IMAGE
    assert pod["initContainers"] == [{"name": "prepare", "image": IMAGE}]
    values = yaml.safe_load(files["values-cp-kafka-kafka.yaml"])
    assert (values["image"], values["imageTag"]) == ("registry/kafka", "3.9.2")
    assert ANNOTATION_LOCK not in brokers(leg)["metadata"].get("annotations", {})


def rest_at_bridge(operator: Operator) -> None:
    operator.edit(target="BridgeRelease")
    operator.walk(Phase.UPGRADING_BROKERS)
    operator.rest(40)


def half_way(operator: Operator) -> None:
    operator.edit(target="BridgeRelease")
    operator.walk(Phase.UPGRADING_BROKERS)
    for _ in range(60):
        operator.step()
        if len(runs(operator)) > 1:
            return
    raise AssertionError("no broker restarted")


def at_quorum(operator: Operator) -> None:
    operator.edit(target="QuorumReady")
    operator.walk(Phase.PROVISIONING_QUORUM)
    operator.rest(30)


@pytest.mark.parametrize("place", [half_way, rest_at_bridge, at_quorum])
def test_before_the_lift_a_rollback_restores_everything(leg: Operator, place: Callable[[Operator], None]) -> None:
    before = copy.deepcopy(brokers(leg)["spec"])
    ran = runs(leg)
    place(leg)
    leg.edit(target="ZooKeeper")
    leg.walk(Phase.ROLLED_BACK, steps=250)
    assert runs(leg) == ran
    after = brokers(leg)["spec"]
    assert after["template"]["spec"] == before["template"]["spec"]
    assert after["updateStrategy"] == before["updateStrategy"]
    assert not section(after, "template", "metadata", "annotations")
    assert leg.rest(4).broker_upgrade is not None
    assert changes_told(leg) == []


@pytest.mark.parametrize("target", [Phase.TAKING_OVER, Phase.DUAL_WRITE, Phase.AWAITING_FINALIZATION])
def test_after_the_lift_a_rollback_keeps_image_and_protocol_and_a_second_attempt_needs_no_upgrade(
    leg: Operator, target: Phase
) -> None:
    leg.edit(rollback={"giveUpFormerImage": True}, target="KRaftBrokers")
    leg.walk(target, steps=200)
    while target is Phase.TAKING_OVER and not any(protocol == "3.9" for _, protocol, _ in runs(leg)):
        leg.step()
    leg.edit(target="ZooKeeper")
    leg.walk(Phase.ROLLED_BACK, steps=300)
    assert runs(leg) == {(IMAGE, "3.9", BrokerMode.ZOOKEEPER)}
    assert changes_told(leg) == []
    template = brokers(leg)["spec"]["template"]
    assert ANNOTATION_CONFIGURATION not in section(template, "metadata", "annotations")
    assert {c["name"]: c["image"] for c in template["spec"]["initContainers"]} == {
        "prepare": IMAGE,
        "volumes": "shell:1",
    }
    assert environment(template["spec"])["KAFKA_LOG4J_OPTS"] == "-Dlog4j=new"
    assert "KAFKA_PROCESS_ROLES" not in environment(template["spec"])
    leg.edit(target="QuorumReady")
    status = leg.walk(Phase.PROVISIONING_QUORUM)
    assert status.broker_upgrade is not None
    assert not status.broker_upgrade.needed
    assert runs(leg) == {(IMAGE, "3.9", BrokerMode.ZOOKEEPER)}


def test_a_process_that_dies_goes_on_with_the_same_protocol(leg: Operator) -> None:
    leg.edit(target="BridgeRelease")
    half_way(leg)
    leg.restart()
    leg.rest(50)
    assert {(image, mode) for image, _, mode in runs(leg)} == {(IMAGE, BrokerMode.UPGRADED)}
    assert len(runs(leg)) == 1


def test_an_image_of_another_release_is_not_let_near_a_broker(leg: Operator) -> None:
    dry_starts = leg.reconciler._dry_starts  # type: ignore[attr-defined]
    assert isinstance(dry_starts, FaithfulDryStarts)
    dry_starts.new_release = "4.0.0"
    spec = leg.kubernetes.objects[KIND, "kafka", "demo"]["spec"]
    spec["brokers"]["upgrade"]["image"] = "registry/kafka:latest"
    status = leg.rest(12)
    assert status.phase is Phase.PREFLIGHT
    assert "UpgradeImageNotBridge" in {f.code for f in status.findings}


def test_brokers_of_3_9_keep_their_image(operator: Operator) -> None:
    spec = operator.kubernetes.objects[KIND, "kafka", "demo"]["spec"]
    spec["brokers"]["upgrade"] = {"image": IMAGE}
    operator.edit(target="QuorumReady")
    status = operator.walk(Phase.PROVISIONING_QUORUM)
    assert status.broker_upgrade is not None
    assert not status.broker_upgrade.needed
    assert runs(operator) == {("kafka:3.9", "3.9", BrokerMode.ZOOKEEPER)}


# ------------------------------------------------------------------------------------------------- below 2.8


@pytest.fixture
def old(leg: Operator) -> Operator:
    """Return the same migration of brokers of 2.4, with which topics have no ids."""
    template = brokers(leg)["spec"]["template"]["spec"]
    for container in (*template["containers"], template["initContainers"][0]):
        container["image"] = container["image"].replace(FORMER, OLD)
    for entry in template["containers"][0]["env"]:
        if entry["name"] == PROTOCOL:
            entry["value"] = "2.4"
    restart_brokers(leg, OLD)
    return leg


OLD = "kafka:2.4"


def test_a_protocol_without_topic_ids_takes_two_rolls_before_the_controllers(old: Operator) -> None:
    pinned = "2.4" if environment(brokers(old)["spec"]["template"]["spec"]).get(PROTOCOL) else "2.4-IV1"
    old.walk(Phase.UPGRADING_BROKERS)
    status = old.rest(60)
    assert status.phase is Phase.UPGRADING_BROKERS
    assert "spec.rollback.giveUpFormerImage" in status.message
    assert runs(old) == {(IMAGE, pinned, BrokerMode.UPGRADED)}
    assert "former image back" in said(old, ConditionType.ROLLBACK_POSSIBLE).message
    assert status.broker_upgrade is not None
    assert (status.broker_upgrade.protocol, status.broker_upgrade.lifted_at) == (pinned, None)
    old.edit(rollback={"giveUpFormerImage": True})
    status = old.walk(Phase.PROVISIONING_QUORUM, steps=150)
    assert runs(old) == {(IMAGE, "3.9", BrokerMode.LIFTED)}
    assert {node.restarts for node in status.nodes if node.role == "broker"} == {2}
    assert all(node.with_topic_ids for node in status.nodes if node.role == "broker")
    old.walk(Phase.COMPLETED, steps=300)
    assert runs(old) == {(IMAGE, "3.9", BrokerMode.KRAFT)}
    assert changes_told(old) == []


def in_second_roll(operator: Operator) -> None:
    operator.edit(rollback={"giveUpFormerImage": True})
    operator.walk(Phase.UPGRADING_BROKERS)
    for _ in range(200):
        operator.step()
        if {mode for _, _, mode in runs(operator)} == {BrokerMode.UPGRADED, BrokerMode.LIFTED}:
            return
    raise AssertionError("no broker was lifted")


@pytest.mark.parametrize("place", [half_way, rest_at_bridge])
def test_a_rollback_in_the_first_roll_restores_everything(old: Operator, place: Callable[[Operator], None]) -> None:
    before, ran = copy.deepcopy(brokers(old)["spec"]), runs(old)
    place(old)
    old.edit(target="ZooKeeper")
    old.walk(Phase.ROLLED_BACK, steps=250)
    assert runs(old) == ran
    assert brokers(old)["spec"]["template"]["spec"] == before["template"]["spec"]


def test_a_rollback_half_way_in_the_second_roll_ends_the_lift_and_the_pin_never_returns(old: Operator) -> None:
    in_second_roll(old)
    assert "brings every broker to image" in said(old, ConditionType.ROLLBACK_POSSIBLE).message
    old.edit(target="ZooKeeper")
    old.walk(Phase.ROLLED_BACK, steps=300)
    assert runs(old) == {(IMAGE, "3.9", BrokerMode.ZOOKEEPER)}
    assert environment(brokers(old)["spec"]["template"]["spec"])[PROTOCOL] == "3.9"
    old.edit(target="QuorumReady")
    status = old.walk(Phase.PROVISIONING_QUORUM)
    assert status.broker_upgrade is not None
    assert not status.broker_upgrade.needed


def test_a_process_that_dies_in_the_second_roll_goes_on_with_it(old: Operator) -> None:
    in_second_roll(old)
    old.restart()
    old.walk(Phase.PROVISIONING_QUORUM, steps=150)
    assert runs(old) == {(IMAGE, "3.9", BrokerMode.LIFTED)}


def test_partitions_that_lack_a_broker_for_long_get_a_new_epoch(leg: Operator) -> None:
    leg.edit(target="BridgeRelease")
    leg.walk(Phase.UPGRADING_BROKERS)
    leg.kafka.under_replicated = ("t-0",)
    for _ in range(60):
        leg.step()
    assert leg.kafka.renewals == [MOST_PARTITIONS]
    restarted = runs(leg)
    leg.kafka.under_replicated = ()
    for _ in range(60):
        leg.step()
    assert len(leg.kafka.renewals) == 1
    assert runs(leg) != restarted, "the roll goes on"
