"""Duration of a migration and its impact on clients, from the status of the resource and from the load."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from e2e.harness.load import WARM_UP_LINES, ClientImpact
from e2e.harness.migration import View
from rich.console import Console
from rich.table import Table

REQUIRED_PROFILES = ("zookeeper", "copy", "dual-write", "replicas")


@dataclass(frozen=True)
class PhaseTime:
    """One visit to a phase, in seconds. ``work_s`` is what is left without waits on purpose."""

    phase: str
    total_s: float
    verification_s: float
    hold_s: float
    soak_s: float
    user_s: float

    @property
    def work_s(self) -> float:
        return max(0.0, round(self.total_s - self.verification_s - self.hold_s - self.soak_s - self.user_s, 1))


@dataclass(frozen=True)
class Verdict:
    """A verification that the status lists."""

    gate: str
    profile: str
    purpose: str
    verdict: str
    seconds: float | None
    """From the operator's go to the verdict."""
    counts: dict[str, int]


def phase_times(view: View) -> list[PhaseTime]:
    """Return the time per phase; the last phase, in which the migration stays, takes none."""
    times = []
    for record in view.status.get("history") or []:
        if record.get("leftAt") is None:
            continue
        times.append(
            PhaseTime(
                phase=record["phase"],
                total_s=_seconds(record["enteredAt"], record["leftAt"]),
                verification_s=record.get("verificationWaitSeconds") or 0,
                hold_s=record.get("holdSeconds") or 0,
                soak_s=record.get("soakSeconds") or 0,
                user_s=record.get("userWaitSeconds") or 0,
            )
        )
    return times


def stall_by_phase(view: View, lines: list[dict[str, Any]]) -> dict[str, float]:
    """Return the longest produce stall per phase, and before and after the migration as a baseline."""
    history = view.status.get("history") or []
    entered = [("before", 0.0), *((record["phase"], _time(record["enteredAt"]).timestamp()) for record in history)]
    stalls: dict[str, float] = {}
    for line in lines[WARM_UP_LINES:]:
        if line.get("final"):
            continue
        # A line is about the second that ends at its time.
        phase = next(phase for phase, since in reversed(entered) if since <= line["at"])
        stalls[phase] = max(stalls.get(phase, 0.0), line["max_produce_latency_s"])
    return stalls


def verdicts(view: View) -> list[Verdict]:
    """Return every verification of the status, oldest first."""
    found = []
    for run in view.verifications:
        begun, ended = run.get("releasedAt"), run.get("finishedAt")
        counts = run.get("counts") or {}
        found.append(
            Verdict(
                gate=run.get("gate", ""),
                profile=run.get("profile", ""),
                purpose=run.get("purpose", ""),
                verdict=run.get("verdict") or "none",
                seconds=_seconds(begun, ended) if begun and ended else None,
                counts={kind: of_kind["compared"] for kind, of_kind in counts.items()},
            )
        )
    return found


@dataclass(frozen=True)
class Takeover:
    """The takeover as it was rehearsed and as it was."""

    verdict: str
    rehearsal_s: float | None
    """From the launch of the rehearsal to its result."""
    forecast_s: float | None
    """Time without a controller in the rehearsal: from the claim to dual-write."""
    measured_s: float | None
    """Longest time without an accepted metadata write in the real takeover."""


def takeover(view: View) -> Takeover:
    """Return forecast and truth from the status."""
    record, impact = view.rehearsal, view.status.get("impact") or {}
    forecast = impact.get("forecastTakeoverMilliseconds")
    measured = [u["milliseconds"] for u in impact.get("controllerUnavailable") or [] if u["phase"] == "TakingOver"]
    begun, ended = record.get("launchedAt"), record.get("finishedAt")
    return Takeover(
        verdict=record.get("verdict") or "none",
        rehearsal_s=round(_seconds(begun, ended), 1) if begun and ended else None,
        forecast_s=None if forecast is None else forecast / 1000,
        measured_s=max(measured) / 1000 if measured else None,
    )


def _rehearsed(view: View) -> list[str]:
    """Return what is wrong with the rehearsal: it must have judged before anything was touched."""
    record = view.rehearsal
    if not (view.resource.get("spec") or {}).get("rehearsal", {}).get("enabled"):
        return []
    if record.get("verdict") != "Works":
        return [f"the rehearsal says {record.get('verdict')}: {record.get('reason')}"]
    entered = {visit["phase"]: visit["enteredAt"] for visit in reversed(view.status.get("history") or [])}
    # Without topic ids Kafka copies nothing, so it is rehearsed once the brokers have given them.
    before = "TakingOver" if _lifted_alone(view, entered) else "ProvisioningQuorum"
    if before not in entered or _seconds(record["finishedAt"], entered[before]) < 0:
        return [f"the rehearsal ended after {before} was entered"]
    return [] if takeover(view).forecast_s is not None else ["the rehearsal forecast nothing"]


def _lifted_alone(view: View, entered: dict[str, str]) -> bool:
    """Return whether the brokers' protocol was lifted on ZooKeeper, before there were controllers."""
    lifted_at = (view.status.get("brokerUpgrade") or {}).get("liftedAt")
    return bool(lifted_at) and _seconds(lifted_at, entered["ProvisioningQuorum"]) > 0


def broken_promises(view: View, impact: ClientImpact, serving: dict[str, str], differences: list[str]) -> list[str]:
    """Return every broken guarantee. An empty list is a success."""
    broken = []
    if view.phase != "Completed":
        broken.append(f"phase is {view.phase}, not Completed")
    if view.condition("Ready")["status"] != "True":
        broken.append(f"condition Ready is {view.condition('Ready')}")
    broken += _rehearsed(view)
    last_of_gate = {(verdict.gate, verdict.purpose): verdict for verdict in verdicts(view)}
    broken += [
        f"the last verification before {gate} ({purpose}) says {verdict.verdict}"
        for (gate, purpose), verdict in last_of_gate.items()
        if verdict.verdict != "Consistent"
    ]
    passed = {verdict.profile for verdict in verdicts(view) if verdict.verdict == "Consistent"}
    broken += [f"no passed verification of {profile}" for profile in REQUIRED_PROFILES if profile not in passed]
    if not impact.drained:
        broken.append("the consumer did not reach the end of its topics, so losses are not known")
    for what, count in (
        ("records lost", impact.lost),
        ("records doubled", impact.duplicates),
        ("records unanswered", impact.unanswered),
    ):
        if count:
            broken.append(f"{count} {what}")
    if impact.failures:
        broken.append(f"client errors: {impact.failures}")
    broken += impact.broken
    broken += [f"{check}: {outcome}" for check, outcome in serving.items() if outcome != "ok"]
    broken += [f"served otherwise than before the migration: {difference}" for difference in differences]
    return broken


def as_json(
    view: View, impact: ClientImpact, lines: list[dict[str, Any]], broken: list[str], **more: Any
) -> dict[str, Any]:
    """Return the summary for machines."""
    times = phase_times(view)
    return {
        "succeeded": not broken,
        "broken_promises": broken,
        "total_s": round(sum(time.total_s for time in times), 1),
        "work_s": round(sum(time.work_s for time in times), 1),
        "verification_s": sum(time.verification_s for time in times),
        "hold_s": sum(time.hold_s for time in times),
        "user_s": sum(time.user_s for time in times),
        "phases": [time.__dict__ | {"work_s": time.work_s} for time in times],
        "stalls_s": stall_by_phase(view, lines),
        "verdicts": [verdict.__dict__ for verdict in verdicts(view)],
        "takeover": takeover(view).__dict__,
        "clients": impact.as_json(),
        **more,
    }


def print_summary(
    console: Console, view: View, impact: ClientImpact, lines: list[dict[str, Any]], broken: list[str]
) -> None:
    """Print the summary as text."""
    times = phase_times(view)
    stalls = stall_by_phase(view, lines)
    table = Table(title="time per phase, seconds", title_justify="left")
    for heading in ("phase", "total", "work", "verification", "hold", "soak", "user", "longest stall"):
        table.add_column(heading, justify="left" if heading == "phase" else "right")
    for time in times:
        table.add_row(
            time.phase, f"{time.total_s:.0f}", f"{time.work_s:.0f}", f"{time.verification_s:.0f}",
            f"{time.hold_s:.0f}", f"{time.soak_s:.0f}", f"{time.user_s:.0f}",
            f"{stalls[time.phase]:.1f}" if time.phase in stalls else "",
        )  # fmt: skip
    table.add_section()
    columns = ("total_s", "work_s", "verification_s", "hold_s", "soak_s", "user_s")
    sums = (f"{sum(getattr(time, column) for time in times):.0f}" for column in columns)
    table.add_row("all", *sums, f"{impact.longest_produce_stall_s:.1f}")
    console.print(table)

    table = Table(title="verdicts", title_justify="left")
    for heading in ("before", "profile", "verdict", "seconds", "compared"):
        table.add_column(heading)
    for verdict in verdicts(view):
        seconds = "" if verdict.seconds is None else f"{verdict.seconds:.0f}"
        compared = ", ".join(f"{count} {kind}" for kind, count in verdict.counts.items())
        gate = f"{verdict.gate} ({verdict.purpose})" if verdict.purpose else verdict.gate
        table.add_row(gate, verdict.profile, verdict.verdict, seconds, compared)
    console.print(table)

    rehearsed = takeover(view)
    table = Table(title="the takeover, seconds without a controller", title_justify="left")
    for heading in ("rehearsal", "took", "forecast", "measured"):
        table.add_column(heading, justify="left" if heading == "rehearsal" else "right")
    seconds = (rehearsed.rehearsal_s, rehearsed.forecast_s, rehearsed.measured_s)
    table.add_row(rehearsed.verdict, *("" if each is None else f"{each:.1f}" for each in seconds))
    console.print(table)

    console.print(
        f"clients: {impact.acked} records acknowledged, {impact.lost} lost, {impact.duplicates} doubled, "
        f"errors {impact.errors or 'none'}; longest produce stall {impact.longest_produce_stall_s:.1f} s "
        f"({_longest(stalls)}; before the migration began: {stalls.get('before', 0.0):.1f} s), "
        f"longest end to end {impact.longest_end_to_end_s:.1f} s"
    )
    for balance in impact.watched:
        console.print(f"  {balance.subject}: {balance.said}", markup=False, soft_wrap=True)
    for promise in broken:
        console.print(f"[red]not as promised:[/] {promise}")


def _longest(stalls: dict[str, float]) -> str:
    """Return the phase with the longest stall, and the longest stall after Preflight, in which nothing of the migration restarts."""
    if not stalls:
        return "in no phase"
    own = max((seconds for phase, seconds in stalls.items() if phase not in ("before", "Preflight")), default=0.0)
    return f"in {max(stalls, key=lambda phase: stalls[phase])}; from ProvisioningQuorum on: {own:.1f} s"


def _seconds(begin: str, end: str) -> float:
    return (_time(end) - _time(begin)).total_seconds()


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
