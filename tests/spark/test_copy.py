"""Profile `copy`: what Kafka's copy has lost, from the tree before the sync and the log of a real controller."""

from __future__ import annotations

import gzip
import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.live_cluster import BROKERS, CONTROLLERS, ENCODER_SECRET, LiveCluster, _Processes
from tests.spark.planting import CHROOT, Dump
from tests.support.empty_cluster import dump_of_empty_cluster
from tests.support.kafka_processes import kafka_libraries, kafka_processes
from tests.support.relay import Relay
from tests.support.traps import SETTINGS, TRAPS, planted, stored_dump

from kraftbridge.metadata.copying import copy_span
from kraftbridge.metadata.log.files import LocalLogFiles
from kraftbridge.metadata.log.scanning import append_timestamp_ms
from kraftbridge.models.report import ZooKeeperAccess
from kraftbridge.rehearsal.rehearse import RehearsalOptions, rehearse
from kraftbridge.verification.command_line import main
from kraftbridge.verification.watch import Watched, watch

CLAIM_ZXID = 10**9
KEY = b"0123456789abcdef0123456789abcdef"
SCRAM = "salt=YWJj,stored_key=YWJj,server_key=YWJj,iterations=4096"
ACL = {"principal": "User:a", "permissionType": "Allow", "host": "*", "operation": "Read"}
Answer = tuple[int, dict]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of a real controller that has copied the stored dump."""
    folder = tmp_path_factory.mktemp("copied")
    options = RehearsalOptions(kafka_libraries(), folder / "work", CHROOT, SETTINGS)
    result = rehearse(planted(TRAPS["none"], folder / "zk.jsonl"), options)
    assert result.verdict == "Works", result.reason
    return folder / "work" / "controller"


@pytest.fixture
def compare(spark: SparkSession, tmp_path: Path) -> Callable[..., Answer]:
    secret = tmp_path / "secret"
    secret.write_text(SETTINGS["password.encoder.secret"])

    def run(dump: Path, *voters: Path) -> Answer:
        out = tmp_path / "out.json"
        arguments = ["offline", "--profile", "copy", "--zookeeper", str(dump), "--chroot", CHROOT, "--json", str(out)]
        (tmp_path / "key").write_bytes(KEY)
        arguments += ["--key-file", str(tmp_path / "key")]
        arguments += [part for index, voter in enumerate(voters) for part in ("--voter", f"c{3000 + index}={voter}")]
        code = main([*arguments, "--password-encoder-secret-file", str(secret)])
        report = json.loads(out.read_text())
        print(report["verdict"], report["reason"])
        return code, report

    return run


def tree(*, claimed: bool = True) -> Dump:
    dump = stored_dump()
    if claimed:
        dump.put("/controller", {"version": 2, "brokerid": 3000, "timestamp": "1", "kraftControllerEpoch": 3})
        dump.znodes["/controller"]["mzxid"] = CLAIM_ZXID
    return dump


def test_a_copy_that_lost_nothing_is_consistent(compare: Callable[..., Answer], log: Path, tmp_path: Path) -> None:
    code, report = compare(tree().write(tmp_path / "zk.jsonl"), log)
    assert (code, report["verdict"], report["findings"]) == (0, "Consistent", [])
    assert report["counts"]["partition"] == {"zookeeper": 330, "log": 330, "compared": 330, "differing": 0}


def test_a_copy_of_an_empty_cluster_is_consistent_and_an_unread_tree_is_not(
    compare: Callable[..., Answer], log: Path, tmp_path: Path
) -> None:
    dump = dump_of_empty_cluster(tmp_path / "zk.jsonl")
    options = RehearsalOptions(kafka_libraries(), tmp_path / "work", CHROOT)
    assert rehearse(dump, options).verdict == "Works"
    empty_log = tmp_path / "work" / "controller"

    code, report = compare(dump, empty_log)

    assert (code, report["verdict"]) == (0, "Consistent")
    assert "there was nothing to compare" in report["reason"]
    assert compare(dump, log)[0] == 2, "the log holds what this tree does not"
    rows = [json.loads(line) for line in dump.read_text().splitlines()]
    dump.write_text("".join(json.dumps(row) + "\n" for row in rows if row["path"] != "/kafka/brokers/topics"))
    code, report = compare(dump, empty_log)
    assert (code, report["verdict"]) == (2, "Inconclusive")
    assert "zookeeper holds no metadata at all" in report["reason"]


def test_an_acl_and_a_scram_user_that_the_copy_lost_are_named(
    compare: Callable[..., Answer], log: Path, tmp_path: Path
) -> None:
    dump = tree()
    dump.put("/kafka-acl/Topic/lost", {"version": 1, "acls": [ACL]})
    dump.put("/config/users/lost", {"version": 1, "config": {"SCRAM-SHA-256": SCRAM}})
    code, report = compare(dump.write(tmp_path / "zk.jsonl"), log)
    assert code == 1
    assert [(each["kind"], each["absentIn"]) for each in report["differences"]] == [
        ("acl", ["log"]),
        ("scram-credential", ["log"]),
    ]


def test_what_changed_after_the_claim_is_listed_apart(
    compare: Callable[..., Answer], log: Path, tmp_path: Path
) -> None:
    dump = tree()
    dump.put("/config/users/late", {"version": 1, "config": {"SCRAM-SHA-256": SCRAM}})
    dump.znodes["/config/users/late"]["mzxid"] = CLAIM_ZXID + 1
    code, report = compare(dump.write(tmp_path / "zk.jsonl"), log)
    assert code == 1
    assert [(each["code"], each["object"]) for each in report["findings"]] == [
        ("ChangedAfterClaim", "/config/users/late")
    ]


def test_a_deletion_under_way_is_listed_apart(compare: Callable[..., Answer], log: Path, tmp_path: Path) -> None:
    dump = tree()
    dump.put("/brokers/topics/gone", {"version": 3, "topic_id": "Z29uZWdvbmVnb25lZ29uZQ", "partitions": {"0": [0]}})
    dump.put("/config/topics/gone", {"version": 1, "config": {"retention.ms": "1"}})
    code, report = compare(dump.write(tmp_path / "lost.jsonl"), log)
    assert (code, report["differing"]) == (1, 3), "a topic that nobody deletes is lost"
    dump.put("/admin/delete_topics/gone", None)
    code, report = compare(dump.write(tmp_path / "zk.jsonl"), log)
    assert (code, report["verdict"], report["differences"]) == (0, "Consistent", [])
    (finding,) = report["findings"]
    assert (finding["code"], finding["object"]) == ("DeletionUnderWay", "/admin/delete_topics/gone")
    assert "3 of its entities" in finding["reason"]


def test_a_tree_from_before_the_claim_never_passes_with_a_difference(
    compare: Callable[..., Answer], log: Path, tmp_path: Path
) -> None:
    dump = tree(claimed=False)
    assert compare(dump.write(tmp_path / "zk.jsonl"), log)[0] == 0
    dump.put("/kafka-acl/Topic/lost", {"version": 1, "acls": [ACL]})
    code, report = compare(dump.write(tmp_path / "zk.jsonl"), log)
    assert (code, report["verdict"]) == (2, "Inconclusive")
    assert "at an unknown time" in report["reason"]
    assert "compare each difference by hand" in report["reason"]


def test_a_tree_from_before_the_claim_tells_its_age_and_what_was_made_since(
    compare: Callable[..., Answer], log: Path, tmp_path: Path
) -> None:
    dump = tree(claimed=False)
    dump.put("/kafka-acl/Topic/lost", {"version": 1, "acls": [ACL]})
    dump.remove("/config/topics/cfg-01")
    written = dump.write(tmp_path / "zk.jsonl")
    span = copy_span(LocalLogFiles(log))
    assert span is not None
    began = append_timestamp_ms(LocalLogFiles(log), span.begin) / 1000
    os.utime(written, (began - 12, began - 12))
    _, report = compare(written, log)
    assert "read 12 s before Kafka's copy began" in report["reason"]
    assert "1 only in the log, 1 that differ otherwise" in report["reason"]
    assert "topic-config cfg-01: only in the log, made after the tree was read" in report["problems"]


def test_a_tree_that_was_read_after_the_copy_proves_nothing(
    compare: Callable[..., Answer], log: Path, tmp_path: Path
) -> None:
    dump = tree()
    state = {
        "kraft_metadata_offset": 800,
        "kraft_controller_id": 3000,
        "kraft_metadata_epoch": 1,
        "kraft_controller_epoch": 1,
    }
    dump.put("/migration", {"version": 0, **state})
    code, report = compare(dump.write(tmp_path / "zk.jsonl"), log)
    assert (code, report["verdict"]) == (2, "Inconclusive")
    assert "the sync may have deleted" in report["reason"]


def test_a_copy_that_was_aborted_is_no_copy(compare: Callable[..., Answer], tmp_path: Path) -> None:
    trap = TRAPS["broker-config-abc"]
    dump = planted(trap, tmp_path / "zk.jsonl")
    rehearse(dump, RehearsalOptions(kafka_libraries(), tmp_path / "work", CHROOT, trap.settings))
    code, report = compare(dump, tmp_path / "work" / "controller")
    assert (code, report["verdict"]) == (2, "Inconclusive")
    assert "no finished copy" in report["reason"]


@pytest.fixture
def before() -> Iterator[LiveCluster]:
    """A cluster of ZooKeeper-mode brokers with some of everything, before any controller."""
    with kafka_processes(BROKERS, CONTROLLERS, _Processes) as processes:
        processes.controllers_session_seconds, processes.brokers_session_seconds = 18, 9
        with Relay(processes.zookeeper_port) as processes.relay:
            cluster = LiveCluster(processes)
            cluster.start()
            try:
                cluster.seed(5)
                yield cluster
            finally:
                cluster.close()


def test_a_watched_takeover_shows_what_the_sync_deleted(
    before: LiveCluster, compare: Callable[..., Answer], spark: SparkSession, tmp_path: Path
) -> None:
    processes = before.processes
    (tmp_path / "secret").write_text(ENCODER_SECRET)
    before.zookeeper.create("/config/topics/long-gone", b'{"version":1,"config":{"retention.ms":"1"}}')
    access, dump = ZooKeeperAccess(connect=processes.zookeeper_hosts + CHROOT), tmp_path / "watched.jsonl.gz"
    seen: list[Watched] = []
    watching = threading.Thread(target=lambda: seen.append(watch(access, dump, CHROOT, key=KEY, deadline_seconds=300)))
    watching.start()
    before.migrate()
    watching.join(60)

    assert [(each.claimed, each.complete) for each in seen] == [(True, True)]
    # `/migration` names an offset before the sync begins.
    before.wait(lambda: before.zookeeper.exists("/config/topics/long-gone") is None)
    code, report = compare(dump, *(processes.directory / f"controller-{i}" for i in CONTROLLERS))
    assert code == 1
    assert [(each["kind"], each["key"]) for each in report["differences"]] == [("topic-config", "long-gone")]


def test_an_acl_and_a_scram_user_that_the_sync_deletes_are_named(
    before: LiveCluster, compare: Callable[..., Answer], spark: SparkSession, tmp_path: Path
) -> None:
    """Both are made at the end of Kafka's copy: the log never has them, and the sync deletes them from ZooKeeper.

    Relays hold the watch at the claim and the controllers at the end of the copy, so that both writes come between Kafka's reading and the watch's.
    """
    processes, zookeeper = before.processes, before.zookeeper
    (tmp_path / "secret").write_text(ENCODER_SECRET)
    dump = tmp_path / "watched.jsonl.gz"
    lost = ("/kafka-acl/Topic/lost", "/config/users/lost")
    claimed = before.relay.hold_requests_at(rb'"kraftControllerEpoch":\d')
    with Relay(processes.zookeeper_port) as readers, ThreadPoolExecutor() as threads:
        access = ZooKeeperAccess(connect=f"127.0.0.1:{readers.port}{CHROOT}", session_timeout_seconds=40)
        watching = threads.submit(watch, access, dump, CHROOT, key=KEY, deadline_seconds=300)

        def lose() -> None:
            assert claimed.wait(180)
            readers.hold_requests()
            copied = before.relay.hold_requests_at(rb'"kraft_metadata_offset":[1-9]')
            before.relay.release()
            assert copied.wait(60)
            acls = {"version": 1, "acls": [ACL]}
            zookeeper.create(lost[0], json.dumps(acls).encode(), makepath=True)
            user = {"version": 1, "config": {"SCRAM-SHA-256": SCRAM}}
            zookeeper.create(lost[1], json.dumps(user).encode())
            readers.release()
            watching.result(150)
            before.relay.release()

        before.wait(dump.is_file)
        losing = threads.submit(lose)
        before.migrate()  # not in a thread: its processes would end with it
        losing.result(150)
        assert (watching.result().claimed, watching.result().complete) == (True, True)
    # The sync deletes an ACL with its znode and leaves a user's znode without configs.
    before.wait(lambda: zookeeper.exists(lost[0]) is None)
    before.wait(lambda: zookeeper.exists(lost[1]) is None or b"SCRAM" not in zookeeper.get(lost[1])[0])

    code, report = compare(dump, *(processes.directory / f"controller-{i}" for i in CONTROLLERS))

    assert code == 1
    assert [(each["kind"], each["absentIn"]) for each in report["differences"]] == [
        ("acl", ["log"]),
        ("scram-credential", ["log"]),
    ]
    assert {each["object"] for each in report["findings"] if each["code"] == "ChangedAfterClaim"} == set(lost)
    kept = gzip.decompress(dump.read_bytes())
    assert b"/config/users/alice" in kept
    users = [zookeeper.get(f"/config/users/{user}")[0] for user in ("alice", "bob")]
    keys = re.findall(rb"(?:stored|server)_key=([\w+/=]+)", b" ".join(users))
    assert len(keys) >= 4
    assert not [key for key in keys if key in kept], "the kept tree holds hashes of secrets"
