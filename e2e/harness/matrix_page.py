"""``docs/faults.md``, from the kept cells. Pure."""

from collections.abc import Mapping
from statistics import median

from e2e.harness.cells import Cell, Outcome
from e2e.harness.matrix import FORMER_RELEASE, IN_MAKE_TEST, NOT_SENSIBLE, WHAT, Column, Fault

Known = Mapping[tuple[Fault, Column], Cell]

HEAD = """# Faults in every phase

<!-- Generated from benchmarks/measured/faults by `python docs/generate.py`; changes here are lost. -->

The end-to-end harness injects each fault into a real cluster (three brokers, 336 partitions, 40 records/s of client load, on the embedded Kubernetes) during a phase of a migration.
A cell covers the time from the injection until the end of the phase. Clients, inventory and the guarantees about restarts are checked against observed pods, partitions and
clients, not against the status of the operator. One run injects one fault in every phase to which it applies, and other faults in the remaining phases.

| Command | Effect | Duration |
|---|---|---|
| `make test` | all tiers; the end-to-end tier runs the cells marked † | 20 to 45 minutes |
| `make e2e` | the end-to-end tier alone: the same cells marked † | 10 to 15 minutes |
| `make e2e-matrix` | every cell without a result, run by run; `ARGS="FAULT … --limit N"`, `ARGS=--again` repeats those that failed, `ARGS=--plan` only shows what is missing | 6 to 13 minutes per run |

| Cell | Meaning |
|---|---|
| a number | Seconds from the injection until the end of the phase, including the wait for the user in `AwaitingFinalization` |
| **✗** | A guarantee was broken, or the operator reported no reason |
| *stopped* | The operator stopped and reported the reason |
| · | No result |
| n/a | The combination is not tested (see below) |

In `UpgradingBrokers`, and on the way back from there (`RollingBack, upgrade`), the brokers run Kafka {release} at first.

Messages are quoted as the operator wrote them when the cells were recorded (up to commit 969b649)..
"""


def page(known: Known) -> str:
    """Return the page."""
    parts = [
        HEAD.replace("{release}", FORMER_RELEASE),
        "| fault | " + " | ".join(Column) + " |",
        "|---" * (len(Column) + 1) + "|",
        *(_row(fault, known) for fault in Fault),
        f"\n{_summary(known)}\n",
        "## Faults\n",
        *(f"- `{fault}`: {what}." for fault, what in WHAT.items()),
        "\n## Rollbacks\n",
        *_rollbacks(known),
        "\n## Messages of the operator\n",
        "The messages shown longest, with the seconds for which each was shown between the injection and the end of the phase.\n",
        *_said(known),
        "\n## Combinations that are not tested\n",
        *_not_sensible(),
    ]
    return "\n".join(parts) + "\n"


def _row(fault: Fault, known: Known) -> str:
    return f"| `{fault}` | " + " | ".join(_cell(fault, column, known) for column in Column) + " |"


def _cell(fault: Fault, column: Column, known: Known) -> str:
    mark = " †" if (fault, column) in IN_MAKE_TEST else ""
    if (fault, column) in NOT_SENSIBLE:
        return "n/a"
    cell = known.get((fault, column))
    if cell is None:
        return "·" + mark
    text = "*stopped*" if cell.outcome is Outcome.STOPPED else f"{cell.seconds:.0f} s"
    return (text if cell.good else f"**✗** {text}") + mark


def _summary(known: Known) -> str:
    sensible = len(Fault) * len(Column) - len(NOT_SENSIBLE)
    if not known:
        return f"0 of {sensible} cells have a result."
    cells = list(known.values())
    bad = [c for c in cells if not c.good]
    runs = {(c.run.get("name"), c.run.get("at")): c.run for c in cells}
    acked = sum(r.get("acked") or 0 for r in runs.values())
    lost, doubled = (sum(r.get(k) or 0 for r in runs.values()) for k in ("lost", "duplicates"))
    most = max(r.get("brokers_down_at_once_by_us") or 0 for r in runs.values())
    commits = sorted({str(r.get("commit")) for r in runs.values()})
    lines = [
        (
            f"{len(cells)} of {sensible} cells have a result, {len(cells) - len(bad)} of them as promised. In their {len(runs)} runs {acked} records were acknowledged, "
            f"{lost} lost, {doubled} duplicated. The operator had at most {most} broker down at a time. Longest produce stall in a cell: "
            f"{max(c.longest_stall_s for c in cells):.1f} s. Commits (+ with changes that were merged later): {', '.join(commits)}."
        ),
    ]
    notes = dict.fromkeys(f"- Run `{r['name']}`: {r['note']}." for r in runs.values() if r.get("note"))
    lines += ["", *notes] if notes else []
    lines += [
        f"\n- **✗** `{c.fault}` in {c.column}: {c.reason or 'finished'}" + "".join(f"; {text}" for text in _wrong(c))
        for c in bad
    ]
    return "\n".join(lines)


def _wrong(cell: Cell) -> list[str]:
    run = cell.run
    found = [*cell.broken, *([cell.trouble_with_leaders] if cell.trouble_with_leaders else [])]
    found += [f"{run[k]} records {what}" for k, what in (("lost", "lost"), ("duplicates", "doubled")) if run.get(k)]
    return found + [f"served otherwise: {text}" for text in (run.get("inventory_differences") or [])[:2]]


ISOLATED_SINCE = "2026-11-23"
"""First day of results of rollbacks that isolate the controllers."""


def _rollbacks(known: Known) -> list[str]:
    cells = [cell for (fault, _), cell in known.items() if fault is Fault.ROLLBACK]
    if not cells:
        return ["No result yet."]
    lines = [
        "`spec.target: ZooKeeper` is set under load. *Without a controller* is the longest time in which a client got no answer to requests that only the controller answers (creation of a topic with",
        "`validate_only`, four per second). After the rollback, an election of the preferred leader of every partition is requested.\n",
        "| From | Duration | Without a controller | Longest produce stall | Leaders elected, not elected | Partitions without a leader at the end |",
        "|---|---|---|---|---|---|",
    ]
    for cell in sorted(cells, key=lambda c: list(Column).index(c.column)):
        election = cell.figures.get("leader_election") or {}
        elected = (
            f"{election.get('elected')}, {len(election.get('left', []))}" if isinstance(election, dict) else "failed"
        )
        without = cell.figures.get("without_controller_s")
        lines.append(
            f"| {cell.column} | {cell.seconds:.0f} s | {without} s | {cell.longest_stall_s:.1f} s | {elected} | {cell.run.get('offline_after')} |"
        )
    # Before the takeover ends ZooKeeper's controller is never gone: such rollbacks say nothing about the window.
    early = (Column.PREFLIGHT, Column.UPGRADING_BROKERS, Column.PROVISIONING_QUORUM, Column.TAKING_OVER)
    isolated = [c for c in cells if c.column not in early and str(c.run.get("at", "")) >= ISOLATED_SINCE]
    windows = [c.figures.get("without_controller_s") for c in isolated]
    times = [window for window in windows if window is not None]
    words = (
        f"\nA rollback after the takeover restarts the controllers where no broker reaches them, before it stops them, so that no acknowledged change is lost ([why](rollback.md#metadata-changes-during-a-rollback)). "
        f"Results since {ISOLATED_SINCE[:10]} contain this restart: median **{median(times):.1f} s** without a controller. The goal of 5 s, set for a rollback without it, is missed: the restart of three JVMs takes longer. "
        "These runs shared four cores with other tests (load average 20 to 45); on a quieter machine it was 12 to 20 s."
        if times
        else ""
    )
    return [*lines, words]


def _said(known: Known) -> list[str]:
    lines = []
    for fault in Fault:
        for column in Column:
            cell = known.get((fault, column))
            if cell is not None and cell.said:
                lines.append(f"- `{fault}`, {column} ({cell.struck}): " + "; ".join(cell.said[:2]))
    return lines or ["No result yet."]


def _not_sensible() -> list[str]:
    reasons: dict[str, list[str]] = {}
    for (fault, column), why in NOT_SENSIBLE.items():
        reasons.setdefault(why, []).append(f"`{fault}` in {column}")
    return [f"- {', '.join(cells)}: {why}." for why, cells in reasons.items()]
