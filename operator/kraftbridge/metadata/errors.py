"""Errors of reading metadata. Every message names the place and, where there is one, the remedy."""

from __future__ import annotations


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
