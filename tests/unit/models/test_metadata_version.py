"""Which level a node runs at: the table of cases of KIP-778's discussion, and what an image's name tells."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.observations import Situation, broker_set, open_gate, pod

from kraftbridge.models.catalogue import Severity
from kraftbridge.models.metadata_version import (
    NAMES,
    VERSIONS,
    EffectiveLevel,
    LevelCause,
    Release,
    Upgrade,
    effective_level,
    level_of,
    levels_of,
    lowest_without_loss,
    name_of,
    release_of,
    text_of,
)
from kraftbridge.models.phase import Phase
from kraftbridge.phases.metadata_version import unable_template

AS_DISCUSSED = Release(3, 2)
"""The discussion assumed that the feature flag comes with Kafka 3.2."""

# case, software, inter.broker.protocol.version, metadata.version, effective version, remark
CASES = [
    ("A", "3.1", "3.1", None, 0, LevelCause.SOFTWARE_TOO_OLD),
    ("B", "3.2", "3.1", None, 0, LevelCause.PROTOCOL_TOO_OLD),
    ("C", "3.2", "3.2", None, 0, LevelCause.NOT_INITIALIZED),
    ("D", "3.2", "3.2", 1, 1, LevelCause.FINALIZED),
    ("E", "3.8", "3.1", None, 0, LevelCause.PROTOCOL_TOO_OLD),
    ("F", "3.8", "3.2", None, 0, LevelCause.NOT_INITIALIZED),
    ("G", "3.8", "3.2", 4, 4, LevelCause.FINALIZED),
]


@pytest.mark.parametrize(("case", "software", "protocol", "finalized", "level", "cause"), CASES)
def test_the_table_of_the_discussion(
    case: str, software: str, protocol: str, finalized: int | None, level: int, cause: LevelCause
) -> None:
    assert case
    found = effective_level(Release.of(software), Release.of(protocol), finalized, AS_DISCUSSED)
    assert found == EffectiveLevel(level, cause)


# The same cases with what Kafka became: the flag came with 3.3, whose levels are 4 to 7, and 3.9 has 21.
BECAME = [
    ("A", "3.2", "3.2", None, 0, LevelCause.SOFTWARE_TOO_OLD),
    ("B", "3.3", "3.2", None, 0, LevelCause.PROTOCOL_TOO_OLD),
    ("C", "3.3", "3.3", None, 0, LevelCause.NOT_INITIALIZED),
    ("D", "3.3", "3.3", 4, 4, LevelCause.FINALIZED),
    ("E", "3.9", "3.2", None, 0, LevelCause.PROTOCOL_TOO_OLD),
    ("F", "3.9", "3.9", None, 0, LevelCause.NOT_INITIALIZED),
    ("F, protocol left out", "3.9", "", None, 0, LevelCause.NOT_INITIALIZED),
    ("G", "3.9", "3.9", 21, 21, LevelCause.FINALIZED),
    ("finalized beyond the software", "3.8", "3.8", 21, 0, LevelCause.OUT_OF_RANGE),
    ("no flag at all, although one is finalized", "3.2", "3.2", 21, 0, LevelCause.SOFTWARE_TOO_OLD),
    ("protocol is ignored once a level is finalized", "3.9", "3.2", 20, 20, LevelCause.FINALIZED),
    ("Kafka 4 has no protocol any more", "4.1", "", 21, 21, LevelCause.FINALIZED),
    ("software that we don't know", "5.0", "", 21, None, LevelCause.UNKNOWN),
]


@pytest.mark.parametrize(("case", "software", "protocol", "finalized", "level", "cause"), BECAME)
def test_the_table_as_kafka_became(
    case: str, software: str, protocol: str, finalized: int | None, level: int | None, cause: LevelCause
) -> None:
    assert case
    ibp = Release.of(protocol) if protocol else None
    assert effective_level(Release.of(software), ibp, finalized) == EffectiveLevel(level, cause)


@pytest.mark.parametrize(
    ("image", "release"),
    [
        ("apache/kafka:3.9.2", "3.9"),
        ("registry.example.com/apache/kafka-native:3.8.0", "3.8"),
        ("localhost:5000/apache/kafka:3.7.2@sha256:0123", "3.7"),
        ("bitnami/kafka:3.9.0-debian-12-r4", "3.9"),
        ("confluentinc/cp-kafka:7.9.1", "3.9"),
        ("registry.internal:5000/confluentinc/cp-server:7.8.0-1-ubi8", "3.8"),
        ("confluentinc/cp-kafka:8.0.0", "4.0"),
        ("registry.example.com/strimzi/kafka:0.45.0-kafka-3.8.1", "3.8"),
        ("acme/kafka:v3.9", "3.9"),
        ("apache/kafka", None),
        ("apache/kafka:latest", None),
        ("localhost:5000/kafka", None),
        ("apache/kafka@sha256:0123", None),
        ("confluentinc/cp-kafka:5.5.0", None),
        ("acme/kafka:17.2", None),
        ("acme/broker:3.9.1", None),
        ("", None),
    ],
)
def test_release_of_an_image(image: str, release: str | None) -> None:
    assert release_of(image) == (None if release is None else Release.of(release))


def test_names_and_levels() -> None:
    assert [v.level for v in VERSIONS] == list(range(1, 22))
    assert level_of("3.9-IV0") == level_of("3.9") == 21
    assert level_of("3.7") == 19
    assert level_of("3.0") == 1
    assert name_of(17) == "3.7-IV2"
    assert (name_of(99), text_of(99), text_of(20)) == ("level 99", "level 99", "3.8-IV0 (20)")
    assert text_of(25) == "4.0-IV3 (25)"
    assert levels_of(Release(3, 8)) == (1, 20)
    assert (levels_of(Release(4, 0)), levels_of(Release(5, 0))) == ((7, 25), None)
    assert all(level_of(name) for name in NAMES)


@pytest.mark.parametrize("name", ["3.10", "3.9-IV1", "4.0", "2.8-IV1", "3", "", "latest"])
def test_an_unknown_name_says_which_are_known(name: str) -> None:
    with pytest.raises(ValueError, match=r"is unknown; known are 3\.0-IV1 to 3\.9-IV0"):
        level_of(name)


@pytest.mark.parametrize(("level", "lowest"), [(21, 17), (20, 17), (17, 17), (16, 15), (12, 11), (25, 23), (99, 99)])
def test_how_far_back_without_loss(level: int, lowest: int) -> None:
    assert lowest_without_loss(level) == lowest


def test_direction() -> None:
    assert Upgrade.between(20, 21) is Upgrade.UPGRADE
    assert Upgrade.between(21, 20) is Upgrade.SAFE_DOWNGRADE


def test_a_template_is_told_before_its_pods_are_replaced() -> None:
    old = replace(broker_set(), image="apache/kafka:3.8.1", update_revision="rev-new", observed=True)
    words = unable_template(old, 21)
    assert "StatefulSet kafka" in words
    assert "Kafka 3.8" in words
    assert "apache/kafka:3.8.1" in words
    assert unable_template(old, 20) == ""
    assert unable_template(replace(old, image="apache/kafka:3.9.2"), 21) == ""
    assert unable_template(replace(old, image="acme/broker:1"), 21) == ""


def test_pods_that_run_the_template_count_for_more_than_its_tag() -> None:
    settled = replace(broker_set(), image="apache/kafka:3.8.1")
    assert unable_template(settled, 21) == ""
    crashed = tuple(replace(p, ready=p.ordinal != 2) for p in settled.pods)
    assert unable_template(replace(settled, pods=crashed), 21)
    assert unable_template(replace(settled, pods=(*settled.pods[:2], pod("kafka-2", 2, revision="rev-old"))), 21)
    assert unable_template(replace(settled, observed=False), 21)


def codes(situation: Situation) -> dict[str, str]:
    return {f.code: f.reason for f in situation.decide().status.findings}


def test_preflight_says_early_what_kafka_will_refuse_later() -> None:
    fine = open_gate(Phase.PREFLIGHT)
    for name in (None, "3.9", "3.7-IV2"):
        assert "MetadataVersionOutOfReach" not in codes(fine.asking(metadata_version=name))
    found = codes(fine.asking(metadata_version="3.6"))["MetadataVersionOutOfReach"]
    assert "Kafka 3.9 will refuse metadata.version 3.6-IV2 (14)" in found
    assert "3.7-IV2 (17) is the lowest level without loss of metadata" in found
    severities = {f.code: f.severity for f in fine.asking(metadata_version="3.6").decide().status.findings}
    assert severities["MetadataVersionOutOfReach"] is Severity.WARNING


def test_preflight_warns_of_an_older_kafka_by_its_image() -> None:
    fine = open_gate(Phase.PREFLIGHT)
    for image in ("apache/kafka:3.9.2", "acme/broker:1", ""):
        assert "ImageTooOld" not in codes(fine.observing(stateful_sets=(replace(broker_set(), image=image),)))
    older = fine.observing(stateful_sets=(replace(broker_set(), image="confluentinc/cp-kafka:7.8.0"),))
    assert "starts Kafka 3.8, according to its name" in codes(older)["ImageTooOld"]
