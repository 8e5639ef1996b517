"""The rehearsal's objects: restricted, in memory, owned, without a token, with the real controllers' configuration and without their secrets."""

from __future__ import annotations

import base64
import gzip
from dataclasses import replace
from typing import Any

import pytest
from pydantic import TypeAdapter
from tests.support.observations import spec_document

from kraftbridge.builders import rehearsal as builder
from kraftbridge.builders.controllers import ControllersFacts
from kraftbridge.builders.pods import NO_MESH
from kraftbridge.constants import LABEL_RUN
from kraftbridge.models.rehearsal import (
    BROKERS_KEY,
    PLAN_KEY,
    PROPERTIES_KEY,
    REQUEST_KEY,
    RehearsalRequest,
    RehearsedSettings,
)
from kraftbridge.models.spec import MigrationSpec

CONTROLLERS = ControllersFacts(
    namespace="kafka",
    migration="demo",
    name="demo-kraft-12345678",
    cluster_domain="cluster.local",
    cluster_id="",
    broker_settings={"inter.broker.protocol.version": "3.9-IV0", "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"},
    operator_image="operator:1",
    operator_namespace="kraftbridge",
    broker_selectors=({"matchLabels": {"app": "kafka"}},),
)  # fmt: skip
FACTS = builder.RehearsalFacts("demo-12345678-rehearsal-1", "12345678-uid", "verifier:1", CONTROLLERS)


def spec(**changes: Any) -> MigrationSpec:
    controllers = {
        "listener": {"securityProtocol": "SSL", "secretName": "listener"},
        "passwordEncoderSecret": {"name": "encoder", "key": "secret"},
    }
    zookeeper = {"connect": "zk-0:2181/kafka", "secretName": "zookeeper"}
    document = spec_document(controllers=controllers, zookeeper=zookeeper, rehearsal={"enabled": True})
    return MigrationSpec.model_validate(document | changes)


def pod(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = builder.job(spec(**changes), FACTS)["spec"]["template"]["spec"]
    return found


def containers() -> list[dict[str, Any]]:
    return [*pod()["initContainers"], *pod()["containers"]]


def test_the_pod_keeps_to_the_restricted_standard() -> None:
    security = pod()["securityContext"]
    assert security["runAsNonRoot"]
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod()["automountServiceAccountToken"] is False
    for container in containers():
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def test_everything_is_in_memory_and_secrets_reach_our_containers_only() -> None:
    volumes = {v["name"]: v for v in pod()["volumes"]}
    assert volumes["work"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "4Gi"}
    assert set(volumes) == {"work", "request", "zookeeper", "password-encoder", "listener"}
    for container in containers():
        mounted = {m["name"] for m in container["volumeMounts"]}
        reads = container["name"] in {"read", "rehearsal"}
        tries_the_fence = container["name"] == "fence"
        expected = set(volumes) if reads else {"work", "request"} if tries_the_fence else {"work"}
        assert mounted == expected, container["name"]


def test_no_container_of_kafkas_image_starts_before_the_fence_is_proven() -> None:
    """Kubernetes starts the init containers one after another, and the others once all of them have ended well."""
    steps = [(c["name"], c["image"], c["command"][3]) for c in pod()["initContainers"]]
    assert steps == [("read", "verifier:1", "read"), ("fence", "verifier:1", "fence")]


def test_kafka_runs_in_the_controllers_image_and_waits_to_be_told() -> None:
    images = {c["name"]: c["image"] for c in containers()}
    assert images == {
        "read": "verifier:1",
        "fence": "verifier:1",
        "rehearsal": "verifier:1",
        "zookeeper": spec().controllers.image,
        "controller": spec().controllers.image,
    }
    assert all(c["command"] == ["sh", "/rehearsal/runner.sh"] for c in containers() if c["image"] != "verifier:1")


def test_the_plan_of_the_rolling_restarts_is_beside_the_request() -> None:
    assert PLAN_KEY not in builder.config_map(spec(), FACTS)["data"]
    planned = builder.config_map(spec(), replace(FACTS, plan=("one", "two")))["data"]
    assert planned[PLAN_KEY] == "one\ntwo"
    assert planned[REQUEST_KEY] == builder.config_map(spec(), FACTS)["data"][REQUEST_KEY]


BROKERS = tuple(
    RehearsedSettings(broker=broker, image=image, settings={"num.io.threads": "2"})
    for broker, image in enumerate(("cp-kafka:7.9", "cp-kafka:7.9", "own-kafka:3"))
)
WITH_BROKERS = replace(FACTS, brokers=BROKERS, pull_secrets=("registry",))


def test_brokers_run_in_their_own_images_without_secrets_and_are_told_by_name() -> None:
    pod = builder.job(spec(), WITH_BROKERS)["spec"]["template"]["spec"]
    found = {c["name"]: c for c in pod["containers"]}
    assert {name: c["image"] for name, c in found.items() if name.startswith("broker-")} == {
        "broker-0": "cp-kafka:7.9",
        "broker-1": "own-kafka:3",
    }
    names = {name: {e["name"]: e["value"] for e in c.get("env", ())}.get("NAMES") for name, c in found.items()}
    assert names == {
        "rehearsal": None,
        "zookeeper": "zookeeper brokers/zookeeper",
        "controller": "format controller brokers/format brokers/controller",
        "broker-0": "brokers/broker-0 brokers/broker-1",
        "broker-1": "brokers/broker-2",
    }
    assert [m["name"] for m in found["broker-0"]["volumeMounts"]] == ["work"]
    assert found["broker-0"]["securityContext"] == found["controller"]["securityContext"]
    assert pod["imagePullSecrets"] == [{"name": "registry"}]


def test_the_brokers_settings_are_packed_into_the_request() -> None:
    packed = builder.config_map(spec(), WITH_BROKERS)["binaryData"][BROKERS_KEY]
    text = gzip.decompress(base64.b64decode(packed))
    assert tuple(TypeAdapter(list[RehearsedSettings]).validate_json(text)) == BROKERS
    assert builder.config_map(spec(), FACTS)["binaryData"] == {}


def test_other_settings_of_a_broker_are_rehearsed_again() -> None:
    changed = (BROKERS[0].model_copy(update={"settings": {"num.io.threads": "8"}}), *BROKERS[1:])
    digests = {builder.fingerprint(spec(), CONTROLLERS, "", brokers) for brokers in ((), BROKERS, changed)}
    assert len(digests) == 3


def test_the_request_is_whole_and_holds_no_secret() -> None:
    data = builder.config_map(spec(), FACTS)["data"]
    request = RehearsalRequest.model_validate_json(data[REQUEST_KEY])
    assert request.zookeeper.connect == "zk-0:2181/kafka"
    assert request.zookeeper.secret_path == "/etc/kraftbridge/zookeeper"
    assert request.password_encoder_secret_path == "/etc/kraftbridge/password-encoder/secret"
    assert request.listener_path == "/etc/kraftbridge/listener/listener.properties"
    assert request.release_version == "3.9-IV0"
    assert request.heap_bytes == 1 << 30
    assert "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer" in data[PROPERTIES_KEY]
    assert "zookeeper.metadata.migration.enable=true" in data[PROPERTIES_KEY]


def test_a_greater_heap_of_the_controllers_is_rehearsed_with() -> None:
    assert builder.request(spec(controllers={"heapOptions": "-Xmx6g"}), FACTS).heap_bytes == 6 << 30


def test_the_policy_selects_this_run_and_opens_nothing() -> None:
    policy = builder.network_policy(FACTS)["spec"]
    labels = builder.job(spec(), FACTS)["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"] == {n: v for n, v in labels.items() if n not in NO_MESH}
    assert labels[LABEL_RUN] == FACTS.run_id
    assert (policy["policyTypes"], policy["ingress"], policy["egress"]) == (["Ingress", "Egress"], [], [])


def test_everything_goes_with_the_migration_and_the_job_ends_by_itself() -> None:
    for obj in (builder.config_map(spec(), FACTS), builder.job(spec(), FACTS), builder.network_policy(FACTS)):
        assert [o["uid"] for o in obj["metadata"]["ownerReferences"]] == ["12345678-uid"]
        assert len(obj["metadata"]["name"]) <= 63
    job = builder.job(spec(rehearsal={"enabled": True, "timeoutSeconds": 600}), FACTS)["spec"]
    assert (job["backoffLimit"], job["activeDeadlineSeconds"]) == (0, 720)
    assert job["ttlSecondsAfterFinished"] > 0


@pytest.mark.parametrize(
    "changed",
    [
        spec(controllers={"image": "another:1"}),
        spec(controllers={"heapOptions": "-Xmx2g"}),
        spec(controllers={"config": {"x": "y"}}),
        spec(zookeeper={"connect": "zk-0:2181/other"}),
    ],
    ids=["image", "heap", "config", "chroot"],
)
def test_the_fingerprint_moves_with_what_is_judged(changed: MigrationSpec) -> None:
    assert builder.fingerprint(changed, CONTROLLERS, "") != builder.fingerprint(spec(), CONTROLLERS, "")


def test_the_fingerprint_moves_with_annotation_and_brokers_and_not_with_what_a_rehearsal_calls_for() -> None:
    before = builder.fingerprint(spec(), CONTROLLERS, "")
    assert builder.fingerprint(spec(), CONTROLLERS, "again") != before
    older = replace(
        CONTROLLERS, broker_settings={**CONTROLLERS.broker_settings, "inter.broker.protocol.version": "3.7"}
    )
    assert builder.fingerprint(spec(), older, "") != before, (
        "its substitutes of brokers support another metadata.version"
    )
    assert builder.fingerprint(spec(), replace(CONTROLLERS, minimum_batch_size=2000), "") == before
    given = spec(controllers={**spec_document()["controllers"], "config": {builder.BATCH_SIZE: "500"}})
    assert builder.rehearsed_settings(given, CONTROLLERS)[builder.BATCH_SIZE] == "500"
