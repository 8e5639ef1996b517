"""Clients that change metadata of every kind, again and again, over the brokers."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka.protocol.admin import AlterPartitionReassignmentsRequest
from kafka.protocol.admin.client_quotas import AlterClientQuotasRequest
from kafka.protocol.admin.configs import IncrementalAlterConfigsRequest

from kraftbridge.kafka.client import Security
from kraftbridge.kafka.wire import Connection

if TYPE_CHECKING:
    from tests.spark.live_cluster import LiveCluster

_BROKER_RESOURCE = 4
_SET = 0
_STALE_CONTROLLER_EPOCH = 11
MOST_TOPICS = 60
"""Of one client: brokers with small heaps must bear them all, for as long as a test lasts."""


class Changes:
    """One change each, answered before the method returns."""

    def __init__(self, cluster: LiveCluster, seed: int) -> None:
        self.cluster = cluster
        self.random = random.Random(seed)

    def topics(self, new: Sequence[NewTopic]) -> None:
        for future in self.cluster.admin.create_topics(list(new)).values():
            future.result(150)

    def remove_topics(self, names: Sequence[str]) -> None:
        for future in self.cluster.admin.delete_topics(list(names)).values():
            future.result(150)

    def one_more_partition(self, topic: str) -> None:
        admin = self.cluster.admin
        partitions = admin.list_topics(topic, timeout=10).topics[topic].partitions
        for future in admin.create_partitions([NewPartitions(topic, len(partitions) + 1)]).values():
            future.result(150)

    def reassign(self, topic: str, replicas: Sequence[int]) -> None:
        """Give partition 0 of a topic its replicas in this order."""
        request = AlterPartitionReassignmentsRequest
        partition = request.ReassignableTopic.ReassignablePartition(partition_index=0, replicas=list(replicas))
        topics = [request.ReassignableTopic(name=topic, partitions=[partition])]
        response = self._call(request, version=0, timeout_ms=20_000, topics=topics)
        if response.error_code or any(each.error_code for each in response.responses[0].partitions):
            raise RuntimeError(f"reassignment of {topic}: {response}")

    def scram(self, user: str) -> None:
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        password = str(self.random.random()).encode()
        self._scram(UserScramCredentialUpsertion(user, info, password=password))

    def remove_scram(self, user: str) -> None:
        self._scram(UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_256))

    def _scram(self, change: UserScramCredentialUpsertion | UserScramCredentialDeletion) -> None:
        for future in self.cluster.admin.alter_user_scram_credentials([change]).values():
            future.result(150)

    def quota(self, entity: dict[str, str | None], key: str, value: float | None) -> None:
        """Set a quota, or remove it where the value is None."""
        request = AlterClientQuotasRequest
        entry = request.EntryData
        parts = [entry.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()]
        operation = entry.OpData(key=key, value=value or 0.0, remove=value is None)
        entries = [entry(entity=parts, ops=[operation])]
        response = self._call(request, version=0, entries=entries, validate_only=False)
        if any(result.error_code for result in response.entries):
            raise RuntimeError(f"quota of {entity}: {response}")

    def acl(self, resource: str, principal: str, pattern: ResourcePatternType) -> None:
        binding = AclBinding(
            ResourceType.TOPIC, resource, pattern, principal, "*", AclOperation.READ, AclPermissionType.ALLOW
        )
        for future in self.cluster.admin.create_acls([binding]).values():
            future.result(150)

    def remove_acl(self, resource: str) -> None:
        which = AclBindingFilter(
            ResourceType.TOPIC, resource, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
        )
        for future in self.cluster.admin.delete_acls([which]).values():
            future.result(150)

    def broker_config(self, broker: str, name: str, value: str) -> None:
        """Over the wire: librdkafka refuses the empty name of the cluster-wide default."""
        request = IncrementalAlterConfigsRequest
        resource = request.AlterConfigsResource
        change = resource.AlterableConfig(name=name, config_operation=_SET, value=value)
        resources = [resource(resource_type=_BROKER_RESOURCE, resource_name=broker, configs=[change])]
        deadline = time.monotonic() + 30
        while True:
            response = self._call(request, int(broker or 0), version=1, resources=resources, validate_only=False)
            codes = {result.error_code for result in response.responses}
            if codes == {0}:
                return
            # A restarted broker tries ZooKeeper itself until the controller has told it of KRaft (KafkaApis, ZkAdminManager).
            if codes != {_STALE_CONTROLLER_EPOCH} or time.monotonic() > deadline:
                raise RuntimeError(f"config of broker {broker!r}: {response}")
            time.sleep(0.2)

    def topic_config(self, topic: str, name: str, value: str) -> None:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        resource.add_incremental_config(ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET))
        for future in self.cluster.admin.incremental_alter_configs([resource]).values():
            future.result(150)

    def _call(self, request: Any, broker: int | None = None, *, version: int, **fields: Any) -> Any:
        ports = self.cluster.processes.broker_ports
        port = ports[min(ports) if broker is None else broker]
        with Connection("127.0.0.1", port, Security(), 20.0) as wire:
            return wire.call(request, 20.0, min_version=version, max_version=version, **fields)


class Churn(Changes):
    """A client that changes something of a random kind as fast as it is answered, and counts."""

    def __init__(self, cluster: LiveCluster, seed: int) -> None:
        super().__init__(cluster, seed)
        self.counts: Counter[str] = Counter()
        self.errors: list[str] = []
        self._seed = seed
        self._stop = threading.Event()
        self._topics: list[str] = []
        self._number = 0
        self._steps = {
            "create": self._create,
            "delete": lambda: self.remove_topics([self._topics.pop(0) for _ in range(3)]),
            "grow": lambda: self.one_more_partition(self._topic()),
            "config": lambda: self.topic_config(self._topic(), "retention.ms", str(self._amount())),
            "reorder": lambda: self.reassign(
                self._topic(), self.random.sample(list(cluster.processes.broker_ports), 2)
            ),
            "acl": lambda: self.acl(self._topic(), f"User:u{self._number % 7}", ResourcePatternType.LITERAL),
            "no-acl": lambda: self.remove_acl(self._topic()),
            "client quota": self._client_quota,
            "user quota": self._user_quota,
            "broker config": lambda: self.broker_config("0", "log.retention.ms", str(self._amount())),
            "scram": lambda: self.scram(f"user-{self._seed}-{self._number % 5}"),
            "no-scram": self._no_scram,
        }

    def _topic(self) -> str:
        return self.random.choice(self._topics)

    def _amount(self) -> int:
        return self.random.randrange(10**6, 10**9)

    def _create(self) -> None:
        names = [f"churn-{self.random.getrandbits(24)}-{self._number}-{i}" for i in range(5)]
        self.topics([NewTopic(name, 6, 2) for name in names])
        self._topics += names

    def _client_quota(self) -> None:
        # Never removed wholly: Kafka then loses the removal in dual-write, which is another test.
        entity: dict[str, str | None] = self.random.choice(
            [{"client-id": f"client-{self._number % 11}"}, {"user": "alice", "client-id": f"c-{self._number % 3}"}]
        )
        self.quota(entity, "producer_byte_rate", self._amount())

    def _user_quota(self) -> None:
        value = None if self._number % 3 == 0 else float(self._amount())
        self.quota({"user": f"quota-{self._seed}-{self._number % 4}"}, "consumer_byte_rate", value)

    def _no_scram(self) -> None:
        user = f"user-{self._seed}-gone"
        self.scram(user)
        self.remove_scram(user)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._number += 1
            kind = self.random.choice(list(self._steps))
            if len(self._topics) < 5:
                kind = "create"
            elif len(self._topics) > MOST_TOPICS:
                kind = "delete"
            try:
                self._steps[kind]()
                self.counts[kind] += 1
            except Exception as error:  # noqa: BLE001 - brokers restart meanwhile
                self.errors.append(f"{kind}: {error!r}"[:200])
                time.sleep(0.2)

    @contextmanager
    def going_on(self) -> Iterator[Churn]:
        """Change things in a thread of its own until the block ends."""
        self._stop.clear()
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join(60)


@contextmanager
def churning(cluster: LiveCluster, clients: int) -> Iterator[list[Churn]]:
    """Let several clients change metadata until the block ends."""
    churns = [Churn(cluster, seed) for seed in range(clients)]
    with ExitStack() as stack:
        for churn in churns:
            stack.enter_context(churn.going_on())
        yield churns
