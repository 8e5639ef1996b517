"""Troubles of nodes by phase: the cells, when a trouble is due, and what is judged of it. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise, product
from typing import Any

from e2e.harness import plain_brokers
from e2e.harness.layouts import LAYOUTS, ZOOKEEPER, Layout
from e2e.harness.migration import View

NODES = 3
ZONE_OF_NODES = dict(zip(plain_brokers.ZONES, ("zone-1", "zone-2", "zone-3"), strict=True))
"""Zone of the node on which the brokers of each rack run."""
BACK_AFTER_S = 60
"""How long a drained node stays cordoned, and a lost one away."""
AWAY_S = 600


class Trouble(StrEnum):
    """What happens to a node."""

    NONE = "none"
    DRAIN = "drain"
    AWAY = "away"
    LOST = "lost"


WHAT = {
    Trouble.NONE: "nothing happens to a node",
    Trouble.DRAIN: f"`kubectl drain --ignore-daemonsets --delete-emptydir-data`, and `kubectl uncordon` {BACK_AFTER_S} s after it. Its brokers stay Pending meanwhile, because zone and volume are theirs",
    Trouble.AWAY: "the node's network is gone, everything on it runs on, and it is given back after the time in the table",
    Trouble.LOST: f"the node is killed with all its pods and its Node object is deleted; it is started again {BACK_AFTER_S} s later, with its volumes",
}


class When(StrEnum):
    """The time of the trouble."""

    FORWARD = "forward"
    TAKING_OVER = "TakingOver"
    DUAL_WRITE = "DualWrite"
    ROLLING_BROKERS = "RollingBrokers"
    BACK = "back"
    """On the way back, which is asked for in RollingBrokers."""


@dataclass(frozen=True)
class Cell:
    """One run."""

    trouble: Trouble
    when: When

    def __str__(self) -> str:
        return f"{self.trouble}@{self.when}"

    @classmethod
    def parse(cls, text: str) -> "Cell":
        """Return the cell of a name.

        Raises
        ------
        ValueError
            There is no such cell.
        """
        trouble, _, when = text.partition("@")
        cell = cls(Trouble(trouble), When(when))
        if cell not in CELLS:
            raise ValueError(f"{text} is not a valid cell")
        return cell

    @property
    def layout(self) -> Layout:
        """Six brokers in batches, those of each rack on a node of their own."""
        (known,) = (each for each in LAYOUTS if each.name == "zones-in-batches")
        objects = plain_brokers.zones(ZOOKEEPER, brokers=2, nodes=ZONE_OF_NODES)
        return Layout(**{**known.__dict__, "name": str(self), "title": str(self), "installed": objects})

    def is_due(self, view: View) -> bool:
        """Whether the migration is where the trouble is to come. Within a roll, one broker has been restarted, and others have not."""
        if self.trouble is Trouble.NONE:
            return False
        brokers = view.status.get("brokers") or {}
        mode = {When.TAKING_OVER: "Migration", When.ROLLING_BROKERS: "KRaft"}.get(self.when)
        if mode and not (brokers.get("mode") == mode and brokers.get("inMode", 0) > 0):
            return False
        return view.phase == ("RollingBack" if self.when is When.BACK else self.when)


CELLS = (
    *(Cell(Trouble.NONE, when) for when in (When.FORWARD, When.BACK)),
    *(
        Cell(trouble, when)
        for trouble, when in product(Trouble, When)
        if trouble is not Trouble.NONE and when is not When.FORWARD
    ),
)


def said(told: Sequence[tuple[float, str]], window: tuple[float, float]) -> list[str]:
    """Return what a migration said in a period, each with the seconds for which it stood. Messages that differ in numbers only count as one."""
    found: dict[str, tuple[str, float]] = {}
    for (at, text), (end, _) in pairwise([*told, (window[1], "")]):
        seconds = min(end, window[1]) - max(at, window[0])
        if seconds > 0:
            key = "".join(c for c in text if not c.isdigit())
            first, before = found.get(key, (text, 0.0))
            found[key] = (first, before + seconds)
    return [f"{text} ({seconds:.0f} s)" for text, seconds in found.values()]


def whole_again(vitals: Sequence[Mapping[str, Any]], ended: float) -> float:
    """Return when every replica was in sync again after a trouble; the end of what was seen if that was never."""
    whole = (line["at"] for line in vitals if line["at"] >= ended and not _incomplete(line))
    return next(whole, vitals[-1]["at"] if vitals else ended)


def below_min_isr(vitals: Sequence[Mapping[str, Any]], window: tuple[float, float]) -> tuple[int, int]:
    """Return the most partitions that were below their min ISR at a time, within a period and outside of it."""
    within = [line["below_min_isr"] for line in vitals if window[0] <= line["at"] <= window[1]]
    outside = [line["below_min_isr"] for line in vitals if not window[0] <= line["at"] <= window[1]]
    return max(within, default=0), max(outside, default=0)


def unread(vitals: Sequence[Mapping[str, Any]]) -> int:
    """Return in how many moments the partitions could not be read: what was below its min ISR then is not known."""
    return sum("trouble" in line for line in vitals)


def _incomplete(line: Mapping[str, Any]) -> bool:
    return "trouble" in line or bool(line["under_replicated"] or line["offline"])


def spread_problem(zones: Mapping[str, str]) -> list[str]:
    """Return what is wrong with the zones in which the controllers run."""
    if sorted(zones.values()) == sorted(ZONE_OF_NODES.values()):
        return []
    return [f"the controllers are not one in each zone: {dict(sorted(zones.items()))}"]
