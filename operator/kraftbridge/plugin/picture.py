"""Renders a migration for the terminal. Pure: status in, renderable out."""

from __future__ import annotations

from datetime import datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kraftbridge.models.catalogue import Severity
from kraftbridge.models.conditions import ConditionType, condition
from kraftbridge.models.phase import FORWARD, Phase
from kraftbridge.models.rehearsal import RehearsalVerdict
from kraftbridge.models.status import FindingStatus, RehearsalStatus, VerificationStatus
from kraftbridge.plugin.plan import channel_line
from kraftbridge.plugin.session import Migration

_POSSIBLE = {"True": ("possible", "green"), "False": ("not possible", "red"), "Unknown": ("not known", "yellow")}


def status_picture(migration: Migration, now: datetime) -> RenderableType:
    """Return the phases as a line, and below it brokers, quorum, the waiting reason and the last verdict."""
    status = migration.status
    spec = migration.spec
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold")
    facts.add_column()
    facts.add_row("target", f"{spec.target}{', paused' if spec.paused else ''}")
    facts.add_row("message", Text(status.message or "the operator's first look"))
    stalled = condition(status.conditions, ConditionType.STALLED)
    if stalled is not None and stalled.status == "True":
        text = Text(stalled.reason, style="red")
        facts.add_row(
            "stalled", text if stalled.message == status.message else text.append(f"  {stalled.message}", "default")
        )
    possible = condition(status.conditions, ConditionType.ROLLBACK_POSSIBLE)
    if possible is not None:
        word, style = _POSSIBLE[possible.status]
        facts.add_row("rollback", Text(word, style=style).append(f"  {possible.message}", "default"))
    brokers = status.brokers
    facts.add_row(
        "brokers",
        f"{brokers.in_mode} of {brokers.total} in mode {brokers.mode}" if brokers.total else "not counted yet",
    )
    if status.channel is not None:
        facts.add_row("channel", Text(channel_line(spec, status)))
    facts.add_row("quorum", _quorum(migration, now))
    if status.operation is not None:
        took = _age(now, status.operation.started_at)
        facts.add_row("at work", f"{status.operation.kind} {status.operation.pod}, for {took}")
    if status.migration_offset is not None:
        moved = status.migration_offset.moved_at
        facts.add_row(
            "/migration",
            f"offset {status.migration_offset.offset}" + (f", moved {_age(now, moved)} ago" if moved else ""),
        )
    facts.add_row("verdict", verdict_line(last_verdict(migration), now))
    rehearsal = status.rehearsal
    if rehearsal is not None and rehearsal.verdict is not None:
        facts.add_row("rehearsal", f"{rehearsal.verdict}: {rehearsal.reason}")
    blocking = sum(1 for f in status.findings if f.severity is Severity.BLOCKING and not f.accepted)
    if blocking:
        facts.add_row(
            "findings",
            Text(
                f"{blocking} blocking: kubectl kraftbridge findings {migration.name} -n {migration.namespace}",
                style="red",
            ),
        )
    title = Text.assemble((f"{migration.namespace}/{migration.name}", "bold"), f"   {_time_in_phase(migration, now)}")
    return Group(title, phase_line(status.phase), facts)


def phase_line(phase: Phase) -> Text:
    """Return the phases in order. Completed phases and the current phase are marked."""
    phases = FORWARD if phase in FORWARD else (Phase.ROLLING_BACK, Phase.ROLLED_BACK)
    here = phases.index(phase)
    line = Text()
    for number, each in enumerate(phases):
        if number:
            line.append(" ─ ", style="dim")
        mark, style = ("●", "green") if number < here else ("◉", "bold cyan") if number == here else ("○", "dim")
        line.append(f"{mark} {each}", style=style)
    return line


def last_verdict(migration: Migration) -> VerificationStatus | None:
    """Return the newest verification that has a verdict."""
    return next((v for v in reversed(migration.status.verifications) if v.verdict is not None), None)


def verdict_line(verification: VerificationStatus | None, now: datetime) -> Text:
    """Return a verification in one line."""
    if verification is None or verification.verdict is None:
        return Text("none yet", style="dim")
    compared = sum(counts.compared for counts in verification.counts.values())
    style = "green" if verification.verdict == "Consistent" else "red"
    line = Text(str(verification.verdict), style=style)
    age = f", {_age(now, verification.finished_at)} ago" if verification.finished_at else ""
    line.append(
        f"  {verification.profile} for {verification.gate}: {compared} entities, {verification.differing} differ{age}",
        style="default",
    )
    return line.append(f"  {verification.reason}", style="dim") if verification.reason else line


def rehearsal_picture(rehearsal: RehearsalStatus, now: datetime) -> RenderableType:
    """Return a rehearsal that ended: verdict, forecast, and what would be lost with its remedy."""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold")
    facts.add_column()
    style = "green" if rehearsal.verdict is RehearsalVerdict.WORKS else "red"
    age = f", {_age(now, rehearsal.finished_at)} ago" if rehearsal.finished_at else ""
    facts.add_row("verdict", Text(f"{rehearsal.verdict}", style=style).append(f"{age}: {rehearsal.reason}", "default"))
    measured = {
        "without a controller": rehearsal.seconds_without_controller,
        "copy": rehearsal.copy_seconds,
        "sync": rehearsal.sync_seconds,
    }
    for name, seconds in measured.items():
        if seconds is not None:
            facts.add_row(name, f"{seconds:.1f} s")
    if rehearsal.heap_needed_bytes is not None:
        facts.add_row("heap of a controller", f"{rehearsal.heap_needed_bytes >> 20} MiB")
    for loss in rehearsal.losses:
        facts.add_row("lost or changed", Text(f"{loss.entity}: {loss.what}"))
    for mend in rehearsal.mends:
        facts.add_row("repair", Text(f"{mend.znode}: {mend.problem}\n{mend.command}"))
    return facts


def findings_table(findings: tuple[FindingStatus, ...]) -> Table:
    """Return the preflight findings, the blocking ones first."""
    table = Table(show_lines=True)
    for title in ("", "code", "object", "what is wrong", "what to do"):
        table.add_column(title, overflow="fold")
    order = list(Severity)
    for finding in sorted(findings, key=lambda f: (f.accepted, order.index(f.severity), f.code, f.object)):
        blocking = finding.severity is Severity.BLOCKING and not finding.accepted
        mark = Text("accepted" if finding.accepted else str(finding.severity), style="red" if blocking else "yellow")
        table.add_row(mark, finding.code, finding.object, Text(finding.reason), Text(finding.fix))
    return table


def _quorum(migration: Migration, now: datetime) -> str:
    quorum = migration.status.quorum
    controllers = migration.status.controllers
    if quorum is None or controllers is None:
        return "not there" if controllers is None else f"{controllers.name}, not observed"
    leader = "no leader" if quorum.leader_id is None else f"leader {quorum.leader_id} in epoch {quorum.leader_epoch}"
    since = f" for {_age(now, quorum.leader_since)}" if quorum.leader_since else ""
    return f"{controllers.name}: {leader}{since}, lag {quorum.max_lag_records or '?'} records"


def _time_in_phase(migration: Migration, now: datetime) -> str:
    history = migration.status.history
    if not history:
        return "not started"
    return f"{_age(now, history[-1].entered_at)} in {history[-1].phase}, {_age(now, history[0].entered_at)} in all"


def _age(now: datetime, then: datetime) -> str:
    seconds = max(0, int((now - then).total_seconds()))
    minutes = seconds // 60
    hours = seconds // 3600
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min {seconds % 60} s" if minutes else f"{seconds} s"
