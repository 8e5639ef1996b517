"""How the verifier reads ZooKeeper: old servers without multiRead, TLS, SASL, digest, a dump of an ensemble.

The tree is that of a real cluster in dual-write (`tests/data/metadata/dualwrite`); what is read must be what its dump holds.
"""

from __future__ import annotations

import gzip
import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from kazoo.client import KazooClient
from kazoo.security import make_acl, make_digest_acl
from tests.integration.certificates import Authority
from tests.support.programs import free_port
from tests.support.zookeeper_ensemble import Ensemble, zookeeper_ensemble

from kraftbridge.exceptions import ZooKeeperUnavailableError
from kraftbridge.metadata.entities import Secrets
from kraftbridge.metadata.zookeeper.reader import ZooKeeperReader, read_dump
from kraftbridge.metadata.zookeeper.tree import TOPIC_CONFIGS_PATH, DumpReading, TreeReading
from kraftbridge.models.entities import EntityKind
from kraftbridge.models.report import ZooKeeperAccess
from kraftbridge.pods.credentials import subject
from kraftbridge.verification.command_line import EXIT_INCOMPLETE, main

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kafka-processes")]

DUMP = Path(__file__).resolve().parents[1] / "data" / "metadata" / "dualwrite" / "zk.jsonl.gz"
CHROOT = "/kafka"
SECRETS = Secrets(b"salt")
LAST_WITHOUT_MULTI_READ = "3.5.10"
Rows = set[tuple[str, str, str]]


def rows_of_the_dump() -> Rows:
    reading = DumpReading(SECRETS)
    reading.take(read_dump(DUMP, CHROOT))
    return {(entity.kind, entity.key, entity.value) for entity in reading.entities()}


def mirrored_offset() -> int:
    reading = DumpReading(SECRETS)
    reading.take(read_dump(DUMP, CHROOT))
    assert reading.migration is not None
    return reading.migration.kraft_metadata_offset


def read_all(access: ZooKeeperAccess) -> tuple[Rows, TreeReading]:
    with ZooKeeperReader(access) as reader:
        reader.synchronize()
        reading = TreeReading(reader, SECRETS)
        plan = reading.plan()
        entities = list(reading.topics(plan.topics))
        entities += reading.nodes([*(f"{TOPIC_CONFIGS_PATH}/{topic}" for topic in plan.topic_configs), *plan.nodes])
    rows = [(entity.kind, entity.key, entity.value) for entity in entities]
    assert len(set(rows)) == len(rows)
    return set(rows), reading


def secret(folder: Path, **files: str) -> str:
    folder.mkdir()
    for name, content in files.items():
        (folder / name.replace("_", ".")).write_text(content)
    return str(folder)


@pytest.mark.parametrize("version", [LAST_WITHOUT_MULTI_READ, None], ids=["3.5 without multiRead", "Kafka's own"])
def test_every_release_gives_what_the_dump_holds(version):
    with zookeeper_ensemble(version=version) as ensemble:
        ensemble.load(DUMP)
        rows, reading = read_all(ZooKeeperAccess(connect=ensemble.hosts + CHROOT))
        assert rows == rows_of_the_dump()
        assert not reading.problems
        assert not reading.unread
        assert (reading.fence.first, reading.fence.last) == (mirrored_offset(),) * 2
        assert reading.fence.batches > 5


def test_an_old_server_is_asked_singly_after_its_first_refusal():
    with zookeeper_ensemble(version=LAST_WITHOUT_MULTI_READ) as ensemble:
        ensemble.load(DUMP)
        with ZooKeeperReader(ZooKeeperAccess(connect=ensemble.hosts + CHROOT)) as reader:
            first = [znode.path for znode in reader.walk("/brokers")]
            assert not reader.reads_many_at_once
            assert [znode.path for znode in reader.walk("/brokers")] == first
            assert len(first) > 500


@pytest.fixture(scope="module")
def three() -> Iterator[Ensemble]:
    with zookeeper_ensemble(servers=3) as ensemble:
        ensemble.load(DUMP)
        yield ensemble


def test_a_dump_of_an_ensemble_holds_what_was_loaded(three, tmp_path):
    path = tmp_path / "zk.jsonl.gz"
    assert main(["dump", "--connect", three.hosts + CHROOT, "--output", str(path)]) == 0
    with gzip.open(path, "rt") as lines:
        paths = [json.loads(line)["path"] for line in lines]
    assert len(set(paths)) == len(paths)
    assert {each for each in paths if each != CHROOT} == {
        CHROOT + znode.path for znode in read_dump(DUMP, CHROOT) if znode.path != "/"
    }
    reading = DumpReading(SECRETS)
    reading.take(read_dump(path, CHROOT))
    assert {(entity.kind, entity.key, entity.value) for entity in reading.entities()} == rows_of_the_dump()


def test_a_dump_of_a_busy_tree_is_complete(three, tmp_path):
    """Znodes come and go between the requests of one dump. That is no hole: the dump counts the children that it contains."""
    folder, path, ended = f"{CHROOT}/config/users", tmp_path / "zk.jsonl", threading.Event()

    def churn() -> None:
        with owner(three) as client:
            for number in itertools.count():
                client.create(f"{folder}/busy-{number}/clients/c", b"{}", makepath=True)
                if number >= 20:
                    client.delete(f"{folder}/busy-{number - 20}", recursive=True)
                if ended.is_set():
                    break
            for name in client.get_children(folder):
                if name.startswith("busy-"):
                    client.delete(f"{folder}/{name}", recursive=True)

    thread = threading.Thread(target=churn)
    thread.start()
    changed = set()
    try:
        for _ in range(15):
            assert main(["dump", "--connect", three.hosts + CHROOT, "--output", str(path)]) == 0
            reading = DumpReading(SECRETS)
            reading.take(read_dump(path, CHROOT))
            assert not reading.unread
            changed.add(frozenset(each for each in reading.nodes() if "busy" in each))
    finally:
        ended.set()
        thread.join(timeout=30)
    assert len(changed) > 5, "the tree was not busy"


def test_an_ensemble_with_one_server_down_is_read(three):
    three.kill(2)
    rows, reading = read_all(ZooKeeperAccess(connect=three.hosts + CHROOT))
    assert rows == rows_of_the_dump()
    assert not reading.problems
    assert not reading.unread


def test_an_ensemble_without_its_majority_is_an_error_that_names_it(three):
    three.kill(1)  # after the test above only one of three is left
    access = ZooKeeperAccess(connect=three.hosts + CHROOT, session_timeout_seconds=5)
    with pytest.raises(ZooKeeperUnavailableError, match=r"127\.0\.0\.1"):
        read_all(access)


AUTHORITY = Authority()
SASL = {"mechanism": "DIGEST-MD5", "username": "verifier", "password": "verifier-secret"}


@contextmanager
def owner(ensemble: Ensemble, **options: object) -> Iterator[KazooClient]:
    client = KazooClient(ensemble.hosts, **options)
    client.start(20)
    try:
        yield client
    finally:
        client.stop()
        client.close()


@pytest.fixture(scope="module")
def secured(tmp_path_factory) -> Iterator[tuple[Ensemble, int]]:
    """A server with a TLS port that wants client certificates, SASL, and one znode that only digest user `reader` may see."""
    folder, port = tmp_path_factory.mktemp("tls"), free_port()
    server = AUTHORITY.issue("zookeeper")
    (folder / "keys.pem").write_text(server.key + server.certificate)
    (folder / "trust.pem").write_text(AUTHORITY.certificate)
    settings = {
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "secureClientPort": str(port),
        "secureClientPortAddress": "127.0.0.1",
        "ssl.keyStore.location": str(folder / "keys.pem"),
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": str(folder / "trust.pem"),
        "ssl.trustStore.type": "PEM",
        "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
    }
    jaas = 'Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_verifier="verifier-secret"; };\n'
    with zookeeper_ensemble(settings=settings, jaas=jaas) as ensemble:
        ensemble.load(DUMP)
        yield ensemble, port


def test_tls_with_a_client_certificate(secured, tmp_path):
    _, port = secured
    client = AUTHORITY.issue("verifier")
    folder = secret(tmp_path / "tls", ca_crt=AUTHORITY.certificate, tls_crt=client.certificate, tls_key=client.key)
    rows, reading = read_all(ZooKeeperAccess(connect=f"127.0.0.1:{port}{CHROOT}", secret_path=folder))
    assert rows == rows_of_the_dump()
    assert not reading.problems
    assert not reading.unread


SUBJECTS = {
    "one part": (),
    "several parts": (
        x509.NameAttribute(NameOID.COUNTRY_NAME, "DE"),
        x509.NameAttribute(NameOID.LOCALITY_NAME, "Köln"),
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, 'Shop, "Inc." + #1 = <x>; \\'),
        x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "  data "),
        x509.NameAttribute(NameOID.USER_ID, "u"),
        x509.NameAttribute(NameOID.DOMAIN_COMPONENT, "d"),
        x509.NameAttribute(NameOID.STREET_ADDRESS, "s"),
        x509.NameAttribute(NameOID.STATE_OR_PROVINCE_NAME, "NRW"),
    ),
    "a part without a name in RFC 2253": (
        x509.NameAttribute(NameOID.EMAIL_ADDRESS, "a@example.com"),
        x509.NameAttribute(NameOID.SERIAL_NUMBER, "7" * 60),
        x509.NameAttribute(NameOID.TITLE, "t" * 200),
    ),
}


@pytest.mark.parametrize("case", SUBJECTS)
def test_zookeeper_names_a_certificate_as_preflight_does(secured, tmp_path, case):
    _, port = secured
    issued = AUTHORITY.issue("kafka", *SUBJECTS[case])
    folder = Path(
        secret(tmp_path / "tls", ca_crt=AUTHORITY.certificate, tls_crt=issued.certificate, tls_key=issued.key)
    )
    tls = {"use_ssl": True, "ca": str(folder / "ca.crt"), "certfile": str(folder / "tls.crt")}
    client = KazooClient(f"127.0.0.1:{port}", keyfile=str(folder / "tls.key"), **tls)
    client.start(20)
    try:
        # What belongs to its creator, as Kafka makes znodes with zookeeper.set.acl.
        path = client.create("/of-a-certificate-", acl=[make_acl("auth", "", all=True)], sequence=True)
        (acl,), _ = client.get_acls(path)
    finally:
        client.stop()
        client.close()
    assert (acl.id.scheme, acl.id.id) == ("x509", subject({"tls.crt": issued.certificate}))


@pytest.mark.parametrize("case", ["no certificate", "foreign authority", "no TLS at all"])
def test_tls_that_does_not_fit_is_an_error(secured, tmp_path, case):
    _, port = secured
    foreign = Authority()
    client = foreign.issue("verifier")
    folder = {
        "no certificate": lambda: secret(tmp_path / "s", ca_crt=AUTHORITY.certificate),
        "foreign authority": lambda: secret(
            tmp_path / "s", ca_crt=foreign.certificate, tls_crt=client.certificate, tls_key=client.key
        ),
        "no TLS at all": lambda: None,
    }[case]()
    access = ZooKeeperAccess(connect=f"127.0.0.1:{port}{CHROOT}", secret_path=folder, session_timeout_seconds=4)
    with pytest.raises(ZooKeeperUnavailableError, match=str(port)):
        read_all(access)


QUOTA = b'{"version":1,"config":{"producer_byte_rate":"5"}}'


def test_sasl_shows_what_only_its_user_may_see(secured, tmp_path):
    ensemble, _ = secured
    path = f"{CHROOT}/config/users/sasl-only"
    with owner(ensemble) as client:
        client.create(path, QUOTA, acl=[make_acl("sasl", "verifier", all=True)])
    folder = secret(tmp_path / "sasl", username="verifier", password="verifier-secret", scheme="sasl")
    access = ZooKeeperAccess(connect=ensemble.hosts + CHROOT, secret_path=folder)
    rows, reading = read_all(access)
    assert "users/sasl-only" in {key for kind, key, _ in rows if kind == EntityKind.CLIENT_QUOTA}
    assert not reading.problems
    assert not reading.unread
    _, blind = read_all(ZooKeeperAccess(connect=ensemble.hosts + CHROOT))
    assert "NoAuth" in blind.unread["/config/users/sasl-only"]
    wrong = secret(tmp_path / "wrong", username="verifier", password="guessed", scheme="sasl")
    with pytest.raises(ZooKeeperUnavailableError):
        read_all(ZooKeeperAccess(connect=ensemble.hosts + CHROOT, secret_path=wrong, session_timeout_seconds=4))
    with owner(ensemble, sasl_options=SASL) as client:
        client.delete(path)


def test_digest_shows_what_only_its_user_may_see(secured, tmp_path):
    ensemble, _ = secured
    path = f"{CHROOT}/config/users/digest-only"
    with owner(ensemble) as client:
        acl = [make_digest_acl("reader", "pass:word", all=True)]
        client.create(path, QUOTA, acl=acl)
    folder = secret(tmp_path / "digest", username="reader", password="pass:word")
    _, reading = read_all(ZooKeeperAccess(connect=ensemble.hosts + CHROOT, secret_path=folder))
    assert not reading.problems
    assert not reading.unread
    _, blind = read_all(ZooKeeperAccess(connect=ensemble.hosts + CHROOT))
    assert "NoAuth" in blind.unread["/config/users/digest-only"]
    with owner(ensemble, auth_data=[("digest", "reader:pass:word")]) as client:
        client.delete(path)


def test_a_dump_says_what_it_could_not_read_and_is_then_incomplete(secured, tmp_path):
    """A znode that may not be read, and a folder with 20 znodes that may not be listed: neither is left out silently."""
    ensemble, _ = secured
    hidden, folder, output = "/config/users/digest-only", "/config/users/shut", tmp_path / "zk.jsonl.gz"
    acl = [make_digest_acl("reader", "pass:word", all=True)]
    with owner(ensemble) as client:
        client.create(CHROOT + hidden, QUOTA, acl=acl)
        client.create(CHROOT + folder, QUOTA)
        client.ensure_path(f"{CHROOT}{folder}/clients")
        for number in range(20):
            client.create(f"{CHROOT}{folder}/clients/{number}", QUOTA)
        client.set_acls(f"{CHROOT}{folder}/clients", acl)
    dump = ["dump", "--connect", ensemble.hosts + CHROOT, "--output", str(output)]
    try:
        assert main(dump) == EXIT_INCOMPLETE
        reading = DumpReading(SECRETS)
        reading.take(read_dump(output, CHROOT))
        assert set(reading.unread) == {hidden, f"{folder}/clients"}
        assert all("NoAuth" in why for why in reading.unread.values())
        credentials = secret(tmp_path / "digest", username="reader", password="pass:word")
        assert main([*dump, "--credentials", credentials]) == 0
        whole = DumpReading(SECRETS)
        whole.take(read_dump(output, CHROOT))
        assert not whole.unread
        assert whole.znodes == reading.znodes + 20
    finally:
        with owner(ensemble, auth_data=[("digest", "reader:pass:word")]) as client:
            client.delete(CHROOT + hidden)
            client.delete(CHROOT + folder, recursive=True)


def test_a_secret_that_says_nothing_is_refused(secured, tmp_path):
    ensemble, _ = secured
    folder = secret(tmp_path / "empty")
    with pytest.raises(ZooKeeperUnavailableError, match="neither"):
        read_all(ZooKeeperAccess(connect=ensemble.hosts + CHROOT, secret_path=folder))
