"""SCRAM credentials that a node of Kafka 3.9 may forget when it loads the metadata log.

``org.apache.kafka.image.ScramDelta.apply`` drops a mechanism as soon as its users are none in between,
even if more users of the same delta follow.
The order is that of a ``HashMap``.
A running node applies one change after the other; a node that starts loads its newest snapshot,
and then the log in one delta (``MetadataBatchLoader``), the copy's transaction included.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kraftbridge.metadata.log.files import LogFiles, listing
from kraftbridge.metadata.log.image import OFFSET, scram_mechanism
from kraftbridge.metadata.log.replay import LogReplay, records_of
from kraftbridge.models.entities import EntityKind

_SET: Final = "UserScramCredentialRecord"
_REMOVED: Final = "RemoveUserScramCredentialRecord"


def forgettable_by_voter(replay: LogReplay) -> dict[str, list[str]]:
    """Return the removed users by mechanism whose credentials this voter may forget when it starts.

    It then forgets all users of that mechanism together.
    A user who is in the voter's newest snapshot and was not changed since keeps the mechanism.

    Parameters
    ----------
    replay
        The voter's log, replayed from its newest snapshot.
    """
    image = replay.image
    present: list[tuple[str, str]] = []
    kept: set[str] = set()
    for (_, number), credential in image.scram.items():
        mechanism = scram_mechanism(number)
        present.append((credential["name"], mechanism))
        if credential[OFFSET] <= replay.snapshot_offset:
            kept.add(mechanism)
    changed = [credential for credential in present if credential[1] not in kept]
    removed = [key.rpartition("/")[::2] for kind, key in image.removed if kind is EntityKind.SCRAM_CREDENTIAL]
    return _forgettable(changed, removed)


def forgettable_by_brokers(files: LogFiles) -> dict[str, list[str]] | None:
    """Return the same for a broker that starts on KRaft for the first time.

    None if the log's beginning is deleted, so that nobody knows.

    A broker in migration mode keeps its own copy of the log and takes no snapshots (``KafkaServer`` starts no
    ``SnapshotGenerator``): at its first start on KRaft it loads everything since the log began,
    whatever snapshots the voters have.

    Raises
    ------
    MetadataError
        The log cannot be read.
    """
    segments = listing(files).segments
    if not segments or segments[0].base_offset > 0:
        return None
    present: set[tuple[str, str]] = set()
    removed: set[tuple[str, str]] = set()
    for _, name, fields in records_of(files, {_SET, _REMOVED}):
        credential = (fields["name"], scram_mechanism(fields["mechanism"]))
        removed.add(credential)
        if name == _SET:
            present.add(credential)
        else:
            present.discard(credential)
    return _forgettable(present, removed)


def _forgettable(present: Iterable[tuple[str, str]], removed: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the users by mechanism who are removed and not present, of the mechanisms that have other users."""
    kept = set(present)
    mechanisms = {mechanism for _, mechanism in kept}
    users: dict[str, list[str]] = {}
    for user, mechanism in sorted(set(removed) - kept):
        if mechanism in mechanisms:
            users.setdefault(mechanism, []).append(user)
    return users
