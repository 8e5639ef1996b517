"""The tables of what Kafka 4 makes of 3.9's settings are what the releases' own classes say and do."""

from __future__ import annotations

import subprocess
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest
from tests.support.kafka_processes import installed_tool, kafka_libraries

from kraftbridge.models import kafka4_changes as changes
from kraftbridge.models.kafka4_changes import NewDefault
from kraftbridge.models.metadata_version import Release

pytestmark = pytest.mark.integration
BRIDGE = "3.9.2"
RELEASES = ("4.0.2", "4.1.2", "4.2.1", "4.3.1", "4.4.0")
PROGRAM = Path(__file__).with_name("Kafka4Changes.java")


@dataclass
class Told:
    """What a release says of itself."""

    defaults: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    """By ``broker`` or ``topic``, and by setting."""
    dynamic: set[str] = field(default_factory=set)
    classes: set[str] = field(default_factory=set)
    requests: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Oldest version that a broker answers of each request that clients send, and the newest deprecated one."""
    accepted: dict[tuple[str, str, str], bool] = field(default_factory=dict)
    """By ``accepts`` (a broker's configuration is valid) or ``loads`` (a topic's log is loaded), setting and value."""


@cache
def told(release: str) -> Told:
    jars = sorted(kafka_libraries(release).glob("*.jar"))
    java = installed_tool("java", "openjdk-17-jdk-headless", "the integration tests")
    command = [java, "-cp", ":".join(map(str, jars)), str(PROGRAM)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = Told()
    for line in done.stdout.splitlines():
        cells = line.split("\t")
        match cells:
            case ["broker" | "topic" as kind, name, _, default]:
                found.defaults[kind][name] = default
            case ["dynamic", name, _, _]:
                found.dynamic.add(name)
            case ["class", name, _, _]:
                found.classes.add(name)
            case ["request", name, oldest, deprecated]:
                found.requests[name] = (int(oldest), int(deprecated))
            case ["accepts" | "loads" as kind, name, value, answer]:
                found.accepted[kind, name, value] = answer == "true"
            case _:
                pass  # Kafka's own logging
    assert len(found.defaults["broker"]) > 300
    assert len(found.defaults["topic"]) > 30
    assert len(found.dynamic) > 80
    assert len(found.classes) > 10
    assert len(found.accepted) > 2000
    assert len(found.requests) > 40
    return found


def in_force(rows: tuple[NewDefault, ...], release: Release) -> dict[str, tuple[str, str]]:
    """Return former and new default of each row that a release has; a later row of a setting replaces an earlier one."""
    return {row.name: (row.before, row.after) for row in rows if row.since <= release}


@pytest.mark.parametrize("text", RELEASES)
def test_exactly_the_settings_in_the_tables_are_gone(text: str) -> None:
    release = Release.of(text)
    for kind, table in (("broker", changes.GONE), ("topic", changes.GONE_FROM_TOPICS)):
        gone = told(BRIDGE).defaults[kind].keys() - told(text).defaults[kind].keys()
        assert gone == {name for name, row in table.items() if row.since <= release}
    no_longer = told(BRIDGE).dynamic - told(text).dynamic
    assert no_longer == {name for name, since in changes.NOT_DYNAMIC.items() if since <= release}


@pytest.mark.parametrize("text", RELEASES)
def test_exactly_the_defaults_in_the_tables_are_others(text: str) -> None:
    for kind, rows in (("broker", changes.NEW_DEFAULTS), ("topic", changes.NEW_TOPIC_DEFAULTS)):
        before, after = told(BRIDGE).defaults[kind], told(text).defaults[kind]
        others = {
            name: (before[name], after[name]) for name in before.keys() & after.keys() if before[name] != after[name]
        }
        still_there = {name: row for name, row in in_force(rows, Release.of(text)).items() if name in after}
        assert others == still_there


@pytest.mark.parametrize("text", RELEASES)
def test_exactly_the_values_in_the_tables_are_refused(text: str) -> None:
    """Each number and each list gets values that 3.9 accepts: a broker's as in its file, a topic's as a broker loads it."""
    release = Release.of(text)
    before, after = told(BRIDGE).accepted, told(text).accepted
    refused = {what for what in before.keys() & after.keys() if before[what] and not after[what]}
    expected = set()
    for kind, name, value in (what for what, is_accepted in before.items() if is_accepted):
        bound = (changes.BOUNDS if kind == "accepts" else changes.TOPIC_BOUNDS).get(name)
        not_empty_since = changes.NOT_EMPTY.get(name)
        is_low = bound is not None and bound.since <= release and int(value) < bound.lowest
        is_empty = not_empty_since is not None and not_empty_since <= release and value == ""
        if is_low or is_empty:
            expected.add((kind, name, value))
    assert refused == expected


def test_every_bound_is_tried_on_both_sides() -> None:
    before, newest = told(BRIDGE).accepted, told(RELEASES[-1]).accepted
    for kind, table in (("accepts", changes.BOUNDS), ("loads", changes.TOPIC_BOUNDS)):
        for name, bound in table.items():
            tried = [int(value) for of, setting, value in before if (of, setting) == (kind, name)]
            lower = [value for value in tried if value < bound.lowest and before[kind, name, str(value)]]
            assert bound.lowest - 1 in lower or (lower == [-1] and bound.lowest == 1), name
            assert newest[kind, name, str(bound.lowest)], name


@pytest.mark.parametrize("text", RELEASES)
def test_exactly_the_classes_in_the_table_are_gone(text: str) -> None:
    assert told(BRIDGE).classes - told(text).classes == changes.GONE_CLASSES.keys()
    assert set(changes.GONE_CLASSES.values()) <= told(text).classes


def test_what_changes_for_users_is_a_new_default() -> None:
    assert changes.NEW_BEHAVIOUR.keys() <= {row.name for row in changes.NEW_DEFAULTS}
    assert Release.of(RELEASES[-1]) == changes.NEWEST


@pytest.mark.parametrize("text", RELEASES)
def test_the_requests_that_kafka_4_refuses_are_those_that_are_deprecated_in_3_9(text: str) -> None:
    """So its metric ``DeprecatedRequestsPerSec`` names exactly the clients that Kafka 4 refuses."""
    before, after = told(BRIDGE).requests, told(text).requests
    deprecated = {name: newest + 1 for name, (_, newest) in before.items() if newest >= 0}
    refused = {name: after[name][0] for name in before.keys() & after.keys() if after[name][0] > before[name][0]}
    # Share groups are a preview, which 3.9 answers on request only; markers of transactions are written by brokers.
    others = {name for name in refused if name.startswith("Share") or name == "WriteTxnMarkers"}
    assert {name: oldest for name, oldest in refused.items() if name not in others} == deprecated
    assert len(deprecated) > 15
