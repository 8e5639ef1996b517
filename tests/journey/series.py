"""Journeys from releases around topic ids (KIP-516), each with its own trouble half-way: ``python -m tests.journey.series``.

Brokers before 2.8 keep no topic ids, and a KRaft start sets the log of a replica aside whose ``partition.metadata`` is missing.
Ten journeys for each release, and for each place of ZooKeeper's controller in the rolls, must show no such log and no lost record.
The cluster has topics of one replica, ACLs, SCRAM users, quotas and delegation tokens, and gets topics during each roll.

Resumable: a journey that has a result is not made again.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, Final, cast

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic
from tests.journey.page import why_not
from tests.journey.travel import (
    BRIDGE,
    BROKERS,
    Journey,
    Order,
    Traveller,
    TravellingProcesses,
    Way,
    attempted,
    journey_of,
    present_commit,
    protocol_of,
    through_migration,
    undertaken,
)
from tests.support.kafka_processes import CHROOT, KRAFT, MIGRATION, ZOOKEEPER, kafka_libraries, wait_for
from tests.support.programs import free_port
from tests.support.running_load import RunningLoad
from typing_extensions import override

from kraftbridge.storage.zookeeper import ZooKeeperStore

RELEASES: Final = ("2.4.1", "2.7.2", "2.8.2")
"""Without topic ids, without topic ids but with SCRAM users by request (KIP-554), and with topic ids."""
RESULTS: Final = Path(__file__).resolve().parents[2] / "benchmarks" / "measured" / "journey-series.jsonl"
RECORDS: Final = 40
"""In each partition of a topic of one replica."""
PAUSE_SECONDS: Final = 45
RUNS: Final = 10
"""Journeys for each release and order."""
_HEAD: Final = """
## Around topic ids

`make journey-series` makes {runs} more journeys to KRaft from each of three releases, with ZooKeeper's controller as the last or the first broker of each roll.
Brokers before 2.8 keep no topic ids, and a KRaft start sets a log without one aside.
Half-way through a drawn roll each journey has one kind of trouble, or none: {troubles}.
The cluster has topics of one replica with {records} records in each partition, ACLs, SCRAM users, quotas and a delegation token, and gets another topic in each roll.
As promised is a journey after which every record and all of that is there, and no replica was set aside.
*Without state* are the journeys in which a client created a topic during the takeover, so that its partitions had no state in ZooKeeper ([what Kafka loses](verification.md#what-kafka-391-loses)).
The longest stall includes that of a broker that was killed.
"""
_LONE: Final = "lone"
_SASL_LOGIN: Final = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="owner" password="pw"'
_MIGRATION_ROLL: Final = "migration mode"
_KRAFT_ROLL: Final = "KRaft mode, the others"

_SEED: Final = """
from kafka_clients import seed
from kafka_clients.cluster import WireAdmin, confluent_admin
wire = WireAdmin()
seed.create_acls(wire)
seed.what_the_release_lacks(lambda: seed.create_users(confluent_admin()), "SCRAM users")
seed.what_the_release_lacks(lambda: seed.set_quotas(wire), "quotas")
seed.what_the_release_lacks(lambda: seed.set_address_quotas(wire), "quotas of addresses")
wire.set_broker_configs("1", {"num.io.threads": "3", "message.max.bytes": "2000000"})
"""
_INVENTORY: Final = """
import json, pathlib
from kafka_clients.cluster import WireAdmin
from kafka_clients.inventory import inventory
pathlib.Path(%r).write_text(json.dumps(inventory(WireAdmin()), sort_keys=True))
"""


class Trouble(StrEnum):
    """What happens half-way."""

    NONE = "none"
    PAUSE = "pause"
    BROKER_KILLED = "a broker is killed"
    CONTROLLER_KILLED = "ZooKeeper's controller is killed"
    BACK = "back to the old release, and again"


@dataclass(frozen=True)
class Trial:
    """One journey of the series."""

    release: str
    order: Order
    number: int

    @property
    def trouble(self) -> Trouble:
        """Return what happens: each kind comes as often as every other one."""
        return list(Trouble)[self.number % len(Trouble)]

    @property
    def place(self) -> tuple[str, int]:
        """Return where it happens: the roll, and after how many restarts."""
        random = Random(str(self))
        roll = random.choice(self._rolls())
        return roll, 1 if roll == _KRAFT_ROLL else random.choice((1, 2))

    def _rolls(self) -> Sequence[str]:
        protocol = protocol_of(self.release)
        bridge = f"{BRIDGE}, protocol {'.'.join(map(str, protocol))}"
        lift = ["protocol 3.9"] if protocol < protocol_of("2.8") else []
        match self.trouble:
            case Trouble.BACK:
                return [bridge]
            case Trouble.CONTROLLER_KILLED:
                return [bridge, *lift, _MIGRATION_ROLL]
            case Trouble.NONE | Trouble.PAUSE | Trouble.BROKER_KILLED:
                return [bridge, *lift, _MIGRATION_ROLL, _KRAFT_ROLL]

    def __str__(self) -> str:
        """Return what names it."""
        return f"{self.release} {self.order} {self.number}"


@dataclass(frozen=True)
class Ended:
    """A journey that was made."""

    trial: Trial
    journey: Journey

    def written(self) -> str:
        """Return the line that is kept."""
        return json.dumps({**asdict(self.trial), "journey": self.journey.as_json()}, sort_keys=True)


def read(path: Path = RESULTS) -> dict[Trial, Journey]:
    """Return the journeys that were made."""
    lines = path.read_text().splitlines() if path.exists() else []
    found = {}
    for raw in map(json.loads, lines):
        trial = Trial(raw["release"], Order(raw["order"]), raw["number"])
        found[trial] = journey_of(raw["journey"])
    return found


def section(known: Mapping[Trial, Journey]) -> str:
    """Return the series as a part of the page: a row for each release and order."""
    if not known:
        return ""
    rows = [_row(release, order, known) for release, order in product(RELEASES, Order)]
    records = sum(journey.acknowledged for journey in known.values())
    lost = sum(journey.lost for journey in known.values())
    commits = ", ".join(sorted({journey.commit for journey in known.values()}))
    troubles = "; ".join(str(trouble) for trouble in Trouble if trouble is not Trouble.NONE)
    return "\n".join(
        [
            _HEAD.format(runs=RUNS, troubles=troubles, records=RECORDS),
            "| from | order | as promised | made | longest stall | without state | lost |",
            "|---|---|---|---|---|---|---|",
            *rows,
            "",
            f"{records} records acknowledged, {lost} lost. Commits: {commits}.",
            *(
                f"- **✗** {trial}, {trial.trouble}: {why_not(journey)}"
                for trial, journey in known.items()
                if not journey.good
            ),
            "",
        ]
    )


def _row(release: str, order: Order, known: Mapping[Trial, Journey]) -> str:
    made = [journey for trial, journey in known.items() if (trial.release, trial.order) == (release, order)]
    good = sum(journey.good for journey in made)
    stall = max((journey.longest_stall_seconds for journey in made), default=0.0)
    created = sum(bool(journey.created) for journey in made)
    lost = sum(journey.lost for journey in made)
    return f"| {release} | {order} | {good} | {len(made)} of {RUNS} | {stall:.1f} s | {created} | {lost} |"


class SecuredProcesses(TravellingProcesses):
    """Brokers with an authorizer, and a second listener on which an owner of delegation tokens logs in."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.sasl_ports = {broker: free_port() for broker in BROKERS}
        self.modes: dict[int, str] = {}

    @override
    def start_broker(self, broker_id: int, mode: str, *, wait: bool = True) -> None:
        self.modes[broker_id] = mode
        super().start_broker(broker_id, mode, wait=wait)

    @override
    def _broker_properties(self, broker_id: int, mode: str) -> str:
        path = Path(super()._broker_properties(broker_id, mode))
        plain = f"PLAINTEXT://127.0.0.1:{self.broker_ports[broker_id]}"
        text = path.read_text().replace(plain, f"{plain},SASL://127.0.0.1:{self.sasl_ports[broker_id]}")
        text = text.replace("PLAINTEXT:PLAINTEXT", "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT")
        authorizer = "kafka.security.authorizer.AclAuthorizer" if mode in (ZOOKEEPER, MIGRATION) else _STANDARD
        path.write_text(
            f"{text}sasl.enabled.mechanisms=PLAIN\n"
            f'listener.name.sasl.plain.sasl.jaas.config={_SASL_LOGIN} user_owner="pw";\n' + _authorization(authorizer)
        )
        return str(path)

    @override
    def _controller_properties(self, controller_id: int, mode: str) -> str:
        path = Path(super()._controller_properties(controller_id, mode))
        path.write_text(path.read_text() + _authorization(_STANDARD))
        return str(path)


_STANDARD: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def _authorization(authorizer: str) -> str:
    return (
        f"authorizer.class.name={authorizer}\nsuper.users=User:ANONYMOUS;User:owner\n"
        "allow.everyone.if.no.acl.found=true\ndelegation.token.master.key=secret\n"
    )


class Passage:
    """What one journey adds to the rolls: its trouble, topics made half-way, and what must be there at the end."""

    def __init__(self, trial: Trial, processes: SecuredProcesses, traveller: Traveller) -> None:
        self.trial = trial
        self.processes = processes
        self.traveller = traveller
        self.random = Random(f"{trial} passage")
        self.expected: dict[str, int] = {}
        """Records by topic of one replica."""
        self.has_happened = False
        self.tokens = ""
        self.inventory: dict[str, Any] = {}

    def prepare(self) -> None:
        """Give the cluster everything that has to survive."""
        self.traveller.load.script(_SEED)
        self.make_topic(_LONE)
        user = "SCRAM-SHA-256=[iterations=4096,password=pw],producer_byte_rate=12345678"
        self.processes.tool(
            kafka_libraries(self.trial.release),
            "kafka.admin.ConfigCommand", "--zookeeper", self.processes.zookeeper_hosts + CHROOT,
            "--alter", "--add-config", user, "--entity-type", "users", "--entity-name", "by-tool",
        )  # fmt: skip
        self._token_tool("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:renewer")
        self.tokens = self.described_tokens()
        assert "owner" in self.tokens

    def _token_tool(self, *arguments: str) -> str:
        login = self.processes.directory / "owner.properties"
        login.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={_SASL_LOGIN};\n")
        servers = ",".join(f"127.0.0.1:{port}" for port in self.processes.sasl_ports.values())
        return self.processes.tool(
            kafka_libraries(RELEASES[0]), "kafka.admin.DelegationTokenCommand",
            "--bootstrap-server", servers, "--command-config", str(login), *arguments,
        )  # fmt: skip

    def described_tokens(self) -> str:
        """Return the delegation tokens as their owner sees them."""
        lines = self._token_tool("--describe", "--owner-principal", "User:owner").splitlines()
        return "\n".join(sorted(line.rstrip() for line in lines if "User:owner" in line))

    def ask(self) -> dict[str, Any]:
        """Return what the brokers serve, without what the load changes."""
        path = self.processes.directory / "inventory.json"
        self.traveller.load.script(_INVENTORY % str(path))
        found = cast("dict[str, Any]", json.loads(path.read_text()))
        kinds = {f"topic {name}": found["topics"].get(name) for name in self.expected}
        # The load sets the cluster-wide default and its throttles.
        kinds["configs of broker 1"] = found["broker_configs"].get("1")
        return kinds | {kind: found[kind] for kind in ("quotas", "scram", "acls")}

    def after_restart(self, roll: str, number: int) -> None:
        """Let the trouble happen, and make a topic in the middle of each roll."""
        if self.trial.place == (roll, number) and not self.has_happened:
            self.has_happened = True
            self._happen()
        if number == 1 and roll in self._growing():
            wait_for(f"in sync before a topic in roll {roll}", self.processes.in_sync)
            self.make_topic(f"during-{len(self.expected)}")

    def _growing(self) -> Iterator[str]:
        yield f"{BRIDGE}, protocol {'.'.join(map(str, protocol_of(self.trial.release)))}"
        yield from ("protocol 3.9", _MIGRATION_ROLL, "KRaft mode")

    def _happen(self) -> None:
        match self.trial.trouble:
            case Trouble.NONE:
                pass
            case Trouble.PAUSE:
                time.sleep(PAUSE_SECONDS)
            case Trouble.BROKER_KILLED:
                time.sleep(self.random.uniform(0, 4))
                self._kill(self.random.choice(BROKERS))
            case Trouble.CONTROLLER_KILLED:
                time.sleep(self.random.uniform(0, 4))
                self._kill(self.traveller.controller())
            case Trouble.BACK:
                self._go_back_and_again()

    def _go_back_and_again(self) -> None:
        """Take every broker back to the old release, and those that had left it to the bridge release again."""
        bridge = kafka_libraries(BRIDGE)
        upgraded = tuple(b for b in BROKERS if self.processes.libraries_of[f"broker-{b}"] == bridge)
        pin = ".".join(map(str, protocol_of(self.trial.release)))
        self.traveller.roll(f"{self.trial.release} again", ZOOKEEPER, self.trial.release)
        self.traveller.roll(f"{BRIDGE} again", ZOOKEEPER, protocol=pin, brokers=upgraded)

    def _kill(self, broker: int) -> None:
        """Kill a broker, and start it again as it was once ZooKeeper has forgotten its session."""
        if self.traveller.processes.ended(f"broker-{broker}"):
            return
        mode = self.processes.modes[broker]
        self.processes.stop(f"broker-{broker}", signal.SIGKILL)
        if mode != KRAFT:
            wait_for(f"the session of broker {broker} ended", lambda: broker not in self._registered())
        self.processes.start_broker(broker, mode)

    def _registered(self) -> set[int]:
        """Return the brokers that ZooKeeper has."""
        return {registered.id for registered in self.traveller.zookeeper.observe().brokers}

    def make_topic(self, name: str) -> None:
        """Make a topic of one replica, with data on every broker."""
        partitions = 2 * len(BROKERS)
        admin = self.processes.admin_client()
        admin.create_topics([NewTopic(name, partitions, 1, config={"min.insync.replicas": "1"})], operation_timeout=30)[
            name
        ].result(60)
        producer = Producer({"bootstrap.servers": self.processes.bootstrap_servers, "acks": "all", "log_level": 0})
        failed: list[str] = []
        for index in range(RECORDS * partitions):
            producer.produce(
                name, b"%d" % index, partition=index % partitions, on_delivery=lambda error, _: failed.append(str(error)) if error else None
            )  # fmt: skip
        left = producer.flush(120)
        assert not left, f"{left} records of {name} were not acknowledged in 120 s"
        assert not failed, failed[:3]
        self.expected[name] = RECORDS * partitions

    def missing(self) -> list[str]:
        """Return what is not as it was."""
        troubles = []
        for name, wanted in self.expected.items():
            found = self._records(name)
            if found != wanted:
                troubles.append(f"{name}: {found} of {wanted} records")
        served = self.ask()
        for kind, before in self.inventory.items():
            if served[kind] != before:
                troubles.append(f"{kind}: {json.dumps(before)[:400]} became {json.dumps(served[kind])[:400]}")
        tokens = self.described_tokens()
        if tokens != self.tokens:
            troubles.append(f"delegation tokens: {self.tokens!r} became {tokens!r}")
        return troubles

    def _records(self, name: str) -> int:
        consumer = Consumer(
            {
                "bootstrap.servers": self.processes.bootstrap_servers,
                "group.id": "series",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        try:
            partitions = consumer.list_topics(name, timeout=30).topics[name].partitions
            places = [TopicPartition(name, index, 0) for index in partitions]
            expected = sum(consumer.get_watermark_offsets(place, timeout=30)[1] for place in places)
            consumer.assign(places)
            seen = {
                (message.partition(), message.value())
                for message in consumer.consume(expected, timeout=60)
                if message.error() is None
            }
            return len(seen)
        finally:
            consumer.close()


def make(trial: Trial, commit: str, evidence: Path | None) -> Journey:
    """Make one journey, and return what the clients went through."""

    def go(processes: SecuredProcesses, zookeeper: ZooKeeperStore, load: RunningLoad) -> Traveller:
        traveller = Traveller(processes, zookeeper, load, trial.order)
        passage = Passage(trial, processes, traveller)
        passage.prepare()
        traveller.after_restart = passage.after_restart
        traveller.to_bridge(trial.release, lifts=True)
        # Releases before 2.7 have no request for all of it.
        passage.inventory = passage.ask()
        through_migration(traveller, Way.KRAFT)
        traveller.missing = passage.missing()
        if not passage.has_happened:
            traveller.missing.append(f"{trial.trouble} did not happen in roll {trial.place[0]}")
        return traveller

    return undertaken(Journey(trial.release, Way.KRAFT, commit), SecuredProcesses, go, evidence)


def main() -> int:
    """Make the journeys that have no result yet; return 1 if one did not end as promised."""
    parser = argparse.ArgumentParser(prog="python -m tests.journey.series", description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--runs", type=int, default=RUNS, help="for each release and order")
    parser.add_argument("--release", action="append", choices=RELEASES, help="only this one; may be repeated")
    parser.add_argument("--jobs", type=int, default=1, help="journeys at the same time")
    parser.add_argument("--evidence", type=Path, help="keep what processes wrote where it did not end as promised")
    options = parser.parse_args()
    commit = present_commit()
    known = read(options.results)
    # A series that is cut off has some of each.
    wanted = [
        trial
        for number, order, release in product(range(options.runs), Order, options.release or RELEASES)
        if (trial := Trial(release, order, number)) not in known
    ]

    def made(trial: Trial) -> Ended:
        kept_at = options.evidence / str(trial).replace(" ", "-") if options.evidence else None
        begun = Journey(trial.release, Way.KRAFT, commit)
        return Ended(trial, attempted(begun, partial(make, trial, commit, kept_at)))

    is_good = True
    with ThreadPoolExecutor(options.jobs) as pool:
        for future in as_completed([pool.submit(made, trial) for trial in wanted]):
            ended = future.result()
            with options.results.open("a") as file:
                file.write(ended.written() + "\n")
            is_good &= ended.journey.good
            said = "as promised" if ended.journey.good else f"NOT as promised: {ended.journey}"
            print(
                f"{ended.trial}, {ended.trial.trouble} {ended.trial.place}: {said}, {ended.journey.seconds:.0f} s",
                flush=True,
            )
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
