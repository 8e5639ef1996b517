"""Each fact is planted in a real cluster, the check finds it, and the words of its fix are run until the check finds it no more."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.fixes.playground import Playground, playground
from tests.fixes.registry import runs

from kraftbridge.metadata.zookeeper.reader import write_dump
from kraftbridge.models.broker_record import EffectiveSetting
from kraftbridge.models.catalogue import Code
from kraftbridge.models.report import Finding
from kraftbridge.models.survey import SettingSource, Stated
from kraftbridge.outside.shell import command, option
from kraftbridge.phases.becoming.refusals import refusals
from kraftbridge.phases.preflight.dynamic_settings import _fix
from kraftbridge.rehearsal.traps import mends

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kafka-processes")]

SECRET = "labsecret"
SETTINGS = (
    "authorizer.class.name=kafka.security.authorizer.AclAuthorizer\nsuper.users=User:ANONYMOUS\n"
    f"allow.everyone.if.no.acl.found=true\npassword.encoder.secret={SECRET}\n"
)
HOSTILE = "it's $(touch owned); -a"
"""A name as an entity or a resource of Kafka may have it."""


@pytest.fixture(scope="module")
def ground() -> Iterator[Playground]:
    with playground(settings=SETTINGS) as made:
        yield made


# ------------------------------------------------------------------------------------------------ words of a fix


def told(finding: Finding) -> list[str]:
    """Return the commands in the rendered words of a fix, as somebody reads them."""
    *_, last = parts = finding.fix.split("`")
    commands = parts[1::2]
    if Code(finding.code).fix.endswith("`"):
        commands.append(last.rpartition(": ")[2])
    return commands


def filled_in(line: str, **words: str) -> str:
    """Return a command with the words in capitals that its reader fills in."""
    for word, value in words.items():
        line = re.sub(rf"\b{word}\b", value, line)
    return line


def mend(ground: Playground, code: Code, path: str, **words: str) -> None:
    """Find the planted fact, run the commands of its fix, and find it no more."""
    found = ground.found(code, path, encoder_secret=SECRET)
    assert found, [(f.code, f.object) for f in ground.findings(SECRET)]
    commands = told(found[0])
    assert commands, found[0].fix
    for line in commands:
        ground.shell(filled_in(line, **words))
    gone(ground, code, path)


def delete(ground: Playground, code: Code, path: str) -> None:
    """Find the planted fact, delete the znode that the finding names, and find it no more."""
    found = ground.found(code, path)
    assert found, [(f.code, f.object) for f in ground.findings()]
    assert "elete" in found[0].fix
    ground.shell(command('zookeeper-shell "$ZOOKEEPER" deleteall {path}', path=found[0].object))
    gone(ground, code, path)


def gone(ground: Playground, code: Code, path: str) -> None:
    ground.wait(f"{code} to be gone", lambda: not ground.found(code, path, encoder_secret=SECRET), 60)


def state_of(topic: str, partition: int = 0) -> str:
    return f"/brokers/topics/{topic}/partitions/{partition}/state"


def serves(ground: Playground, topic: str) -> None:
    """The controller works: it gives a new topic leaders, and the brokers obey it."""
    ground.topic(topic, partitions=2)
    said = ground.shell(f"kafka-topics --bootstrap-server HOST:PORT --describe --topic {topic}")
    assert said.count("Leader: none") == 0
    assert said.count("Isr: ") == 2


# ------------------------------------------------------------------------------------------------ the tree


def acl(principal: str = "User:a", operation: str = "Read") -> dict[str, Any]:
    return {"principal": principal, "permissionType": "Allow", "operation": operation, "host": "*"}


def acl_pattern(ground: Playground) -> None:
    path = f"/kafka-acl-extended/match/Topic/{HOSTILE}"
    ground.put(path, {"version": 1, "acls": [acl()]})
    (finding,) = ground.found(Code.ACL_PATTERN_UNKNOWN, path)
    delete(ground, Code.ACL_PATTERN_UNKNOWN, path)
    ground.shell(filled_in(*told(finding), PREFIX="so", NAME="a", OPERATION="Read"))
    assert ground.zookeeper.exists("/kafka-acl-extended/prefixed/Topic/so")


def acl_entries(code: Code, entry: dict[str, Any]) -> Callable[[Playground], None]:
    def case(ground: Playground) -> None:
        path = f"/kafka-acl/Group/{HOSTILE} {code}"
        ground.put(path, {"version": 1, "acls": [acl(), entry]})
        mend(ground, code, path)
        assert ground.body(path)["acls"] == [acl()], "the other ACL stays"

    return case


def deleted(code: Code, path: str, data: Any) -> Callable[[Playground], None]:
    def case(ground: Playground) -> None:
        ground.put(path, data)
        delete(ground, code, path)

    return case


@contextmanager
def paused_brokers(ground: Playground) -> Iterator[None]:
    """A controller that works removes what an old tool left; one that does not is what such a finding is about."""
    brokers = [f"broker-{broker}" for broker in ground.processes.broker_ports]
    for broker in brokers:
        ground.processes.signal(broker, signal.SIGSTOP)
    try:
        yield
    finally:
        for broker in brokers:
            ground.processes.signal(broker, signal.SIGCONT)
        ground.wait("both brokers", lambda: len(ground.zookeeper.get_children("/brokers/ids")) == 2)
        ground.wait("a controller", lambda: ground.zookeeper.exists("/controller"))
        time.sleep(5)


def election(ground: Playground) -> None:
    with paused_brokers(ground):
        ground.put("/admin/preferred_replica_election", b"of an old tool")
        delete(ground, Code.ELECTION_ZNODE, "/admin/preferred_replica_election")


def orphan_state(ground: Playground) -> None:
    ground.topic("orphan")
    ground.put(state_of("orphan", 7), ground.body(state_of("orphan")))
    delete(ground, Code.ORPHAN_PARTITION_STATE, state_of("orphan", 7))


def epoch_behind(ground: Playground) -> None:
    ground.topic("behind")
    highest = ground.body(state_of("behind"))["controller_epoch"]
    ground.put("/controller_epoch", str(highest - 1).encode())
    mend(ground, Code.CONTROLLER_EPOCH_BEHIND, "/controller_epoch")
    serves(ground, "behind-serves")


def epoch_invalid(ground: Playground) -> None:
    ground.put("/controller_epoch", b"abc")
    mend(ground, Code.CONTROLLER_EPOCH_INVALID, "/controller_epoch")
    serves(ground, "invalid-serves")
    ground.zookeeper.delete("/controller_epoch")
    mend(ground, Code.CONTROLLER_EPOCH_INVALID, "/controller_epoch")
    serves(ground, "missing-serves")
    assert not ground.found(Code.CONTROLLER_EPOCH_BEHIND)


def entity_name(ground: Playground) -> None:
    path = f"/config/users/{HOSTILE}"
    ground.put(path, {"version": 1, "config": {"consumer_byte_rate": "10"}})
    mend(ground, Code.ENTITY_NAME_INVALID, path)
    assert not list(Path(ground.path).glob("owned")), "a name is no command"


def in_sync_replicas(ground: Playground) -> None:
    ground.topic("isr")
    state = ground.body(state_of("isr"))
    ground.put(state_of("isr"), state | {"isr": [7]})
    mend(ground, Code.ISR_INVALID, state_of("isr"))
    ground.wait("both replicas in sync", lambda: len(ground.body(state_of("isr"))["isr"]) == 2)
    assert not ground.found(Code.LEADER_NOT_IN_SYNC, state_of("isr"))


def leader_not_in_sync(ground: Playground) -> None:
    ground.topic("lead")
    state = ground.body(state_of("lead"))
    ground.put(state_of("lead"), state | {"isr": [b for b in state["isr"] if b != state["leader"]]})
    mend(ground, Code.LEADER_NOT_IN_SYNC, state_of("lead"))
    ground.wait("both replicas in sync", lambda: len(ground.body(state_of("lead"))["isr"]) == 2)


def without_state(ground: Playground) -> None:
    ground.topic("stateless")
    ground.zookeeper.delete(state_of("stateless"))
    mend(ground, Code.PARTITION_WITHOUT_STATE, state_of("stateless"))


def password(ground: Playground) -> None:
    name = "listener.name.plaintext.ssl.keystore.password"
    ground.configure("brokers/0", {name: "no cipher text"})
    mend(ground, Code.PASSWORD_ENCODER_SECRET_WRONG, f"/config/brokers/0 {name}", VALUE="secret")
    ground.shell(
        f"kafka-configs --bootstrap-server HOST:PORT --alter --entity-type brokers --entity-name 0 --delete-config {name}"
    )


def quota_unknown(ground: Playground) -> None:
    name = "a%20b"
    ground.put(f"/config/users/{name}", {"version": 1, "config": {"foo_rate": "1"}})
    mend(ground, Code.QUOTA_UNKNOWN, f"/config/users/{name}")
    ground.put("/config/users/-x/clients/y", {"version": 1, "config": {"foo_rate": "1"}})
    mend(ground, Code.QUOTA_UNKNOWN, "/config/users/-x/clients/y")
    ground.put("/config/clients/<default>", {"version": 1, "config": {"foo_rate": "1"}})
    mend(ground, Code.QUOTA_UNKNOWN, "/config/clients/<default>")


def quota_of_a_name(ground: Playground) -> None:
    path = "/config/ips/no-such-host.invalid"
    ground.put(path, {"version": 1, "config": {"connection_creation_rate": "10"}})
    mend(ground, Code.QUOTA_ADDRESS_IS_NAME, path, ADDRESS="127.0.0.9", RATE="10")
    assert ground.body("/config/ips/127.0.0.9")["config"] == {"connection_creation_rate": "10"}


def quota_invalid(ground: Playground) -> None:
    for number, value in enumerate(("abc", "-1", "1.5")):
        path = f"/config/users/user{number}"
        ground.put(path, {"version": 1, "config": {"consumer_byte_rate": value, "producer_byte_rate": "7"}})
        mend(ground, Code.QUOTA_INVALID, path)
        assert ground.body(path)["config"] == {"producer_byte_rate": "7"}


def reassigned(code: Code, topic: str, replicas: list[int]) -> Callable[[Playground], None]:
    def case(ground: Playground) -> None:
        ground.topic(topic)
        body = ground.body(f"/brokers/topics/{topic}")
        ground.put(f"/brokers/topics/{topic}", body | {"partitions": {"0": replicas}})
        mend(ground, code, state_of(topic), FILE=plan(ground, topic, [0, 1]))

    return case


def plan(ground: Playground, topic: str, replicas: list[int]) -> str:
    file = ground.processes.directory / f"{topic}.json"
    file.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": replicas}]}))
    return str(file)


def config_missing(ground: Playground) -> None:
    ground.topic("unconfigured")
    ground.zookeeper.delete("/config/topics/unconfigured")
    mend(ground, Code.TOPIC_CONFIG_MISSING, "/config/topics/unconfigured", CONFIG="retention.ms", VALUE="86400000")


def same_id(ground: Playground) -> None:
    ground.topic("one")
    ground.topic("two")
    body = ground.body("/brokers/topics/two")
    ground.put("/brokers/topics/two", body | {"topic_id": ground.body("/brokers/topics/one")["topic_id"]})
    assert ground.found(Code.TOPIC_ID_DUPLICATE)
    ground.shell("kafka-topics --bootstrap-server HOST:PORT --delete --topic two")
    ground.wait("the topic to be gone", lambda: not ground.zookeeper.exists("/brokers/topics/two"))
    ground.topic("two")
    assert not ground.found(Code.TOPIC_ID_DUPLICATE)


def topic_id_invalid(ground: Playground) -> None:
    ground.topic("ids")
    path = "/brokers/topics/ids"
    ground.put(path, ground.body(path) | {"topic_id": "x"})
    assert ground.found(Code.TOPIC_ID_INVALID, path)
    (metadata, *_) = ground.processes.directory.glob("broker-*/ids-0/partition.metadata")
    (topic_id,) = re.findall(r"topic_id: (\S+)", metadata.read_text())
    body = json.dumps(ground.body(path) | {"topic_id": topic_id})
    ground.shell(command('zookeeper-shell "$ZOOKEEPER" set {path} {body}', path=path, body=body))
    gone(ground, Code.TOPIC_ID_INVALID, path)


def topic_name(ground: Playground) -> None:
    path = f"/brokers/topics/{HOSTILE}"
    body = {
        "version": 3,
        "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ",
        "partitions": {},
        "adding_replicas": {},
        "removing_replicas": {},
    }
    ground.put(path, body)
    mend(ground, Code.TOPIC_NAME_INVALID, path)


def topic_without_id(ground: Playground) -> None:
    ground.topic("nameless")
    path = "/brokers/topics/nameless"
    ground.put(path, {key: value for key, value in ground.body(path).items() if key != "topic_id"})
    (finding,) = ground.found(Code.TOPIC_WITHOUT_ID, path)
    assert "delete /controller" in finding.fix
    ground.shell('zookeeper-shell "$ZOOKEEPER" delete /controller')
    gone(ground, Code.TOPIC_WITHOUT_ID, path)


def without_partitions(ground: Playground) -> None:
    ground.topic("empty")
    path = "/brokers/topics/empty"
    ground.put(path, ground.body(path) | {"partitions": {}})
    mend(ground, Code.TOPIC_WITHOUT_PARTITIONS, path)
    ground.wait("the deletion to end", lambda: not ground.zookeeper.get_children("/admin/delete_topics"))


# ------------------------------------------------------------------------------------------------ without a broker


def down(ground: Playground) -> str:
    """Stop broker 1; return where the other one answers."""
    ground.processes.stop("broker-1")
    ground.wait("broker 1 to be gone", lambda: not ground.zookeeper.exists("/brokers/ids/1"))
    return f"127.0.0.1:{ground.processes.broker_ports[0]}"


def up(ground: Playground) -> None:
    ground.processes.start_broker(1, "zookeeper")
    ground.wait("broker 1 to be back", lambda: ground.zookeeper.exists("/brokers/ids/1"))


def with_a_broker_down(ground: Playground) -> None:
    ground.topic("doomed")
    ground.topic("lonely", replicas=1)
    ground.shell(
        f"kafka-reassign-partitions --bootstrap-server HOST:PORT --execute --reassignment-json-file {plan(ground, 'lonely', [1])}"
    )
    ground.wait("lonely on broker 1", lambda: ground.body(state_of("lonely"))["isr"] == [1])
    at = down(ground)
    ground.wait("no leader", lambda: ground.found(Code.OFFLINE_PARTITIONS, state_of("lonely")))
    for line in Code.OFFLINE_PARTITIONS.commands():
        assert "lonely" in ground.shell(line, at=at)
    for line in Code.UNDER_REPLICATED_PARTITIONS.commands():
        assert "doomed" in ground.shell(line, at=at)
    ground.shell("kafka-topics --bootstrap-server HOST:PORT --delete --topic doomed", at=at)
    ground.wait("the deletion to wait", lambda: ground.found(Code.TOPIC_DELETION_PENDING))
    up(ground)
    gone(ground, Code.OFFLINE_PARTITIONS, state_of("lonely"))
    gone(ground, Code.TOPIC_DELETION_PENDING, "/admin/delete_topics/doomed")


def cancelled(ground: Playground) -> None:
    """A reassignment that a throttle holds up goes on until somebody cancels it."""
    ground.topic("moving", replicas=1)
    here = ground.body(state_of("moving"))["leader"]
    producer = Producer({"bootstrap.servers": ground.processes.bootstrap_servers, "log_level": 0})
    for _ in range(40):
        producer.produce("moving", b"x" * 100_000)
    producer.flush(60)
    file = plan(ground, "moving", [1 - here])
    ground.shell(
        f"kafka-reassign-partitions --bootstrap-server HOST:PORT --execute --throttle 1 --reassignment-json-file {file}"
    )
    (finding,) = ground.wait("the reassignment", lambda: ground.found(Code.REASSIGNMENT_RUNNING))
    cancel, remove = told(finding)
    ground.shell(filled_in(cancel, FILE=file))
    gone(ground, Code.REASSIGNMENT_RUNNING, finding.object)
    with paused_brokers(ground):
        ground.put("/admin/reassign_partitions", b"of an old tool")
        ground.shell(remove)
        assert not ground.found(Code.REASSIGNMENT_RUNNING)


# ------------------------------------------------------------------------------------------------ requests of preflight and of comparisons


def run_all(ground: Playground, code: Code, details: dict[str, Any] | None = None, **words: str) -> str:
    return "\n".join(ground.shell(filled_in(line, **words)) for line in code.commands(**(details or {})))


def granted(code: Code, details: dict[str, Any] | None = None) -> Callable[[Playground], None]:
    def case(ground: Playground) -> None:
        user = f"op-{code}"
        run_all(ground, code, details, NAME=user)
        assert f"User:{user}" in run_all(ground, Code.AUTHORIZER_ZOOKEEPER_ELSEWHERE)

    return case


def users(ground: Playground) -> None:
    details = {"config": "SCRAM-SHA-256=[password=PASSWORD]"}
    run_all(ground, Code.SCRAM_CREDENTIALS_FORGETTABLE_BY_BROKERS, details, NAME="eve", PASSWORD="nobody-knows")
    assert "SCRAM-SHA-256" in ground.body("/config/users/eve")["config"]
    assert "eve" in run_all(ground, Code.SCRAM_REMOVALS_UNKNOWN)


def listener_map(ground: Playground) -> None:
    ground.configure("brokers/0", {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"})
    run_all(ground, Code.DYNAMIC_LISTENER_MAP, {"entity": option("entity-name", 0)})
    assert ground.body("/config/brokers/0")["config"] == {}


def left_aside(code: Code) -> Callable[[Playground], None]:
    """kafka-configs refuses to delete one of several settings that Kafka takes for sensitive, as all that it does not know.

    Kafka 3.9.1 shows no dynamic setting that KRaft ignores, so unknown ones stand for them.
    """
    settings = {"made.up": "1", "made.up.too": "1"}

    def case(ground: Playground) -> None:
        for entity, stored in ((option("entity-name", 1), "1"), (option("entity-default"), "<default>")):
            ground.configure(f"brokers/{stored}", settings | {"log.cleaner.threads": "1"})
            run_all(ground, code, {"entity": entity, "names": ",".join(settings)})
            assert ground.body(f"/config/brokers/{stored}")["config"] == {"log.cleaner.threads": "1"}

    return case


def thread_pool(ground: Playground) -> None:
    line = "kafka-configs --bootstrap-server HOST:PORT --alter --entity-type brokers --entity-name 0 --add-config num.io.threads={}"
    for threads in (4, 8, 16):
        ground.shell(line.format(threads))
    stated = (Stated(SettingSource.DYNAMIC_BROKER, "16"), Stated(SettingSource.STATIC, "2"))
    refused = refusals({"num.io.threads": EffectiveSetting("16", sensitive=False, stated=stated)}, {})
    commands = re.findall(r"kafka-configs [^,]*", _fix(refused, 0))
    assert commands
    for each in commands:
        ground.shell(each)
        time.sleep(1)
    assert (
        refusals(
            {
                "num.io.threads": EffectiveSetting(
                    "4", sensitive=False, stated=(Stated(SettingSource.DYNAMIC_BROKER, "4"), stated[1])
                )
            },
            {},
        )
        == ()
    )
    assert ground.body("/config/brokers/0")["config"]["num.io.threads"] == "4"


def mends_of_a_rehearsal(ground: Playground) -> None:
    planted = {
        "/config/users/rehearsed": {"version": 1, "config": {"foo_rate": "1", "consumer_byte_rate": "7"}},
        "/config/clients/rehearsed": {"version": 1, "config": {"producer_byte_rate": "x"}},
        "/config/topics/never-existed": {"version": 1, "config": {}},
        "/config/users/raw": b"[]",
        f"/kafka-acl/Group/{HOSTILE}": {"version": 1, "acls": [acl("alice"), acl()]},
        f"/kafka-acl/Group/{HOSTILE}2": {"version": 1, "acls": [acl("alice")]},
        "/kafka-acl/Planet/x": {"version": 1, "acls": []},
        "/config/brokers/abc": {"version": 1, "config": {}},
    }
    for path, data in planted.items():
        ground.put(path, data)

    def known() -> dict[str, str]:
        dump = ground.processes.directory / "dump.jsonl.gz"
        write_dump(ground.tree(), dump, "")
        return {
            each.znode: each.command for each in mends(dump, "", {"password.encoder.secret"}) if each.znode in planted
        }

    before = known()
    assert set(before) == set(planted)
    for line in before.values():
        ground.shell(line)
    assert known() == {}
    assert ground.body("/config/users/rehearsed")["config"] == {"consumer_byte_rate": "7"}
    assert ground.body(f"/kafka-acl/Group/{HOSTILE}")["acls"] == [acl()]


_CONFIG = {"version": 1, "config": {}}
CASES: dict[Code, Callable[[Playground], None]] = {
    Code.ACL_PATTERN_UNKNOWN: acl_pattern,
    Code.ACL_PRINCIPAL_INVALID: acl_entries(Code.ACL_PRINCIPAL_INVALID, acl('al"ice')),
    Code.ACL_UNKNOWN: acl_entries(Code.ACL_UNKNOWN, acl(operation="Jump")),
    Code.ACL_RESOURCE_TYPE_UNKNOWN: deleted(
        Code.ACL_RESOURCE_TYPE_UNKNOWN, "/kafka-acl/Star/x", {"version": 1, "acls": [acl()]}
    ),
    Code.BROKER_CONFIG_NAME_INVALID: deleted(Code.BROKER_CONFIG_NAME_INVALID, "/config/brokers/xyz", _CONFIG),
    Code.BROKER_ID_INVALID: deleted(Code.BROKER_ID_INVALID, "/brokers/ids/xyz", {}),
    Code.ENTITY_NAME_INVALID: entity_name,
    Code.ELECTION_ZNODE: election,
    Code.MIGRATION_ZNODE_STALE: deleted(
        Code.MIGRATION_ZNODE_STALE,
        "/migration",
        {
            "version": 0,
            "kraft_metadata_offset": 7,
            "kraft_controller_id": 3000,
            "kraft_metadata_epoch": 2,
            "kraft_controller_epoch": 2,
        },
    ),
    Code.MIGRATION_ZNODE_UNREADABLE: deleted(Code.MIGRATION_ZNODE_UNREADABLE, "/migration", b"x"),
    Code.STALE_TOPIC_CONFIG: deleted(Code.STALE_TOPIC_CONFIG, f"/config/topics/{HOSTILE}", _CONFIG),
    Code.STALE_TOPIC_ZNODE: deleted(Code.STALE_TOPIC_ZNODE, "/brokers/topics/stale", b""),
    Code.ZNODE_UNDECODABLE: deleted(Code.ZNODE_UNDECODABLE, "/config/clients/undecodable", b"{"),
    Code.ORPHAN_PARTITION_STATE: orphan_state,
    Code.ISR_INVALID: in_sync_replicas,
    Code.LEADER_NOT_IN_SYNC: leader_not_in_sync,
    Code.PARTITION_WITHOUT_STATE: without_state,
    Code.PASSWORD_ENCODER_SECRET_WRONG: password,
    Code.QUOTA_UNKNOWN: quota_unknown,
    Code.QUOTA_ADDRESS_IS_NAME: quota_of_a_name,
    Code.QUOTA_INVALID: quota_invalid,
    Code.REPLICAS_INVALID: reassigned(Code.REPLICAS_INVALID, "twice", [0, 0]),
    Code.REPLICA_ON_UNKNOWN_BROKER: reassigned(Code.REPLICA_ON_UNKNOWN_BROKER, "strange", [0, 9]),
    Code.TOPIC_CONFIG_MISSING: config_missing,
    Code.TOPIC_ID_DUPLICATE: same_id,
    Code.TOPIC_ID_INVALID: topic_id_invalid,
    Code.TOPIC_NAME_INVALID: topic_name,
    Code.TOPIC_WITHOUT_ID: topic_without_id,
    Code.TOPIC_WITHOUT_PARTITIONS: without_partitions,
    Code.OPERATIONS_MISSING: granted(Code.OPERATIONS_MISSING, {"needed": ["Describe", "DescribeConfigs", "Alter"]}),
    Code.TOPIC_CONFIGS_HIDDEN: granted(Code.TOPIC_CONFIGS_HIDDEN),
    Code.TOPIC_CONFIGS_NEEDED: granted(Code.TOPIC_CONFIGS_NEEDED),
    Code.TOPICS_HIDDEN: granted(Code.TOPICS_HIDDEN),
    Code.SCRAM_CREDENTIALS_FORGETTABLE_BY_BROKERS: users,
    Code.DYNAMIC_LISTENER_MAP: listener_map,
    Code.DYNAMIC_SETTINGS_IGNORED_BY_KRAFT: left_aside(Code.DYNAMIC_SETTINGS_IGNORED_BY_KRAFT),
    Code.DYNAMIC_SETTINGS_UNKNOWN: left_aside(Code.DYNAMIC_SETTINGS_UNKNOWN),
    Code.DYNAMIC_SETTINGS_REFUSED: thread_pool,
    Code.REHEARSAL_FAILS: mends_of_a_rehearsal,
    Code.CONTROLLER_EPOCH_BEHIND: epoch_behind,
    Code.CONTROLLER_EPOCH_INVALID: epoch_invalid,
    Code.REASSIGNMENT_RUNNING: cancelled,
    Code.OFFLINE_PARTITIONS: with_a_broker_down,
}
WITH_THEM = (
    Code.UNDER_REPLICATED_PARTITIONS, Code.TOPIC_DELETION_PENDING, Code.SCRAM_REMOVALS_UNKNOWN,
    Code.AUTHORIZER_ZOOKEEPER_ELSEWHERE, Code.REHEARSAL_LOSES,
)  # fmt: skip
"""What a case of another code runs as well."""


@runs(*CASES, *WITH_THEM)
@pytest.mark.parametrize("code", CASES)
def test_the_fix_works(code: Code, ground: Playground) -> None:
    CASES[code](ground)
