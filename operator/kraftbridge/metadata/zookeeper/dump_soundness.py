"""The soundness of a whole tree, in one process: the same checks as the verification of profile `zookeeper` makes in Spark."""

from __future__ import annotations

from collections.abc import Iterable

from kraftbridge.metadata.entities import Secrets
from kraftbridge.metadata.zookeeper.soundness import CHECKED_NODES, DELETIONS_PATH, Soundness
from kraftbridge.metadata.zookeeper.tree import TOPIC_CONFIGS_PATH, DumpReading
from kraftbridge.metadata.zookeeper.znodes import MIGRATION_PATH, Znode
from kraftbridge.models.report import Finding


def soundness_of(reading: DumpReading, encoder_secret: str | None, *, secret_required: bool) -> Soundness:
    """Return what is wrong with a tree that was read, but for topics that share an id and znodes that could not be decoded."""
    nodes = reading.nodes()
    soundness = Soundness(broker_ids(nodes), encoder_secret, secret_required=secret_required)
    topics = list(reading.topics())
    for topic in topics:
        soundness.topic(topic)
    for path, data in nodes.items():
        soundness.znode(path, data)
    soundness.tree(
        topics=[topic.name for topic in topics],
        topic_configs=_children(nodes, TOPIC_CONFIGS_PATH),
        deletions=_children(nodes, DELETIONS_PATH),
        migration=reading.migration,
        migration_problem=reading.problems.get(MIGRATION_PATH),
        checked={path: nodes[path] for path in CHECKED_NODES if path in nodes},
    )
    return soundness


def findings_of(znodes: Iterable[Znode], encoder_secret: str | None) -> list[Finding]:
    """Return every finding about a tree.

    Raises
    ------
    DumpFormatError
        The tree has a path twice, or nothing in it.
    """
    reading = DumpReading(Secrets(b"", compare_passwords=encoder_secret is not None), encoder_secret)
    reading.take(znodes)
    for _ in reading.entities():
        pass  # decoding fills in what cannot be understood
    soundness = soundness_of(reading, encoder_secret, secret_required=True)
    by_id: dict[str, list[str]] = {}
    for topic in reading.topics():
        if topic.assignment is not None and topic.assignment.topic_id is not None:
            by_id.setdefault(topic.assignment.topic_id, []).append(topic.name)
    soundness.same_ids(by_id)
    for path, problem in reading.problems.items():
        if path != MIGRATION_PATH:
            soundness.undecodable(path, problem)
    soundness.epochs(soundness.controller_epoch, soundness.highest_controller_epoch)
    return soundness.findings


def broker_ids(paths: Iterable[str]) -> frozenset[int]:
    """Return the brokers that are registered, from the tree's paths."""
    return frozenset(int(name) for name in _children(paths, "/brokers/ids") if name.isdecimal())


def _children(paths: Iterable[str], folder: str) -> list[str]:
    return [path.rpartition("/")[2] for path in paths if path.rpartition("/")[0] == folder]
