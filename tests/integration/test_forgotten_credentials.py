"""A broker of Kafka 3.9.2 that starts after a SCRAM user was removed forgets the other users, and the verification's rules name it before."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from tests.support.kafka_processes import FINAL, KRAFT, KafkaProcesses, kafka_processes, wait_for
from typing_extensions import override

from kraftbridge.metadata.log.credentials import forgettable_by_brokers, forgettable_by_voter
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


class Processes(KafkaProcesses):
    """Controllers that take a snapshot after a second; brokers take theirs after an hour, as they do unless told otherwise."""

    @override
    def _controller_properties(self, controller_id: int, mode: str) -> str:
        path = Path(super()._controller_properties(controller_id, mode))
        return self._write(path.name, path.read_text() + "metadata.log.max.snapshot.interval.ms=1000\n")


def test_a_restarted_broker_forgets_what_the_rule_names() -> None:
    kept = next(name for i in count() if bucket(name := f"kept-{i}") == 15)
    removed = next(name for i in count() if bucket(name := f"removed-{i}") == 0)
    with kafka_processes([0], [3000], Processes) as processes:
        processes.format_controller(3000, CLUSTER_ID, FINAL)
        processes.format_broker(0, CLUSTER_ID)
        processes.start_controller(3000, FINAL)
        processes.start_broker(0, KRAFT)
        admin = processes.admin_client()
        files = LocalLogFiles(processes.directory / "controller-3000")

        def change(alteration: UserScramCredentialUpsertion | UserScramCredentialDeletion) -> None:
            for future in admin.alter_user_scram_credentials([alteration]).values():
                future.result(150)

        def put(user: str) -> None:
            change(UserScramCredentialUpsertion(user, ScramCredentialInfo(SHA_256, 4096), b"of-this-test"))

        def users() -> set[str]:
            return set(admin.describe_user_scram_credentials().result(150))

        def at_risk() -> tuple[dict[str, list[str]], dict[str, list[str]] | None]:
            replay = LogReplay(files)
            replay.advance()
            return forgettable_by_voter(replay), forgettable_by_brokers(files)

        def restart() -> None:
            processes.stop("broker-0")
            processes.start_broker(0, KRAFT)
            wait_for("the broker", lambda: len(admin.list_topics(timeout=60).brokers) == 1)

        put(kept)
        put(removed)
        wait_for("both users", lambda: users() == {kept, removed})
        assert at_risk()[1] == {}
        change(UserScramCredentialDeletion(removed, SHA_256))
        wait_for("the removal", lambda: users() == {kept})
        named = {"SCRAM-SHA-256": [removed]}
        assert at_risk()[1] == named
        # The voter's next snapshot ends its own risk. The broker has none, and loads what came before.
        wait_for("a snapshot of the voter", lambda: at_risk() == ({}, named))
        restart()
        assert users() == set(), "Kafka 3.9.2 forgets the user who was never removed (ScramDelta.apply)"

        put(removed)  # the way out that the finding tells
        assert at_risk()[1] == {}
        restart()
        assert users() == {kept, removed}
