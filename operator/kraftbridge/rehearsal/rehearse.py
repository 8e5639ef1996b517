"""Runs one rehearsal, from a dump to its result."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from kraftbridge.exceptions import MetadataError, RehearsalError
from kraftbridge.metadata.copying import NOTHING_TO_COMPARE
from kraftbridge.metadata.zookeeper.reader import ZooKeeperReader, read_dump, write_dump
from kraftbridge.metadata.zookeeper.znodes import Znode
from kraftbridge.models.metadata_version import level_of
from kraftbridge.models.rehearsal import (
    MAXIMUM_PATHS,
    Ending,
    Forecast,
    RehearsalResult,
    RehearsalVerdict,
    Stage,
    TreeChanges,
    TreeSize,
)
from kraftbridge.models.report import Difference, ZooKeeperAccess
from kraftbridge.models.secrecy import secret_values
from kraftbridge.rehearsal.comparison import TreeComparison, changed_paths, compare_copy, compare_mirror
from kraftbridge.rehearsal.controller_log import COPIED, SYNCED, VERSION, ControllerLog, without
from kraftbridge.rehearsal.processes import (
    CONTROLLER,
    CONTROLLER_CLASS,
    ZOOKEEPER,
    ZOOKEEPER_CLASS,
    ClosedPorts,
    LocalProcesses,
    Processes,
    free_port,
    heap_after_collections,
    last_words,
    wait_for_port,
)
from kraftbridge.rehearsal.registrations import Registrations
from kraftbridge.rehearsal.settings import NODE_ID, controller_properties
from kraftbridge.rehearsal.traps import mends
from kraftbridge.rehearsal.tree import SnapshotWriter, secrets_in

_MIB: Final = 1 << 20
_MAXIMUM_LISTENERS: Final = 16
_START_SECONDS: Final = 120.0
_RETRIES_THAT_MEAN_STUCK: Final = 6
"""Retries without progress. With doubling pauses from 0.1 s, they take 6 to 25 s (``ExponentialBackoff``)."""
_REPETITIONS_THAT_MEAN_STUCK: Final = 2
"""Number of retries before the claim that mean the same after `_LONG_WITHOUT_PROGRESS_SECONDS` without a new stage:
the pauses double up to 20 s.
"""
_LONG_WITHOUT_PROGRESS_SECONDS: Final = 20.0
_OUT_OF_MEMORY_EXIT: Final = 3
"""Exit code under ``-XX:+ExitOnOutOfMemoryError``."""
_SETTLE_SECONDS: Final = 1.0
_UNFENCE_SECONDS: Final = 10.0
"""After dual-write. A heartbeat is sent every two seconds, and a busy controller answers late."""
_LIMIT_SECONDS: Final = 300.0
_PARTITIONS_PER_SECOND: Final = 75
"""Of a slow machine: 200,000 partitions take 98 to 167 s (docs/sizing.md),
and took 702 s at low priority on four cores with a load of 19.
"""
_HEADROOM: Final = 1.6
_SMALLEST_HEAP: Final = 128 * _MIB
_HEAP_STEP: Final = 64 * _MIB
_WAITED: Final = re.compile(
    r"in (\d+) ms across (\d+) batches\. The average time spent waiting on a batch was ([\d.]+)"
)
_LARGE_BATCH: Final = 2000
"""With 20,000 partitions, the copy takes three quarters of the time of Kafka's 200 records (docs/rehearsal.md)."""
_MANY_BATCHES: Final = 20
_MUCH_WAITING: Final = 0.1
_AFTER: Final = "after.jsonl.gz"
"""Dump of the scratch ZooKeeper after the sync."""


@dataclass(frozen=True, slots=True)
class RehearsalOptions:
    """Options of a rehearsal."""

    kafka_home: Path | None
    """A Kafka 3.9 distribution, or its ``libs`` directory. None in a pod, whose containers find their own."""
    work: Path
    """Scratch directory. It is cleared before the rehearsal and remains afterwards."""
    chroot: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of the real controllers: ``password.encoder.secret``, ``delegation.token.secret.key`` and others."""
    release_version: str = "3.9"
    """The brokers' ``inter.broker.protocol.version``."""
    heap_bytes: int = 1024 * _MIB
    zookeeper_heap_bytes: int = 512 * _MIB
    timeout_seconds: float | None = None
    """Time limit of the migration, from the registration of the brokers. None derives it from the size of the tree."""
    sample_limit: int = 1000


@dataclass(frozen=True, slots=True)
class ScratchCluster:
    """A migrated copy in dual-write, while its processes run."""

    controller_port: int
    cluster_id: str
    registrations: Registrations


@dataclass(frozen=True, slots=True)
class Interlude:
    """What is done in dual-write in place of the comparison, on a tree that is not the whole one."""

    znodes: Callable[[Iterator[Znode]], Iterator[Znode]]
    """Makes the copy's znodes of the dump's."""
    act: Callable[[ScratchCluster], None]
    session_milliseconds: int
    """The controller accepts a broker's registration when the session of the one before has ended."""


def rehearse(dump: Path, options: RehearsalOptions) -> RehearsalResult:
    """Rehearse the migration of a dumped tree on this machine, and end all processes afterwards.

    Raises
    ------
    RehearsalError
        The dump or the options cannot be used.
    """
    if options.kafka_home is None:
        raise RehearsalError("a rehearsal on this machine needs a Kafka distribution")
    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    work = options.work.resolve()
    return rehearse_with(LocalProcesses(options.kafka_home.resolve(), work), dump, options)


def rehearse_with(processes: Processes, dump: Path, options: RehearsalOptions) -> RehearsalResult:
    """Rehearse with the given processes, which use `options.work` too.

    Raises
    ------
    RehearsalError
        The dump or the options cannot be used.
    """
    rehearsal = _Rehearsal(dump.resolve(), options, options.work.resolve(), processes)
    try:
        rehearsal.run()
    except RehearsalError as error:
        if not rehearsal.tree.brokers:
            raise  # the dump itself cannot be used
        rehearsal.problems.append(str(error))
    except MetadataError as error:
        rehearsal.problems.append(str(error))
    finally:
        processes.close()
    return rehearsal.result()


def act_in_dual_write(processes: Processes, dump: Path, options: RehearsalOptions, interlude: Interlude) -> None:
    """Migrate a copy of the tree and act while it is in dual-write; end all processes afterwards.

    Raises
    ------
    RehearsalError
        The copy did not reach dual-write.
    """
    rehearsal = _Rehearsal(dump.resolve(), options, options.work.resolve(), processes, interlude=interlude)
    try:
        rehearsal.run()
        if rehearsal.ending is not Ending.DUAL_WRITE:
            raise RehearsalError(f"the copy without topics did not reach dual-write: {rehearsal.result().reason}")
    finally:
        processes.close()


@dataclass(slots=True)
class _Rehearsal:
    dump: Path
    options: RehearsalOptions
    work: Path
    processes: Processes
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    timings: dict[str, float] = field(default_factory=dict)
    tree: TreeSize = field(default_factory=TreeSize)
    problems: list[str] = field(default_factory=list)
    ending: Ending = Ending.NOT_STARTED
    why: str = ""
    log: ControllerLog | None = None
    controller_started: datetime | None = None
    comparison: TreeComparison | None = None
    sync: TreeChanges = field(default_factory=TreeChanges)
    mirror: list[Difference] = field(default_factory=list)
    replaced: dict[str, str] = field(default_factory=dict)
    secrets: set[str] = field(default_factory=set)
    interlude: Interlude | None = None

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.timings[name] = round(time.monotonic() - began, 2)

    def run(self) -> None:
        ports = ClosedPorts(_MAXIMUM_LISTENERS)
        try:
            self._run(ports.numbers)
        finally:
            ports.close()

    def _run(self, closed_ports: tuple[int, ...]) -> None:
        writer = SnapshotWriter(closed_ports)
        with self._step("load"):
            znodes = self._noting_secrets(read_dump(self.dump, self.options.chroot))
            writer.take(znodes if self.interlude is None else self.interlude.znodes(znodes))
            self.tree = writer.size
            writer.write(self.work / "zookeeper" / "version-2")
        self.problems += writer.problems
        with self._step("start ZooKeeper"):
            zookeeper_port = self._start_zookeeper()
        port = free_port()
        session = {} if self.interlude is None else {"session_milliseconds": self.interlude.session_milliseconds}
        settings, self.replaced = controller_properties(
            self.options.settings, port, zookeeper_port, self.work / CONTROLLER, writer.brokers, **session
        )
        properties = self.work / "controller.properties"
        properties.write_text(settings)
        properties.chmod(0o600)
        with self._step("format"):
            self.processes.format_storage(properties, writer.cluster_id, self.options.release_version)
        self.log = ControllerLog(self.work / f"{CONTROLLER}.log", frozenset(self.secrets))
        with self._step("start controller"):
            self.controller_started = datetime.now(UTC)
            self.processes.start(CONTROLLER, self.options.heap_bytes, CONTROLLER_CLASS, str(properties))
            problem = wait_for_port(self.processes, CONTROLLER, port, _START_SECONDS)
        if problem:
            if self.processes.exit_code(CONTROLLER) is not None:
                self.ending = Ending.DIES
            self.why = problem
            return
        level = level_of(self.options.release_version)
        registrations = Registrations(port, writer.cluster_id, level, writer.brokers)
        try:
            with self._step("register brokers"):
                registrations.register(_START_SECONDS)
                registrations.start_heartbeats()
            for identity, error in registrations.refused.items():
                self.problems.append(f"the controller refused the registration in place of broker {identity}: {error}")
            with self._step("migration"):
                self._watch(self.log)
            if self.ending is Ending.DUAL_WRITE:
                time.sleep(_SETTLE_SECONDS)
                missing = registrations.fenced(_UNFENCE_SECONDS)
                if missing:
                    self.problems.append(f"registrations in place of brokers {sorted(missing)} stayed fenced")
                if self.interlude is not None:
                    self.interlude.act(ScratchCluster(port, writer.cluster_id, registrations))
        finally:
            registrations.close()
        if self.interlude is None:
            self._look_at_the_result(zookeeper_port)

    def _noting_secrets(self, znodes: Iterable[Znode]) -> Iterator[Znode]:
        self.secrets |= set(secret_values(self.options.settings))
        for znode in znodes:
            self.secrets |= set(secrets_in(znode))
            yield znode

    def _start_zookeeper(self) -> int:
        port = free_port()
        path = self.work / "zoo.cfg"
        path.write_text(
            f"tickTime=2000\ndataDir={self.work}/zookeeper\nclientPort={port}\nclientPortAddress=127.0.0.1\n"
            "admin.enableServer=false\nmaxClientCnxns=0\nmaxSessionTimeout=120000\n"
        )
        self.processes.start(ZOOKEEPER, self.options.zookeeper_heap_bytes, ZOOKEEPER_CLASS, str(path))
        problem = wait_for_port(self.processes, ZOOKEEPER, port, _START_SECONDS)
        if problem:
            output = (self.work / f"{ZOOKEEPER}.log").read_text(errors="replace")
            raise RehearsalError(f"the scratch ZooKeeper did not start: {problem}: {last_words(output)}")
        return port

    def _watch(self, log: ControllerLog) -> None:
        """Wait for dual-write, or until it is certain that Kafka cannot reach it.

        Retries from before the registrations do not count: the controller had to wait for them.
        """
        log.read_on()
        log.retries = 0
        stages = len(log.stages)
        since = time.monotonic()
        limit = self.options.timeout_seconds or _LIMIT_SECONDS + self.tree.partitions / _PARTITIONS_PER_SECOND
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            time.sleep(0.2)
            log.read_on()
            if Stage.DUAL_WRITE in log.stages:
                self.ending = Ending.DUAL_WRITE
                return
            if self._has_died(log):
                return
            if len(log.stages) > stages:
                stages = len(log.stages)
                since = time.monotonic()
            if log.retries >= _retries_that_mean_stuck(log, time.monotonic() - since):
                self.ending = Ending.STICKS if Stage.CLAIMED in log.stages else Ending.NEVER_BEGINS
                return
        self.ending = Ending.TIMED_OUT
        self.why = f"not in dual-write after {limit:.0f} s"

    def _has_died(self, log: ControllerLog) -> bool:
        """Return whether the controller has exited.

        Raises
        ------
        RehearsalError
            ZooKeeper has exited.
        """
        code = self.processes.exit_code(CONTROLLER)
        if code is not None:
            log.read_on()
            self.ending = Ending.DIES
            self.why = f"the controller exited with code {code}"
            return True
        code = self.processes.exit_code(ZOOKEEPER)
        if code is not None:
            log.read_on()
            raise RehearsalError(f"the scratch ZooKeeper exited with code {code}; see {self.work}/{ZOOKEEPER}.log")
        return False

    def _look_at_the_result(self, zookeeper_port: int) -> None:
        if self.ending in {Ending.DUAL_WRITE, Ending.STICKS}:
            after = self.work / _AFTER
            with (
                self._step("dump after"),
                ZooKeeperReader(ZooKeeperAccess(connect=f"127.0.0.1:{zookeeper_port}")) as reader,
            ):
                write_dump(reader.walk(), after, "")
            removed, added, changed = changed_paths(self.dump, self.options.chroot, after)
            self.sync = TreeChanges(
                removed=removed[:MAXIMUM_PATHS], added=added[:MAXIMUM_PATHS], changed=changed[:MAXIMUM_PATHS]
            )
        self.processes.close()
        if self.ending is Ending.DUAL_WRITE:
            with self._step("compare"):
                secret = self.options.settings.get("password.encoder.secret")
                self.comparison = compare_copy(self.dump, self.options.chroot, self.work / CONTROLLER, secret)
                self.mirror = compare_mirror(self.work / _AFTER, self.work / CONTROLLER, secret)

    def result(self) -> RehearsalResult:
        log = self._written_log()
        stages: Mapping[Stage, datetime] = {}
        words: list[str] = []
        summaries: dict[str, str | None] = {}
        if log is not None:
            log.read_on()
            stages = log.stages
            words = log.words()
            summaries = {pattern: log.summary(pattern) for pattern in (COPIED, SYNCED, VERSION)}
        verdict, reason = self._verdict()
        started = self.controller_started or self.started_at
        comparison = self.comparison or TreeComparison()
        problems = [*self.problems, *comparison.unreadable.values()]
        return RehearsalResult(
            verdict=verdict,
            reason=without(self.secrets, reason),
            ending=self.ending,
            tree=self.tree,
            stages_seconds={stage: _seconds(started, at) for stage, at in stages.items()},
            forecast=self._forecast(stages, summaries.get(COPIED)),
            differing=len(comparison.differences),
            differences=comparison.differences[: self.options.sample_limit],
            mends=mends(self.dump, self.options.chroot, set(self.options.settings)),
            problems=[without(self.secrets, problem) for problem in problems],
            words=words,
            sync=self.sync,
            mirror=self.mirror[: self.options.sample_limit],
            copied=summaries.get(COPIED),
            synced=summaries.get(SYNCED),
            replaced_settings=self.replaced,
            kafka_version=summaries.get(VERSION) or "",
            release_version=self.options.release_version,
            controller_heap_bytes=self.options.heap_bytes,
            started_at=self.started_at,
            finished_at=datetime.now(UTC),
            timings_seconds=self.timings,
        )

    def _written_log(self) -> ControllerLog | None:
        """Return the controller's output; None if there is none."""
        if self.log is None or not self.log.path.exists():
            return None
        return self.log

    def _verdict(self) -> tuple[RehearsalVerdict, str]:
        complaint = self._last_words()
        match self.ending:
            case Ending.NEVER_BEGINS:
                return RehearsalVerdict.FAILS, f"Kafka never begins the migration: {complaint}"
            case Ending.STICKS:
                return RehearsalVerdict.FAILS, f"Kafka sticks after the takeover, without dual-write: {complaint}"
            case Ending.DIES if f"code {_OUT_OF_MEMORY_EXIT}" in self.why:
                heap = self.options.heap_bytes // _MIB
                return RehearsalVerdict.FAILS, f"the controller ran out of memory with a heap of {heap} MiB"
            case Ending.DIES:
                return RehearsalVerdict.FAILS, f"{self.why}: {complaint}"
            case Ending.NOT_STARTED | Ending.TIMED_OUT:
                return RehearsalVerdict.UNKNOWN, self.why or next(iter(self.problems), "the rehearsal did not start")
            case Ending.DUAL_WRITE:
                return self._verdict_of_comparison()

    def _verdict_of_comparison(self) -> tuple[RehearsalVerdict, str]:
        comparison = self.comparison
        if comparison is None:
            return RehearsalVerdict.UNKNOWN, next(iter(self.problems), "the log was not compared with the tree")
        if comparison.copy_end_offset is None:
            return (
                RehearsalVerdict.FAILS,
                "Kafka reached dual-write without a copy: /migration says that one was made already",
            )
        if comparison.differences:
            return (
                RehearsalVerdict.LOSES,
                f"{_counted(comparison.differences)} lost or changed: {_named(comparison.differences)}",
            )
        deleted = sorted(set(comparison.unreadable) & set(self.sync.removed))
        if deleted:
            return RehearsalVerdict.LOSES, f"Kafka deletes {deleted[0]} from ZooKeeper and does not copy it"
        if self.mirror:
            words = "in ZooKeeper not as in the log that it mirrors, after the sync"
            return RehearsalVerdict.LOSES, f"{_counted(self.mirror)} {words}: {_named(self.mirror)}"
        faults = self.log.faults() if self.log else []
        unknown = [*self.problems, *comparison.unreadable.values(), *faults]
        if unknown:
            return RehearsalVerdict.UNKNOWN, unknown[0]
        if comparison.compared:
            entities = f"{comparison.compared} entities"
            return RehearsalVerdict.WORKS, f"Kafka reached dual-write and its log holds all {entities}"
        if comparison.whole:
            return RehearsalVerdict.WORKS, f"Kafka reached dual-write; {NOTHING_TO_COMPARE}"
        return RehearsalVerdict.UNKNOWN, "nothing was compared, and the tree was not read completely"

    def _last_words(self) -> str:
        log = self._written_log()
        if log is None:
            return "no output"
        words = log.words()
        with_exception = [text for text in words if " | " in text]
        return next(iter([*with_exception[-1:], *words[-1:]]), "no complaint in its output")

    def _forecast(self, stages: Mapping[Stage, datetime], copied: str | None) -> Forecast:
        def between(first: Stage, last: Stage) -> float | None:
            if not stages.keys() >= {first, last}:
                return None
            return _seconds(stages[first], stages[last])

        used = heap_after_collections(self.work / f"{CONTROLLER}.gc.log")
        needed = None
        if used is not None and self.ending is Ending.DUAL_WRITE:
            needed = max(_SMALLEST_HEAP, -(-int(used * _HEADROOM) // _HEAP_STEP) * _HEAP_STEP)
        return Forecast(
            copy_seconds=between(Stage.COPY_BEGINS, Stage.COPY_ENDS),
            sync_seconds=between(Stage.SYNC_BEGINS, Stage.SYNC_ENDS),
            no_controller_seconds=between(Stage.CLAIMED, Stage.DUAL_WRITE),
            heap_bytes=needed,
            minimum_batch_size=_batch_size(copied),
            measured_heap_bytes=used,
        )


def _counted(differences: Sequence[Difference]) -> str:
    return "1 entity is" if len(differences) == 1 else f"{len(differences)} entities are"


def _named(differences: Sequence[Difference]) -> str:
    return ", ".join(f"{found.kind} {found.key}".strip() for found in differences[:3])


def _retries_that_mean_stuck(log: ControllerLog, seconds_without_progress: float) -> int:
    if Stage.CLAIMED not in log.stages and seconds_without_progress >= _LONG_WITHOUT_PROGRESS_SECONDS:
        return _REPETITIONS_THAT_MEAN_STUCK
    return _RETRIES_THAT_MEAN_STUCK


def _seconds(begin: datetime, end: datetime) -> float:
    return round((end - begin).total_seconds(), 2)


def _batch_size(copied: str | None) -> int | None:
    """Return a larger batch size if Kafka's summary says that the copy mostly waited for commits of small batches."""
    match = _WAITED.search(copied or "")
    if match is None:
        return None
    took = int(match[1])
    batches = int(match[2])
    waited = float(match[3])
    if batches < _MANY_BATCHES or batches * waited <= took * _MUCH_WAITING:
        return None
    return _LARGE_BATCH


__all__ = ["NODE_ID", "Interlude", "RehearsalOptions", "ScratchCluster", "act_in_dual_write", "rehearse"]
