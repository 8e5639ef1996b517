"""Reading again: what counts as settled, different or in flight, by what ZooKeeper shows from try to try."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import pytest
from kazoo.exceptions import NoNodeError
from tests.unit.metadata.record_writer import batch, record, write_log

from kraftbridge.metadata.entities import Secrets
from kraftbridge.metadata.log.files import LocalLogFiles
from kraftbridge.metadata.log.image import TOPIC_RESOURCE
from kraftbridge.metadata.log.replay import LogReplay
from kraftbridge.metadata.zookeeper.reader import Data, Fenced, Operation, Read, ZooKeeperReader
from kraftbridge.models.entities import EntityKind
from kraftbridge.models.observation import MigrationZnode
from kraftbridge.verification.compare import mirror
from kraftbridge.verification.compare.mirror import Recheck, Rechecked

BROKER = (EntityKind.BROKER_REGISTRATION, "1")
HOT, COLD = (EntityKind.TOPIC_CONFIG, "hot"), (EntityKind.TOPIC_CONFIG, "cold")
STAT = (0,) * 11
TRIES = 5
Sight = tuple[int, dict[str, str | None]]
"""Log offset that ZooKeeper mirrors, and the value that each topic's config has there."""


class Reader:
    """Shows one sight after the other, the last one for ever."""

    migration_problem = None

    def __init__(self, sights: Sequence[Sight]) -> None:
        self.sights = list(sights)

    def synchronize(self) -> None:
        """Nothing to catch up with."""

    def read(self, reads: Sequence[Read], batch: int = 0) -> Iterator[Fenced]:
        if not reads:
            return
        assert all(each.operation is Operation.DATA for each in reads)
        offset, values = self.sights.pop(0) if len(self.sights) > 1 else self.sights[0]
        answers: list[Data] = []
        for each in reads:
            value = values[each.path.rpartition("/")[2]]
            config = {} if value is None else {"retention.ms": value}
            answers.append(Data(json.dumps({"version": 1, "config": config}).encode(), STAT))
        yield Fenced(MigrationZnode(3000, 1, offset, 1), reads, answers)


def config(topic: str, value: str | None) -> bytes:
    return record("ConfigRecord", resourceType=TOPIC_RESOURCE, resourceName=topic, name="retention.ms", value=value)


NO_OP = record("NoOpRecord")
# The hot topic's value at offset N is N; the cold one was changed at offset 1 for the last time.
LOG = [config("cold", "old"), config("cold", "new"), *(config("hot", str(offset)) for offset in range(2, 12)), NO_OP]
END = len(LOG) - 1


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror, "_PAUSE_SECONDS", 0.0)


def settled(folder: Path, sights: Sequence[Sight], identities: Sequence[mirror.Identity]) -> Rechecked:
    write_log(folder, [batch([value], offset) for offset, value in enumerate(LOG)])
    reader = cast("ZooKeeperReader", Reader(sights))
    replay = LogReplay(LocalLogFiles(folder), start_at_most=sights[0][0])
    return Recheck(reader, replay, Secrets(b"salt"), None).settle(identities, tries=TRIES, seconds=30)


def test_an_entity_that_always_changes_is_settled_when_it_is_met_between_two_writes(tmp_path):
    sights: list[Sight] = [(3, {"hot": "4"}), (5, {"hot": "6"}), (7, {"hot": "7"})]
    outcome = settled(tmp_path, sights, [HOT])
    assert (outcome.differing, outcome.unresolved, outcome.rounds, outcome.last_fence) == ({}, {}, 3, 7)


def test_an_entity_that_is_never_met_between_two_writes_stays_in_flight(tmp_path):
    sights: list[Sight] = [(offset, {"hot": str(offset + 1)}) for offset in range(2, 8)]
    outcome = settled(tmp_path, sights, [HOT])
    assert outcome.unresolved.keys() == {HOT}
    assert not outcome.differing
    assert outcome.rounds == TRIES


def test_a_lost_write_is_a_difference_once_the_mirror_has_moved(tmp_path):
    sights: list[Sight] = [(4, {"cold": "old", "hot": "4"}), (5, {"cold": "old", "hot": "5"})]
    outcome = settled(tmp_path, sights, [COLD, HOT])
    assert outcome.differing.keys() == {COLD}
    assert not outcome.unresolved
    assert outcome.rounds == 2


def test_a_lost_write_of_an_entity_that_changes_again_is_not_called_a_difference_too_early(tmp_path):
    # At offset 4 ZooKeeper has lost record 4; record 5 touches the entity, and is being written.
    sights: list[Sight] = [(4, {"hot": "3"}), (5, {"hot": "3"}), (6, {"hot": "6"})]
    outcome = settled(tmp_path, sights, [HOT])
    assert (outcome.differing, outcome.unresolved) == ({}, {})


def test_a_removal_that_was_lost_is_a_difference(tmp_path):
    log = [*LOG, config("cold", None), NO_OP]
    write_log(tmp_path, [batch([value], offset) for offset, value in enumerate(log)])
    sights: list[Sight] = [(END + 1, {"cold": "new"}), (END + 2, {"cold": "new"})]
    replay = LogReplay(LocalLogFiles(tmp_path))
    reader = cast("ZooKeeperReader", Reader(sights))
    outcome = Recheck(reader, replay, Secrets(b"salt"), None).settle([COLD], tries=TRIES, seconds=30)
    assert outcome.differing.keys() == {COLD}
    assert outcome.differing[COLD].log is None


def test_a_mirror_that_stands_still_leaves_only_what_the_log_touched_since_in_flight(tmp_path):
    sights: list[Sight] = [(4, {"cold": "old", "hot": "3"})]
    outcome = settled(tmp_path, sights, [COLD, HOT])
    assert outcome.differing.keys() == {COLD}
    assert outcome.unresolved.keys() == {HOT}


def test_a_mirror_that_moves_is_waited_for_and_one_that_stands_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr(mirror, "_STANDING_SECONDS", 0.0)
    moving: list[Sight] = [(2, {"hot": "3"}), (3, {"hot": "4"}), (4, {"hot": "4"})]
    assert settled(tmp_path, moving, [HOT]).unresolved == {}
    standing: list[Sight] = [(3, {"hot": "4"}), (3, {"hot": "4"}), (4, {"hot": "4"})]
    outcome = settled(tmp_path, standing, [HOT])
    assert (outcome.unresolved.keys(), outcome.rounds) == ({HOT}, 2)


def test_a_log_that_ends_before_the_fence_settles_nothing(tmp_path):
    sights: list[Sight] = [(END + 5, {"cold": "new"})]
    outcome = settled(tmp_path, sights, [COLD])
    assert outcome.unresolved.keys() == {COLD}
    assert not outcome.differing


def registration(*, fenced: bool) -> list[bytes]:
    endpoint = {"name": "PLAINTEXT", "host": "b1", "port": 9092, "securityProtocol": 0}
    registered = record(
        "RegisterBrokerRecord", brokerId=1, isMigratingZkBroker=True, endPoints=[endpoint], fenced=True, brokerEpoch=1
    )
    change = record("BrokerRegistrationChangeRecord", brokerId=1, brokerEpoch=1, fenced=1 if fenced else -1)
    unfenced = record("BrokerRegistrationChangeRecord", brokerId=1, brokerEpoch=1, fenced=-1)
    return [registered, unfenced, NO_OP, change]


@pytest.mark.parametrize("fenced", [True, False])
def test_a_broker_that_is_gone_is_judged_by_the_logs_end_however_far_zookeeper_is_behind(tmp_path, monkeypatch, fenced):
    monkeypatch.setattr(mirror, "_BROKER_SETTLE_SECONDS", 0.0)
    write_log(tmp_path, [batch([value], offset) for offset, value in enumerate(registration(fenced=fenced))])
    reader = cast("ZooKeeperReader", Absent([(1, {})]))  # at offset 1 it was not fenced
    outcome = Recheck(reader, LogReplay(LocalLogFiles(tmp_path), start_at_most=1), Secrets(b"salt"), None).settle(
        [BROKER], tries=TRIES, seconds=30
    )
    assert outcome.differing.keys() == (set() if fenced else {BROKER})
    assert not outcome.unresolved


class Absent(Reader):
    """Shows no znode but `/migration`."""

    def read(self, reads: Sequence[Read], batch: int = 0) -> Iterator[Fenced]:
        if reads:
            yield Fenced(MigrationZnode(3000, 1, self.sights[0][0], 1), reads, [NoNodeError()] * len(reads))
