"""The scratch broker's configuration: what the real broker has in KRaft mode, but for what the documentation lists."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path

import pytest

from kraftbridge.exceptions import RehearsalError
from kraftbridge.metadata.zookeeper.znodes import Znode
from kraftbridge.rehearsal import broker_properties
from kraftbridge.rehearsal.broker_properties import (
    _REPLACED_FOLDERS,
    REPLACED,
    BrokerSettings,
    CopiedTree,
    Loopback,
    of_broker,
)

PAGE = Path(__file__).resolve().parents[3] / "docs" / "rehearsal.md"
WORK = Path("/scratch")
LISTENERS = {"listeners": "PLAINTEXT://0.0.0.0:9092"}


def loopback() -> Loopback:
    ports = count(21_000)
    return Loopback(lambda: next(ports))


def copied(dynamic: dict[str, dict[str, str]], ports: Loopback) -> CopiedTree:
    tree = CopiedTree(ports)
    znodes = [
        Znode(f"/config/brokers/{name}", json.dumps({"version": 1, "config": config}).encode())
        for name, config in dynamic.items()
    ]
    list(tree.take(iter(znodes)))
    return tree


def settings(
    static: dict[str, str], dynamic: dict[str, dict[str, str]] | None = None, broker: int = 0
) -> BrokerSettings:
    ports = loopback()
    return of_broker(broker, LISTENERS | static, copied(dynamic or {}, ports))


def table() -> str:
    text = PAGE.read_text().partition("## What is replaced in a broker")[2].partition("\n## ")[0]
    return "\n".join(line for line in text.splitlines() if line.startswith("|"))


@pytest.mark.parametrize("name", [*REPLACED, *(f"{folder}*" for folder in _REPLACED_FOLDERS)])
def test_the_documentation_lists_every_replaced_setting(name: str) -> None:
    assert f"`{name}`" in table()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, "real.example:9093") for name in REPLACED if "listeners" not in name and "protocol" not in name),
        *((f"{folder}x", "real.example:9093") for folder in _REPLACED_FOLDERS),
        ("listeners", "PLAINTEXT://real.example:9092"),
        ("advertised.listeners", "PLAINTEXT://real.example:9092,OUT://[2001:db8::1]:443"),
        ("authorizer.class.name", "com.example.real.example.Authorizer"),
        ("listener.name.out.sasl.jaas.config", 'x password="real.example"'),
        ("listener.name.out.scram-sha-512.sasl.jaas.config", 'x password="real.example"'),
        ("rlmm.config.remote.log.metadata.common.client.bootstrap.servers", "real.example:9092"),
        ("my.plugin.url", "https://real.example/x"),
        ("my.plugin.policy", "https://real.example/x"),
        ("my.plugin.data.dir", "/var/real.example"),
    ],
)
def test_no_address_directory_or_login_of_the_real_broker_is_left(name: str, value: str) -> None:
    found = settings({name: value})
    text = str(found.properties(WORK, 3000, 20_001))
    assert "real.example" not in text and "2001" not in text.replace("127.0.0.1", "").replace("20001", "")  # noqa: PT018
    assert name in found.replaced


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("super.users", "User:spiffe://example/kafka;User:1234"),
        ("ssl.principal.mapping.rules", "RULE:^CN=(.*)$/$1/L"),
        ("max.connections.per.ip.overrides", "10.0.0.1:100"),
        ("num.io.threads", "8"),
        ("my.plugin", "x"),
        ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
    ],
)
def test_everything_else_is_as_the_real_broker_has_it(name: str, value: str) -> None:
    found = settings({name: value})
    assert found.properties(WORK, 3000, 20_001)[name] == value
    assert found.replaced.keys() == {"listeners"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("listeners", "PLAINTEXT://kafka-0:9092"),
        ("advertised.listeners", "PLAINTEXT://127.0.0.1:1,OUT://kafka-0:9092"),
        ("log.dirs", "/scratch/a,/var/lib/kafka"),
        ("metadata.log.dir", "/var/lib/kafka"),
        ("zookeeper.connect", "zookeeper:2181"),
        ("controller.quorum.bootstrap.servers", "kafka:9093"),
        ("plugin.url", "https://example"),
    ],
)
def test_a_broker_is_not_started_while_anything_names_the_outside(name: str, value: str) -> None:
    """The last test knows nothing of the replacements before it."""
    broker = BrokerSettings(0, {"listeners": "PLAINTEXT://127.0.0.1:1", name: value}, {}, {})
    if name == "log.dirs":
        broker = BrokerSettings(0, {"listeners": "PLAINTEXT://127.0.0.1:1", "my.log.dirs": value}, {}, {})
    with pytest.raises(RehearsalError, match=r"was not started: \S*" + name):
        broker.properties(WORK, 3000, 20_001)


def test_equal_endpoints_stay_equal_and_others_differ() -> None:
    static = {"listeners": "A://h:1,B://h:1", "advertised.listeners": "A://h:1,B://other:1"}
    dynamic = {"0": {"listeners": "A://h:1,B://h:1", "advertised.listeners": "A://h:1,B://third:1"}}
    found = settings(static, dynamic)
    assert found.dynamic["listeners"] == found.static["listeners"]
    first, second = (each["advertised.listeners"].split(",") for each in (found.static, found.dynamic))
    assert first[0] == second[0]
    assert first[1] != second[1]


@pytest.mark.parametrize(
    ("static", "dynamic", "alike"),
    [
        ({}, {}, True),
        ({"num.io.threads": "3"}, {}, False),
        ({"broker.rack": "b", "broker.id": "1"}, {}, True),
        ({"listeners": "PLAINTEXT://10.0.0.2:9092"}, {}, True),
        ({"listeners": "PLAINTEXT://a:1,OUT://a:2"}, {}, False),
        ({}, {"<default>": {"num.io.threads": "9"}}, True),
        ({}, {"1": {"num.io.threads": "9"}}, False),
        ({}, {"1": {"advertised.listeners": "PLAINTEXT://x:1"}}, False),
        ({}, {"0": {"log.retention.ms": "1"}, "1": {"log.retention.ms": "1"}}, True),
        ({"log.dirs": "/a,/b"}, {}, False),
    ],
)
def test_brokers_are_alike_when_kafka_judges_the_same_of_both(
    static: dict[str, str], dynamic: dict[str, dict[str, str]], alike: bool
) -> None:
    ports = loopback()
    tree = copied(dynamic, ports)
    first, second = of_broker(0, LISTENERS, tree), of_broker(1, LISTENERS | static, tree)
    assert (first.pair == second.pair) is alike


def test_what_is_stored_for_one_broker_comes_before_what_is_stored_for_all() -> None:
    dynamic = {"<default>": {"num.io.threads": "9", "log.retention.ms": "5"}, "0": {"num.io.threads": "4"}}
    assert settings({}, dynamic).dynamic == {"num.io.threads": "4", "log.retention.ms": "5"}


def test_what_can_be_stored_for_one_broker_alone_counts_for_one_alone() -> None:
    """Kafka drops it among the settings of all brokers, in any mode (``DynamicBrokerConfig.PerBrokerConfigs``)."""
    stored = {"ssl.keystore.type": "PEM", "listener.name.a.ssl.keystore.type": "PEM", "listeners": "A://h:1"}
    assert settings({}, {"<default>": stored}).dynamic == {}
    assert settings({}, {"0": stored}).dynamic.keys() == stored.keys()


def test_listeners_keep_their_tls_and_lose_their_logins() -> None:
    static = {
        "listeners": "IN://h:1,OUT://h:2",
        "listener.security.protocol.map": "IN:SASL_PLAINTEXT, OUT:SASL_SSL,CONTROLLER:SSL",
        "listener.name.out.ssl.client.auth": "required",
        "security.inter.broker.protocol": "IN",
    }
    found = settings(static, {"0": {"listener.security.protocol.map": "IN:SASL_PLAINTEXT,CONTROLLER:SSL"}})
    assert found.static["listener.security.protocol.map"] == "IN:PLAINTEXT,OUT:SSL,CONTROLLER:PLAINTEXT"
    assert found.dynamic["listener.security.protocol.map"] == "IN:PLAINTEXT,CONTROLLER:PLAINTEXT"
    assert found.static["listener.name.out.ssl.client.auth"] == "required"
    assert found.static["inter.broker.listener.name"] == "IN"


@pytest.mark.parametrize("where", ["static", "dynamic"])
def test_a_store_of_keys_that_is_not_here_is_no_refusal_of_kafkas(where: str) -> None:
    setting = {"listener.name.out.ssl.keystore.location": "/etc/kafka/keys.p12"}
    with pytest.raises(RehearsalError, match=r"broker 0: .*keys\.p12 is not on this machine"):
        settings(setting if where == "static" else {}, {"0": setting} if where == "dynamic" else None)


def test_the_copy_has_no_topics_and_no_dynamic_setting_that_leads_outside() -> None:
    tree = CopiedTree(loopback())
    config = {"metric.reporters": "com.example.R", "num.io.threads": "3", "x.sasl.jaas.config": "y"}
    znodes = [
        Znode("/brokers/ids/4", b"{}"),
        Znode("/brokers/topics", None),
        Znode("/brokers/topics/t/partitions/0/state", b"{}"),
        Znode("/config/topics/t", b"{}"),
        Znode("/config/brokers/4", json.dumps({"version": 1, "config": config}).encode(), version=3),
        Znode("/config/brokers/5", b"{"),
    ]
    found = {znode.path: znode for znode in tree.take(iter(znodes))}
    assert found.keys() == {"/brokers/ids/4", "/brokers/topics", "/config/brokers/4", "/config/brokers/5"}
    assert json.loads(found["/config/brokers/4"].data or b"")["config"].keys() == {
        "num.io.threads",
        "x.sasl.jaas.config",
    }
    assert found["/config/brokers/4"].version == 3
    assert found["/config/brokers/5"].data == b"{"
    assert tree.brokers == [4]
    assert tree.replaced[4].keys() == {"metric.reporters"}
    assert of_broker(4, LISTENERS, tree).replaced.keys() == {"listeners", "metric.reporters"}
    assert of_broker(6, LISTENERS, tree).replaced.keys() == {"listeners"}


def test_without_stores_of_keys_every_listener_is_a_plain_one_and_what_tls_would_refuse_is_listed() -> None:
    static = {
        "listeners": "IN://0.0.0.0:1,OUT://0.0.0.0:2",
        "listener.security.protocol.map": "IN:SASL_SSL,OUT:SSL,CONTROLLER:SSL",
        "ssl.keystore.location": "/mnt/keys.jks",
        "listener.name.out.ssl.client.auth": "required",
        "num.io.threads": "2",
    }
    tree = CopiedTree(loopback(), has_stores=False)
    config = {"listener.name.out.ssl.keystore.location": "/mnt/other.jks", "num.io.threads": "3"}
    list(tree.take(iter([Znode("/config/brokers/0", json.dumps({"version": 1, "config": config}).encode())])))
    found = of_broker(0, static, tree, {"ssl.key.password": "a hash", "delegation.token.secret.key": "a hash"})
    assert found.static["listener.security.protocol.map"] == "IN:PLAINTEXT,OUT:PLAINTEXT,CONTROLLER:PLAINTEXT"
    assert not [name for name in (*found.static, *found.dynamic) if "ssl." in name]
    assert found.dynamic == {"num.io.threads": "3"}
    listed = {"ssl.keystore.location", "listener.name.out.ssl.client.auth", "listener.name.out.ssl.keystore.location"}
    assert listed | {"ssl.key.password", "delegation.token.secret.key"} <= found.replaced.keys()
    assert found.static["delegation.token.secret.key"] == "of the rehearsal"


def test_a_result_names_the_real_endpoints() -> None:
    ports = loopback()
    given = "IN://kafka-0.example:9092,OUT://[2001:db8::1]:443"
    assert ports.real(ports.endpoints(given)) == given
    assert ports.real("IN://127.0.0.1:1") == "IN://127.0.0.1:1"


@pytest.mark.timeout(60)
def test_a_long_value_is_searched_for_an_address_in_time() -> None:
    assert not broker_properties._names_address("a.b", "a" * 1_000_000)
    for value in ("https://host", "see git+ssh2://host", "a1+://x"):
        assert broker_properties._names_address("a.b", value)
    for value in ("://host", "1://host", "no address"):
        assert not broker_properties._names_address("a.b", value)
