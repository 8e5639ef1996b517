"""``kubectl kraftbridge``: shows, controls and documents a migration."""

from __future__ import annotations

import difflib
import json
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from kubernetes.config import ConfigException, list_kube_config_contexts
from rich.live import Live
from rich.syntax import Syntax

from kraftbridge import __version__
from kraftbridge.exceptions import ConflictError, MigrationError
from kraftbridge.models.catalogue import ACCEPTABLE
from kraftbridge.models.conditions import ConditionType, condition
from kraftbridge.models.objects import section
from kraftbridge.models.phase import Phase, Target
from kraftbridge.models.redaction import Redactor
from kraftbridge.models.spec import ControllerVolumes
from kraftbridge.models.status import RehearsalStatus
from kraftbridge.outside.shell import command
from kraftbridge.phases.recorded_step import decided_again
from kraftbridge.plugin import hand_over as handing_over
from kraftbridge.plugin.bundle import STEP_FILE, collect, step_of
from kraftbridge.plugin.picture import findings_table, rehearsal_picture, status_picture
from kraftbridge.plugin.plan import plan as plan_lines
from kraftbridge.plugin.session import PluginError, ReadMigration, Session, read_rehearsal, read_report
from kraftbridge.plugin.terminal import Terminal, say
from kraftbridge.storage.kubernetes import KubernetesStore
from kraftbridge.storage.ports import KubernetesPort

app = typer.Typer(
    name="kubectl kraftbridge",
    help=__doc__,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Name = Annotated[
    str | None, typer.Argument(help="Name of the KafkaMigration; the only one of the namespace if left out.")
]
Namespace = Annotated[str | None, typer.Option("--namespace", "-n", help="Namespace; the context's own if left out.")]
Context = Annotated[str | None, typer.Option(help="Context of the kubeconfig.")]
Kubeconfig = Annotated[str | None, typer.Option(help="Path of the kubeconfig.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]

REFRESH_SECONDS = 1.0
_STEP_SECONDS = 60.0
"""For the operator to record a step."""
_OPERATORS_SECONDS = 120.0
"""For the operator to launch a rehearsal and to collect its result."""
IRREVERSIBLE = (
    "Finalization cannot be undone: the KRaft controllers restart without migration mode, "
    "ZooKeeper is no longer written, "
    "and rolling back to ZooKeeper is impossible from then on."
)

connect: Callable[[str | None, str | None], KubernetesPort] = KubernetesStore.connect
"""Tests replace it to use their own API server."""


def _session(namespace: str | None, context: str | None, kubeconfig: str | None) -> Session:
    if namespace is None:
        try:
            contexts, active = list_kube_config_contexts(config_file=kubeconfig)
        except ConfigException as error:
            raise PluginError(f"no usable kubeconfig: {error}") from error
        chosen = next((c for c in contexts if c["name"] == context), active)
        namespace = str(section(chosen, "context").get("namespace") or "default")
    return Session(connect(kubeconfig, context), namespace)


@app.command()
def status(
    name: Name = None,
    *,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    once: Annotated[bool, typer.Option(help="Show it once instead of following it.")] = False,
) -> None:
    """Show the state of a migration and what it waits for; live on a terminal."""
    session = _session(namespace, context, kubeconfig)
    console = Terminal()
    migration = session.migration(name)
    if once or not console.is_terminal:
        console.print(status_picture(migration, datetime.now(UTC)))
        return
    with Live(status_picture(migration, datetime.now(UTC)), console=console, auto_refresh=False) as live:
        while True:
            time.sleep(REFRESH_SECONDS)
            try:
                migration = session.migration(migration.name)
            except MigrationError as error:  # the API server may be unreachable for a moment
                console.print(f"not read: {error}", style="dim", highlight=False)
                continue
            live.update(status_picture(migration, datetime.now(UTC)), refresh=True)


@app.command()
def findings(
    name: Name = None, *, namespace: Namespace = None, context: Context = None, kubeconfig: Kubeconfig = None
) -> None:
    """List the findings of preflight and those about Kafka 4; the exit code is 1 while one of them blocks."""
    migration = _session(namespace, context, kubeconfig).migration(name)
    status = migration.status
    listed = (*status.findings, *(status.kafka4.findings if status.kafka4 is not None else ()))
    Terminal().print(findings_table(listed) if listed else "no findings")
    blocking = [finding for finding in listed if finding.blocks]
    acceptable = [finding for finding in blocking if finding.code in ACCEPTABLE]
    if acceptable:
        say("These findings can be accepted:")
    for finding in acceptable:
        line = command(
            "kubectl kraftbridge accept {code} {object} --migration {migration} -n {namespace}",
            migration=migration.name,
            namespace=migration.namespace,
            code=finding.code,
            object=finding.object,
        )
        say(f"  {line}")
    if blocking:
        raise typer.Exit(1)


@app.command()
def accept(
    code: Annotated[str, typer.Argument(help="Code of the finding.")],
    where: Annotated[
        str, typer.Argument(metavar="[OBJECT]", help="Object of the finding, or * for every object.")
    ] = "*",
    *,
    migration: Annotated[str | None, typer.Option(help="Name of the KafkaMigration.")] = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    yes: Yes = False,
) -> None:
    """Accept a preflight finding: it remains visible and no longer blocks."""
    session = _session(namespace, context, kubeconfig)
    present = session.migration(migration)
    matching = present.findings(code, where)
    if any(not finding.accepted for finding in matching):
        Terminal().print(findings_table(matching))
        _ask("Accept?", yes=yes)
    done = session.accept(present, code, where)
    say(f"accepted: {code} {where}" if done else "it was accepted already")


@app.command(
    help="Rehearse the migration on a copy of the metadata once more, and show the result; "
    "the exit code is 1 unless it is Works."
)
def rehearse(
    name: Name = None,
    *,
    last: Annotated[
        bool, typer.Option("--last", help="Show the last rehearsal instead of running another one.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the result here, too (.json or .html).")
    ] = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Rehearse the migration on a copy of the metadata once more, and show the result."""
    session = _session(namespace, context, kubeconfig)
    console = Terminal()
    migration = session.migration(name)
    rehearsal = migration.status.rehearsal if last else _rehearsed_again(session, migration, console)
    if rehearsal is None or rehearsal.verdict is None:
        raise PluginError(f"{migration.name} has not rehearsed yet")
    console.print(rehearsal_picture(rehearsal, datetime.now(UTC)))
    if output is not None:
        is_page = output.suffix != ".json"
        output.write_bytes(read_rehearsal(session.kubernetes, migration, rehearsal.report, page=is_page))
        say(f"{rehearsal.verdict}: {output}")
    if not rehearsal.works:
        raise typer.Exit(1)


def _rehearsed_again(session: Session, migration: ReadMigration, console: Terminal) -> RehearsalStatus:
    """Ask for a rehearsal and wait for its end; tell what the operator does meanwhile."""
    count = 0
    if migration.status.rehearsal is not None:
        count = migration.status.rehearsal.count
    session.ask_for_rehearsal(migration, datetime.now(UTC).isoformat(timespec="milliseconds"))
    deadline = time.monotonic() + migration.spec.rehearsal.timeout_seconds + _OPERATORS_SECONDS
    message = ""
    while time.monotonic() < deadline:
        time.sleep(REFRESH_SECONDS)
        migration = session.migration(migration.name)
        rehearsal = migration.status.rehearsal
        if rehearsal is not None and rehearsal.count > count and rehearsal.running is None:
            return rehearsal
        if migration.status.message != message:
            message = migration.status.message
            console.print(message, style="dim", highlight=False)
    raise PluginError(f"no other rehearsal ended in time; the operator's last message: {message}")


@app.command()
def pause(
    name: Name = None, *, namespace: Namespace = None, context: Context = None, kubeconfig: Kubeconfig = None
) -> None:
    """Stop a migration at the next safe point."""
    migration = _set_paused(_session(namespace, context, kubeconfig), name, paused=True)
    say(f"{migration.name} stops at the next safe point")


@app.command()
def resume(
    name: Name = None, *, namespace: Namespace = None, context: Context = None, kubeconfig: Kubeconfig = None
) -> None:
    """Continue a paused migration."""
    migration = _set_paused(_session(namespace, context, kubeconfig), name, paused=False)
    say(f"{migration.name} continues; its target is {migration.spec.target}")


@app.command()
def finalize(
    name: Name = None,
    *,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    yes: Yes = False,
) -> None:
    """Show the last verdict and what cannot be undone, ask, and set the target KRaft."""
    session = _session(namespace, context, kubeconfig)
    console = Terminal()
    migration = session.migration(name)
    _refuse_when_over(migration)
    console.print(status_picture(migration, datetime.now(UTC)))
    if migration.status.phase is not Phase.AWAITING_FINALIZATION:
        console.print(
            f"The migration is in {migration.status.phase}; with target KRaft it will not stop before finalization.",
            style="yellow",
        )
    console.print(IRREVERSIBLE, style="bold red")
    console.print("The operator verifies once more before it finalizes, and stops if the metadata differs.")
    _ask(f"Finalize {migration.namespace}/{migration.name}?", yes=yes)
    session.set_target(migration, Target.KRAFT)
    say("target: KRaft")


@app.command()
def rollback(
    name: Name = None,
    *,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    yes: Yes = False,
) -> None:
    """Roll back to ZooKeeper: ask, and set the target ZooKeeper."""
    session = _session(namespace, context, kubeconfig)
    console = Terminal()
    migration = session.migration(name)
    _refuse_when_over(migration)
    possible = condition(migration.status.conditions, ConditionType.ROLLBACK_POSSIBLE)
    if possible is None or possible.status != "True":
        reason = "it is not known yet"
        if possible is not None:
            reason = f"{possible.status}: {possible.message}"
        console.print(f"RollbackPossible is not True ({reason}); the operator waits until it is.", style="yellow")
    else:
        console.print(f"A rollback is possible: {possible.message}")
    fate = "kept" if migration.spec.rollback.controller_volumes is ControllerVolumes.KEEP else "deleted"
    console.print(
        "Every broker restarts in ZooKeeper mode, one at a time. The controllers are removed; "
        f"their volumes are {fate}."
    )
    _ask(f"Roll {migration.namespace}/{migration.name} back to ZooKeeper?", yes=yes)
    session.set_target(migration, Target.ZOOKEEPER)
    say("target: ZooKeeper")


@app.command()
def report(
    name: Name = None,
    *,
    run: Annotated[str | None, typer.Option(help="Id of the run; the newest if left out.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write it here (.json or .html) instead of opening it.")
    ] = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Open the report of a verification as a page."""
    from kraftbridge.verification.page import render_page  # noqa: PLC0415 - other commands need no jinja2

    session = _session(namespace, context, kubeconfig)
    text, parsed = read_report(session.kubernetes, session.migration(name), run)
    if output is not None:
        output.write_text(text if output.suffix == ".json" else render_page(parsed), encoding="utf-8")
        say(f"{parsed.verdict}: {output}")
        return
    page = Path(tempfile.mkdtemp(prefix="kraftbridge-")) / f"{parsed.run_id}.html"
    page.write_text(render_page(parsed), encoding="utf-8")
    say(f"{parsed.verdict}: {page}")
    typer.launch(str(page))


@app.command()
def bundle(
    name: Name = None,
    *,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The archive (.tar.gz).")] = None,
    operator_namespace: Annotated[str, typer.Option(help="Where the operator runs.")] = "kraftbridge",
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Write a support archive: resource, objects, events, logs, reports; no secrets."""
    session = _session(namespace, context, kubeconfig)
    now = datetime.now(UTC)
    migration = session.migration(name)
    without_step = _ask_for_step(session, migration, now)
    collected = collect(session.kubernetes, migration, operator_namespace, now, without_step)
    path = output or Path(f"kraftbridge-{migration.namespace}-{migration.name}-{now:%Y%m%d-%H%M%S}.tar.gz")
    collected.write(path, now)
    for missing in collected.missing:
        say(f"not in it: {missing}", to_stderr=True)
    say(f"{path}: {len(collected.files)} files")


def _ask_for_step(session: Session, migration: ReadMigration, now: datetime) -> list[str]:
    """Have the operator record what it sees and decides; return why it did not."""
    asked = now.isoformat(timespec="milliseconds")
    try:
        session.ask_for_step(migration, asked)
        deadline = time.monotonic() + _STEP_SECONDS
        while not session.recorded_step(migration, asked):
            if time.monotonic() >= deadline:
                return [f"{STEP_FILE}: the operator recorded no step within {_STEP_SECONDS:.0f} s; see its log"]
            time.sleep(REFRESH_SECONDS)
    except MigrationError as error:
        return [f"{STEP_FILE}: {error}"]
    return []


@app.command()
def replay(archive: Annotated[Path, typer.Argument(help="An archive that `bundle` wrote.")]) -> None:
    """Decide the recorded step of a support archive again, and show what differs; needs no cluster."""
    step = step_of(archive)
    before = json.dumps(step.decision, indent=1, sort_keys=True).splitlines()
    again = json.dumps(decided_again(step), indent=1, sort_keys=True).splitlines()
    identity = step.migration.identity
    say(f"{identity.namespace}/{identity.name} at {step.now:%Y-%m-%d %H:%M:%S}, decided by {step.release}:")
    say(f"{step.decision['status']['phase']}: {step.decision['status']['message']}")
    differences = list(difflib.unified_diff(before, again, f"kraftbridge {step.release}", f"kraftbridge {__version__}"))
    if differences:
        say("\n".join(differences))
        raise typer.Exit(1)
    say(f"kraftbridge {__version__} decides the same")


@app.command()
def plan(
    name: Name = None, *, namespace: Namespace = None, context: Context = None, kubeconfig: Kubeconfig = None
) -> None:
    """Show what the migration changes in each StatefulSet, as a diff; changes nothing."""
    session = _session(namespace, context, kubeconfig)
    console = Terminal()
    text = "\n".join(plan_lines(session.kubernetes, session.migration(name), Redactor()))
    if console.is_terminal:
        console.print(Syntax(text, "diff", word_wrap=True, background_color="default"))
    else:
        say(text)


@app.command(
    "hand-over",
    help="Show whether the guard stands and the values for the brokers' next release; "
    "the exit code is 1 while a pod template lacks a setting.",
)
def hand_over(
    name: Name = None,
    *,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write all files of the final manifest into this directory.")
    ] = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show whether the guard stands and the values for the brokers' next release."""
    session = _session(namespace, context, kubeconfig)
    migration = session.migration(name)
    files = handing_over.final_manifest(session.kubernetes, migration)
    for line in handing_over.guard_lines(migration):
        say(line)
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        for file, text in sorted(files.items()):
            (output / file).write_text(text, encoding="utf-8")
            say(f"written: {output / file}")
    else:
        for file, text in handing_over.values_files(files).items():
            say(f"\n--- {file}\n{text}", ends_line=False)
        say(f"\nConfigMap {migration.status.final_manifest} has {', '.join(sorted(files))}; --output DIR writes them")
    state = migration.status.hand_over
    if state is not None and state.missing and state.ended_at is None:
        raise typer.Exit(1)


@app.command()
def version() -> None:
    """Print the plugin's version."""
    say(__version__)


def _set_paused(session: Session, name: str | None, *, paused: bool) -> ReadMigration:
    migration = session.migration(name)
    session.pause(migration, paused=paused)
    return migration


def _refuse_when_over(migration: ReadMigration) -> None:
    if not migration.status.phase.reversible:
        raise PluginError(f"{migration.name} is in {migration.status.phase}: it is finalized, which cannot be undone")


def _ask(question: str, *, yes: bool) -> None:
    if not yes:
        typer.confirm(question, abort=True)


def main() -> None:
    """Run the plugin. An error is printed in one line."""
    try:
        app()
    except ConflictError as error:
        say(f"error: the migration changed while you looked at it; run the command again ({error})", to_stderr=True)
        raise SystemExit(1) from error
    except (PluginError, MigrationError) as error:
        say(f"error: {error}", to_stderr=True)
        raise SystemExit(1) from error
    except KeyboardInterrupt:
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
