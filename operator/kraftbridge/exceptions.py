"""Domain errors. They depend on no client library; ``handlers`` translates them for kopf."""

from __future__ import annotations


class MigrationError(Exception):
    """Base class of kraftbridge's own errors."""


class InvalidSpecError(MigrationError):
    """``spec`` is invalid; the user must correct it."""


class ObservationError(MigrationError):
    """A source could not be observed; the next step tries again.

    Parameters
    ----------
    source
        The source that did not answer.
    reason
        Its error, or how long it did not answer.
    """

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(f"{source}: {reason}")
        self.source = source
        self.reason = reason


class PropertiesError(ObservationError, ValueError):
    """Java could not read a properties file, whoever wrote it.

    Parameters
    ----------
    reason
        What is wrong with it.
    """

    def __init__(self, reason: str) -> None:
        super().__init__("a properties file", f"{reason}; Kafka does not start with it. Correct it")


class ActionError(MigrationError):
    """An action failed; the next step repeats it."""


class ConflictError(ActionError):
    """The object changed since it was read (409); read it again."""


class OvertakenError(ActionError):
    """What the action was decided on no longer holds, so nothing was changed; the next step decides anew."""


class EvictionBlockedError(ActionError):
    """A PodDisruptionBudget does not allow this eviction now (429)."""


class ActionRefusedError(ActionError):
    """The API server or Kafka refuses the action permanently (403, 422, an authorization error)."""


class TooLargeError(ActionRefusedError):
    """The object is larger than the API server or etcd accepts (413, or 500 "request is too large")."""


class MetadataError(Exception):
    """Metadata could not be read or decoded; a verification is then never `Consistent`."""


class UndecodableRecordError(MetadataError):
    """A record of the metadata log is not what Kafka 3.9 writes."""


class CorruptBatchError(MetadataError):
    """A record batch fails its checksum or its own arithmetic."""


class LogUnavailableError(MetadataError):
    """Files of a metadata log could not be listed or read."""


class LogGapError(MetadataError):
    """The metadata log does not start at its snapshot, or offsets are missing in between."""


class UndecodableZnodeError(MetadataError):
    """A znode's data is not what Kafka writes there."""


class ZooKeeperUnavailableError(MetadataError):
    """ZooKeeper could not be read."""


class PasswordDecodingError(MetadataError):
    """An encrypted configuration value could not be decoded with the secret that was given."""


class DumpFormatError(MetadataError):
    """A file is not a valid dump of ZooKeeper."""


class RehearsalError(Exception):
    """The rehearsal could not be completed. The message contains the next step."""
