"""Gives access to the files of a voter's metadata log, in a local directory or through the controller's log server."""

from __future__ import annotations

import http.client
import re
import ssl
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import quote, urlsplit

from kraftbridge.exceptions import LogUnavailableError
from kraftbridge.outside import bounds
from kraftbridge.outside.endpoints import Judge, anywhere, connect_to_host, ended_after
from kraftbridge.outside.json_text import parsed_json

LOG_FOLDER: Final = "__cluster_metadata-0"
META_PROPERTIES: Final = "meta.properties"
FILES_PATH: Final = "/v1/files"
"""Path of the log server's listing. Files are below it, by name."""
_SEGMENT = re.compile(r"(\d{20})\.log")
_SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_CHUNK_BYTES = 8 << 20
_MOST_OWNER_BYTES: Final = 1 << 16
_ANSWER_SECONDS: Final = 60.0
"""For one answer: a chunk at 140 KB/s."""


class FileVanishedError(LogUnavailableError):
    """A file was deleted between listing and reading; Kafka does that after a new snapshot."""


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """A log segment; its name is its first offset."""

    base_offset: int
    name: str
    size_bytes: int


@dataclass(frozen=True, slots=True, order=True)
class Snapshot:
    """A snapshot; its name is the offset after its last record, and that record's epoch (KIP-630)."""

    end_offset: int
    epoch: int
    name: str
    size_bytes: int


def snapshot_end(snapshot: Snapshot | None) -> int:
    """Return the offset after a snapshot's last record; 0 without a snapshot."""
    return 0 if snapshot is None else snapshot.end_offset


@dataclass(frozen=True, slots=True)
class LogListing:
    """Segments and snapshots by offset."""

    segments: tuple[Segment, ...]
    snapshots: tuple[Snapshot, ...]

    @property
    def is_empty(self) -> bool:
        """Whether there is neither a segment nor a snapshot."""
        return not self.segments and not self.snapshots

    @property
    def newest_snapshot(self) -> Snapshot | None:
        """The snapshot with the highest end offset."""
        return self.snapshots[-1] if self.snapshots else None

    def segment_at(self, offset: int) -> Segment | None:
        """Return the last segment that begins at or before an offset."""
        index = bisect_right(self.segments, offset, key=lambda segment: segment.base_offset)
        return self.segments[index - 1] if index else None


@dataclass(frozen=True, slots=True)
class FilesOwner:
    """Owner of the files according to `meta.properties` beside the log (``MetaProperties``)."""

    node_id: int
    cluster_id: str

    @classmethod
    def parse(cls, text: str) -> FilesOwner | None:
        """Return the owner in the content of a `meta.properties`; None if node or cluster is missing."""
        settings = (line for line in text.splitlines() if not line.startswith("#"))
        values = dict(line.split("=", 1) for line in settings if "=" in line)
        node_id = values.get("node.id", values.get("broker.id", "")).strip()
        cluster_id = values.get("cluster.id", "").strip()
        if not node_id.isdecimal() or not cluster_id:
            return None
        return cls(int(node_id), cluster_id)


class LogFiles(Protocol):
    """Read access to one voter's metadata log."""

    def owner(self) -> FilesOwner | None:
        """Return the owner of the files; None if it is unknown."""

    @property
    def place(self) -> str:
        """The location, for messages."""

    def sizes(self) -> Mapping[str, int]:
        """Return the size in bytes of every file by name."""

    def read(self, name: str, start: int, end: int) -> bytes:
        """Return the bytes of a file from `start` to `end`; fewer bytes if the file ends earlier."""


def listing(files: LogFiles) -> LogListing:
    """Return the segments and snapshots of a log. Other files (indexes, parts, deleted files) are omitted."""
    segments = []
    snapshots = []
    for name, size in files.sizes().items():
        if match := _SEGMENT.fullmatch(name):
            segments.append(Segment(int(match[1]), name, size))
        elif match := _SNAPSHOT.fullmatch(name):
            snapshots.append(Snapshot(int(match[1]), int(match[2]), name, size))
    return LogListing(tuple(sorted(segments)), tuple(sorted(snapshots)))


@dataclass(frozen=True, slots=True)
class LocalLogFiles:
    """Files in a directory: `__cluster_metadata-0` itself or its parent."""

    directory: Path

    @property
    def place(self) -> str:
        """The directory."""
        return str(self.directory)

    def _folder(self) -> Path:
        inner = self.directory / LOG_FOLDER
        return inner if inner.is_dir() else self.directory

    def owner(self) -> FilesOwner | None:
        """Return the owner according to `meta.properties` beside the log's directory."""
        folder = self._folder()
        try:
            with bounds.regular(folder.parent / META_PROPERTIES) as file:
                return FilesOwner.parse(file.read(_MOST_OWNER_BYTES).decode())
        except (OSError, UnicodeDecodeError):
            return None

    def sizes(self) -> Mapping[str, int]:
        """Return the size in bytes of every file by name."""
        try:
            return {entry.name: entry.stat().st_size for entry in self._folder().iterdir() if entry.is_file()}
        except OSError as error:
            raise LogUnavailableError(f"metadata log in {self.directory} cannot be listed: {error}") from error

    def read(self, name: str, start: int, end: int) -> bytes:
        """Return the bytes of a file from `start` to `end`."""
        try:
            with (self._folder() / name).open("rb") as file:
                file.seek(start)
                return file.read(end - start)
        except FileNotFoundError as error:
            raise FileVanishedError(f"{self.directory}: {name} has been deleted") from error
        except OSError as error:
            raise LogUnavailableError(f"{self.directory}: {name} cannot be read: {error}") from error


class RemoteLogFiles:
    """Files behind a log server (`kraftbridge.pods.logserver`), over HTTPS with a bearer token.

    Parameters
    ----------
    url
        ``https://host:port`` of the log server.
    token_path
        File with the bearer token.
    ca_path
        CA certificate that signed the server's certificate; the system's CAs by default.
    timeout_seconds
        Limit of each request.
    token
        The bearer token itself, instead of a file.
    authority
        The CA certificate itself (PEM), instead of a file.
    """

    def __init__(
        self,
        url: str,
        token_path: Path | None,
        ca_path: Path | None = None,
        timeout_seconds: float = 15.0,
        *,
        token: str = "",
        authority: str = "",
        judge: Judge = anywhere,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme != "https" or not parts.hostname:
            raise LogUnavailableError(f"log server address {url!r} is not https://host:port")
        self._host = parts.hostname
        self._port = parts.port or 443
        self._prefix = parts.path.rstrip("/")
        self._token_path = token_path
        self._token = token
        self._judge = judge
        self._timeout_seconds = timeout_seconds
        self._context = ssl.create_default_context(cafile=ca_path, cadata=authority or None)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._connection: http.client.HTTPSConnection | None = None

    @property
    def place(self) -> str:
        """Address of the log server."""
        return f"https://{self._host}:{self._port}{self._prefix}"

    def owner(self) -> FilesOwner | None:
        """Return the owner that the log server reports."""
        try:
            owner = parsed_json(self._get(FILES_PATH, None)).get("owner")
            return FilesOwner(int(owner["nodeId"]), str(owner["clusterId"])) if owner else None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LogUnavailableError(f"{self.place} answers with an unknown listing: {error!r}") from error

    def sizes(self) -> Mapping[str, int]:
        """Return the size in bytes of every file by name."""
        try:
            body = parsed_json(self._get(FILES_PATH, None))
            return {str(file["name"]): int(file["size"]) for file in body["files"]}
        except (ValueError, KeyError, TypeError) as error:
            raise LogUnavailableError(f"{self.place} answers with an unknown listing: {error!r}") from error

    def read(self, name: str, start: int, end: int) -> bytes:
        """Return the bytes of a file from `start` to `end`, in requests of limited size."""
        chunks = []
        while start < end:
            chunk = self._get(f"{FILES_PATH}/{quote(name)}", (start, min(end, start + _CHUNK_BYTES)))
            if not chunk:
                break
            chunks.append(chunk)
            start += len(chunk)
        return b"".join(chunks)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _get(self, path: str, byte_range: tuple[int, int] | None) -> bytes:
        headers = {}
        # A refusal is longer than a short range.
        asked_bytes = 0 if byte_range is None else byte_range[1] - byte_range[0]
        most_bytes = max(asked_bytes, bounds.LOG_LISTING_BYTES)
        try:
            token = self._bearer_token()
            if token:
                headers["Authorization"] = f"Bearer {token}"
            if byte_range is not None:
                headers["Range"] = f"bytes={byte_range[0]}-{byte_range[1] - 1}"
            status, reason, body = self._request(path, headers, most_bytes)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise LogUnavailableError(f"{self.place}{path} cannot be read: {error!r}") from error
        match status:
            case 200 | 206:
                return body
            case 416:
                return b""  # the range begins at the end of the file
            case 404:
                raise FileVanishedError(f"{self.place}{path} has been deleted")
            case _:
                raise LogUnavailableError(f"{self.place}{path} answers {status} {reason}")

    def _bearer_token(self) -> str:
        if self._token_path is None:
            return self._token
        return self._token_path.read_text(encoding="utf-8").strip()

    def _request(self, path: str, headers: Mapping[str, str], most_bytes: int) -> tuple[int, str, bytes]:
        if self._connection is not None:
            try:
                return self._exchange(self._connection, path, headers, most_bytes)
            except bounds.BoundExceededError:
                raise
            except (OSError, http.client.HTTPException):
                self.close()  # the server may have closed the kept connection in the meantime
        self._connection = http.client.HTTPSConnection(
            self._host, self._port, timeout=self._timeout_seconds, context=self._context
        )
        plain = connect_to_host(self._host, self._port, self._timeout_seconds, self._judge)
        self._connection.sock = self._context.wrap_socket(plain, server_hostname=self._host)
        return self._exchange(self._connection, path, headers, most_bytes)

    def _exchange(
        self, connection: http.client.HTTPSConnection, path: str, headers: Mapping[str, str], most_bytes: int
    ) -> tuple[int, str, bytes]:
        with ended_after(connection.sock, _ANSWER_SECONDS):
            connection.request("GET", self._prefix + path, headers=dict(headers))
            response = connection.getresponse()
            body = response.read(most_bytes + 1)
        if len(body) > most_bytes:
            self.close()
            raise bounds.BoundExceededError(
                f"{self.place}{path}",
                f"it sent more than {bounds.size(most_bytes)}",
                bounds.size(most_bytes),
                "Ask what answers at this address",
            )
        return response.status, response.reason, body


def open_log_files(url: str, token_path: str | None = None, ca_path: str | None = None) -> LogFiles:
    """Return access to the log at an address of the request: ``https://…`` or ``file:///directory``."""
    if url.startswith("file://"):
        directory = Path(urlsplit(url).path)
        if not directory.is_dir():
            raise LogUnavailableError(f"{directory} is not a folder")
        return LocalLogFiles(directory)
    return RemoteLogFiles(url, _path(token_path), _path(ca_path))


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None
