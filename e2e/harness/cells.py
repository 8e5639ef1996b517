"""Results of the matrix as JSON Lines, one object for each cell. An interrupted run loses only its own cell."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from e2e.harness.matrix import UNFELT, Column, Fault


class Outcome(StrEnum):
    """The end of the phase with the fault."""

    FINISHED = "finished"
    """The phase was left without help, forward, or back if that was requested."""
    STOPPED = "stopped"
    """The phase was not left, and the operator names the reason."""
    FAILED = "failed"
    """The phase was not left and the operator named no reason, or a guarantee was broken."""


@dataclass(frozen=True)
class Cell:
    """One fault in one phase."""

    fault: Fault
    column: Column
    outcome: Outcome
    reason: str
    """The reason why it stopped or failed. For a finished cell, the reasons that the operator named in the meantime."""
    struck: str
    """The exact action and its object."""
    seconds: float
    """Seconds from the fault until the phase was left."""
    phase_seconds: float
    """Duration of the phase."""
    said: tuple[str, ...]
    """Status messages that stood for some seconds between fault and end."""
    longest_stall_s: float
    """Longest time that a producer waited for an acknowledgement meanwhile."""
    errors: dict[str, int]
    """Errors that clients saw meanwhile."""
    broken: tuple[str, ...]
    """Guarantees about restarts that were broken in the meantime."""
    figures: dict[str, Any] = field(default_factory=dict)
    """What else was measured, such as the seconds without a controller of a rollback."""
    run: dict[str, Any] = field(default_factory=dict)
    """What holds for the whole run: lost and doubled records, inventory, commit, image."""

    @property
    def good(self) -> bool:
        """Whether the cell ended as guaranteed."""
        run = self.run
        return (
            self.outcome is not Outcome.FAILED
            and not self.broken
            and not run.get("lost")
            and not run.get("duplicates")
            and not run.get("watched")
            and not run.get("inventory_differences")
            and not self.trouble_with_leaders
        )

    @property
    def trouble_with_leaders(self) -> str:
        """Why a rollback's leader election does not count, ``""`` if it does or there was none."""
        if self.fault is not Fault.ROLLBACK:
            return ""
        election = self.figures.get("leader_election")
        if not isinstance(election, dict):
            return "no leader election was tried afterwards"
        return str(election["failed"] or (f"not elected: {election['left']}" if election["left"] else ""))


def write(path: Path, cells: Iterable[Cell]) -> None:
    """Append cells."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.writelines(json.dumps(asdict(cell), ensure_ascii=False) + "\n" for cell in cells)


def read(directory: Path) -> dict[tuple[Fault, Column], Cell]:
    """Return the latest result of each cell. An incomplete last line is skipped. A rollback during which a fault occurred is not a measurement of the rollback."""
    found: dict[tuple[Fault, Column], Cell] = {}
    lines = [line for path in sorted(directory.glob("*.jsonl")) for line in path.read_text().splitlines()]
    cells = []
    for line in lines:
        try:
            value = json.loads(line)
        except ValueError:
            continue
        value |= {
            "fault": Fault(value["fault"]), "column": Column(value["column"]), "outcome": Outcome(value["outcome"]),
            "said": tuple(value["said"]), "broken": tuple(value["broken"]),
        }  # fmt: skip
        cells.append(Cell(**value))
    struck = {_run(cell) for cell in cells if cell.column.phase == "RollingBack" and cell.fault not in UNFELT}
    for cell in sorted(cells, key=lambda c: c.run.get("at", "")):
        if cell.fault is not Fault.ROLLBACK or _run(cell) not in struck:
            found[cell.fault, cell.column] = cell
    return found


def _run(cell: Cell) -> tuple[str, str]:
    return str(cell.run.get("name")), str(cell.run.get("at"))
