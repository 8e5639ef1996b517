"""From what a run has found to its verdict."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from kraftbridge.models.catalogue import Code, Severity
from kraftbridge.models.report import (
    Difference,
    EntityKind,
    Finding,
    KindCounts,
    Profile,
    Verdict,
    VerificationRequest,
)
from kraftbridge.verification.inputs import Inputs

_SHOWN: Final = 3


@dataclass(slots=True)
class Outcome:
    """What a run has found so far.

    Attributes
    ----------
    problems
        What could not be read or understood as a whole; rules `Consistent` out.
    unreadable
        Single znodes that could not be, by path.
    unresolved
        Entities that stayed in flight.
    uncounted
        Differing entities beyond those in `differences`.
    passwords
        Password configs that were compared by length only.
    """

    differences: dict[tuple[EntityKind, str], Difference] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    finding_counts: Counter[Severity] = field(default_factory=Counter)
    counts: dict[EntityKind, KindCounts] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)
    unresolved: list[str] = field(default_factory=list)
    uncounted: int = 0
    passwords: list[str] = field(default_factory=list)
    leader_note: dict[str, Any] = field(default_factory=dict)

    def add_difference(self, difference: Difference) -> None:
        """Add a differing entity; one that differs in several comparisons stays one."""
        identity = (difference.kind, difference.key)
        known = self.differences.get(identity)
        if known is not None:
            difference = known.model_copy(
                update={
                    "present_in": sorted({*known.present_in, *difference.present_in}),
                    "absent_in": sorted({*known.absent_in, *difference.absent_in}),
                    "attributes": [*known.attributes, *difference.attributes],
                }
            )
        self.differences[identity] = difference

    def add_finding(self, finding: Finding) -> None:
        """Add a finding."""
        self.findings.append(finding)
        self.finding_counts[finding.severity] += 1

    def add_dropped_findings(self, dropped: dict[str, int]) -> None:
        """Count findings that were too many to be given in full."""
        for severity, count in dropped.items():
            self.finding_counts[Severity(severity)] += count

    def add_uncounted(self, count: int, why: str) -> None:
        """Count differing entities that were too many to be looked at."""
        self.uncounted += count
        self.problems.append(why)

    def note_passwords(self, inputs: Inputs, request: VerificationRequest) -> None:
        """Say so where password configs could be compared by their length only."""
        if inputs.encoder_secret_path is not None or not self.passwords:
            return
        names = ", ".join(sorted(self.passwords)[:_SHOWN])
        if request.require_password_comparison:
            self.problems.append(f"encrypted configs need password.encoder.secret to be compared: {names}")
        for name in self.passwords:
            self.add_finding(Finding.of(Code.PASSWORD_COMPARED_BY_LENGTH, name))


def conclude(outcome: Outcome, inputs: Inputs) -> tuple[Verdict, str]:
    """Return the verdict and one sentence why.

    A difference or a blocking finding that was established stands, whatever else could not be read; without one,
    anything unknown makes the verdict `Inconclusive`.
    """
    if outcome.differences or outcome.uncounted:
        total = len(outcome.differences) + outcome.uncounted
        names = ", ".join(f"{kind} {key}".strip() for kind, key in list(outcome.differences)[:_SHOWN])
        return Verdict.INCONSISTENT, f"{total} {_plural('entity differs', 'entities differ', total)}: {names}"
    blocking = outcome.finding_counts[Severity.BLOCKING]
    if blocking:
        codes = sorted({finding.code for finding in outcome.findings if finding.severity is Severity.BLOCKING})
        return (
            Verdict.INCONSISTENT,
            f"{blocking} blocking {_plural('finding', 'findings', blocking)}: {', '.join(codes)}",
        )
    unknown = [*outcome.problems, *outcome.unreadable.values()]
    if unknown:
        more = f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else ""
        return Verdict.INCONCLUSIVE, unknown[0] + more
    if outcome.unresolved:
        count = len(outcome.unresolved)
        return (
            Verdict.INCONCLUSIVE,
            f"{count} {_plural('entity', 'entities', count)} stayed in flight: {', '.join(outcome.unresolved[:_SHOWN])}",
        )
    compared = sum(counts.compared for counts in outcome.counts.values())
    if not compared:
        return Verdict.INCONCLUSIVE, "nothing was compared"
    if inputs.profile is Profile.ZOOKEEPER:
        return Verdict.CONSISTENT, f"{compared} entities were read and understood; nothing blocks the copy"
    return Verdict.CONSISTENT, f"{compared} entities are the same everywhere"


def _plural(one: str, many: str, count: int) -> str:
    return one if count == 1 else many
