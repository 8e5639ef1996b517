"""Brokers without a chart, as people write them: three layouts made from what they have in common, and the published example for Bitnami's image."""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import yaml
from e2e.harness.kube import DOMAIN, REPOSITORY

IMAGE = "localhost/kraftbridge-kafka:3.9.1"
HEADLESS = "kafka-headless"
KEY = "server.properties"
VOLUME = "config"
_LABELS = {"app": "kafka"}
_START = "/opt/kafka/bin/kafka-server-start.sh"
_DOMAIN = f"{HEADLESS}.$NAMESPACE.svc.{DOMAIN}"
_SETTINGS = """listeners=PLAINTEXT://:9092
inter.broker.protocol.version=3.9
log.dirs=/data/kafka
offsets.topic.num.partitions=6
transaction.state.log.num.partitions=6
transaction.state.log.min.isr=2
group.initial.rebalance.delay.ms=0
log.cleaner.dedupe.buffer.size=8388608
"""
ZONES = {"a": 100, "b": 200, "c": 300}
"""Broker id of each zone's first pod."""
ZONE_LABEL = "topology.kubernetes.io/zone"
_ZONE_START = f"""set -e
cp /scripts/{KEY} /tmp/{KEY}
echo "broker.id=$((FIRST_ID + ${{HOSTNAME##*-}}))" >> /tmp/{KEY}
echo "advertised.listeners=PLAINTEXT://$HOSTNAME.{_DOMAIN}:9092" >> /tmp/{KEY}
exec {_START} /tmp/{KEY}
"""
_ZONE_READY = "exec 3<>/dev/tcp/127.0.0.1/9092\n"
_ID_PLACE = "#broker.id=\n"
_ID_INIT = f"""sed -e "s/^#broker.id=.*/broker.id=${{HOSTNAME##*-}}/" /template/{KEY} > /etc/kafka-broker/{KEY}
echo "advertised.listeners=PLAINTEXT://$HOSTNAME.{_DOMAIN}:9092" >> /etc/kafka-broker/{KEY}
"""


def zones(
    zookeeper: str, brokers: int = 1, nodes: Mapping[str, str] = MappingProxyType({})
) -> tuple[dict[str, Any], ...]:
    """Return a StatefulSet of so many brokers for each zone. Each mounts a ConfigMap of its own with the properties and the scripts that start and probe the broker.

    Parameters
    ----------
    nodes
        The zone of the nodes on which each zone's brokers run; anywhere by default.
    """
    objects = [_service()]
    for zone, first_id in ZONES.items():
        name = f"kafka-{zone}"
        text = f"zookeeper.connect={zookeeper}\nbroker.rack=zone-{zone}\n{_SETTINGS}"
        objects.append(_config_map(f"{name}-files", {KEY: text, "start.sh": _ZONE_START, "ready.sh": _ZONE_READY}))
        container = _container(["bash", "/scripts/start.sh"], {"name": VOLUME, "mountPath": "/scripts"})
        container["env"].append({"name": "FIRST_ID", "value": str(first_id)})
        container["readinessProbe"] = {"exec": {"command": ["bash", "/scripts/ready.sh"]}, "periodSeconds": 3}
        volume = {"name": VOLUME, "configMap": {"name": f"{name}-files"}}
        pod = {"containers": [container], "volumes": [volume]}
        if nodes:
            pod["nodeSelector"] = {ZONE_LABEL: nodes[zone]}
        objects.append(_stateful_set(name, brokers, pod, {"zone": zone}))
    return tuple(objects)


def plain_image(zookeeper: str) -> tuple[dict[str, Any], ...]:
    """Return brokers that run Kafka's own start script with one properties file, mounted by ``subPath``, and ``--override`` for what differs."""
    path = f"/opt/kafka/config/{KEY}"
    command = f"exec {_START} {path} --override broker.id=${{HOSTNAME##*-}} --override advertised.listeners=PLAINTEXT://$HOSTNAME.{_DOMAIN}:9092"
    container = _container(["sh", "-c", command], {"name": VOLUME, "mountPath": path, "subPath": KEY})
    volume = {"name": VOLUME, "configMap": {"name": "kafka-config"}}
    return (
        _service(),
        _config_map("kafka-config", {KEY: f"zookeeper.connect={zookeeper}\n{_SETTINGS}"}),
        _stateful_set("kafka", 3, {"containers": [container], "volumes": [volume]}),
    )


def id_from_init_container(zookeeper: str) -> tuple[dict[str, Any], ...]:
    """Return brokers whose init container writes the properties file, with the broker's id, from a template in a ConfigMap."""
    file = {"name": "rendered", "mountPath": "/etc/kafka-broker"}
    container = _container([_START, f"/etc/kafka-broker/{KEY}"], file)
    starter = {
        "name": "id",
        "image": IMAGE,
        "command": ["bash", "-ec", _ID_INIT],
        "env": [_namespace()],
        "volumeMounts": [{"name": VOLUME, "mountPath": "/template"}, file],
    }
    volumes = [{"name": VOLUME, "configMap": {"name": "kafka-config"}}, {"name": "rendered", "emptyDir": {}}]
    return (
        _service(),
        _config_map("kafka-config", {KEY: f"{_ID_PLACE}zookeeper.connect={zookeeper}\n{_SETTINGS}"}),
        _stateful_set("kafka", 3, {"initContainers": [starter], "containers": [container], "volumes": volumes}),
    )


def published_example(folder: str, image: str, zookeeper: str) -> tuple[dict[str, Any], ...]:
    """Return brokers and Secrets of a directory of ``examples/``, with an image and a ZooKeeper that are here, and less memory and disk."""
    objects = []
    for file in ("secrets.yaml", "kafka.yaml"):
        text = (REPOSITORY / "examples" / folder / file).read_text()
        objects += list(yaml.safe_load_all(text.replace("zookeeper-0.zookeeper:2181/kafka", zookeeper)))
    (stateful_set,) = (each for each in objects if each["kind"] == "StatefulSet")
    (container,) = stateful_set["spec"]["template"]["spec"]["containers"]
    container |= {
        "image": image,
        "resources": {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "1Gi"}},
    }
    # The load has a topic of two replicas.
    changed = {"KAFKA_HEAP_OPTS": "-Xmx320m", "KAFKA_CFG_MIN_INSYNC_REPLICAS": "1"}
    for entry in (e for e in container["env"] if e["name"] in changed):
        entry["value"] = changed[entry["name"]]
    (claim,) = stateful_set["spec"]["volumeClaimTemplates"]
    claim["spec"]["resources"]["requests"]["storage"] = "1Gi"
    return tuple(objects)


def example_migration(folder: str) -> dict[str, Any]:
    """Return ``spec`` of the KafkaMigration of a directory of ``examples/``."""
    document = yaml.safe_load((REPOSITORY / "examples" / folder / "migration.yaml").read_text())
    return dict(document["spec"])


def as_text(objects: tuple[dict[str, Any], ...]) -> str:
    """Return the objects as one manifest for ``kubectl apply``."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})


def _service() -> dict[str, Any]:
    spec = {"clusterIP": "None", "selector": _LABELS, "ports": [{"name": "client", "port": 9092}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": HEADLESS}, "spec": spec}


def _config_map(name: str, data: Mapping[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": dict(data)}


def _namespace() -> dict[str, Any]:
    return {"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}


def _container(command: list[str], mount: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "kafka",
        "image": IMAGE,
        "command": command,
        "ports": [{"name": "client", "containerPort": 9092}],
        "env": [{"name": "KAFKA_HEAP_OPTS", "value": "-Xmx256m"}, _namespace()],
        "readinessProbe": {"tcpSocket": {"port": 9092}, "periodSeconds": 3},
        "resources": {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "1Gi"}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}, mount],
    }


def _stateful_set(
    name: str, replicas: int, pod: dict[str, Any], labels: Mapping[str, str] | None = None
) -> dict[str, Any]:
    labels = {**_LABELS, **(labels or {})}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    security = {"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000}
    common = {"securityContext": security, "terminationGracePeriodSeconds": 120, "enableServiceLinks": False}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "serviceName": HEADLESS,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {**common, **pod}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
        },
    }
