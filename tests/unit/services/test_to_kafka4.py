"""Brokers and controllers that go on to Kafka 4 and back, by the operator's own loop on a fake cluster."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.services.conftest import Operator
from tests.unit.services.test_upgrade import brokers, pods, said

from kraftbridge.constants import ANNOTATION_CONFIGURATION, ANNOTATION_LOCK
from kraftbridge.models.catalogue import Code
from kraftbridge.models.conditions import ConditionType
from kraftbridge.models.metadata_version import FEATURE
from kraftbridge.models.objects import section
from kraftbridge.models.phase import BrokerMode, Phase

FORMER = "kafka:3.9"
IMAGE = "registry/kafka:4.1.2"
# The fake's brokers name ZooKeeper's authorizer in every mode.
WORD = {"accepted": [{"code": str(code)} for code in (Code.KAFKA4_CLIENTS_UNKNOWN, Code.KAFKA4_LACKS_CLASS)]}


@pytest.fixture
def completed(operator: Operator) -> Operator:
    operator.walk(Phase.COMPLETED)
    operator.rest()
    return operator


def runs(operator: Operator) -> set[tuple[str, str]]:
    """Return image and mode of every broker's pod."""
    return {
        (
            pod["spec"]["containers"][0]["image"],
            BrokerMode.of(section(pod, "metadata", "annotations").get(ANNOTATION_CONFIGURATION, "")),
        )
        for pod in pods(operator)
    }


def controllers_images(operator: Operator) -> list[str]:
    found = operator.kubernetes.list("v1", "Pod", "kafka", "kraftbridge.dev/role=controller")
    return [pod["spec"]["containers"][0]["image"] for pod in found]


def go(operator: Operator, **kafka4: Any) -> None:
    operator.edit(target="Kafka4", kafka4={"image": IMAGE, **kafka4}, preflight=WORD)


def test_controllers_then_brokers_and_the_statefulsets_are_given_back(completed: Operator) -> None:
    former = set(controllers_images(completed))
    go(completed)
    completed.walk(Phase.KAFKA4_CONTROLLERS)
    assert runs(completed) == {(FORMER, BrokerMode.KRAFT)}
    completed.walk(Phase.KAFKA4_BROKERS)
    assert set(controllers_images(completed)) == {IMAGE}
    assert runs(completed) == {(FORMER, BrokerMode.KRAFT)}
    assert ANNOTATION_LOCK in brokers(completed)["metadata"]["annotations"]
    completed.walk(Phase.KAFKA4)
    status = completed.rest(20)
    assert said(completed, ConditionType.READY).status == "True", status.message
    assert said(completed, ConditionType.KAFKA4_LEAVABLE).status == "True"
    assert runs(completed) == {(IMAGE, BrokerMode.KAFKA4)}
    assert ANNOTATION_LOCK not in brokers(completed)["metadata"]["annotations"]
    assert brokers(completed)["spec"]["updateStrategy"]["type"] == "RollingUpdate"
    leg = status.kafka4_leg
    assert leg is not None
    images = {each.stateful_set: set(each.images.values()) for each in leg.former}
    assert images["kafka"] == {FORMER}
    assert images[completed.controllers()] & former
    assert (leg.image, leg.final_at) == (IMAGE, None)
    assert IMAGE in str(completed.kubernetes.objects["ConfigMap", "kafka", status.final_manifest]["data"])


def test_the_way_back_leads_to_the_images_of_before_brokers_first(completed: Operator) -> None:
    former = controllers_images(completed)
    go(completed)
    completed.walk(Phase.KAFKA4)
    completed.rest(20)
    completed.edit(target="KRaft")
    completed.walk(Phase.LEAVING_KAFKA4)
    for _ in range(120):
        completed.step()
        if controllers_images(completed) != [IMAGE] * len(former):
            break
    assert runs(completed) == {(FORMER, BrokerMode.KRAFT)}, "a controller went back before the last broker"
    completed.walk(Phase.COMPLETED)
    status = completed.rest(20)
    assert said(completed, ConditionType.READY).status == "True", status.message
    assert controllers_images(completed) == former
    assert runs(completed) == {(FORMER, BrokerMode.KRAFT)}
    assert ANNOTATION_LOCK not in brokers(completed)["metadata"]["annotations"]
    assert IMAGE not in str(completed.kubernetes.objects["ConfigMap", "kafka", status.final_manifest]["data"])
    completed.edit(target="Kafka4")
    completed.walk(Phase.KAFKA4)
    assert runs(completed) == {(IMAGE, BrokerMode.KAFKA4)}


def test_a_user_who_turns_between_controllers_and_brokers_gets_back(completed: Operator) -> None:
    former = controllers_images(completed)
    go(completed)
    completed.walk(Phase.KAFKA4_BROKERS)
    completed.edit(target="KRaft")
    completed.walk(Phase.LEAVING_KAFKA4)
    completed.walk(Phase.COMPLETED)
    completed.rest(20)
    assert controllers_images(completed) == former
    assert runs(completed) == {(FORMER, BrokerMode.KRAFT)}


@pytest.mark.parametrize("image", ["registry/kafka:4.2.0", "registry/kafka:5.0.0", "registry/kafka:3.9.2"])
def test_an_image_of_another_release_restarts_nothing(completed: Operator, image: str) -> None:
    completed.edit(target="Kafka4", kafka4={"image": image}, preflight=WORD)
    status = completed.rest(40)
    assert status.phase is Phase.COMPLETED
    assert "Kafka4ImageRefused" in {str(f.code) for f in status.findings} or "Kafka4ImageRefused" in status.message
    assert runs(completed) == {(FORMER, BrokerMode.KRAFT)}


def test_features_are_raised_on_the_word_alone(completed: Operator) -> None:
    go(completed)
    completed.walk(Phase.KAFKA4)
    completed.rest(30)
    assert completed.kafka.updates == []
    completed.edit(kafka4={"metadataVersion": "4.1"})
    for _ in range(60):
        completed.step()
        if completed.kafka.updates:
            break
    status = completed.rest(30)
    assert [level for level, _ in completed.kafka.updates][:1] == [27], status.message
    assert said(completed, ConditionType.KAFKA4_LEAVABLE).status == "False"
    assert completed.kafka.features()[0].finalized[FEATURE] == 27  # type: ignore[union-attr]
