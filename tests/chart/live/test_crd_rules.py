"""The CRD on a real API server: defaults, columns, and what its CEL rules refuse, in which words."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from itertools import count
from typing import Any

import pytest

from kraftbridge.models.phase import FORWARD, LAST_PHASE, Phase, Target
from kraftbridge.models.spec import MigrationSpec

from .conftest import GROUP, NAMESPACE, PLURAL, Cluster

SPEC: dict[str, Any] = {
    "zookeeper": {"connect": "zookeeper:2181/kafka"},
    "brokers": {"statefulSets": [{"name": "kafka"}], "bootstrapServers": "kafka:9092"},
}
IMAGE = "registry.example/kafka:4.1.2"
WITH_KAFKA4: dict[str, Any] = {**SPEC, "kafka4": {"image": IMAGE}}
NUMBER = count()


def manifest(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "KafkaMigration",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec,
    }


def with_field(path: str, value: Any) -> dict[str, Any]:
    spec = deepcopy(SPEC)
    *parents, last = path.split(".")
    node = spec
    for part in parents:
        node = node.setdefault(part, {})
    node[last] = value
    return spec


@pytest.fixture
def migration(cluster: Cluster) -> Iterator[Callable[..., str]]:
    """Return a function that makes a migration in a phase and returns its name."""
    made: list[str] = []

    def make(
        target: Target = Target.KRAFT_BROKERS, phase: Phase | None = None, spec: dict[str, Any] | None = None
    ) -> str:
        name = f"m{next(NUMBER)}"
        made.append(name)
        cluster.apply(manifest(name, {**(spec or SPEC), "target": str(target)}))
        if phase is not None:
            assert cluster.patch(name, in_phase(phase), dry_run=False) == ""
        return name

    yield make
    if made:
        cluster.do("delete", PLURAL, *made)


def in_phase(phase: Phase) -> dict[str, Any]:
    return {"status": {"phase": str(phase)}}


def with_target(target: Target) -> dict[str, Any]:
    return {"spec": {"target": str(target)}}


def possible(target: Target, phase: Phase) -> bool:
    """Return whether a migration with this target may be in this phase; stated anew, not taken from the generator."""
    if phase in (Phase.FINALIZING, Phase.LEAVING_KAFKA4):
        return target is Target.KRAFT
    if phase in (Phase.COMPLETED, Phase.KAFKA4_CONTROLLERS, Phase.KAFKA4_BROKERS, Phase.KAFKA4):
        return target in (Target.KRAFT, Target.KAFKA4)
    if target is Target.KAFKA4:
        return False
    if phase is Phase.ROLLING_BACK:
        return target is Target.ZOOKEEPER
    if phase is Phase.ROLLED_BACK or target is Target.ZOOKEEPER:
        return True
    return FORWARD.index(phase) <= FORWARD.index(LAST_PHASE[target])


def test_the_api_servers_defaults_are_the_models(cluster: Cluster, migration: Callable[..., str]) -> None:
    stored = cluster.get(PLURAL, migration())["spec"]
    assert MigrationSpec.model_validate(stored) == MigrationSpec.model_validate(SPEC)
    assert stored["controllers"]["storage"] == {"size": "10Gi"}


def test_a_null_means_that_a_field_was_left_out(cluster: Cluster) -> None:
    spec = deepcopy(SPEC)
    spec["zookeeper"]["secretName"] = None
    spec["brokers"]["properties"] = None
    answer = cluster.do(
        "create", "--dry-run=server", "--output", "json", "--filename", "-", stdin=json.dumps(manifest("nulls", spec))
    )
    stored = json.loads(answer)["spec"]
    assert "secretName" not in stored["zookeeper"]
    assert "properties" not in stored["brokers"]


def test_free_form_parts_are_kept(cluster: Cluster, migration: Callable[..., str]) -> None:
    controllers = {
        "resources": {"requests": {"cpu": "1"}},
        "affinity": {"nodeAffinity": {"x": [1]}},
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "config": {"num.io.threads": "4"},
        "nodeSelector": {"disk": "ssd"},
    }
    stored = cluster.get(PLURAL, migration(spec=with_field("controllers", controllers)))["spec"]["controllers"]
    assert {key: stored[key] for key in controllers} == controllers


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "spec.zookeeper: Required value"),
        ({"zookeeper": SPEC["zookeeper"]}, "spec.brokers: Required value"),
        (with_field("target", "Kraft"), 'Unsupported value: "Kraft"'),
        (with_field("controllers.replicas", 2), "spec.controllers.replicas: Unsupported value: 2"),
        (with_field("controllers.replicas", 4), 'supported values: "1", "3", "5"'),
        (with_field("brokers.statefulSets", []), "spec.brokers.statefulSets in body should have at least 1 items"),
        (with_field("brokers.statefulSets", [{"name": "a"}, {"name": "a"}]), "Duplicate value"),
        (with_field("brokers.statefulSets", [{"name": "A_B"}]), "should match"),
        (with_field("brokers.bootstrapServers", "kafka"), "spec.brokers.bootstrapServers in body should match"),
        (
            with_field("brokers.configStyle", "Properties"),
            "brokers.configStyle Properties needs brokers.properties (volume, key)",
        ),
        (
            with_field("controllers.listener", {"securityProtocol": "SASL_PLAINTEXT", "generate": True}),
            "controllers.listener.generate needs controllers.listener.securityProtocol SSL or SASL_SSL",
        ),
        (
            with_field("controllers.listener", {"generate": True, "certificateDays": 4000}),
            "should be less than or equal to 3650",
        ),
        (
            with_field("controllers.reformat", {"id": 3003, "claimUID": "a"}),
            "controllers.reformat.id is no voter: the voters have firstNodeId and the ids that follow",
        ),
        (with_field("controllers.reformat", {"id": 3000}), "spec.controllers.reformat.claimUID: Required value"),
        (with_field("controllers.reformat", {"claimUID": "a"}), "spec.controllers.reformat.id: Required value"),
        (with_field("zookeeper.connect", "/kafka"), "spec.zookeeper.connect in body should match"),
        (with_field("metadataVersion", "latest"), "spec.metadataVersion: Unsupported value"),
        (with_field("strategy.phaseDeadlineSeconds", 1), "should be greater than or equal to 60"),
        (with_field("zookeper", {}), 'unknown field "spec.zookeper"'),
    ],
)
def test_bad_specs_are_refused(cluster: Cluster, spec: dict[str, Any], message: str) -> None:
    answer = cluster.refused("create", "--filename", "-", stdin=json.dumps(manifest("bad", spec)))
    assert message in answer


@pytest.mark.parametrize("name", ["a" * 41, "1kafka", "my.kafka"])
def test_names_that_cannot_name_services_are_refused(cluster: Cluster, name: str) -> None:
    answer = cluster.refused("create", "--filename", "-", stdin=json.dumps(manifest(name, SPEC)))
    assert "metadata.name must be a DNS label of at most 32 characters" in answer


@pytest.mark.parametrize("phase", list(Phase))
def test_every_target_in_every_phase(cluster: Cluster, migration: Callable[..., str], phase: Phase) -> None:
    fitting = next(target for target in (Target.KRAFT, Target.ZOOKEEPER) if possible(target, phase))
    name = migration(target=fitting, phase=phase, spec=WITH_KAFKA4)
    for target in Target:
        refusal = cluster.patch(name, with_target(target))
        assert (refusal == "") == possible(target, phase), f"{target} in {phase}: {refusal}"
        assert refusal == "" or "spec.target" in refusal


@pytest.mark.parametrize("target", [target for target in Target if target is not Target.KAFKA4])
def test_no_phase_is_entered_without_the_users_word(
    cluster: Cluster, migration: Callable[..., str], target: Target
) -> None:
    name = migration(target=target)
    for phase in Phase:
        refusal = cluster.patch(name, in_phase(phase))
        assert (refusal == "") == possible(target, phase), f"{target} in {phase}: {refusal}"


@pytest.mark.parametrize(
    ("target", "phase", "wanted", "words"),
    [
        (Target.KRAFT, Phase.FINALIZING, Target.ZOOKEEPER, "finalization has begun and cannot be undone: spec.target must stay KRaft"),
        (Target.KRAFT, Phase.COMPLETED, Target.KRAFT_BROKERS, "the migration is complete: spec.target must be KRaft or Kafka4"),
        (Target.KRAFT, Phase.COMPLETED, Target.KAFKA4, "spec.target Kafka4 needs spec.kafka4 with an image"),
        (Target.KRAFT, Phase.FINALIZING, Target.KAFKA4, "spec.target Kafka4 is possible once the phase is Completed"),
        (Target.KRAFT_BROKERS, Phase.DUAL_WRITE, Target.KAFKA4, "spec.target Kafka4 is possible once the phase is Completed"),
        (Target.KRAFT, Phase.KAFKA4, Target.ZOOKEEPER, "the migration is complete: spec.target must be KRaft or Kafka4"),
        (Target.KRAFT_BROKERS, Phase.ROLLING_BROKERS, Target.DUAL_WRITE, "the only way back is spec.target ZooKeeper"),
        (Target.ZOOKEEPER, Phase.ROLLING_BACK, Target.KRAFT_BROKERS, "spec.target must stay ZooKeeper until the phase is RolledBack"),
    ],
)  # fmt: skip
def test_refused_targets_say_what_is_possible(
    cluster: Cluster, migration: Callable[..., str], target: Target, phase: Phase, wanted: Target, words: str
) -> None:
    assert words in cluster.patch(migration(target, phase), with_target(wanted))


def with_kafka4(**changes: Any) -> dict[str, Any]:
    return {"spec": {"target": "Kafka4", "kafka4": {"image": IMAGE, **changes}}}


def test_the_way_to_kafka_4_begins_at_completed_with_an_image(cluster: Cluster, migration: Callable[..., str]) -> None:
    answer = cluster.refused(
        "create", "--filename", "-", stdin=json.dumps(manifest("early", {**SPEC, **with_kafka4()["spec"]}))
    )
    assert "spec.target Kafka4 is possible once the phase is Completed" in answer
    name = migration(Target.KRAFT, Phase.COMPLETED)
    assert cluster.patch(name, with_kafka4()) == ""
    assert cluster.patch(name, with_kafka4(controllersImage=IMAGE, metadataVersion="4.1")) == ""
    assert "spec.kafka4.metadataVersion" in cluster.patch(name, with_kafka4(metadataVersion="3.9"))
    assert "spec.kafka4.image" in cluster.patch(name, with_kafka4(image=None))


@pytest.mark.parametrize("phase", [Phase.KAFKA4_CONTROLLERS, Phase.KAFKA4_BROKERS, Phase.KAFKA4])
def test_the_images_of_kafka_4_are_fixed_from_the_first_restart_on(
    cluster: Cluster, migration: Callable[..., str], phase: Phase
) -> None:
    name = migration(Target.KRAFT, Phase.COMPLETED)
    assert cluster.patch(name, with_kafka4(), dry_run=False) == ""
    assert cluster.patch(name, with_kafka4(image="other:4.0.2")) == "", "nothing has restarted yet"
    assert cluster.patch(name, in_phase(phase), dry_run=False) == ""
    words = "the images of spec.kafka4 cannot change in this phase"
    assert words in cluster.patch(name, with_kafka4(image="other:4.0.2"))
    assert words in cluster.patch(name, with_kafka4(controllersImage="other:4.0.2"))
    assert words in cluster.patch(name, {"spec": {"target": "KRaft", "kafka4": None}})
    assert cluster.patch(name, with_kafka4(metadataVersion="4.1")) == "", "the word of the features comes later"
    assert cluster.patch(name, with_target(Target.KRAFT)) == ""


def test_what_is_final_keeps_the_target(cluster: Cluster, migration: Callable[..., str]) -> None:
    name = migration(Target.KRAFT, Phase.COMPLETED)
    assert cluster.patch(name, with_kafka4(), dry_run=False) == ""
    leg = {"image": IMAGE, "controllersImage": IMAGE, "finalAt": "2026-01-01T00:00:00Z"}
    assert cluster.patch(name, {"status": {"phase": "Kafka4", "kafka4Leg": leg}}, dry_run=False) == ""
    words = "there is no way back from Kafka 4 any more (condition Kafka4Leavable): spec.target must stay Kafka4"
    assert words in cluster.patch(name, with_target(Target.KRAFT))
    assert cluster.patch(name, in_phase(Phase.LEAVING_KAFKA4)) != ""


def test_after_a_hand_over_nobody_goes_on_to_kafka_4(cluster: Cluster, migration: Callable[..., str]) -> None:
    words = "spec.target Kafka4 is refused once brokers or controllers are handed over"
    released = migration(Target.KRAFT, Phase.COMPLETED)
    assert cluster.patch(released, {"spec": {"handOver": "Release"}}, dry_run=False) == ""
    assert words in cluster.patch(released, with_kafka4())
    ended = migration(Target.KRAFT, Phase.COMPLETED)
    assert (
        cluster.patch(
            ended, {"status": {"handOver": {"guarded": True, "endedAt": "2026-01-01T00:00:00Z"}}}, dry_run=False
        )
        == ""
    )
    assert words in cluster.patch(ended, with_kafka4())
    there = migration(Target.KRAFT, Phase.COMPLETED)
    assert cluster.patch(there, with_kafka4(), dry_run=False) == ""
    assert cluster.patch(there, in_phase(Phase.KAFKA4), dry_run=False) == ""
    assert cluster.patch(there, {"spec": {"handOver": "Release"}}) == "", "at rest with Kafka 4 it is handed over"


FIXED = [
    ("zookeeper.connect", "other:2181/kafka"),
    ("brokers.statefulSets", [{"name": "kafka"}, {"name": "more"}]),
    ("brokers.container", "broker"),
    ("brokers.configStyle", "Env"),
    ("brokers.envPrefix", "KAFKA_CFG_"),
    ("brokers.properties", {"volume": "v", "configMap": "c"}),
    ("brokers.bootstrapServers", "other:9092"),
    ("controllers.replicas", 1),
    ("controllers.firstNodeId", 4000),
    ("controllers.listener", {"securityProtocol": "PLAINTEXT"}),
    ("controllers.passwordEncoderSecret", {"name": "s", "key": "k"}),
    ("controllers.storage", {"size": "1Gi"}),
]
CHANGEABLE = [
    ("paused", True),
    ("zookeeper.secretName", "credentials"),
    ("brokers.clientConfigSecret", "client"),
    ("controllers.image", "registry.example/kafka:3.9.2"),
    ("controllers.resources", {"limits": {"memory": "2Gi"}}),
    ("controllers.tolerations", [{"operator": "Exists"}]),
    ("controllers.superUsers", ["User:admin"]),
    ("verification.executors", 2),
    ("preflight.accepted", [{"code": "X"}]),
    ("strategy.phaseDeadlineSeconds", 7200),
]


def only(path: str, value: Any) -> dict[str, Any]:
    """Return a patch of one field."""
    patch: Any = value
    for part in reversed(path.split(".")):
        patch = {part: patch}
    return dict(patch)


@pytest.mark.parametrize(("path", "value"), FIXED, ids=[path for path, _ in FIXED])
def test_what_a_migration_rests_on_is_fixed_once_it_left_preflight(
    cluster: Cluster, migration: Callable[..., str], path: str, value: Any
) -> None:
    name = migration()
    assert cluster.patch(name, {"spec": only(path, value)}) == ""
    assert cluster.patch(name, in_phase(Phase.DUAL_WRITE), dry_run=False) == ""
    assert f"spec.{path} cannot change in this phase" in cluster.patch(name, {"spec": only(path, value)})


@pytest.mark.parametrize("style", ["Env", "Properties"])
def test_the_channel_is_not_left_to_the_operator_half_way(
    cluster: Cluster, migration: Callable[..., str], style: str
) -> None:
    brokers = {**SPEC["brokers"], "configStyle": style, "properties": {"volume": "v"}}
    name = migration(phase=Phase.TAKING_OVER, spec={**SPEC, "brokers": brokers})
    words = "spec.brokers.configStyle cannot change in this phase"
    assert words in cluster.patch(name, {"spec": {"brokers": {"configStyle": "Auto"}}})
    assert words in cluster.patch(migration(phase=Phase.TAKING_OVER), {"spec": {"brokers": brokers}})


def in_status(channel: dict[str, Any] | None) -> dict[str, Any]:
    return {"status": {"channel": channel}}


FOUND = {"configStyle": "Env", "envPrefix": "KAFKA_", "volume": "", "key": "", "fingerprint": "a"}


@pytest.mark.parametrize(
    "changed",
    [
        None,
        {"envPrefix": "KAFKA_CFG_"},
        {"configStyle": "Properties", "volume": "config", "key": "server.properties"},
        {"envPrefix": None},
        {"key": "other"},
    ],
)
def test_the_channel_that_was_found_stays_until_the_migration_is_at_rest(
    cluster: Cluster, migration: Callable[..., str], changed: dict[str, Any] | None
) -> None:
    name = migration()
    assert cluster.patch(name, in_status(FOUND), dry_run=False) == ""
    assert cluster.patch(name, in_status(changed)) == "", "preflight may choose again"
    assert cluster.patch(name, in_phase(Phase.DUAL_WRITE), dry_run=False) == ""
    assert "status.channel cannot change while a migration is under way" in cluster.patch(name, in_status(changed))
    assert cluster.patch(name, in_status({"fingerprint": "b", "provenBy": "copies"})) == ""
    back = migration(Target.ZOOKEEPER, Phase.ROLLED_BACK)
    assert cluster.patch(back, in_status(FOUND), dry_run=False) == ""
    assert cluster.patch(back, in_status(changed)) == "", "another attempt may choose again"


def test_a_channel_that_the_user_names_binds_no_status(cluster: Cluster, migration: Callable[..., str]) -> None:
    """An operator of an earlier release writes no channel, and must be able to go on."""
    name = migration(spec=with_field("brokers.configStyle", "Env"))
    assert cluster.patch(name, in_status(FOUND), dry_run=False) == ""
    assert cluster.patch(name, in_phase(Phase.DUAL_WRITE), dry_run=False) == ""
    assert cluster.patch(name, in_status(None)) == ""


@pytest.mark.parametrize(("path", "value"), CHANGEABLE, ids=[path for path, _ in CHANGEABLE])
def test_what_may_need_repair_half_way_can_change(
    cluster: Cluster, migration: Callable[..., str], path: str, value: Any
) -> None:
    assert cluster.patch(migration(phase=Phase.DUAL_WRITE), {"spec": only(path, value)}) == ""


def test_after_a_rollback_everything_can_change(cluster: Cluster, migration: Callable[..., str]) -> None:
    name = migration(Target.ZOOKEEPER, Phase.ROLLED_BACK)
    for path, value in FIXED:
        assert cluster.patch(name, {"spec": only(path, value)}) == ""


@pytest.mark.parametrize("listener", [{"generate": True}, {"generate": True, "securityProtocol": "SASL_SSL"}])
def test_what_the_operator_issues_needs_no_secret(
    cluster: Cluster, migration: Callable[..., str], listener: dict[str, Any]
) -> None:
    stored = cluster.get(PLURAL, migration(spec=with_field("controllers.listener", listener)))
    assert stored["spec"]["controllers"]["listener"] | listener == stored["spec"]["controllers"]["listener"]


def test_columns(cluster: Cluster, migration: Callable[..., str]) -> None:
    name = migration()
    now = "2026-01-01T00:00:00Z"
    conditions = [
        {"type": kind, "status": status, "reason": reason, "lastTransitionTime": now}
        for kind, status, reason in [("Ready", "False", "DeadlineExceeded"), ("MetadataConsistent", "True", "Consistent"),
                                     ("Stalled", "True", "DeadlineExceeded"), ("RollbackPossible", "True", "NothingChanged")]
    ]  # fmt: skip
    status = {
        "phase": "RollingBrokers", "message": "waiting for kafka-1", "conditions": conditions,
        "brokers": {"total": 3, "inMode": 2, "mode": "KRaft", "summary": "2/3"},
    }  # fmt: skip
    cluster.do("patch", PLURAL, name, "--subresource=status", "--type=merge", "--patch", json.dumps({"status": status}))
    header, row = cluster.do("get", PLURAL, name).splitlines()
    assert header.split() == ["NAME", "PHASE", "TARGET", "BROKERS", "CONSISTENT", "READY", "AGE"]
    assert row.split()[:6] == [name, "RollingBrokers", "KRaftBrokers", "2/3", "True", "False"]
    wide = cluster.do("get", PLURAL, "--output", "wide")
    assert "waiting for kafka-1" in wide
    assert "DeadlineExceeded" in wide
    cluster.do("wait", PLURAL, name, "--for=condition=MetadataConsistent", "--timeout=5s")
    cluster.do("wait", PLURAL, name, "--for=jsonpath={.status.phase}=RollingBrokers", "--timeout=5s")


def test_one_condition_per_type(cluster: Cluster, migration: Callable[..., str]) -> None:
    condition = {
        "type": "Ready",
        "status": "False",
        "reason": "Progressing",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    patch = json.dumps({"status": {"conditions": [condition, condition]}})
    answer = cluster.refused("patch", PLURAL, migration(), "--subresource=status", "--type=merge", "--patch", patch)
    assert "Duplicate value" in answer


def test_explain_shows_the_docstrings(cluster: Cluster) -> None:
    text = MigrationSpec.model_fields["paused"].description
    assert text
    shown = cluster.do("explain", "kafkamigrations.spec.paused", f"--api-version={GROUP}/v1alpha1")
    assert " ".join(text.split()) in " ".join(shown.split())
