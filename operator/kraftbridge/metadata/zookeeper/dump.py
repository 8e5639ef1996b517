"""Dumps of a ZooKeeper tree: one JSON object per znode. Secrets can be replaced by hashes."""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from kraftbridge.metadata.entities import is_sensitive_config, redacted
from kraftbridge.metadata.errors import DumpFormatError
from kraftbridge.metadata.zookeeper.znodes import SCRAM_MECHANISMS, Znode

_NUMBERS: Final = {
    "version": "version",
    "czxid": "created_zxid",
    "mzxid": "modified_zxid",
    "ephemeralOwner": "ephemeral_owner",
    "numChildren": "children",
}
_SECRET_SCRAM_FIELDS: Final = ("salt", "stored_key", "server_key")


def read_dump(path: Path, chroot: str) -> Iterator[Znode]:
    """Yield the znodes of a dump below a chroot, with paths relative to it.

    Raises
    ------
    DumpFormatError
        The file cannot be read, is truncated, or a line is not a znode; the message names the line.
    """
    prefix = chroot.rstrip("/")
    opener = gzip.open if path.suffix == ".gz" else open
    number = 0
    try:
        with opener(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):  # noqa: B007 - the number is for the message
                if not line.strip():
                    continue
                znode = _znode(json.loads(line))
                if prefix and znode.path != prefix and not znode.path.startswith(f"{prefix}/"):
                    continue
                relative = znode.path[len(prefix) :] or "/"
                yield Znode(
                    relative,
                    znode.data,
                    znode.version,
                    znode.created_zxid,
                    znode.modified_zxid,
                    znode.ephemeral_owner,
                    znode.children,
                    znode.problem,
                )
    except (OSError, EOFError, zlib.error) as error:
        raise DumpFormatError(f"ZooKeeper dump {path} cannot be read: {error}") from error
    except (ValueError, KeyError, TypeError, binascii.Error, RecursionError) as error:
        raise DumpFormatError(f"ZooKeeper dump {path}, line {number}: not a znode: {error!r}") from error


def _znode(row: Any) -> Znode:
    path, problem = row["path"], row.get("problem")
    data = row.get("data") if problem is not None else row["data"]
    if not isinstance(path, str) or not path.startswith("/"):
        raise ValueError(f"path {path!r} is not absolute")
    if data is not None:
        if not isinstance(data, str):
            raise ValueError("data is neither text nor null")
        match row.get("enc", "utf8"):
            case "utf8":
                data = data.encode()
            case "b64":
                data = base64.b64decode(data, validate=True)
            case other:
                raise ValueError(f"unknown encoding {other!r}")
    numbers = {attribute: int(row.get(name) or 0) for name, attribute in _NUMBERS.items()}
    return Znode(path, data, problem=None if problem is None else str(problem), **numbers)


def write_dump(znodes: Iterable[Znode], path: Path, chroot: str, *, redact: bool = False) -> tuple[int, int]:
    """Write znodes to a dump, compressed if the name ends in `.gz`.

    Returns
    -------
    Number of znodes, and number of znodes that could not be read or listed. A verification of an incomplete dump is Inconclusive.
    """
    prefix = chroot.rstrip("/")
    opener = gzip.open if path.suffix == ".gz" else open
    count = unread = 0
    with opener(path, "wt", encoding="utf-8") as file:
        for znode in znodes:
            data = redacted_data(znode.path, znode.data) if redact else znode.data
            text, encoding = _text(data)
            absolute = prefix + (znode.path if znode.path != "/" or not prefix else "")
            row = {"path": absolute, "data": text, "enc": encoding}
            row |= {name: getattr(znode, attribute) for name, attribute in _NUMBERS.items()}
            if znode.problem is not None:
                row["problem"] = znode.problem
            file.write(json.dumps(row, ensure_ascii=False, separators=(", ", ": ")) + "\n")
            count += 1
            unread += znode.problem is not None
    return count, unread


def _text(data: bytes | None) -> tuple[str | None, str]:
    if data is None:
        return None, "utf8"
    try:
        return data.decode(), "utf8"
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "b64"


def redacted_data(path: str, data: bytes | None) -> bytes | None:
    """Return a znode's data with secrets replaced by their SHA-256. Data that cannot be parsed is replaced completely.

    SCRAM keys and encrypted passwords have enough entropy for a plain hash. Redacted SCRAM credentials can still be
    compared with a log; encrypted passwords by their length.
    """
    if not data or not path.startswith("/config/"):
        return data
    try:
        body = json.loads(data)
        config = body["config"]
        for name, value in config.items():
            if name in SCRAM_MECHANISMS:
                config[name] = ",".join(_redacted_pair(part, "=", _SECRET_SCRAM_FIELDS) for part in value.split(","))
            elif "encryptedPassword:" in value:
                config[name] = ",".join(_redacted_pair(part, ":", ("encryptedPassword",)) for part in value.split(","))
            elif is_sensitive_config(name):
                config[name] = redacted(value)
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    except (ValueError, KeyError, TypeError, AttributeError):
        return redacted(data.decode("latin-1")).encode() if not path.startswith("/config/changes") else data


def _redacted_pair(part: str, separator: str, secret_fields: tuple[str, ...]) -> str:
    name, found, value = part.partition(separator)
    return f"{name}{separator}{redacted(value)}" if found and name in secret_fields else part
