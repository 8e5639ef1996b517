"""Command line of the log server: ``python -m kraftbridge.logserver``."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from kraftbridge.logserver.server import LogServer

logger = logging.getLogger("kraftbridge.logserver")


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr)
    parser = argparse.ArgumentParser(prog="python -m kraftbridge.logserver", description=__doc__)
    parser.add_argument(
        "--directory", required=True, type=Path, help="Kafka's metadata.log.dir; __cluster_metadata-0 is in it"
    )
    parser.add_argument("--address", default="", help="address to listen on; all by default")
    parser.add_argument("--port", type=int, default=9443)
    parser.add_argument("--certificate", required=True, type=Path, help="PEM chain; read again when it changes")
    parser.add_argument("--key", required=True, type=Path, help="PEM key")
    parser.add_argument("--token-file", required=True, type=Path, help="bearer token; read again when it changes")
    options = parser.parse_args(arguments)
    try:
        server = LogServer(
            (options.address, options.port), options.directory, options.certificate, options.key, options.token_file
        )
    except OSError as error:
        logger.error("the log server cannot start: %s", error)  # noqa: TRY400 - expected; the message says all
        return 2
    signal.signal(signal.SIGTERM, lambda *_: server.stop())
    logger.info("serving the metadata log in %s on port %d", options.directory, server.server_address[1])
    with server:
        server.serve_forever(poll_interval=0.5)
    return 0


if __name__ == "__main__":
    sys.exit(main())
