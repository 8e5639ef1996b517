"""``kraftbridge run``: the operator process. ``kraftbridge let-go``: what comes before its uninstallation."""

from __future__ import annotations

import argparse
import sys

from kraftbridge import __version__


def main(arguments: list[str] | None = None) -> int:
    """Run a subcommand and return its exit code."""
    parser = argparse.ArgumentParser(prog="kraftbridge", description=__doc__)
    parser.add_argument("--version", action="version", version=f"kraftbridge {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("run", help="run the operator in the cluster that this process belongs to")
    leaving = commands.add_parser("let-go", help="before helm uninstall: let the migrations at rest go")
    leaving.add_argument("--namespace", required=True, help="namespace of the operator")
    leaving.add_argument("--deployment", required=True, help="name of the operator's Deployment")
    leaving.add_argument("--pods", required=True, help="label selector of the operator's pods")
    leaving.add_argument("--watched", default="", help="namespaces that the operator serves, by comma; empty: all")
    leaving.add_argument("--release", default="", help="name of the operator's Helm release")
    leaving.add_argument("--revision", default="", help="revision of that release")
    leaving.add_argument("--wait-seconds", type=float, default=120.0, help="how long the operator may take to end")
    given = parser.parse_args(arguments)
    return let_go(given) if given.command == "let-go" else run()


def let_go(given: argparse.Namespace) -> int:
    """Let the migrations at rest go; 1 if one moves."""
    from kraftbridge.exceptions import MigrationError  # noqa: PLC0415 - as in `run`
    from kraftbridge.services.uninstall import OperatorPlace, let_migrations_go  # noqa: PLC0415
    from kraftbridge.storage.kubernetes import KubernetesStore  # noqa: PLC0415

    place = OperatorPlace(given.namespace, given.deployment, given.pods)
    watched = tuple(filter(None, given.watched.split(",")))
    try:
        names = let_migrations_go(KubernetesStore.connect(), place, watched, given.wait_seconds)
    except MigrationError as error:
        sys.stderr.write(f"{error}\n{_after_refusal(given)}")
        return 1
    sys.stdout.write("".join(f"KafkaMigration {name} no longer needs the operator\n" for name in names))
    return 0


def _after_refusal(given: argparse.Namespace) -> str:
    """Return how the release can be upgraded again, which Helm refuses after a hook of its uninstallation failed."""
    if not given.release:
        return ""
    from kraftbridge.outside.shell import command  # noqa: PLC0415 - as in `run`

    rollback = command("helm rollback {release} {revision} --namespace {namespace}", **vars(given))
    return f"Helm calls the release uninstalling, and upgrades it again only after: {rollback}\n"


def run() -> int:
    """Run the operator until SIGTERM or SIGINT."""
    import kopf  # noqa: PLC0415 - --help and --version need no kopf

    from kraftbridge import handlers  # noqa: F401, PLC0415 - importing registers them
    from kraftbridge.config import Settings  # noqa: PLC0415
    from kraftbridge.outside.visible import log_visibly  # noqa: PLC0415

    settings = Settings()
    log_visibly(settings.log_level.upper())
    kopf.run(standalone=True, clusterwide=not settings.watched_namespaces, namespaces=settings.watched_namespaces)
    return 0


if __name__ == "__main__":
    sys.exit(main())
