"""Errors of a rehearsal itself. Failures of Kafka are its result."""

from __future__ import annotations


class RehearsalError(Exception):
    """The rehearsal could not be completed. The message contains the next step."""
