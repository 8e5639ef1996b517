"""A real cluster in dual-write, with changes going on: ZooKeeper, brokers in migration mode, KRaft controllers."""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic, ResourcePatternType
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from tests.spark.churn import Changes
from tests.support.kafka_processes import CHROOT, MIGRATION, ZOOKEEPER, KafkaProcesses, kafka_processes
from tests.support.relay import Relay

from kraftbridge.models.report import BrokerAccess, Profile, VerificationRequest, VoterAccess, ZooKeeperAccess

CONTROLLERS = (3000, 3001, 3002)
BROKERS = (0, 1)
ENCODER_SECRET = "a-secret-of-this-test"
_ACLS = (
    "authorizer.class.name=kafka.security.authorizer.AclAuthorizer\n"
    "super.users=User:ANONYMOUS\nallow.everyone.if.no.acl.found=true\n"
)


class _Processes(KafkaProcesses):
    """Controllers that take ACLs, decode passwords and reach ZooKeeper through a relay."""

    heap = "640m"
    """Thousands of partitions are created and deleted: with too little, brokers are busy collecting garbage."""
    relay: Relay
    controllers_session_seconds: int
    brokers_session_seconds: int

    def tool_command(self, arguments: Sequence[str]) -> list[str]:
        """Return the command line of one of Kafka's tools: its class, then its arguments."""
        settings = self._write("tools.properties", "log4j.rootLogger=OFF\n")
        return self._command(arguments, [f"-Dlog4j.configuration=file:{settings}"])

    def _controller_properties(self, controller_id: int, mode: str) -> str:
        path = super()._controller_properties(controller_id, mode)
        text = Path(path).read_text()
        Path(path).write_text(text.replace(self.zookeeper_hosts, f"127.0.0.1:{self.relay.port}"))
        with Path(path).open("a") as file:
            file.write(
                f"zookeeper.session.timeout.ms={1000 * self.controllers_session_seconds}\n"
                f"broker.session.timeout.ms={1000 * self.brokers_session_seconds}\n"
                "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
                "super.users=User:ANONYMOUS\nallow.everyone.if.no.acl.found=true\n"
                f"password.encoder.secret={ENCODER_SECRET}\n"
            )
        return path


class LiveCluster:
    """Two brokers and three controllers, in dual-write."""

    def __init__(self, processes: _Processes) -> None:
        self.processes = processes
        self.relay = processes.relay
        self.admin: AdminClient
        self.zookeeper: KazooClient

    def start(self) -> None:
        processes = self.processes
        processes.start_zookeeper()
        for broker in BROKERS:
            processes.extra_broker_settings[broker] = _ACLS + f"password.encoder.secret={ENCODER_SECRET}\n"
            processes.start_broker(broker, ZOOKEEPER)
        self.zookeeper = KazooClient(processes.zookeeper_hosts + CHROOT)
        self.zookeeper.start(30)
        self.admin = processes.admin_client()

    def migrate(self) -> None:
        processes = self.processes
        cluster_id = json.loads(self.zookeeper.get("/cluster/id")[0])["id"]
        for controller in CONTROLLERS:
            processes.format_controller(controller, cluster_id)
        for controller in CONTROLLERS:
            processes.start_controller(controller)
        for broker in BROKERS:
            processes.stop(f"broker-{broker}")
            processes.start_broker(broker, MIGRATION)
        self.wait(lambda: self.mirrored_offset() > 0, 120)

    def mirrored_offset(self) -> int:
        if not self.zookeeper.exists("/migration"):
            return -1
        return int(json.loads(self.zookeeper.get("/migration")[0])["kraft_metadata_offset"])

    def quiet(self, seconds: float = 150.0) -> None:
        """Wait until ZooKeeper has everything: what the last change was must have been mirrored."""
        before = self.mirrored_offset()
        self.wait(lambda: self.mirrored_offset() > before + 2, seconds)

    def moves(self, seconds: float = 60.0) -> bool:
        """Return whether ZooKeeper mirrors the log again."""
        try:
            self.quiet(seconds)
        except AssertionError:
            return False
        return True

    def in_sync(self) -> bool:
        """Return whether every replica is in sync: no leader will write to a partition's state by itself."""
        return not self.out_of_sync()

    def out_of_sync(self) -> list[str]:
        """Return the partitions of which each broker tells that a replica is not in sync."""
        found = []
        for broker, port in self.processes.broker_ports.items():
            admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
            topics = admin.list_topics(timeout=60).topics
            partitions = [
                (name, partition) for name, topic in topics.items() for partition in topic.partitions.values()
            ]
            found += [
                f"broker {broker}: {name}-{partition.id} has {partition.isrs} of {partition.replicas} in sync"
                for name, partition in partitions
                if len(partition.isrs) != len(partition.replicas)
            ]
        return found

    def fail_over(self) -> None:
        """Restart controllers one by one, up to three times each, until one of them mirrors the log again."""
        for attempt in range(3):
            for controller in CONTROLLERS:
                self.processes.stop(f"controller-{controller}")
                self.processes.start_controller(controller)
            if self.moves():
                return
            print(f"dual-write stands still after {attempt + 1} restarts of all controllers")
        raise AssertionError("no controller mirrors the log again")

    def close(self) -> None:
        self.zookeeper.stop()
        self.zookeeper.close()

    @staticmethod
    def wait(condition: Callable[[], bool], seconds: float = 150.0) -> None:
        deadline = time.monotonic() + seconds
        while True:
            # A session that ended while ZooKeeper stood still; a broker that is starting.
            with contextlib.suppress(KazooException, KafkaException):
                if condition():
                    return
            if time.monotonic() > deadline:
                raise AssertionError(f"not after {seconds} s")
            time.sleep(0.2)

    def request(self, profile: Profile = Profile.DUAL_WRITE, **options: object) -> VerificationRequest:
        processes = self.processes
        brokers = [BrokerAccess(id=i, host="127.0.0.1", port=processes.broker_ports[i]) for i in BROKERS]
        return VerificationRequest(
            run_id=f"test-{random.random()}",
            profile=profile,
            zookeeper=ZooKeeperAccess(connect=processes.zookeeper_hosts + CHROOT),
            voters=[
                VoterAccess(
                    id=controller,
                    log_url=f"file://{processes.directory}/controller-{controller}",
                    host="127.0.0.1",
                    port=processes.controller_ports[controller],
                )
                for controller in CONTROLLERS
            ],
            **{"brokers": brokers, **options},
        )

    def seed(self, topics: int = 20) -> None:
        """Create some of everything."""
        churn = Changes(self, seed=1)
        new = [
            NewTopic(f"seed-{i}", 3, 2, config={"retention.ms": str(1000 + i)} if i % 2 else {}) for i in range(topics)
        ]
        churn.topics(new)
        for user in ("alice", "bob", "ünï/cödé"):
            churn.scram(user)
            churn.quota({"user": user}, "producer_byte_rate", 1e6)
        churn.quota({"user": None}, "consumer_byte_rate", 5e6)
        churn.quota({"user": "alice", "client-id": None}, "request_percentage", 77.5)
        churn.quota({"client-id": "cli 1"}, "producer_byte_rate", 3e6)
        churn.quota({"ip": "10.1.2.3"}, "connection_creation_rate", 100)
        for i in range(5):
            churn.acl(f"seed-{i}", "User:alice", ResourcePatternType.LITERAL)
        churn.acl("seed-", "User:bob", ResourcePatternType.PREFIXED)
        churn.broker_config("0", "log.cleaner.threads", "2")
        churn.broker_config("", "log.retention.ms", "172800000")


@contextmanager
def dual_write_cluster(
    *, topics: int = 20, controllers_session_seconds: int = 18, brokers_session_seconds: int = 9
) -> Iterator[LiveCluster]:
    """Give a cluster in dual-write; controllers' sessions at ZooKeeper and brokers' at the controllers end after Kafka's defaults unless told."""
    with kafka_processes(BROKERS, CONTROLLERS, _Processes) as processes:
        processes.controllers_session_seconds = controllers_session_seconds
        processes.brokers_session_seconds = brokers_session_seconds
        with Relay(processes.zookeeper_port) as processes.relay:
            cluster = LiveCluster(processes)
            cluster.start()
            try:
                cluster.seed(topics)
                cluster.migrate()
                yield cluster
            finally:
                cluster.close()
