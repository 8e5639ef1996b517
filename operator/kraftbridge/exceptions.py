"""Domain errors. They know no client library; ``handlers`` translates them for kopf."""

from __future__ import annotations


class MigrationError(Exception):
    """Base of everything that kraftbridge raises on purpose."""


class InvalidSpecError(MigrationError):
    """``spec`` cannot be used as it is; only its author can help."""


class ObservationError(MigrationError):
    """Something could not be seen; try again.

    Parameters
    ----------
    source
        What did not answer.
    reason
        What it said, or how long it was silent.
    """

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(f"{source}: {reason}")
        self.source = source
        self.reason = reason


class ActionError(MigrationError):
    """An act failed; try again."""


class ConflictError(ActionError):
    """The object changed since it was read (409); read it anew."""


class EvictionBlockedError(ActionError):
    """A PodDisruptionBudget does not allow this eviction now (429)."""


class ActionRefusedError(ActionError):
    """The API server or Kafka refuses the act for good (403, 422, an authorization error)."""


class TooLargeError(ActionRefusedError):
    """The object is larger than the API server or etcd accepts (413, or 500 "request is too large")."""
