"""Checks the guarantees about restarts against observed pods and partitions, not against the status of the operator. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from types import MappingProxyType

GRACE_S = 3.0
"""Maximum age of the observation on which the operator bases an action."""


@dataclass(frozen=True)
class PodSeen:
    """One pod at one time."""

    uid: str
    ready: bool
    deleting: bool

    @property
    def up(self) -> bool:
        """Whether it serves as far as Kubernetes knows."""
        return self.ready and not self.deleting


@dataclass(frozen=True)
class PodsSeen:
    """All pods of brokers and controllers at one time (seconds since the epoch)."""

    at: float
    pods: Mapping[str, PodSeen]


@dataclass(frozen=True)
class Stop:
    """The time at which a pod was first seen stopping for another reason than a fault."""

    at: float
    pod: str


def stops(samples: Sequence[PodsSeen], struck_uids: AbstractSet[str]) -> list[Stop]:
    """Return every stop of a pod that no fault caused, oldest first."""
    found: list[Stop] = []
    known: dict[str, str] = {}
    stopped = set(struck_uids)
    for sample in samples:
        present = {p.uid for p in sample.pods.values()}
        for name, pod in sample.pods.items():
            known[pod.uid] = name
            if pod.deleting and pod.uid not in stopped:
                stopped.add(pod.uid)
                found.append(Stop(sample.at, name))
        for uid, name in known.items():
            if uid not in present and uid not in stopped:
                stopped.add(uid)
                found.append(Stop(sample.at, name))
    return found


def broken_restarts(
    samples: Sequence[PodsSeen],
    vitals: Sequence[Mapping[str, float]],
    brokers: AbstractSet[str],
    struck_uids: AbstractSet[str],
    window: tuple[float, float],
    zones: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """Return the broken guarantees about restarts within a period.

    A broker may be stopped only while every other broker is up, but for those of its own zone if ``zones`` has the brokers' zones, and no pod may be stopped while a partition is below its min ISR.
    Problems that began less than ``GRACE_S`` before a stop were unknown at the decision. A pod that is already down may be restarted.
    Controllers that stop together are the end of a quorum, which needs no ISR.
    """
    broken = []
    every_stop = stops(samples, struck_uids)
    for stop in every_stop:
        if not window[0] <= stop.at <= window[1] or _down_for(samples, stop.pod, stop.at) >= GRACE_S:
            continue
        if stop.pod in brokers:
            broken += [
                f"{stop.pod} was stopped while {other} had been down for {seconds:.0f} s"
                for other in sorted(brokers - {stop.pod})
                if not zones or zones[other] != zones[stop.pod]
                if (seconds := _down_for(samples, other, stop.at)) >= GRACE_S
            ]
        elif any(s.pod not in brokers and s is not stop and abs(s.at - stop.at) < GRACE_S for s in every_stop):
            continue
        before = [line for line in vitals if stop.at - GRACE_S <= line["at"] <= stop.at]
        if before and all(line["below_min_isr"] for line in before):
            broken.append(
                f"{stop.pod} was stopped while {before[-1]['below_min_isr']:.0f} partition(s) were below min ISR"
            )
    return broken


def brokers_down_by_us(samples: Sequence[PodsSeen], brokers: AbstractSet[str], struck_uids: AbstractSet[str]) -> int:
    """Return the maximum number of brokers that were down at once without a fault."""
    most = 0
    ours: set[str] = set()
    last_uid: dict[str, str] = {}
    for sample in samples:
        for name in brokers:
            pod = sample.pods.get(name)
            before = last_uid.get(name)
            replaced = before is not None and before not in struck_uids and (pod is None or pod.uid != before)
            if replaced or (pod is not None and pod.deleting and pod.uid not in struck_uids):
                ours.add(name)
            if pod is not None:
                last_uid[name] = pod.uid
                if pod.up:
                    ours.discard(name)
        most = max(most, len(ours))
    return most


def _down_for(samples: Iterable[PodsSeen], pod: str, until: float) -> float:
    """Return how long a pod had been down at a point in time."""
    since: float | None = None
    for sample in samples:
        if sample.at >= until:
            break
        seen = sample.pods.get(pod)
        if seen is not None and seen.up:
            since = None
        elif since is None:
            since = sample.at
    return 0.0 if since is None else until - since
