"""One run: inputs, Spark session, findings and verdict."""

from __future__ import annotations

import json
import os
import secrets as random_bytes
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, cast

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from kraftbridge.constants import SPARK_JAVA_OPTIONS
from kraftbridge.exceptions import MetadataError
from kraftbridge.metadata.copying import NOTHING_TO_COMPARE
from kraftbridge.metadata.entities import PASSWORD_LENGTH_PREFIX
from kraftbridge.models.catalogue import Code, Severity
from kraftbridge.models.entities import ENTITY_KINDS, EntityKind, KindCounts, Secrecy
from kraftbridge.models.report import (
    AttributeDifference,
    Difference,
    DifferenceState,
    Fence,
    Finding,
    Profile,
    Verdict,
    VerificationRequest,
)
from kraftbridge.models.secrecy import is_secret_setting
from kraftbridge.verification.compare.places import Comparison, Copy, Flagged, compare
from kraftbridge.verification.inputs import Inputs
from kraftbridge.verification.sources.brokers import BrokerServedSource
from kraftbridge.verification.sources.log import KraftLogSource
from kraftbridge.verification.sources.rows import LOG, SCHEMA_DDL, ZOOKEEPER, Leg, LogPlan, LogVoter
from kraftbridge.verification.sources.zookeeper import ZooKeeperSource

_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")
_MAXIMUM_ATTRIBUTES: Final = 40
_MAXIMUM_VALUE_CHARACTERS: Final = 1_000
_HIDDEN: Final = '"(hidden)"'


def difference_of_flagged(flagged: Flagged, places: Sequence[str]) -> Difference:
    """Return the difference that a comparison found."""
    copies = {place: flagged.copies[place] for place in places}
    offsets = {place: copy.offset for place, copy in copies.items()}
    return difference(
        flagged.kind, flagged.key, copies, log_offset=offsets.get(LOG), zookeeper_offset=offsets.get(ZOOKEEPER)
    )


def difference(
    kind: EntityKind,
    key: str,
    copies: Mapping[str, Copy],
    *,
    log_offset: int | None = None,
    zookeeper_offset: int | None = None,
) -> Difference:
    """Return what differs between an entity's copies, by attribute, without sensitive values."""
    present = [place for place, copy in copies.items() if copy.count]
    absent = [place for place, copy in copies.items() if not copy.count]
    reference = LOG if LOG in copies else ZOOKEEPER
    if any(copy.count > 1 for copy in copies.values()):
        state = DifferenceState.DUPLICATE
    elif not absent:
        state = DifferenceState.CHANGED
    elif reference in absent:
        state = DifferenceState.EXTRA
    else:
        state = DifferenceState.MISSING
    return Difference(
        kind=kind,
        key=key,
        state=state,
        present_in=present,
        absent_in=absent,
        attributes=_attributes(kind, {place: _object(copy.value) for place, copy in copies.items()}),
        log_offset=log_offset,
        zookeeper_offset=zookeeper_offset,
    )


def _object(value: str | None) -> dict[str, Any]:
    attributes: dict[str, Any] = json.loads(value or "{}")
    return attributes


def _attributes(kind: EntityKind, objects: Mapping[str, dict[str, Any]]) -> list[AttributeDifference]:
    names = sorted(set().union(*objects.values()))
    configs = ENTITY_KINDS[kind].secrecy is Secrecy.SENSITIVE_CONFIGS
    result = []
    for name in names:
        values = {place: _shown(attributes, name) for place, attributes in objects.items()}
        if len(set(values.values())) == 1:
            continue
        if configs and (is_secret_setting(name) or any(map(_is_marked, values.values()))):
            values = {place: _without_secret(value) for place, value in values.items()}
        result.append(AttributeDifference(name=name, values=values))
    return result[:_MAXIMUM_ATTRIBUTES]


def _shown(attributes: Mapping[str, Any], name: str) -> str | None:
    if name not in attributes:
        return None
    text = json.dumps(attributes[name], ensure_ascii=False, sort_keys=True).encode("utf-8", "backslashreplace").decode()
    if len(text) <= _MAXIMUM_VALUE_CHARACTERS:
        return text
    return text[:_MAXIMUM_VALUE_CHARACTERS] + "…"


def _is_marked(value: str | None) -> bool:
    return value is not None and value.startswith(('"secret:', '"password of length', '"cipher text'))


def _without_secret(value: str | None) -> str | None:
    if value is None or _is_marked(value):
        return value
    return _HIDDEN


_SHOWN: Final = 3


@dataclass(slots=True)
class Outcome:
    """The results of a run so far."""

    differences: dict[tuple[EntityKind, str], Difference] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    finding_counts: Counter[Severity] = field(default_factory=Counter)
    counts: dict[EntityKind, KindCounts] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    """Errors that concern a whole place. With any of them, the verdict is not `Consistent`."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """Znodes that cannot be decoded: the error by path."""
    unread: dict[str, str] = field(default_factory=dict)
    """Znodes that cannot be read or listed: the error by path. Everything below them is unknown too."""
    alternatives: dict[tuple[EntityKind, str], str] = field(default_factory=dict)
    """Other correct forms of entities in ZooKeeper."""
    cluster_id: str | None = None
    """Cluster id in `/cluster/id`."""
    unresolved: list[str] = field(default_factory=list)
    """Entities that were in flight at every reading."""
    uncounted: int = 0
    """Differing entities beyond those in `differences`."""
    passwords: list[str] = field(default_factory=list)
    """Password configs that were compared by length only."""
    leader_note: dict[str, Any] = field(default_factory=dict)
    """Facts beside the rows that `sources.log` returned for the leader's log."""
    voter_notes: list[dict[str, Any]] = field(default_factory=list)
    """The same for each voter's log."""
    claim: dict[str, Any] = field(default_factory=dict)
    nothing_to_compare: bool = False
    """The tree was read completely, and neither it nor the log holds an entity."""

    def add_settled(self, settled: Outcome) -> int:
        """Add what a task has settled; return the number of differences in it."""
        for established in settled.differences.values():
            self.add_difference(established)
        self.problems += settled.problems
        self.unresolved += settled.unresolved
        return len(settled.differences)

    def add_difference(self, difference: Difference) -> None:
        """Add a differing entity. An entity that differs in several comparisons is counted once."""
        identity = (difference.kind, difference.key)
        former = self.differences.get(identity)
        if former is not None:
            difference = former.model_copy(
                update={
                    "present_in": sorted({*former.present_in, *difference.present_in}),
                    "absent_in": sorted({*former.absent_in, *difference.absent_in}),
                    "attributes": [*former.attributes, *difference.attributes],
                }
            )
        self.differences[identity] = difference

    def add_finding(self, finding: Finding) -> None:
        """Add a finding."""
        self.findings.append(finding)
        self.finding_counts[finding.severity] += 1

    def add_dropped_findings(self, dropped: dict[str, int]) -> None:
        """Count findings that exceed the limit of the report."""
        for severity, count in dropped.items():
            self.finding_counts[Severity(severity)] += count

    def add_uncounted(self, count: int, why: str) -> None:
        """Count differing entities that were not examined."""
        self.uncounted += count
        self.problems.append(why)

    def note_passwords(self, inputs: Inputs, request: VerificationRequest) -> None:
        """Add a finding for each password config that was compared by length only."""
        if inputs.encoder_secret_path is not None or not self.passwords:
            return
        names = ", ".join(sorted(self.passwords)[:_SHOWN])
        if request.require_password_comparison:
            self.problems.append(f"encrypted configs need password.encoder.secret to be compared: {names}")
        for name in self.passwords:
            self.add_finding(Finding.of(Code.PASSWORD_COMPARED_BY_LENGTH, name))


def conclude(outcome: Outcome, inputs: Inputs) -> tuple[Verdict, str]:
    """Return the verdict and its reason in one sentence.

    A difference or a blocking finding makes the verdict `Inconsistent`, even if other parts could not be read.
    Without one, any unknown part makes the verdict `Inconclusive`.
    """
    if outcome.differences or outcome.uncounted:
        total = len(outcome.differences) + outcome.uncounted
        names = ", ".join(f"{kind} {key}".strip() for kind, key in list(outcome.differences)[:_SHOWN])
        return Verdict.INCONSISTENT, f"{total} {_plural('entity differs', 'entities differ', total)}: {names}"
    blocking = outcome.finding_counts[Severity.BLOCKING]
    if blocking:
        codes = sorted({finding.code for finding in outcome.findings if finding.severity is Severity.BLOCKING})
        named = _plural("finding", "findings", blocking)
        return Verdict.INCONSISTENT, f"{blocking} blocking {named}: {', '.join(codes)}"
    unknown = [*outcome.problems, *outcome.unread.values(), *outcome.unreadable.values()]
    if len(unknown) > 1:
        return Verdict.INCONCLUSIVE, f"{unknown[0]} (and {len(unknown) - 1} more)"
    if unknown:
        return Verdict.INCONCLUSIVE, unknown[0]
    if outcome.unresolved:
        count = len(outcome.unresolved)
        some = ", ".join(outcome.unresolved[:_SHOWN])
        return Verdict.INCONCLUSIVE, f"{count} {_plural('entity', 'entities', count)} stayed in flight: {some}"
    compared = sum(counts.compared for counts in outcome.counts.values())
    if outcome.nothing_to_compare:
        return Verdict.CONSISTENT, NOTHING_TO_COMPARE
    if not compared:
        return Verdict.INCONCLUSIVE, "nothing was compared"
    if inputs.profile is Profile.ZOOKEEPER:
        return Verdict.CONSISTENT, f"{compared} entities were read and understood; nothing blocks the copy"
    if inputs.profile is Profile.UPGRADE:
        served = sum(counts.served or 0 for counts in outcome.counts.values())
        by_brokers = f"every broker serves {served} of them" if served else "what brokers serve was not compared"
        return Verdict.CONSISTENT, f"{compared} entities were read and understood; {by_brokers}"
    return Verdict.CONSISTENT, f"{compared} entities are the same everywhere"


def _plural(one: str, many: str, count: int) -> str:
    return one if count == 1 else many


class DeadlineError(MetadataError):
    """The run took longer than its request allows."""


@dataclass(slots=True)
class Run:
    """One run over one session."""

    session: SparkSession
    """Spark session with the data sources registered."""
    request: VerificationRequest
    """Identity, profile and limits of the run."""
    inputs: Inputs
    """Places of the data."""
    outcome: Outcome = field(default_factory=Outcome)
    timings: dict[str, float] = field(default_factory=dict)
    fence: Fence = field(default_factory=Fence)
    salt: bytes = field(default_factory=lambda: random_bytes.token_bytes(32))
    """Key of the hashes that replace secrets; appears in no report."""
    few: bool = True
    """Whether there are so few rows that one task is faster than a shuffle."""
    began: float = field(default_factory=time.monotonic)
    cached: list[DataFrame] = field(default_factory=list)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time one stage.

        Raises
        ------
        DeadlineError
            The run's time is up before the stage begins.
        """
        if time.monotonic() - self.began > self.request.deadline_seconds:
            raise DeadlineError(f"the run's deadline of {self.request.deadline_seconds:g} s passed before: {name}")
        began = time.monotonic()
        try:
            yield
        finally:
            self.timings[name] = round(time.monotonic() - began, 3)

    def load(self, source: str, plan: str) -> DataFrame:
        """Return a source's rows and keep them until the run ends."""
        frame = load(self.session, source, plan)
        self.cached.append(frame)
        return frame

    def in_task(self, function: Callable[[_Argument], _Result], argument: _Argument) -> _Result:
        """Run a function in a Spark task and return its result.

        The driver's memory then does not grow with the cluster.

        Raises
        ------
        MetadataError
            The function raised it.
        """

        def carried(part: _Argument) -> tuple[_Result | None, str | None]:
            try:
                return function(part), None
            except MetadataError as error:
                return None, str(error)

        ((result, problem),) = self.session.sparkContext.parallelize([argument], 1).map(carried).collect()
        if problem is not None:
            raise MetadataError(problem)
        return cast("_Result", result)

    def release(self) -> None:
        """Release the cached rows."""
        for frame in self.cached:
            frame.unpersist()

    def count(self, comparison: Comparison, columns: dict[str, str], *, only_new: bool = False) -> None:
        """Add a comparison's counts to the report's columns.

        Parameters
        ----------
        columns
            Column of the report by place.
        only_new
            Skip kinds that are already counted.
        """
        for kind, counts in comparison.counts.items():
            if only_new and kind in self.outcome.counts:
                continue
            update: dict[str, int] = {column: counts[place] for place, column in columns.items()}
            update["compared"] = comparison.keys[kind]
            self.outcome.counts[kind] = self.outcome.counts.get(kind, KindCounts()).model_copy(update=update)


def notes_among(frame: DataFrame) -> list[Any]:
    """Return the notes among rows, and the broker configs with passwords of which only the length is known."""
    passwords = (F.col("kind") == str(EntityKind.BROKER_CONFIG)) & F.col("value").contains(PASSWORD_LENGTH_PREFIX)
    rows: list[Any] = frame.where(F.col("kind").startswith("$") | passwords).select("kind", "key", "value").collect()
    return rows


SOURCES: Final = (ZooKeeperSource, KraftLogSource, BrokerServedSource)
_SMALL_SHUFFLE_PARTITIONS: Final = 2
_ROWS_PER_SHUFFLE_PARTITION: Final = 200_000


_BIND: Final = "spark.driver.bindAddress"
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


class OpenDriverError(MetadataError):
    """Spark's driver would answer strangers."""


def open_session(*, local: bool, master: str | None = None, ansi: bool | None = None) -> SparkSession:
    """Return a session with the data sources registered.

    Parameters
    ----------
    local
        Run in this process if no master is given. `spark-submit` and the Spark operator give one.
    master
        Master in place of the one that `spark-submit` or the Spark operator gives; ``local[N]`` compares in this pod,
        without executors.
    ansi
        Value of `spark.sql.ansi.enabled`; None for Spark's default.

    Raises
    ------
    OpenDriverError
        The driver listens beyond this host, and answers whoever connects.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = (
        SparkSession.builder.appName("kraftbridge-verification")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", str(_SMALL_SHUFFLE_PARTITIONS))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.python.worker.reuse", "true")
        # Large arrays in huge pages: a fifth of the time of a log's replay is page faults otherwise
        # (docs/benchmarks.md).
        .config("spark.executorEnv.GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")
    )
    if master is not None:
        builder = _on_this_host(builder, master)
    elif local and "SPARK_APPLICATION_ID" not in os.environ and not os.environ.get("MASTER"):
        builder = _on_this_host(builder, "local[*]")
    if ansi is not None:
        builder = builder.config("spark.sql.ansi.enabled", str(ansi).lower())
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    conf = dict(session.sparkContext.getConf().getAll())
    if conf.get(_BIND) not in _LOOPBACK and conf.get("spark.authenticate") != "true":
        listens = conf.get(_BIND) or conf.get("spark.driver.host")
        session.stop()
        raise OpenDriverError(
            f"Spark's driver listens on {listens} without authentication, "
            "and whoever connects reads what the run compares: give --master local[N], "
            "or set spark.authenticate and spark.authenticate.secret.file"
        )
    for source in SOURCES:
        session.dataSource.register(source)
    return session


def _on_this_host(builder: SparkSession.Builder, master: str) -> SparkSession.Builder:
    # RPC and block manager of a driver bind to the same address (`SparkEnv.createDriverEnv`).
    bound = builder.master(master).config("spark.driver.host", "127.0.0.1").config(_BIND, "127.0.0.1")
    return bound.config("spark.driver.extraJavaOptions", SPARK_JAVA_OPTIONS)


def set_shuffle_size(session: SparkSession, rows: int) -> None:
    """Set the number of shuffle partitions for a number of rows."""
    partitions = max(_SMALL_SHUFFLE_PARTITIONS, -(-rows // _ROWS_PER_SHUFFLE_PARTITION))
    session.conf.set("spark.sql.shuffle.partitions", str(partitions))


def load(session: SparkSession, source: str, plan: str) -> DataFrame:
    """Return a source's rows and cache them. A second reading would return another state."""
    return session.read.format(source).option("plan", plan).load().persist(StorageLevel.MEMORY_AND_DISK)


def warm_up(session: SparkSession) -> None:
    """Run a verification's operations on empty data. This loads classes and starts Python workers."""
    plan = LogPlan(salt="00", voters=[LogVoter(id=0, name="warm-up", url="file:///nonexistent")])
    rows = load(session, "kraft-log", plan.model_dump_json())
    rows.where("kind like '$%'").collect()
    rows.unpersist()
    sample = session.createDataFrame(
        [
            ("mirror", "a", "topic", "x", "{}", 1),
            ("mirror", "b", "topic", "x", "[]", 1),
        ],
        SCHEMA_DDL,
    )
    compare(sample, Leg.MIRROR, ["a", "b"])
