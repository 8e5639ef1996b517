"""A broker of Kafka 3.9.1 that starts after a SCRAM user was removed forgets the other users, and the verification's rule names it before."""

from __future__ import annotations

from itertools import count

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from tests.support.kafka_processes import FINAL, KRAFT, kafka_processes, wait_for

from kraftbridge.metadata.log.entities import forgettable_credentials
from kraftbridge.metadata.log.files import LocalLogFiles
from kraftbridge.metadata.log.replay import LogReplay

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kafka-processes")]
CLUSTER_ID = "kVx3Yk9aSZ2mJ0wq1Yl5Wg"
SHA_256 = ScramMechanism.SCRAM_SHA_256


def bucket(text: str) -> int:
    """Return the bucket of a key in a Java HashMap of the first size (``String.hashCode``, ``HashMap.hash``)."""
    hashed = 0
    for character in text:
        hashed = (31 * hashed + ord(character)) & 0xFFFFFFFF
    return (hashed ^ (hashed >> 16)) & 15


def test_a_restarted_broker_forgets_what_the_rule_names() -> None:
    kept = next(name for i in count() if bucket(name := f"kept-{i}") == 15)
    removed = next(name for i in count() if bucket(name := f"removed-{i}") == 0)
    with kafka_processes([0], [3000]) as processes:
        processes.format_controller(3000, CLUSTER_ID, FINAL)
        processes.format_broker(0, CLUSTER_ID)
        processes.start_controller(3000, FINAL)
        processes.start_broker(0, KRAFT)
        admin = AdminClient({"bootstrap.servers": processes.bootstrap_servers, "log_level": 0})

        def change(alteration: UserScramCredentialUpsertion | UserScramCredentialDeletion) -> None:
            for future in admin.alter_user_scram_credentials([alteration]).values():
                future.result(30)

        def users() -> set[str]:
            return set(admin.describe_user_scram_credentials().result(30))

        def at_risk() -> dict[str, list[str]]:
            replay = LogReplay(LocalLogFiles(processes.directory / "controller-3000"))
            return forgettable_credentials(replay.advance(), replay.snapshot_offset)

        for user in (kept, removed):
            change(UserScramCredentialUpsertion(user, ScramCredentialInfo(SHA_256, 4096), b"of-this-test"))
        wait_for("both users", lambda: users() == {kept, removed})
        assert at_risk() == {}
        change(UserScramCredentialDeletion(removed, SHA_256))
        wait_for("the removal", lambda: users() == {kept})
        assert at_risk() == {"SCRAM-SHA-256": [removed]}

        processes.stop("broker-0")
        processes.start_broker(0, KRAFT)
        wait_for("the broker", lambda: len(admin.list_topics(timeout=10).brokers) == 1)
        assert users() == set(), "Kafka 3.9.1 forgets the user who was never removed (ScramDelta.apply)"
