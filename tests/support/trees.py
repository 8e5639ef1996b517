"""Random ZooKeeper trees: sound ones, with odd but legal values, and one damage done to one."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch
from urllib.parse import quote

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers

Tree = dict[str, bytes | None]
T = TypeVar("T")
BROKERS = (0, 1, 2)

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)
NAMES = st.one_of(
    st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True), st.text("äß €%&=,/+*~ :\"'\\λ🙂", min_size=1, max_size=8)
).filter(lambda name: name.strip("."))
NOT_IN_A_PATH = str.maketrans("/🙂", "--")
"""ZooKeeper refuses surrogates in the path of a znode (``PathUtils.validatePath``), and Kafka does not encode names of ACLs."""
TOPICS = st.from_regex(r"[a-zA-Z0-9._-]{1,40}", fullmatch=True).filter(lambda name: name.strip("."))
LONGS = st.one_of(st.integers(1, 2**53), st.just(2**63 - 1024)).map(str)
DOUBLES = st.one_of(st.integers(1, 10**6).map(str), st.floats(0.01, 1e6).map(repr))
CONFIGS = st.dictionaries(
    st.sampled_from(
        ["retention.ms", "cleanup.policy", "max.message.bytes", "follower.replication.throttled.replicas", "my.own.config", "min.insync.replicas"]
    ),
    st.one_of(TEXT, st.sampled_from(["-1", "compact,delete", "0:1,1:2", "*", "9223372036854775807", ""])),
    max_size=4,
)  # fmt: skip
KEYS = st.binary(min_size=20, max_size=64).map(lambda value: base64.b64encode(value).decode())

IDS = st.binary(min_size=16, max_size=16).map(lambda value: base64.urlsafe_b64encode(value).decode().rstrip("="))


def encoded(name: str) -> str:
    """Return a name as ``org.apache.kafka.common.utils.Sanitizer`` writes it."""
    return quote(name, safe="").replace("~", "%7E")


def compact(body: object) -> bytes:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def config(values: object) -> bytes:
    return compact({"version": 1, "config": values})


@st.composite
def topic(draw: Callable[[Any], Any], tree: Tree, name: str, identity: str) -> None:
    count = draw(st.integers(1, 4))
    assignment = {
        str(p): list(draw(st.permutations(BROKERS)))[: draw(st.integers(1, len(BROKERS)))] for p in range(count)
    }
    path = f"/brokers/topics/{name}"
    tree[path] = compact(
        {"removing_replicas": {}, "partitions": assignment, "topic_id": identity, "adding_replicas": {}, "version": 3}
    )
    for partition, replicas in assignment.items():
        isr = draw(st.permutations(replicas))[: draw(st.integers(1, len(replicas)))]
        state = {
            "controller_epoch": draw(st.integers(1, 7)),
            "leader": draw(st.sampled_from(isr)),
            "version": 1,
            "leader_epoch": draw(st.integers(0, 2**30)),
            "isr": list(isr),
        }
        tree[f"{path}/partitions/{partition}/state"] = compact(state)
    tree[f"/config/topics/{name}"] = config(draw(CONFIGS))


def quotas(kind: str) -> st.SearchStrategy[dict[str, str]]:
    if kind == "ips":
        return st.fixed_dictionaries({"connection_creation_rate": st.integers(0, 2**31 - 1).map(str)})
    return st.fixed_dictionaries(
        {},
        optional={
            "producer_byte_rate": LONGS,
            "consumer_byte_rate": LONGS,
            "request_percentage": DOUBLES,
            "controller_mutation_rate": DOUBLES,
        },
    )


@st.composite
def sound_trees(draw: Callable[[Any], Any]) -> Tree:
    """Draw a tree that a cluster of three brokers may have."""
    tree: Tree = {
        "/cluster/id": compact({"version": "1", "id": "dx6gdXaeTPWBoHCS0D4i2A"}),
        "/controller": compact({"version": 2, "brokerid": 0, "timestamp": "1", "kraftControllerEpoch": -1}),
        "/controller_epoch": b"7",
        "/latest_producer_id_block": compact(
            {"version": 1, "broker": draw(st.sampled_from([-1, 0])), "block_start": "3000", "block_end": "3999"}
        ),
    }
    for folder in (
        "/admin/delete_topics", "/brokers/seqid", "/config/changes", "/config/users", "/config/clients", "/config/brokers",
        "/config/ips", "/config/topics", "/isr_change_notification", "/log_dir_event_notification", "/kafka-acl", "/kafka-acl-extended",
        "/brokers/topics", "/delegation_token/tokens",
    ):  # fmt: skip
        tree[folder] = None
    for broker in BROKERS:
        tree[f"/brokers/ids/{broker}"] = compact(
            {
                "listener_security_protocol_map": {"CLIENT": "SASL_SSL", "INTERNAL": "PLAINTEXT"},
                "endpoints": [f"INTERNAL://b{broker}:9093", f"CLIENT://b{broker}:9092"],
                "rack": draw(st.sampled_from([None, "a", "zone ü"])),
                "jmx_port": -1, "port": -1, "host": None, "features": {}, "version": 5, "timestamp": "1",
            }
        )  # fmt: skip
    # Kafka refuses names that differ only in `.` and `_`.
    names = draw(st.lists(TOPICS, min_size=1, max_size=6, unique_by=lambda name: name.replace(".", "_")))
    ids = draw(st.lists(IDS, min_size=len(names), max_size=len(names), unique=True))
    for name, identity in zip(names, ids, strict=True):
        draw(topic(tree, name, identity))
    for broker in draw(st.lists(st.sampled_from([*map(str, BROKERS), "<default>", "99"]), max_size=2, unique=True)):
        tree[f"/config/brokers/{broker}"] = config(draw(CONFIGS))
    names = st.one_of(st.just("<default>"), NAMES.map(encoded))
    for name in draw(st.lists(names, max_size=4, unique=True)):
        scram = draw(st.booleans()) and name != "<default>"
        values = draw(quotas("users"))
        if scram:
            for mechanism in draw(
                st.lists(st.sampled_from(["SCRAM-SHA-256", "SCRAM-SHA-512"]), min_size=1, unique=True)
            ):
                values[mechanism] = (
                    f"salt={draw(KEYS)},stored_key={draw(KEYS)},server_key={draw(KEYS)},iterations={draw(st.integers(4096, 16384))}"
                )
        tree[f"/config/users/{name}"] = config(values)
        if draw(st.booleans()):
            tree[f"/config/users/{name}/clients/{draw(names)}"] = config(draw(quotas("users")))
    for name in draw(st.lists(names, max_size=3, unique=True)):
        tree[f"/config/clients/{name}"] = config(draw(quotas("clients")))
    for name in draw(st.lists(st.sampled_from(["<default>", "10.0.0.1", "10.9.9.9"]), max_size=2, unique=True)):
        tree[f"/config/ips/{name}"] = config(draw(quotas("ips")))
    for _ in range(draw(st.integers(0, 4))):
        kind, operations = draw(
            st.sampled_from(
                [("Topic", ["Read", "All", "Describe"]), ("Group", ["Read"]), ("TransactionalId", ["Write"]), ("Cluster", ["Alter"])]
            )
        )  # fmt: skip
        name = "kafka-cluster" if kind == "Cluster" else draw(st.one_of(st.just("*"), NAMES)).translate(NOT_IN_A_PATH)
        entries = [
            {
                "principal": f"User:{draw(NAMES)}",
                "permissionType": draw(st.sampled_from(["Allow", "Deny"])),
                "host": draw(st.sampled_from(["*", "10.0.0.9"])),
                "operation": draw(st.sampled_from(operations)),
            }
            for _ in range(draw(st.integers(1, 2)))
        ]
        folder = "/kafka-acl" if draw(st.booleans()) else "/kafka-acl-extended/prefixed"
        tree[f"{folder}/{kind}/{name}"] = compact({"version": 1, "acls": entries})
    for _ in range(draw(st.integers(0, 2))):
        identity = base64.urlsafe_b64encode(draw(st.binary(min_size=16, max_size=16))).decode().rstrip("=")
        owner = quote(f"User:{draw(NAMES)}", safe="")
        token = {
            "issueTimestamp": 1795170891285, "renewers": draw(st.lists(st.just(owner), max_size=1)), "tokenRequester": owner,
            "tokenId": identity, "owner": owner, "expiryTimestamp": 1795192491285, "maxTimestamp": 1795192491285, "version": 3,
        }  # fmt: skip
        tree[f"/delegation_token/tokens/{identity}"] = compact(token)
    return tree


VALUES = st.sampled_from(
    [None, "", "x", "-1", -1, 0, 1.5, 2**31, 2**63, True, [], {}, [None], {"a": 1}, "%", "100%", "<default>", "99", 99]
)


@st.composite
def damages(draw: Callable[[Any], Any], tree: Tree) -> str:
    """Damage one znode of a tree in place; return what was done."""
    path = draw(st.sampled_from(sorted(path for path, data in tree.items() if data and path != "/cluster/id")))
    how = draw(
        st.sampled_from(["empty", "null", "cut", "remove", "field", "field", "field", "field", "extra", "rename"])
    )
    data = tree[path] or b""
    match how:
        case "empty":
            tree[path] = b""
        case "null":
            tree[path] = None
        case "cut":
            tree[path] = data[: draw(st.integers(0, len(data) - 1))]
        case "remove":
            del tree[path]
        case "rename":
            folder = path.rpartition("/")[0]
            name = draw(st.sampled_from(["abc", "100%", "x y", "-1", "007", "ünï"]))
            tree[f"{folder}/{name}"] = tree.pop(path)
            how = f"rename to {name}"
        case "field" | "extra":
            try:
                body = json.loads(data)
            except ValueError:
                body = None
            if not isinstance(body, dict):
                tree[path] = compact(draw(VALUES))
                return f"{path}: replaced by {tree[path]!r}"
            inside = draw(st.sampled_from([body, *(each for each in body.values() if isinstance(each, dict))]))
            key = "unknown" if how == "extra" or not inside else draw(st.sampled_from(sorted(inside)))
            if draw(st.booleans()) and how == "field":
                inside.pop(key, None)
                how = f"without {key}"
            else:
                inside[key] = draw(VALUES)
                how = f"{key} is {inside[key]!r}"
            tree[path] = compact(body)
    return f"{path}: {how}"


def drawn(strategy: st.SearchStrategy[T], number: int) -> T:
    """Return an example of a strategy under a seed: the same one each time, in every process (the first ones are the simplest).

    hypothesis also draws constants of the modules that happen to be imported, which differ from process to process and from commit to commit.
    """
    found: list[T] = []

    @seed(number)
    @settings(
        max_examples=12, phases=[Phase.generate], database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(strategy)
    def take(example: T) -> None:
        found.append(example)

    providers.CONSTANTS_CACHE.cache.clear()
    with patch.object(providers, "_get_local_constants", providers.Constants):
        take()
    return found[-1]


@st.composite
def damaged_trees(draw: Callable[[Any], Any]) -> tuple[Tree, str]:
    """Draw a sound tree and do one damage to it."""
    tree = draw(sound_trees())
    return tree, draw(damages(tree))


def write(tree: Tree, path: Path) -> Path:
    """Write a tree as a dump: with the folders above each znode, and the number of children of each, as ZooKeeper has them."""
    above = {
        "/".join(parts[:depth]) for znode in tree for parts in [znode.split("/")] for depth in range(2, len(parts))
    }
    whole = dict.fromkeys(sorted(above - tree.keys())) | tree
    children = Counter(znode.rpartition("/")[0] for znode in whole)
    with path.open("w") as file:
        for znode, data in whole.items():
            row = {
                "path": znode, "data": None if data is None else data.decode("utf-8", "surrogateescape"), "enc": "utf8",
                "version": 3, "czxid": 5, "mzxid": 6, "ephemeralOwner": 0, "numChildren": children[znode],
            }  # fmt: skip
            if data is not None:
                row |= {"data": base64.b64encode(data).decode(), "enc": "b64"}
            file.write(json.dumps(row) + "\n")
    return path
