"""The snapshot file and the disarmed endpoints, read back byte by byte; that ZooKeeper takes the file is an integration test."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

import pytest

from kraftbridge.exceptions import RehearsalError
from kraftbridge.metadata.zookeeper.reader import write_dump
from kraftbridge.metadata.zookeeper.znodes import Znode
from kraftbridge.rehearsal.comparison import changed_paths
from kraftbridge.rehearsal.controller_log import without
from kraftbridge.rehearsal.tree import SecurityProtocol, SnapshotWriter, disarm, secrets_in

PORTS = (40001, 40002, 40003)
BROKER = {
    "endpoints": ["CLIENT://kafka-0.example:9092", "INTERNAL://[2001:db8::7]:9093"],
    "listener_security_protocol_map": {"CLIENT": "SASL_SSL", "INTERNAL": "PLAINTEXT"},
    "host": "kafka-0.example",
    "port": 9092,
    "rack": "a",
    "version": 5,
}


def znodes() -> list[Znode]:
    return [
        Znode("/brokers/topics/t/partitions/0/state", b"{}", version=7, modified_zxid=40),
        Znode("/brokers/ids/0", json.dumps(BROKER).encode(), ephemeral_owner=99),
        Znode("/cluster/id", b'{"version":"1","id":"abc"}'),
        Znode("/brokers/topics/t", b"{}"),
    ]


def counters(path: Path) -> dict[str, int]:
    """Return `StatPersisted.cversion` of each znode of a snapshot: the number of its next sequential child."""
    data = path.read_bytes()
    position, found = 24, {}
    while True:
        (length,) = struct.unpack_from(">i", data, position)
        name = data[position + 4 : position + 4 + length].decode()
        position += 4 + length
        if name == "/":
            return found
        (length,) = struct.unpack_from(">i", data, position)
        position += 4 + max(0, length)
        found[name] = struct.unpack_from(">qqqqqiiiqq", data, position)[6]
        position += struct.calcsize(">qqqqqiiiqq")


def read_back(path: Path) -> dict[str, tuple[bytes | None, int, int]]:
    data = path.read_bytes()
    end = len(data) - 13
    assert struct.unpack_from(">q", data, end)[0] == zlib.adler32(data[:end])
    position, found = 24, {}
    while True:
        (length,) = struct.unpack_from(">i", data, position)
        name = data[position + 4 : position + 4 + length].decode()
        position += 4 + length
        if name == "/":
            assert position == end
            return found
        (length,) = struct.unpack_from(">i", data, position)
        value = None if length < 0 else data[position + 4 : position + 4 + length]
        position += 4 + max(0, length)
        stat = struct.unpack_from(">qqqqqiiiqq", data, position)
        position += struct.calcsize(">qqqqqiiiqq")
        parent = name.rpartition("/")[0]
        assert name == "" or parent in found, f"{name} stands before its parent"
        found[name] = (value, stat[5], stat[8])


def test_versions_stay_parents_come_first_and_nothing_is_ephemeral(tmp_path: Path) -> None:
    writer = SnapshotWriter(PORTS)
    writer.take(znodes())
    assert (writer.size.topics, writer.size.partitions, writer.size.brokers) == (1, 1, 1)
    writer.write(tmp_path)

    (file,) = tmp_path.iterdir()
    assert file.name == "snapshot.29"  # one after the highest zxid, in hexadecimal
    found = read_back(file)
    assert found["/brokers/topics/t/partitions/0/state"] == (b"{}", 7, 0)
    assert all(owner == 0 for _, _, owner in found.values())
    assert {"/brokers", "/brokers/ids", "/zookeeper/quota"} <= found.keys()


def test_no_address_of_the_real_cluster_is_left() -> None:
    data, registration = disarm(0, json.dumps(BROKER).encode(), PORTS)

    assert data is not None and registration is not None  # noqa: PT018
    assert b"example" not in data and b"2001" not in data  # noqa: PT018
    assert [(each.host, each.port) for each in registration.listeners] == [("127.0.0.1", 40001), ("127.0.0.1", 40002)]
    assert registration.listeners[0].security_protocol is SecurityProtocol.SASL_SSL
    assert registration.rack == "a"


def test_a_security_protocol_in_small_letters_is_registered() -> None:
    broker = BROKER | {"listener_security_protocol_map": {"CLIENT": "sasl_ssl", "INTERNAL": "plaintext"}}
    _, registration = disarm(0, json.dumps(broker).encode(), PORTS)

    assert registration is not None
    assert registration.listeners[0].security_protocol is SecurityProtocol.SASL_SSL


@pytest.mark.parametrize(
    "data", [None, b"", b"{", b"[]", b'{"endpoints":[]}', b'{"endpoints":["A://h:1"]}', b'{"endpoints":3}']
)
def test_a_registration_that_cannot_be_understood_is_a_problem_never_a_guess(data: bytes | None) -> None:
    writer = SnapshotWriter(PORTS)
    writer.take([*znodes(), Znode("/brokers/ids/7", data)])
    assert [broker.id for broker in writer.brokers] == [0]
    assert "/brokers/ids/7" in writer.problems[0]


def test_a_users_znode_that_is_named_as_one_of_zookeepers_is_kept(tmp_path: Path) -> None:
    writer = SnapshotWriter(PORTS)
    own = Znode("/zookeeper/quota", b"x")
    writer.take([*znodes(), own, Znode("/zookeeper-x", b"1"), Znode("/zookeeper-x/y", b"2")])
    writer.write(tmp_path)
    kept = read_back(next(tmp_path.iterdir()))
    assert kept["/zookeeper-x"][0] == b"1"
    assert kept["/zookeeper-x/y"][0] == b"2"
    assert kept["/zookeeper/quota"][0] == b""


@pytest.mark.parametrize(
    ("folder", "ours"),
    [
        ("/zookeeper", False),
        ("/zookeeper-x", True),
        ("/config/changes", False),
        ("/config/changes-x", True),
        ("/brokers/ids", False),
    ],
)
def test_only_what_is_below_a_folder_of_kafkas_own_is_no_change_of_the_tree(
    folder: str, ours: bool, tmp_path: Path
) -> None:
    before = tmp_path / "before.jsonl"
    after = tmp_path / "after.jsonl"
    common = Znode("/cluster/id", b"{}")
    write_dump(iter([common, Znode(f"{folder}/gone", b"1")]), before, "")
    write_dump(iter([common, Znode(f"{folder}/new", b"1")]), after, "")
    expected = ([f"{folder}/gone"], [f"{folder}/new"], []) if ours else ([], [], [])
    assert changed_paths(before, "", after) == expected


CHANGES = "/config/changes"


def notifications(numbers: range, prefix: str = "/config/changes/config_change_") -> list[Znode]:
    return [Znode(f"{prefix}{number:010d}", b"{}") for number in numbers]


@pytest.mark.parametrize(
    ("written", "numbers", "following"),
    [
        (Znode(CHANGES, None, children=37, cversion=2 * 58 - 37), range(21, 58), 58),
        (Znode(CHANGES, None, children=0, cversion=2 * 58), range(0), 58),
        (Znode(CHANGES, None, children=37), range(21, 58), 58),
        (Znode(CHANGES, None, children=5, cversion=2 * 58 - 5), range(57, 62), 62),  # made while the dump was written
        (Znode(CHANGES, None, children=2, cversion=-(2**31)), range(0), 2**30 + 1),  # the sum overflows in ZooKeeper
        (Znode(CHANGES, None, children=0, cversion=-2), range(0), 2**31 - 1),
        (Znode(CHANGES, None, children=1, cversion=2 * 2**31 - 3), [2**31 - 2], 2**31 - 1),
        (None, range(21, 58), 58),
    ],
)
def test_the_next_sequential_child_gets_the_number_that_zookeeper_would_give_it(
    written: Znode | None, numbers: range, following: int, tmp_path: Path
) -> None:
    """``DataNode.copyStat`` reports twice the number of children ever created, less those that are there."""
    writer = SnapshotWriter(PORTS)
    writer.take([*znodes(), *filter(None, [written]), *notifications(numbers)])
    writer.write(tmp_path)
    assert counters(next(tmp_path.iterdir()))[CHANGES] == following


@pytest.mark.parametrize("name", ["orders-9999999999", "orders-2147483647", "orders-12345678901", "2026112612"])
def test_a_topic_whose_name_ends_in_digits_breaks_no_snapshot(name: str, tmp_path: Path) -> None:
    writer = SnapshotWriter(PORTS)
    writer.take(
        [*znodes(), Znode("/brokers/topics", None, children=2, cversion=2), Znode(f"/brokers/topics/{name}", b"{}")]
    )
    writer.write(tmp_path)
    assert 2 <= counters(next(tmp_path.iterdir()))["/brokers/topics"] < 2**31


def test_what_the_dump_could_not_read_is_a_problem() -> None:
    writer = SnapshotWriter(PORTS)
    writer.take([*znodes(), Znode("/config/users/a", None, problem="NoAuthError()")])
    assert "NoAuthError" in writer.problems[0]


@pytest.mark.parametrize(
    ("controller", "kept"),
    [(b'{"brokerid":1,"kraftControllerEpoch":-1}', True), (b'{"brokerid":3000,"kraftControllerEpoch":4}', False)],
)
def test_what_a_kraft_controller_left_is_left_out_what_zookeeper_had_is_kept(
    controller: bytes, kept: bool, tmp_path: Path
) -> None:
    writer = SnapshotWriter(PORTS)
    writer.take([*znodes(), Znode("/migration", b"{}"), Znode("/controller", controller)])
    writer.write(tmp_path)
    assert ("/migration" in read_back(next(tmp_path.iterdir()))) is kept


def test_a_dump_that_cannot_be_used_is_refused() -> None:
    with pytest.raises(RehearsalError, match="chroot"):
        SnapshotWriter(PORTS).take(znodes()[2:])
    with pytest.raises(RehearsalError, match="cluster/id"):
        SnapshotWriter(PORTS).take(znodes()[:2])
    with pytest.raises(RehearsalError, match="redacted"):
        SnapshotWriter(PORTS).take(
            [*znodes(), Znode("/config/users/a", b'{"config":{"SCRAM-SHA-256":"salt=sha256:00"}}')]
        )
    with pytest.raises(RehearsalError, match="more than once"):
        SnapshotWriter(PORTS).take([*znodes(), znodes()[0]])


SCRAM = "salt=c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=4096"


@pytest.mark.parametrize(
    ("path", "data", "expected"),
    [
        ("/config/users/a", {"config": {"SCRAM-SHA-512": SCRAM, "producer_byte_rate": "1024"}}, ["c2FsdA==", "c3RvcmVk", "c2VydmVy"]),
        ("/config/brokers/0", {"config": {"ssl.key.password": "encryptedPassword:x", "num.io.threads": "8"}}, ["encryptedPassword:x"]),
        ("/delegation_token/tokens/t", {"owner": "User:a", "hmac": "aG1hYw=="}, ["aG1hYw=="]),
        ("/config/topics/t", {"config": {"retention.ms": "1"}}, []),
        ("/config/users/b", ["no object"], []),
    ],
)  # fmt: skip
def test_the_secrets_of_a_tree_are_known(path: str, data: object, expected: list[str]) -> None:
    assert list(secrets_in(Znode(path, json.dumps(data).encode()))) == expected


def test_a_secret_in_kafkas_words_is_hidden_also_where_its_znode_could_not_be_decoded() -> None:
    line = "IllegalArgumentException: Credentials not valid: salt=AA==,server_key=QkJC,iterations=1 of known-value; password: x"
    hidden = without({"known-value"}, line)
    assert hidden == (
        "IllegalArgumentException: Credentials not valid: salt=[hidden],server_key=[hidden],iterations=1 of [hidden]; password: [hidden]"
    )
    assert (
        without((), "topic orders: 3 partitions, min.insync.replicas=2")
        == "topic orders: 3 partitions, min.insync.replicas=2"
    )
