"""Findings about the patch release of Kafka 3.9 that brokers and controllers run next. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from kraftbridge.models.catalogue import Code
from kraftbridge.models.dry_start import DryStartReport
from kraftbridge.models.observation import Unobserved
from kraftbridge.models.patch_releases import NEWEST, Role, lacking
from kraftbridge.models.status import FindingStatus, finding
from kraftbridge.phases.draft import StepContext


def findings(step: StepContext) -> Iterator[FindingStatus]:
    """Find patch releases that lack what a later one corrects.

    Copies of the brokers' pods tell what the brokers run. The controllers' release is known where the image's tag names
    it.
    """
    state = step.observation.dry_start
    report = None if isinstance(state, Unobserved) else state.current
    for stateful_set, versions in _next_versions(report).items():
        for version in sorted(versions):
            yield from _lacks(f"StatefulSet/{stateful_set}", version, Role.BROKERS)
    yield from _lacks("controllers", step.spec.controllers.image, Role.CONTROLLERS)


def _next_versions(report: DryStartReport | None) -> dict[str, set[str]]:
    """Return the versions of Kafka with which the brokers register with the quorum, by StatefulSet."""
    found: dict[str, set[str]] = {}
    for copy in () if report is None else report.copies:
        if copy.key.mode.registers and copy.start is not None and copy.start.kafka:
            found.setdefault(copy.key.stateful_set, set()).add(copy.start.kafka)
    return found


def _lacks(name: str, version: str, role: Role) -> Iterator[FindingStatus]:
    if what := "; ".join(f"{each.defect} ({each.ticket})" for each in lacking(version, role)):
        yield finding(Code.PATCH_RELEASE_OUTDATED, name, version=version, newest=NEWEST, what=what)
