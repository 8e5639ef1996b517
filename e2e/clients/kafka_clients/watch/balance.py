"""The balances of what the load watches. Pure: it judges what was written, asked for and seen."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

SHOWN = 5


class Subject(StrEnum):
    """What is watched."""

    KEPT = "kept records"
    TRANSACTIONS = "transactions"
    GROUP = "group offsets"
    MOVES = "reassignments"
    TOPICS = "topics"
    CONFIGS = "configs"


@dataclass(frozen=True)
class Balance:
    """The end of one subject."""

    subject: str
    said: str
    """What was written and what was seen, in one line."""
    broken: tuple[str, ...] = ()
    """What is not as it must be."""

    def as_json(self) -> dict[str, Any]:
        """Return it for the load's last line."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Balance":
        """Return it from the load's last line."""
        return cls(value["subject"], value["said"], tuple(value["broken"]))


@dataclass(frozen=True)
class KeptTopic:
    """A topic of records older than the static retention, when they were written and at the end."""

    earliest: int
    latest: int
    earliest_at_end: int
    latest_at_end: int
    read: int
    """How many of the records between the first two offsets were read at the end."""


def judge_kept(topics: Mapping[str, KeptTopic]) -> Balance:
    """Every record that a dynamic setting keeps is there, and the log starts and ends where it did."""
    broken = []
    for name, topic in sorted(topics.items()):
        written = topic.latest - topic.earliest
        if topic.read != written:
            broken.append(f"{name}: {written - topic.read} of {written} records are gone")
        if topic.earliest_at_end != topic.earliest:
            broken.append(f"{name}: the log starts at {topic.earliest_at_end}, not at {topic.earliest}")
        if topic.latest_at_end != topic.latest:
            broken.append(f"{name}: the log ends at {topic.latest_at_end}, not at {topic.latest}")
    written = sum(topic.latest - topic.earliest for topic in topics.values())
    read = sum(topic.read for topic in topics.values())
    return Balance(Subject.KEPT, f"{written} older than the static retention, {read} still read", tuple(broken))


Place = tuple[int, int]
"""Partition and offset."""


@dataclass
class Transactions:
    """Numbers of records by the outcome of their transactions, and where a ``read_committed`` consumer saw them."""

    committed: set[int] = field(default_factory=set)
    aborted: set[int] = field(default_factory=set)
    unknown: set[int] = field(default_factory=set)
    """The producer was lost before it knew the outcome."""
    live: dict[int, set[Place]] = field(default_factory=dict)
    """Seen while the transactions went on."""
    again: dict[int, set[Place]] = field(default_factory=dict)
    """Seen at the end by a new consumer, from the beginning of the topic."""
    errors: Counter[str] = field(default_factory=Counter)
    """What the consumers were told instead of a record."""

    def judge(self) -> Balance:
        """Nothing committed is lost or doubled, and nothing aborted is seen, neither live nor at the end."""
        places = {
            number: self.live.get(number, set()) | self.again.get(number, set())
            for number in self.live.keys() | self.again.keys()
        }
        found = {
            "committed and never seen live": self.committed - self.live.keys(),
            "committed and not seen at the end": self.committed - self.again.keys(),
            "doubled": {number for number, where in places.items() if len(where) > 1},
            "aborted and seen": self.aborted & places.keys(),
        }
        broken = [f"{len(numbers)} records {what}: {_some(numbers)}" for what, numbers in found.items() if numbers]
        if not self.committed or not self.aborted:
            broken.append("no transaction was committed and another aborted, so nothing is proven")
        said = f"{len(self.committed)} records committed, {len(self.committed & self.again.keys())} of them seen, "
        said += f"{len(self.aborted)} aborted, {len(found['aborted and seen'])} of them seen"
        unknown = f", {len(self.unknown)} of unknown outcome" if self.unknown else ""
        errors = f", consumers were told {dict(self.errors)}" if self.errors else ""
        return Balance(Subject.TRANSACTIONS, said + unknown + errors, tuple(broken))


@dataclass
class GroupOffsets:
    """What a group's only member has read and committed, by partition, and what the coordinator answered.

    A commit without an answer may have been stored or not, so that any offset from the last acknowledged to the last attempted one is right.
    """

    acknowledged: dict[int, int] = field(default_factory=dict)
    attempted: dict[int, int] = field(default_factory=dict)
    expected: dict[int, int] = field(default_factory=dict)
    """The offset that is to be read next; a new assignment forgets it."""
    records: int = 0
    fetches: int = 0
    assignments: int = 0
    broken: list[str] = field(default_factory=list)

    def assigned(self) -> None:
        """Note that the member goes on where the group's offsets say."""
        self.assignments += 1
        self.expected.clear()

    def read(self, partition: int, offset: int) -> None:
        """Note a record."""
        self.records += 1
        if (expected := self.expected.get(partition)) is None:
            self._compare(partition, offset, "the group goes on")
        elif offset > expected:
            self.broken.append(f"partition {partition}: reading jumped from {expected} to {offset}")
        elif offset < expected:
            self.broken.append(f"partition {partition}: reading went back from {expected} to {offset}")
        self.expected[partition] = offset + 1

    def attempt(self, offsets: Mapping[int, int]) -> None:
        """Note a commit that is sent."""
        self.attempted |= offsets

    def acknowledge(self, offsets: Mapping[int, int]) -> None:
        """Note a commit that was answered."""
        self.acknowledged |= offsets

    def fetched(self, offsets: Mapping[int, int]) -> None:
        """Note what the coordinator says is committed; negative: nothing."""
        self.fetches += 1
        for partition, offset in offsets.items():
            self._compare(partition, offset, "the committed offset is")

    def _compare(self, partition: int, offset: int, what: str) -> None:
        low = self.acknowledged.get(partition, 0)
        high = max(low, self.attempted.get(partition, low))
        if offset < 0:
            self.broken.append(f"partition {partition}: the committed offset {low} is lost")
        elif offset < low:
            self.broken.append(f"partition {partition}: {what} back at {offset}, {low} was committed")
        elif offset > high:
            self.broken.append(f"partition {partition}: {what} ahead at {offset}, {high} was committed")

    def judge(self, ends: Mapping[int, int]) -> Balance:
        """No offset went back, jumped or was lost, and the group has committed to the end of its topic."""
        behind = [
            f"partition {partition}: {self.acknowledged.get(partition, 0)} of {end} committed at the end"
            for partition, end in sorted(ends.items())
            if self.acknowledged.get(partition, 0) < end
        ]
        idle = [] if self.records and self.fetches else ["nothing was read, so nothing is proven"]
        said = f"{self.records} records, committed offsets asked for {self.fetches} times and after {self.assignments} assignments"
        return Balance(Subject.GROUP, said, (*_first(self.broken), *behind, *idle))


@dataclass(frozen=True)
class Move:
    """One reassignment."""

    when: str
    seconds: float
    completed: bool


@dataclass(frozen=True)
class Copies:
    """A partition at the end."""

    wanted: tuple[int, ...]
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    hosts: tuple[int, ...]
    """Brokers with a directory of it: one that lost the partition must not keep it (KAFKA-16120)."""
    end: int
    end_when_written: int


def judge_moves(moves: Iterable[Move], partitions: Mapping[int, Copies]) -> Balance:
    """Every reassignment is complete, and each partition is where it was moved to and nowhere else."""
    moves = tuple(moves)
    broken = [f"{move.when}: not complete after {move.seconds:.0f} s" for move in moves if not move.completed]
    for number, copies in sorted(partitions.items()):
        wanted = set(copies.wanted)
        facts = {"replicas": copies.replicas, "in-sync replicas": copies.in_sync, "directories": copies.hosts}
        broken += [
            f"partition {number}: {what} at {sorted(found)}, not at {sorted(wanted)}"
            for what, found in facts.items()
            if set(found) != wanted
        ]
        if copies.end != copies.end_when_written:
            broken.append(f"partition {number}: the log ends at {copies.end}, not at {copies.end_when_written}")
    done = ", ".join(f"{move.when} in {move.seconds:.1f} s" for move in moves if move.completed)
    return Balance(Subject.MOVES, done or "none was asked for", tuple(broken))


@dataclass
class Topics:
    """Topics whose creation or deletion was acknowledged."""

    created: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    unanswered: set[str] = field(default_factory=set)
    """The last request about them had no answer."""
    repeated: Counter[str] = field(default_factory=Counter)
    """Errors after which a request was repeated."""

    def judge(self, existing: Collection[str]) -> Balance:
        """Those created exist, those deleted do not."""
        missing = self.created - self.deleted - self.unanswered - set(existing)
        back = (self.deleted - self.unanswered) & set(existing)
        broken = []
        if missing:
            broken.append(f"{len(missing)} were created and do not exist: {_some(missing)}")
        if back:
            broken.append(f"{len(back)} were deleted and exist: {_some(back)}")
        if self.unanswered:
            broken.append(f"{len(self.unanswered)} requests were never answered: {_some(self.unanswered)}")
        said = f"{len(self.created)} created, {len(self.deleted)} of them deleted"
        if self.repeated:
            said += f", requests repeated after {dict(self.repeated)}"
        return Balance(Subject.TOPICS, said if self.created else "none was asked for", tuple(broken))


def judge_configs(wanted: Mapping[str, str], served: Mapping[str, str | None], alterations: int) -> Balance:
    """Every altered config has the value that was set last."""
    broken = tuple(
        f"{name} is {served.get(name)}, not {value}"
        for name, value in sorted(wanted.items())
        if served.get(name) != value
    )
    return Balance(Subject.CONFIGS, f"{len(wanted)} set, {alterations} altered before the takeover", broken)


def _some(values: Iterable[int] | Iterable[str]) -> str:
    return ", ".join(str(value) for value in sorted(values)[:SHOWN])


def _first(said: list[str]) -> list[str]:
    """Return each kind of sentence once, since an offset that is wrong is seen at each question."""
    counts = Counter(said)
    return [text if number == 1 else f"{text} ({number} times)" for text, number in counts.most_common(SHOWN)]
