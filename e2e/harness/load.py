"""The clients' load during an event in the cluster, and its impact on the clients."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from e2e.clients.kafka_clients.watch.balance import Balance
from e2e.clients.kafka_clients.watch.moments import FOLDER, Moment
from e2e.harness.foreign import ForeignCluster
from e2e.harness.kube import CommandFailedError, eventually
from e2e.harness.migration import View

DRAIN_TIMEOUT_S = 300
WARM_UP_LINES = 6


RECONNECTING = frozenset({"consumer:_RESOLVE"})
"""librdkafka's messages about connections that it restores by itself: a pod that is being replaced has no name in DNS."""


@dataclass(frozen=True)
class ClientImpact:
    """The impact on producer and consumer from start to stop."""

    sent: int
    acked: int
    received: int
    lost: int
    """Acknowledged, but not to be read."""
    duplicates: int
    redelivered: int
    unanswered: int
    """Neither acknowledged nor refused when the load ended."""
    errors: dict[str, int]
    drained: bool
    """Whether the consumer reached the end of the topics: only then is ``lost`` known."""
    longest_produce_stall_s: float
    """The longest time between sending a record and its acknowledgement."""
    longest_end_to_end_s: float
    longest_consumer_gap_s: float
    seconds_without_ack: int
    watched: tuple[Balance, ...] = ()
    """What the load watches beside its own records."""

    @property
    def broken(self) -> list[str]:
        """What of the watched is not as it must be."""
        return [f"{balance.subject}: {what}" for balance in self.watched for what in balance.broken]

    @property
    def failures(self) -> dict[str, int]:
        """Errors, without those that only report a reconnect."""
        return {name: count for name, count in self.errors.items() if name not in RECONNECTING}

    @property
    def keeps_records(self) -> bool:
        """Whether no record was lost or duplicated, and everything watched is as it must be."""
        return self.drained and not (self.lost or self.duplicates or self.unanswered or self.broken)

    @property
    def unharmed(self) -> bool:
        """Whether this holds, and no client received an error."""
        return self.keeps_records and not self.failures

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"unharmed": self.unharmed}


@dataclass(frozen=True)
class Load:
    """A pod that produces and consumes."""

    cluster: ForeignCluster
    told: set[Moment] = field(default_factory=set)
    """The moments that it knows of."""

    @property
    def pod(self) -> str:
        return f"{self.cluster.prefix}load"

    def start(self) -> None:
        """Start the load and wait until records are consumed."""
        kube, namespace = self.cluster.kube, self.cluster.namespace
        kube.kubectl("delete", "pod", self.pod, "-n", namespace, "--ignore-not-found")
        kube.apply(self.cluster.manifest("load.yaml"), namespace)
        try:
            eventually(self._flows, "the load's records are acknowledged and received", 120)
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{kube.troubles(namespace) or self.lines()[-3:]}") from error

    def look(self, view: View) -> None:
        """Tell the load which moment of the migration has come; a moment that cannot be told now is told at the next look."""
        moment = moment_of(view)
        if moment is None or moment in self.told:
            return
        script = f"mkdir -p {FOLDER} && touch {FOLDER}/{moment}"
        try:
            self.cluster.kube.kubectl("exec", "-n", self.cluster.namespace, self.pod, "--", "sh", "-c", script)
        except CommandFailedError:
            return
        self.told.add(moment)

    def stop(self) -> list[dict[str, Any]]:
        """Let it drain; return its lines, the last of them its balance."""
        kube, namespace = self.cluster.kube, self.cluster.namespace
        # Its process is asked to end rather than the pod: with the pod its log would go.
        kube.kubectl("exec", "-n", namespace, self.pod, "--", "sh", "-c", "kill -TERM 1")
        eventually(
            lambda: self._phase() in {"Succeeded", "Failed"}, "the load has drained and ended", DRAIN_TIMEOUT_S, 1
        )
        lines = self.lines()
        if not lines or not lines[-1].get("final"):
            raise RuntimeError(f"pod {namespace}/{self.pod} ended ({self._phase()}) without a balance: see its log")
        kube.kubectl("delete", "pod", self.pod, "-n", namespace)
        return lines

    def lines(self) -> list[dict[str, Any]]:
        """Return the output so far: one object per second."""
        log = self.cluster.kube.kubectl("logs", "-n", self.cluster.namespace, self.pod)
        return [json.loads(line) for line in log.splitlines() if line.startswith("{")]

    def seconds(self) -> int:
        """Return how many seconds it has run by its own count: a mark between two parts of a run."""
        return len(self.lines())

    def _phase(self) -> str:
        pod = self.cluster.kube.get("pod", self.pod, self.cluster.namespace)
        return pod["status"]["phase"] if pod else "gone"

    def _flows(self) -> bool:
        if self._phase() != "Running":
            return False
        lines = self.lines()
        return bool(lines) and lines[-1]["acked"] > 0 and lines[-1]["received"] > 0


def moment_of(view: View) -> Moment | None:
    """Return the moment of a migration, if it is one that the load waits for."""
    match view.phase:
        case "TakingOver":
            return Moment.TAKEOVER
        case "DualWrite":
            return Moment.DUAL_WRITE
        case "RollingBrokers" if view.brokers.startswith(("1/", "2/")):
            return Moment.MIXED
        case _:
            return None


def client_impact(lines: list[dict[str, Any]]) -> ClientImpact:
    """Return the summary of all lines of a run."""
    *seconds, final = lines
    warm = seconds[WARM_UP_LINES:]
    return ClientImpact(
        sent=final["sent"],
        acked=final["acked"],
        received=final["received"],
        lost=final["lost"],
        duplicates=final["duplicates"],
        redelivered=final["redelivered"],
        unanswered=final["unanswered"],
        errors=final["errors"],
        drained=final["drained"],
        longest_produce_stall_s=final["longest_produce_s"],
        longest_end_to_end_s=final["longest_end_to_end_s"],
        longest_consumer_gap_s=max((second["gap_s"] for second in warm[:-1]), default=0.0),
        seconds_without_ack=sum(second["acked"] == 0 for second in warm[:-1]),
        watched=tuple(Balance.from_json(value) for value in final["watched"]),
    )


def longest_stalls(lines: list[dict[str, Any]], mark: int) -> tuple[float, float]:
    """Return the longest produce stall before and after a mark (`Load.seconds`) of a run, with a resolution of one second.

    A record counts where it was sent, not where its acknowledgement came: one that waited across the mark waited for what was before it.
    """
    *seconds, _ = lines
    # A line is about the second that ends with it.
    begins = [(line["at"] - line["max_produce_latency_s"], line["max_produce_latency_s"]) for line in seconds]
    at = seconds[mark - 1]["at"] if mark else 0.0
    warm = [(sent, stall) for sent, stall in begins[WARM_UP_LINES:] if stall]
    before = max((stall for sent, stall in warm if sent < at), default=0.0)
    return before, max((stall for sent, stall in warm if sent >= at), default=0.0)


def longest_stall_began(lines: list[dict[str, Any]]) -> float:
    """Return when the record was sent that waited longest for its acknowledgement, by the load's clock, with a resolution of one second."""
    *seconds, _ = lines
    longest = max(
        seconds[WARM_UP_LINES:],
        key=lambda line: line["max_produce_latency_s"],
        default={"at": 0.0, "max_produce_latency_s": 0.0},
    )
    return longest["at"] - longest["max_produce_latency_s"]
