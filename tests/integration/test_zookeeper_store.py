"""ZooKeeperStore against a real ZooKeeper: TLS, authentication, lost sessions, unreadable znodes, the end of a rollback."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import ACL, make_acl, make_digest_acl
from tests.integration.certificates import Authority, Certificate
from tests.support.kafka_processes import CHROOT, KafkaProcesses, kafka_processes, wait_for
from tests.support.programs import free_port

from kraftbridge.exceptions import ActionError, ConflictError, ObservationError
from kraftbridge.metadata.zookeeper.session import ZooKeeperCredentials
from kraftbridge.models.observation import MigrationZnode, Unobserved
from kraftbridge.storage.zookeeper import ZooKeeperStore, ZooKeeperTls

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kafka-processes")]

AUTHORITY = Authority()


@pytest.fixture(autouse=True)
def _looks_twice_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraftbridge.storage.zookeeper._STATE_PAUSE_SECONDS", 0.0)


@pytest.fixture(scope="module")
def tls_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def client_certificate() -> Certificate:
    return AUTHORITY.issue("operator")


@pytest.fixture(scope="module")
def processes(tls_port: int) -> Iterator[KafkaProcesses]:
    with kafka_processes([], []) as running:
        server = AUTHORITY.issue("zookeeper")
        keys, trust = Path(running.directory / "zookeeper.pem"), Path(running.directory / "authority.pem")
        keys.write_text(server.key + server.certificate)
        trust.write_text(AUTHORITY.certificate)
        running.start_zookeeper(
            {
                "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
                "secureClientPort": str(tls_port),
                "secureClientPortAddress": "127.0.0.1",
                "ssl.keyStore.location": str(keys),
                "ssl.keyStore.type": "PEM",
                "ssl.trustStore.location": str(trust),
                "ssl.trustStore.type": "PEM",
            }
        )
        yield running


@pytest.fixture
def admin(processes: KafkaProcesses) -> Iterator[KazooClient]:
    """A client that makes the znodes of a test and leaves none."""
    client = KazooClient(processes.zookeeper_hosts + CHROOT)
    client.start(10)
    client.ensure_path("/")
    yield client
    for child in client.get_children("/"):
        client.delete(f"/{child}", recursive=True)
    client.stop()
    client.close()


@pytest.fixture
def store(processes: KafkaProcesses) -> Iterator[ZooKeeperStore]:
    found = ZooKeeperStore(processes.zookeeper_hosts, CHROOT)
    yield found
    found.close()


def migration(**changed: object) -> bytes:
    fields = {
        "version": 0,
        "kraft_controller_id": 3000,
        "kraft_controller_epoch": 7,
        "kraft_metadata_offset": 9_007_199_254_740_993,
        "kraft_metadata_epoch": 7,
    }
    return json.dumps(fields | changed).encode()


def claim(kraft_epoch: int, broker_id: int = 3000) -> bytes:
    fields = {"version": 2, "brokerid": broker_id, "timestamp": "1", "kraftControllerEpoch": kraft_epoch}
    return json.dumps(fields).encode()


def sessions_are(store: ZooKeeperStore, expected: int) -> bool:
    count = store.broker_session_count()
    assert not isinstance(count, Unobserved), count
    return count == expected


def test_an_empty_chroot_is_seen_as_empty(store: ZooKeeperStore) -> None:
    state = store.observe()
    assert (state.cluster_id, state.controller, state.migration, state.brokers) == (None, None, None, ())


def test_offsets_beyond_53_bits_are_exact(store: ZooKeeperStore, admin: KazooClient) -> None:
    admin.create("/migration", migration())
    assert store.observe().migration == MigrationZnode(3000, 7, 9_007_199_254_740_993, 7)


def test_acls_say_who_may_write_what(store: ZooKeeperStore, admin: KazooClient, processes: KafkaProcesses) -> None:
    admin.create("/brokers/topics/open", makepath=True)
    admin.create("/brokers/topics/closed", acl=[make_digest_acl("kafka", "secret", all=True)])
    admin.create("/controller_epoch", acl=[make_acl("world", "anyone", read=True)])
    access = store.acls()
    assert access.topics == {"open", "closed"}
    assert access.denied == ("/brokers/topics/closed",)
    (anyone,) = access.acls["/brokers/topics/open"]
    assert (anyone.scheme, anyone.id, anyone.permissions) == ("world", "anyone", frozenset("cdrwa"))
    assert access.acls["/controller_epoch"][0].permissions == {"r"}
    assert "/migration" not in access.acls, "it does not exist"
    known = ZooKeeperStore(processes.zookeeper_hosts, CHROOT, ZooKeeperCredentials("kafka", "secret"))
    try:
        access = known.acls()
    finally:
        known.close()
    assert access.denied == ()
    assert {e.scheme for e in access.acls["/brokers/topics/closed"]} == {"digest"}
    admin.add_auth("digest", "kafka:secret")  # to remove it


@pytest.mark.parametrize("payload", [b"", b"null", b"{", b"[]", b'{"kraft_controller_id": 1}', b"\xff"])
def test_an_unreadable_migration_znode_is_unobserved_by_itself(
    store: ZooKeeperStore, admin: KazooClient, payload: bytes
) -> None:
    admin.create("/migration", payload)
    admin.create("/controller_epoch", b"5")
    state = store.observe()
    assert isinstance(state.migration, Unobserved)
    assert "/migration" in state.migration.source
    assert state.controller_epoch == 5


@pytest.mark.parametrize(
    ("path", "payload"), [("/controller", b"null"), ("/cluster/id", b"{"), ("/controller_epoch", b"x")]
)
def test_another_unreadable_znode_is_an_error(
    store: ZooKeeperStore, admin: KazooClient, path: str, payload: bytes
) -> None:
    admin.create(path, payload, makepath=True)
    with pytest.raises(ObservationError, match="cannot be decoded"):
        store.observe()


def test_topic_deletions_reassignments_canary_and_hosts_are_read(store: ZooKeeperStore, admin: KazooClient) -> None:
    admin.create("/admin/delete_topics/old", b"", makepath=True)
    admin.create(
        "/admin/reassign_partitions", b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1]}]}'
    )
    admin.create(
        "/config/users/kraftbridge-canary", b'{"version":1,"config":{"producer_byte_rate":"12.0"}}', makepath=True
    )
    endpoints = ["PLAINTEXT://kafka-0.kafka:9092", "SSL://kafka-0.kafka:9093", "SASL_SSL://[fd00::1]:9094"]
    admin.create("/brokers/ids/0", json.dumps({"version": 5, "endpoints": endpoints}).encode(), makepath=True)
    state = store.observe()
    assert state.pending_topic_deletions == ("old",)
    assert state.reassignments
    assert state.canary == 12.0
    assert state.brokers[0].hosts == ("kafka-0.kafka", "fd00::1")


def test_the_session_comes_back_by_itself_after_a_restart(store: ZooKeeperStore, processes: KafkaProcesses) -> None:
    store.observe()
    options = (processes.directory / "zookeeper.cfg").read_text()
    processes.stop("zookeeper", signal.SIGKILL)
    try:
        with pytest.raises(ObservationError, match=r"refused|Connection dropped"):
            store.observe()
    finally:  # the tests after this one need it
        processes.start_zookeeper(dict(line.split("=", 1) for line in options.splitlines()))
    wait_for("the session", lambda: (store.observe(),))


def test_a_silent_server_is_an_error_in_time(store: ZooKeeperStore, processes: KafkaProcesses) -> None:
    store.observe()
    processes.signal("zookeeper", signal.SIGSTOP)
    try:
        started = time.monotonic()
        with pytest.raises(ObservationError):
            store.observe()
        assert time.monotonic() - started < 6.5
        assert isinstance(store.broker_session_count(), Unobserved)
    finally:
        processes.signal("zookeeper", signal.SIGCONT)
    wait_for("the session", lambda: (store.observe(),))


def test_sessions_of_others_are_counted_and_ours_is_not(store: ZooKeeperStore, admin: KazooClient) -> None:
    store.observe()
    wait_for("admin's session alone", lambda: sessions_are(store, 1))


def test_digest_credentials_open_what_is_closed(
    processes: KafkaProcesses, store: ZooKeeperStore, admin: KazooClient
) -> None:
    admin.create("/controller_epoch", b"5", acl=[make_digest_acl("kafka", "s3cret", all=True)])
    with pytest.raises(ObservationError, match="NoAuth"):
        store.observe()
    allowed = ZooKeeperStore(processes.zookeeper_hosts, CHROOT, ZooKeeperCredentials("kafka", "s3cret"))
    try:
        assert allowed.observe().controller_epoch == 5
    finally:
        allowed.close()
        cleaner = KazooClient(processes.zookeeper_hosts + CHROOT, auth_data=[("digest", "kafka:s3cret")])
        cleaner.start(10)
        cleaner.delete("/controller_epoch")
        cleaner.stop()
        cleaner.close()


def epoch_is(store: ZooKeeperStore, epoch: int) -> bool:
    try:
        return store.observe().controller_epoch == epoch
    except ObservationError:  # a busy machine's first handshake takes longer than one attempt
        return False


def test_tls_with_a_client_certificate(
    processes: KafkaProcesses, tls_port: int, client_certificate: Certificate, admin: KazooClient
) -> None:
    admin.create("/controller_epoch", b"5")
    tls = ZooKeeperTls(AUTHORITY.certificate, client_certificate.certificate, client_certificate.key)
    store = ZooKeeperStore(f"127.0.0.1:{tls_port}", CHROOT, tls=tls)
    wait_for("a first session at the TLS port, as the operator asks again", lambda: epoch_is(store, 5))
    wait_for("no other session at the TLS port", lambda: sessions_are(store, 0))
    other = ZooKeeperStore(f"127.0.0.1:{tls_port}", CHROOT, tls=tls)
    other.observe()
    wait_for("the other session", lambda: sessions_are(store, 1))
    other.close()
    keys = Path(store._directory)
    assert {p.name for p in keys.iterdir()} == {"ca.crt", "tls.crt", "tls.key"}
    assert keys.stat().st_mode & 0o077 == 0
    store.close()
    assert not keys.exists()


def test_a_server_of_another_authority_is_refused(
    processes: KafkaProcesses, tls_port: int, client_certificate: Certificate
) -> None:
    tls = ZooKeeperTls(Authority().certificate, client_certificate.certificate, client_certificate.key)
    store = ZooKeeperStore(f"127.0.0.1:{tls_port}", CHROOT, tls=tls)
    try:
        with pytest.raises(ObservationError, match=r"(?i)certificate"):
            store.observe()
    finally:
        store.close()


def test_a_claim_is_removed_once_and_again(store: ZooKeeperStore, admin: KazooClient) -> None:
    admin.create("/controller", claim(7))
    admin.create("/migration", migration())
    store.remove_controller_claim(expected_kraft_epoch=7)
    assert admin.exists("/controller") is None
    assert admin.exists("/migration") is None
    store.remove_controller_claim(expected_kraft_epoch=7)


@pytest.mark.parametrize(("before", "after"), [(b"5", b"7"), (b"9", b"9")])
def test_controller_epoch_is_lifted_to_what_dual_write_stamped(
    store: ZooKeeperStore, admin: KazooClient, before: bytes, after: bytes
) -> None:
    admin.create("/controller", claim(7))
    admin.create("/migration", migration(kraft_controller_epoch=7))
    admin.create("/controller_epoch", before)
    store.remove_controller_claim(expected_kraft_epoch=7)
    assert admin.get("/controller_epoch")[0] == after


STATE = {"controller_epoch": 3, "leader": 2, "version": 1, "leader_epoch": 0, "isr": [2, 0]}


def add_topic(admin: KazooClient, name: str, *, acl: list[ACL] | None = None) -> str:
    path = f"/brokers/topics/{name}"
    admin.ensure_path("/brokers/topics")
    admin.create(path, json.dumps({"version": 3, "partitions": {"0": [2, 0], "1": [1]}}).encode(), acl=acl)
    return path


def test_the_state_of_partitions_is_created_where_it_lacks_and_nowhere_else(
    store: ZooKeeperStore, admin: KazooClient
) -> None:
    admin.create("/controller_epoch", b"3")
    mine = [make_acl("world", "anyone", read=True, create=True, delete=True)]
    bare = add_topic(admin, "bare", acl=mine)
    half = add_topic(admin, "half")
    admin.create(f"{half}/partitions/0/state", b"as it is", makepath=True)
    admin.create(f"{half}/partitions/1")  # ZooKeeper's controller creates each level in a request of its own

    assert store.create_partition_states() == ("bare-0", "bare-1", "half-1")

    assert json.loads(admin.get(f"{bare}/partitions/0/state")[0]) == STATE
    assert json.loads(admin.get(f"{half}/partitions/1/state")[0])["leader"] == 1
    assert admin.get(f"{half}/partitions/0/state")[0] == b"as it is"
    for path in ("partitions", "partitions/0", "partitions/0/state"):
        assert admin.get_acls(f"{bare}/{path}")[0] == mine
    assert store.create_partition_states() == ()


@pytest.mark.parametrize("perms", [{"all": True}, {"create": True, "read": True}], ids=["all", "masked"])
def test_a_created_state_belongs_to_whom_the_topic_belongs(
    processes: KafkaProcesses, admin: KazooClient, perms: dict[str, bool]
) -> None:
    admin.add_auth("digest", "kafka:secret")
    admin.create("/controller_epoch", b"3")
    mine = [make_digest_acl("kafka", "secret", delete=True, **perms)]
    topic = add_topic(admin, "secured", acl=mine)
    credentials = ZooKeeperCredentials(scheme="digest", username="kafka", password="secret")
    own = ZooKeeperStore(processes.zookeeper_hosts, CHROOT, credentials)
    try:
        assert own.create_partition_states() == ("secured-0", "secured-1")
    finally:
        own.close()
    digests = [entry.id for entry in admin.get_acls(f"{topic}/partitions/0/state")[0] if entry.id.scheme == "digest"]
    assert len(digests) == 1
    assert admin.get(f"{topic}/partitions/0/state")[0]


def test_a_topic_that_is_deleted_meanwhile_gets_no_state(
    store: ZooKeeperStore, admin: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin.create("/controller_epoch", b"3")
    gone = add_topic(admin, "gone")
    again = add_topic(admin, "again")

    look = ZooKeeperStore._without_state
    found = look(store, ["again", "gone"])
    assert sorted(partition.topic for partition in found) == ["again", "again", "gone", "gone"]
    admin.delete(gone)
    admin.delete(again)
    add_topic(admin, "again")
    looks = iter((found, look(store, ["again", "gone"])))
    monkeypatch.setattr(ZooKeeperStore, "_without_state", lambda *_: next(looks))
    assert store.create_partition_states() == ()
    assert admin.get_children(again) == []


@pytest.mark.parametrize("odd", [b"", b"[]", b'{"version": 3, "partitions": {"0": []}}', b'{"partitions": {"x": [1]}}'])
def test_an_odd_topic_keeps_no_other_from_getting_its_state(
    store: ZooKeeperStore, admin: KazooClient, odd: bytes
) -> None:
    admin.create("/controller_epoch", b"3")
    add_topic(admin, "fine")
    admin.create("/brokers/topics/odd", odd)
    assert store.create_partition_states() == ("fine-0", "fine-1")
    assert admin.get_children("/brokers/topics/odd") == []


def test_an_epoch_that_is_no_number_is_named(store: ZooKeeperStore, admin: KazooClient) -> None:
    admin.create("/controller_epoch", b"three")
    add_topic(admin, "fine")
    with pytest.raises(ActionError, match="/controller_epoch cannot be decoded"):
        store.create_partition_states()


def test_a_topic_that_changes_before_its_state_is_created_is_left_alone(
    store: ZooKeeperStore, admin: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin.create("/controller_epoch", b"3")
    topic = add_topic(admin, "grown")
    create = ZooKeeperStore._create_state

    def late(self: ZooKeeperStore, partition: Any) -> None:
        admin.set(topic, admin.get(topic)[0])
        create(self, partition)

    monkeypatch.setattr(ZooKeeperStore, "_create_state", late)
    with pytest.raises(ConflictError, match="a topic changed in between"):
        store.create_partition_states()
    assert admin.get_children(topic) == []


def test_a_claim_of_another_epoch_stays(store: ZooKeeperStore, admin: KazooClient) -> None:
    admin.create("/controller", claim(8))
    admin.create("/migration", migration())
    with pytest.raises(ConflictError, match="KRaft epoch 8, not 7"):
        store.remove_controller_claim(expected_kraft_epoch=7)
    assert admin.exists("/controller") is not None
    assert admin.exists("/migration") is not None


def test_only_migration_goes_when_a_broker_is_controller_again(store: ZooKeeperStore, admin: KazooClient) -> None:
    admin.create("/controller", claim(-1, broker_id=2), ephemeral=True)
    admin.create("/migration", migration())
    admin.create("/controller_epoch", b"5")
    store.remove_controller_claim(expected_kraft_epoch=7)
    assert store.observe().controller.broker_id == 2
    assert admin.exists("/migration") is None
    assert admin.get("/controller_epoch")[0] == b"5", "its controller would resign"
