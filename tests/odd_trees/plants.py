"""The generator: every kind of znode, every field of it, missing, of another type, version, sign, range or encoding.

A plant changes something of its own, so many share a tree; of those that change what a tree has once (`/controller`, the producer
ids …) a tree has one of each.
"""

# ruff: noqa: RUF001, B008 - odd characters are what is tested; the plants are made once

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.odd_trees.tree import (
    Tree,
    acl_entry,
    broker,
    config,
    encoded_password,
    producer_ids,
    put_topic,
    scram,
    state_body,
    token,
    topic_body,
    topic_id,
)

GONE = object()
"""A field that is left out."""


@dataclass
class Plant:
    """One oddity.

    Attributes
    ----------
    name
        What is odd, as the results name it; it never changes for the same oddity.
    marker
        Text that paths and keys of its own entities hold and no other's; ``""``: it changes what a tree has once.
    """

    name: str
    marker: str
    apply: Callable[[Tree], None] = field(repr=False)

    @property
    def alone(self) -> bool:
        return not self.marker

    @property
    def place(self) -> str:
        """What a plant without a marker changes; two of one place cannot be in one tree."""
        kind = self.name.partition(":")[0]
        return "folders" if kind == "no folder" or kind.startswith("/admin/") else kind


Body = dict[str, Any]
Put = Callable[[Tree, str, bytes | None], None]
"""Writes the odd bytes for the entity of a marker."""

_RAW: dict[str, bytes | None] = {
    "no data": None,
    "empty": b"",
    "null": b"null",
    "list": b"[]",
    "number": b"7",
    "text": b'"x"',
    "empty object": b"{}",
    "cut off": b"{",
    "words": b"not json",
    "not UTF-8": b'{"version":\xff}',
}


def _whole(body: Body) -> Iterator[tuple[str, bytes | None]]:
    yield from _RAW.items()
    text = json.dumps(body)
    yield "byte order mark", b"\xef\xbb\xbf" + text.encode()
    yield "trailing text", (text + " x").encode()
    yield "spaces around", f"  {text}\n".encode()
    yield "UTF-16", text.encode("utf-16")
    yield "unknown field", json.dumps(body | {"made_up": [1]}).encode()
    first = next(iter(body))
    yield "a field twice", (text[:-1] + f", {json.dumps(first)}: {json.dumps(body[first])}}}").encode()


def _values(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield odd values in place of one, and what to call them."""
    yield "missing", GONE
    yield "null", None
    odd: dict[str, Any] = {"list": [], "object": {}, "true": True}
    match value:
        case bool():
            pass
        case int():
            odd |= {
                "text number": str(value), "text": "x", "fraction": value + 0.5, "float": float(value), "-1": -1, "-5": -5,
                "0": 0, "2^31": 2**31, "2^63": 2**63, "99": 99,
            }  # fmt: skip
        case str():
            odd |= {"number": 7, "empty text": "", "space": " ", "another text": f"{value}x", "list of it": [value]}
        case list():
            odd |= {
                "text": "x", "list of null": [None], "list of text": ["a"], "list of number texts": [str(v) for v in value] or ["1"],
                "number": 7, "twice": [*value, *value], "nested": [value],
            }  # fmt: skip
        case dict():
            odd |= {"text": "x", "number": 7}
    for name, each in odd.items():
        if json.dumps(each) != json.dumps(value):
            yield name, each


def _fields(body: Body, only: Sequence[str] = ()) -> Iterator[tuple[str, bytes]]:
    for name, value in body.items():
        if only and name not in only:
            continue
        for what, odd in _values(value):
            changed = copy.deepcopy(body)
            if odd is GONE:
                del changed[name]
            else:
                changed[name] = odd
            yield f"{name} {what}", json.dumps(changed).encode()


class _Catalogue:
    """Collects plants and numbers their markers."""

    def __init__(self) -> None:
        self.plants: list[Plant] = []
        self._numbers = itertools.count(1000)

    def add(self, name: str, apply: Callable[[Tree, str], None], marker: str | None = None) -> None:
        own = f"odd{next(self._numbers)}" if marker is None else marker
        self.plants.append(Plant(name, own, lambda tree: apply(tree, own)))

    def alone(self, name: str, apply: Callable[[Tree], None]) -> None:
        self.plants.append(Plant(name, "", apply))

    def bodies(self, kind: str, put: Put, body: Callable[[str], Body], only: Sequence[str] = ()) -> None:
        """Add a plant for each odd form of a znode's data."""
        sample = body("sample")
        for what, _ in (*_whole(sample), *_fields(sample, only)):

            def apply(tree: Tree, marker: str, what: str = what) -> None:
                own = body(marker)
                put(tree, marker, dict((*_whole(own), *_fields(own, only)))[what])

            self.add(f"{kind}: {what}", apply)

    def single(self, kind: str, path: str, body: Body) -> None:
        """Add a plant for each odd form of a znode that there is once."""
        for what, data in (*_whole(body), *_fields(body)):
            self.alone(f"{kind}: {what}", lambda tree, data=data: tree.put(path, data))  # type: ignore[misc]


# ---------------------------------------------------------------------------------------------------------- topics


def _topics(c: _Catalogue) -> None:
    def put(tree: Tree, marker: str, data: bytes | None) -> None:
        tree.put(put_topic(tree, marker), data)

    c.bodies("topic", put, topic_body)
    ids = {
        "zero": "AAAAAAAAAAAAAAAAAAAAAA", "one, which is the metadata topic's": "AAAAAAAAAAAAAAAAAAAAAQ", "no base64": "!!!!!!!!!!!!!!!!!!!!!!",
        "with padding": "CC-UM1UJQNG-qTMhv2YKhA==", "too long": "CC-UM1UJQNG-qTMhv2YKhACC-UM1UJQNG-qTMhv2YKhA", "too short": "CC-UM1",
        "other alphabet": "CC+UM1UJQNG/qTMhv2YKhA", "dashed UUID": "0be94cb2-2515-4b1f-9d4d-8f3b2e2c7a11", "trailing space": "CC-UM1UJQNG-qTMhv2YKhA ",
        "last bits set": "CC-UM1UJQNG-qTMhv2YKhB",
    }  # fmt: skip
    for what, value in ids.items():
        c.add(f"topic: id {what}", _topic_with(topic_id=value))
    c.add("topic: the id of another topic", _same_id)
    for version in (0, 1, 2, 4, 99):
        c.add(f"topic: version {version}", _topic_with(version=version))
    partitions: dict[str, Any] = {
        "named a": {"a": [0, 1, 2]}, "named -1": {"-1": [0, 1, 2]}, "named 01": {"01": [0, 1, 2]}, "named 1.5": {"1.5": [0, 1, 2]},
        "named nothing": {"": [0, 1, 2]}, "named 2^31": {"2147483648": [0, 1, 2]}, "named with a space": {" 0": [0, 1, 2]},
        "with a gap": {"0": [0, 1, 2], "5": [0, 1, 2]}, "from 1": {"1": [0, 1, 2]}, "none": {},
    }  # fmt: skip
    for what, value in partitions.items():
        c.add(f"topic: partitions {what}", _topic_with(partitions=value))
    replicas: dict[str, Any] = {
        "none": [], "one broker twice": [0, 0], "an unregistered broker": [0, 99], "-1": [-1], "a text number": [0, "1"], "a fraction": [0, 0.5],
        "a float": [0, 1.0], "null": [0, None], "2^31": [0, 2**31], "text": "0", "null as a whole": None, "one only": [0], "true": [True],
    }  # fmt: skip
    for what, value in replicas.items():
        c.add(f"topic: replicas {what}", _topic_with(partitions={"0": value}))
        if isinstance(value, list) and value and 0 in value:
            c.add(f"topic: adding replicas {what}", _topic_with(adding_replicas={"0": value}))
            c.add(f"topic: removing replicas {what}", _topic_with(removing_replicas={"0": value}))
    c.add("topic: adding replicas of a partition that is not there", _topic_with(adding_replicas={"7": [1]}))
    c.add("topic: removing replicas of a partition that is not there", _topic_with(removing_replicas={"7": [1]}))
    c.add(
        "topic: adding a replica that is no replica", _topic_with(partitions={"0": [0, 1]}, adding_replicas={"0": [2]})
    )
    for what, name in {
        "a space": "{} x", "an umlaut": "{}ü", "249 characters": "{}" + "x" * 242, "250 characters": "{}" + "x" * 243, "percent": "{}%20",
        "a star": "{}*", "underscores": "__{}", "a dot first": ".{}", "a colon": "{}:1", "a control character": "{}\u0085",
    }.items():  # fmt: skip
        c.add(f"topic: name with {what}", lambda tree, marker, name=name: put_topic(tree, name.format(marker)) and None)  # type: ignore[misc]
    for name in ("..", ".", "__cluster_metadata"):
        if name == "__cluster_metadata":
            c.alone(f"topic: named {name}", lambda tree, name=name: put_topic(tree, name) and None)  # type: ignore[misc]

    def without(suffix: str) -> Callable[[Tree, str], None]:
        return lambda tree, marker: tree.remove(put_topic(tree, marker) + suffix)

    def with_child(suffix: str, data: Any = None) -> Callable[[Tree, str], None]:
        return lambda tree, marker: tree.put(put_topic(tree, marker) + suffix, data)

    c.add("topic: no folder of partitions", without("/partitions"))
    c.add("topic: no folder of a partition", without("/partitions/0"))
    c.add("topic: no state", without("/partitions/0/state"))
    c.add("topic: no config znode", lambda tree, m: put_topic(tree, m) and tree.remove(f"/config/topics/{m}"))  # type: ignore[func-returns-value]
    c.add(
        "topic: states without a topic",
        lambda tree, m: tree.put(f"/brokers/topics/{m}/partitions/0/state", state_body()),
    )
    c.add("topic: a folder without data or children", lambda tree, m: tree.put(f"/brokers/topics/{m}"))
    c.add("topic: state of a partition that is not there", with_child("/partitions/9/state", state_body()))
    c.add("topic: folder of a partition that is not there", with_child("/partitions/9"))
    c.add("topic: a partition folder named x", with_child("/partitions/x"))
    c.add("topic: a partition folder named x with a state", with_child("/partitions/x/state", state_body()))
    c.add("topic: another child", with_child("/made-up", b"x"))
    c.add("topic: a child below a state", with_child("/partitions/0/state/child", b"x"))
    c.add("topic: data in the folder of partitions", with_child("/partitions", b"x"))


def _topic_with(**values: Any) -> Callable[[Tree, str], None]:
    def apply(tree: Tree, marker: str) -> None:
        body = topic_body(marker) | values
        put_topic(tree, marker)
        tree.put(f"/brokers/topics/{marker}", body)
        for number in body["partitions"] if isinstance(body["partitions"], dict) else ():
            tree.put(f"/brokers/topics/{marker}/partitions/{number or 'x'}/state", state_body())

    return apply


def _same_id(tree: Tree, marker: str) -> None:
    put_topic(tree, marker)
    _topic_with(topic_id=topic_id(marker))(tree, f"{marker}b")


def _states(c: _Catalogue) -> None:
    def put(tree: Tree, marker: str, data: bytes | None) -> None:
        tree.put(f"{put_topic(tree, marker)}/partitions/0/state", data)

    c.bodies("state", put, lambda _: state_body() | {"leader_recovery_state": 0})
    odd: dict[str, Body] = {
        "version 0": {"version": 0}, "version 2": {"version": 2}, "leader 99": {"leader": 99, "isr": [99]}, "leader -2": {"leader": -2},
        "leader outside the ISR": {"leader": 2, "isr": [0, 1]}, "no leader": {"leader": -1}, "no leader, one in the ISR": {"leader": -1, "isr": [0]},
        "empty ISR": {"isr": []}, "ISR with one broker twice": {"isr": [0, 0, 1]}, "ISR with an unregistered broker": {"isr": [0, 99]},
        "ISR with a broker that is no replica": {"isr": [0, 1, 2, 5]}, "ISR in another order": {"isr": [2, 0, 1]}, "ISR of text numbers": {"isr": ["0", "1"]},
        "recovering": {"leader_recovery_state": 1}, "recovery state 2": {"leader_recovery_state": 2}, "recovery state -1": {"leader_recovery_state": -1},
        "controller epoch ahead": {"controller_epoch": 8}, "controller epoch behind": {"controller_epoch": 1}, "leader epoch 2^31-1": {"leader_epoch": 2**31 - 1},
    }  # fmt: skip
    for what, values in odd.items():
        c.add(
            f"state: {what}",
            lambda tree, m, values=values: tree.put(f"{put_topic(tree, m)}/partitions/0/state", state_body() | values),  # type: ignore[misc]
        )


# --------------------------------------------------------------------------------------------------------- configs


def _configs(c: _Catalogue) -> None:
    def topic(tree: Tree, marker: str, data: bytes | None) -> None:
        put_topic(tree, marker)
        tree.put(f"/config/topics/{marker}", data)

    c.bodies("topic config", topic, lambda _: config(retention__ms="1000"))
    identities = itertools.count(5000)

    def broker_config(what: str, values: Any) -> None:
        identity = next(identities)
        c.add(f"broker config: {what}", lambda tree, m: tree.put(f"/config/brokers/{m}", values), str(identity))

    for what, data in (*_whole(config(num__io__threads="3")), *_fields(config(num__io__threads="3"))):
        broker_config(what, data)
    odd_values: dict[str, Any] = {
        "number": 7, "fraction": 1.5, "null": None, "true": True, "list": ["a"], "object": {"a": "b"}, "empty text": "", "umlaut": "ü",
        "line break": "a\nb", "no number": "many",
    }  # fmt: skip
    for what, value in odd_values.items():
        own = json.dumps({"version": 1, "config": {"retention.ms": value}}).encode()
        c.add(f"topic config: value {what}", lambda tree, m, own=own: topic(tree, m, own))  # type: ignore[misc]
        broker_config(f"value {what}", {"version": 1, "config": {"num.io.threads": value}})
    for what, name in {
        "unknown": "made.up",
        "empty": "",
        "upper case": "RETENTION.MS",
        "with a space": "retention ms",
    }.items():
        own = json.dumps({"version": 1, "config": {name: "1"}}).encode()
        c.add(f"topic config: key {what}", lambda tree, m, own=own: topic(tree, m, own))  # type: ignore[misc]
        broker_config(f"key {what}", {"version": 1, "config": {name: "1"}})
    for version in (0, 2, 99):
        own = json.dumps(config(retention__ms="1") | {"version": version}).encode()
        c.add(f"topic config: version {version}", lambda tree, m, own=own: topic(tree, m, own))  # type: ignore[misc]
        broker_config(f"version {version}", config(num__io__threads="3") | {"version": version})
    c.add(
        "topic config: of a topic that is not there",
        lambda tree, m: tree.put(f"/config/topics/{m}", config(retention__ms="1")),
    )
    c.add(
        "topic config: empty, of a topic that is not there", lambda tree, m: tree.put(f"/config/topics/{m}", config())
    )
    c.add(
        "topic config: a child",
        lambda tree, m: tree.put(f"/config/topics/{put_topic(tree, m).rpartition('/')[2]}/child", b"x"),
    )
    name, secret = encoded_password()
    parts = dict(part.split(":", 1) for part in secret.split(","))
    for part in parts:
        changed = ",".join(f"{k}:{v}" for k, v in parts.items() if k != part)
        broker_config(f"password without {part}", {"version": 1, "config": {name: changed}})
    for part, value in {
        "iterations": "x",
        "keyLength": "7",
        "cipherAlgorithm": "ROT13",
        "passwordLength": "5",
        "encryptedPassword": "AAAA",
    }.items():
        changed = ",".join(f"{k}:{value if k == part else v}" for k, v in parts.items())
        broker_config(f"password with {part} {value}", {"version": 1, "config": {name: changed}})
    broker_config("password in plain text", {"version": 1, "config": {"ssl.keystore.password": "plain"}})
    broker_config(
        "password of a listener in plain text",
        {"version": 1, "config": {"listener.name.internal.ssl.keystore.password": "plain"}},
    )
    broker_config("password empty", {"version": 1, "config": {"ssl.keystore.password": ""}})
    broker_config("cipher text in a setting that is no password", {"version": 1, "config": {"num.io.threads": secret}})
    for odd in (
        "abc",
        "-1",
        "+7",
        "007",
        " 7",
        "7.0",
        "1e3",
        "2147483648",
        "<Default>",
        "%3Cdefault%3E",
        "٣",
        "<default> ",
    ):
        c.alone(
            f"broker config: named {odd!r}",
            lambda tree, odd=odd: tree.put(f"/config/brokers/{odd}", config(num__io__threads="3")),
        )  # type: ignore[misc]


_LIMITS = (
    "1.5", "-1", "-1.5", "0", "0.5", "1e3", "abc", "", " 5 ", "NaN", "Infinity", "-Infinity", "1e30", "1e400", "9223372036854775807", "9223372036854775808",
    "2147483647", "2147483648", "0x10", "0x1p3", "1d", "1f", "5L", "５", "1_0", "1,5", "+5", "05", "9007199254740993", "1.0000001",
)  # fmt: skip
_QUOTAS = {
    "users": ("producer_byte_rate", "request_percentage"),
    "clients": ("consumer_byte_rate", "controller_mutation_rate"),
    "ips": ("connection_creation_rate",),
}


def _quotas(c: _Catalogue) -> None:
    addresses = itertools.count(0)

    def add(folder: str, what: str, values: Any) -> None:
        if folder == "ips":
            number = next(addresses)
            address = (
                f"10.77.{number // 100}.{number % 100 + 100}"  # three digits, so that none is the start of another
            )
            c.add(f"quota of ips: {what}", lambda tree, m: tree.put(f"/config/ips/{m}", values), address)
        else:
            c.add(f"quota of {folder}: {what}", lambda tree, m: tree.put(f"/config/{folder}/{m}", values))

    for folder, names in _QUOTAS.items():
        sample = {"version": 1, "config": {names[0]: "1000"}}
        for what, data in (*_whole(sample), *_fields(sample)):
            add(folder, what, data)
        for name, limit in itertools.product(names, _LIMITS):
            add(folder, f"{name}={limit!r}", {"version": 1, "config": {name: limit}})
        for what, value in {"a number": 5, "a fraction": 1.5, "null": None, "true": True, "a list": ["1"]}.items():
            add(folder, f"{names[0]} is {what}, no text", {"version": 1, "config": {names[0]: value}})
        for other in (
            "foo_rate", "PRODUCER_BYTE_RATE", "producer_byte_rate ", "", "connection_creation_rate", "producer_byte_rate",
            "consumer_byte_rate", "request_percentage", "controller_mutation_rate",
        ):  # fmt: skip
            add(folder, f"named {other!r}", {"version": 1, "config": {other: "10"}})
        add(folder, "version 2", {"version": 2, "config": {names[0]: "1000"}})
        add(folder, "no config in it", {"version": 1, "config": {}})
    for what, user in {
        "a lone percent": "{}%", "percent zz": "{}%zz", "a plus": "{}+b", "half a character": "{}%C3", "bytes that are no UTF-8": "{}%FF", "a space": "{} b",
        "an encoded space": "{}%20b", "a raw umlaut": "{}ü", "an encoded umlaut": "{}%C3%BC", "lower case hex": "{}%c3%bc", "an encoded slash": "{}%2Fb",
        "a raw star": "{}*", "an encoded star": "{}%2A", "a raw tilde": "{}~", "an encoded letter": "{}%41", "a raw quote": "{}'", "a double percent": "{}%%",
        "percent at the end": "{}%4", "a raw colon": "{}:b",
    }.items():  # fmt: skip
        for folder, names in (("users", _QUOTAS["users"]), ("clients", _QUOTAS["clients"])):
            c.add(
                f"quota of {folder}: name with {what}",
                lambda tree, m, user=user, folder=folder, names=names: tree.put(  # type: ignore[misc]
                    f"/config/{folder}/{user.format(m)}", {"version": 1, "config": {names[0]: "10"}}
                ),
            )
        c.add(
            f"quota of users and clients: client's name with {what}",
            lambda tree, m, user=user: tree.put(
                f"/config/users/{m}/clients/{user.format(m)}", config(producer_byte_rate="10")
            ),  # type: ignore[misc]
        )
    c.add("quota of users: two names for one user", _two_names)
    c.add("quota of users: a folder without data", lambda tree, m: tree.put(f"/config/users/{m}"))
    c.add("quota of users: an empty folder of clients", lambda tree, m: tree.put(f"/config/users/{m}/clients"))
    c.add(
        "quota of users: data in the folder of clients",
        lambda tree, m: tree.put(f"/config/users/{m}/clients", config(producer_byte_rate="10")),
    )
    c.add(
        "quota of users: another folder",
        lambda tree, m: tree.put(f"/config/users/{m}/groups/g", config(producer_byte_rate="10")),
    )
    c.add(
        "quota of clients: a folder below",
        lambda tree, m: tree.put(f"/config/clients/{m}/users/u", config(producer_byte_rate="10")),
    )
    c.add(
        "quota of users and clients: unknown",
        lambda tree, m: tree.put(f"/config/users/{m}/clients/c", config(foo_rate="1")),
    )
    c.add(
        "quota of users and clients: an IP's",
        lambda tree, m: tree.put(f"/config/users/{m}/clients/c", config(connection_creation_rate="1")),
    )
    c.add(
        "quota of users and clients: fraction",
        lambda tree, m: tree.put(f"/config/users/{m}/clients/c", config(producer_byte_rate="1.5")),
    )
    for address in ("10.9.9.999", "no-address", "::1", "fe80::1%eth0", "localhost", "10.1", "<Default>", "2001:DB8::7"):
        c.alone(
            f"quota of ips: {address}",
            lambda tree, address=address: tree.put(f"/config/ips/{address}", config(connection_creation_rate="9")),
        )  # type: ignore[misc]


def _two_names(tree: Tree, marker: str) -> None:
    tree.put(f"/config/users/{marker} b", config(producer_byte_rate="10"))
    tree.put(f"/config/users/{marker}%20b", config(producer_byte_rate="20"))


def _scram(c: _Catalogue) -> None:
    def user(what: str, mechanism: str, value: Any, path: str = "/config/users/{}") -> None:
        body = {"version": 1, "config": {mechanism: value}}
        c.add(f"SCRAM: {what}", lambda tree, m: tree.put(path.format(m), body))

    for field_name in ("salt", "stored_key", "server_key", "iterations"):
        user(f"without {field_name}", "SCRAM-SHA-256", scram(**{field_name: None}))
        user(f"{field_name} empty", "SCRAM-SHA-256", scram(**{field_name: ""}))
        user(f"{field_name} no base64 and no number", "SCRAM-SHA-256", scram(**{field_name: "!!!"}))
    for iterations in ("10", "0", "-1", "4096.5", "2147483648", "0x1000", " 4096", "99999", "４０９６"):
        user(f"iterations {iterations!r}", "SCRAM-SHA-256", scram(iterations=iterations))
    for what, value in {
        "another field": scram(extra="1"), "a field twice": scram() + ",iterations=8192", "nothing": "", "no pairs": "abc", "spaces": scram().replace(",", ", "),
        "a comma at the end": scram() + ",", "salt without padding": scram(salt="YWJjZA"), "URL-safe base64": scram(salt="_-8="), "upper case names": scram().upper(),
        "other order": ",".join(reversed(scram().split(","))), "a line break": scram() + "\n",
    }.items():  # fmt: skip
        user(what, "SCRAM-SHA-256", value)
    user("a number", "SCRAM-SHA-256", 5)
    user("null", "SCRAM-SHA-256", None)
    for mechanism in ("SCRAM-SHA-1", "SCRAM-SHA-384", "scram-sha-256", "SCRAM-SHA-512"):
        user(f"mechanism {mechanism}", mechanism, scram())
    user("of a client", "SCRAM-SHA-256", scram(), "/config/clients/{}")
    user("of a user and client", "SCRAM-SHA-256", scram(), "/config/users/{}/clients/c")
    user("of a user whose name is raw", "SCRAM-SHA-256", scram(), "/config/users/{}ü b")
    c.alone(
        "SCRAM: of the default user",
        lambda tree: tree.put("/config/users/<default>", {"version": 1, "config": {"SCRAM-SHA-256": scram()}}),
    )


# ------------------------------------------------------------------------------------------------------------ ACLs


def _acls(c: _Catalogue) -> None:
    def body(**values: Any) -> Body:
        return {"version": 1, "acls": [acl_entry(**values)]}

    def topic(tree: Tree, marker: str, data: bytes | None) -> None:
        tree.put(f"/kafka-acl/Topic/{marker}", data)

    c.bodies("ACL", topic, lambda _: body())
    for what, entry in _fields(acl_entry()):
        own = json.dumps({"version": 1, "acls": [json.loads(entry)]}).encode()
        c.add(f"ACL: {what}", lambda tree, m, own=own: topic(tree, m, own))  # type: ignore[misc]
    odd: dict[str, Sequence[str]] = {
        "principal": ("User", "User:", ":x", "User:*", "user:x", "Group:g", "User:ü", "User:a:b", "User:a b", "User:%20", "User: a", " User:a"),
        "host": ("10.0.0.1", "10.0.0.999", "a host", "::1", "**"),
        "operation": ("All", "Any", "Unknown", "read", "READ", "Teleport", "CreateTokens", "DescribeConfigs", "Describe_Configs", "describeconfigs", "TwoPhaseCommit"),
        "permissionType": ("Deny", "allow", "ALLOW", "Any", "Unknown", "Maybe"),
    }  # fmt: skip
    for field_name, values in odd.items():
        for value in values:
            c.add(
                f"ACL: {field_name} {value!r}",
                lambda tree, m, b=body(**{field_name: value}): tree.put(f"/kafka-acl/Topic/{m}", b),
            )  # type: ignore[misc]
    for version in (0, 2):
        c.add(
            f"ACL: version {version}",
            lambda tree, m, v=version: tree.put(f"/kafka-acl/Topic/{m}", body() | {"version": v}),
        )  # type: ignore[misc]
    c.add(
        "ACL: the same entry twice",
        lambda tree, m: tree.put(f"/kafka-acl/Topic/{m}", {"version": 1, "acls": [acl_entry(), acl_entry()]}),
    )
    c.add("ACL: an entry with another field", lambda tree, m: topic(tree, m, json.dumps(body(extra="x")).encode()))
    for kind in (
        "Topic",
        "topic",
        "TOPIC",
        "Any",
        "Unknown",
        "Planet",
        "All",
        "Delegation_Token",
        "Transactional-Id",
        "User",
    ):
        c.add(f"ACL: resource type {kind}", lambda tree, m, kind=kind: tree.put(f"/kafka-acl/{kind}/{m}", body()))  # type: ignore[misc]
        c.add(
            f"ACL: resource type {kind}, prefixed",
            lambda tree, m, kind=kind: tree.put(f"/kafka-acl-extended/prefixed/{kind}/{m}", body()),
        )  # type: ignore[misc]
    for pattern in ("Prefixed", "PREFIXED", "literal", "match", "any", "unknown", "suffixed"):
        c.add(
            f"ACL: pattern {pattern}",
            lambda tree, m, pattern=pattern: tree.put(f"/kafka-acl-extended/{pattern}/Topic/{m}", body()),
        )  # type: ignore[misc]
    for what, name in {
        "a space": "{} b",
        "an umlaut": "{}ü",
        "percent": "{}%2F",
        "a star": "{}*",
        "a colon": "{}:b",
        "a line break": "{}\u2028",
    }.items():
        c.add(
            f"ACL: resource name with {what}",
            lambda tree, m, name=name: tree.put(f"/kafka-acl/Topic/{name.format(m)}", body()),
        )  # type: ignore[misc]
    c.add(
        "ACL: of a cluster with another name",
        lambda tree, m: tree.put(f"/kafka-acl/Cluster/{m}", body(operation="Alter")),
    )
    c.add("ACL: an empty folder of a type", lambda tree, m: tree.put(f"/kafka-acl/{m}"))
    c.add("ACL: an empty folder of a pattern", lambda tree, m: tree.put(f"/kafka-acl-extended/{m}"))
    c.add(
        "ACL: a child below",
        lambda tree, m: (topic(tree, m, json.dumps(body()).encode()), tree.put(f"/kafka-acl/Topic/{m}/child", b"x"))[0],
    )  # type: ignore[func-returns-value]
    c.add(
        "ACL: change notification that is no JSON",
        lambda tree, m: tree.put(f"/kafka-acl-changes/acl_changes_{m}", b"x"),
    )


# ----------------------------------------------------------------------------------------------------------- others


def _tokens(c: _Catalogue) -> None:
    def put(tree: Tree, marker: str, data: bytes | None) -> None:
        tree.put(f"/delegation_token/tokens/{marker}", data)

    c.bodies("token", put, token)
    odd: dict[str, Body] = {
        **{f"version {v}": {"version": v} for v in (0, 1, 2, 4)}, "owner raw": {"owner": "User:alice"}, "owner without type": {"owner": "alice"},
        "owner no URL encoding": {"owner": "User%3Aal%zz"}, "owner with a plus": {"owner": "User%3Aa+b"}, "requester without type": {"tokenRequester": "alice"},
        "renewer without type": {"renewers": ["bob"]}, "renewer twice": {"renewers": ["User%3Abob", "User%3Abob"]}, "two renewers": {"renewers": ["User%3Az", "User%3Aa"]},
        "expired": {"expiryTimestamp": 5}, "expires after its maximum": {"expiryTimestamp": 1995170891285}, "another id inside": {"tokenId": "another"},
    }  # fmt: skip
    for what, values in odd.items():
        c.add(
            f"token: {what}",
            lambda tree, m, values=values: tree.put(f"/delegation_token/tokens/{m}", token(m) | values),
        )  # type: ignore[misc]
    for what, name in {"a space": "{} b", "an umlaut": "{}ü", "percent": "{}%20"}.items():
        c.add(
            f"token: id with {what}",
            lambda tree, m, name=name: tree.put(f"/delegation_token/tokens/{name.format(m)}", token(name.format(m))),
        )  # type: ignore[misc]
    c.add(
        "token: a child below",
        lambda tree, m: (
            tree.put(f"/delegation_token/tokens/{m}", token(m)),
            tree.put(f"/delegation_token/tokens/{m}/child", b"x"),
        )[0],
    )  # type: ignore[func-returns-value]


def _singles(c: _Catalogue) -> None:
    c.single("producer ids", "/latest_producer_id_block", producer_ids())
    odd: dict[str, Body] = {
        "start after end": {"block_start": "2000"}, "block of one": {"block_end": "0"}, "2^63-1": {"block_start": str(2**63 - 1000), "block_end": str(2**63 - 1)},
        "numbers in place of texts": {"block_start": 0, "block_end": 999}, "of KRaft": {"broker": -1}, "of a broker that is gone": {"broker": 99},
        "negative": {"block_start": "-1000", "block_end": "-1"}, "another size": {"block_end": "499"}, "version 2": {"version": 2},
    }  # fmt: skip
    for what, values in odd.items():
        c.alone(
            f"producer ids: {what}",
            lambda tree, values=values: tree.put("/latest_producer_id_block", producer_ids() | values),
        )  # type: ignore[misc]
    c.alone("producer ids: no znode", lambda tree: tree.remove("/latest_producer_id_block"))
    for data in (
        None,
        b"",
        b"x",
        b"-1",
        b"0",
        b"99999999999",
        b"3.5",
        b" 7",
        b"7\n",
        b'"7"',
        "７".encode(),
        b"6",
        b"8",
    ):
        c.alone(f"controller epoch: {data!r}", lambda tree, data=data: tree.put("/controller_epoch", data))  # type: ignore[misc]
    c.alone("controller epoch: no znode", lambda tree: tree.remove("/controller_epoch"))
    controller = {"version": 2, "brokerid": 2, "timestamp": "1795172221718", "kraftControllerEpoch": -1}
    c.single("controller", "/controller", controller)
    c.alone(
        "controller: version 1 of an old broker",
        lambda tree: tree.put("/controller", {"version": 1, "brokerid": 2, "timestamp": "1"}),
    )
    c.alone(
        "controller: of an unregistered broker", lambda tree: tree.put("/controller", controller | {"brokerid": 99})
    )
    c.alone("controller: no znode", lambda tree: tree.remove("/controller"))
    migration = {
        "version": 0, "kraft_metadata_offset": -1, "kraft_controller_id": -1, "kraft_metadata_epoch": -1, "kraft_controller_epoch": -1,
    }  # fmt: skip
    c.single("migration", "/migration", migration)
    for offset in (0, 1, 5):
        c.alone(
            f"migration: offset {offset}",
            lambda tree, offset=offset: tree.put("/migration", migration | {"kraft_metadata_offset": offset}),
        )  # type: ignore[misc]
    for name in ("abc", "-1", "007", "2147483648", "7", "٣", "1.5"):
        c.alone(f"broker: id {name}", lambda tree, name=name: tree.put(f"/brokers/ids/{name}", broker(7)))  # type: ignore[misc]
    c.single("broker", "/brokers/ids/2", broker(2))
    for version in (1, 2, 3, 4, 6):
        c.alone(
            f"broker: version {version}",
            lambda tree, version=version: tree.put("/brokers/ids/2", broker(2) | {"version": version}),
        )  # type: ignore[misc]
    listener = {"endpoints": ["PLAINTEXT://127.0.0.1:9094"]}
    for what, odd in {
        "an unknown security protocol": {"listener_security_protocol_map": {"PLAINTEXT": "QUIC"}},
        "a security protocol in small letters": {"listener_security_protocol_map": {"PLAINTEXT": "plaintext"}},
        "a listener without a security protocol": {"endpoints": ["EXTERNAL://127.0.0.1:9094"]},
    }.items():
        c.alone(
            f"broker: {what}",
            lambda tree, odd=odd: tree.put("/brokers/ids/2", broker(2) | listener | odd),
        )  # type: ignore[misc]
    for path in ("/admin/reassign_partitions", "/admin/preferred_replica_election", "/feature"):
        for what, data in {
            "empty": b"",
            "no data": None,
            "an empty object": b"{}",
            "no JSON": b"x",
            "version 99": b'{"version":99}',
        }.items():
            c.alone(f"{path}: {what}", lambda tree, path=path, data=data: tree.put(path, data))  # type: ignore[misc]
    reassignment = {"version": 1, "partitions": [{"topic": "sound", "partition": 0, "replicas": [1, 2, 0]}]}
    c.alone(
        "/admin/reassign_partitions: a reassignment", lambda tree: tree.put("/admin/reassign_partitions", reassignment)
    )
    c.alone("/feature: no znode", lambda tree: tree.remove("/feature"))
    c.alone("no folder: /admin/delete_topics", lambda tree: tree.remove("/admin/delete_topics"))
    for folder in (
        "/kafka-acl", "/kafka-acl-extended", "/delegation_token", "/config/ips", "/config/users", "/config/clients", "/config/brokers", "/brokers/topics",
        "/config/changes", "/brokers/seqid", "/isr_change_notification", "/log_dir_event_notification", "/admin", "/consumers", "/kafka-acl-changes",
    ):  # fmt: skip
        c.alone(f"no folder: {folder}", lambda tree, folder=folder: tree.remove(folder))  # type: ignore[misc]


def _left_over(c: _Catalogue) -> None:
    c.add(
        "deletion: of a topic that is there",
        lambda tree, m: (put_topic(tree, m), tree.put(f"/admin/delete_topics/{m}"))[1],
    )  # type: ignore[func-returns-value]
    c.add("deletion: of a topic that is gone", lambda tree, m: tree.put(f"/admin/delete_topics/{m}"))
    for path, data in {
        "/config/client-metrics/{}": config(metrics="*"), "/config/groups/{}": config(consumer__session__timeout__ms="45000"), "/config/made-up/{}": config(a="b"),
        "/config/changes/config_change_{}": {"version": 2, "entity_path": "topics/sound"}, "/config/changes/{}": b"x", "/isr_change_notification/isr_change_{}": b"x",
        "/log_dir_event_notification/log_dir_event_{}": b"x", "/delegation_token/token_changes/token_change_{}": b"x", "/brokers/{}": b"x", "/admin/{}": b"x",
        "/{}": b"x", "/consumers/{}/offsets/sound/0": b"5", "/brokers/seqid/{}": b"", "/feature/{}": b"x", "/cluster/{}": b"x", "/kafka-acl-extended-changes/{}": b"x",
    }.items():  # fmt: skip
        c.add(f"left over: {path.format('x')}", lambda tree, m, path=path, data=data: tree.put(path.format(m), data))  # type: ignore[misc]


def plants() -> list[Plant]:
    """Return every plant; names are unique."""
    catalogue = _Catalogue()
    for part in (_topics, _states, _configs, _quotas, _scram, _acls, _tokens, _singles, _left_over):
        part(catalogue)
    unique: dict[str, Plant] = {}
    for plant in catalogue.plants:
        unique.setdefault(plant.name, plant)
    return list(unique.values())
