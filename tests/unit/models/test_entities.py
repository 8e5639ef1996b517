"""The table of entity kinds: complete, and in agreement with itself and with what reads and decodes znodes."""

from __future__ import annotations

import re

import pytest

from kraftbridge.exceptions import UndecodableZnodeError
from kraftbridge.metadata.entities import Secrets
from kraftbridge.metadata.zookeeper import reader
from kraftbridge.metadata.zookeeper.znodes import znode_entities
from kraftbridge.models.entities import ENTITY_KINDS, EntityKind, Mirror, acl_key
from kraftbridge.storage import zookeeper

TOPIC_ZNODES = {"/brokers/topics/*", "/brokers/topics/*/partitions/*/state"}
"""Read and decoded together (`TopicReading`)."""
KEYS = {
    EntityKind.TOPIC: "a.b-c",
    EntityKind.PARTITION: "a.b-c-12",
    EntityKind.TOPIC_CONFIG: "a.b-c",
    EntityKind.BROKER_CONFIG: "<default>",
    EntityKind.CLIENT_QUOTA: "users/al%2Fice/clients/<default>",
    EntityKind.SCRAM_CREDENTIAL: "al/ice/SCRAM-SHA-256",
    EntityKind.ACL: acl_key(("Topic", "PREFIXED", "a", "User:b", "*", "Read", "Allow")),
    EntityKind.DELEGATION_TOKEN: "Zm9v",
    EntityKind.PRODUCER_IDS: "",
    EntityKind.BROKER_REGISTRATION: "3",
}


def test_every_kind_has_its_row():
    assert list(ENTITY_KINDS) == list(EntityKind)


@pytest.mark.parametrize("kind", EntityKind)
def test_a_kind_with_a_mirror_has_znodes_and_one_without_has_none(kind):
    facts = ENTITY_KINDS[kind]
    assert (facts.mirror is Mirror.NONE) == (not facts.znodes)
    assert (kind in KEYS) == bool(facts.znodes), "KEYS above needs an example of the key of each kind with znodes"
    if kind not in KEYS:
        assert facts.paths("key") == ()
        return
    for path in facts.paths(KEYS[kind]):
        assert any(re.fullmatch(pattern.replace("*", "[^/]+"), path) for pattern in facts.znodes)


def test_every_folder_of_the_table_is_known_as_kafkas():
    """Dumps redact what is below other folders, and preflight tells of them and of the ACLs of Kafka's."""
    patterns = {pattern for facts in ENTITY_KINDS.values() for pattern in facts.znodes}
    tops = {pattern.split("/")[1] for pattern in patterns}
    assert tops <= reader._KAFKAS, "metadata/zookeeper/reader.py"
    assert tops <= zookeeper._OF_KAFKA, "storage/zookeeper.py"
    folders = {"/".join(pattern.split("/")[:3]) for pattern in patterns if pattern.startswith("/config/")}
    assert {f"/{top}" for top in tops} | folders <= set(zookeeper._WRITTEN_BY_KRAFT), "storage/zookeeper.py"


@pytest.mark.parametrize("pattern", sorted({p for facts in ENTITY_KINDS.values() for p in facts.znodes} - TOPIC_ZNODES))
def test_every_znode_of_the_table_has_a_decoder(pattern):
    with pytest.raises(UndecodableZnodeError):
        list(znode_entities(pattern.replace("*", "1"), b"[", 0, Secrets(b"salt")))
    assert not list(znode_entities(pattern.replace("*", "1") + "/deeper/than/that", b"[", 0, Secrets(b"salt")))
