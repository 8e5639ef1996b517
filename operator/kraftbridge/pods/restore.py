"""Unpacks a kept copy of the metadata log: ``python -m kraftbridge.pods.restore``.

``volume`` runs as an init container of each controller while a lost quorum is restored:
it puts the copy in the place of what the volume holds.
It does so once for each copy, so a controller that restarts later keeps what it has written since.
What the volume held before is kept beside it.

``unpack`` runs in front of a verification that compares the copy.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import secrets
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

from kraftbridge.exceptions import LogUnavailableError
from kraftbridge.metadata.log.archive import QUORUM_STATE, quorum_state, unpack_log
from kraftbridge.metadata.log.files import LOG_FOLDER, META_PROPERTIES

MARK: Final = "restored-from"
"""File beside the log with the name of the copy."""
MOST_BYTES: Final = 4 << 30
"""Size of an unpacked log."""


class RestoreError(Exception):
    """The copy cannot be put into place."""


def opened(folder: Path, sha256: str) -> IO[bytes]:
    """Return the archive of which a folder holds the parts, in the order of their names.

    Raises
    ------
    RestoreError
        They are not the copy with this digest.
    """
    data = b"".join(path.read_bytes() for path in sorted(folder.glob("part-*")))
    digest = hashlib.sha256(data).hexdigest()
    if digest != sha256:
        raise RestoreError(f"the {len(data)} bytes in {folder} have SHA-256 {digest}, and the kept copy has {sha256}")
    return io.BytesIO(data)


def restore_volume(
    archive: IO[bytes], directory: Path, copy_id: str, epoch: int, voters: Sequence[int], node_id: int, cluster_id: str
) -> bool:
    """Put the copy in the place of a controller's log directory; return False if it was put there before.

    Parameters
    ----------
    directory
        ``log.dirs`` of the controller. An interruption leaves it as it was, or restored.
    epoch
        Leader epoch at which the voters begin.
    """
    mark = directory / MARK
    if mark.is_file() and mark.read_text(encoding="utf-8").strip() == copy_id:
        return False
    restored = directory.with_name(f"{directory.name}.restoring")
    shutil.rmtree(restored, ignore_errors=True)
    log = restored / LOG_FOLDER
    log.mkdir(parents=True)
    unpack_log(archive, log, MOST_BYTES)
    (log / QUORUM_STATE).write_text(quorum_state(voters, epoch), encoding="utf-8")
    (restored / META_PROPERTIES).write_text(_meta_properties(node_id, cluster_id), encoding="utf-8")
    (restored / MARK).write_text(copy_id, encoding="utf-8")
    if directory.exists():
        before = directory.with_name(f"{directory.name}.before-{copy_id}")
        shutil.rmtree(before, ignore_errors=True)
        directory.rename(before)
    restored.rename(directory)
    return True


def _meta_properties(node_id: int, cluster_id: str) -> str:
    """Return what ``kafka-storage format`` writes beside a log (``MetaProperties``, version 1)."""
    directory_id = base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
    return f"version=1\nnode.id={node_id}\ncluster.id={cluster_id}\ndirectory.id={directory_id}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Unpack the copy; return 1 and say why if it cannot be done."""
    parser = argparse.ArgumentParser(prog="python -m kraftbridge.pods.restore", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("unpack", "volume"):
        command = commands.add_parser(name)
        command.add_argument("--copy", required=True, type=Path, help="folder with the parts of the copy")
        command.add_argument("--sha256", required=True, help="digest of the parts together")
        command.add_argument("--directory", required=True, type=Path, help="folder for the log")
        if name == "volume":
            command.add_argument("--id", required=True, help="name of the copy")
            command.add_argument("--epoch", required=True, type=int, help="leader epoch at which the voters begin")
            command.add_argument("--voters", required=True, help="node ids, separated by commas")
            command.add_argument("--node-id", required=True, type=int)
            command.add_argument("--cluster-id", required=True)
    options = parser.parse_args(arguments)
    try:
        archive = opened(options.copy, options.sha256)
        if options.command == "unpack":
            log = options.directory / LOG_FOLDER
            log.mkdir(parents=True, exist_ok=True)
            unpack_log(archive, log, MOST_BYTES)
            return 0
        voters = [int(voter) for voter in options.voters.split(",")]
        done = restore_volume(
            archive, options.directory, options.id, options.epoch, voters, options.node_id, options.cluster_id
        )
    except (RestoreError, LogUnavailableError, OSError) as error:
        sys.stderr.write(f"the metadata log was not restored: {error}\n")
        return 1
    words = "is restored from" if done else "was restored before from"
    sys.stdout.write(f"{options.directory} {words} the kept copy {options.id}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
