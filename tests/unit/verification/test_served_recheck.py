"""What brokers serve against the log: settled, different, in flight, not to be asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.unit.metadata.record_writer import batch, record, write_log

from kraftbridge.exceptions import MetadataError
from kraftbridge.metadata.entities import Entity, Secrets, canonical_json, uuid_text
from kraftbridge.metadata.log.files import LocalLogFiles
from kraftbridge.metadata.log.image import BROKER_RESOURCE, TOPIC_RESOURCE
from kraftbridge.metadata.log.replay import LogReplay
from kraftbridge.metadata.zookeeper.reader import Data, Fenced, Read, ZooKeeperReader
from kraftbridge.models.config_values import ConfigType
from kraftbridge.models.entities import EntityKind
from kraftbridge.models.observation import MigrationZnode
from kraftbridge.models.report import BrokerAccess, CompareServed, Profile, VerificationRequest
from kraftbridge.verification.compare import served as served_recheck
from kraftbridge.verification.inputs import Inputs
from kraftbridge.verification.run import Run
from kraftbridge.verification.sources.brokers import BrokerUnavailableError
from kraftbridge.verification.sources.rows import LogVoter

STAT = (0,) * 11
CONFIG, OWN = (EntityKind.TOPIC_CONFIG, "orders"), (EntityKind.BROKER_CONFIG, "1")
USER = (EntityKind.SCRAM_CREDENTIAL, "ann/SCRAM-SHA-256")
BROKERS = (BrokerAccess(id=1, host="b1", port=9092), BrokerAccess(id=2, host="b2", port=9092))


def config(kind: int, name: str, value: str, key: str = "retention.ms") -> bytes:
    return record("ConfigRecord", resourceType=kind, resourceName=name, name=key, value=value)


class Brokers:
    """Answers of each broker, look by look; the last one for ever. None: it does not answer."""

    def __init__(self, answers: dict[int, Sequence[str | None]]) -> None:
        self.answers = {broker: list(values) for broker, values in answers.items()}
        self.asked: list[tuple[int, Sequence[str] | None]] = []
        self.before_each = lambda: None

    @contextmanager
    def served(self, access: BrokerAccess, *_: object) -> Iterator[Any]:
        self.before_each()
        values = self.answers[access.id]
        value = values.pop(0) if len(values) > 1 else values[0]
        if value is None:
            raise BrokerUnavailableError(f"broker {access.id} is silent")
        yield _Answer(self, access.id, value)


class _Answer:
    def __init__(self, brokers: Brokers, broker: int, value: str) -> None:
        self._brokers, self._broker, self._value = brokers, broker, value
        self.types = {"retention.ms": ConfigType.LONG}

    def topics(self, names: Sequence[str] | None = None, *, configs: bool = True) -> Iterator[Entity]:
        if names:
            self._brokers.asked.append((self._broker, names))
        yield Entity(*CONFIG, canonical_json({"retention.ms": self._value}), -1)

    def own_configs(self) -> Iterator[Entity]:
        yield Entity(*OWN, canonical_json({"log.retention.ms": self._value}), -1)

    def scram_credentials(self) -> Iterator[Entity]:
        if self._value != "forgotten":
            yield Entity(*USER, canonical_json({"iterations": int(self._value)}), -1)


@pytest.fixture
def log(tmp_path: Path) -> list[bytes]:
    records = [
        *(record("RegisterBrokerRecord", brokerId=broker.id, fenced=False, brokerEpoch=1) for broker in BROKERS),
        config(TOPIC_RESOURCE, "orders", "5"),
        config(BROKER_RESOURCE, "1", "5", "log.retention.ms"),
        config(BROKER_RESOURCE, "1", "guess me", "listener.name.a.ssl.key.password"),
    ]
    write_log(tmp_path, [batch([value], offset) for offset, value in enumerate(records)])
    return records


@pytest.fixture
def run(tmp_path: Path, log: list[bytes], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(served_recheck, "_SETTLE_SECONDS", 0.1)
    monkeypatch.setattr(served_recheck, "_STILL_SECONDS", 0.2)
    monkeypatch.setattr(served_recheck, "_PAUSE_SECONDS", 0.03)
    request = VerificationRequest(run_id="r", profile=Profile.DUAL_WRITE, fence_seconds=0.6)
    voter = LogVoter(id=3000, name="3000", url=tmp_path.as_uri(), mirrored=True)
    inputs = Inputs(Profile.DUAL_WRITE, None, [voter], [], live=True, brokers=BROKERS)
    return Run(cast("Any", None), request, inputs)


def settle(run: Run, monkeypatch: pytest.MonkeyPatch, brokers: Brokers, *pending: served_recheck.Open) -> None:
    monkeypatch.setattr(served_recheck, "served_broker", brokers.served)
    monkeypatch.setattr(Run, "in_task", lambda _, function, argument: function(argument))  # no Spark here
    served_recheck._settle(run, list(pending))


def test_what_equals_the_log_at_one_look_is_settled_for_each_broker_alone(run, monkeypatch):
    monkeypatch.setattr(served_recheck, "_STILL_SECONDS", 60.0)
    brokers = Brokers({1: ["4", "5", "6"], 2: ["4", "4", "5", "6"]})
    settle(run, monkeypatch, brokers, (CONFIG, 1), (CONFIG, 2))
    assert not run.outcome.differences
    assert not run.outcome.unresolved
    assert brokers.asked == [(1, ["orders"]), (2, ["orders"]), (1, ["orders"]), (2, ["orders"]), (2, ["orders"])]


def test_what_stays_different_without_a_newer_record_is_a_difference_that_names_broker_and_log(run, monkeypatch):
    run.request = run.request.model_copy(update={"fence_seconds": 30.0})  # a loaded machine needs longer for one look
    settle(run, monkeypatch, Brokers({1: ["5"], 2: ["4"]}), (CONFIG, 1), (CONFIG, 2))
    (difference,) = run.outcome.differences.values()
    assert (difference.kind, difference.key) == CONFIG
    assert [each.values for each in difference.attributes] == [{"log": '"5"', "broker 2": '"4"'}]
    assert difference.log_offset == 2
    assert not run.outcome.unresolved


@pytest.mark.parametrize(
    ("served", "state", "shown"), [("4096", None, None), ("8192", "changed", "8192"), ("forgotten", "missing", None)]
)
def test_users_are_compared_by_name_mechanism_and_iterations(run, monkeypatch, tmp_path, log, served, state, shown):
    run.request = run.request.model_copy(update={"fence_seconds": 30.0})
    keys = {"salt": b"s", "storedKey": b"k", "serverKey": b"v"}
    log.append(record("UserScramCredentialRecord", name="ann", mechanism=1, iterations=4096, **keys))
    write_log(tmp_path, [batch([value], offset) for offset, value in enumerate(log)])
    settle(run, monkeypatch, Brokers({1: [served], 2: ["4096"]}), (USER, 1), (USER, 2))
    found = [(d.kind, d.key, d.state, d.attributes[0].name) for d in run.outcome.differences.values()]
    assert found == ([(*USER, state, "iterations")] if state else [])
    for difference in run.outcome.differences.values():
        assert [each.values for each in difference.attributes] == [{"log": "4096", "broker 1": shown}]
        assert not difference.in_mirror_only


class Mirror:
    """ZooKeeper that mirrors the log up to an offset."""

    def __init__(self, offset: int) -> None:
        self.offset = offset

    def read(self, reads: Sequence[Read]) -> Iterator[Fenced]:
        yield Fenced(MigrationZnode(3000, 1, self.offset, 1), reads, [Data(b"{}", STAT)] * len(reads))


@pytest.mark.parametrize("mirrored", [1, 2])
def test_brokers_are_given_their_time_from_when_zookeeper_mirrors_a_record(run, monkeypatch, tmp_path, mirrored):
    monkeypatch.setattr(served_recheck, "served_broker", Brokers({1: ["4"]}).served)
    zookeeper = cast("ZooKeeperReader", Mirror(mirrored))
    replay = LogReplay(LocalLogFiles(tmp_path))
    settling = served_recheck._Settling(run.inputs, replay, zookeeper, Secrets(b"salt"))
    served_recheck.look_until_settled(settling, [(CONFIG, 1)], run.outcome, run.request.fence_seconds)
    assert bool(run.outcome.differences) is (mirrored == 2)
    assert bool(run.outcome.unresolved) is (mirrored < 2)


def test_what_the_log_touches_again_and_again_stays_in_flight(run, monkeypatch, tmp_path, log):
    monkeypatch.setattr(served_recheck, "_SETTLE_SECONDS", 1.0)
    brokers = Brokers({1: ["1"]})

    def append() -> None:
        log.append(config(TOPIC_RESOURCE, "orders", str(100 + len(log))))
        write_log(tmp_path, [batch([value], offset) for offset, value in enumerate(log)])

    brokers.before_each = append
    settle(run, monkeypatch, brokers, (CONFIG, 1))
    assert not run.outcome.differences
    assert run.outcome.unresolved == ["topic-config orders at broker 1"]


def test_own_configs_are_compared_without_the_secret_ones(run, monkeypatch):
    settle(run, monkeypatch, Brokers({1: ["5"]}), (OWN, 1))
    assert not run.outcome.differences
    settle(run, monkeypatch, Brokers({1: ["4"]}), (OWN, 1))
    (difference,) = run.outcome.differences.values()
    assert [each.name for each in difference.attributes] == ["log.retention.ms"]


@pytest.mark.parametrize(("written", "different"), [(" +05", False), ("5.0", True), ("6", True)])
def test_settings_are_compared_by_the_type_that_the_broker_states(run, monkeypatch, tmp_path, log, written, different):
    log.append(config(TOPIC_RESOURCE, "orders", written))
    write_log(tmp_path, [batch([value], offset) for offset, value in enumerate(log)])
    settle(run, monkeypatch, Brokers({1: ["5"]}), (CONFIG, 1))
    assert bool(run.outcome.differences) is different
    assert not run.outcome.unresolved


@pytest.mark.parametrize(("identity", "name"), [(CONFIG, "retention.ms"), (OWN, "log.retention.ms")])
def test_a_value_that_a_broker_hides_is_not_compared(run, monkeypatch, identity, name):
    class Hiding(Brokers):
        @contextmanager
        def served(self, access: BrokerAccess, *_: object) -> Iterator[Any]:
            kept = {"compression.type": "lz4"} if access.id == 2 else {}
            entity = Entity(*identity, canonical_json({name: None, **kept}), -1)
            yield SimpleNamespace(topics=lambda *_, **__: [entity], own_configs=lambda: [entity], types={})

    settle(run, monkeypatch, Hiding({}), (identity, 1))
    assert not run.outcome.differences
    assert not run.outcome.unresolved
    settle(run, monkeypatch, Hiding({}), (identity, 2))
    (difference,) = run.outcome.differences.values()
    assert [each.name for each in difference.attributes] == ["compression.type"], "what it does show is compared"


def test_a_hidden_value_that_the_log_does_not_have_is_a_difference(run, monkeypatch):
    class Hiding(Brokers):
        @contextmanager
        def served(self, *_: object) -> Iterator[Any]:
            entity = Entity(*CONFIG, canonical_json({"retention.ms": "5", "of.a.plugin": None}), -1)
            yield SimpleNamespace(topics=lambda *_, **__: [entity], types={})

    settle(run, monkeypatch, Hiding({}), (CONFIG, 1))
    (difference,) = run.outcome.differences.values()
    assert [each.name for each in difference.attributes] == ["of.a.plugin"]


def test_a_broker_that_does_not_answer_leaves_it_open_and_is_named(run, monkeypatch):
    settle(run, monkeypatch, Brokers({1: ["4", None]}), (CONFIG, 1))
    assert not run.outcome.differences
    assert run.outcome.problems == ["broker 1 is silent"]
    assert run.outcome.unresolved == ["topic-config orders at broker 1"]


@pytest.mark.parametrize("wanted", [CompareServed.IF_ALLOWED, CompareServed.ALWAYS])
def test_what_stays_unknown_about_brokers_is_a_warning_unless_the_user_insists(run, monkeypatch, wanted):
    run.request = run.request.model_copy(update={"compare_served": wanted})
    run.outcome.problems.append("of the stores")
    run.outcome.unresolved.append("in flight between the stores")

    def unknown(asked: Run, *_: object) -> Sequence[str]:
        settle(asked, monkeypatch, Brokers({1: ["4", None], 2: ["4"]}), (CONFIG, 1))
        raise MetadataError("broker 2 does not let the principal see it")

    run.outcome.leader_note = {"brokers": {}}
    monkeypatch.setattr(served_recheck, "compare_served", unknown)
    if wanted is CompareServed.ALWAYS:
        with pytest.raises(MetadataError):
            served_recheck.compare_with_log(run, cast("Any", None))
        assert run.outcome.problems == ["of the stores", "broker 1 is silent"]
        assert len(run.outcome.unresolved) == 2
        return
    served_recheck.compare_with_log(run, cast("Any", None))
    assert run.outcome.problems == ["of the stores"]
    assert run.outcome.unresolved == ["in flight between the stores"]
    assert [finding.code for finding in run.outcome.findings] == ["ServedNotCompared"] * 3
    reasons = " ".join(finding.reason for finding in run.outcome.findings)
    assert all(text in reasons for text in ("let the principal see", "broker 1 is silent", "topic-config orders"))


def looked(
    run: Run, monkeypatch: pytest.MonkeyPatch, directory: Path, brokers: Brokers, *pending: served_recheck.Open
) -> list[served_recheck.Open]:
    """Return what is called different after two looks that are more than a settling apart."""
    monkeypatch.setattr(served_recheck, "_SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(served_recheck, "served_broker", brokers.served)
    settling = served_recheck._Settling(run.inputs, LogReplay(LocalLogFiles(directory)), None, Secrets(b"salt"))
    for _ in range(3):
        left = settling.look(pending)
    return settling.differing(left)


def test_a_broker_that_works_off_a_backlog_is_waited_for(run, monkeypatch, tmp_path):
    """One entity of it changes from look to look, so the other may change, too."""
    monkeypatch.setattr(served_recheck, "_STILL_SECONDS", 0.0)
    still, moving = Brokers({1: ["4"]}), Brokers({1: ["1", "2", "3"]})
    assert looked(run, monkeypatch, tmp_path, still, (CONFIG, 1)) == [(CONFIG, 1)]
    monkeypatch.setattr(served_recheck, "_STILL_SECONDS", 0.05)
    assert looked(run, monkeypatch, tmp_path, moving, (CONFIG, 1)) == []


@pytest.mark.parametrize("fenced", [True, None])
def test_a_broker_that_is_not_there_for_the_quorum_is_not_called_different(run, monkeypatch, tmp_path, log, fenced):
    monkeypatch.setattr(served_recheck, "_STILL_SECONDS", 0.0)
    after = (
        ("UnregisterBrokerRecord", {"brokerId": 1}) if fenced is None else ("FenceBrokerRecord", {"id": 1, "epoch": 1})
    )
    log.append(record(after[0], **after[1]))
    write_log(tmp_path, [batch([value], offset) for offset, value in enumerate(log)])
    assert looked(run, monkeypatch, tmp_path, Brokers({1: ["4"]}), (CONFIG, 1)) == []


@pytest.mark.parametrize(
    ("knows", "pending", "different"),
    [
        ("newest", (EntityKind.TOPIC, "lost"), True),
        ("another newest", (EntityKind.TOPIC, "lost"), False),
        ("nothing", (EntityKind.TOPIC, "lost"), False),
        ("newest", (EntityKind.TOPIC, "last"), False),
        ("newest", CONFIG, False),
    ],
)
def test_a_broker_that_knows_a_newer_topic_is_past_the_record(
    run, monkeypatch, tmp_path, log, knows, pending, different
):
    identities = {"lost": b"l" * 16, "newest": b"n" * 16, "last": b"x" * 16}
    for name, identity in identities.items():
        log.append(record("TopicRecord", name=name, topicId=identity))
    write_log(tmp_path, [batch([value], offset) for offset, value in enumerate(log)])
    told = {"newest": identities["newest"], "another newest": b"o" * 16, "nothing": None}[knows]

    class Answer(_Answer):
        def topics(self, names: Sequence[str] | None = None, *, configs: bool = True) -> Iterator[Entity]:
            if told is not None and names is not None and "newest" in names:
                yield Entity(EntityKind.TOPIC, "newest", canonical_json({"topicId": uuid_text(told)}), -1)

    @contextmanager
    def served(access: BrokerAccess, *_: object) -> Iterator[Any]:
        yield Answer(Brokers({}), access.id, "")

    brokers = Brokers({})
    brokers.served = served  # type: ignore[method-assign]
    assert looked(run, monkeypatch, tmp_path, brokers, (pending, 1)) == ([(pending, 1)] if different else [])
