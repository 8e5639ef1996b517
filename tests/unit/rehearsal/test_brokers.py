"""What a broker's end and output mean; lines as Kafka 3.9.1 and the agent write them."""

from __future__ import annotations

import hmac
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kraftbridge.exceptions import RehearsalError
from kraftbridge.metadata.zookeeper.reader import write_dump
from kraftbridge.metadata.zookeeper.znodes import Znode
from kraftbridge.models.rehearsal import BrokerRehearsal, Ending, RehearsalResult, RehearsalVerdict
from kraftbridge.rehearsal.broker_properties import BrokerSettings, CopiedTree, Loopback
from kraftbridge.rehearsal.brokers import BrokerOptions, BrokerPlan, combined, planned
from kraftbridge.rehearsal.controller_log import ControllerLog
from kraftbridge.rehearsal.rehearse import RehearsalOptions

SALT = b"salt"
SECRET = "the-password"
HASH = hmac.digest(SALT, SECRET.encode(), "sha256").hex()
REFUSAL = (
    "[2026-11-25 02:29:59,852] ERROR Per-broker configs of 0 could not be applied: java.util.Collections$3@5189ef87 (kafka.server.DynamicBrokerConfig)\n"
    "org.apache.kafka.common.config.ConfigException: Invalid value X for configuration Invalid dynamic configuration\n"
    "\tat kafka.server.DynamicBrokerConfig.processReconfiguration(DynamicBrokerConfig.scala:1)\n"
)
FAULT = (
    "[2026-11-25 02:29:59,852] ERROR Encountered metadata publishing fault: Uncaught exception"
    " (org.apache.kafka.server.fault.LoggingFaultHandler)\njava.lang.IllegalArgumentException: Invalid key to HMAC computation\n"
)


def report(
    dynamic: tuple[str, ...] = ("num.io.threads", "log.retention.ms", "ssl.key.password"), **settings: object
) -> str:
    named = {name.replace("__", "."): setting for name, setting in settings.items()}
    return "kraftbridge-rehearsed-broker " + json.dumps({"settings": named, "dynamic": dynamic}) + "\n"


def value(text: str | None, kind: str = "INT") -> dict[str, str | None]:
    return {"value": text, "type": kind}


CASES = {
    "in force": (0, report(num__io__threads=value("16")), {"num.io.threads": "16"}, RehearsalVerdict.WORKS, "with each of 1"),
    "spelled otherwise": (0, report(num__io__threads=value("16")), {"num.io.threads": " 016"}, RehearsalVerdict.WORKS, "with each of 1"),
    "nothing stored": (0, report(), {}, RehearsalVerdict.WORKS, "no dynamic setting is stored"),
    "no dynamic setting in any mode": (0, report(), {"log.dirs": "/x"}, RehearsalVerdict.WORKS, "starts in KRaft mode"),
    "one of two can be dynamic": (
        0, report(num__io__threads=value("16")), {"num.io.threads": "16", "log.dirs": "/x"}, RehearsalVerdict.WORKS, "with each of 1",
    ),
    "nobody knows what can be dynamic": (
        0, report(dynamic=("",)), {"num.io.threads": "16"}, RehearsalVerdict.UNKNOWN, "names no setting that may be dynamic",
    ),
    "refused": (
        0, REFUSAL + report(num__io__threads=value("8")), {"num.io.threads": "16"}, RehearsalVerdict.FAILS,
        "not in force in KRaft mode: num.io.threads (stored 16, in force 8): ERROR Per-broker configs of 0 could not be applied",
    ),
    "unset": (
        0, report(log__retention__ms=value(None, "LONG")), {"log.retention.ms": "1"}, RehearsalVerdict.FAILS,
        "log.retention.ms (stored 1, in force none): Kafka says nothing of it",
    ),
    "a secret": (0, report(ssl__key__password={"hash": HASH}), {"ssl.key.password": SECRET}, RehearsalVerdict.WORKS, "with each"),
    "a secret of a listener": (
        0, report(listener__name__a__ssl__key__password={"hash": HASH}), {"listener.name.a.ssl.key.password": SECRET},
        RehearsalVerdict.WORKS, "with each",
    ),
    "another secret": (
        0, report(ssl__key__password={"hash": "00"}), {"ssl.key.password": SECRET}, RehearsalVerdict.FAILS, "ssl.key.password (a secret)",
    ),
    "no secret": (0, report(), {"ssl.key.password": SECRET}, RehearsalVerdict.FAILS, "ssl.key.password (a secret)"),
    "refused and equal": (
        0, REFUSAL + report(num__io__threads=value("16")), {"num.io.threads": "16"}, RehearsalVerdict.UNKNOWN, "could not be applied",
    ),
    "a fault": (0, FAULT + report(), {}, RehearsalVerdict.UNKNOWN, "Invalid key to HMAC computation"),
    "no start": (4, "org.apache.kafka.common.config.ConfigException: no\n\tat x\n", {}, RehearsalVerdict.FAILS, "(exit code 4): org.apache"),
    "no memory": (3, "Terminating due to java.lang.OutOfMemoryError: Java heap space\n", {}, RehearsalVerdict.UNKNOWN, "heap of 512 MiB"),
    "no report": (0, "[2026-11-25 02:29:59,852] INFO x\n", {}, RehearsalVerdict.UNKNOWN, "exit code 0 before it told"),
    "exits": (1, "[2026-11-25 02:29:59,852] ERROR Fatal (kafka)\n", {}, RehearsalVerdict.FAILS, "(exit code 1): ERROR Fatal"),
    "no main class": (1, "Error: Could not find or load main class x\n", {}, RehearsalVerdict.UNKNOWN, "Could not find"),
    "another Kafka": (5, "java.lang.NoSuchMethodException: x\n", {}, RehearsalVerdict.UNKNOWN, "NoSuchMethodException"),
    "no Java": (127, "sh: java: not found\n", {}, RehearsalVerdict.UNKNOWN, "java: not found"),
    "killed in its container": (137, REFUSAL, {}, RehearsalVerdict.UNKNOWN, "exit code 137"),
    "killed": (-9, REFUSAL, {}, RehearsalVerdict.UNKNOWN, "exit code -9"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_broker_works_only_if_each_stored_setting_is_in_force(case: str, tmp_path: Path) -> None:
    ended, output, stored, verdict, words = CASES[case]
    log = tmp_path / "broker-0.log"
    log.write_text(output)
    loopback = Loopback(lambda: 1)
    options = RehearsalOptions(tmp_path, tmp_path)
    plan = BrokerPlan(
        tmp_path, options, lambda: None, CopiedTree(loopback), [], {SECRET}, SALT  # type: ignore[arg-type,return-value]
    )  # fmt: skip
    broker = BrokerSettings(0, {}, stored, {})
    found, reason, compared = plan._judged(broker, ControllerLog(log, frozenset({SECRET})), ended)
    assert (found, words in reason) == (verdict, True), reason
    assert SECRET not in reason + str(compared)
    assert [setting.name for setting in compared if not setting.held] == ([*stored] if "not in force" in reason else [])


def result(verdict: RehearsalVerdict, ending: Ending = Ending.DUAL_WRITE) -> RehearsalResult:
    now = datetime(2026, 11, 26, tzinfo=UTC)
    return RehearsalResult(verdict=verdict, reason="the copy", ending=ending, started_at=now, finished_at=now)


@pytest.mark.parametrize(
    ("copy", "broker", "worst"),
    [
        ("Works", "Works", ("Works", "the copy")),
        ("Works", "Fails", ("Fails", "broker 1: it")),
        ("Works", "Unknown", ("Unknown", "broker 1: it")),
        ("Loses", "Unknown", ("Loses", "the copy")),
        ("Unknown", "Fails", ("Fails", "broker 1: it")),
        ("Loses", "Fails", ("Fails", "broker 1: it")),
    ],
)
def test_the_worst_verdict_counts(copy: str, broker: str, worst: tuple[str, str]) -> None:
    brokers = [
        BrokerRehearsal(broker=0, verdict=RehearsalVerdict.WORKS, reason="it works"),
        BrokerRehearsal(broker=1, verdict=RehearsalVerdict(broker), reason="it"),
    ]
    found = combined(result(RehearsalVerdict(copy)), brokers)
    assert (found.verdict, found.reason) == worst
    assert found.brokers == brokers
    assert (found.of_controllers.verdict, found.of_controllers.reason) == (copy, "the copy")


def dump(tmp_path: Path) -> Path:
    path = tmp_path / "zk.jsonl"
    write_dump([Znode("/brokers/ids/0", b"{}"), Znode("/brokers/ids/1", b"{}")], path, "")
    return path


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({0: {}}, "broker 1 has no properties: add --broker-properties 1=FILE"),
        ({None: {}, 7: {}}, "names broker 7, which is not registered"),
        ({None: {"listeners": "nonsense"}}, "'nonsense' is no endpoint"),
    ],
)
def test_settings_that_cannot_be_used_are_refused_before_anything_starts(
    properties: dict[int | None, dict[str, str]], words: str, tmp_path: Path
) -> None:
    agent = tmp_path / "agent.jar"
    agent.touch()
    with pytest.raises(RehearsalError, match=words):
        planned(dump(tmp_path), RehearsalOptions(tmp_path, tmp_path), BrokerOptions(properties, agent))


@pytest.mark.parametrize(
    ("static", "controllers", "listener"),
    [
        ({}, {}, "PLAINTEXT"),
        ({"listeners": "IN://h:1", "inter.broker.listener.name": "IN"}, {}, "IN"),
        ({"listeners": "SASL_SSL://h:1", "security.inter.broker.protocol": "SASL_SSL"}, {}, "SASL_SSL"),
        ({"inter.broker.listener.name": "IN"}, {"inter.broker.listener.name": "OF_CONTROLLERS"}, "OF_CONTROLLERS"),
    ],
)
def test_the_controller_demands_the_listener_that_the_brokers_use_among_themselves(
    static: dict[str, str], controllers: dict[str, str], listener: str, tmp_path: Path
) -> None:
    agent = tmp_path / "agent.jar"
    agent.touch()
    options = RehearsalOptions(tmp_path, tmp_path, settings=controllers)
    plan = planned(dump(tmp_path), options, BrokerOptions({None: static}, agent))
    assert plan.options.settings == {"inter.broker.listener.name": listener}


def test_a_dump_without_brokers_is_no_rehearsal_of_one(tmp_path: Path) -> None:
    path = tmp_path / "zk.jsonl"
    write_dump([Znode("/brokers/ids", b"")], path, "")
    agent = tmp_path / "agent.jar"
    agent.touch()
    with pytest.raises(RehearsalError, match="no broker is registered in the dump"):
        planned(path, RehearsalOptions(tmp_path, tmp_path), BrokerOptions({None: {}}, agent))


def test_without_the_agent_nothing_starts(tmp_path: Path) -> None:
    options = BrokerOptions({None: {}}, tmp_path / "agent.jar")
    with pytest.raises(RehearsalError, match=r"agent/build\.sh"):
        planned(dump(tmp_path), RehearsalOptions(tmp_path, tmp_path), options)


def test_no_broker_is_started_on_a_copy_that_kafka_does_not_migrate(tmp_path: Path) -> None:
    agent = tmp_path / "agent.jar"
    agent.touch()
    plan = planned(dump(tmp_path), RehearsalOptions(tmp_path, tmp_path), BrokerOptions({None: {}}, agent))
    found = plan.run(result(RehearsalVerdict.FAILS, Ending.STICKS))
    assert (found.verdict, found.brokers) == (RehearsalVerdict.FAILS, [])
    assert found.problems == ["no broker was started in KRaft mode, because the copy did not reach dual-write"]
