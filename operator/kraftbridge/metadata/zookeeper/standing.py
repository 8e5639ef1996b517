"""Checks a live tree as a whole, and reads again what a change in progress may explain.

A topic is created, grown, reassigned and deleted in several writes, and a tree is read in several requests.
A reading between two of them finds

- configs of a topic that does not exist yet or any more
  (``AdminZkClient.createTopicWithAssignment``, ``TopicDeletionManager.completeDeleteTopic``);
- partitions without a state, or states beyond the assignment (``ZkPartitionStateMachine``);
- partitions without a leader, because their topic is about to go (``ZkReplicaStateMachine.doRemoveReplicasFromIsr``);
- an epoch from an election after `/controller_epoch` was read.

Such a finding stands if every further reading finds something that blocks in the same place, be it something else.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kazoo.exceptions import NoNodeError

from kraftbridge.metadata.entities import Secrets
from kraftbridge.metadata.zookeeper.reader import Data, Operation, Read, ZooKeeperReader
from kraftbridge.metadata.zookeeper.soundness import (
    CHECKED_NODES,
    DELETIONS_PATH,
    Soundness,
    broker_ids,
)
from kraftbridge.metadata.zookeeper.tree import TOPIC_CONFIGS_PATH, TreePlan, TreeReading
from kraftbridge.metadata.zookeeper.znodes import TOPICS_PATH
from kraftbridge.models.catalogue import Code, Severity
from kraftbridge.models.report import Finding
from kraftbridge.outside.visible import visible

PAUSES_SECONDS: Final = (0.5, 1.0, 2.0, 4.0)
"""Before each further reading. A controller needs less for a topic, unless it is overloaded or a broker is away."""
_MOST_PLACES: Final = 2_000
"""More places than a change in progress explains are not read again."""
_FOLDERS: Final = (f"{TOPICS_PATH}/", f"{TOPIC_CONFIGS_PATH}/", f"{DELETIONS_PATH}/")
_PASSING: Final = frozenset(
    {
        Code.CONTROLLER_EPOCH_BEHIND,
        Code.CONTROLLER_MISSING,
        Code.ISR_INVALID,
        Code.OFFLINE_PARTITIONS,
        Code.ORPHAN_PARTITION_STATE,
        Code.PARTITION_WITHOUT_STATE,
        Code.REASSIGNMENT_RUNNING,
        Code.REPLICA_ON_UNKNOWN_BROKER,
        Code.STALE_TOPIC_CONFIG,
        Code.TOPIC_DELETION_PENDING,
        Code.TOPIC_WITHOUT_ID,
    }
)
"""What a change in progress may explain."""


@dataclass(frozen=True, slots=True)
class WholeTree:
    """What a check of the tree as a whole shows."""

    findings: Sequence[Finding]
    controller_epoch: int | None
    deletions: frozenset[str]
    """Topics that are being deleted."""


NOT_CHECKED: Final = WholeTree((), None, frozenset())


def check_whole(reader: ZooKeeperReader, reading: TreeReading, plan: TreePlan) -> WholeTree:
    """Check the facts that concern the whole tree.

    Parameters
    ----------
    reader
        Reads the znodes that only this check needs.
    reading
        Takes the znodes that cannot be read.
    plan
        What the tree holds.
    """
    soundness = Soundness(broker_ids(plan.nodes))
    checked: dict[str, bytes | None] = {}
    deletions: list[str] = []
    migration = None
    reads = [Read(Operation.CHILDREN, DELETIONS_PATH), *(Read(Operation.DATA, path) for path in CHECKED_NODES)]
    for fenced in reader.read(reads):
        migration = fenced.migration
        for read, result in fenced.results:
            if isinstance(result, Data):
                checked[read.path] = result.data
            elif isinstance(result, list):
                deletions = result
            elif not isinstance(result, NoNodeError):
                reading.unread[read.path] = f"{read.path} cannot be read: {result!r}"
    soundness.tree(
        topics=plan.topics,
        topic_configs=plan.topic_configs,
        deletions=deletions,
        migration=migration,
        migration_problem=reader.migration_problem,
        checked=checked,
    )
    return WholeTree(soundness.findings, soundness.controller_epoch, frozenset(deletions))


def standing(reader: ZooKeeperReader, findings: Sequence[Finding], highest_epoch: int) -> list[Finding]:
    """Return the findings that stand, each as the last reading shows it.

    Parameters
    ----------
    findings
        Those of the first reading.
    highest_epoch
        Highest epoch of a controller in any partition's state.
    """
    pending: Sequence[Finding] = [finding for finding in findings if may_pass(finding)]
    if len(set(map(place_of, pending))) > _MOST_PLACES:
        return list(findings)
    others = [finding for finding in findings if not may_pass(finding)]
    for pause_seconds in PAUSES_SECONDS:
        if not pending:
            break
        time.sleep(pause_seconds)
        pending = _still_there(reader, pending, highest_epoch)
    told = {(finding.code, finding.object) for finding in others}
    return [*others, *(finding for finding in pending if (finding.code, finding.object) not in told)]


def may_pass(finding: Finding) -> bool:
    """Return whether a finding closes a gate although a change in progress may explain it."""
    return finding.severity is Severity.BLOCKING and finding.code in _PASSING


def place_of(finding: Finding) -> str:
    """Return the topic that a finding is about, else its znode."""
    for folder in _FOLDERS:
        if finding.object.startswith(folder):
            return finding.object.removeprefix(folder).partition("/")[0]
    return finding.object


def _still_there(reader: ZooKeeperReader, pending: Sequence[Finding], highest_epoch: int) -> Sequence[Finding]:
    """Return what blocks in the places of these findings in a new reading; the same ones where it cannot be read.

    Without a registered broker nobody can tell whether a replica is on one.
    """
    places = set(map(place_of, pending))
    reader.synchronize()
    # No entity of this reading is used, so nothing is hashed.
    reading = TreeReading(reader, Secrets(b""))
    plan = reading.plan()
    whole = check_whole(reader, reading, plan)
    soundness = Soundness(broker_ids(plan.nodes))
    reading.observe_topic = soundness.topic
    # The state of a topic that is being deleted means nothing more than that.
    looked_at = [topic for topic in plan.topics if visible(topic) in places and topic not in whole.deletions]
    for _ in reading.topics(looked_at):
        pass  # the check observes the topics
    if reading.unread or reading.problems or not soundness.broker_ids:
        return pending
    soundness.epochs(whole.controller_epoch, highest_epoch)
    found = [*whole.findings, *soundness.findings]
    return [finding for finding in found if finding.severity is Severity.BLOCKING and place_of(finding) in places]
