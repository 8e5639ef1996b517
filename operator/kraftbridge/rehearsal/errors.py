"""What can go wrong with a rehearsal itself; what goes wrong in Kafka is its result."""

from __future__ import annotations


class RehearsalError(Exception):
    """The rehearsal could not be carried through; the message says what to do."""
