"""Worlds in which somebody edits the brokers' template, or a ConfigMap in it, between two restarts: some edits do no harm, some no broker would survive."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from random import Random
from typing import TYPE_CHECKING, Final

from tests.simulation.kafka import CONTROLLERS

from kraftbridge.models.conditions import Reason
from kraftbridge.models.decision import Action, RestartPod
from kraftbridge.models.dry_start import DryStartReport
from kraftbridge.models.observation import TemplateSight
from kraftbridge.models.phase import Phase

if TYPE_CHECKING:
    from tests.simulation.cluster import Workload
    from tests.simulation.run import Run

MENDED_CHANCE: Final = 0.1
_HARMFUL: Final = 0.4
"""Part of the edits with which a copy does not start."""


class Edited(StrEnum):
    """What somebody edited."""

    TEMPLATE = "an edited template"
    CONTENT = "an edited ConfigMap"


class Templates:
    """What the brokers' owner renders: versions of the template and of its ConfigMap, drawn apart from the other draws of a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(f"templates of {seed}")
        self.template = 0
        self.content = 0
        self.edits = 0
        """Number of edits, which is the version that each makes: one that was taken back does not come again."""
        self.harmful: set[tuple[int, int]] = set()
        self.good = (0, 0)
        """The last versions that do no harm."""
        self.looked_at: set[tuple[int, int]] = set()
        """Versions of which copies were started, or with which the first restart began."""

    @property
    def versions(self) -> tuple[int, int]:
        """What is there now."""
        return self.template, self.content

    def sight(self) -> TemplateSight:
        """Return what the operator observes of the template."""
        parts = {"command of container kafka": f"t{self.template}", "ConfigMap kafka-env": f"c{self.content}"}
        return TemplateSight(f"t{self.template}-c{self.content}", parts)

    def found(self, fine: DryStartReport) -> DryStartReport:
        """Return what copies of what is there now show; ``fine`` is what they show if all is well."""
        copies = fine.copies
        if self.versions in self.harmful:
            copies = tuple(replace(copy, start=None, problem="it ends with code 1") for copy in copies)
        return replace(fine, fingerprint=self.fingerprint(fine.fingerprint), copies=copies)

    def fingerprint(self, fine: str) -> str:
        """Return the fingerprint of what `found` returns for a report with the fingerprint ``fine``."""
        return f"{fine} {self.sight().digest}"

    def look(self) -> None:
        """Note that copies of what is there now are made."""
        self.looked_at.add(self.versions)

    def edit(self, run: Run, kind: Edited) -> bool:
        """Let somebody edit the template or the ConfigMap; return whether it was edited."""
        if run.cluster.channel is not None or self.versions in self.harmful:
            return False
        self.edits += 1
        if kind is Edited.TEMPLATE:
            self.template = self.edits
            self._roll_out(run)
        else:
            self.content = self.edits
        if self.random.random() < _HARMFUL:
            self.harmful.add(self.versions)
        else:
            self.good = self.versions
        run.coverage.faults[kind] += 1
        run.coverage.worlds[kind, str(run.status.phase)] += 1
        return True

    def happen(self, run: Run) -> None:
        """Let whoever edited take it back some time after the operator has asked for it."""
        if self.random.random() < MENDED_CHANCE:
            self.mend(run)

    def mend(self, run: Run) -> None:
        """Let whoever edited take back what the message names."""
        if self.versions not in self.harmful:
            return
        if not any(c.reason is Reason.FINDINGS and c.status == "True" for c in run.status.conditions):
            return
        is_template = self.template != self.good[0]
        self.template, self.content = self.good
        if is_template:
            self._roll_out(run)

    def _roll_out(self, run: Run) -> None:
        for workload in run.cluster.broker_sets:
            run.cluster.change_template(workload)

    def note_first_restart(self) -> None:
        """Note what the brokers run right before the first of them restarts: the last dry start has looked at it."""
        self.looked_at.add(self.versions)

    # ------------------------------------------------------------------------------------------- promises

    def trouble_of(self, run: Run, action: Action) -> str:
        """Return which promise an action breaks, ``""`` when none."""
        match action:
            case RestartPod(_, _, node) if (
                node not in CONTROLLERS and self._is_forward(run) and self._serves(run, node)
            ):
                if self.versions not in self.looked_at:
                    return f"broker {node} is stopped although no dry start has looked at its present template"
                if self.versions in self.harmful:
                    return f"broker {node} is stopped although no copy starts with its present template"
                return ""
            case _:
                return ""

    def _is_forward(self, run: Run) -> bool:
        back = (Phase.ROLLING_BACK, Phase.LEAVING_KAFKA4)
        going_back = run.status.phase in back or run.status.broker_undo is not None
        return run.cluster.channel is None and not going_back and run.status.phase is not Phase.PREFLIGHT

    def _serves(self, run: Run, node: int) -> bool:
        return run.cluster.kafka.brokers[node].up and run.cluster.set_of(node).pods[node].ready_since is not None


def revision_of(workload: Workload, template: int) -> str:
    """Return the revision of a template: Kubernetes gives equal templates equal ones."""
    edited = f"-t{template}" if template else ""
    return f"rev-{workload.configuration or 'user'}{'-mixed' if workload.drift else ''}{edited}"
