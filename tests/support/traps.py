"""Traps planted into the stored dump of a real cluster, with Kafka 3.9.1's result for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.spark.planting import CHROOT, DATA, ENCODER_SECRET, Dump

from kraftbridge.models.rehearsal import Ending, RehearsalVerdict

SETTINGS: Mapping[str, str] = MappingProxyType(
    {"password.encoder.secret": ENCODER_SECRET, "delegation.token.secret.key": "some-token-key"}
)
Plant = Callable[[Dump], object]


@dataclass(frozen=True)
class Trap:
    """One trap, Kafka's own end with it, and the finding that names its znode."""

    plant: Plant
    ending: Ending
    verdict: RehearsalVerdict
    code: str | None = None
    words: str = ""
    settings: Mapping[str, str] = field(default_factory=lambda: SETTINGS)


def stored_dump() -> Dump:
    return Dump(DATA / "zk_before_migration.jsonl.gz")


CLUSTER_ID = "-koR4YAcTHOsR5A7cE6D_Q"
"""Like an option of a command. A ZooKeeper-mode broker draws any id (``CoreUtils.generateUuidAsBase64``); only KRaft's ``Uuid.randomUuid`` avoids a leading dash."""


def planted(trap: Trap, path: Path) -> Path:
    dump = stored_dump()
    dump.put("/cluster/id", {"version": "1", "id": CLUSTER_ID})
    trap.plant(dump)
    return dump.write(path)


def config(**values: str) -> dict[str, Any]:
    return {"version": 1, "config": {name.replace("__", "."): value for name, value in values.items()}}


def topics(dump: Dump) -> list[str]:
    return sorted(p for p in dump.znodes if p.count("/") == 3 and p.startswith("/brokers/topics/cfg"))


def _put(path: str, data: Any) -> Plant:
    return lambda dump: dump.put(path, data)


def _acl(kind: str, name: str, operation: str = "Read", principal: str = "User:a") -> Plant:
    entry = {"principal": principal, "permissionType": "Allow", "host": "*", "operation": operation}
    return _put(f"/kafka-acl/{kind}/{name}", {"version": 1, "acls": [entry]})


def _two_topics_one_id(dump: Dump) -> None:
    first, second = topics(dump)[:2]
    dump.change(second, lambda body: body.update(topic_id=dump.data(first)["topic_id"]))


def _topic_without_id(dump: Dump) -> None:
    dump.change(topics(dump)[3], lambda body: body.pop("topic_id") and None)


def _partition_without_state(dump: Dump) -> None:
    dump.remove(f"{topics(dump)[3]}/partitions/0")


def _isr_with_unknown_broker(dump: Dump) -> None:
    dump.change(f"{topics(dump)[3]}/partitions/0/state", lambda body: body.update(isr=[*body["isr"], 99]))


def _replica_on_unknown_broker(dump: Dump) -> None:
    def change(body: Any) -> None:
        body["partitions"]["0"].append(99)

    dump.change(topics(dump)[3], change)


def _pending_deletion(dump: Dump) -> None:
    dump.put(f"/admin/delete_topics/{topics(dump)[3].rpartition('/')[2]}", None)


def _long_throttles(size: int) -> Plant:
    """Throttle replicas with more and more of ``kafka-configs --add-config`` and APPEND, as a reassignment does."""
    value = ("0:1," * size)[:size]
    return _put("/config/topics/cfg-01", config(leader__replication__throttled__replicas=value))


def _stale_migration(dump: Dump) -> None:
    dump.put(
        "/migration",
        {"version": 0, "kraft_metadata_offset": 1000, "kraft_controller_id": 3000, "kraft_metadata_epoch": 2, "kraft_controller_epoch": 2},
    )  # fmt: skip


_FAILS, _LOSES, _WORKS, _UNKNOWN = (
    RehearsalVerdict.FAILS,
    RehearsalVerdict.LOSES,
    RehearsalVerdict.WORKS,
    RehearsalVerdict.UNKNOWN,
)
_SCRAM = "SCRAM-SHA-256"
_TOO_LONG = "TextTooLong"
_QUOTA, _NO_QUOTA = "QuotaInvalid", "QuotaUnknown"

TRAPS: Mapping[str, Trap] = {
    "none": Trap(lambda dump: None, Ending.DUAL_WRITE, _WORKS),
    "quota-unknown-client": Trap(_put("/config/clients/x", config(foo_rate="1")), Ending.STICKS, _FAILS, _NO_QUOTA),
    "quota-unknown-user": Trap(_put("/config/users/x", config(foo_rate="1")), Ending.STICKS, _FAILS, _NO_QUOTA),
    "quota-unknown-user-client": Trap(
        _put("/config/users/x/clients/y", config(foo_rate="1")), Ending.STICKS, _FAILS, _NO_QUOTA
    ),
    "quota-unknown-ip": Trap(_put("/config/ips/10.9.9.9", config(foo_rate="1")), Ending.STICKS, _FAILS, _NO_QUOTA),
    "quota-of-other-kind": Trap(
        _put("/config/users/x", config(connection_creation_rate="1")), Ending.STICKS, _FAILS, _NO_QUOTA
    ),
    "quota-fraction": Trap(
        _put("/config/users/x", config(producer_byte_rate="1.5")), Ending.STICKS, _FAILS, _QUOTA, "must be a LONG value"
    ),
    "quota-text": Trap(_put("/config/clients/x", config(producer_byte_rate="a lot")), Ending.DIES, _FAILS, _QUOTA),
    "quota-name-odd": Trap(
        _put("/config/clients/100%", config(producer_byte_rate="1")), Ending.DIES, _FAILS, "EntityNameInvalid", "URLDecoder"
    ),
    "broker-config-abc": Trap(
        _put("/config/brokers/abc", config(num__io__threads="3")),
        Ending.DIES, _FAILS, "BrokerConfigNameInvalid", "NumberFormatException",
    ),
    "broker-config-gone-broker": Trap(
        _put("/config/brokers/99", config(num__io__threads="3")), Ending.DUAL_WRITE, _WORKS
    ),
    "broker-config-empty-znode": Trap(_put("/config/brokers/2", None), Ending.DUAL_WRITE, _UNKNOWN, "ZnodeUndecodable"),
    "acl-principal-too-long": Trap(
        _acl("Topic", "t1", principal="User:" + "p" * 40_000), Ending.DIES, _FAILS, _TOO_LONG, "too long to be serialized"
    ),
    "broker-config-too-long": Trap(
        _put("/config/brokers/<default>", config(ssl__cipher__suites="x" * 40_000)),
        Ending.DIES, _FAILS, _TOO_LONG, "too long to be serialized",
    ),
    "client-metrics": Trap(
        _put("/config/client-metrics/x", config(metrics="*", interval__ms="1000")), Ending.DUAL_WRITE, _WORKS
    ),
    "acl-unknown-type": Trap(_acl("Planet", "p1"), Ending.DUAL_WRITE, _LOSES, "AclResourceTypeUnknown"),
    "acl-unknown-operation": Trap(
        _acl("Topic", "t1", operation="Teleport"), Ending.DUAL_WRITE, _LOSES, "AclUnknown"
    ),
    "acl-odd-principal": Trap(_acl("Topic", "t1", principal="nobody"), Ending.DIES, _FAILS, "AclPrincipalInvalid"),
    "topic-without-id": Trap(_topic_without_id, Ending.NEVER_BEGINS, _FAILS, "TopicWithoutId", "None.get"),
    "two-topics-one-id": Trap(_two_topics_one_id, Ending.STICKS, _FAILS, "TopicIdDuplicate"),
    "partition-without-state": Trap(_partition_without_state, Ending.DUAL_WRITE, _LOSES, "PartitionWithoutState"),
    "isr-with-unknown-broker": Trap(_isr_with_unknown_broker, Ending.DUAL_WRITE, _WORKS),
    "replica-on-unknown-broker": Trap(
        _replica_on_unknown_broker, Ending.NEVER_BEGINS, _FAILS, "ReplicaOnUnknownBroker", "Still waiting for ZK brokers"
    ),
    "pending-deletion": Trap(_pending_deletion, Ending.DUAL_WRITE, _LOSES, "TopicDeletionPending"),
    "topic-config-not-json": Trap(_put("/config/topics/cfg-01", "{"), Ending.DUAL_WRITE, _UNKNOWN, "ZnodeUndecodable"),
    "topic-config-too-long": Trap(_long_throttles(32_768), Ending.DIES, _FAILS, _TOO_LONG, "too long to be serialized"),
    "topic-config-longest": Trap(_long_throttles(32_766), Ending.DUAL_WRITE, _WORKS),
    "topic-config-stale": Trap(
        _put("/config/topics/long-gone", config(retention__ms="1")), Ending.DUAL_WRITE, _LOSES, "StaleTopicConfig"
    ),
    "scram-broken": Trap(
        _put("/config/users/x", {"version": 1, "config": {_SCRAM: "salt=AA==,iterations=1"}}), Ending.DIES, _FAILS, "ZnodeUndecodable"
    ),
    "user-name-too-long": Trap(
        _put("/config/users/" + "u" * 40_000, config(producer_byte_rate="1")),
        Ending.DIES, _FAILS, _TOO_LONG, "too long to be serialized",
    ),
    "scram-few-iterations": Trap(
        _put("/config/users/x", {"version": 1, "config": {_SCRAM: "salt=YWJj,stored_key=YWJj,server_key=YWJj,iterations=10"}}),
        Ending.DUAL_WRITE, _WORKS,
    ),
    "token-empty": Trap(_put("/delegation_token/tokens/lost", None), Ending.DUAL_WRITE, _LOSES, "ZnodeUndecodable"),
    "producer-ids-broken": Trap(_put("/latest_producer_id_block", "{}"), Ending.DIES, _FAILS, "ZnodeUndecodable"),
    "producer-ids-of-kraft": Trap(
        _put("/latest_producer_id_block", {"version": 1, "broker": -1, "block_start": "4000", "block_end": "4999"}),
        Ending.DUAL_WRITE, _WORKS,
    ),
    "migration-empty": Trap(_put("/migration", ""), Ending.NEVER_BEGINS, _FAILS, "MigrationZnodeUnreadable"),
    "migration-stale": Trap(_stale_migration, Ending.STICKS, _FAILS, "MigrationZnodeStale"),
    "broker-id-text": Trap(
        _put("/brokers/ids/abc", {"version": 5}), Ending.NEVER_BEGINS, _FAILS, "BrokerIdInvalid", "NumberFormatException"
    ),
    "encoder-secret-missing": Trap(
        lambda dump: None, Ending.DUAL_WRITE, _LOSES, "PasswordEncoderSecretMissing",
        settings={"delegation.token.secret.key": "some-token-key"},
    ),
    "encoder-secret-wrong": Trap(
        lambda dump: None, Ending.DIES, _FAILS, settings={**SETTINGS, "password.encoder.secret": "another"}
    ),
    "token-key-missing": Trap(
        lambda dump: None, Ending.DUAL_WRITE, _UNKNOWN, "DelegationTokenKeyMissing", "Invalid key to HMAC computation",
        settings={"password.encoder.secret": ENCODER_SECRET},
    ),
}  # fmt: skip
"""All known traps. The results were observed with Kafka 3.9.1 and are in `tests/rehearsal`."""

IN_CI = ("quota-unknown-user", "broker-config-abc", "acl-unknown-type")
"""One trap per effect: the migration stops, a controller exits, metadata is lost."""

__all__ = ["CHROOT", "IN_CI", "SETTINGS", "TRAPS", "Trap", "config", "planted", "stored_dump"]
