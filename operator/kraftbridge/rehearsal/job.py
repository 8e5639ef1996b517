"""`python -m kraftbridge.rehearsal.job read|fence|run`: the containers of a rehearsal's pod that run this package.

`read` is the first init container: it dumps the tree while ZooKeeper can be reached.
When it has ended, the operator isolates the pod with a NetworkPolicy.
`fence`, the second one, ends well only when none of the earlier addresses can be reached any more,
so no container of Kafka's image starts before that.
`run` rehearses, and writes its result into its log, because an isolated pod has no other way out.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import json
import logging
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from kraftbridge.exceptions import MetadataError, PropertiesError, RehearsalError
from kraftbridge.metadata.entities import read_encoder_secret
from kraftbridge.metadata.zookeeper.reader import ZooKeeperReader, write_dump
from kraftbridge.models.rehearsal import (
    BROKERS_FOLDER,
    BROKERS_KEY,
    PAGE_MARK,
    PLAN_KEY,
    PROPERTIES_KEY,
    REQUEST_KEY,
    RESULT_MARK,
    Ending,
    RehearsalRequest,
    RehearsalResult,
    RehearsalVerdict,
    RehearsedSettings,
)
from kraftbridge.models.report import digest_of
from kraftbridge.outside import bounds
from kraftbridge.outside.properties import parse_properties
from kraftbridge.outside.visible import all_visible, log_visibly
from kraftbridge.pods.fence import EXIT_REACHED, NOBODY, connects, reachable, reached_after
from kraftbridge.rehearsal.brokers import AGENT, BrokerOptions, planned_with, unknown_brokers
from kraftbridge.rehearsal.page import render_page
from kraftbridge.rehearsal.pod import END, RUNNER, PodProcesses
from kraftbridge.rehearsal.rehearse import RehearsalOptions, rehearse_with

logger = logging.getLogger("kraftbridge.rehearsal")

FENCE_SECONDS: Final = 120.0
"""Time limit for the operator and the network plugin to isolate the pod."""
_ADDRESSES: Final = "addresses.json"
_DUMP: Final = "tree.jsonl.gz"
_RUNNER: Final = "runner.sh"
_MAXIMUM_CHARACTERS: Final = 180_000
"""Size limit of both lines together: the API server gives the operator 256 KiB of a log."""
_SAMPLES: Final = 500
_RESERVE_SECONDS: Final = 120
"""For reading the tree, closing the pod and collecting the result."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the containers and return its exit code. `run` always writes a result."""
    log_visibly()
    logging.getLogger("kazoo").setLevel(logging.WARNING)
    parser = argparse.ArgumentParser(prog="python -m kraftbridge.rehearsal.job", description=__doc__)
    parser.add_argument("part", choices=("read", "fence", "run"))
    parser.add_argument("--request", type=Path, required=True, metavar="DIRECTORY", help="the mounted ConfigMap")
    parser.add_argument("--work", type=Path, required=True, metavar="DIRECTORY", help="the volume of all containers")
    parser.add_argument(
        "--request-digest", metavar="SHA256", default="", help="of the request; nothing is read for another one"
    )
    options = parser.parse_args(arguments)
    if options.part == "run":
        return run(options.request, options.work)
    if options.part == "fence":
        return prove_fence(options.work)
    try:
        read(options.request, options.work, options.request_digest)
    except (MetadataError, RehearsalError, OSError, ValidationError) as error:
        _tell(_without_verdict(f"the tree could not be read: {error}", datetime.now(UTC)))
        return 1
    return 0


def read(request_directory: Path, work: Path, request_digest: str = "") -> None:
    """Dump the tree, record the addresses that can be reached, and write the start command of Kafka's containers.

    Raises
    ------
    MetadataError
        ZooKeeper cannot be read.
    RehearsalError
        No address of ZooKeeper answers, so the isolation could not be proven,
        or somebody has changed the request, and so where this pod would log in.
    """
    request = _request(request_directory, request_digest)
    with ZooKeeperReader(request.zookeeper) as reader:
        znodes, unread = write_dump(reader.walk(), work / _DUMP, "")
    logger.info("%d znodes are in the copy, %d could not be read", znodes, unread)
    reached = reached_outside(request)
    if not reached:
        raise RehearsalError("none of ZooKeeper's addresses answers a connection, so a fence could not be proven")
    (work / _ADDRESSES).write_text(json.dumps(reached))
    (work / _RUNNER).write_text(RUNNER)


def prove_fence(work: Path) -> int:
    """Wait until nothing can be reached that was reached before; else write a result that says what still is."""
    addresses: list[str] = json.loads((work / _ADDRESSES).read_text())
    logger.info("waiting until none of %d addresses answers", len(addresses))
    reached = reached_after(addresses, FENCE_SECONDS)
    if addresses and not reached:
        logger.info("nothing can be reached; Kafka may start")
        return 0
    words = (
        f"egress is open: {', '.join(reached)} still answers after {FENCE_SECONDS:.0f} s, "
        "so no controller was started; use a network plugin that enforces NetworkPolicies"
    )
    if connects(NOBODY):
        words = (
            f"a proxy in this pod accepts every connection, also one to {NOBODY}, where nobody is: the fence cannot be "
            "proven, so no controller was started. Keep the mesh's injector away from this pod: the operator's pods "
            "opt out by annotations and labels, unless spec.pods sets them otherwise"
        )
    if not addresses:
        words = "no address to prove the fence with, so no controller was started"
    _tell(_without_verdict(words, datetime.now(UTC)))
    return EXIT_REACHED


def run(
    request_directory: Path,
    work: Path,
    rehearsal: Callable[[Path, Path], RehearsalResult] | None = None,
) -> int:
    """Rehearse in the isolated pod and write the result to the log."""
    started = datetime.now(UTC)
    try:
        result = (rehearsal or _rehearse)(request_directory, work)
    except (MetadataError, RehearsalError, PropertiesError, OSError, ValidationError) as error:
        result = _without_verdict(str(error), started)
    finally:
        (work / END).touch()
    _tell(with_plan(result, request_directory))
    return 0


def with_plan(result: RehearsalResult, request_directory: Path) -> RehearsalResult:
    """Return the result with the plan of the rolling restarts, if one was given."""
    plan = request_directory / PLAN_KEY
    if not plan.exists():
        return result
    return result.model_copy(update={"plan": all_visible(plan.read_text(encoding="utf-8").splitlines())})


def _rehearse(request_directory: Path, work: Path) -> RehearsalResult:
    began = time.monotonic()
    request = _request(request_directory)
    settings = parse_properties((request_directory / PROPERTIES_KEY).read_text(encoding="utf-8"))
    if request.listener_path is not None:
        with suppress(FileNotFoundError):
            settings |= parse_properties(Path(request.listener_path).read_text(encoding="utf-8"))
    secret = read_encoder_secret(request.password_encoder_secret_path)
    if secret:
        settings["password.encoder.secret"] = secret
    options = RehearsalOptions(
        kafka_home=None,
        work=work,
        settings=settings,
        release_version=request.release_version,
        heap_bytes=request.heap_bytes,
        zookeeper_heap_bytes=request.zookeeper_heap_bytes,
        sample_limit=_SAMPLES,
    )
    result = rehearse_with(PodProcesses(work), work / _DUMP, options)
    packed = request_directory / BROKERS_KEY
    if not packed.exists():
        return result
    return with_brokers(result, packed.read_bytes(), options, began + request.timeout_seconds - _RESERVE_SECONDS)


def with_brokers(
    result: RehearsalResult, packed: bytes, options: RehearsalOptions, until: float, agent: Path = AGENT
) -> RehearsalResult:
    """Start the brokers, too, and return the result with theirs; whatever fails, the controllers' part stays.

    Parameters
    ----------
    packed
        The brokers' `RehearsedSettings`, compressed.
    until
        When no further broker is started, by ``time.monotonic``.
    """
    text = bounds.unpacked(packed, "the brokers' settings", bounds.COPIES_BYTES, "Rehearse again")
    given = TypeAdapter(list[RehearsedSettings]).validate_json(text)
    dump = options.work / _DUMP
    try:
        # The containers of Kafka's images see the shared volume alone.
        jar = Path(shutil.copy(agent, options.work / agent.name))
        brokers = BrokerOptions(
            properties={each.broker: each.settings for each in given},
            left_out={each.broker: each.left_out for each in given},
            images={each.broker: each.image for each in given},
            has_stores=False,
            until=until,
        )
        plan = planned_with(lambda: PodProcesses(options.work / BROKERS_FOLDER, jar), dump, options, brokers)
        return plan.run(result)
    except Exception as error:
        logger.exception("the brokers could not be rehearsed")
        return unknown_brokers(result, [each.broker for each in given], str(error))


def _request(directory: Path, digest: str = "") -> RehearsalRequest:
    """Return the request in the mounted ConfigMap; another one than that of the digest is refused, ``""`` takes any."""
    text = (directory / REQUEST_KEY).read_text(encoding="utf-8")
    if digest and digest_of(text) != digest:
        raise RehearsalError("the request in the ConfigMap is not the one that the operator made; nothing is read")
    return RehearsalRequest.model_validate_json(text)


def reached_outside(request: RehearsalRequest) -> list[str]:
    """Return the addresses of ZooKeeper, brokers, API server and beyond that are reached; none if ZooKeeper is not.

    They are what the fence must close: an address that did not answer before would prove nothing.
    """
    zookeeper = reachable(_addresses(request.zookeeper.connect.partition("/")[0]))
    if not zookeeper:
        return []
    others = _addresses(request.bootstrap_servers)
    if server := os.environ.get("KUBERNETES_SERVICE_HOST"):
        others += _addresses(f"{server}:{os.environ.get('KUBERNETES_SERVICE_PORT', '443')}")
    return list(dict.fromkeys([*zookeeper, *reachable([*others, *request.beyond_the_cluster])]))


def _addresses(hosts: str) -> list[str]:
    """Return every address that a list of ``host:port`` resolves to, as ``ip:port``."""
    addresses: dict[str, None] = {}
    for entry in hosts.split(","):
        host, _, port = entry.strip().rpartition(":")
        with suppress(OSError):
            answers = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
            addresses |= {f"{_bracketed(str(answer[4][0]))}:{port}": None for answer in answers}
    return list(addresses)


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _without_verdict(reason: str, started: datetime) -> RehearsalResult:
    return RehearsalResult(
        verdict=RehearsalVerdict.UNKNOWN,
        reason=reason,
        ending=Ending.NOT_STARTED,
        started_at=started,
        finished_at=datetime.now(UTC),
    )


def _tell(result: RehearsalResult) -> None:
    for line in lines(result):
        print(line, flush=True)  # noqa: T201 - the log is the way out


def lines(result: RehearsalResult, limit: int = _MAXIMUM_CHARACTERS) -> list[str]:
    """Return the log lines with the result and, if it fits, the page. Long lists are halved until the result fits."""
    packed = _packed(result.to_json())
    while not _fits(packed, result, limit) and (shorter := _shorter(result)) != result:
        result = shorter
        packed = _packed(result.to_json())
    page = _packed(render_page(result))
    if len(packed) + len(page) > limit:
        return [f"{RESULT_MARK}{packed}"]
    return [f"{PAGE_MARK}{page}", f"{RESULT_MARK}{packed}"]


def _fits(packed: str, result: RehearsalResult, limit: int) -> bool:
    return len(packed) <= limit and len(result.to_json().encode()) <= bounds.RESULT_BYTES


def _shorter(result: RehearsalResult) -> RehearsalResult:
    """Return the result with half of each list. Verdicts and settings that are not in force stay."""
    lists = {name: getattr(result, name) for name in ("differences", "mirror", "words", "mends", "problems")}
    shorter: dict[str, object] = {name: items[: len(items) // 2] for name, items in lists.items()}
    brokers = [
        each.model_copy(update={"words": [], "replaced_settings": {}, "compared": each.unheld})
        for each in result.brokers
    ]
    return result.model_copy(update={**shorter, "brokers": brokers})


def _packed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


if __name__ == "__main__":
    sys.exit(main())
