"""Bounds of everything that comes from outside: bytes, time, depth and paths. Pure, but for `file`.

A tenant names the servers that the operator asks, and writes the Secrets and ConfigMaps that it reads. One operator serves all tenants, so what one of them sends
must not fill its memory or hold a thread. What exceeds a bound is an error of that one source. It names the object, what was received, the bound, and what to do.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

KIB: Final = 1 << 10
MIB: Final = 1 << 20

FILE_BYTES: Final = MIB
"""A file that a client setting names. A Secret holds no more (``MaxSecretSize`` of the API server)."""


class BoundExceededError(OSError):
    """A source sent or holds more than is accepted. It is an error of the source, like a broken connection.

    Parameters
    ----------
    source
        The object that exceeds the bound.
    received
        What was received, with its unit.
    bound
        What is accepted, with its unit.
    advice
        What to do.
    """

    def __init__(self, source: str, received: str, bound: str, advice: str) -> None:
        super().__init__(f"{source}: {received}, and {bound} is the most that is accepted. {advice}")


class PathRefusedError(OSError):
    """A setting names a file that nobody gave."""


def size(count: int) -> str:
    """Return a number of bytes as people write it."""
    return f"{count / MIB:.1f} MiB" if count >= MIB else f"{count / KIB:.1f} KiB" if count >= KIB else f"{count} bytes"


# ------------------------------------------------------------------------------------------------ paths


def held(files: Mapping[str, bytes], holder: str) -> Callable[[str], bytes]:
    """Return what reads a file that a setting names from the object that holds the setting; nothing else is ever opened.

    Parameters
    ----------
    files
        Content by key.
    holder
        The object, for the error.
    """

    def read(location: str) -> bytes:
        key = PurePosixPath(location).name
        if key not in files:
            raise PathRefusedError(
                f"{location} is no file of {holder}, and the operator opens no file of its own for it. "
                f"Put the file into {holder} as key {key or 'truststore.pem'}, or its PEM into the settings"
            )
        return files[key]

    return read


def file(location: str) -> bytes:
    """Return the content of a regular file of at most `FILE_BYTES`, for programs that run for one tenant only.

    Raises
    ------
    OSError
        The file does not exist, is a device or a pipe, or is larger.
    """
    path = Path(location)
    # A pipe is not opened: that would wait for its writer.
    if not stat.S_ISREG(path.stat().st_mode):
        raise PathRefusedError(f"{location} is no regular file. Name a file with certificates")
    with path.open("rb") as opened:
        content = opened.read(FILE_BYTES + 1)
    if len(content) > FILE_BYTES:
        raise BoundExceededError(location, f"more than {size(FILE_BYTES)}", size(FILE_BYTES), "Name a smaller file")
    return content


_BEGIN: Final = "-----BEGIN "
_END: Final = "-----END "
_DASHES: Final = "-----"
_KIND_CHARACTERS: Final = 64


def pem_blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield kind and content of each PEM block (RFC 7468), in time that grows with the text only.

    A search for the end of each beginning takes hours for a text of beginnings.
    """
    position = 0
    while (start := text.find(_BEGIN, position)) >= 0:
        kind, found, _ = text[start + len(_BEGIN) : start + len(_BEGIN) + _KIND_CHARACTERS].partition(_DASHES)
        content = start + len(_BEGIN) + len(kind) + len(_DASHES)
        if not found:
            position = start + len(_BEGIN)
            continue
        end = text.find(_END, content)
        if end < 0:
            return
        if text.startswith(f"{kind}{_DASHES}", end + len(_END)):
            yield kind, text[content:end]
        position = end + len(_END)
