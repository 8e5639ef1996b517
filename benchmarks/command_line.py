"""``python -m benchmarks``: ``fleet``, ``quorum`` (runs and raw samples), ``summary`` (their aggregation by Spark), ``verification`` and ``rehearsal``."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.fleet import tenants
from benchmarks.fleet.goals import goals, measure
from benchmarks.quorum.samples import MODES
from kraftbridge.exceptions import MigrationError

logger = logging.getLogger("benchmarks")

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    kinds = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_quorum_arguments(kinds)
    _add_summary_arguments(kinds.add_parser("summary", help="summarize raw samples of the quorum benchmark (PySpark)"))
    _add_verification_arguments(kinds)
    _add_fleet_arguments(kinds)
    _add_rehearsal_arguments(kinds)
    return run(parser.parse_args(arguments))


def _add_fleet_arguments(kinds: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    fleet = kinds.add_parser(
        "fleet", help="the operator beside many idle and unreachable migrations (fakes, no cluster)"
    )
    fleet.add_argument("--idle", type=int, default=100, metavar="N", help="migrations in Completed")
    fleet.add_argument(
        "--unreachable", type=int, default=100, metavar="N", help="migrations whose clusters do not answer"
    )
    fleet.add_argument("--rolling", type=int, default=10, metavar="N", help="migrations that roll, for ever")
    fleet.add_argument("--settle", type=float, default=240.0, metavar="SECONDS", help="until the fleet is at rest")
    fleet.add_argument("--seconds", type=float, default=120.0, help="how long each state is measured")
    fleet.add_argument("--topics", type=_positive, default=4_000, help="of the honest migration beside hostile ones")
    fleet.add_argument("--partitions", type=_positive, default=50, help="of each of these topics")
    fleet.add_argument("--only", choices=("rest", "tenants"), help="leave out the other half")
    fleet.set_defaults(act=_fleet)


def _fleet(options: argparse.Namespace) -> int:
    found = []
    if options.only != "tenants":
        alone, fleet = measure(options.idle, options.unreachable, options.rolling, options.settle, options.seconds)
        print(json.dumps({"alone": alone, "fleet": fleet}, indent=2))
        found += goals(alone, fleet)
    if options.only != "rest":
        reports = tenants.measure(options.topics, options.partitions, options.seconds)
        print(json.dumps(reports, indent=2))
        found += tenants.goals(reports)
    for goal in found:
        print(f"{'met' if goal.met else 'MISSED':8}{goal.what}: {goal.measured}, goal {goal.wanted}")
    return 0 if all(goal.met for goal in found) else 1


def _add_quorum_arguments(kinds: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    quorum = kinds.add_parser(
        "quorum",
        help="measure metadata changes on ZooKeeper, in dual-write and on KRaft",
        description="Without --bootstrap-servers: start ZooKeeper, three brokers and three controllers on this host, and take them from ZooKeeper to KRaft in each round.",
    )
    own = quorum.add_argument_group("clusters of its own (needs Java and a Kafka 3.9 distribution)")
    own.add_argument(
        "--kafka-home", type=Path, metavar="DIR", help="unpacked distribution; its libs are used (default: KAFKA_HOME)"
    )
    own.add_argument(
        "--metrics-agent", type=Path, metavar="JAR", help="jmx_prometheus_javaagent (default: the one among the libs)"
    )
    own.add_argument(
        "--sizes", type=_sizes, default=(1000,), metavar="N,…", help="partitions of the cluster, e.g. 1000,10000"
    )
    own.add_argument("--rounds", type=_positive, default=3, help="how often each size walks through the three modes")
    own.add_argument("--no-incidents", action="store_true", help="leave out broker restart and controller failover")
    theirs = quorum.add_argument_group("a cluster of yours (own topics only, no restarts)")
    theirs.add_argument("--bootstrap-servers", metavar="HOST:PORT,…")
    theirs.add_argument(
        "--bootstrap-controllers",
        metavar="ID@HOST:PORT,…",
        help="its quorum, whose leader and high watermark are noted",
    )
    theirs.add_argument(
        "--command-config", type=Path, metavar="FILE", help="client.properties: security.protocol, sasl.*, ssl.*"
    )
    theirs.add_argument(
        "--mode",
        choices=MODES,
        help="what the cluster runs on: the label of its samples",
    )
    quorum.add_argument("--load", choices=("tiny", "normal"), default="normal", help="how many changes")
    quorum.add_argument(
        "--pace", type=float, default=1.0, metavar="FACTOR", help="changes a second, as a factor of the load's own"
    )
    quorum.add_argument("--output", type=Path, required=True, metavar="DIR", help="raw samples go here")
    quorum.add_argument("--html", type=Path, metavar="FILE", help="then summarize and write the page (needs PySpark)")
    quorum.set_defaults(act=_quorum)


def summary_main(arguments: Sequence[str] | None = None) -> int:
    """Run the aggregation alone, as spark-submit does."""
    parser = argparse.ArgumentParser(description=__doc__)
    _add_summary_arguments(parser)
    return run(parser.parse_args(arguments))


def run(options: argparse.Namespace) -> int:
    """Carry out a parsed command and return its exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    for name in ("kazoo", "py4j"):
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        code: int = options.act(options)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except (MigrationError, ValueError, OSError) as error:
        logger.error("%s", error)  # noqa: TRY400 - an expected error; the message is complete
        return EXIT_BAD_INPUT
    return code


def _add_verification_arguments(kinds: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    verification = kinds.add_parser("verification", help="measure the verification beside its yardsticks (PySpark)")
    verification.add_argument(
        "--sizes",
        type=_sizes,
        default=(10_000, 30_000, 100_000, 300_000, 1_000_000),
        metavar="N,…",
        help="partitions of the clusters that are verified end to end; the last one is judged",
    )
    verification.add_argument("--log-partitions", type=_positive, default=400_000)
    verification.add_argument("--compared-rows", type=_positive, default=2_000_000)
    verification.add_argument("--only", choices=("zookeeper", "log", "compare", "end-to-end"), action="append")
    verification.add_argument("--driver-memory", default="4g")
    verification.add_argument("--output", type=Path, metavar="DIR", help="report.json and growth.svg go here")
    verification.set_defaults(act=_verification)


def _add_rehearsal_arguments(kinds: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    rehearsal = kinds.add_parser(
        "rehearsal", help="rehearse synthetic trees of several sizes (needs Java and Kafka 3.9)"
    )
    rehearsal.add_argument("--sizes", type=_sizes, default=(330, 20_000, 200_000), metavar="N,…", help="partitions")
    rehearsal.add_argument("--kafka-home", type=Path, required=True, metavar="DIR")
    rehearsal.add_argument(
        "--heap",
        type=lambda text: _positive(text) << 20,
        default=1 << 30,
        metavar="MIB",
        help="heap of ZooKeeper and of the controller (1024, as in the operator's pod)",
    )
    rehearsal.add_argument("--timeout", type=float, metavar="SECONDS", help="limit of each migration")
    rehearsal.add_argument(
        "--output", type=Path, required=True, metavar="DIR", help="scale.jsonl and scale.svg go here"
    )
    rehearsal.set_defaults(act=_rehearsal)


def _add_summary_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="files or folders of .jsonl or .jsonl.gz, on any file system that Spark reads",
    )
    parser.add_argument("--output", metavar="PATH", help="write the figures as JSON there, by Spark")
    parser.add_argument("--html", type=Path, metavar="FILE", help="the page, on this host")
    parser.add_argument(
        "--markdown", type=Path, metavar="FILE", help="the tables for docs, on this host; - for standard output"
    )
    parser.set_defaults(act=_summary)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(_positive(part) for part in text.split(","))


def _quorum(options: argparse.Namespace) -> int:
    from dataclasses import replace  # noqa: PLC0415

    from benchmarks.quorum.existing import measure_existing  # noqa: PLC0415 - needs the clients
    from benchmarks.quorum.run import LOADS, Plan, QuorumBenchmark, kafka_files  # noqa: PLC0415

    load = LOADS[options.load].at_pace(options.pace)
    if options.no_incidents:
        load = replace(load, incident_seconds=0)
    name = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    if options.bootstrap_servers:
        files = [measure_existing(options, load, name)]
    else:
        libraries, agent = kafka_files(options.kafka_home, options.metrics_agent)
        plan = Plan(options.sizes, options.rounds, load)
        files = QuorumBenchmark(plan, libraries, agent, options.output, name).run()
    for file in files:
        print(file)
    if options.html is None:
        return 0
    options.paths, options.markdown = [str(file) for file in files], None
    options.output = None
    return _summary(options)


def _summary(options: argparse.Namespace) -> int:
    from benchmarks.quorum.aggregation import read_rows, summarize  # noqa: PLC0415 - starts Spark's imports
    from benchmarks.quorum.page import markdown_tables, render_page  # noqa: PLC0415
    from kraftbridge.verification.run import open_session  # noqa: PLC0415

    session = open_session(local=True)
    summary = summarize(read_rows(session, options.paths))
    if options.output:
        text = session.createDataFrame([(summary.to_json(),)], "value string")
        text.coalesce(1).write.mode("overwrite").text(options.output)
    if options.html is not None:
        options.html.write_text(render_page(summary), encoding="utf-8")
    tables = markdown_tables(summary)
    if options.markdown is not None and str(options.markdown) != "-":
        options.markdown.write_text(tables, encoding="utf-8")
    else:
        print(tables)
    return 0


def _verification(options: argparse.Namespace) -> int:
    from benchmarks.verification.run import measure  # noqa: PLC0415 - starts Spark's imports

    measure(options)
    return 0


def _rehearsal(options: argparse.Namespace) -> int:
    from benchmarks.rehearsal import measure  # noqa: PLC0415 - reads the metadata library

    return measure(options)
