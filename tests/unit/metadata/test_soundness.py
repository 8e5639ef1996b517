"""What the tree check blocks on, each by itself in a small sound tree; what Kafka does with the same is in `tests/odd_trees`."""

# ruff: noqa: RUF001 - odd characters are what is tested; the plants are made once

# ruff: noqa: RUF001 - odd characters are what is tested; the plants are made once

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.odd_trees.tree import ENCODER_SECRET, Tree, acl_entry, config, put_topic, sound_tree, topic_body, topic_id

from kraftbridge.metadata.zookeeper.soundness import findings_of
from kraftbridge.models.catalogue import Code, Severity
from kraftbridge.models.config_values import java_double


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
