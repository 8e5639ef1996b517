"""Deletions of the operator's own objects: what is deleted, in which phase, and what came of it. Pure."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any


class Rest(StrEnum):
    """Where the migration rests while objects are deleted."""

    TAKING_OVER = "TakingOver"
    """Paused after the first broker; nothing was copied yet."""
    DUAL_WRITE = "DualWrite"
    ROLLING_BROKERS = "RollingBrokers"
    """Paused after the first KRaft broker."""
    AWAITING_FINALIZATION = "AwaitingFinalization"

    @property
    def paused(self) -> bool:
        """Whether ``spec.paused`` holds the migration there, between two brokers."""
        return self in (Rest.TAKING_OVER, Rest.ROLLING_BROKERS)


class Thing(StrEnum):
    """What is deleted. The order is that of a phase: what begins a roll-out of the controllers is last."""

    SERVICE = "Service"
    CONFIG_MAP = "ConfigMap"
    NETWORK_POLICY = "NetworkPolicy"
    DISRUPTION_BUDGET = "PodDisruptionBudget"
    LOG_SECRETS = "both Secrets of the log servers"
    ORIGINALS_FIRST = "first Secret of the originals"
    ORIGINALS_COPY = "second Secret of the originals"
    ORIGINALS = "both Secrets of the originals"
    ORPHANED = "StatefulSet, `--cascade=orphan`"
    STATEFUL_SET = "StatefulSet"
    CLAIM = "claim and pod of one controller"
    AUTHORITY = "Secret of the authority"
    LISTENER_BROKERS = "listener Secret of the brokers"
    LISTENER_CONTROLLERS = "listener Secret of the controllers"


REFUSED = frozenset({Thing.ORIGINALS, Thing.CLAIM, Thing.AUTHORITY})
"""What the operator does not create anew: the status must name it, and the documented way out must work."""
STOPS_VOTERS = frozenset({Thing.STATEFUL_SET, Thing.CLAIM, Thing.LISTENER_CONTROLLERS})
"""What stops voters. After every other deletion each voter must be the process that it was."""


@dataclass(frozen=True)
class Deletion:
    """One deletion in one phase."""

    thing: Thing
    rest: Rest
    commands: tuple[str, ...]
    """What was typed, without the namespace: the deletion, then the way out."""
    restored_s: float
    """Seconds from the deletion until every object was there again; where the operator refuses, from the way out."""
    whole_s: float | None
    """Seconds from the deletion, or from the way out, until every voter was whole again; None if no voter had to stop."""
    named_s: float | None
    """Seconds from the deletion until the status named what it does not create anew."""
    said: tuple[str, ...]
    """What status and events said meanwhile."""
    high_watermark: tuple[int, int]
    """Of the metadata log, before the deletion and after everything was whole."""
    voters_restarted: tuple[str, ...]
    window: tuple[float, float]
    """Seconds since the epoch."""
    troubles: tuple[str, ...] = ()
    longest_stall_s: float = 0.0
    """Longest time that a producer waited for an acknowledgement meanwhile."""
    run: dict[str, Any] = field(default_factory=dict)
    """What holds for the whole run: lost and doubled records, inventory, commit."""

    @property
    def good(self) -> bool:
        """Whether it ended as promised."""
        run = self.run
        harmed = run.get("lost") != 0 or run.get("duplicates") or run.get("watched") or run.get("inventory_differences")
        return not self.troubles and not harmed and bool(run.get("completed"))


def write(path: Path, deletions: Iterable[Deletion]) -> None:
    """Write the results of a run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(asdict(each), ensure_ascii=False) + "\n" for each in deletions))


def read(directory: Path) -> dict[tuple[Thing, Rest], Deletion]:
    """Return the newest result of each deletion."""
    found = [
        _of(json.loads(line)) for path in sorted(directory.glob("*.jsonl")) for line in path.read_text().splitlines()
    ]
    return {(each.thing, each.rest): each for each in sorted(found, key=lambda d: d.window)}


def _of(value: dict[str, Any]) -> Deletion:
    value |= {"thing": Thing(value["thing"]), "rest": Rest(value["rest"])}
    lists = ("commands", "said", "high_watermark", "voters_restarted", "window", "troubles")
    return Deletion(**value | {name: tuple(value[name]) for name in lists})


def troubles(deletion: Deletion) -> tuple[str, ...]:
    """Return what of a deletion is not as promised, as far as it was watched."""
    before, after = deletion.high_watermark
    found = [f"the high watermark fell from {before} to {after}"] if after < before else []
    if deletion.thing in REFUSED and deletion.named_s is None:
        found.append("the status never named it")
    if not deletion.said:
        found.append("neither status nor event said what was gone")
    if deletion.thing not in STOPS_VOTERS and deletion.voters_restarted:
        found.append(f"voters restarted: {', '.join(deletion.voters_restarted)}")
    return (*found, *deletion.troubles)
