"""What somebody changes between a dry start and a restart: a dry start looks at it, and the roll goes on or stops. Annotations go on."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.fakes import FaithfulDryStarts
from tests.unit.services.conftest import POLICY, Operator
from typing_extensions import override

from kraftbridge.config import Settings
from kraftbridge.copies.dry_start import referenced
from kraftbridge.exceptions import ActionError
from kraftbridge.models.conditions import ConditionType, Reason, condition
from kraftbridge.models.dry_start import CopyKey, CopyOutcome, GivenSetting
from kraftbridge.models.phase import Phase
from kraftbridge.models.survey import BrokerSetting, SettingSource
from kraftbridge.phases.draft import Migration
from kraftbridge.phases.nodes import templates
from kraftbridge.services import reconcile
from kraftbridge.services.facts import Facts

RETENTION = "log.retention.hours"
Template = dict[str, Any]


class LookingDryStarts(FaithfulDryStarts):
    """Dry starts that end at once; their copies start with what the ConfigMap says, and the brokers run with what it said first."""

    def __init__(self, operator: Operator) -> None:
        super().__init__(operator.kafka)
        self._kubernetes = operator.kubernetes
        self._facts = Facts(operator.kubernetes, Settings(operator_image="operator:test"))

    @override
    def fingerprint(self, migration: Migration) -> str:
        self._facts.forget(migration.identity.uid)
        present = self._kubernetes.objects["StatefulSet", "kafka", "kafka"]
        sight = self._facts.template_sight(migration, present)
        assert sight is not None
        return f"{super().fingerprint(migration)} {sight.digest}"

    @override
    def _outcome(self, key: CopyKey, broker: int, channel: str) -> CopyOutcome:
        copy = super()._outcome(key, broker, channel)
        assert copy.start is not None
        hours = self._kubernetes.objects["ConfigMap", "kafka", "kafka-env"]["data"]["KAFKA_LOG_RETENTION_HOURS"]
        return replace(
            copy, start=replace(copy.start, settings={**copy.start.settings, RETENTION: GivenSetting(hours)})
        )


@pytest.fixture
def looking(operator: Operator) -> LookingDryStarts:
    """Brokers that read a ConfigMap and a Secret, and dry starts that show it."""
    template(operator)["spec"]["containers"][0]["envFrom"] = [
        {"configMapRef": {"name": "kafka-env"}},
        {"secretRef": {"name": "kafka-login"}},
    ]
    for kind, name, value in (
        ("ConfigMap", "kafka-env", "168"),
        ("Secret", "kafka-login", base64.b64encode(b"one").decode()),
    ):
        variable = "KAFKA_LOG_RETENTION_HOURS" if kind == "ConfigMap" else "LOGIN"
        metadata = {"name": name, "namespace": "kafka"}
        operator.kubernetes.create({"kind": kind, "apiVersion": "v1", "metadata": metadata, "data": {variable: value}})
    run = operator.kafka.broker_settings

    def broker_settings() -> Mapping[int, Any]:
        setting = BrokerSetting(RETENTION, "168", SettingSource.STATIC, sensitive=False, known=True)
        return {broker: (*settings, setting) for broker, settings in run().items() if isinstance(settings, tuple)}

    operator.kafka.broker_settings = broker_settings  # type: ignore[method-assign,assignment]
    starts = LookingDryStarts(operator)
    begin_with(operator, starts)
    return starts


def begin_with(operator: Operator, starts: LookingDryStarts) -> None:
    operator.reconciler.close()
    settings = Settings(
        operator_image="operator:test", verifier_image="verifier:test", admission_policy=POLICY, dry_start=True
    )
    open_clients = operator.reconciler._open_clients
    operator.reconciler = reconcile.Reconciler(operator.kubernetes, settings, open_clients, starts)


def template(operator: Operator) -> Template:
    found: Template = operator.kubernetes.objects["StatefulSet", "kafka", "kafka"]["spec"]["template"]
    return found


def edit(operator: Operator, change: Callable[[Template], None]) -> None:
    """Change the template as another writer would."""
    change(template(operator))
    metadata = operator.kubernetes.objects["StatefulSet", "kafka", "kafka"]["metadata"]
    metadata["generation"] = metadata.get("generation", 1) + 1


def write(operator: Operator, kind: str, name: str, **data: str) -> None:
    """Change a ConfigMap or Secret as `helm upgrade` does before the admission policy refuses the StatefulSet."""
    operator.kubernetes.merge_patch("v1", kind, "kafka", name, {"data": data}, field_manager="helm")


def restarts(operator: Operator) -> int:
    return len([call for call in operator.kubernetes.calls if call[0] == "evict" and call[2].startswith("kafka-")])


def said(operator: Operator) -> tuple[str, str, str]:
    found = condition(operator.status().conditions, ConditionType.STALLED)
    assert found is not None
    return found.status, str(found.reason), found.message


def told(operator: Operator, words: str) -> list[str]:
    return [event.message for event in operator.kubernetes.events if words in event.message]


def rolling(operator: Operator, restarted: int = 1) -> None:
    """Walk until so many brokers have restarted in KRaft mode."""
    operator.edit(target="KRaftBrokers")
    operator.walk(Phase.ROLLING_BROKERS)
    before = restarts(operator)
    for _ in range(60):
        if restarts(operator) - before >= restarted and operator.status().operation is None:
            return
        operator.step()
    raise AssertionError(operator.status().message)


def test_a_whole_migration_and_its_rollback_show_no_change_of_our_own(
    operator: Operator, looking: LookingDryStarts
) -> None:
    operator.edit(target="KRaftBrokers")
    operator.walk(Phase.AWAITING_FINALIZATION, steps=200)
    recorded = operator.status().templates
    assert [t.stateful_set for t in recorded] == ["kafka"]
    assert "ConfigMap kafka-env" in recorded[0].parts
    assert set(recorded[0].secrets) == {"Secret kafka-login"}
    operator.edit(target="ZooKeeper")
    operator.walk(Phase.ROLLED_BACK, steps=250)
    assert len(looking.started) == 1
    assert not told(operator, "dry start")


def test_a_configmap_that_changes_in_the_middle_of_a_roll_stops_it(
    operator: Operator, looking: LookingDryStarts
) -> None:
    rolling(operator)
    before, started = restarts(operator), len(looking.started)
    write(operator, "ConfigMap", "kafka-env", KAFKA_LOG_RETENTION_HOURS="1")
    operator.rest(25)
    assert restarts(operator) == before
    assert len(looking.started) == started + 1
    status, reason, message = said(operator)
    assert (status, reason) == ("True", Reason.FINDINGS)
    assert all(words in message for words in ("ConfigMap kafka-env", "DryStartDiffers", RETENTION, "'1'", "'168'"))
    assert told(operator, "ConfigMap kafka-env")
    operator.restart()
    begin_with(operator, looking)
    operator.rest(10)
    assert restarts(operator) == before, "another process knows it, too"
    write(operator, "ConfigMap", "kafka-env", KAFKA_LOG_RETENTION_HOURS="168")
    operator.walk(Phase.AWAITING_FINALIZATION)
    assert all(t.change is None for t in operator.status().templates)


def test_what_the_user_accepts_reaches_the_brokers(operator: Operator, looking: LookingDryStarts) -> None:
    rolling(operator)
    write(operator, "ConfigMap", "kafka-env", KAFKA_LOG_RETENTION_HOURS="1")
    operator.rest(10)
    operator.edit(preflight={"accepted": [{"code": "DryStartDiffers", "object": "StatefulSet/kafka"}]})
    operator.walk(Phase.AWAITING_FINALIZATION)
    assert told(operator, "a dry start has looked at ConfigMap kafka-env; brokers restart with it")


def test_a_rotated_secret_is_looked_at_and_goes_on(operator: Operator, looking: LookingDryStarts) -> None:
    rolling(operator)
    started = len(looking.started)
    write(operator, "Secret", "kafka-login", LOGIN=base64.b64encode(b"two").decode())
    operator.walk(Phase.AWAITING_FINALIZATION)
    assert len(looking.started) == started + 1
    assert told(operator, "somebody changed Secret kafka-login")
    assert base64.b64encode(b"two").decode() not in str(operator.migration())


def test_a_secret_that_is_written_again_with_the_same_content_has_not_changed(
    operator: Operator, looking: LookingDryStarts
) -> None:
    rolling(operator)
    started = len(looking.started)
    operator.kubernetes.merge_patch("v1", "Secret", "kafka", "kafka-login", {"metadata": {"labels": {"a": "b"}}})
    operator.walk(Phase.AWAITING_FINALIZATION)
    assert len(looking.started) == started


def _kafka(change: Mapping[str, Any]) -> Callable[[Template], None]:
    return lambda template: template["spec"]["containers"][0].update(change)


def _pod(change: Mapping[str, Any]) -> Callable[[Template], None]:
    return lambda template: template["spec"].update(change)


SEEN: dict[str, Callable[[Template], None]] = {
    "command of container kafka": _kafka({"command": ["bash", "-c", "exec kafka-server-start /etc/other.properties"]}),
    "args of container kafka": _kafka({"args": ["--override", "num.io.threads=9"]}),
    "volumeMounts of container kafka": _kafka({"volumeMounts": [{"name": "x", "mountPath": "/x"}]}),
    "command of init container x": _pod({"initContainers": [{"name": "x", "image": "busybox", "command": ["true"]}]}),
    "securityContext of the pod": _pod({"securityContext": {"runAsUser": 0}}),
}
UNSEEN: dict[str, Callable[[Template], None]] = {
    "resources of container kafka": _kafka({"resources": {"requests": {"memory": "900Gi"}}}),
    "readinessProbe of container kafka": _kafka({"readinessProbe": {"exec": {"command": ["false"]}}}),
    "image of container other": lambda t: t["spec"]["containers"].append({"name": "other", "image": "x"}),
    "image of sidecar mesh": _pod({"initContainers": [{"name": "mesh", "image": "m", "restartPolicy": "Always"}]}),
    "nodeSelector of the pod": _pod({"nodeSelector": {"disk": "fast"}}),
}


@pytest.mark.parametrize("part", SEEN)
def test_what_a_copy_shows_is_looked_at_and_goes_on(operator: Operator, looking: LookingDryStarts, part: str) -> None:
    rolling(operator)
    started = len(looking.started)
    edit(operator, SEEN[part])
    operator.walk(Phase.AWAITING_FINALIZATION)
    assert len(looking.started) == started + 1
    assert told(operator, part)


@pytest.mark.parametrize("part", UNSEEN)
def test_what_no_copy_shows_stops_until_it_is_accepted(
    operator: Operator, looking: LookingDryStarts, part: str
) -> None:
    rolling(operator)
    before = restarts(operator)
    edit(operator, UNSEEN[part])
    operator.rest(25)
    assert restarts(operator) == before
    status, reason, message = said(operator)
    assert (status, reason) == ("True", Reason.FINDINGS)
    assert "TemplateChanged on StatefulSet/kafka" in message
    assert part in message
    assert [f.object for f in operator.status().findings if f.code == "TemplateChanged"] == ["StatefulSet/kafka"]
    operator.edit(preflight={"accepted": [{"code": "TemplateChanged", "object": "StatefulSet/kafka"}]})
    operator.walk(Phase.AWAITING_FINALIZATION)
    assert not [f for f in operator.status().findings if f.code == "TemplateChanged"]


@pytest.mark.parametrize("target", ["DualWrite", "KRaftBrokers"])
def test_a_change_that_is_taken_back_at_a_rest_is_forgotten(
    operator: Operator, looking: LookingDryStarts, target: str
) -> None:
    operator.edit(target=target)
    operator.walk(Phase.DUAL_WRITE if target == "DualWrite" else Phase.AWAITING_FINALIZATION, steps=200)
    operator.rest(10)
    before = restarts(operator)
    edit(operator, UNSEEN["nodeSelector of the pod"])
    operator.rest(10)
    assert [f.code for f in operator.status().findings if f.blocks] == ["TemplateChanged"]
    edit(operator, lambda t: t["spec"].pop("nodeSelector"))
    status = operator.rest(10)
    assert restarts(operator) == before
    assert [t.change for t in status.templates] == [None]
    assert not [f for f in status.findings if f.blocks]
    assert said(operator)[0] == "False"


def test_annotations_and_labels_go_on(operator: Operator, looking: LookingDryStarts) -> None:
    rolling(operator)
    started = len(looking.started)
    edit(
        operator,
        lambda t: t["metadata"].setdefault("annotations", {}).update({"kubectl.kubernetes.io/restartedAt": "1"}),
    )
    edit(operator, lambda t: t["metadata"]["labels"].update({"helm.sh/chart": "kafka-27"}))
    operator.kubernetes.objects["StatefulSet", "kafka", "kafka"]["metadata"]["labels"]["team"] = "x"
    operator.walk(Phase.AWAITING_FINALIZATION)
    assert len(looking.started) == started
    assert not told(operator, "somebody changed")


def test_a_change_between_the_last_dry_start_and_the_first_restart_is_no_exception(
    operator: Operator, looking: LookingDryStarts
) -> None:
    operator.edit(target="DualWrite")
    operator.walk(Phase.TAKING_OVER)
    write(operator, "ConfigMap", "kafka-env", KAFKA_LOG_RETENTION_HOURS="1")
    operator.rest(25)
    assert restarts(operator) == 0
    assert "DryStartDiffers" in said(operator)[2]


def test_without_dry_starts_nobody_can_look(operator: Operator, looking: LookingDryStarts) -> None:
    rolling(operator)
    before = restarts(operator)
    for observer in operator.reconciler._observers.values():
        observer._settings = observer._settings.model_copy(update={"dry_start": False})
    write(operator, "ConfigMap", "kafka-env", KAFKA_LOG_RETENTION_HOURS="1")
    operator.rest(25)
    assert restarts(operator) == before
    assert "TemplateChanged on StatefulSet/kafka" in said(operator)[2]


def test_a_rollback_says_it_and_is_not_held_up_for_ever(operator: Operator, looking: LookingDryStarts) -> None:
    rolling(operator)
    write(operator, "ConfigMap", "kafka-env", KAFKA_LOG_RETENTION_HOURS="1")
    edit(operator, UNSEEN["resources of container kafka"])
    operator.rest(5)
    operator.edit(target="ZooKeeper")
    operator.walk(Phase.ROLLING_BACK)
    before = restarts(operator)
    operator.rest(25)
    assert restarts(operator) == before
    message = said(operator)[2]
    assert "TemplateChanged on StatefulSet/kafka" in message
    assert "The rollback goes on with it at" in message
    operator.clock.advance(templates.PATIENCE / timedelta(seconds=1))
    operator.walk(Phase.ROLLED_BACK, steps=250)
    assert told(operator, "The rollback goes on in spite of this")


def test_a_recorded_restart_is_cancelled_if_its_template_changes_before_the_pod_stops(
    operator: Operator, looking: LookingDryStarts
) -> None:
    rolling(operator)
    before = restarts(operator)

    def refuse(verb: str, _kind: str, _name: str) -> None:
        if verb == "evict":
            write(operator, "ConfigMap", "kafka-env", KAFKA_LOG_RETENTION_HOURS="1")
            raise ActionError("a PodDisruptionBudget forbids it now")

    operator.kubernetes.before_call = refuse
    for _ in range(40):
        operator.step()
        if operator.status().operation is not None:
            break
    operator.kubernetes.before_call = lambda *_: None
    tried = restarts(operator)
    operator.rest(10)
    assert restarts(operator) == tried > before
    assert operator.status().operation is None
    assert "DryStartDiffers" in said(operator)[2]


def test_what_a_template_refers_to_is_found_wherever_it_stands() -> None:
    pod = {
        "initContainers": [{"name": "i", "envFrom": [{"secretRef": {"name": "a"}}]}],
        "containers": [
            {"name": "kafka", "env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "b", "key": "k"}}}]},
            {"name": "sidecar", "envFrom": [{"configMapRef": {"name": "c"}}]},
        ],
        "volumes": [
            {"name": "v", "secret": {"secretName": "d"}},
            {"name": "w", "projected": {"sources": [{"configMap": {"name": "e"}}, {"secret": {"name": "f"}}]}},
        ],
        "imagePullSecrets": [{"name": "not-this-one"}],
    }
    assert [name for _, name in sorted(referenced(pod), key=lambda r: r[1])] == list("abcdef")
