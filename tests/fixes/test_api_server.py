"""The settings of spec and the commands of kubectl that fixes name, at a real API server."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest
import yaml
from tests.chart.live.conftest import GROUP, NAMESPACE, Cluster
from tests.fixes.registry import runs

from kraftbridge.models.catalogue import Code

SPEC_PATH = re.compile(r"spec\.([a-zA-Z0-9]+(?:\.[a-zA-Z0-9]+)*)")
SECRET = {"name": "a-secret", "key": "a-key"}
RESOURCES = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}
LISTENER = {"securityProtocol": "SSL", "secretName": "kafka-controllers"}
VALUES: dict[str, Any] = {
    "rollback.giveUpFormerImage": True,
    "target": "ZooKeeper",
    "metadataVersion": "3.9",
    "zookeeper.connect": "zookeeper-0.zookeeper:2181/chroot",
    "zookeeper.secretName": "zookeeper-client",
    "brokers": {"configStyle": "Env", "envPrefix": "KAFKA_CFG_"},
    "brokers.statefulSets": [{"name": "kafka"}, {"name": "kafka-more"}],
    "brokers.container": "kafka",
    "brokers.metrics": {"port": 9404},
    "brokers.upgrade": {"image": "apache/kafka:3.9.2"},
    "brokers.properties": {"volume": "config", "key": "server.properties"},
    "brokers.properties.volume": "config",
    "brokers.bootstrapServers": "kafka-0.kafka:9092",
    "brokers.clientConfigSecret": "kafka-client",
    "brokers.configStyle": "Env",
    "controllers": {"replicas": 3, "resources": RESOURCES},
    "kafka4": {"image": "apache/kafka:4.3.1"},
    "controllers.image": "apache/kafka:3.9.2",
    "controllers.replicas": 3,
    "controllers.firstNodeId": 4000,
    "controllers.config": {"metadata.log.max.snapshot.interval.ms": "60000"},
    "controllers.heapOptions": "-Xmx1024m",
    "controllers.resources": RESOURCES,
    "controllers.superUsers": ["User:kafka"],
    "controllers.passwordEncoderSecret": SECRET,
    "controllers.storage.size": "10Gi",
    "controllers.storage.storageClassName": "standard",
    "controllers.listener.securityProtocol": "SSL",
    "controllers.listener.secretName": "kafka-controllers",
    "pods.labels": {"team": "a"},
    "pods.helperResources": RESOURCES,
    "verification": {"executors": 0, "driverMemory": "768m", "coreRequest": "50m"},
    "verification.runner": "Job",
    "verification.compareServed": "Always",
    "rehearsal.enabled": True,
    "rollback.acceptLoss": True,
    "controllers.reformat": {"id": 3002, "claimUID": "6f1f6c02-9d0c-4d5e-8a37-6f0a3f0c6a11"},
    "strategy.terminationGraceSeconds": 600,
}
"""What a fix may tell to set, and a value of it."""
SPEC_CODES = tuple(code for code in Code if SPEC_PATH.search(code.fix))


def with_values(paths: list[str]) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "zookeeper": {"connect": "zookeeper:2181/kafka"},
        "brokers": {"statefulSets": [{"name": "kafka"}], "bootstrapServers": "kafka:9092"},
    }
    for path in paths:
        *parents, last = path.split(".")
        node = spec
        for part in parents:
            node = node.setdefault(part, {})
        value = VALUES[path]
        node[last] = {**node.get(last, {}), **value} if isinstance(value, dict) else value
    if "properties" in spec["brokers"]:
        spec["brokers"] |= {"configStyle": "Properties"}
        spec["brokers"]["properties"] |= {"volume": "config", "key": "server.properties"}
    if "listener" in spec.get("controllers", {}):
        spec["controllers"]["listener"] = LISTENER
    return spec


@runs(*SPEC_CODES)
@pytest.mark.parametrize("code", SPEC_CODES)
def test_the_api_server_takes_the_settings_of_the_fix(code: Code, cluster: Cluster) -> None:
    """Strict: an API server otherwise drops a field that the CRD does not have."""
    manifest = {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "KafkaMigration",
        "metadata": {"name": "fix", "namespace": NAMESPACE},
        "spec": with_values(SPEC_PATH.findall(code.fix)),
    }
    cluster.do("create", "--dry-run=server", "--validate=strict", "--filename", "-", stdin=yaml.safe_dump(manifest))


def kubectl(cluster: Cluster, line: str) -> str:
    """Run a command as somebody who copied it."""
    environment = {**cluster.environment, "NAMESPACE": NAMESPACE}
    options = f"--context {cluster.context} " if cluster.context else ""
    line = line.replace("kubectl ", f"{cluster.kubectl_binary} {options}--namespace {NAMESPACE} ", 1)
    done = subprocess.run(
        ["/bin/sh", "-c", line], capture_output=True, text=True, check=False, env=environment, timeout=60
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout


def container(**env: Any) -> dict[str, Any]:
    return {
        "name": "kafka",
        "image": "example.com/kafka",
        "env": [{"name": name, **value} for name, value in env.items()],
    }


def stateful_set(name: str, **env: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container(**env)]}}
    return {
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name},
        "spec": {"replicas": 0, "serviceName": name, "selector": {"matchLabels": {"app": name}}, "template": template},
    }  # fmt: skip


@runs(Code.LOCKED_BY_ANOTHER, Code.STATEFUL_SET_MISSING, Code.ZOOKEEPER_CLIENTS_OF_OTHERS, Code.BROKERS_NOT_READY)
def test_commands_show_what_they_promise(cluster: Cluster) -> None:
    cluster.apply(stateful_set("shown"))
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "waits"}, "spec": {"containers": [container()]}}
    cluster.apply(pod)
    migration = with_values([])
    cluster.apply(
        {"apiVersion": f"{GROUP}/v1alpha1", "kind": "KafkaMigration", "metadata": {"name": "other"}, "spec": migration}
    )
    shown = {
        Code.LOCKED_BY_ANOTHER: "other",
        Code.STATEFUL_SET_MISSING: "shown",
        Code.ZOOKEEPER_CLIENTS_OF_OTHERS: "waits",
        Code.BROKERS_NOT_READY: "waits",
    }
    for code, name in shown.items():
        (line,) = code.commands()
        if code is Code.LOCKED_BY_ANOTHER:
            line = line.replace("kafkamigrations", f"kafkamigrations.{GROUP}")  # the test's own group
        assert name in kubectl(cluster, line.replace("NAME", name))


@runs(Code.SETTING_FROM_REFERENCE)
def test_a_line_takes_the_place_of_a_reference(cluster: Cluster) -> None:
    reference = {"valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}
    cluster.apply(stateful_set("referring", KAFKA_ZOOKEEPER_CONNECT=reference))
    value = {"spec": {"template": {"spec": {"containers": [container(KAFKA_ZOOKEEPER_CONNECT={"value": "x"})]}}}}
    refused = cluster.refused(
        "patch", "statefulset", "referring", "--type", "strategic", "--patch", yaml.safe_dump(value)
    )
    assert "may not be specified when `value` is not empty" in refused
    cluster.apply(stateful_set("referring", KAFKA_ZOOKEEPER_CONNECT={"value": "zookeeper:2181"}))
    (env,) = cluster.get("statefulset", "referring")["spec"]["template"]["spec"]["containers"][0]["env"]
    assert env == {"name": "KAFKA_ZOOKEEPER_CONNECT", "value": "zookeeper:2181"}


@runs(Code.DISRUPTION_BUDGET_FORBIDS_ALL, Code.SEVERAL_DISRUPTION_BUDGETS)
def test_a_budget_lets_one_broker_go(cluster: Cluster) -> None:
    budget = {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "kafka"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "kafka"}}},
    }  # fmt: skip
    cluster.apply(budget, budget | {"metadata": {"name": "another"}})
    cluster.do("patch", "poddisruptionbudget", "kafka", "--type", "merge", "--patch", '{"spec": {"maxUnavailable": 1}}')
    assert cluster.get("poddisruptionbudget", "kafka")["spec"]["maxUnavailable"] == 1
    cluster.do("delete", "poddisruptionbudget", "another")
