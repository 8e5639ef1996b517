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
from kraftbridge.outside.shell import command
from kraftbridge.plugin.plan import channel_line
from kraftbridge.plugin.session import ReadMigration

_READY = {"True": ("ready", "green"), "False": ("not ready", "yellow"), "Unknown": ("not known", "yellow")}
_POSSIBLE = {"True": ("possible", "green"), "False": ("not possible", "red"), "Unknown": ("not known", "yellow")}


def _grid() -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column()
    return grid


def status_picture(migration: ReadMigration, now: datetime) -> RenderableType:
    """Return the phases as a line, and below it brokers, quorum, the waiting reason and the last verdict."""
    status = migration.status
    spec = migration.spec
    facts = _grid()
    facts.add_row("target", f"{spec.target}{', paused' if spec.paused else ''}")
    facts.add_row("message", Text(status.message or "the operator's first look"))
    stalled = condition(status.conditions, ConditionType.STALLED)
    if stalled is not None and stalled.status == "True":
        text = Text(stalled.reason, style="red")
        if stalled.message != status.message:
            text.append(f"  {stalled.message}", "default")
        facts.add_row("stalled", text)
    possible = condition(status.conditions, ConditionType.ROLLBACK_POSSIBLE)
    if possible is not None:
        word, style = _POSSIBLE[possible.status]
        facts.add_row("rollback", Text(word, style=style).append(f"  {possible.message}", "default"))
    brokers = status.brokers
    counted = "not counted yet"
    if brokers.total:
        counted = f"{brokers.in_mode} of {brokers.total} in mode {brokers.mode}"
    facts.add_row("brokers", counted)
    if status.channel is not None:
        facts.add_row("channel", Text(channel_line(spec, status)))
    facts.add_row("quorum", _quorum(migration, now))
    if status.operation is not None:
        took = _age(now, status.operation.started_at)
        facts.add_row("at work", f"{status.operation.kind} {status.operation.pod}, for {took}")
    if status.batch is not None and (others := [other.pod for other in status.batch.others]):
        facts.add_row("batch", f"down together with {', '.join(others)}")
    if status.migration_offset is not None:
        moved = _ago(now, status.migration_offset.moved_at, "moved ")
        facts.add_row("/migration", f"offset {status.migration_offset.offset}{moved}")
    facts.add_row("verdict", verdict_line(last_verdict(migration), now))
    rehearsal = status.rehearsal
    if rehearsal is not None and rehearsal.verdict is not None:
        facts.add_row("rehearsal", f"{rehearsal.verdict}: {rehearsal.reason}")
    blocking = [finding for finding in status.findings if finding.blocks]
    if blocking:
        facts.add_row("findings", Text(f"{len(blocking)} blocking: {line_of_findings(migration)}", style="red"))
    ready = condition(status.conditions, ConditionType.READY_FOR_KAFKA4)
    if status.kafka4 is not None and ready is not None:
        word, style = _READY[ready.status]
        text = Text(word, style=style)
        if status.kafka4.total:
            text.append(f"  {status.kafka4.total} finding(s): {line_of_findings(migration)}", "default")
        facts.add_row("Kafka 4", text)
    title = Text.assemble((f"{migration.namespace}/{migration.name}", "bold"), f"   {_time_in_phase(migration, now)}")
    return Group(title, phase_line(status.phase), facts)


def line_of_findings(migration: ReadMigration) -> str:
    """Return the command that lists the findings."""
    names = {"name": migration.name, "namespace": migration.namespace}
    return command("kubectl kraftbridge findings {name} -n {namespace}", **names)


def phase_line(phase: Phase) -> Text:
    """Return the phases in order. Completed phases and the current phase are marked."""
    phases: tuple[Phase, ...] = tuple(each for each in FORWARD if not each.row.on_kafka4)
    if phase.row.on_kafka4:
        on_the_way = [each for each in FORWARD if each.row.on_kafka4]
        back = [] if phase.row.forward else [phase]
        phases = (Phase.COMPLETED, *on_the_way, *back)
    elif phase not in FORWARD:
        phases = (Phase.ROLLING_BACK, Phase.ROLLED_BACK)
    here = phases.index(phase)
    line = Text()
    for number, name in enumerate(phases):
        if number:
            line.append(" ─ ", style="dim")
        mark, style = _mark(number - here)
        line.append(f"{mark} {name}", style=style)
    return line


def _mark(distance: int) -> tuple[str, str]:
    """Return mark and style of a phase by its distance from the present one."""
    if distance < 0:
        return "●", "green"
    if distance == 0:
        return "◉", "bold cyan"
    return "○", "dim"


def last_verdict(migration: ReadMigration) -> VerificationStatus | None:
    """Return the newest verification that has a verdict."""
    return next((v for v in reversed(migration.status.verifications) if v.verdict is not None), None)


def verdict_line(verification: VerificationStatus | None, now: datetime) -> Text:
    """Return a verification in one line."""
    if verification is None or verification.verdict is None:
        return Text("none yet", style="dim")
    compared = sum(counts.compared for counts in verification.counts.values())
    style = "green" if verification.verdict == "Consistent" else "red"
    line = Text(str(verification.verdict), style=style)
    age = _ago(now, verification.finished_at)
    line.append(
        f"  {verification.profile} for {verification.gate}: {compared} entities, {verification.differing} differ{age}",
        style="default",
    )
    if verification.reason:
        line.append(f"  {verification.reason}", style="dim")
    return line


def rehearsal_picture(rehearsal: RehearsalStatus, now: datetime) -> RenderableType:
    """Return a rehearsal that ended: verdict, forecast, and what would be lost with its remedy."""
    facts = _grid()
    style = "green" if rehearsal.verdict is RehearsalVerdict.WORKS else "red"
    age = _ago(now, rehearsal.finished_at)
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
    for broker in rehearsal.brokers:
        names = ", ".join(map(str, broker.brokers))
        facts.add_row(f"broker {names} in KRaft mode", Text(f"{broker.verdict}: {broker.reason}"))
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
        word = "accepted" if finding.accepted else str(finding.severity)
        mark = Text(word, style="red" if finding.blocks else "yellow")
        table.add_row(mark, finding.code, finding.object, Text(finding.reason), Text(finding.fix))
    return table


def _quorum(migration: ReadMigration, now: datetime) -> str:
    quorum = migration.status.quorum
    controllers = migration.status.controllers
    if controllers is None:
        return "not there"
    if quorum is None:
        return f"{controllers.name}, not observed"
    leader = "no leader"
    if quorum.leader_id is not None:
        leader = f"leader {quorum.leader_id} in epoch {quorum.leader_epoch}"
    if quorum.leader_since is not None:
        leader += f" for {_age(now, quorum.leader_since)}"
    return f"{controllers.name}: {leader}, lag {quorum.max_lag_records or '?'} records"


def _time_in_phase(migration: ReadMigration, now: datetime) -> str:
    history = migration.status.history
    if not history:
        return "not started"
    return f"{_age(now, history[-1].entered_at)} in {history[-1].phase}, {_age(now, history[0].entered_at)} in all"


def _ago(now: datetime, then: datetime | None, verb: str = "") -> str:
    """Return the age of something, to follow it; ``""`` if it has none."""
    if then is None:
        return ""
    return f", {verb}{_age(now, then)} ago"


def _age(now: datetime, then: datetime) -> str:
    minutes, seconds = divmod(max(0, int((now - then).total_seconds())), 60)
    if minutes >= 60:  # noqa: PLR2004 - minutes of an hour
        return f"{minutes // 60} h {minutes % 60} min"
    if minutes:
        return f"{minutes} min {seconds} s"
    return f"{seconds} s"
