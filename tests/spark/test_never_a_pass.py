"""What is unknown is never consistent, and what is wrong is said with its place."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime

import pytest
from tests.spark.planting import DATA, LOG_END, Cluster
from tests.spark.planting import Dump as PlantedDump
from tests.unit.metadata.record_writer import batch, record

from kraftbridge.exceptions import MetadataError
from kraftbridge.models.catalogue import Severity
from kraftbridge.models.entities import EntityKind
from kraftbridge.models.report import Profile, Verdict, VerificationRequest, VoterAccess, ZooKeeperAccess
from kraftbridge.verification.compare.places import compare
from kraftbridge.verification.inputs import Dump, offline_inputs
from kraftbridge.verification.job import verify, verify_live
from kraftbridge.verification.sources.rows import SCHEMA_DDL, Leg

NOOP = record("NoOpRecord")


@pytest.fixture
def cluster(tmp_path):
    return Cluster(tmp_path)


def run(spark, cluster, profile=Profile.DUAL_WRITE, chroot="/kafka"):
    dump, voters = cluster.arguments()
    request = VerificationRequest(run_id="test", profile=profile)
    return verify(spark, request, offline_inputs(profile, Dump(dump, chroot), voters, None))


def inconclusive(report, *words):
    assert report.verdict is Verdict.INCONCLUSIVE, report
    assert not report.differences
    for word in words:
        assert word in report.reason, report.reason


def test_no_migration_znode(spark, cluster):
    cluster.dump.remove("/migration")
    inconclusive(run(spark, cluster), "not in dual-write")


def test_nothing_copied_yet(spark, cluster):
    cluster.dump.mirrors(-1)
    inconclusive(run(spark, cluster), "not in dual-write")


@pytest.mark.parametrize("data", [None, "", "null", "[]", '{"version":1}'])
def test_an_unreadable_migration_znode(spark, cluster, data):
    cluster.dump.put("/migration", data)
    inconclusive(run(spark, cluster), "/migration")


def test_zookeeper_mirrors_more_than_the_log_holds(spark, cluster):
    cluster.dump.mirrors(5000)
    inconclusive(run(spark, cluster), "5000")


def test_another_chroot_is_empty(spark, cluster):
    inconclusive(run(spark, cluster, chroot="/elsewhere"), "nothing below the chroot")


def test_an_empty_tree(spark, cluster):
    for path in [path for path in cluster.dump.znodes if path.count("/") == 1 and path not in ("/", "/migration")]:
        cluster.dump.remove(path)
    inconclusive(run(spark, cluster), "zookeeper holds no metadata")


@pytest.mark.parametrize("path", ["/config/users/alice", "/kafka-acl/Topic/cfg-10", "/config/users", "/config/clients"])
@pytest.mark.parametrize("profile", [Profile.DUAL_WRITE, Profile.ZOOKEEPER])
def test_a_dump_from_which_znodes_are_missing(spark, cluster, tmp_path, profile, path):
    """The parent counts more children than the dump contains, so nobody knows what ZooKeeper holds."""
    dump = cluster.dump if profile is Profile.DUAL_WRITE else PlantedDump(DATA / "zk_before_migration.jsonl.gz")
    parent = path.rpartition("/")[0]
    counted = dump.znodes[parent]["numChildren"]
    dump.remove(path)
    dump.znodes[parent]["numChildren"] = counted
    voters = cluster.arguments()[1] if profile is Profile.DUAL_WRITE else {}
    inputs = offline_inputs(profile, Dump(dump.write(tmp_path / "holes.jsonl"), "/kafka"), voters, None)
    report = verify(spark, VerificationRequest(run_id="test", profile=profile), inputs)
    assert report.verdict is Verdict.INCONCLUSIVE, report
    assert [problem for problem in report.problems if f"{parent} has {counted} children" in problem], report


def test_an_empty_log(spark, cluster):
    for voter in cluster.voters:
        for path in cluster.log(voter).parent.glob("*.checkpoint"):
            path.unlink()
        cluster.log(voter).write_bytes(batch([NOOP] * 1700, 0))
    inconclusive(run(spark, cluster), "holds no metadata at all")


def test_a_missing_log(spark, cluster):
    shutil.rmtree(cluster.log("c3001").parent)
    dump, voters = cluster.arguments()
    with pytest.raises(MetadataError, match="c3001"):
        offline_inputs(Profile.DUAL_WRITE, Dump(dump, "/kafka"), voters, None)


@pytest.mark.parametrize("voter", ["c3000", "c3002"])
def test_a_corrupt_batch(spark, cluster, voter):
    path = cluster.log(voter)
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    for snapshot in path.parent.glob("*.checkpoint"):
        snapshot.unlink()
    dump, voters = cluster.arguments()
    request = VerificationRequest(run_id="test", profile=Profile.DUAL_WRITE)
    try:
        report = verify(spark, request, offline_inputs(Profile.DUAL_WRITE, Dump(dump, "/kafka"), voters, None))
    except MetadataError as error:
        reason = str(error)
    else:
        assert report.verdict is Verdict.INCONCLUSIVE
        reason = report.reason
    assert "CRC" in reason
    assert voter in reason


def test_an_undecodable_record(spark, cluster):
    cluster.append([b"\x01\x63\x00\x00"])
    inconclusive(run(spark, cluster), "record type 99", "c3000")


def test_a_corrupt_snapshot(spark, cluster):
    newest = max(cluster.log("c3001").parent.glob("*.checkpoint"))
    data = bytearray(newest.read_bytes())
    data[5000] ^= 1
    newest.write_bytes(data)
    inconclusive(run(spark, cluster), "c3001", newest.name)


def test_a_voter_that_is_behind(spark, cluster):
    path = cluster.log("c3001")
    path.write_bytes(path.read_bytes()[:-20])
    report = run(spark, cluster)
    inconclusive(report, "c3001", "have not reached")
    assert "c3000" not in report.reason
    assert "c3002" not in report.reason


def test_a_torn_tail_beyond_the_fence_is_reported(spark, cluster):
    for voter in cluster.voters:
        with cluster.log(voter).open("ab") as file:
            file.write(batch([NOOP], LOG_END)[:-3])
    report = run(spark, cluster)
    assert report.verdict is Verdict.CONSISTENT
    assert [finding.code for finding in report.findings].count("TornLogTail") == 3
    assert all(voter.torn_tail_bytes for voter in report.voters)


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("/brokers/topics/cfg-00", "nonsense"),
        ("/brokers/topics/cfg-00/partitions/0/state", '{"leader":null}'),
        ("/config/topics/cfg-00", "{}"),
        ("/config/users/alice", '{"version":1,"config":{"producer_byte_rate":"many"}}'),
        (
            "/config/brokers/0",
            '{"version":1,"config":{"ssl.keystore.password":"encryptedPassword:a,cipherAlgorithm:b,passwordLength:c"}}',
        ),
        ("/kafka-acl/Topic/cfg-00", '{"acls":[{"principal":"User:a"}]}'),
        ("/delegation_token/tokens/-OoSj-3gRRWwUAl3FN06XA", "{}"),
        ("/latest_producer_id_block", '{"broker":1}'),
        ("/brokers/ids/0", '{"endpoints":5}'),
    ],
)
def test_a_znode_that_means_nothing(spark, cluster, path, data):
    """Unknown, not different: its entities are not called missing."""
    cluster.dump.put(path, data)
    inconclusive(run(spark, cluster), path)


def test_a_real_difference_stands_beside_an_unreadable_znode(spark, cluster):
    cluster.dump.put("/config/topics/cfg-00", "nonsense")
    cluster.dump.remove("/config/topics/cfg-18")
    report = run(spark, cluster)
    assert report.verdict is Verdict.INCONSISTENT
    assert [(each.kind, each.key) for each in report.differences] == [(EntityKind.TOPIC_CONFIG, "cfg-18")]
    assert report.problems


def test_in_flight_in_a_dump_is_unresolved(spark, cluster):
    """The log has a record that the dump need not hold: nobody can read the dump again."""
    change = record("ConfigRecord", resourceType=2, resourceName="cfg-01", name="retention.ms", value="1")
    cluster.append([change], mirrored=False)
    assert run(spark, cluster).verdict is Verdict.CONSISTENT, "the dump equals the image at its own offset"
    cluster.dump.change("/config/topics/cfg-01", lambda body: body["config"].update({"retention.ms": "2"}))
    inconclusive(run(spark, cluster), "in flight", "cfg-01")
    cluster.dump.change("/config/topics/cfg-01", lambda body: body["config"].update({"retention.ms": "1"}))
    assert run(spark, cluster).verdict is Verdict.CONSISTENT, "written already, /migration comes after"


@pytest.mark.parametrize(
    ("fields", "kind", "key"),
    [
        (
            ("FeatureLevelRecord", {"name": "metadata.version", "featureLevel": 19}),
            EntityKind.FEATURE_LEVEL,
            "metadata.version",
        ),
        (("RegisterControllerRecord", {"controllerId": 3000}), EntityKind.CONTROLLER_REGISTRATION, "3000"),
        (("ZkMigrationStateRecord", {"zkMigrationState": 3}), EntityKind.MIGRATION_STATE, ""),
        (("ProducerIdsRecord", {"nextProducerId": 9}), EntityKind.PRODUCER_IDS, ""),
        (
            ("ConfigRecord", {"resourceType": 16, "resourceName": "m", "name": "metrics", "value": "x"}),
            EntityKind.OTHER_CONFIG,
            "client-metrics/m",
        ),
    ],
)
def test_a_voter_that_differs(spark, cluster, fields, kind, key):
    name, values = fields
    cluster.append([record(name, **values)], ["c3001"], mirrored=False)
    cluster.append([NOOP], ["c3000", "c3002"], mirrored=False)
    report = run(spark, cluster, Profile.REPLICAS)
    assert report.verdict is Verdict.INCONSISTENT
    (difference,) = report.differences
    assert (difference.kind, difference.key) == (kind, key)
    assert report.differing == 1
    assert run(spark, cluster).verdict is Verdict.INCONSISTENT, "dual-write looks at every voter too"


def test_replicas_agree(spark, cluster):
    report = run(spark, cluster, Profile.REPLICAS)
    assert report.verdict is Verdict.CONSISTENT
    assert report.compared_offset == LOG_END - 1
    assert report.counts[EntityKind.FEATURE_LEVEL].compared == 1


def test_zookeeper_profile_of_a_sound_tree(spark, tmp_path):
    dump = PlantedDump(DATA / "zk_before_migration.jsonl.gz").write(tmp_path / "zk.jsonl")
    request = VerificationRequest(run_id="test", profile=Profile.ZOOKEEPER)
    report = verify(spark, request, offline_inputs(Profile.ZOOKEEPER, Dump(dump, "/kafka"), [], None))
    assert report.verdict is Verdict.CONSISTENT, report
    assert {finding.severity for finding in report.findings} <= {Severity.WARNING}


@pytest.mark.parametrize(
    ("code", "plant"),
    [
        ("MigrationZnodeUnreadable", lambda dump: dump.put("/migration", None)),
        (
            "MigrationZnodeStale",
            lambda dump: dump.put(
                "/migration",
                {
                    "version": 0,
                    "kraft_metadata_offset": 5,
                    "kraft_controller_id": 1,
                    "kraft_metadata_epoch": 1,
                    "kraft_controller_epoch": 1,
                },
            ),
        ),
        ("PartitionWithoutState", lambda dump: dump.remove("/brokers/topics/rf1/partitions/0/state")),
        ("TopicWithoutId", lambda dump: dump.change("/brokers/topics/rf1", lambda body: body.pop("topic_id") and None)),
        ("TopicDeletionPending", lambda dump: dump.put("/admin/delete_topics/rf1", None)),
        ("ReassignmentRunning", lambda dump: dump.put("/admin/reassign_partitions", "{}")),
        (
            "IsrInvalid",
            lambda dump: dump.change("/brokers/topics/rf1/partitions/0/state", lambda body: body.update(isr=[1, 9])),
        ),
        (
            "LeaderNotInSync",
            lambda dump: dump.change("/brokers/topics/rf1/partitions/0/state", lambda body: body.update(leader=2)),
        ),
        (
            "ReplicasInvalid",
            lambda dump: dump.change("/brokers/topics/rf2", lambda body: body["partitions"].update({"0": [2, 2]})),
        ),
        (
            "AclPrincipalInvalid",
            lambda dump: dump.change("/kafka-acl/Topic/cfg-01", lambda body: body["acls"][0].update(principal="alice")),
        ),
        (
            "AclUnknown",
            lambda dump: dump.change("/kafka-acl/Topic/cfg-01", lambda body: body["acls"][0].update(operation="Fly")),
        ),
        ("ControllerEpochBehind", lambda dump: dump.put("/controller_epoch", "0")),
        ("ControllerEpochInvalid", lambda dump: dump.remove("/controller_epoch")),
        ("ControllerMissing", lambda dump: dump.remove("/controller")),
        ("ClusterIdMissing", lambda dump: dump.put("/cluster/id", "{}")),
        (
            "TopicNameInvalid",
            lambda dump: dump.put("/brokers/topics/a b", {"partitions": {}, "topic_id": "x", "version": 3}),
        ),
        ("ZnodeUndecodable", lambda dump: dump.put("/config/topics/rf1", "x")),
        (
            "TopicIdDuplicate",
            lambda dump: dump.change(
                "/brokers/topics/rf1", lambda body: body.update(topic_id=dump.data("/brokers/topics/rf2")["topic_id"])
            ),
        ),
        (
            "ReplicaOnUnknownBroker",
            lambda dump: dump.change("/brokers/topics/rf2", lambda body: body["partitions"].update({"0": [0, 99]})),
        ),
        (
            "QuotaUnknown",
            lambda dump: dump.put("/config/users/x", {"version": 1, "config": {"connection_creation_rate": "1"}}),
        ),
        (
            "QuotaInvalid",
            lambda dump: dump.put("/config/users/x", {"version": 1, "config": {"producer_byte_rate": "1.5"}}),
        ),
        (
            "EntityNameInvalid",
            lambda dump: dump.put("/config/clients/100%", {"version": 1, "config": {"producer_byte_rate": "1"}}),
        ),
        (
            "BrokerConfigNameInvalid",
            lambda dump: dump.put("/config/brokers/abc", {"version": 1, "config": {"num.io.threads": "3"}}),
        ),
        ("BrokerIdInvalid", lambda dump: dump.put("/brokers/ids/abc", dump.data("/brokers/ids/0"))),
        ("NoBrokers", lambda dump: [dump.remove(f"/brokers/ids/{i}") for i in range(3)]),
    ],
)
def test_zookeeper_profile_names_what_blocks(spark, tmp_path, code, plant):
    planted = PlantedDump(DATA / "zk_before_migration.jsonl.gz")
    plant(planted)
    dump = planted.write(tmp_path / "zk.jsonl")
    request = VerificationRequest(run_id="test", profile=Profile.ZOOKEEPER)
    report = verify(spark, request, offline_inputs(Profile.ZOOKEEPER, Dump(dump, "/kafka"), [], None))
    assert report.verdict is Verdict.INCONSISTENT, report
    blocking = [finding for finding in report.findings if finding.severity is Severity.BLOCKING]
    assert code in {finding.code for finding in blocking}
    assert report.blocking_findings_total == len(blocking)
    assert all(finding.fix and finding.reason for finding in report.findings)


ROWS = [("mirror", place, "topic", "a", "{}", 1) for place in ("zookeeper", "log")]


@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize(
    ("extra", "flagged"),
    [
        ([], {}),
        ([ROWS[0]], {"a": (2, 1)}),
        ([("mirror", "zookeeper", "topic", "b", "{}", 1)], {"b": (1, 0)}),
        ([("mirror", "log", "topic", "b", "{}", 1)], {"b": (0, 1)}),
        ([("mirror", "log", "topic", "b", None, 1)], {}),
        ([("mirror", "zookeeper", "topic", "b", "{}", 1), ("mirror", "log", "topic", "b", None, 7)], {"b": (1, 0)}),
        ([("mirror", "zookeeper", "topic", "b", "{}", 1), ("mirror", "log", "topic", "b", "[]", 7)], {"b": (1, 1)}),
        ([("mirror", "zookeeper", "acl", "a", "{}", 1)], {"a": (1, 0)}),
        ([("replicas", "zookeeper", "topic", "b", "{}", 1), ("mirror", "elsewhere", "topic", "b", "{}", 1)], {}),
        ([("mirror", "zookeeper", "$problem", "b", '"x"', 1)], {}),
    ],
)
def test_comparison(spark, extra, flagged, ansi, few):
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    comparison = compare(spark.createDataFrame(ROWS + extra, SCHEMA_DDL), Leg.MIRROR, ["zookeeper", "log"], few=few)
    found = {each.key: tuple(each.copies[place].count for place in ("zookeeper", "log")) for each in comparison.flagged}
    assert found == flagged
    assert sum(comparison.flagged_counts.values()) == len(flagged)
    assert comparison.keys[EntityKind.TOPIC] >= 1


def test_unreachable_places_are_inconclusive(spark, tmp_path):
    request = VerificationRequest(
        run_id="test",
        profile=Profile.DUAL_WRITE,
        zookeeper=ZooKeeperAccess(connect="127.0.0.1:1/kafka", session_timeout_seconds=1),
        voters=[VoterAccess(id=1, log_url=f"file://{tmp_path}")],
    )
    report = verify_live(spark, request)
    assert report.verdict is Verdict.INCONCLUSIVE
    zookeeper = request.model_copy(update={"profile": Profile.ZOOKEEPER})
    report = verify_live(spark, zookeeper)
    assert report.verdict is Verdict.INCONCLUSIVE
    assert "127.0.0.1:1" in report.reason
    assert report.finished_at <= datetime.now(UTC)


def test_a_request_without_its_places(spark):
    report = verify_live(spark, VerificationRequest(run_id="test", profile=Profile.DUAL_WRITE))
    assert report.verdict is Verdict.INCONCLUSIVE
    assert "zookeeper" in report.reason


def test_the_deadline(spark, cluster):
    dump, voters = cluster.arguments()
    request = VerificationRequest(run_id="test", profile=Profile.DUAL_WRITE, deadline_seconds=1e-6)
    inconclusive(
        verify(spark, request, offline_inputs(Profile.DUAL_WRITE, Dump(dump, "/kafka"), voters, None)), "deadline"
    )


def test_secrets_are_never_shown(spark, cluster):
    """The values on both sides of every kind of secret, differing, are in no report."""
    cluster.dump.change(
        "/config/users/alice",
        lambda body: body["config"].update(
            {"SCRAM-SHA-256": "salt=c2FsdA==,stored_key=c2VjcmV0LWE=,server_key=c2VjcmV0LWI=,iterations=1"}
        ),
    )
    password = "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config"
    cluster.append(
        [
            record("ConfigRecord", resourceType=4, resourceName="0", name=password, value="open-sesame-in-plain"),
            record("ConfigRecord", resourceType=4, resourceName="1", name="my.secret.key", value="open-sesame-too"),
            record("ConfigRecord", resourceType=2, resourceName="cfg-00", name="x.password", value="open-sesame-topic"),
        ]
    )
    report = run(spark, cluster)
    assert report.verdict is Verdict.INCONSISTENT
    assert report.differing == 4
    text = json.dumps(json.loads(report.to_json())) + report.to_json()
    for secret in ("open-sesame", "c2VjcmV0", "secret-a", "hpA7vuT5rthE1"):
        assert secret not in text
