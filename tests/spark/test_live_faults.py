"""Faults between the controllers and ZooKeeper, with real processes: what Kafka loses then, and a mirror that stands still.

What the verification names is compared with a look that shares no code with it (`tests/spark/independent.py`).

A write is lost when its request never arrived and the controller's ZooKeeper session ends meanwhile: the migration driver
logs "Will retry", drops the change and goes on with the next (`KRaftMigrationDriver.MetadataChangeEvent`). If the request
arrived and only its answer is lost, every later write fails on the version of `/migration`, for ever. Which of them
happens when a ZooKeeper server freezes is a race inside the server; a relay between the two decides it here.
"""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka.admin import NewTopic, ResourcePatternType
from tests.spark import independent
from tests.spark.churn import Changes
from tests.spark.live_cluster import BROKERS, LiveCluster, dual_write_cluster

from kraftbridge.models.entities import EntityKind
from kraftbridge.models.report import Verdict, VerificationReport

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]
SESSION_SECONDS = 6
SHORT_FREEZE_SECONDS = 12.0
LONG_FREEZE_SECONDS = 40.0
TOPICS = 30
ATTEMPTS = 3
"""A slow machine answers later than a fault expects it to."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LiveCluster]:
    with dual_write_cluster(controllers_session_seconds=SESSION_SECONDS) as running:
        Changes(running, 1).topics([NewTopic(f"freeze-{i}", 1, 2) for i in range(TOPICS)])
        yield running


@contextmanager
def frozen(cluster: LiveCluster, seconds: float, hold: Callable[[], None]) -> Iterator[None]:
    """Stop carrying one direction, freeze ZooKeeper, and thaw it after `seconds`; the block runs while it is frozen.

    Sessions end at once when ZooKeeper thaws; the controllers get through to it only then.
    """
    began = time.monotonic()
    hold()
    cluster.relay.wait_for_silence(1.0, at_most_seconds=SESSION_SECONDS / 2)  # what is under way the other way arrives
    cluster.processes.signal("zookeeper", signal.SIGSTOP)
    try:
        yield
        time.sleep(max(0.0, seconds - (time.monotonic() - began)))
    finally:
        cluster.processes.signal("zookeeper", signal.SIGCONT)
        time.sleep(2)
        cluster.relay.cut()
        cluster.relay.release()


def settled(cluster: LiveCluster, seconds: float = 60) -> bool:
    """Return whether ZooKeeper mirrors the log again, once all brokers are back in it."""
    cluster.wait(lambda: all(cluster.zookeeper.exists(f"/brokers/ids/{broker}") for broker in BROKERS), 240)
    return cluster.moves(seconds)


def mirroring(cluster: LiveCluster) -> None:
    """Make sure that nothing is left of a fault before."""
    if not cluster.moves(20):
        cluster.fail_over()


class Burst:
    """Changes of one kind, each of another entity, so that no later write makes up for a lost one."""

    def __init__(self, cluster: LiveCluster) -> None:
        self._changes = changes = Changes(cluster, 5)
        self._round = str(time.time_ns())[-12:]
        self._one: dict[EntityKind, Callable[[int], None]] = {
            EntityKind.TOPIC: lambda i: changes.topics([NewTopic(f"new-{self._round}-{i}", 2, 2)]),
            EntityKind.TOPIC_CONFIG: lambda i: changes.topic_config(f"freeze-{i}", "retention.ms", self._round),
            EntityKind.ACL: lambda i: changes.acl(f"freeze-{i}", f"User:u{self._round}", ResourcePatternType.LITERAL),
            EntityKind.SCRAM_CREDENTIAL: lambda i: changes.scram(f"frozen-{i}"),
            EntityKind.CLIENT_QUOTA: lambda i: changes.quota(
                {"user": f"q-{i}"}, "producer_byte_rate", float(self._round)
            ),
        }

    def begin(self, kind: EntityKind) -> threading.Thread:
        """Make the changes one after the other in a thread of their own."""

        def run() -> None:
            for i in range(TOPICS):
                self._one[kind](i)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread


@pytest.mark.parametrize(
    ("kind", "seconds"),
    [
        (EntityKind.TOPIC_CONFIG, SHORT_FREEZE_SECONDS),
        pytest.param(EntityKind.TOPIC_CONFIG, LONG_FREEZE_SECONDS, marks=pytest.mark.long),
        pytest.param(EntityKind.TOPIC, SHORT_FREEZE_SECONDS, marks=pytest.mark.long),
        pytest.param(EntityKind.ACL, SHORT_FREEZE_SECONDS, marks=pytest.mark.long),
        pytest.param(EntityKind.SCRAM_CREDENTIAL, SHORT_FREEZE_SECONDS, marks=pytest.mark.long),
        pytest.param(EntityKind.CLIENT_QUOTA, SHORT_FREEZE_SECONDS, marks=pytest.mark.long),
    ],
)
def test_a_write_lost_while_zookeeper_is_frozen_is_named(cluster, check, kind, seconds):
    mirroring(cluster)
    assert check().verdict is Verdict.CONSISTENT
    for _ in range(ATTEMPTS):
        lost = {}
        if fault(cluster, kind, seconds, cluster.relay.hold_requests, 60):
            lost = independent.differences(cluster)
            report = check()
            print(f"frozen for {seconds:g} s, Kafka lost:", lost, "verification:", report.verdict, report.reason)
            assert names(report) == lost.keys()
            assert (report.verdict is Verdict.CONSISTENT) == (not lost)
        cluster.fail_over()  # a new leader writes everything: Kafka's own repair
        if lost:
            break
        print("the last answer came too late, or no change was under way: once more")
    assert lost, "Kafka lost nothing: there was nothing to find"
    assert not independent.differences(cluster)
    assert check().verdict is Verdict.CONSISTENT


def test_a_mirror_that_stands_still_is_told(cluster, check):
    """The write arrives, its answer does not: the driver never learns the new version of `/migration`."""
    mirroring(cluster)
    for _ in range(ATTEMPTS):
        stands_still = not fault(cluster, EntityKind.TOPIC_CONFIG, SHORT_FREEZE_SECONDS, cluster.relay.hold_replies, 20)
        if stands_still:
            offset = cluster.mirrored_offset()
            report = check()
            print("stands still:", report.verdict, report.reason, report.problems)
            assert report.verdict is not Verdict.CONSISTENT
            assert any(
                f"stands still: /migration has stayed at offset {offset}" in problem for problem in report.problems
            )
        cluster.fail_over()
        if stands_still:
            break
        print("the write came too late: once more")
    assert stands_still, "ZooKeeper always mirrored the log again: there was nothing to find"
    assert not independent.differences(cluster)
    assert check().verdict is Verdict.CONSISTENT


def fault(cluster: LiveCluster, kind: EntityKind, seconds: float, hold: Callable[[], None], patience: float) -> bool:
    """Freeze ZooKeeper while changes of one kind are made; return whether it mirrors the log again afterwards."""
    burst = Burst(cluster).begin(kind)
    time.sleep(0.2)
    with frozen(cluster, seconds, hold):
        burst.join(60)
    return settled(cluster, patience)


@pytest.mark.long
def test_a_sync_that_is_stuck_is_told(cluster, check):
    """ZooKeeper was edited behind Kafka's back, and the active controller is killed: the next one cannot finish its sync."""
    mirroring(cluster)
    path = "/config/topics/freeze-0"
    cluster.zookeeper.set(path, b'{"version":1,"config":{"retention.ms":"7"}}')
    data, _ = cluster.zookeeper.get("/migration")
    stop = threading.Event()

    def other_hand() -> None:
        # What a sync reads at its begin has another version at its end.
        while not stop.wait(0.02):
            cluster.zookeeper.set("/migration", cluster.zookeeper.get("/migration")[0])

    thread = threading.Thread(target=other_hand, daemon=True)
    thread.start()
    active = int(json.loads(data)["kraft_controller_id"])
    cluster.processes.stop(f"controller-{active}", signal.SIGKILL)
    try:
        cluster.processes.start_controller(active)
        time.sleep(10)
        report = check()
    finally:
        stop.set()
        thread.join()
    print("stuck in its sync:", report.verdict, report.reason, report.problems)
    assert report.verdict is not Verdict.CONSISTENT
    assert any("stands still" in problem for problem in report.problems)
    cluster.fail_over()
    assert check().verdict is Verdict.CONSISTENT


@pytest.mark.long
def test_whatever_a_frozen_server_makes_of_it_is_said_as_it_is(cluster, check):
    """Without a relay's help: whether a write is lost, the mirror stands still, or all is well, is a race in the server."""
    mirroring(cluster)
    burst = Burst(cluster).begin(EntityKind.TOPIC_CONFIG)
    time.sleep(0.2)
    cluster.processes.signal("zookeeper", signal.SIGSTOP)
    time.sleep(LONG_FREEZE_SECONDS)
    cluster.processes.signal("zookeeper", signal.SIGCONT)
    burst.join(60)
    moves = settled(cluster)
    lost = independent.differences(cluster)
    report = check()
    print("mirror moves:", moves, "differing:", lost, "verification:", report.verdict, report.reason)
    if moves:
        assert names(report) == lost.keys()
        assert (report.verdict is Verdict.CONSISTENT) == (not lost)
    else:
        assert report.verdict is not Verdict.CONSISTENT
        assert any("stands still" in problem for problem in report.problems)
    cluster.fail_over()
    assert not independent.differences(cluster)
    assert check().verdict is Verdict.CONSISTENT


def names(report: VerificationReport) -> set[independent.Identity]:
    return {(difference.kind, difference.key) for difference in report.differences}
