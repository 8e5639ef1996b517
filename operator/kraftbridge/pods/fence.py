"""The probe of a fence: what it reaches outside must not be reached inside, before anything of the user's starts there.

A dry start runs it as a pod of its own, and as the first init container of every copy; a rehearsal runs it in its pod.
With ``--closed`` it succeeds only when no address can be reached in two consecutive rounds.
With ``--agent`` it then provides the agent's files.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

EXIT_REACHED: Final = 3
"""Exit code: an address could still be reached when the time was up."""
NOBODY: Final = "192.0.2.1:9"
"""An address that is nobody's (TEST-NET-1, RFC 5737). Who reaches it talks to a proxy in its own pod."""
METADATA_SERVER: Final = "169.254.169.254:80"
"""Where clouds give their nodes' credentials to whoever asks (AWS, Azure, Google, OpenStack)."""
AGENT: Final = Path("/opt/kraftbridge/dry-start-agent.jar")
TERMINATION_LOG: Final = Path("/dev/termination-log")
_CONNECT_SECONDS: Final = 1.5
_PAUSE_SECONDS: Final = 0.5
_ROUNDS: Final = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Prove the fence, then prepare the directories; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m kraftbridge.pods.fence", description=__doc__)
    parser.add_argument("--closed", action="append", default=[], metavar="HOST:PORT", help="must not be reachable")
    parser.add_argument("--within", type=float, default=25.0, metavar="SECONDS", help="until when policies must hold")
    parser.add_argument("--agent", type=Path, metavar="DIR", help="copy the agent and the salt there")
    parser.add_argument("--salt", type=Path, metavar="FILE")
    parser.add_argument(
        "--listener", type=Path, metavar="FILE", help="what the controllers' listener shows and asks for"
    )
    parser.add_argument("--meta-properties", type=Path, action="append", default=[], metavar="DIR")
    options = parser.parse_args(arguments)
    reached = reached_after(options.closed, options.within)
    if reached:
        tell(reached)
        return EXIT_REACHED
    if options.agent is not None:
        bring(options.agent, salt=options.salt, controllers=options.listener)
    for directory in options.meta_properties:
        write_meta_properties(directory, os.environ["META_PROPERTIES"])
    return 0


def reached_after(addresses: Sequence[str], within_seconds: float) -> list[str]:
    """Return the addresses that can still be reached after a time.

    There are none if no address was reached in two consecutive rounds.

    A network plugin may enforce policies some time after a pod has started,
    so an address that is reached at first is tried again.
    Only an established connection counts, because some plugins refuse forbidden connections.
    """
    if not addresses:
        return []
    deadline = time.monotonic() + within_seconds
    quiet = 0
    while True:
        reached = reachable(addresses)
        if reached and time.monotonic() > deadline:
            return reached
        quiet = 0 if reached else quiet + 1
        if quiet >= _ROUNDS:
            return []
        time.sleep(_PAUSE_SECONDS)


def reachable(addresses: Sequence[str]) -> list[str]:
    """Return those of the addresses that can be reached now."""
    with ThreadPoolExecutor(max_workers=min(32, max(1, len(addresses)))) as pool:
        return [a for a, open_ in zip(addresses, pool.map(connects, addresses), strict=True) if open_]


def connects(address: str) -> bool:
    """Return whether a TCP connection to an address can be established."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


def tell(reached: Sequence[str]) -> None:
    """Write the reached addresses to the log and as the termination message."""
    message = json.dumps({"reached": list(reached)})
    print(message, file=sys.stderr)  # noqa: T201 - a container's log
    with suppress(OSError):
        TERMINATION_LOG.write_text(message, encoding="ascii")


def bring(directory: Path, **files: Path | None) -> None:
    """Put the agent and its files where every container of the copy can read them as any user."""
    for name, source in {"agent.jar": AGENT, **files}.items():
        if source is None:
            continue
        target = directory / name
        shutil.copyfile(source, target)
        target.chmod(0o444)
    with suppress(PermissionError):
        directory.chmod(0o777)


def write_meta_properties(directory: Path, text: str) -> None:
    """Write the `meta.properties` of the running broker, readable and writable for any user of the image."""
    missing = [p for p in (directory, *directory.parents) if not p.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        folder.chmod(0o777)
    file = directory / "meta.properties"
    file.write_text(text, encoding="ascii")
    file.chmod(0o666)


if __name__ == "__main__":
    sys.exit(main())
