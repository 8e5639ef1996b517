"""Znodes to canonical entities, against the log of the same real cluster, and dumps."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections import Counter
from pathlib import Path

import pytest

from kraftbridge.exceptions import DumpFormatError, PasswordDecodingError, UndecodableZnodeError
from kraftbridge.metadata.entities import (
    EncodedPassword,
    Form,
    Secrets,
    looks_encoded,
    number,
    read_encoder_secret,
    read_key,
)
from kraftbridge.metadata.log.entities import log_entities
from kraftbridge.metadata.log.files import LocalLogFiles
from kraftbridge.metadata.log.replay import LogReplay
from kraftbridge.metadata.zookeeper.reader import read_dump, redacted_data, split_connect, write_dump
from kraftbridge.metadata.zookeeper.tree import DumpReading
from kraftbridge.metadata.zookeeper.znodes import Znode, migration_znode, znode_entities
from kraftbridge.models.entities import (
    ENTITY_KINDS,
    EntityKind,
    desanitized,
    partition_key,
    quota_key,
    sanitized,
    topic_of_partition_key,
)
from kraftbridge.models.observation import MigrationZnode
from kraftbridge.models.secrecy import is_secret_setting
from kraftbridge.verification.inputs import BadInputError, Dump
from kraftbridge.verification.sources.rows import ZooKeeperPlan

DATA = Path(__file__).resolve().parents[2] / "data" / "metadata"
DUMP = DATA / "dualwrite" / "zk.jsonl.gz"
SECRET = "labsecret"
SECRETS = Secrets(b"test", compare_passwords=True)


def read(path=DUMP, secrets=SECRETS, encoder_secret=SECRET):
    reading = DumpReading(secrets, encoder_secret)
    reading.take(read_dump(path, "/kafka"))
    entities = {(entity.kind, entity.key): entity for entity in reading.entities()}
    assert not reading.problems
    return reading, entities


def of(path, body, secrets=SECRETS, encoder_secret=SECRET):
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    return {
        (entity.kind, entity.key): entity.attributes
        for entity in znode_entities(path, data, 5, secrets, encoder_secret)
    }


def test_both_stores_of_a_real_cluster_hold_the_same():
    _, zookeeper = read()
    image = LogReplay(LocalLogFiles(DATA / "dualwrite" / "c3000")).advance(1683)
    log = {(entity.kind, entity.key): entity.value for entity in log_entities(image, Form.MIRRORED, SECRETS)}
    assert {identity: entity.value for identity, entity in zookeeper.items()} == log
    assert Counter(kind for kind, _ in log) == {
        EntityKind.TOPIC: 53,
        EntityKind.PARTITION: 335,
        EntityKind.TOPIC_CONFIG: 35,
        EntityKind.BROKER_CONFIG: 3,
        EntityKind.CLIENT_QUOTA: 12,
        EntityKind.SCRAM_CREDENTIAL: 6,
        EntityKind.ACL: 44,
        EntityKind.DELEGATION_TOKEN: 3,
        EntityKind.PRODUCER_IDS: 1,
        EntityKind.BROKER_REGISTRATION: 3,
    }


def test_every_entity_knows_its_znode():
    _, entities = read()
    paths = {znode.path for znode in read_dump(DUMP, "/kafka")}
    for kind, key in entities:
        assert ENTITY_KINDS[kind].paths(key)
        assert set(ENTITY_KINDS[kind].paths(key)) <= paths


def test_a_password_is_decoded_with_its_secret_only():
    value = next(
        value
        for znode in read_dump(DUMP, "/kafka")
        if znode.path == "/config/brokers/0"
        for value in json.loads(znode.data)["config"].values()
        if looks_encoded(value)
    )
    encoded = EncodedPassword.parse(value)
    plain = encoded.decoded(SECRET)
    assert plain.startswith("org.apache.kafka.common.security.scram.ScramLoginModule")
    assert len(plain) == encoded.length == 98
    with pytest.raises(PasswordDecodingError, match="not the one"):
        encoded.decoded("another secret")
    for broken in (value.replace("AES/CBC", "DES/CBC"), value.replace("iterations:4096", "iterations:0")):
        with pytest.raises(PasswordDecodingError, match="not supported"):
            EncodedPassword.parse(broken).decoded(SECRET)
    with pytest.raises(PasswordDecodingError, match="has no"):
        EncodedPassword.parse("encryptedPassword:x")


@pytest.mark.parametrize("ending", ["", "\n", "\r\n", " \t"])
def test_the_end_of_a_secrets_file_is_no_part_of_the_secret(ending, tmp_path):
    """Kafka trims a setting of type PASSWORD."""
    file = tmp_path / "secret"
    file.write_bytes(f"{SECRET}{ending}".encode())
    plan = ZooKeeperPlan(salt="00", encoder_secret_path=str(file))
    value = json.loads(next(z.data for z in read_dump(DUMP, "/kafka") if z.path == "/config/brokers/0"))["config"]
    encoded = EncodedPassword.parse(next(filter(looks_encoded, value.values())))
    assert read_encoder_secret(file) == plan.encoder_secret() == SECRET
    assert encoded.decoded(f"{SECRET}{ending}") == encoded.decoded(SECRET)


def test_a_secrets_file_that_is_no_text_is_a_problem(tmp_path):
    file = tmp_path / "secret"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(PasswordDecodingError, match="not UTF-8"):
        read_encoder_secret(file)
    assert read_encoder_secret(None) is None


def test_wrong_encoder_secret_is_a_problem_not_a_difference():
    reading = DumpReading(SECRETS, "another secret")
    reading.take(read_dump(DUMP, "/kafka"))
    list(reading.entities())
    assert list(reading.problems) == ["/config/brokers/0"]


KEY = b"0123456789abcdef0123456789abcdef"


def test_redacted_dumps_compare_like_the_original(tmp_path):
    path = tmp_path / "redacted.jsonl.gz"
    count, unread = write_dump(read_dump(DUMP, "/kafka"), path, "/kafka", key=KEY)
    assert (count, unread) == (sum(1 for _ in read_dump(DUMP, "/kafka")), 0)
    text = gzip.decompress(path.read_bytes()).decode()
    for secret in ("salt=MWx1", "stored_key=hpA7", "E4XQi7kryc4rrEuFvYtra"):
        assert secret in gzip.decompress(DUMP.read_bytes()).decode()
        assert secret not in text
    secrets = Secrets(b"test", dump_key=KEY)
    _, original = read(secrets=secrets, encoder_secret=None)
    _, redacted = read(path, secrets=secrets, encoder_secret=None)
    assert redacted == original


@pytest.mark.parametrize("encoder_secret", [None, SECRET])
@pytest.mark.parametrize("plain", ["hunter2", "", "ünï", "\U0001f511", "sha256:guess"])
def test_a_redacted_value_that_kafka_keeps_in_plain_text_is_compared_like_the_original(plain, encoder_secret):
    """Kafka 3.9 takes only the settings of `is_password_config` for passwords, and copies all others as they are."""
    secrets = Secrets(b"test", compare_passwords=encoder_secret is not None, dump_key=KEY)
    path, data = (
        "/config/brokers/<default>",
        json.dumps({"version": 1, "config": {"ldap.bind.password": plain}}).encode(),
    )
    redacted = redacted_data(path, data, KEY)
    assert not plain or plain.encode() not in redacted
    (kept,), (original,) = (list(znode_entities(path, each, 0, secrets, encoder_secret)) for each in (redacted, data))
    assert kept == original


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("/config/brokers/1", {"config": {"vendor.api.key": "hunter2"}}),
        ("/config/topics/orders", {"config": {"vendor.access.key": "hunter2"}}),
        ("/config/brokers/1", {"config": {"x": "hunter2,encryptedPassword:eA==,cipherAlgorithm:AES,passwordLength:1"}}),
        ("/config/users/a", {"config": {"SCRAM-SHA-256": "hunter2"}}),
        ("/config/users/a", {"config": {"SCRAM-SHA-256": "iterations=4096,password=hunter2,hunter2=x"}}),
        ("/config/users/a", {"config": "hunter2"}),
        ("/delegation_token/tokens/a", {"tokenId": "a", "hmac": "hunter2"}),
        ("/kafka-manager/configs/a", {"jaasConfig": "hunter2"}),
        ("/someone", "hunter2"),
    ],
)
def test_a_redacted_dump_has_no_secret_and_no_hash_that_can_be_tried(path, data):
    text = redacted_data(path, json.dumps({"version": 1, **data} if isinstance(data, dict) else data).encode(), KEY)
    assert b"hunter2" not in text
    assert b"hmac-sha256:" in text
    guesses = {hashlib.sha256(each.encode()).hexdigest() for each in ("hunter2", '"hunter2"', json.dumps(data))}
    assert not [guess for guess in guesses if guess in text.decode()]
    assert redacted_data(path, json.dumps(data).encode(), b"another key of this test, longer") != text


def test_a_key_that_can_be_guessed_is_refused(tmp_path):
    (tmp_path / "key").write_text("hunter2\n")
    with pytest.raises(DumpFormatError, match="has 7 bytes, and 32 are the least"):
        read_key(tmp_path / "key")
    with pytest.raises(DumpFormatError, match="cannot be read"):
        read_key(tmp_path / "none")


def test_a_dump_says_whether_its_hashes_have_a_key(tmp_path):
    key = tmp_path / "key"
    key.write_bytes(KEY)
    redacted, plain = tmp_path / "redacted.jsonl.gz", tmp_path / "plain.jsonl"
    write_dump(read_dump(DUMP, "/kafka"), redacted, "/kafka", key=KEY)
    write_dump(read_dump(DUMP, "/kafka"), plain, "/kafka")
    assert Dump.of(redacted, "/kafka", str(key)).key_path == str(key)
    assert Dump.of(plain, "/kafka", str(key)).key_path is None, "also a dump of a former version, without a key"
    with pytest.raises(BadInputError, match="--key-file"):
        Dump.of(redacted, "/kafka", None)


def test_a_value_that_was_redacted_without_its_length_is_unknown_unless_values_are_compared():
    data = json.dumps({"version": 1, "config": {"ssl.key.password": "sha256:" + "0" * 64}}).encode()
    with pytest.raises(UndecodableZnodeError, match="without its length"):
        list(znode_entities("/config/brokers/1", data, 0, Secrets(b"test")))
    assert list(znode_entities("/config/brokers/1", data, 0, Secrets(b"test", compare_passwords=True), SECRET))


def test_a_value_that_brokers_do_not_encrypt_needs_no_length():
    data = json.dumps({"version": 1, "config": {"ldap.bind.password": "sha256:" + "0" * 64}}).encode()
    assert list(znode_entities("/config/brokers/1", data, 0, Secrets(b"test")))


def test_a_written_dump_reads_back(tmp_path):
    znodes = [
        Znode("/", None, children=1),
        Znode("/x", b"\xff\x00", 3, 4, 5, 6, cversion=-2),
        Znode("/ü", "ü".encode()),
    ]
    for chroot in ("", "/kafka", "/a/b"):
        write_dump(znodes, tmp_path / "zk.jsonl", chroot)
        assert list(read_dump(tmp_path / "zk.jsonl", chroot)) == znodes


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "{}",
        '{"path": "relative", "data": null}',
        '{"path": "/a", "data": 5}',
        '{"path": "/a", "data": "x", "enc": "b64"}',
        '{"path": "/a", "data": "x", "enc": "what"}',
        '{"path": "/a", "data": "x", "version": "many"}',
        "[" * 100_000,
    ],
)
def test_a_bad_line_of_a_dump_is_named(tmp_path, line):
    path = tmp_path / "zk.jsonl"
    path.write_text('{"path": "/", "data": null}\n' + line + "\n")
    with pytest.raises(DumpFormatError, match="line 2"):
        list(read_dump(path, ""))


def test_a_truncated_or_missing_dump_is_named(tmp_path):
    path = tmp_path / "zk.jsonl.gz"
    path.write_bytes(DUMP.read_bytes()[:-100])
    with pytest.raises(DumpFormatError, match="cannot be read"):
        list(read_dump(path, "/kafka"))
    with pytest.raises(DumpFormatError, match="cannot be read"):
        list(read_dump(tmp_path / "nowhere", "/kafka"))


def test_a_repeated_path_is_refused():
    with pytest.raises(DumpFormatError, match="/x more than once"):
        DumpReading(SECRETS).take([Znode("/x", None), Znode("/x", None)])


def rows_of(path: Path) -> list[Znode]:
    return list(read_dump(path, "/kafka"))


@pytest.mark.parametrize("path", [DUMP, DATA / "zk_before_migration.jsonl.gz"], ids=["dual-write", "before"])
def test_no_row_of_a_real_dump_can_be_missing_without_being_noticed(path):
    """The one exception is a topic's own znodes: its assignment names its partitions, so a missing state is a difference."""
    rows = rows_of(path)
    whole = DumpReading(SECRETS)
    whole.take(rows)
    assert not whole.unread
    assert whole.is_whole
    inside_topics = re.compile("/brokers/topics/[^/]+/.+")
    removable = [row for row in rows if not inside_topics.match(row.path) and row.path != "/"]
    assert len(removable) > 100
    for row in removable:
        reading = DumpReading(SECRETS)
        reading.take([each for each in rows if each is not row])
        parent = row.path.rpartition("/")[0] or "/"
        assert "it is incomplete; make it again" in reading.unread[parent], row.path
        assert not reading.is_whole
    for row in [each for each in rows if each.path.endswith("/state")][::25]:
        reading = DumpReading(SECRETS)
        reading.take([each for each in rows if each is not row])
        assert [topic for topic in reading.topics() if None in topic.states.values()], row.path


@pytest.mark.parametrize(
    ("name", "text"),
    [(None, "<default>"), ("<default>", "%3Cdefault%3E"), ("a b", "a%20b"), ("ü/*+~", "%C3%BC%2F%2A%2B%7E"), ("", "")],
)
def test_names_are_sanitized_like_kafka(name, text):
    assert sanitized(name) == text
    assert desanitized(text) == name


def test_quota_keys_are_kafkas_paths():
    assert quota_key({"client-id": None, "user": "b/c"}) == "users/b%2Fc/clients/<default>"
    assert quota_key({"ip": "1.2.3.4"}) == "ips/1.2.3.4"
    assert quota_key({"user": "clients"}) == "users/clients"


def test_partition_keys():
    assert topic_of_partition_key(partition_key("a-1-b", 12)) == "a-1-b"


@pytest.mark.parametrize(("text", "value"), [("5", 5), ("5.0", 5), ("5.5", 5.5), ("1e3", 1000), (5.0, 5)])
def test_numbers_have_one_form(text, value):
    assert number(text) == value
    assert type(number(text)) is type(value)


def test_quotas_and_credentials_of_one_user():
    scram = "salt=YQ==,stored_key=Yg==,server_key=Yw==,iterations=4096"
    config = {"SCRAM-SHA-512": scram, "producer_byte_rate": "10.0"}
    found = of("/config/users/u%2Fx", {"version": 1, "config": config})
    assert found[EntityKind.CLIENT_QUOTA, "users/u%2Fx"] == {"producer_byte_rate": 10}
    assert found[EntityKind.SCRAM_CREDENTIAL, "u/x/SCRAM-SHA-512"]["iterations"] == 4096
    with pytest.raises(UndecodableZnodeError, match="only a user"):
        of("/config/clients/c", {"version": 1, "config": config})
    with pytest.raises(UndecodableZnodeError, match="only a user"):
        of("/config/users/<default>", {"version": 1, "config": config})
    assert of("/config/users/empty", None) == {}
    assert of("/config/users/empty", {"version": 1, "config": {}}) == {}


def test_producer_ids():
    key = (EntityKind.PRODUCER_IDS, "")
    body = {"version": 1, "broker": 3, "block_start": "4000", "block_end": "4999"}
    path = "/latest_producer_id_block"
    assert of(path, body)[key] == {"nextProducerId": 5000}
    assert of(path, body | {"broker": -1})[key] == {"nextProducerId": 4000}
    assert of(path, None) == {}


def test_an_acl_is_one_however_often_it_is_written():
    entry = {"principal": "User:a", "host": "*", "operation": "Read", "permissionType": "Allow"}
    assert len(of("/kafka-acl/Topic/t", {"version": 1, "acls": [entry, entry]})) == 1


TOKEN = {
    "version": 3,
    "owner": "User%3Aa%20b",
    "tokenRequester": "User%3Ac",
    "renewers": [],
    "issueTimestamp": 1,
    "maxTimestamp": 2,
    "expiryTimestamp": 3,
    "tokenId": "t",
}


def test_tokens_of_old_versions_have_no_requester():
    (attributes,) = of("/delegation_token/tokens/t", TOKEN).values()
    assert (attributes["owner"], attributes["requester"]) == ("User:a b", "User:c")
    (attributes,) = of("/delegation_token/tokens/t", TOKEN | {"version": 2, "tokenRequester": 1}).values()
    assert attributes["owner"] == attributes["requester"] == "User:a b"
    with pytest.raises(UndecodableZnodeError, match="holds the token"):
        of("/delegation_token/tokens/other", TOKEN)


def test_a_plus_in_a_token_s_owner_is_a_blank_to_kafka():
    (attributes,) = of("/delegation_token/tokens/t", TOKEN | {"owner": "User%3Aa+b"}).values()
    assert attributes["owner"] == "User:a b"


@pytest.mark.parametrize(
    "change",
    [
        *({"version": value} for value in (None, 0, -1, 4, 99, 2**31, 1.5, 3.0, True, "3")),
        *({"owner": value} for value in (None, "", " ", "alice", "User%3Aal%zz", 1)),
        *({"tokenRequester": value} for value in (None, "", " ", "alice")),
        *({"renewers": value} for value in (None, [None], ["bob"], [["User%3Abob"]], "User%3Abob")),
        {"tokenId": None},
    ],
    ids=str,
)
def test_a_token_at_which_kafka_s_copy_aborts_is_no_token(change):
    with pytest.raises(UndecodableZnodeError):
        of("/delegation_token/tokens/t", TOKEN | change)


def test_ipv6_endpoints_have_the_log_s_form():
    body = {"endpoints": ["PLAINTEXT://[::1]:9092"], "rack": None}
    (attributes,) = of("/brokers/ids/1", body).values()
    assert attributes == {"endpoints": ["PLAINTEXT://::1:9092"], "rack": None}


@pytest.mark.parametrize(
    ("endpoints", "protocols"),
    [
        (["PLAINTEXT://h:9092"], {"PLAINTEXT": "QUIC"}),
        (["CLIENT://h:9092", "INTERNAL://h:9093"], {"CLIENT": "SSL"}),
        (["CLIENT://h:9092"], {"CLIENT": 0}),
        (["CLIENT://h:9092"], None),
    ],
)
def test_a_listener_with_an_unknown_security_protocol_is_named(endpoints, protocols):
    body = {"endpoints": endpoints, "listener_security_protocol_map": protocols}
    with pytest.raises(UndecodableZnodeError, match=r"/brokers/ids/1: listener .* has the unknown security protocol"):
        of("/brokers/ids/1", body)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("endpoints", [], "endpoints is empty"),
        ("rack", [], "rack is no text"),
        ("rack", {}, "rack is no text"),
        ("rack", True, "rack is no text"),
        ("rack", 7, "rack is no text"),
        ("rack", ["r2"], "rack is no text"),
        ("listener_security_protocol_map", True, "listener_security_protocol_map is no object"),
        ("listener_security_protocol_map", "x", "listener_security_protocol_map is no object"),
        ("listener_security_protocol_map", 7, "listener_security_protocol_map is no object"),
    ],
)
def test_a_registration_with_which_kafka_does_not_begin_is_named(field, value, words):
    """The copy never began with each of these (docs/odd-trees.md)."""
    body = {"endpoints": ["PLAINTEXT://h:9092"], "rack": "r", "listener_security_protocol_map": {"PLAINTEXT": "SSL"}}
    assert len(of("/brokers/ids/1", body)) == 1
    with pytest.raises(UndecodableZnodeError, match=f"/brokers/ids/1: {words}"):
        of("/brokers/ids/1", {**body, field: value})


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL", "sasl_ssl"])
def test_every_security_protocol_of_kafka_is_read_in_any_case(protocol):
    body = {"endpoints": ["CLIENT://h:9092"], "listener_security_protocol_map": {"CLIENT": protocol}}
    assert len(of("/brokers/ids/1", body)) == 1


@pytest.mark.parametrize("data", [None, b"", b"null", b"[]", b"{}", b'{"version":0}', b'{"version":1}', b"\xff"])
def test_an_unreadable_migration_znode(data):
    with pytest.raises(UndecodableZnodeError, match="/migration"):
        migration_znode(data)


def test_the_migration_znode():
    state = read()[0].migration
    assert state == MigrationZnode(3000, 1, 1683, 1)


@pytest.mark.parametrize(
    ("name", "sensitive"),
    [
        ("ssl.keystore.password", True),
        ("listener.name.x.sasl.jaas.config", True),
        ("ssl.keystore.key", True),
        ("ssl.truststore.certificates", True),
        ("retention.ms", False),
        ("delegation.token.expiry.time.ms", False),
        ("password.encoder.iterations", False),
        ("password.encoder.secret", True),
        ("listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config", True),
        ("listener.name.sasl_ssl.plain.connections.max.reauth.ms", False),
        ("sasl.oauthbearer.token.endpoint.url", False),
        ("delegation.token.master.key", True),
        ("producer_byte_rate", False),
        ("vendor.api.key", True),
        ("vendor.access.key", True),
        ("ldap.bind.passwd", True),
        ("vendor.anything", True),
    ],
)
def test_sensitive_names(name, sensitive):
    assert is_secret_setting(name) is sensitive


def test_connect_strings():
    assert split_connect("a:1,b:2/kafka/x") == ("a:1,b:2", "/kafka/x")
    assert split_connect("a:1,b:2") == ("a:1,b:2", "")
    assert split_connect("a:1/") == ("a:1", "")
