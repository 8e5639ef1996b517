"""What the tree check blocks on, each by itself in a small sound tree; what Kafka does with the same is in `tests/odd_trees`."""

# ruff: noqa: RUF001 - odd characters are what is tested; the plants are made once

# ruff: noqa: RUF001 - odd characters are what is tested; the plants are made once

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Any

import pytest
from tests.odd_trees.tree import (
    ENCODER_SECRET,
    Tree,
    acl_entry,
    config,
    encoded_password,
    put_topic,
    sound_tree,
    token,
    topic_body,
    topic_id,
)

from kraftbridge.metadata.zookeeper.soundness import findings_of
from kraftbridge.models.catalogue import Code, Severity
from kraftbridge.models.config_values import java_double
from kraftbridge.models.report import Finding


def found(change: Callable[[Tree], Any]) -> dict[str, str]:
    tree = sound_tree()
    change(tree)
    findings = findings_of(tree.znodes(), ENCODER_SECRET)
    return {f.code: f.object for f in findings if f.severity is Severity.BLOCKING}


def put(path: str, data: Any) -> Callable[[Tree], None]:
    return lambda tree: tree.put(path, data)


def same_id(tree: Tree) -> None:
    put_topic(tree, "a")
    put_topic(tree, "b")
    tree.put("/brokers/topics/b", topic_body("b") | {"topic_id": topic_id("a")})


BLOCKED: dict[str, tuple[Callable[[Tree], Any], Code, str]] = {
    "unknown quota of a user": (put("/config/users/x", config(foo_rate="1")), Code.QUOTA_UNKNOWN, "/config/users/x"),
    "unknown quota of a user and client": (
        put("/config/users/x/clients/y", config(foo_rate="1")), Code.QUOTA_UNKNOWN, "/config/users/x/clients/y",
    ),
    "unknown quota of an address": (put("/config/ips/10.9.9.9", config(foo_rate="1")), Code.QUOTA_UNKNOWN, "/config/ips/10.9.9.9"),
    "an address' quota of a user": (put("/config/users/x", config(connection_creation_rate="1")), Code.QUOTA_UNKNOWN, "/config/users/x"),
    "a user's quota of an address": (put("/config/ips/10.9.9.9", config(producer_byte_rate="1")), Code.QUOTA_UNKNOWN, "/config/ips/10.9.9.9"),
    "a fraction": (put("/config/users/x", config(producer_byte_rate="1.5")), Code.QUOTA_INVALID, "/config/users/x"),
    "beyond 2^63": (put("/config/users/x", config(consumer_byte_rate="1e30")), Code.QUOTA_INVALID, "/config/users/x"),
    "no URL encoding": (put("/config/clients/100%", config(producer_byte_rate="1")), Code.ENTITY_NAME_INVALID, "/config/clients/100%"),
    "another URL encoding": (put("/config/users/a+b", config(producer_byte_rate="1")), Code.ENTITY_NAME_INVALID, "/config/users/a+b"),
    "a broker config of no broker": (put("/config/brokers/abc", config(num__io__threads="3")), Code.BROKER_CONFIG_NAME_INVALID, "/config/brokers/abc"),
    "a broker of no number": (lambda tree: tree.put("/brokers/ids/abc", tree.nodes["/brokers/ids/0"]), Code.BROKER_ID_INVALID, "/brokers/ids/abc"),
    "a controller's epoch in KRaft as text": (
        put("/controller", {"version": 2, "brokerid": 2, "kraftControllerEpoch": "-1"}), Code.ZNODE_UNDECODABLE, "/controller",
    ),
    "a controller's epoch in KRaft beyond 2^31": (
        put("/controller", {"version": 2, "brokerid": 2, "kraftControllerEpoch": 2**31}), Code.ZNODE_UNDECODABLE, "/controller",
    ),
    "a broker's id beyond 2^31": (
        lambda tree: tree.put("/brokers/ids/2147483648", tree.nodes["/brokers/ids/0"]), Code.BROKER_ID_INVALID, "/brokers/ids/2147483648",
    ),
    "a controller's epoch beyond 2^31": (
        lambda tree: tree.nodes.update({"/controller_epoch": b"99999999999"}), Code.CONTROLLER_EPOCH_INVALID, "/controller_epoch",
    ),
    "two topics with one id": (same_id, Code.TOPIC_ID_DUPLICATE, "/brokers/topics/a"),
    "a replica on an unregistered broker": (
        lambda tree: tree.put(put_topic(tree, "a"), topic_body("a") | {"partitions": {"0": [0, 1, 2, 99]}}),
        Code.REPLICA_ON_UNKNOWN_BROKER,
        "/brokers/topics/a/partitions/0/state",
    ),
    "an ACL of another pattern": (
        put("/kafka-acl-extended/match/Topic/t", {"version": 1, "acls": []}), Code.ACL_PATTERN_UNKNOWN, "/kafka-acl-extended/match/Topic/t",
    ),
    "an ACL with a permission as its operation": (
        put("/kafka-acl/Topic/t", {"version": 1, "acls": [acl_entry(operation="Allow")]}), Code.ACL_UNKNOWN, "/kafka-acl/Topic/t",
    ),
    "an ACL of another version": (put("/kafka-acl/Topic/t", {"version": 2, "acls": []}), Code.ZNODE_UNDECODABLE, "/kafka-acl/Topic/t"),
    "a password in plain text": (
        put("/config/brokers/1", {"version": 1, "config": {"ssl.keystore.password": "plain"}}),
        Code.PASSWORD_ENCODER_SECRET_WRONG,
        "/config/brokers/1 ssl.keystore.password",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BLOCKED)
def test_it_blocks_and_names_the_znode(case: str) -> None:
    change, code, path = BLOCKED[case]
    assert found(change).get(code) == path


TOPIC, BROKER, DEFAULT = "/config/topics/sound", "/config/brokers/1", "/config/brokers/<default>"
THROTTLED = "leader.replication.throttled.replicas"


def too_long(tree: Tree, secret: str | None = ENCODER_SECRET) -> list[Finding]:
    return [f for f in findings_of(tree.znodes(), secret) if f.code == Code.TEXT_TOO_LONG]


@pytest.mark.parametrize(
    ("path", "body", "name", "size"),
    [
        (TOPIC, {THROTTLED: "0:1," * 10_000}, THROTTLED, 40_000),
        (TOPIC, {THROTTLED: "x" * 32_767}, THROTTLED, 32_767),
        (TOPIC, {"x.note": "ä" * 16_384}, "x.note", 32_768),
        (TOPIC, {"x.note": "\U0001d11e" * 8_192}, "x.note", 32_768),
        (BROKER, {THROTTLED: "x" * 40_000}, THROTTLED, 40_000),
        (DEFAULT, {"ssl.cipher.suites": "x" * 40_000}, "ssl.cipher.suites", 40_000),
        ("/config/brokers/99", {"a.b": "x" * 40_000}, "a.b", 40_000),
        (TOPIC, {"k" * 40_000: "1"}, "k" * 60 + "…", 40_000),
    ],
)
def test_a_config_that_no_record_takes_blocks_with_the_way_out(
    path: str, body: dict[str, str], name: str, size: int
) -> None:
    tree = sound_tree()
    tree.put(path, {"version": 1, "config": body})
    (each,) = too_long(tree)
    folder, entity = path.split("/")[2:]
    assert (each.severity, each.object) == (Severity.BLOCKING, path)
    assert f"the config {name} has {size} bytes" in each.reason
    owner = "''" if entity == "<default>" else entity
    assert f"remove-config --brokers HOST:9092,… --{folder.removesuffix('s')}={owner} --config=" in each.fix


@pytest.mark.parametrize(
    ("path", "body", "what"),
    [
        ("/kafka-acl/Topic/" + "r" * 40_000, {"version": 1, "acls": [acl_entry()]}, "the resource rrr"),
        (
            "/kafka-acl-extended/prefixed/Group/" + "r" * 40_000,
            {"version": 1, "acls": [acl_entry()]},
            "the resource rrr",
        ),
        (
            "/kafka-acl/Topic/t",
            {"version": 1, "acls": [acl_entry(principal="User:" + "p" * 40_000)]},
            "the ACL's principal",
        ),
        ("/kafka-acl/Topic/t", {"version": 1, "acls": [acl_entry(host="h" * 40_000)]}, "the ACL's host"),
        ("/config/users/" + "u" * 40_000, config(producer_byte_rate="1"), "the name uuu"),
        ("/config/users/u/clients/" + "%C3%A4" * 16_384, config(producer_byte_rate="1"), "the name %C3"),
        ("/config/clients/" + "c" * 40_000, config(producer_byte_rate="1"), "the name ccc"),
        ("/delegation_token/tokens/t", token("t") | {"owner": "User%3A" + "o" * 40_000}, "the token's owner"),
    ],
)
def test_a_name_that_no_record_takes_blocks(path: str, body: Any, what: str) -> None:
    tree = sound_tree()
    tree.put(path, body)
    (each,) = too_long(tree)
    assert what in each.reason
    assert len(each.reason) < 400
    assert each.fix.startswith("Delete znode ")


def test_the_longest_texts_that_kafka_takes_do_not_block() -> None:
    tree = sound_tree()
    tree.put(TOPIC, {"version": 1, "config": {THROTTLED: "x" * 32_766, "x.note": "ä" * 16_383}})
    tree.put(DEFAULT, {"version": 1, "config": {"x.note": "\U0001d11e" * 8_191}})
    tree.put("/config/users/u/clients/" + "%C3%A4" * 16_383, config(producer_byte_rate="1"))
    tree.put("/config/client-metrics/m", config(metrics="m" * 40_000))  # not copied
    assert too_long(tree) == []


@pytest.mark.parametrize(("plain", "found"), [(30_000, False), (40_000, True)])
def test_a_password_counts_as_the_controllers_copy_it(plain: int, *, found: bool) -> None:
    """Its cipher text is longer than the plain text that becomes the value, by a third and the parameters."""
    name, value = encoded_password()
    cipher = base64.b64encode(bytes(plain + 16 - plain % 16)).decode()
    longer = re.sub(r"encryptedPassword:[^,]*", f"encryptedPassword:{cipher}", value)
    tree = sound_tree()
    tree.put(BROKER, {"version": 1, "config": {name: re.sub(r"passwordLength:\d+", f"passwordLength:{plain}", longer)}})
    assert [f.object for f in too_long(tree)] == ([BROKER] if found else [])
    assert too_long(tree, None), "without the secret the controllers copy the cipher text itself"


@pytest.mark.parametrize(
    "change",
    [
        lambda tree: None,
        put("/config/users/x", config(producer_byte_rate="1e3", request_percentage="0.5")),
        put("/config/users/a%20b/clients/c%2B%7E", config(controller_mutation_rate="1.5")),
        put("/config/users/<default>/clients/<default>", config(consumer_byte_rate=" 5 ")),
        put("/config/ips/%3A%3A1", config(connection_creation_rate="2147483647")),
        put("/config/brokers/99", config(num__io__threads="3")),
    ],
)
def test_what_kafka_takes_does_not_block(change: Callable[[Tree], Any]) -> None:
    assert found(change) == {}


@pytest.mark.parametrize(
    ("address", "warned"),
    [("no-address", True), ("10.9.9.999", True), ("10.9.9.9", False), ("%3A%3A1", False), ("<default>", False)],
)
def test_a_quota_of_an_address_that_is_a_name_is_a_warning(address: str, *, warned: bool) -> None:
    tree = sound_tree()
    put(f"/config/ips/{address}", config(connection_creation_rate="5"))(tree)
    warnings = [f.object for f in findings_of(tree.znodes(), ENCODER_SECRET) if f.code == Code.QUOTA_ADDRESS_IS_NAME]
    assert warnings == ([f"/config/ips/{address}"] if warned else [])


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1.0), (" 1.5\n", 1.5), ("1e3", 1000.0), ("1d", 1.0), (".5F", 0.5), ("0x1p3", 8.0), ("+5", 5.0), ("Infinity", float("inf")),
     ("0x1p99999", float("inf")), ("-0x1p99999999999", float("-inf")), ("0x1p-99999999999", 0.0)],
)  # fmt: skip
def test_doubles_are_read_as_java_reads_them(text: str, value: float) -> None:
    assert java_double(text) == value


@pytest.mark.parametrize("text", ["", "abc", "1_0", "５", "1,5", "0x10", "5L", "inf", "nan", "1 0"])
def test_what_java_does_not_take_for_a_double_is_none(text: str) -> None:
    assert java_double(text) is None
