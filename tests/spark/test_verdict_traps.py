"""Wrong verdicts that a review found: a wrong `Consistent`, a wrong `Inconsistent`, and data that was not read and not missed."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl
from tests.spark.planting import DATA, LOG_END, Cluster
from tests.support.zookeeper_ensemble import Ensemble, zookeeper_ensemble
from tests.unit.metadata.record_writer import record

from kraftbridge.exceptions import MetadataError
from kraftbridge.metadata.log.batches import BatchScan
from kraftbridge.metadata.log.files import LocalLogFiles
from kraftbridge.metadata.log.replay import LogReplay
from kraftbridge.models.catalogue import Code
from kraftbridge.models.entities import EntityKind
from kraftbridge.models.report import (
    DifferenceState,
    Profile,
    Verdict,
    VerificationReport,
    VerificationRequest,
    VoterAccess,
    ZooKeeperAccess,
)
from kraftbridge.verification.compare import mirror, places
from kraftbridge.verification.inputs import BadInputError, Dump, Inputs, live_inputs, offline_inputs
from kraftbridge.verification.job import check_tree, run_report, verify, verify_live
from kraftbridge.verification.run import Run

NOOP = record("NoOpRecord")


@pytest.fixture
def cluster(tmp_path):
    return Cluster(tmp_path)


def run(spark, cluster, profile=Profile.DUAL_WRITE) -> VerificationReport:
    dump, voters = cluster.arguments()
    request = VerificationRequest(run_id="test", profile=profile)
    return verify(spark, request, offline_inputs(profile, Dump(dump, "/kafka"), voters, None))


def cut_log(path: Path, end_offset: int) -> None:
    """Keep a log's batches below an offset, and no snapshot."""
    data = path.read_bytes()
    kept = [each for each in BatchScan(data, path.name) if each.last_offset < end_offset]
    path.write_bytes(data[: kept[-1].position + kept[-1].size_bytes])
    for snapshot in path.parent.glob("*.checkpoint"):
        snapshot.unlink()


# A voter that is far behind -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", [Profile.REPLICAS, Profile.DUAL_WRITE])
def test_a_voter_far_behind_the_others_is_never_a_pass(spark, cluster, profile):
    cut_log(cluster.log("c3001"), 20)
    report = run(spark, cluster, profile)
    assert report.verdict is Verdict.INCONCLUSIVE, report.reason
    assert "c3001" in report.reason
    assert "behind" in report.reason or "not reached" in report.reason


def test_a_voter_without_any_record_is_refused(cluster):
    path = cluster.log("c3001")
    path.write_bytes(b"")
    for snapshot in path.parent.glob("*.checkpoint"):
        snapshot.unlink()
    _, voters = cluster.arguments()
    with pytest.raises(BadInputError, match="c3001"):
        offline_inputs(Profile.REPLICAS, None, voters, None)


# Orders that mean nothing -------------------------------------------------------------------------------------------

ENDPOINTS = [
    {"name": "PLAINTEXT", "host": "b", "port": 9092, "securityProtocol": 0},
    {"name": "EXTERNAL", "host": "c", "port": 9094, "securityProtocol": 1},
]
FEATURES = [
    {"name": "metadata.version", "minSupportedVersion": 1, "maxSupportedVersion": 21},
    {"name": "kraft.version", "minSupportedVersion": 0, "maxSupportedVersion": 1},
]
DIRECTORIES = (bytes(range(16)), bytes(range(16, 32)))


def registration(kind: str, *, reverse: bool) -> bytes:
    """Return a registration as a log or, with the order of a Java hash map, as a snapshot may hold it."""
    step = -1 if reverse else 1
    if kind == "controller":
        return record(
            "RegisterControllerRecord", controllerId=3000, endPoints=ENDPOINTS[::step], features=FEATURES[::step]
        )
    return record(
        "RegisterBrokerRecord",
        brokerId=9,
        fenced=True,
        endPoints=ENDPOINTS[::step],
        features=FEATURES[::step],
        logDirs=DIRECTORIES[::step],
    )


@pytest.mark.parametrize("kind", ["broker", "controller"])
def test_the_order_of_endpoints_features_and_directories_means_nothing(spark, cluster, kind):
    cluster.append([registration(kind, reverse=False)], ["c3000", "c3002"], mirrored=False)
    cluster.append([registration(kind, reverse=True)], ["c3001"], mirrored=False)
    report = run(spark, cluster, Profile.REPLICAS)
    assert report.verdict is Verdict.CONSISTENT, report.differences


def test_another_port_of_an_endpoint_is_a_difference(spark, cluster):
    other = [{**ENDPOINTS[0], "port": 9093}, ENDPOINTS[1]]
    cluster.append([registration("controller", reverse=False)], ["c3000", "c3002"], mirrored=False)
    cluster.append(
        [record("RegisterControllerRecord", controllerId=3000, endPoints=other, features=FEATURES)],
        ["c3001"],
        mirrored=False,
    )
    (difference,) = run(spark, cluster, Profile.REPLICAS).differences
    assert [each.name for each in difference.attributes] == ["endPoints"]


# Producer ids after a rollback --------------------------------------------------------------------------------------


def put_block(cluster: Cluster, broker: int) -> None:
    block = {"version": 1, "broker": broker, "block_start": "4000", "block_end": "4999"}
    cluster.dump.put("/latest_producer_id_block", block)


def producer_ids(cluster: Cluster, next_id: int, broker: int = -1) -> None:
    cluster.append([record("ProducerIdsRecord", brokerId=broker, brokerEpoch=-1, nextProducerId=next_id)])


@pytest.mark.parametrize("next_id", [4000, 5000])
def test_a_block_that_kraft_wrote_is_right_in_both_forms(spark, cluster, next_id):
    """The second copy after a rollback takes the block's end + 1, and the sync leaves the znode as it is."""
    put_block(cluster, -1)
    producer_ids(cluster, next_id)
    report = run(spark, cluster)
    assert report.verdict is Verdict.CONSISTENT, report.differences


@pytest.mark.parametrize(
    ("broker", "recorded", "next_id"), [(-1, -1, 6000), (-1, -1, 4999), (1, -1, 4000), (1, -1, 6000), (-1, 2, 5000)]
)
def test_other_producer_ids_are_a_difference(spark, cluster, broker, recorded, next_id):
    """A block that a broker took, or a record of an allocation, leaves one form only: another is a write that was lost."""
    put_block(cluster, broker)
    producer_ids(cluster, next_id, recorded)
    report = run(spark, cluster)
    assert [each.kind for each in report.differences] == [EntityKind.PRODUCER_IDS]


# A broker that is down ----------------------------------------------------------------------------------------------


def test_a_fenced_broker_without_a_znode_is_no_difference_offline(spark, cluster):
    cluster.append([record("BrokerRegistrationChangeRecord", brokerId=2, brokerEpoch=0, fenced=1)])
    cluster.dump.remove("/brokers/ids/2")
    report = run(spark, cluster)
    assert report.verdict is Verdict.CONSISTENT, report.differences


def test_an_unfenced_broker_without_a_znode_is_a_difference_offline(spark, cluster):
    cluster.dump.remove("/brokers/ids/2")
    (difference,) = run(spark, cluster).differences
    assert (difference.kind, difference.key, difference.state) == (
        EntityKind.BROKER_REGISTRATION,
        "2",
        DifferenceState.MISSING,
    )


# More in flight than is looked at one by one ------------------------------------------------------------------------


def test_more_in_flight_than_the_bound_is_inconclusive_and_names_some(spark, cluster, monkeypatch):
    monkeypatch.setattr(places, "MAXIMUM_FLAGGED", 3)
    monkeypatch.setattr(mirror, "MAXIMUM_FLAGGED", 3)
    changes = [
        record("ConfigRecord", resourceType=2, resourceName=f"cfg-{number:02}", name="retention.ms", value="17")
        for number in range(8)
    ]
    for number in range(8):
        cluster.dump.put(f"/config/topics/cfg-{number:02}", {"version": 1, "config": {"retention.ms": "18"}})
    cluster.append(changes, mirrored=False)
    report = run(spark, cluster)
    assert report.verdict is Verdict.INCONCLUSIVE, report.reason
    assert "in flight" in report.reason
    assert "cfg-00" in report.reason
    assert report.differing == 0


def test_more_differences_than_the_bound_are_counted_and_some_are_named(spark, cluster, monkeypatch):
    monkeypatch.setattr(places, "MAXIMUM_FLAGGED", 3)
    monkeypatch.setattr(mirror, "MAXIMUM_FLAGGED", 3)
    for number in range(8):
        cluster.dump.put(f"/config/topics/cfg-{number:02}", {"version": 1, "config": {"retention.ms": "18"}})
    report = run(spark, cluster)
    assert report.verdict is Verdict.INCONSISTENT
    assert (report.differing, len(report.differences)) == (8, 3)


# Before a rollback ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["RollingBack", "RollingBrokers"])
def test_a_running_reassignment_blocks_a_rollback_and_nothing_else(spark, cluster, phase):
    topic = LogReplay(LocalLogFiles(cluster.folder / "c3000")).advance(LOG_END - 1).topic_ids["cfg-22"]
    cluster.append([record("PartitionChangeRecord", partitionId=3, topicId=topic, addingReplicas=(2,))])
    cluster.dump.change("/brokers/topics/cfg-22", lambda body: body["adding_replicas"].update({"3": [2]}))
    dump, voters = cluster.arguments()
    request = VerificationRequest(run_id="test", profile=Profile.DUAL_WRITE, phase=phase)
    report = verify(spark, request, offline_inputs(Profile.DUAL_WRITE, Dump(dump, "/kafka"), voters, None))
    assert not report.differences
    blocking = [(each.code, each.object) for each in report.findings if each.severity == "Blocking"]
    assert blocking == ([("ReassignmentRunning", "cfg-22-3")] if phase == "RollingBack" else [])
    assert report.verdict is (Verdict.INCONSISTENT if phase == "RollingBack" else Verdict.CONSISTENT)


# Before nodes restart on KRaft -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        (
            "RollingBrokers",
            [("ScramCredentialsForgettableByBrokers", each) for each in ("SCRAM-SHA-256", "SCRAM-SHA-512")],
        ),
        ("Finalizing", [("ScramCredentialsForgettable", "SCRAM-SHA-512")]),
        ("RollingBack", []),
    ],
)
def test_a_removed_scram_user_blocks_restarts_on_kraft(spark, cluster, phase, expected):
    """Brokers load the log from its beginning; a voter loads its newest snapshot, which holds other users of SCRAM-SHA-256."""
    known = LogReplay(LocalLogFiles(cluster.folder / "c3000")).advance(LOG_END - 1).scram["bob", 2]
    credential = {each: known[each] for each in ("mechanism", "salt", "storedKey", "serverKey", "iterations")}
    cluster.append(
        [
            record("UserScramCredentialRecord", name="bob", **credential),  # the only one of SCRAM-SHA-512
            record("UserScramCredentialRecord", name="zed", **credential),
            record("RemoveUserScramCredentialRecord", name="zed", mechanism=2),
            record("UserScramCredentialRecord", name="yan", **credential | {"mechanism": 1}),
            record("RemoveUserScramCredentialRecord", name="yan", mechanism=1),
        ]
    )
    dump, voters = cluster.arguments()
    request = VerificationRequest(run_id="test", profile=Profile.DUAL_WRITE, phase=phase)
    report = verify(spark, request, offline_inputs(Profile.DUAL_WRITE, Dump(dump, "/kafka"), voters, None))
    assert not report.differences
    blocking = [(each.code, each.object) for each in report.findings if each.severity == "Blocking"]
    assert sorted(blocking) == expected
    assert report.verdict is (Verdict.INCONSISTENT if expected else Verdict.CONSISTENT)


# Kinds that ZooKeeper cannot hold -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("resource_type", "name"), [(16, "client-metrics"), (32, "group")])
def test_a_config_that_stops_every_failover_is_named_as_blocking_and_is_no_difference(
    spark, cluster, resource_type, name
):
    cluster.append(
        [record("ConfigRecord", resourceType=resource_type, resourceName="x", name="interval.ms", value="1000")]
    )
    report = run(spark, cluster)
    assert report.verdict is Verdict.INCONSISTENT
    assert not report.differences
    (finding,) = [each for each in report.findings if each.severity == "Blocking"]
    assert finding.code == "ConfigStopsFailover"
    assert finding.object == f"{name}/x"
    assert "--bootstrap-controller" in finding.fix
    assert "interval.ms" in finding.fix
    replicas = run(spark, cluster, Profile.REPLICAS)
    assert replicas.verdict is Verdict.CONSISTENT


# What was not read --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", [Profile.DUAL_WRITE, Profile.ZOOKEEPER])
def test_a_dump_that_could_not_read_a_znode_is_never_a_pass(spark, cluster, profile):
    path = "/config/users/alice"
    cluster.dump.znodes[path] = {"path": "/kafka" + path, "problem": "cannot be read: NoAuthError()"}
    report = run(spark, cluster, profile)
    assert report.verdict is not Verdict.CONSISTENT
    assert path in json.dumps([report.reason, *report.problems, *(each.object for each in report.findings)])


# Whose files they are -----------------------------------------------------------------------------------------------


def set_property(cluster: Cluster, voter: str, name: str, value: str) -> None:
    path = cluster.folder / voter / "meta.properties"
    lines = [line for line in path.read_text().splitlines() if not line.startswith(f"{name}=")]
    path.write_text("\n".join([*lines, f"{name}={value}"]) + "\n")


def test_the_files_of_another_voter_are_refused(cluster):
    set_property(cluster, "c3001", "node.id", "3000")
    _, voters = cluster.arguments()
    with pytest.raises(BadInputError, match=r"c3001.*node 3000"):
        offline_inputs(Profile.REPLICAS, None, voters, None)


def test_the_files_of_another_cluster_are_refused(cluster):
    set_property(cluster, "c3001", "cluster.id", "AAAAAAAAAAAAAAAAAAAAAA")
    _, voters = cluster.arguments()
    with pytest.raises(BadInputError, match=r"c3001.*cluster AAAAAAAAAAAAAAAAAAAAAA"):
        offline_inputs(Profile.REPLICAS, None, voters, None)


def test_a_dump_of_another_cluster_is_inconclusive(spark, cluster):
    cluster.dump.put("/cluster/id", {"version": "1", "id": "AAAAAAAAAAAAAAAAAAAAAA"})
    report = run(spark, cluster)
    assert report.verdict is Verdict.INCONCLUSIVE, report.reason
    assert "AAAAAAAAAAAAAAAAAAAAAA" in report.reason


def test_files_that_do_not_say_whose_they_are_are_named(spark, cluster):
    (cluster.folder / "c3001" / "meta.properties").unlink()
    report = run(spark, cluster, Profile.REPLICAS)
    assert report.verdict is Verdict.INCONCLUSIVE
    assert "c3001" in report.reason
    assert "meta.properties" in report.reason


def test_the_end_of_the_log_is_what_is_compared(spark, cluster):
    cluster.append([NOOP], mirrored=False)
    assert run(spark, cluster, Profile.REPLICAS).compared_offset == LOG_END


# What the driver leaves to a task -------------------------------------------------------------------------------------


def test_a_task_returns_what_its_function_returns_and_raises_what_it_raises(spark):
    # Inside the test, so that it is sent by value: a worker of Spark cannot import the tests.
    def in_worker(number: int) -> tuple[int, int]:
        if number < 0:
            raise MetadataError(f"{number} is below zero")
        return number + 1, os.getpid()

    run_ = Run(
        spark,
        VerificationRequest(run_id="r", profile=Profile.REPLICAS),
        Inputs(Profile.REPLICAS, None, [], [], live=True),
    )
    result, process = run_.in_task(in_worker, 4)
    assert result == 5
    assert process != os.getpid()
    with pytest.raises(MetadataError, match="-1 is below zero"):
        run_.in_task(in_worker, -1)


# A live ZooKeeper, and logs that stand still ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ensemble() -> Iterator[Ensemble]:
    with zookeeper_ensemble() as running:
        running.load(DATA / "dualwrite" / "zk.jsonl.gz")
        yield running


@contextmanager
def client(ensemble: Ensemble) -> Iterator[KazooClient]:
    session = KazooClient(ensemble.hosts + "/kafka")
    session.start(60)
    try:
        yield session
    finally:
        session.stop()
        session.close()


def run_live(spark, cluster, ensemble, **options) -> VerificationReport:
    voters = [VoterAccess(id=int(name[1:]), log_url=(cluster.folder / name).as_uri()) for name in cluster.voters]
    access = ZooKeeperAccess(connect=ensemble.hosts + "/kafka", session_timeout_seconds=60)
    request = VerificationRequest(
        run_id="test", profile=Profile.DUAL_WRITE, zookeeper=access, voters=voters, fence_seconds=5, **options
    )
    return verify_live(spark, request)


def test_a_task_reads_differences_again_and_the_driver_replays_no_log(spark, cluster, ensemble, monkeypatch):
    """Exactly what was changed in ZooKeeper is named; the driver's process never opens a log to replay it."""
    path, before = "/config/topics/cfg-00", None
    with client(ensemble) as session:
        before, _ = session.get(path)
        session.set(path, b'{"version":1,"config":{"retention.ms":"17"}}')
        monkeypatch.setattr(mirror, "LogReplay", None)  # in this process; tasks have their own
        try:
            report = run_live(spark, cluster, ensemble)
        finally:
            session.set(path, before)
    assert report.verdict is Verdict.INCONSISTENT, report.reason
    assert [(each.kind, each.key) for each in report.differences] == [(EntityKind.TOPIC_CONFIG, "cfg-00")]
    assert report.fence is not None
    assert (report.fence.rereads > 0, report.fence.reread_keys) == (True, 1)


def test_a_live_tree_that_equals_the_log_is_consistent(spark, cluster, ensemble):
    assert run_live(spark, cluster, ensemble).verdict is Verdict.CONSISTENT


def test_a_folder_that_may_not_be_listed_is_unknown_and_not_missing(spark, cluster, ensemble):
    with client(ensemble) as session:
        acl = session.get_acls("/config/users")[0]
        session.set_acls("/config/users", [make_digest_acl("somebody", "else", all=True)])
    report = run_live(spark, cluster, ensemble)
    with client(ensemble) as session:
        session.add_auth("digest", "somebody:else")
        session.set_acls("/config/users", acl)
    assert report.verdict is Verdict.INCONCLUSIVE, report.reason
    assert "/config/users" in report.reason
    assert not report.differences


@pytest.mark.parametrize(
    "path", ["/admin/delete_topics", "/admin/reassign_partitions", "/admin/preferred_replica_election"]
)
def test_an_operation_that_may_not_be_read_is_not_taken_for_absent(spark, ensemble, path):
    """Kafka sees a deletion, a reassignment or an election behind an ACL that hides it from the verification."""
    access = ZooKeeperAccess(connect=ensemble.hosts + "/kafka", session_timeout_seconds=60)
    request = VerificationRequest(run_id="test", profile=Profile.ZOOKEEPER, zookeeper=access)
    with client(ensemble) as session:
        made = not session.exists(path)
        session.ensure_path(path)
        acl = session.get_acls(path)[0]
        session.set_acls(path, [make_digest_acl("somebody", "else", all=True)])
    try:
        report = verify_live(spark, request)
    finally:
        with client(ensemble) as session:
            session.add_auth("digest", "somebody:else")
            session.set_acls(path, acl)
            if made:
                session.delete(path)
    assert report.verdict is not Verdict.CONSISTENT
    assert [each for each in report.problems if path in each and "NoAuth" in each], report.problems


@pytest.fixture(scope="module")
def before_migration() -> Iterator[Ensemble]:
    with zookeeper_ensemble() as running:
        running.load(DATA / "zk_before_migration.jsonl.gz")
        yield running


@pytest.mark.parametrize("passes", [True, False])
def test_what_the_check_of_a_tree_finds_is_read_again(spark, before_migration, passes):
    """Configs come before their topic, and go after it."""
    path = "/config/topics/between"
    access = ZooKeeperAccess(connect=before_migration.hosts + "/kafka", session_timeout_seconds=60)
    request = VerificationRequest(run_id="test", profile=Profile.ZOOKEEPER, zookeeper=access)
    run_ = Run(spark, request, live_inputs(request))
    with client(before_migration) as session:
        session.create(path, b'{"version":1,"config":{}}')
        changing = threading.Thread(target=delete_once_read, args=(session, path, run_))
        if passes:
            changing.start()
        try:
            check_tree(run_)
        finally:
            run_.release()
            if passes:
                changing.join()
            else:
                session.delete(path)
    codes = {finding.code for finding in run_.outcome.findings}
    assert "read again" in run_.timings, "the first reading found nothing: this tested nothing"
    assert (Code.STALE_TOPIC_CONFIG in codes) is not passes


def test_a_zookeeper_that_goes_before_the_second_reading_is_no_sound_tree(spark):
    """What the first reading found is then neither confirmed nor refuted."""
    with zookeeper_ensemble() as running:
        running.load(DATA / "zk_before_migration.jsonl.gz")
        access = ZooKeeperAccess(connect=running.hosts + "/kafka", session_timeout_seconds=10)
        request = VerificationRequest(run_id="test", profile=Profile.ZOOKEEPER, zookeeper=access)
        run_ = Run(spark, request, live_inputs(request))
        with client(running) as session:
            session.create("/config/topics/between", b'{"version":1,"config":{}}')
        stopping = threading.Thread(target=stop_once_read, args=(running, run_))
        stopping.start()
        report = run_report(run_)
        stopping.join()
    assert report.verdict is not Verdict.CONSISTENT, report
    assert report.problems or report.findings


def stop_once_read(ensemble: Ensemble, run: Run) -> None:
    """Kill ZooKeeper once a run has read the tree for the first time."""
    while "read zookeeper" not in run.timings:
        time.sleep(0.05)
    ensemble.kill(0)


def delete_once_read(session: KazooClient, path: str, run: Run) -> None:
    """Delete a znode once a run has read the tree for the first time."""
    while "read zookeeper" not in run.timings:
        time.sleep(0.05)
    session.delete(path)
