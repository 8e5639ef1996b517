"""Patch releases of Kafka 3.9 that lack what a later one corrects: told by what copies show and the image's tag."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.observations import Situation, dry_start_of, open_gate

from kraftbridge.models.dry_start import DryStartReport, DryStartState
from kraftbridge.models.patch_releases import CORRECTIONS, NEWEST, Role, lacking
from kraftbridge.models.phase import Phase
from kraftbridge.models.status import FindingStatus


def running(**versions: str) -> DryStartState:
    """Return a dry start whose copies in each of these modes show this version."""
    fine = dry_start_of()
    assert fine.report is not None
    copies = [
        replace(copy, start=replace(copy.start, kafka=versions.get(str(copy.key.mode), "")))
        for copy in fine.report.copies
        if copy.start is not None
    ]
    return replace(fine, report=DryStartReport("same", tuple(copies)))


def found(case: Situation) -> dict[str, FindingStatus]:
    return {f.object: f for f in case.decide().status.findings if f.code == "PatchReleaseOutdated"}


def with_controllers(image: str) -> Situation:
    fine = open_gate(Phase.PREFLIGHT)
    controllers = fine.spec.controllers.model_copy(update={"image": image})
    return replace(fine, spec=fine.spec.model_copy(update={"controllers": controllers}))


@pytest.mark.parametrize(
    ("version", "tickets"),
    [
        ("3.9.0", {"KAFKA-18723", "KAFKA-17941", "KAFKA-19294", "KAFKA-19990"}),
        ("3.9.1", {"KAFKA-17941", "KAFKA-19294", "KAFKA-19990"}),
        ("3.9.2", set()),
        ("3.9.10", set()),
        ("3.8.1", set()),
        ("", set()),
    ],
)
def test_brokers_are_judged_by_what_their_next_start_runs(version: str, tickets: set[str]) -> None:
    case = open_gate(Phase.PREFLIGHT).observing(dry_start=running(Zookeeper="3.9.0", Migration=version, KRaft=version))
    brokers = {name: f for name, f in found(case).items() if name != "controllers"}
    assert bool(brokers) is bool(tickets)
    for told in brokers.values():
        assert {each.ticket for each in CORRECTIONS if each.ticket in told.reason} == tickets
        assert version in told.reason
        assert NEWEST in told.fix
        assert told.severity == "Warning"


@pytest.mark.parametrize(
    ("image", "told"),
    [
        ("apache/kafka:3.9.1", True),
        ("registry.example.com/kafka:3.9.0-debian-12-r3", True),
        ("strimzi/kafka:0.45.0-kafka-3.9.0", True),
        ("apache/kafka:3.9.2", False),
        ("registry.example.com/kafka@sha256:00", False),
        ("apache/kafka:latest", False),
    ],
)
def test_controllers_are_judged_by_the_tag_of_their_image(image: str, told: bool) -> None:
    seen = found(with_controllers(image)).get("controllers")
    assert (seen is not None) is told
    if seen is not None:
        assert "KAFKA-19480" in seen.reason
        assert "KAFKA-19294" not in seen.reason


def test_the_newest_patch_release_lacks_nothing() -> None:
    assert list(lacking(NEWEST, Role.BROKERS)) == list(lacking(NEWEST, Role.CONTROLLERS)) == []
    assert max(each.patch for each in CORRECTIONS) == int(NEWEST.rpartition(".")[2])
