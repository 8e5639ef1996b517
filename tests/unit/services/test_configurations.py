"""The controllers' configurations: each ConfigMap is written once, stays while a pod or template mounts it, and goes then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.services.conftest import Operator

from kraftbridge.builders import controllers as builder
from kraftbridge.builders import names
from kraftbridge.exceptions import ActionError, ActionRefusedError, ObservationError
from kraftbridge.models.catalogue import Code
from kraftbridge.models.decision import RemoveConfigurations
from kraftbridge.models.phase import Phase
from kraftbridge.services.act import removal
from kraftbridge.services.observe import observer

THREADS = {"config": {"num.network.threads": "9"}}
FLAG = "zookeeper.metadata.migration.enable=true"


@pytest.fixture(autouse=True)
def _looks_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observer, "BELONGINGS_EVERY_SECONDS", 0.0)


@pytest.fixture
def resting(operator: Operator) -> Operator:
    """Return an operator of a migration that rests in DualWrite."""
    operator.edit(target="DualWrite")
    operator.walk(Phase.DUAL_WRITE)
    operator.rest(8)
    return operator


def configurations(operator: Operator) -> set[str]:
    name = operator.controllers()
    found = {key[2] for key in operator.kubernetes.objects if key[0] == "ConfigMap"}
    return {each for each in found if names.is_configuration(name, each)}


def mounted(operator: Operator) -> list[str]:
    """Return the configuration of each controller's pod."""
    pods = operator.kubernetes.pods("kafka", "kraftbridge.dev/role=controller")
    volumes = [volume for pod in pods for volume in pod["spec"]["volumes"] if volume["name"] == "config"]
    return [str(volume["configMap"]["name"]) for volume in volumes]


def rolling(operator: Operator) -> Iterator[None]:
    """Take steps until every controller runs what the template says."""
    for _ in range(200):
        operator.step()
        yield
        if set(mounted(operator)) == {operator.configuration()[2]} and operator.status().operation is None:
            return
    raise AssertionError(f"{mounted(operator)} stay: {operator.status().message}")


def codes(operator: Operator) -> set[Code]:
    return {finding.code for finding in operator.status().findings}


def test_a_pod_keeps_the_configuration_of_its_revision_until_it_is_replaced(resting: Operator) -> None:
    before = resting.configuration()
    content = resting.kubernetes.objects[before]["data"]
    assert configurations(resting) == {before[2]}
    resting.edit(controllers=THREADS)
    halves = 0
    for _ in rolling(resting):
        if before[2] in mounted(resting):
            assert resting.kubernetes.objects[before]["data"] == content
            halves += resting.configuration() != before
    assert halves > 3, "some steps saw pods of both revisions"
    after = resting.configuration()
    assert "num.network.threads=9" in resting.kubernetes.objects[after]["data"]["controller.properties"]
    resting.rest(5)
    assert configurations(resting) == {after[2]}
    resting.edit(target="KRaft")
    resting.walk(Phase.COMPLETED)
    resting.rest()
    assert configurations(resting) == {resting.configuration()[2]}


def test_no_configuration_is_ever_written_a_second_time(resting: Operator) -> None:
    resting.edit(controllers=THREADS)
    for _ in rolling(resting):
        pass
    resting.edit(target="KRaft")
    resting.walk(Phase.COMPLETED)
    name = resting.controllers()
    writes = [(verb, each) for verb, kind, each in resting.acts() if kind == "ConfigMap"]
    of_ours = [(verb, each) for verb, each in writes if names.is_configuration(name, each)]
    assert {verb for verb, _ in of_ours} == {"create", "delete"}
    created = [each for verb, each in of_ours if verb == "create"]
    assert len(created) == len(set(created)) == 3


def test_the_api_server_refuses_a_change_of_a_configuration(resting: Operator) -> None:
    kubernetes, key = resting.kubernetes, resting.configuration()
    for patch in ({"data": {"start.sh": "true"}}, {"immutable": False}):
        with pytest.raises(ActionRefusedError, match="immutable"):
            kubernetes.merge_patch("v1", *key, patch)
    kubernetes.merge_patch("v1", *key, {"metadata": {"labels": {"of": "somebody"}}})


def test_what_a_pod_mounts_stays_while_nobody_sees_the_pods(resting: Operator) -> None:
    before = resting.configuration()[2]
    resting.edit(controllers=THREADS)
    for _ in rolling(resting):
        if len(set(mounted(resting))) == 2:
            break

    def hide(verb: str, kind: str, name: str) -> None:
        if (verb, kind) == ("list", "Pod") and "role=controller" in name:
            raise ObservationError("controllers", "the API server does not answer")

    kubernetes = resting.kubernetes
    eyes, mounts = kubernetes.pods, set(mounted(resting))
    kubernetes.before_call = hide
    kubernetes.pods = lambda *_: ()  # type: ignore[method-assign]  # the fake's own eyes
    resting.rest(5)
    assert ("ConfigMap", "kafka", before) in kubernetes.objects
    kubernetes.before_call = lambda *_: None
    kubernetes.pods = eyes  # type: ignore[method-assign]
    assert before in mounts


def put(operator: Operator, **changes: str) -> dict[str, Any]:
    """Delete the configuration, and create another one under its name as somebody would."""
    key = operator.configuration()
    live = operator.kubernetes.objects[key]
    data = {**live["data"], **changes}
    operator.kubernetes.delete("v1", *key)
    writer = {"manager": "kubectl", "operation": "Update", "time": "2026-03-04T05:06:07Z"}
    metadata = {"name": key[2], "namespace": "kafka", "labels": live["metadata"]["labels"], "managedFields": [writer]}
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "immutable": True, "data": data}
    return operator.kubernetes.create(made)


def test_another_content_under_its_name_is_named_and_goes_with_the_next_change(resting: Operator) -> None:
    made = put(resting, **{"start.sh": "exec true"})
    resting.rest(5)
    (found,) = [f for f in resting.status().findings if f.code == Code.CONTROLLER_CONFIG_REPLACED]
    assert f"{made['metadata']['name']} (last written by kubectl" in found.reason
    alarms = [e.message for e in resting.kubernetes.events if "than its name says" in e.message]
    assert len(alarms) == 1
    key = resting.configuration()
    assert resting.kubernetes.objects[key]["metadata"]["uid"] == made["metadata"]["uid"], "it was not edited unasked"
    resting.kubernetes.delete("v1", *key)
    resting.rest(3)
    assert names.has_its_content(key[2], resting.kubernetes.objects[key]["data"])
    assert Code.CONTROLLER_CONFIG_REPLACED not in codes(resting)
    put(resting, **{"start.sh": "exec true"})
    resting.edit(controllers=THREADS)
    for _ in rolling(resting):
        pass
    resting.rest(3)
    assert configurations(resting) == {resting.configuration()[2]}
    assert Code.CONTROLLER_CONFIG_REPLACED not in codes(resting)


def test_one_without_the_flag_is_replaced_at_once(resting: Operator) -> None:
    key = resting.configuration()
    text = resting.kubernetes.objects[key]["data"]["controller.properties"]
    made = put(resting, **{"controller.properties": text.replace(FLAG, "")})
    resting.step(0.5)
    live = resting.kubernetes.objects[key]
    assert live["metadata"]["uid"] != made["metadata"]["uid"]
    assert FLAG in live["data"]["controller.properties"]
    assert live["immutable"] is True


def test_a_configuration_that_this_release_does_not_render_is_followed_by_another_one(
    resting: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can create its content again, and a pod that starts needs one."""
    monkeypatch.setattr(builder, "START", f"# of a newer release\n{builder.START}")
    resting.restart()
    resting.rest(5)
    former = resting.configuration()
    assert "newer" not in resting.kubernetes.objects[former]["data"]["start.sh"], "a release alone restarts nothing"
    resting.kubernetes.delete("v1", *former)
    resting.rest(3)
    assert resting.configuration() != former
    assert "newer" in resting.kubernetes.objects[resting.configuration()]["data"]["start.sh"]
    resting.edit(target="KRaft")
    resting.walk(Phase.COMPLETED)


def test_a_fresh_look_decides_what_is_deleted(resting: Operator) -> None:
    kubernetes, key = resting.kubernetes, resting.configuration()
    uid = kubernetes.objects[key]["metadata"]["uid"]
    left = f"{resting.controllers()}-migration-0123456789"
    metadata = {"name": left, "namespace": "kafka"}
    made = kubernetes.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {}})

    def remove(*config_maps: tuple[str, str], name: str = "") -> None:
        action = RemoveConfigurations(name or resting.controllers(), config_maps)
        removal.remove_configurations(kubernetes, "kafka", action)

    remove((key[2], uid), (left, "another"))
    assert key in kubernetes.objects
    assert ("ConfigMap", "kafka", left) in kubernetes.objects
    with pytest.raises(ActionError, match="mount"):
        remove((left, made["metadata"]["uid"]), name="another")
    stateful_set = kubernetes.objects["StatefulSet", "kafka", resting.controllers()]
    stateful_set["status"]["observedGeneration"] -= 1
    with pytest.raises(ActionError, match="mount"):
        removal.remove_configurations(
            Frozen(kubernetes),  # type: ignore[arg-type]
            "kafka",
            RemoveConfigurations(resting.controllers(), ((left, made["metadata"]["uid"]),)),
        )
    kubernetes.settle()
    remove((left, made["metadata"]["uid"]))
    assert ("ConfigMap", "kafka", left) not in kubernetes.objects


class Frozen:
    """Reads of a fake whose StatefulSet's controller stands still."""

    def __init__(self, kubernetes: Any) -> None:
        self._kubernetes = kubernetes

    def __getattr__(self, name: str) -> Any:
        if name == "delete":
            raise AssertionError("nothing is deleted")
        return getattr(self._kubernetes, name)


def test_a_word_with_the_uid_of_another_claim_is_none_and_names_both(resting: Operator) -> None:
    name = resting.controllers()
    claim = resting.kubernetes.objects["PersistentVolumeClaim", "kafka", names.controller_claim(name, 3001)]
    format_word = resting.kubernetes.objects["ConfigMap", "kafka", f"{name}-format"]["data"]
    resting.kubernetes.objects["Pod", "kafka", f"{name}-3001"]["status"]["conditions"][0]["status"] = "False"
    resting.edit(controllers={"reformat": {"id": 3001, "claimUID": "of-a-claim-that-was"}})
    resting.rest(5)
    (found,) = [f for f in resting.status().findings if f.code == Code.CONTROLLER_NOT_REFORMATTED]
    assert f"its claim is {claim['metadata']['uid']}, not of-a-claim-that-was" in found.reason
    assert format_word == {builder.WORD_KEY: "refused"}
    assert resting.kubernetes.objects["ConfigMap", "kafka", f"{name}-format"]["data"] == format_word


def test_all_of_them_go_with_a_rollback(resting: Operator) -> None:
    resting.edit(controllers=THREADS)
    for _ in rolling(resting):
        if len(configurations(resting)) == 2:
            break
    name = resting.controllers()
    resting.edit(target="ZooKeeper")
    resting.walk(Phase.ROLLED_BACK)
    resting.rest(5)
    left = {key[0] for key in resting.kubernetes.objects if key[2].startswith(name)}
    assert not left & {"StatefulSet", "ConfigMap", "Service", "NetworkPolicy", "PodDisruptionBudget"}


def test_a_deletion_that_the_api_server_refuses_stops_nothing(resting: Operator) -> None:
    def refuse(verb: str, kind: str, name: str) -> None:
        if (verb, kind) == ("delete", "ConfigMap") and names.is_configuration(resting.controllers(), name):
            raise ActionRefusedError(f"{name}: a policy denied it")

    before = resting.configuration()[2]
    resting.kubernetes.before_call = refuse
    resting.edit(controllers=THREADS)
    for _ in rolling(resting):
        pass
    resting.edit(target="KRaft", handOver="Clean")
    resting.walk(Phase.COMPLETED)
    for _ in range(100):
        resting.step()
        known = resting.status().hand_over
        if known is not None and known.cleaned_at is not None:
            break
    else:
        raise AssertionError(resting.status().message)
    assert before in configurations(resting), "it stays with the user"
