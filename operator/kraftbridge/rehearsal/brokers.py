"""Starts Kafka's own broker in KRaft mode on a migrated copy, and compares the settings in force with the stored ones.

The copy has no topics,
because a broker creates each replica before it applies dynamic settings (``BrokerMetadataPublisher``).
A controller in migration mode refuses a broker in KRaft mode before the migration, and a second one with an id
whose session has not ended (``ClusterControlManager.registerBroker``).
"""

from __future__ import annotations

import hmac
import math
import re
import secrets as random_text
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import javaproperties

from kraftbridge.exceptions import MetadataError, RehearsalError
from kraftbridge.metadata.entities import EncodedPassword, looks_encoded
from kraftbridge.metadata.zookeeper.reader import read_dump
from kraftbridge.models.broker_settings import without_listener
from kraftbridge.models.config_values import ConfigType, same_value
from kraftbridge.models.rehearsal import (
    BROKERS_FOLDER,
    WORST_FIRST,
    BrokerRehearsal,
    ComparedSetting,
    Ending,
    Judgement,
    RehearsalResult,
    RehearsalVerdict,
)
from kraftbridge.models.secrecy import is_secret_setting, secret_values
from kraftbridge.outside.json_text import parsed_json
from kraftbridge.rehearsal.broker_properties import BrokerSettings, CopiedTree, Loopback, of_broker
from kraftbridge.rehearsal.controller_log import ControllerLog, without
from kraftbridge.rehearsal.processes import LocalProcesses, Processes, free_port, last_words
from kraftbridge.rehearsal.rehearse import NODE_ID, Interlude, RehearsalOptions, ScratchCluster, act_in_dual_write
from kraftbridge.rehearsal.tree import secrets_in

AGENT: Final = Path("/opt/kraftbridge/dry-start-agent.jar")
"""Place of the agent in the images. ``agent/build.sh`` makes it."""
_MAIN_CLASS: Final = "dev.kraftbridge.agent.RehearsedBroker"
_RESULT: Final = "kraftbridge-rehearsed-broker "
_INTER_BROKER: Final = "inter.broker.listener.name"
_MIB: Final = 1 << 20
_HEAP_BYTES: Final = 256 * _MIB
"""Heap of a broker without topics, besides the buffers of its log cleaner."""
_BUFFER: Final = "log.cleaner.dedupe.buffer.size"
_BUFFER_BYTES: Final = 128 * _MIB
_OUT_OF_MEMORY_EXIT: Final = 3
"""Exit code under ``-XX:+ExitOnOutOfMemoryError``."""
_REFUSED_EXIT: Final = 4
"""Exit code of the agent's main class when Kafka throws (``RehearsedBroker``)."""
_EXIT_OF_KAFKA: Final = 1
"""Kafka's own (``ProcessTerminatingFaultHandler``), and that of a JVM that does not find its main class."""
_SESSION_MILLISECONDS: Final = 6_000
_START_SECONDS: Final = 180.0
"""Time for the end of the substitute's session, and for a JVM on a busy machine."""
_PAUSE_SECONDS: Final = 0.2
_REFUSED: Final = re.compile(r"(?:Per-broker configs of \d+|Cluster default configs) could not be applied")
_GRAVE: Final = re.compile(r"(?:ERROR|FATAL) ")
_MOST_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """Options of the rehearsed brokers."""

    properties: Mapping[int | None, Mapping[str, str]]
    """``server.properties`` of the real brokers by id; None: of each broker that has no own one."""
    agent: Path = AGENT
    left_out: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """Settings by broker whose values are not here, and why."""
    images: Mapping[int, str] = field(default_factory=dict)
    """Image by broker, where each runs its own Kafka."""
    has_stores: bool = True
    """Whether the stores of keys that settings name are here."""
    until: float = math.inf
    """When no further broker is started, by ``time.monotonic``."""


@dataclass(slots=True)
class BrokerPlan:
    """The brokers that a rehearsal starts: one for each different pair of static and dynamic settings."""

    dump: Path
    options: RehearsalOptions
    """With a scratch directory of their own."""
    new_processes: Callable[[], Processes]
    tree: CopiedTree
    groups: list[list[BrokerSettings]]
    secrets: set[str]
    """Values that no result repeats."""
    salt: bytes
    until: float = math.inf

    def run(self, result: RehearsalResult) -> RehearsalResult:
        """Start the brokers on a copy that Kafka migrates, and return the result with theirs."""
        if not self.groups:
            return result
        if result.ending is not Ending.DUAL_WRITE:
            problem = "no broker was started in KRaft mode, because the copy did not reach dual-write"
            return result.model_copy(update={"problems": [*result.problems, problem]})
        found: list[BrokerRehearsal] = []
        began = time.monotonic()

        def act(cluster: ScratchCluster) -> None:
            # One by one: those before a failure stay.
            found.extend(self._rehearsed(group, cluster, processes) for group in self.groups)

        interlude = Interlude(self.tree.anew().take, act, _SESSION_MILLISECONDS)
        try:
            self._check_time()
            self.options.work.mkdir(parents=True)
            processes = self.new_processes()
            act_in_dual_write(processes, self.dump, self.options, interlude)
        except (RehearsalError, MetadataError) as error:
            reason = without(self.secrets, str(error))
            found.extend(_unknown([each.broker for each in group], reason) for group in self.groups[len(found) :])
        timings = {**result.timings_seconds, "brokers": round(time.monotonic() - began, 2)}
        whole = result.model_copy(update={"timings_seconds": timings, "finished_at": datetime.now(UTC)})
        return combined(whole, found)

    def _check_time(self) -> None:
        if time.monotonic() > self.until:
            raise RehearsalError("it was not started, because the time of the rehearsal was up")

    def _rehearsed(
        self, group: Sequence[BrokerSettings], cluster: ScratchCluster, processes: Processes
    ) -> BrokerRehearsal:
        self._check_time()
        first = group[0]
        name = f"broker-{first.broker}"
        work = self.options.work
        settings = first.properties(work, NODE_ID, cluster.controller_port)
        for directory in settings["log.dirs"].split(","):
            Path(directory).mkdir()
            formatted = f"version=1\nnode.id={first.broker}\ncluster.id={cluster.cluster_id}\n"
            (Path(directory) / "meta.properties").write_text(formatted)
        properties = work / f"{name}.properties"
        properties.write_text("".join(javaproperties.join_key_value(k, v) + "\n" for k, v in settings.items()))
        properties.chmod(0o600)
        (work / "salt").write_bytes(self.salt)
        cluster.registrations.leave(first.broker)
        began = time.monotonic()
        processes.start(name, _heap_bytes(first), _MAIN_CLASS, str(work / "salt"), str(properties))
        ended = _exit_code(processes, name, min(began + _START_SECONDS, self.until))
        if ended is None:
            # It may be in the way of the next one.
            words = last_words((work / f"{name}.log").read_text(errors="replace"))
            seconds = time.monotonic() - began
            raise RehearsalError(f"broker {first.broker} did not start in {seconds:.0f} s: {words or 'no output'}")
        log = ControllerLog(work / f"{name}.log", frozenset(self.secrets))
        verdict, reason, compared = self._judged(first, log, ended)
        return BrokerRehearsal(
            broker=first.broker,
            alike=[each.broker for each in group[1:]],
            verdict=verdict,
            reason=without(self.secrets, reason),
            compared=compared,
            words=_errors(log),
            replaced_settings=dict(first.replaced),
            seconds=round(time.monotonic() - began, 2),
        )

    def _judged(
        self, broker: BrokerSettings, log: ControllerLog, ended: int
    ) -> tuple[RehearsalVerdict, str, list[ComparedSetting]]:
        output = log.path.read_text(errors="replace")
        if ended == _OUT_OF_MEMORY_EXIT:
            heap = _heap_bytes(broker) // _MIB
            return RehearsalVerdict.UNKNOWN, f"it ran out of memory with a heap of {heap} MiB", []
        in_force = _in_force(output)
        if in_force is None:
            return *_without_report(ended, _errors(log), last_words(output)), []
        if broker.dynamic and not in_force.dynamic:
            return RehearsalVerdict.UNKNOWN, "the agent names no setting that may be dynamic, so none was compared", []
        # Kafka drops a name that cannot be dynamic in any mode.
        stored = {name: value for name, value in broker.dynamic.items() if without_listener(name) in in_force.dynamic}
        try:
            compared = list(self._compared(stored, in_force))
        except MetadataError as error:
            return RehearsalVerdict.UNKNOWN, f"its dynamic settings could not be compared: {error}", []
        unheld = [setting for setting in compared if not setting.held]
        said = [words for words in _errors(log) if _REFUSED.search(words)]
        if unheld:
            names = ", ".join(_words(setting) for setting in unheld[:_MOST_NAMED])
            more = f" and {len(unheld) - _MOST_NAMED} more" if len(unheld) > _MOST_NAMED else ""
            told = said[0] if said else "Kafka says nothing of it"
            return RehearsalVerdict.FAILS, f"not in force in KRaft mode: {names}{more}: {told}", compared
        faults = [*said, *log.faults()]
        if faults:
            return (
                RehearsalVerdict.UNKNOWN,
                f"each dynamic setting is in force, and Kafka complains: {faults[0]}",
                compared,
            )
        if not stored:
            return RehearsalVerdict.WORKS, "it starts in KRaft mode; no dynamic setting is stored for it", []
        words = f"it starts in KRaft mode, with each of {len(stored)} dynamic settings in force"
        return RehearsalVerdict.WORKS, words, compared

    def _compared(self, stored: Mapping[str, str], in_force: _InForce) -> Iterator[ComparedSetting]:
        """Yield each dynamic setting with what is in force, with the addresses of the real cluster."""
        real = self.tree.loopback.real
        for name, value in sorted(stored.items()):
            found = in_force.settings.get(name, {})
            if "hash" in found or is_secret_setting(name):
                yield ComparedSetting(name=name, held=found.get("hash") == self._hashed(value))
                continue
            holds = found.get("value")
            held = holds is not None and same_value(_type(found), holds, value)
            yield ComparedSetting(
                name=name, stored=real(value), holds=None if holds is None else real(holds), held=held
            )

    def _hashed(self, value: str) -> str:
        """Return the hash of a secret, which ZooKeeper holds encrypted."""
        plain = value
        secret = self.options.settings.get("password.encoder.secret")
        if looks_encoded(value) and secret is not None:
            plain = EncodedPassword.parse(value).decoded(secret)
        return hmac.digest(self.salt, plain.encode(), "sha256").hex()


def _heap_bytes(broker: BrokerSettings) -> int:
    """Return the heap of a broker.

    A log cleaner has its buffer from its start on, and a new one takes its place when a dynamic setting changes it
    (``LogCleaner.reconfigure``).
    """
    stated = (settings[_BUFFER] for settings in (broker.static, broker.dynamic) if _BUFFER in settings)
    sizes = [int(size) for size in stated if size.strip().isdecimal()]
    return _HEAP_BYTES + 2 * max([_BUFFER_BYTES, *sizes])


def _exit_code(processes: Processes, name: str, deadline: float) -> int | None:
    """Return the exit code of a broker; None if it has not ended in time."""
    while time.monotonic() < deadline:
        code = processes.exit_code(name)
        if code is not None:
            return code
        time.sleep(_PAUSE_SECONDS)
    return None


def _without_report(ended: int, errors: Sequence[str], words: str) -> tuple[RehearsalVerdict, str]:
    """Judge a broker that ended without a report: only Kafka's own exception, or its own exit, is a refusal.

    A container that is out of memory, an image without Java or with another Kafka end the process, too.
    """
    if ended == _REFUSED_EXIT or (ended == _EXIT_OF_KAFKA and errors):
        said = next(iter(errors[-1:]), words)
        return RehearsalVerdict.FAILS, f"Kafka does not start in KRaft mode (exit code {ended}): {said}"
    return RehearsalVerdict.UNKNOWN, f"it ended with exit code {ended} before it told its settings: {words}"


def planned(dump: Path, options: RehearsalOptions, brokers: BrokerOptions) -> BrokerPlan:
    """Return the brokers to start on this machine. Nothing is started yet.

    Raises
    ------
    RehearsalError
        The brokers' settings or the options cannot be used.
    """
    kafka_home = options.kafka_home
    if kafka_home is None:
        raise RehearsalError("a rehearsal on this machine needs a Kafka distribution")
    if not brokers.agent.is_file():
        raise RehearsalError(
            f"{brokers.agent} does not exist: name the jar that agent/build.sh makes, or that the operator's image has"
        )
    work = options.work.resolve() / BROKERS_FOLDER
    plan = planned_with(
        lambda: LocalProcesses(kafka_home.resolve(), work, further_jar=brokers.agent.resolve()), dump, options, brokers
    )
    _check_ids(plan.tree, brokers.properties)
    return plan


def planned_with(
    new_processes: Callable[[], Processes], dump: Path, options: RehearsalOptions, brokers: BrokerOptions
) -> BrokerPlan:
    """Return the registered brokers to start with the given processes. Nothing is started yet.

    Parameters
    ----------
    new_processes
        Makes them once `BrokerPlan.options` has its directory.

    Raises
    ------
    RehearsalError
        The brokers' settings or the options cannot be used.
    """
    secrets: set[str] = set()
    tree = CopiedTree(Loopback(free_port), brokers.has_stores)
    for znode in tree.take(read_dump(dump, options.chroot)):
        secrets.update(secrets_in(znode))
    settings = [*brokers.properties.values(), options.settings]
    for each in settings:
        secrets.update(secret_values(each))
    work = options.work.resolve() / BROKERS_FOLDER
    groups = _groups(tree, brokers)
    return BrokerPlan(
        dump=dump,
        options=replace(options, work=work, settings={**_of_controllers(groups), **options.settings}),
        new_processes=new_processes,
        tree=tree,
        groups=groups,
        secrets=secrets,
        salt=random_text.token_hex(16).encode(),
        until=brokers.until,
    )


def _of_controllers(groups: Sequence[Sequence[BrokerSettings]]) -> dict[str, str]:
    """Return the listener that a controller demands of each registration, as the brokers name it.

    Without a name, it is that of the protocol, and PLAINTEXT without that
    (``KafkaConfig.getInterBrokerListenerNameAndSecurityProtocol``).
    A broker's dynamic listeners are registered in ZooKeeper, and may be none of its start in KRaft mode.
    """
    if not groups:
        return {}
    static = groups[0][0].static
    return {_INTER_BROKER: static.get(_INTER_BROKER, "PLAINTEXT")}


def _check_ids(tree: CopiedTree, properties: Mapping[int | None, Mapping[str, str]]) -> None:
    """Compare the brokers whose properties a user gives with those of the dump.

    Raises
    ------
    RehearsalError
        They are others.
    """
    if not tree.brokers:
        raise RehearsalError("no broker is registered in the dump, so none can be rehearsed")
    if unknown := sorted(each for each in properties if each is not None and each not in tree.brokers):
        raise RehearsalError(f"--broker-properties names broker {unknown[0]}, which is not registered in the dump")
    if None not in properties and (without_any := sorted(set(tree.brokers) - properties.keys())):
        broker = without_any[0]
        raise RehearsalError(f"broker {broker} has no properties: add --broker-properties {broker}=FILE")


def _groups(tree: CopiedTree, options: BrokerOptions) -> list[list[BrokerSettings]]:
    """Return the registered brokers whose settings are given: those that start alike together."""
    properties = options.properties
    groups: dict[tuple[object, ...], list[BrokerSettings]] = {}
    for broker in sorted(tree.brokers):
        settings = properties.get(broker, properties.get(None))
        if settings is None:
            continue
        found = of_broker(broker, settings, tree, options.left_out.get(broker))
        groups.setdefault((found.pair, options.images.get(broker)), []).append(found)
    return list(groups.values())


def combined(result: RehearsalResult, brokers: Sequence[BrokerRehearsal]) -> RehearsalResult:
    """Return the result with the worst of all verdicts, and its reason."""
    verdicts = [(WORST_FIRST.index(result.verdict), result.reason)]
    verdicts += [(WORST_FIRST.index(each.verdict), f"broker {each.broker}: {each.reason}") for each in brokers]
    worst, reason = min(verdicts, key=lambda verdict: verdict[0])
    own = Judgement(verdict=result.verdict, reason=result.reason)
    return result.model_copy(
        update={"brokers": list(brokers), "verdict": WORST_FIRST[worst], "reason": reason, "controllers": own}
    )


def unknown_brokers(result: RehearsalResult, brokers: Sequence[int], reason: str) -> RehearsalResult:
    """Return the result with brokers of which nothing is known, all for one reason."""
    return combined(result, [_unknown(brokers, reason)])


def _unknown(brokers: Sequence[int], reason: str) -> BrokerRehearsal:
    return BrokerRehearsal(broker=brokers[0], alike=list(brokers[1:]), verdict=RehearsalVerdict.UNKNOWN, reason=reason)


@dataclass(frozen=True, slots=True)
class _InForce:
    """The agent's report."""

    settings: Mapping[str, Mapping[str, str | None]]
    dynamic: frozenset[str]


def _in_force(output: str) -> _InForce | None:
    line = next((line for line in output.splitlines() if line.startswith(_RESULT)), None)
    if line is None:
        return None
    body = parsed_json(line.removeprefix(_RESULT))
    return _InForce(body["settings"], frozenset(filter(None, body["dynamic"])))


def _type(found: Mapping[str, str | None]) -> ConfigType:
    name = found.get("type")
    if name is None or name not in ConfigType.__members__:
        return ConfigType.UNKNOWN
    return ConfigType[name]


def _words(setting: ComparedSetting) -> str:
    if setting.stored is None:
        return f"{setting.name} (a secret)"
    return f"{setting.name} (stored {setting.stored}, in force {setting.holds or 'none'})"


def _errors(log: ControllerLog) -> list[str]:
    return [words for words in log.words() if _GRAVE.match(words)]
