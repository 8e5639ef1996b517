"""The command line of a verification."""

from __future__ import annotations

import argparse
import logging
import os
import secrets
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from kraftbridge.exceptions import MetadataError
from kraftbridge.models.report import (
    EXIT_BAD_REQUEST,
    EXIT_FINISHED,
    EXIT_NOT_WANTED,
    ConfigMapReference,
    Profile,
    Verdict,
    VerificationReport,
    VerificationRequest,
)
from kraftbridge.outside.visible import log_visibly

if TYPE_CHECKING:
    from kraftbridge.verification.inputs import Dump

logger = logging.getLogger("kraftbridge.verification")

_ABOUT = (
    "`python -m kraftbridge.verification`: `run` (started by the operator); "
    "`offline`, `dump`, `watch` and `page` (started by hand)."
)

EXIT_CODES = {Verdict.CONSISTENT: 0, Verdict.INCONSISTENT: 1, Verdict.INCONCLUSIVE: 2}
"""Exit codes of `offline`. Bad input is 2 too."""
EXIT_INCOMPLETE = 2
"""Exit code of `dump` if a part of the tree could not be read."""
EXIT_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    log_visibly()
    logging.getLogger("kazoo").setLevel(logging.WARNING)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    options = _parser().parse_args(arguments)
    try:
        code: int = options.command(options)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except MetadataError as error:
        logger.error("%s", error)  # noqa: TRY400 - expected; the message says all
        return EXIT_BAD_REQUEST
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m kraftbridge.verification", description=_ABOUT)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="what the operator starts: verify a live cluster")
    source = run.add_mutually_exclusive_group(required=True)
    source.add_argument("--request", type=Path, metavar="FILE", help="request as JSON; starts at once")
    source.add_argument("--configmap", metavar="NAMESPACE/NAME", help="request in a ConfigMap; waits for its go")
    run.add_argument(
        "--request-digest", metavar="SHA256", default="", help="of the request in the ConfigMap; another one is refused"
    )
    run.add_argument("--api-server", metavar="URL", help="default: the cluster that this pod is in")
    run.add_argument("--service-account", type=Path, metavar="DIRECTORY", help="folder with token and ca.crt")
    run.add_argument(
        "--master",
        metavar="MASTER",
        help="Spark master, in place of the one that submitted this; local[N] runs no executor",
    )
    run.add_argument("--json", type=Path, metavar="FILE", help="also write the report here")
    run.add_argument("--html", type=Path, metavar="FILE", help="also write the report as a page")
    run.set_defaults(command=_run)

    offline = commands.add_parser("offline", help="verify copies of a cluster's data; exit code 0, 1 or 2")
    offline.add_argument("--zookeeper", type=Path, metavar="DUMP.jsonl[.gz]", help="dump of ZooKeeper")
    offline.add_argument("--chroot", default="", help="chroot in the dump, as in zookeeper.connect")
    offline.add_argument(
        "--voter",
        action="append",
        default=[],
        type=_voter,
        metavar="NAME=DIRECTORY",
        help="copy of a controller's metadata log folder (the parent of __cluster_metadata-0); repeat for each",
    )
    offline.add_argument("--profile", type=Profile, choices=list(Profile), default=Profile.DUAL_WRITE)
    offline.add_argument("--password-encoder-secret-file", metavar="FILE", help="brokers' password.encoder.secret")
    offline.add_argument("--key-file", metavar="FILE", help="key of a redacted dump's hashes, as `dump` made it")
    offline.add_argument("--sample-limit", type=int, default=1000, help="bound of the lists in the report")
    offline.add_argument("--ansi", choices=("true", "false"), help="spark.sql.ansi.enabled")
    offline.add_argument("--json", type=Path, metavar="FILE")
    offline.add_argument("--html", type=Path, metavar="FILE")
    offline.set_defaults(command=_offline)

    dump = commands.add_parser("dump", help="write a dump of a live ZooKeeper tree")
    dump.add_argument("--connect", required=True, help="connect string with chroot, as in zookeeper.connect")
    dump.add_argument("--output", required=True, type=Path, metavar="DUMP.jsonl[.gz]")
    _add_redaction(dump)
    dump.add_argument("--credentials", metavar="DIRECTORY", help="folder with username, password and, maybe, scheme")
    dump.add_argument("--tls", metavar="DIRECTORY", help="folder with ca.crt and, maybe, tls.crt and tls.key")
    dump.set_defaults(command=_dump)

    watch = commands.add_parser(
        "watch", help="write a dump now, and again while Kafka copies the tree: for profile copy"
    )
    watch.add_argument("--connect", required=True, help="connect string with chroot, as in zookeeper.connect")
    watch.add_argument("--output", required=True, type=Path, metavar="DUMP.jsonl[.gz]")
    _add_redaction(watch)
    watch.add_argument("--credentials", metavar="DIRECTORY", help="folder with username, password and, maybe, scheme")
    watch.add_argument("--tls", metavar="DIRECTORY", help="folder with ca.crt and, maybe, tls.crt and tls.key")
    watch.add_argument(
        "--timeout", type=float, default=3600.0, metavar="SECONDS", help="how long to wait for the claim"
    )
    watch.set_defaults(command=_watch)

    page = commands.add_parser("page", help="write the page of a report that a run left")
    page.add_argument("report", type=Path, metavar="REPORT.json", help="unpacked from the run's ConfigMap")
    page.add_argument("html", type=Path, metavar="FILE.html")
    page.set_defaults(command=_page, json=None)
    return parser


def _add_redaction(command: argparse.ArgumentParser) -> None:
    command.add_argument("--redact", action="store_true", help="replace secrets by their hash; needs --key-file")
    command.add_argument(
        "--key-file",
        type=Path,
        metavar="FILE",
        help="key of the hashes; made if it does not exist",
    )


def _key(options: argparse.Namespace) -> bytes | None:
    """Return the key of a redacted dump's hashes; None for a dump that keeps its secrets."""
    from kraftbridge.metadata.entities import read_key  # noqa: PLC0415

    if not options.redact:
        return None
    if options.key_file is None:
        raise MetadataError("--redact needs --key-file FILE: without a key, most passwords are found by their hash")
    file: Path = options.key_file
    if not file.exists():
        try:
            with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
                opened.write(secrets.token_hex(32) + "\n")
        except OSError as error:
            raise MetadataError(f"the key {file} cannot be written: {error}") from error
        logger.info("made the key %s: comparing the dump needs it, and who has it can try passwords", file)
    return read_key(file)


def _voter(text: str) -> tuple[str, Path]:
    name, separator, folder = text.partition("=")
    if not separator or not name or not folder:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=DIRECTORY")
    return name, Path(folder)


def _run(options: argparse.Namespace) -> int:
    from kraftbridge.verification.job import armed_run, immediate_run  # noqa: PLC0415 - starts Spark's imports

    if options.request is not None:
        try:
            request = VerificationRequest.model_validate_json(options.request.read_bytes())
        except (OSError, ValidationError) as error:
            logger.error("request %s: %s", options.request, error)  # noqa: TRY400 - expected
            return EXIT_BAD_REQUEST
        report = immediate_run(request, options.master)
    else:
        from kraftbridge.verification.configmap import NotWantedError, RunConfigMap  # noqa: PLC0415

        namespace, _, name = options.configmap.partition("/")
        config_map = RunConfigMap(ConfigMapReference(namespace=namespace, name=name), _api_server(options))
        if options.service_account is not None:
            config_map.account = options.service_account
        try:
            report = armed_run(config_map, options.master, options.request_digest)
        except NotWantedError as error:
            logger.error("%s", error)  # noqa: TRY400 - expected
            return EXIT_NOT_WANTED
    _write(report, options)
    return EXIT_FINISHED


def _api_server(options: argparse.Namespace) -> str:
    if options.api_server:
        return str(options.api_server).rstrip("/")
    host = os.environ.get("KUBERNETES_SERVICE_HOST")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise MetadataError("not in a cluster (KUBERNETES_SERVICE_HOST is not set): give --api-server")
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _offline(options: argparse.Namespace) -> int:
    from kraftbridge.verification.inputs import offline_inputs  # noqa: PLC0415 - starts Spark's imports
    from kraftbridge.verification.job import verify  # noqa: PLC0415
    from kraftbridge.verification.run import open_session  # noqa: PLC0415

    dump = _dump_of(options)
    inputs = offline_inputs(options.profile, dump, options.voter, options.password_encoder_secret_file)
    request = VerificationRequest(
        run_id=f"offline-{uuid.uuid4()}",
        profile=options.profile,
        sample_limit=options.sample_limit,
        deadline_seconds=86_400,
    )
    session = open_session(local=True, ansi=None if options.ansi is None else options.ansi == "true")
    report = verify(session, request, inputs)
    _write(report, options)
    return EXIT_CODES[report.verdict]


def _dump_of(options: argparse.Namespace) -> Dump | None:
    from kraftbridge.verification.inputs import Dump  # noqa: PLC0415 - starts Spark's imports

    if not options.zookeeper:
        return None
    return Dump.of(options.zookeeper, options.chroot, options.key_file)


def _write(report: VerificationReport, options: argparse.Namespace) -> None:
    if options.json is not None:
        options.json.write_text(report.to_json(indent=2) + "\n", encoding="utf-8")
    if options.html is not None:
        from kraftbridge.verification.page import render_page  # noqa: PLC0415 - only where a page is wanted

        options.html.write_text(render_page(report), encoding="utf-8")
    logger.info("%s: %s", report.verdict, report.reason)


def _page(options: argparse.Namespace) -> int:
    try:
        report = VerificationReport.model_validate_json(options.report.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise MetadataError(f"{options.report} cannot be read as a verification's report: {error}") from error
    _write(report, options)
    return EXIT_FINISHED


def _dump(options: argparse.Namespace) -> int:
    from kraftbridge.metadata.zookeeper.reader import (  # noqa: PLC0415
        ZooKeeperReader,
        split_connect,
        write_dump,
    )
    from kraftbridge.models.report import ZooKeeperAccess  # noqa: PLC0415

    access = ZooKeeperAccess(connect=options.connect, credentials_path=options.credentials, tls_path=options.tls)
    key = _key(options)
    with ZooKeeperReader(access) as reader:
        reader.synchronize()
        count, unread = write_dump(reader.walk_fenced(), options.output, split_connect(options.connect)[1], key=key)
    logger.info("%d znodes in %s", count, options.output)
    if unread:
        logger.error(
            "%d of them could not be read or listed, and everything below them is missing. "
            "The dump records this, and a verification "
            "of it is Inconclusive. Write the dump with credentials that can read the whole tree.",
            unread,
        )
        return EXIT_INCOMPLETE
    return 0


def _watch(options: argparse.Namespace) -> int:
    from kraftbridge.metadata.zookeeper.reader import split_connect  # noqa: PLC0415 - needs kazoo
    from kraftbridge.models.report import ZooKeeperAccess  # noqa: PLC0415
    from kraftbridge.verification.watch import watch  # noqa: PLC0415

    access = ZooKeeperAccess(connect=options.connect, credentials_path=options.credentials, tls_path=options.tls)
    chroot = split_connect(options.connect)[1]
    watched = watch(access, options.output, chroot, key=_key(options), deadline_seconds=options.timeout)
    if watched.complete:
        logger.info("%d znodes in %s, read while Kafka copied", watched.znodes, options.output)
        return 0
    why = "the sync had begun before the tree was read" if watched.claimed else f"no claim in {options.timeout:g} s"
    logger.error("%s: %s holds the tree from before the takeover", why, options.output)
    return EXIT_BAD_REQUEST
