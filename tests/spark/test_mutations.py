"""Every kind and attribute, on either side: a planted difference is named, exactly it, and nothing else.

Plants are independent (each has an entity of its own), so many share a run; the runs' results are compared as sets, and
`test_one_plant_alone` shows for samples that company changes nothing.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from tests.spark.planting import ENCODER_SECRET, LOG_END, Cluster
from tests.unit.metadata.record_writer import record

from kraftbridge.metadata.log.files import LocalLogFiles
from kraftbridge.metadata.log.replay import LogReplay
from kraftbridge.models.entities import EntityKind as Kind
from kraftbridge.models.report import DifferenceState as State
from kraftbridge.models.report import Profile, Verdict, VerificationRequest
from kraftbridge.verification.inputs import Dump, offline_inputs
from kraftbridge.verification.job import verify

TOPICS = "/brokers/topics"


@dataclass
class Plant:
    """One difference: what is done to the data, and what must be named.

    `attributes` None: any, since the entity is missing or extra as a whole.
    """

    name: str
    kind: Kind
    key: str
    state: State
    attributes: set[str] | None
    dump: Callable[[Cluster], None] | None = None
    records: Callable[[Cluster], list[bytes]] | None = None
    also: list[tuple[Kind, str, State, set[str] | None]] = field(default_factory=list)

    def expected(self):
        return [(self.kind, self.key, self.state, self.attributes), *self.also]


PLANTS: list[Plant] = []


def plant(name, kind, key, state, attributes=None, also=()):
    def register(function):
        side = {"records": function} if name.startswith("log") else {"dump": function}
        PLANTS.append(Plant(name, kind, key, state, attributes, also=list(also), **side))
        return function

    return register


def image(cluster):
    return LogReplay(LocalLogFiles(cluster.folder / "c3000")).advance(LOG_END - 1)


def topic_id(cluster, name):
    return image(cluster).topic_ids[name]


# ZooKeeper's side --------------------------------------------------------------------------------------------------


def in_state(topic, number, **values):
    return lambda cluster: cluster.dump.change(
        f"{TOPICS}/{topic}/partitions/{number}/state", lambda body: body.update(values)
    )


def in_topic(topic, function):
    return lambda cluster: cluster.dump.change(f"{TOPICS}/{topic}", function)


def in_config(path, **values):
    """Set configs; None removes one."""

    def change(body):
        config = body["config"]
        for field_name, value in values.items():
            name = field_name.replace("__", ".")
            if value is None:
                del config[name]
            else:
                config[name] = value

    return lambda cluster: cluster.dump.change(f"/config/{path}", change)


OTHER_ID = base64.urlsafe_b64encode(uuid.UUID(int=7).bytes).rstrip(b"=").decode()

plant("zk topic id changed", Kind.TOPIC, "cfg-00", State.CHANGED, {"topicId"})(
    in_topic("cfg-00", lambda body: body.update(topic_id=OTHER_ID))
)
plant("zk topic id null", Kind.TOPIC, "cfg-01", State.CHANGED, {"topicId"})(
    in_topic("cfg-01", lambda body: body.update(topic_id=None))
)
plant("zk topic id absent", Kind.TOPIC, "cfg-02", State.CHANGED, {"topicId"})(
    in_topic("cfg-02", lambda body: body.pop("topic_id") and None)
)
for index, (name, attribute, part, value) in enumerate(
    [
        ("replicas order", "replicas", "partitions", None),
        ("replicas fewer", "replicas", "partitions", [0, 1]),
        ("adding replica", "addingReplicas", "adding_replicas", [2]),
        ("removing replica", "removingReplicas", "removing_replicas", [0]),
    ]
):

    def change_topic(body, part=part, value=value):
        if value is None:
            body[part]["0"] = list(reversed(body[part]["0"]))
        else:
            body[part]["0"] = value

    plant(f"zk {name}", Kind.PARTITION, f"cfg-{index + 3:02}-0", State.CHANGED, {attribute})(
        in_topic(f"cfg-{index + 3:02}", change_topic)
    )
plant("zk leader", Kind.PARTITION, "cfg-13-1", State.CHANGED, {"leader"})(in_state("cfg-13", 1, leader=77))
plant("zk no leader", Kind.PARTITION, "cfg-13-2", State.CHANGED, {"leader"})(in_state("cfg-13", 2, leader=-1))
plant("zk leader epoch", Kind.PARTITION, "cfg-21-0", State.CHANGED, {"leaderEpoch"})(
    in_state("cfg-21", 0, leader_epoch=1)
)
plant("zk isr shrunk", Kind.PARTITION, "cfg-21-1", State.CHANGED, {"isr"})(in_state("cfg-21", 1, isr=[0]))
plant("zk isr empty", Kind.PARTITION, "cfg-21-2", State.CHANGED, {"isr"})(in_state("cfg-21", 2, isr=[]))
plant("zk recovery state", Kind.PARTITION, "cfg-21-3", State.CHANGED, {"leaderRecoveryState"})(
    in_state("cfg-21", 3, leader_recovery_state=1)
)
plant(
    "zk state missing",
    Kind.PARTITION,
    "cfg-10-0",
    State.CHANGED,
    {"leader", "leaderEpoch", "isr", "leaderRecoveryState"},
)(lambda cluster: cluster.dump.remove(f"{TOPICS}/cfg-10/partitions/0/state"))


@plant("zk partition missing", Kind.PARTITION, "to-grow-8", State.MISSING)
def _(cluster):
    cluster.dump.remove(f"{TOPICS}/to-grow/partitions/8")
    cluster.dump.change(f"{TOPICS}/to-grow", lambda body: body["partitions"].pop("8") and None)


@plant("zk orphan state", Kind.PARTITION, "rf1-99", State.EXTRA)
def _(cluster):
    state = cluster.dump.data(f"{TOPICS}/rf1/partitions/0/state")
    cluster.dump.put(f"{TOPICS}/rf1/partitions/99/state", state)


plant("zk assignment missing", Kind.PARTITION, "rf2-0", State.CHANGED, {"replicas"})(
    in_topic("rf2", lambda body: body["partitions"].pop("0") and None)
)


@plant("zk topic extra", Kind.TOPIC, "made-up", State.EXTRA, also=[(Kind.PARTITION, "made-up-0", State.EXTRA, None)])
def _(cluster):
    cluster.dump.put(f"{TOPICS}/made-up", {"partitions": {"0": [1]}, "topic_id": OTHER_ID, "version": 3})
    state = {"controller_epoch": 1, "leader": 1, "version": 1, "leader_epoch": 0, "isr": [1]}
    cluster.dump.put(f"{TOPICS}/made-up/partitions/0/state", state)


@plant(
    "zk topic missing",
    Kind.TOPIC,
    "cfg-35",
    State.MISSING,
    also=[(Kind.PARTITION, f"cfg-35-{i}", State.MISSING, None) for i in range(4)],
)
def _(cluster):
    cluster.dump.remove(f"{TOPICS}/cfg-35")
    cluster.dump.remove("/config/topics/cfg-35")


plant("zk topic config changed", Kind.TOPIC_CONFIG, "cfg-12", State.CHANGED, {"retention.ms"})(
    in_config("topics/cfg-12", retention__ms="1")
)
plant("zk topic config less", Kind.TOPIC_CONFIG, "cfg-14", State.CHANGED, {"max.message.bytes"})(
    in_config("topics/cfg-14", max__message__bytes=None)
)
plant("zk topic config more", Kind.TOPIC_CONFIG, "cfg-16", State.CHANGED, {"preallocate"})(
    in_config("topics/cfg-16", preallocate="true")
)
plant("zk topic config empty text", Kind.TOPIC_CONFIG, "cfg-17", State.CHANGED, {"retention.ms"})(
    in_config("topics/cfg-17", retention__ms="")
)
plant("zk topic config gone", Kind.TOPIC_CONFIG, "cfg-18", State.MISSING)(
    lambda cluster: cluster.dump.remove("/config/topics/cfg-18")
)
plant("zk topic config emptied", Kind.TOPIC_CONFIG, "cfg-20", State.MISSING)(
    lambda cluster: cluster.dump.put("/config/topics/cfg-20", {"version": 1, "config": {}})
)
plant("zk topic config appeared", Kind.TOPIC_CONFIG, "cfg-19", State.EXTRA)(
    in_config("topics/cfg-19", retention__ms="9")
)
plant("zk broker config changed", Kind.BROKER_CONFIG, "1", State.CHANGED, {"num.io.threads"})(
    in_config("brokers/1", num__io__threads="7")
)
plant("zk default broker config less", Kind.BROKER_CONFIG, "<default>", State.CHANGED, {"log.retention.ms"})(
    in_config("brokers/<default>", log__retention__ms=None)
)
plant("zk broker config extra", Kind.BROKER_CONFIG, "2", State.EXTRA)(
    lambda cluster: cluster.dump.put("/config/brokers/2", {"version": 1, "config": {"log.cleaner.threads": "3"}})
)
PASSWORD = "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config"
plant("zk password gone", Kind.BROKER_CONFIG, "0", State.CHANGED, {PASSWORD})(
    lambda cluster: cluster.dump.change("/config/brokers/0", lambda body: body["config"].pop(PASSWORD) and None)
)
plant("zk quota changed", Kind.CLIENT_QUOTA, "clients/cli%201", State.CHANGED, {"producer_byte_rate"})(
    in_config("clients/cli%201", producer_byte_rate="3000001")
)
plant("zk quota less", Kind.CLIENT_QUOTA, "users/alice", State.CHANGED, {"consumer_byte_rate"})(
    in_config("users/alice", consumer_byte_rate=None)
)
plant("zk quota more", Kind.CLIENT_QUOTA, "users/bob/clients/cli%202", State.CHANGED, {"request_percentage"})(
    in_config("users/bob/clients/cli%202", request_percentage="5")
)
plant("zk quota missing", Kind.CLIENT_QUOTA, "ips/10.1.2.3", State.MISSING)(
    lambda cluster: cluster.dump.remove("/config/ips/10.1.2.3")
)
plant("zk default quota missing", Kind.CLIENT_QUOTA, "users/<default>/clients/<default>", State.MISSING)(
    lambda cluster: cluster.dump.remove("/config/users/<default>/clients/<default>")
)
plant("zk quota extra", Kind.CLIENT_QUOTA, "clients/n%C3%BC", State.EXTRA)(
    lambda cluster: cluster.dump.put("/config/clients/n%C3%BC", {"version": 1, "config": {"producer_byte_rate": "5"}})
)


def scram_text(cluster, user, mechanism="SCRAM-SHA-256", **values):
    def change(body):
        parts = dict(part.split("=", 1) for part in body["config"][mechanism].split(","))
        body["config"][mechanism] = ",".join(f"{k}={v}" for k, v in {**parts, **values}.items())

    cluster.dump.change(f"/config/users/{user}", change)


for user, name, attribute, value in (
    ("alice", "salt", "salt", "AAAA"),
    ("delta-DW1", "stored_key", "storedKey", "AAAA"),
    ("user%20with%20space", "server_key", "serverKey", "AAAA"),
    ("%C3%BCn%C3%AF%2Fc%C3%B6d%C3%A9%26%3D%2C", "iterations", "iterations", 4097),
):
    plain_user = {"%C3%BCn%C3%AF%2Fc%C3%B6d%C3%A9%26%3D%2C": "ünï/cödé&=,"}.get(user, user.replace("%20", " "))
    plant(f"zk scram {name}", Kind.SCRAM_CREDENTIAL, f"{plain_user}/SCRAM-SHA-256", State.CHANGED, {attribute})(
        lambda cluster, user=user, name=name, value=value: scram_text(cluster, user, **{name: value})
    )
plant("zk scram missing", Kind.SCRAM_CREDENTIAL, "bob/SCRAM-SHA-512", State.MISSING)(
    lambda cluster: cluster.dump.change("/config/users/bob", lambda body: body["config"].pop("SCRAM-SHA-512") and None)
)
plant("zk scram extra", Kind.SCRAM_CREDENTIAL, "mallory/SCRAM-SHA-256", State.EXTRA)(
    lambda cluster: cluster.dump.put(
        "/config/users/mallory",
        {"version": 1, "config": {"SCRAM-SHA-256": cluster.dump.data("/config/users/bob")["config"]["SCRAM-SHA-256"]}},
    )
)


def acl(kind, name, *, pattern="LITERAL", principal="User:alice", host="*", operation="Read", permission="Allow"):
    return json.dumps(
        [kind, pattern, name, principal, host, operation, permission], separators=(",", ":"), ensure_ascii=False
    )


for topic, name, value in (
    ("cfg-02", "principal", "User:eve"),
    ("cfg-04", "host", "10.0.0.1"),
    ("cfg-06", "operation", "Write"),
    ("cfg-08", "permissionType", "Deny"),
):
    argument = "permission" if name == "permissionType" else name
    plant(
        f"zk acl {name}",
        Kind.ACL,
        acl("Topic", topic),
        State.MISSING,
        also=[(Kind.ACL, acl("Topic", topic, **{argument: value}), State.EXTRA, None)],
    )(
        lambda cluster, topic=topic, name=name, value=value: cluster.dump.change(
            f"/kafka-acl/Topic/{topic}", lambda body: body["acls"][0].update({name: value})
        )
    )
plant("zk acl missing", Kind.ACL, acl("Topic", "cfg-10"), State.MISSING)(
    lambda cluster: cluster.dump.remove("/kafka-acl/Topic/cfg-10")
)
plant(
    "zk prefixed acl missing",
    Kind.ACL,
    acl("Topic", "pre-0-", pattern="PREFIXED", principal="User:bob", operation="All"),
    State.MISSING,
)(lambda cluster: cluster.dump.remove("/kafka-acl-extended/prefixed/Topic/pre-0-"))
plant("zk acl extra", Kind.ACL, acl("Group", "g9", principal="User:eve"), State.EXTRA)(
    lambda cluster: cluster.dump.put(
        "/kafka-acl/Group/g9",
        {
            "version": 1,
            "acls": [{"principal": "User:eve", "host": "*", "operation": "Read", "permissionType": "Allow"}],
        },
    )
)
TOKENS = ("-OoSj-3gRRWwUAl3FN06XA", "yh1LFvjoQ9qQxbwPU0xiXA", "Bohvh8c9RNSeQU14vUqRZQ")
plant(
    "zk token changed",
    Kind.DELEGATION_TOKEN,
    TOKENS[0],
    State.CHANGED,
    {"owner", "requester", "renewers", "issueTimestampMs", "maxTimestampMs", "expirationTimestampMs"},
)(
    lambda cluster: cluster.dump.change(
        f"/delegation_token/tokens/{TOKENS[0]}",
        lambda body: body.update(
            owner="User%3Aeve",
            tokenRequester="User%3Aeve",
            renewers=["User%3Aeve"],
            issueTimestamp=1,
            maxTimestamp=2,
            expiryTimestamp=3,
        ),
    )
)
plant("zk token missing", Kind.DELEGATION_TOKEN, TOKENS[1], State.MISSING)(
    lambda cluster: cluster.dump.remove(f"/delegation_token/tokens/{TOKENS[1]}")
)
plant("zk producer ids", Kind.PRODUCER_IDS, "", State.CHANGED, {"nextProducerId"})(
    lambda cluster: cluster.dump.change("/latest_producer_id_block", lambda body: body.update(block_start="3000"))
)
plant("zk broker endpoints", Kind.BROKER_REGISTRATION, "0", State.CHANGED, {"endpoints"})(
    lambda cluster: cluster.dump.change("/brokers/ids/0", lambda body: body["endpoints"].pop() and None)
)
plant("zk broker rack null", Kind.BROKER_REGISTRATION, "1", State.CHANGED, {"rack"})(
    lambda cluster: cluster.dump.change("/brokers/ids/1", lambda body: body.update(rack=None))
)
plant("zk broker missing", Kind.BROKER_REGISTRATION, "2", State.MISSING)(
    lambda cluster: cluster.dump.remove("/brokers/ids/2")
)

# The log's side ----------------------------------------------------------------------------------------------------


def change(topic, number, **values):
    return lambda cluster: [
        record("PartitionChangeRecord", partitionId=number, topicId=topic_id(cluster, topic), **values)
    ]


plant("log leader", Kind.PARTITION, "cfg-22-0", State.CHANGED, {"leader", "leaderEpoch"})(
    change("cfg-22", 0, leader=77)
)
plant("log isr", Kind.PARTITION, "cfg-22-1", State.CHANGED, {"isr"})(change("cfg-22", 1, isr=(0,)))
plant("log replicas", Kind.PARTITION, "cfg-22-2", State.CHANGED, {"replicas"})(change("cfg-22", 2, replicas=(0,)))
plant("log adding", Kind.PARTITION, "cfg-22-3", State.CHANGED, {"addingReplicas"})(
    change("cfg-22", 3, addingReplicas=(9,))
)
plant("log removing", Kind.PARTITION, "cfg-22-4", State.CHANGED, {"removingReplicas"})(
    change("cfg-22", 4, removingReplicas=(0,))
)
plant("log recovery", Kind.PARTITION, "cfg-22-5", State.CHANGED, {"leaderRecoveryState"})(
    change("cfg-22", 5, leaderRecoveryState=1)
)
plant(
    "log topic extra",
    Kind.TOPIC,
    "log-only",
    State.MISSING,
    also=[(Kind.PARTITION, "log-only-0", State.MISSING, None), (Kind.TOPIC_CONFIG, "log-only", State.MISSING, None)],
)(
    lambda cluster: [
        record("TopicRecord", name="log-only", topicId=bytes(range(16))),
        record(
            "PartitionRecord",
            partitionId=0,
            topicId=bytes(range(16)),
            replicas=(1,),
            isr=(1,),
            leader=1,
            leaderEpoch=0,
            partitionEpoch=0,
        ),
        record("ConfigRecord", resourceType=2, resourceName="log-only", name="retention.ms", value="5"),
    ]
)
plant(
    "log topic removed",
    Kind.TOPIC,
    "cfg-38",
    State.EXTRA,
    also=[
        *((Kind.PARTITION, f"cfg-38-{i}", State.EXTRA, None) for i in range(7)),
        (Kind.TOPIC_CONFIG, "cfg-38", State.EXTRA, None),
    ],
)(lambda cluster: [record("RemoveTopicRecord", topicId=topic_id(cluster, "cfg-38"))])


def config(resource_type, resource, name, value):
    return lambda cluster: [
        record("ConfigRecord", resourceType=resource_type, resourceName=resource, name=name, value=value)
    ]


plant("log topic config changed", Kind.TOPIC_CONFIG, "cfg-24", State.CHANGED, {"retention.ms"})(
    config(2, "cfg-24", "retention.ms", "1")
)
plant("log topic config less", Kind.TOPIC_CONFIG, "cfg-26", State.CHANGED, {"compression.type"})(
    config(2, "cfg-26", "compression.type", None)
)
plant("log topic config gone", Kind.TOPIC_CONFIG, "cfg-25", State.CHANGED, {"cleanup.policy"})(
    config(2, "cfg-25", "cleanup.policy", None)
)
plant("log topic config appeared", Kind.TOPIC_CONFIG, "cfg-27", State.MISSING)(config(2, "cfg-27", "retention.ms", "1"))
plant("log broker config appeared", Kind.BROKER_CONFIG, "5", State.MISSING)(config(4, "5", "num.io.threads", "1"))
plant("log quota changed", Kind.CLIENT_QUOTA, "users/<default>", State.CHANGED, {"controller_mutation_rate"})(
    lambda cluster: [
        record(
            "ClientQuotaRecord",
            entity=[{"entityType": "user", "entityName": None}],
            key="controller_mutation_rate",
            value=5000.5,
        )
    ]
)
plant("log quota removed", Kind.CLIENT_QUOTA, "users/quser%2F%C3%BC", State.EXTRA)(
    lambda cluster: [
        record(
            "ClientQuotaRecord",
            entity=[{"entityType": "user", "entityName": "quser/ü"}],
            key="request_percentage",
            remove=True,
        )
    ]
)
plant("log quota added", Kind.CLIENT_QUOTA, "ips/10.9.9.9", State.MISSING)(
    lambda cluster: [
        record(
            "ClientQuotaRecord",
            entity=[{"entityType": "ip", "entityName": "10.9.9.9"}],
            key="connection_creation_rate",
            value=3.0,
        )
    ]
)
plant("log scram added", Kind.SCRAM_CREDENTIAL, "zoe/SCRAM-SHA-512", State.MISSING)(
    lambda cluster: [
        record(
            "UserScramCredentialRecord",
            name="zoe",
            mechanism=2,
            salt=b"1",
            storedKey=b"2",
            serverKey=b"3",
            iterations=4096,
        )
    ]
)
plant("log scram removed", Kind.SCRAM_CREDENTIAL, "bob/SCRAM-SHA-256", State.EXTRA)(
    lambda cluster: [record("RemoveUserScramCredentialRecord", name="bob", mechanism=1)]
)
plant("log acl removed", Kind.ACL, acl("Group", "g1", principal="User:ünï/cödé&=,"), State.EXTRA)(
    lambda cluster: [
        record("RemoveAccessControlEntryRecord", id=identity)
        for identity, fields in image(cluster).acls.items()
        if fields["resourceName"] == "g1"
    ]
)
plant(
    "log acl added",
    Kind.ACL,
    acl("TransactionalId", "t-", pattern="PREFIXED", permission="Deny", host="h"),
    State.MISSING,
)(
    lambda cluster: [
        record(
            "AccessControlEntryRecord",
            id=bytes(16),
            resourceType=5,
            resourceName="t-",
            patternType=4,
            principal="User:alice",
            host="h",
            operation=3,
            permissionType=2,
        )
    ]
)
plant("log token removed", Kind.DELEGATION_TOKEN, TOKENS[2], State.EXTRA)(
    lambda cluster: [record("RemoveDelegationTokenRecord", tokenId=TOKENS[2])]
)
plant("log broker rack null", Kind.BROKER_REGISTRATION, "7", State.MISSING)(
    # unfenced: a fenced broker without a znode is no difference
    lambda cluster: [
        record("RegisterBrokerRecord", brokerId=7, isMigratingZkBroker=True, fenced=False, rack=None, endPoints=[])
    ]
)

MUTATED = {"dump": [each for each in PLANTS if each.dump], "log": [each for each in PLANTS if each.records]}


def run(spark, cluster, ansi, profile=Profile.DUAL_WRITE, secret=True):
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    secret_file = cluster.folder / "encoder-secret"
    secret_file.write_text(ENCODER_SECRET)
    dump, voters = cluster.arguments()
    inputs = offline_inputs(profile, Dump(dump, "/kafka"), voters, str(secret_file) if secret else None)
    request = VerificationRequest(run_id="test", profile=profile, sample_limit=10_000)
    return verify(spark, request, inputs)


def plant_all(cluster, plants):
    records = []
    for each in plants:
        if each.dump:
            each.dump(cluster)
        if each.records:
            records += each.records(cluster)
    if records:
        cluster.append(records)


def named(report):
    return {
        (difference.kind, difference.key, difference.state): {attribute.name for attribute in difference.attributes}
        for difference in report.differences
    }


def check(report, plants):
    expected = {(kind, key, state): attributes for each in plants for kind, key, state, attributes in each.expected()}
    found = named(report)
    assert found.keys() == expected.keys(), (
        found.keys() - expected.keys(),
        expected.keys() - found.keys(),
        report.problems,
    )
    for identity, attributes in expected.items():
        if attributes is not None:
            assert found[identity] == attributes, identity
    assert report.verdict is Verdict.INCONSISTENT
    assert report.differing == len(expected)
    assert sum(counts.differing for counts in report.counts.values()) == len(expected)


@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize("side", ["dump", "log"])
def test_every_plant_is_named_and_nothing_else(spark, tmp_path, side, ansi):
    cluster = Cluster(tmp_path)
    plant_all(cluster, MUTATED[side])
    check(run(spark, cluster, ansi), MUTATED[side])


@pytest.mark.parametrize("each", [*MUTATED["dump"][::9], *MUTATED["log"][::6]], ids=lambda each: each.name)
def test_one_plant_alone(spark, tmp_path, each):
    cluster = Cluster(tmp_path, ["c3000"])
    plant_all(cluster, [each])
    check(run(spark, cluster, "true"), [each])


@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize("secret", [True, False])
def test_the_intact_data_is_consistent(spark, tmp_path, ansi, secret):
    report = run(spark, Cluster(tmp_path), ansi, secret=secret)
    assert report.verdict is Verdict.CONSISTENT, report
    assert report.differing == 0
    assert not report.problems
    assert {finding.code for finding in report.findings} == (set() if secret else {"PasswordComparedByLength"})
    assert report.counts[Kind.PARTITION].zookeeper == report.counts[Kind.PARTITION].log == 335


def test_the_plants_cover_every_kind_and_attribute():
    """What the intact data holds, some plant changes."""
    mirrored = set(Kind) - {
        Kind.FEATURE_LEVEL,
        Kind.OTHER_CONFIG,
        Kind.CONTROLLER_REGISTRATION,
        Kind.MIGRATION_STATE,
    }
    states = {(kind, state) for each in PLANTS for kind, _, state, _ in each.expected()}
    for kind in mirrored:
        assert {state for each, state in states if each is kind}, kind
        if kind not in {Kind.PRODUCER_IDS, Kind.DELEGATION_TOKEN, Kind.BROKER_REGISTRATION}:
            assert {(kind, State.MISSING), (kind, State.EXTRA)} <= states, kind
    attributes = {kind: set() for kind in mirrored}
    for each in PLANTS:
        attributes[each.kind] |= each.attributes or set()
    assert attributes[Kind.PARTITION] == {
        "replicas",
        "addingReplicas",
        "removingReplicas",
        "leader",
        "leaderEpoch",
        "isr",
        "leaderRecoveryState",
    }
    assert attributes[Kind.SCRAM_CREDENTIAL] == {"salt", "storedKey", "serverKey", "iterations"}
    assert len(attributes[Kind.DELEGATION_TOKEN]) == 6
    assert attributes[Kind.BROKER_REGISTRATION] == {"endpoints", "rack"}
