"""The command line of a rehearsal."""

from __future__ import annotations

import argparse
import logging
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from kraftbridge.exceptions import MetadataError, PropertiesError, RehearsalError
from kraftbridge.models.rehearsal import RehearsalResult, RehearsalVerdict
from kraftbridge.outside.properties import parse_properties
from kraftbridge.outside.visible import log_visibly
from kraftbridge.rehearsal.brokers import AGENT, BrokerOptions, planned
from kraftbridge.rehearsal.rehearse import RehearsalOptions, rehearse

logger = logging.getLogger("kraftbridge.rehearsal")

_ABOUT = (
    "`python -m kraftbridge.rehearsal`: "
    "rehearse the migration of a cluster on a dump of its ZooKeeper, on this machine."
)

EXIT_CODES = {
    RehearsalVerdict.WORKS: 0,
    RehearsalVerdict.LOSES: 1,
    RehearsalVerdict.FAILS: 1,
    RehearsalVerdict.UNKNOWN: 2,
}
EXIT_BAD_INPUT = 2
_OF_ONE_BROKER = re.compile(r"([0-9]{1,9})=(.+)")


def main(arguments: Sequence[str] | None = None, *, not_isolated: str = "the process shares its network") -> int:
    """Run the command and return its exit code: 0 `Works`, 1 `Fails` or `Loses`, 2 `Unknown` or bad input.

    Parameters
    ----------
    not_isolated
        Reason why the processes of the rehearsal could reach more than this machine; empty if they cannot.
    """
    log_visibly()
    logging.getLogger("kazoo").setLevel(logging.WARNING)
    options = _parser().parse_args(arguments)
    if not_isolated:
        logger.warning("not isolated from the network (%s): replaced addresses alone keep Kafka here", not_isolated)
    try:
        settings = _settings(options)
        brokers = _broker_properties(options.broker_properties)
        with tempfile.TemporaryDirectory(prefix="kraftbridge-rehearsal-") as scratch:
            rehearsal = RehearsalOptions(
                kafka_home=options.kafka_home,
                work=options.work or Path(scratch) / "work",
                chroot=options.chroot,
                settings=settings,
                release_version=options.release_version,
                heap_bytes=options.heap,
                zookeeper_heap_bytes=options.zookeeper_heap,
                timeout_seconds=options.timeout,
            )
            plan = planned(options.zookeeper, rehearsal, BrokerOptions(brokers, options.agent)) if brokers else None
            result = rehearse(options.zookeeper, rehearsal)
            if plan is not None:
                result = plan.run(result)
    except (RehearsalError, MetadataError, PropertiesError, OSError) as error:
        logger.error("%s", error)  # noqa: TRY400 - expected; the message says all
        return EXIT_BAD_INPUT
    _write(result, options)
    return EXIT_CODES[result.verdict]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m kraftbridge.rehearsal", description=_ABOUT)
    parser.add_argument(
        "--zookeeper",
        type=Path,
        required=True,
        metavar="DUMP.jsonl[.gz]",
        help="dump of the tree, made by `python -m kraftbridge.verification dump` without --redact",
    )
    parser.add_argument("--chroot", default="", help="chroot in the dump, as in zookeeper.connect")
    parser.add_argument(
        "--kafka-home",
        type=Path,
        required=True,
        metavar="DIRECTORY",
        help="Kafka 3.9 (the version that the controllers will have), or its libs directory",
    )
    parser.add_argument(
        "--work",
        type=Path,
        metavar="DIRECTORY",
        help="scratch directory; emptied first, left for a look; a temporary one by default",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="settings",
        help="setting of the real controllers; a value @FILE is read from a file",
    )
    parser.add_argument("--properties", type=Path, metavar="FILE", help="the real controllers' server.properties")
    parser.add_argument(
        "--broker-properties",
        action="append",
        default=[],
        metavar="[ID=]FILE",
        help="also start a broker in KRaft mode, with this server.properties; once, or once for each broker id",
    )
    parser.add_argument(
        "--agent",
        type=Path,
        default=AGENT,
        metavar="JAR",
        help="what agent/build.sh makes; reads the settings in force of such a broker",
    )
    parser.add_argument("--release-version", default="3.9", help="the brokers' inter.broker.protocol.version")
    parser.add_argument("--heap", type=_bytes, default="1g", metavar="SIZE", help="heap of the controller (1g)")
    parser.add_argument(
        "--zookeeper-heap", type=_bytes, default="512m", metavar="SIZE", help="heap of ZooKeeper (512m)"
    )
    parser.add_argument(
        "--timeout", type=float, metavar="SECONDS", help="limit of the migration; default by the tree's size"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the result here")
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write the result as a page")
    return parser


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+)([kmg])", text.lower())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size as in -Xmx: 512m, 1g")
    return int(match[1]) << {"k": 10, "m": 20, "g": 30}[match[2]]


def _settings(options: argparse.Namespace) -> dict[str, str]:
    settings: dict[str, str] = {}
    if options.properties is not None:
        settings |= parse_properties(options.properties.read_text(encoding="utf-8"))
    for text in options.settings:
        key, separator, value = text.partition("=")
        if not separator:
            raise RehearsalError(f"--set {text}: not KEY=VALUE")
        settings[key] = Path(value[1:]).read_text(encoding="utf-8").strip() if value.startswith("@") else value
    return settings


def _broker_properties(texts: Sequence[str]) -> dict[int | None, dict[str, str]]:
    found: dict[int | None, dict[str, str]] = {}
    for text in texts:
        match = _OF_ONE_BROKER.fullmatch(text)
        broker = None if match is None else int(match[1])
        file = text if match is None else match[2]
        if broker in found:
            raise RehearsalError(f"--broker-properties {text}: given twice for the same brokers")
        found[broker] = parse_properties(Path(file).read_text(encoding="utf-8"))
    return found


def _write(result: RehearsalResult, options: argparse.Namespace) -> None:
    if options.json is not None:
        options.json.write_text(result.to_json(indent=2) + "\n", encoding="utf-8")
    if options.html is not None:
        from kraftbridge.rehearsal.page import render_page  # noqa: PLC0415 - only where a page is wanted

        options.html.write_text(render_page(result), encoding="utf-8")
    print("\n".join(_lines(result)))  # noqa: T201 - the answer


def _lines(result: RehearsalResult) -> Iterator[str]:
    forecast = result.forecast
    yield f"{result.verdict}: {result.reason}"
    if forecast.no_controller_seconds is not None:
        parts = f"copy {forecast.copy_seconds} s, sync {forecast.sync_seconds} s"
        yield f"without a controller: {forecast.no_controller_seconds} s ({parts})"
    if forecast.heap_bytes is not None:
        yield f"heap of each controller: {forecast.heap_bytes // (1 << 20)} MiB"
    for mend in result.mends:
        yield f"{mend.code} {mend.znode}: {mend.problem}"
        yield f"    {mend.command}"
    for problem in result.problems:
        if problem != result.reason:
            yield f"not known: {problem}"
    for broker in result.brokers:
        ids = ", ".join(map(str, [broker.broker, *broker.alike]))
        yield f"broker {ids} in KRaft mode: {broker.verdict}: {broker.reason}"
        for setting, why in broker.replaced_settings.items():
            yield f"    {setting} was replaced: {why}"
