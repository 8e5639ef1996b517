"""Describes the quorum as its leader sees it (DescribeQuorum: KIP-595, KIP-836), with the client's properties."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kraftbridge.exceptions import InvalidSpecError, MetadataError
from kraftbridge.kafka.client import Security, inlined
from kraftbridge.models.report import VerificationRequest, VoterAccess
from kraftbridge.outside import bounds
from kraftbridge.outside.properties import parse_properties
from kraftbridge.pods.credentials import CERTIFICATE_KEYS, LOGIN, client_properties

if TYPE_CHECKING:
    from kraftbridge.kafka.wire import Connection


class ConnectionSettingsError(MetadataError):
    """Client properties cannot be read, or contain an unsupported setting."""


class NodeUnavailableError(MetadataError):
    """A node did not answer, or closed the connection."""


def read_security(path: str | None) -> Security:
    """Return the security settings of a Java properties file; plain text if the path is None.

    Raises
    ------
    ConnectionSettingsError
        The file cannot be read, or a setting is not supported.
    """
    if path is None:
        return Security()
    try:
        properties = parse_properties(bounds.file(path).decode())
        return Security.from_properties(inlined(properties, lambda location: _beside(Path(path), location)))
    except (OSError, ValueError) as error:
        raise ConnectionSettingsError(f"client properties {path} cannot be read: {error}") from error
    except InvalidSpecError as error:
        raise ConnectionSettingsError(f"client properties {path}: {error}") from error


def _beside(settings: Path, location: str) -> bytes:
    """Return a file that the settings name, from their own Secret if that has it as a key."""
    held = settings.with_name(Path(location).name)
    return bounds.file(str(held) if held.is_file() else location)


def controller_security(request: VerificationRequest) -> Security:
    """Return the security settings for the controllers' listener.

    They have the listener's own certificate or login if the request names its Secret,
    else they are those of the properties file.

    Raises
    ------
    ConnectionSettingsError
        A file cannot be read, or a setting is not supported.
    """
    secret = request.listener_secret_path
    if secret is None:
        return read_security(request.controller_config_path)
    try:
        keys, protocol = (
            ((*CERTIFICATE_KEYS, LOGIN), "SASL_SSL") if request.listener_login else (CERTIFICATE_KEYS, "SSL")
        )
        data = {name: bounds.file(f"{secret}/{name}").decode() for name in keys}
        return Security.from_properties(client_properties(data, protocol))
    except (OSError, ValueError, InvalidSpecError) as error:
        raise ConnectionSettingsError(f"the certificate or login in {secret} cannot be used: {error}") from error


@contextmanager
def connected(host: str, port: int, security: Security, timeout_seconds: float) -> Iterator[Connection]:
    """Open a connection to one node for a `with` block.

    Raises
    ------
    NodeUnavailableError
        The node does not answer in time or not as expected.
    """
    from kraftbridge.kafka.wire import Connection, WireError  # noqa: PLC0415 - kafka-python is heavy

    try:
        with Connection(host, port, security, timeout_seconds, most=bounds.KAFKA_VERIFIER_BYTES) as connection:
            yield connection
    except WireError as error:
        raise NodeUnavailableError(str(error)) from error


_METADATA_TOPIC: Final = "__cluster_metadata"


class QuorumUnavailableError(MetadataError):
    """No voter answered as leader with a high watermark."""


@dataclass(frozen=True, slots=True)
class QuorumView:
    """The leader's view of the quorum."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    """Offset after the last committed record."""
    end_offsets: Mapping[int, int]
    """Log end offset of each voter, as far as the leader knows it."""


def describe_quorum(voters: Sequence[VoterAccess], security: Security, timeout_seconds: float = 10.0) -> QuorumView:
    """Ask the voters until one answers as leader, and return its view of the quorum.

    Raises
    ------
    QuorumUnavailableError
        No voter answered as leader. The message contains the answer of each.
    """
    from kafka.protocol.admin.cluster import DescribeQuorumRequest  # noqa: PLC0415

    answers = []
    topic = DescribeQuorumRequest.TopicData
    for voter in voters:
        if voter.host is None or voter.port is None:
            continue
        where = f"{voter.id}@{voter.host}:{voter.port}"
        try:
            with connected(voter.host, voter.port, security, timeout_seconds) as connection:
                partitions = [topic.PartitionData(partition_index=0)]
                response = connection.call(
                    DescribeQuorumRequest,
                    timeout_seconds,
                    max_version=1,
                    topics=[topic(topic_name=_METADATA_TOPIC, partitions=partitions)],
                )
            if response.error_code:
                answers.append(f"{where}: error {response.error_code}")
                continue
            partition = response.topics[0].partitions[0]
            if partition.error_code:
                answers.append(f"{where}: error {partition.error_code} (6: not the leader)")
                continue
            return QuorumView(
                leader_id=partition.leader_id,
                leader_epoch=partition.leader_epoch,
                high_watermark=partition.high_watermark,
                end_offsets={state.replica_id: state.log_end_offset for state in partition.current_voters},
            )
        except (MetadataError, IndexError) as error:
            answers.append(f"{where}: {error}")
    raise QuorumUnavailableError(f"no voter answers as leader ({'; '.join(answers) or 'no listener is given'})")
