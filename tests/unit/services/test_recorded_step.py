"""A recorded step has no secret, and is decided again as it was."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import pytest
from tests.unit.services.conftest import Operator

from kraftbridge.builders import names
from kraftbridge.constants import ANNOTATION_RECORD_STEP
from kraftbridge.exceptions import ActionRefusedError
from kraftbridge.models.phase import Phase
from kraftbridge.phases.recorded_step import ASKED_KEY, STEP_KEY, decided_again, read_step

SECRETS = {
    "KAFKA_LISTENER_NAME_PLAINTEXT_SSL_KEY_PASSWORD": "pa55-of-the-key",
    "KAFKA_CONFLUENT_LICENSE": "l1cense-of-a-plugin",
}
PHASES = [Phase.PREFLIGHT, Phase.PROVISIONING_QUORUM, Phase.DUAL_WRITE, Phase.ROLLING_BROKERS, Phase.COMPLETED]


def ask(operator: Operator, value: str) -> None:
    operator.migration()["metadata"].setdefault("annotations", {})[ANNOTATION_RECORD_STEP] = value


def config_map(operator: Operator) -> dict[str, Any] | None:
    name = names.step_config_map("demo", operator.migration()["metadata"]["uid"])
    found: dict[str, Any] | None = operator.kubernetes.objects.get(("ConfigMap", "kafka", name))
    return found


def document(operator: Operator) -> str:
    found = config_map(operator)
    assert found is not None
    return gzip.decompress(base64.b64decode(found["binaryData"][STEP_KEY])).decode()


@pytest.mark.parametrize("phase", PHASES)
def test_a_recorded_step_is_decided_again_as_it_was_and_has_no_secret(operator: Operator, phase: Phase) -> None:
    container = operator.kubernetes.objects["StatefulSet", "kafka", "kafka"]["spec"]["template"]["spec"]["containers"][
        0
    ]
    container["env"] += [{"name": name, "value": value} for name, value in SECRETS.items()]
    if phase is not Phase.PREFLIGHT:
        operator.walk(phase)
    for number in range(6):
        ask(operator, f"{number}")
        operator.step()
        text = document(operator)
        assert [name for name, value in SECRETS.items() if value in text] == []
        step = read_step(text)
        assert json.dumps(decided_again(step), sort_keys=True) == json.dumps(step.decision, sort_keys=True)
    assert step.decision["status"]["message"] == operator.status().message


def test_a_step_is_recorded_once_for_each_value(operator: Operator) -> None:
    operator.walk(Phase.PROVISIONING_QUORUM)
    assert config_map(operator) is None
    ask(operator, "first")
    operator.rest(2)
    operator.kubernetes.calls.clear()
    operator.rest(3)
    found = config_map(operator)
    assert found is not None
    assert found["data"][ASKED_KEY] == "first"
    assert found["metadata"]["ownerReferences"][0]["uid"] == operator.migration()["metadata"]["uid"]
    assert [act for act in operator.acts() if act[2] == found["metadata"]["name"]] == []


def test_a_refused_record_stops_nothing(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    apply = operator.kubernetes.apply
    name = names.step_config_map("demo", operator.migration()["metadata"]["uid"])

    def refusing(obj: Any, **options: Any) -> Any:
        if obj["metadata"]["name"] == name:
            raise ActionRefusedError("ConfigMap: quota exceeded")
        return apply(obj, **options)

    monkeypatch.setattr(operator.kubernetes, "apply", refusing)
    ask(operator, "first")
    operator.walk(Phase.DUAL_WRITE)
