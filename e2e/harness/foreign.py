"""A ZooKeeper-based Kafka cluster that a user operates: plain StatefulSets, created with ``kubectl apply``."""

import copy
import json
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from string import Template
from typing import Any

import yaml
from e2e.harness.kube import DOMAIN, KAFKA_IMAGE, MANIFESTS, Kube, eventually
from e2e.harness.security import FILES, Authority, Data, Secured, Security, trust_controllers

BROKERS = 3
_PROTOCOL = re.compile("KAFKA_INTER_BROKER_PROTOCOL_VERSION|inter.broker.protocol.version")


class Style(StrEnum):
    """How the brokers get their configuration."""

    ENV = "Env"
    PROPERTIES = "Properties"


def of_release(manifest: str, release: str) -> str:
    """Return the brokers' manifest with a former release of Kafka, whose own protocol version is in force."""
    lines = manifest.replace(KAFKA_IMAGE, f"{KAFKA_IMAGE.partition(':')[0]}:{release}").splitlines()
    kept = [line for line in lines if not _PROTOCOL.search(line)]
    # Kafka before 3.0 takes KAFKA_PORT, which Kubernetes sets for a Service of this name, for a setting.
    grace = next(number for number, line in enumerate(kept) if "terminationGracePeriodSeconds" in line)
    kept.insert(grace, kept[grace].partition("termination")[0] + "enableServiceLinks: false")
    return "\n".join(kept) + "\n"


@dataclass(frozen=True)
class ForeignCluster:
    """One such cluster: ZooKeeper (1), brokers (3, two log directories each), and a pod for its users' tools."""

    kube: Kube
    namespace: str
    style: Style = Style.ENV
    prefix: str = ""
    security: Security | None = None
    """How its connections are secured; None: everything is plain text."""
    release: str = ""
    """The former release of Kafka that the brokers run; empty for the one that a migration starts from."""
    split: bool = False
    """Whether the last broker has a StatefulSet of its own, as brokers of another rack or disk size often have."""

    @property
    def brokers(self) -> str:
        """The brokers' StatefulSet, of all but the last broker where they are split."""
        return f"{self.prefix}kafka"

    @property
    def stateful_sets(self) -> dict[str, range]:
        """The ordinals of each of the brokers' StatefulSets; they are the broker ids."""
        if not self.split:
            return {self.brokers: range(BROKERS)}
        return {self.brokers: range(BROKERS - 1), f"{self.brokers}-last": range(BROKERS - 1, BROKERS)}

    @property
    def broker_pods(self) -> list[str]:
        """The brokers' pods, by broker id."""
        return [f"{name}-{ordinal}" for name, ordinals in self.stateful_sets.items() for ordinal in ordinals]

    @property
    def zookeeper(self) -> str:
        """ZooKeeper's StatefulSet."""
        return f"{self.prefix}zookeeper"

    @property
    def zookeeper_connect(self) -> str:
        """The brokers' ``zookeeper.connect``, with its chroot."""
        return f"{self.zookeeper}-0.{self.zookeeper}:{self.secured.zookeeper_port if self.secured else 2181}/kafka"

    @cached_property
    def secured(self) -> Secured | None:
        """What its user wrote to secure it; None if everything is plain text."""
        if self.security is None:
            return None
        return Secured(self.security, self.namespace, self.prefix, tuple(self.broker_pods), Authority())

    @property
    def bootstrap(self) -> str:
        """The brokers' addresses inside the cluster."""
        return ",".join(f"{pod}.{self.brokers}-headless:9092" for pod in self.broker_pods)

    @property
    def placeholders(self) -> dict[str, str]:
        """Values of the placeholders in the manifests."""
        login = self.secured.login if self.secured else ""
        return {"PREFIX": self.prefix, "BOOTSTRAP": self.bootstrap, "LOGIN": login, "DOMAIN": DOMAIN}

    def up(self) -> None:
        """Bring it up in a fresh namespace and wait until every pod is ready."""
        self.kube.claim_namespace(self.namespace)
        self.add()

    def add(self) -> None:
        """Create the cluster in an existing namespace."""
        if self.secured:
            self.apply_secrets(self.secured.secrets() | self.secured.migration_secrets())
        self._apply("zookeeper.yaml", "services.yaml", "clients.yaml")
        self.kube.rollout_complete(f"statefulset/{self.zookeeper}", self.namespace, timeout_s=180)
        for command in self.secured.first_users(self.zookeeper_connect) if self.secured else ():
            self.kube.kubectl("exec", "-n", self.namespace, f"{self.zookeeper}-0", "--", *command)
        self.kube.apply(self.brokers_manifest(), self.namespace)
        for name in self.stateful_sets:
            self.kube.rollout_complete(f"statefulset/{name}", self.namespace, timeout_s=300)
        self.kube.kubectl(
            "wait", "-n", self.namespace, f"pod/{self.prefix}clients", "--for=condition=Ready", "--timeout=120s"
        )

    def trust_controllers(self, secret: str) -> None:
        """Give the brokers the login that the operator issued, in one rolling restart."""
        documents = list(yaml.safe_load_all(self.brokers_manifest()))
        trust_controllers(documents, secret)
        self.kube.apply(yaml.safe_dump_all(documents, sort_keys=False), self.namespace)
        for name in self.stateful_sets:
            self.kube.rollout_complete(f"statefulset/{name}", self.namespace, timeout_s=300)

    def down(self) -> None:
        """Delete the namespace and all of its objects."""
        self.kube.remove_namespace(self.namespace)

    def seed(self, *, single_replica_topic: bool = False) -> dict[str, Any]:
        """Fill it with metadata of every kind; return how much there is."""
        option = ["--single-replica-topic"] if single_replica_topic else []
        return json.loads(self.run_client("seed", *option))

    def inventory(self) -> dict[str, Any]:
        """Return all metadata as the brokers serve it."""
        return json.loads(self.run_client("inventory"))

    def zookeeper_sessions(self) -> list[str]:
        """Return the sessions that ZooKeeper has, one line each."""
        tls = ["--tls", FILES] if self.security is Security.TLS else []
        port = self.zookeeper_connect.partition(":")[2].partition("/")[0]
        return json.loads(
            self.run_client("zookeeper_sessions", f"{self.zookeeper}-0.{self.zookeeper}", "--port", port, *tls)
        )

    def edit_partition(self) -> str:
        """Give a partition another leader epoch in ZooKeeper alone; return which."""
        return json.loads(self.run_client("edit_partition", self.zookeeper_connect))

    def plant_quota(self) -> str:
        """Plant a quota in ZooKeeper with which Kafka sticks after the takeover; return its znode."""
        return json.loads(self.run_client("edit_quota", "plant", self.zookeeper_connect))

    def mend_quota(self) -> None:
        """Take the planted quota out of its znode."""
        self.run_client("edit_quota", "mend", self.zookeeper_connect)

    def plant_dynamic_settings(self) -> str:
        """Raise a thread pool of all brokers in steps that Kafka takes, to more than it takes at a KRaft start.

        Returns
        -------
        The setting and its value. The static value is Kafka's default, 1.
        """
        setting = "num.replica.fetchers=4"
        for step in ("num.replica.fetchers=2", setting):
            self.run_client("alter_defaults", step)
        return setting

    def pods_with_zookeeper_session(self) -> list[str]:
        """Return the pods of this namespace that have a ZooKeeper session: while a broker does, it is still needed."""
        addresses = {
            pod["status"].get("podIP"): pod["metadata"]["name"] for pod in self.kube.list("pods", self.namespace)
        }
        callers = (line.lstrip("/").rsplit(":", 1)[0] for line in self.zookeeper_sessions())
        return sorted(addresses[address] for address in callers if address in addresses)

    def stop_zookeeper(self) -> None:
        """Scale ZooKeeper to zero and wait until its pod is gone."""
        self.kube.kubectl("scale", "-n", self.namespace, f"statefulset/{self.zookeeper}", "--replicas=0")
        eventually(
            lambda: self.kube.get("pod", f"{self.zookeeper}-0", self.namespace) is None, "ZooKeeper's pod is gone", 120
        )

    def prove_serving(self) -> dict[str, str]:
        """Use the cluster in every way that a user would; return check to "ok" or what went wrong."""
        # The exit code says the same as the answer, and would hide it.
        return json.loads(self.run_client("prove_serving", "--exit-zero"))

    def run_client(self, program: str, *arguments: str) -> str:
        """Run one of the clients' programs in the pod for tools and return what it prints."""
        return self.kube.kubectl(
            "exec", "-n", self.namespace, f"{self.prefix}clients", "--",
            "python", "-m", f"kafka_clients.{program}", *arguments,
        )  # fmt: skip

    def apply_secrets(self, contents: Data) -> None:
        """Create Secrets, or replace what they hold."""
        for name, files in contents.items():
            body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": files}
            self.kube.apply(json.dumps(body), self.namespace)

    def _apply(self, *manifests: str) -> None:
        for manifest in manifests:
            self.kube.apply(self.manifest(manifest), self.namespace)

    def brokers_manifest(self) -> str:
        """Return what the user of this cluster applied to create its brokers."""
        return self.manifest({Style.ENV: "kafka-env.yaml", Style.PROPERTIES: "kafka-properties.yaml"}[self.style])

    def manifest(self, name: str) -> str:
        """Return a manifest as it is applied in this cluster."""
        text = Template((MANIFESTS / name).read_text()).safe_substitute(self.placeholders)
        if self.release and name.startswith("kafka-"):
            text = of_release(text, self.release)
        if self.secured:
            documents = list(yaml.safe_load_all(text))
            self.secured.change(name, documents)
            text = yaml.safe_dump_all(documents, sort_keys=False)
        return self._in_sets(text) if self.split and name.startswith("kafka-") else text

    @property
    def upgrade(self) -> dict[str, Any]:
        """``spec.brokers.upgrade`` of the migration; empty where the brokers run the release that it starts from."""
        return {"upgrade": {"image": KAFKA_IMAGE}} if self.release else {}

    def _in_sets(self, manifests: str) -> str:
        """Return the brokers' manifests with one StatefulSet for each of ours."""
        documents = []
        for document in yaml.safe_load_all(manifests):
            if document["kind"] != "StatefulSet":
                documents.append(document)
                continue
            for name, ordinals in self.stateful_sets.items():
                item = copy.deepcopy(document)
                item["metadata"]["name"] = name
                item["spec"] |= {"replicas": len(ordinals), "ordinals": {"start": ordinals.start}}
                item["spec"]["selector"]["matchLabels"]["set"] = name
                item["spec"]["template"]["metadata"]["labels"]["set"] = name
                documents.append(item)
        return yaml.safe_dump_all(documents)
