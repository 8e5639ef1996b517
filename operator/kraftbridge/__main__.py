"""``kraftbridge run``: the operator process."""

from __future__ import annotations

import argparse
import logging
import sys

from kraftbridge import __version__


def main(arguments: list[str] | None = None) -> int:
    """Run a subcommand and return its exit code."""
    parser = argparse.ArgumentParser(prog="kraftbridge", description=__doc__)
    parser.add_argument("--version", action="version", version=f"kraftbridge {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("run", help="run the operator in the cluster that this process belongs to")
    parser.parse_args(arguments)
    return run()


def run() -> int:
    """Run the operator until SIGTERM or SIGINT."""
    import kopf  # noqa: PLC0415 - --help and --version need no kopf

    from kraftbridge import handlers  # noqa: F401, PLC0415 - importing registers them
    from kraftbridge.config import Settings  # noqa: PLC0415

    settings = Settings()
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s")
    kopf.run(standalone=True, clusterwide=not settings.watched_namespaces, namespaces=settings.watched_namespaces)
    return 0


if __name__ == "__main__":
    sys.exit(main())
