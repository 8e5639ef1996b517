"""Rehearsals with a real ZooKeeper and a real Kafka 3.9.2 controller; all traps are in `tests/rehearsal`, which takes minutes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.empty_cluster import dump_of_empty_cluster
from tests.support.kafka_processes import kafka_libraries
from tests.support.traps import CHROOT, IN_CI, SETTINGS, TRAPS, config, planted, stored_dump

from kraftbridge.models.broker_settings import LOADED_BY_CONTROLLERS
from kraftbridge.models.rehearsal import NOT_REHEARSED, Ending, RehearsalResult, RehearsalVerdict, Stage
from kraftbridge.rehearsal import registrations
from kraftbridge.rehearsal import rehearse as rehearse_module
from kraftbridge.rehearsal.command_line import main
from kraftbridge.rehearsal.comparison import compare_copy
from kraftbridge.rehearsal.page import render_page
from kraftbridge.rehearsal.rehearse import RehearsalOptions, rehearse

pytestmark = pytest.mark.integration


def rehearsed(name: str, tmp_path: Path) -> RehearsalResult:
    trap = TRAPS[name]
    options = RehearsalOptions(kafka_libraries(), tmp_path / "work", CHROOT, trap.settings)
    return rehearse(planted(trap, tmp_path / "zk.jsonl"), options)


def test_a_sound_tree_works_and_says_what_the_takeover_will_cost(tmp_path: Path) -> None:
    result = rehearsed("none", tmp_path)

    assert result.verdict is RehearsalVerdict.WORKS, result.to_json(indent=1)
    assert list(result.stages_seconds) == list(Stage)
    assert (result.tree.partitions, result.tree.brokers) == (330, 3)
    forecast = result.forecast
    assert forecast.no_controller_seconds
    assert forecast.copy_seconds
    assert forecast.sync_seconds
    assert forecast.no_controller_seconds >= forecast.copy_seconds
    assert forecast.heap_bytes
    assert forecast.measured_heap_bytes
    assert "Works" in render_page(result)
    # Copied with the versions of the original's znodes, so there was nothing to write back.
    assert result.sync.changed == []
    assert result.mirror == []


@pytest.mark.parametrize("name", IN_CI)
def test_a_trap_ends_as_kafka_ends_and_is_named_with_what_mends_it(name: str, tmp_path: Path) -> None:
    trap, result = TRAPS[name], rehearsed(name, tmp_path)

    assert (result.ending, result.verdict) == (trap.ending, trap.verdict), result.to_json(indent=1)
    assert trap.code in {mend.code for mend in result.mends}
    assert trap.words in " ".join(result.words)


@pytest.mark.parametrize("plugin", sorted({*LOADED_BY_CONTROLLERS} - NOT_REHEARSED))
def test_a_class_that_the_image_does_not_have_fails_and_is_named(plugin: str, tmp_path: Path) -> None:
    """PluginNotProven relies on it: a controller does not start without one of its classes."""
    settings = {**SETTINGS, plugin: "com.example.Missing"}
    dump = stored_dump().write(tmp_path / "zk.jsonl")
    result = rehearse(dump, RehearsalOptions(kafka_libraries(), tmp_path / "work", CHROOT, settings))
    assert result.verdict is not RehearsalVerdict.WORKS
    assert "com.example.Missing" in result.reason


def test_no_secret_is_in_kafkas_own_words(tmp_path: Path) -> None:
    """Kafka quotes the credential that it refuses, and the result leaves the pod."""
    keys = ("c2FsdC1vZi1hbGljZQ==", "c3RvcmVkLWtleS1vZi1hbGljZQ==", "c2VydmVyLWtleS1vZi1hbGljZQ==")
    dump = stored_dump()
    dump.put("/config/users/alice", config(**{"SCRAM-SHA-256": "salt={},stored_key={},server_key={}".format(*keys)}))
    options = RehearsalOptions(kafka_libraries(), tmp_path / "work", CHROOT, SETTINGS)

    result = rehearse(dump.write(tmp_path / "zk.jsonl"), options)

    assert result.ending is Ending.DIES
    assert "Credentials not valid" in result.reason
    assert "Credentials not valid" in " ".join(result.words)
    log = (tmp_path / "work" / "controller.log").read_text()
    assert all(key in log for key in keys), "what Kafka wrote stays in the pod"
    assert not [key for key in (*keys, *SETTINGS.values()) if key in result.to_json() + render_page(result)]


def test_an_empty_cluster_works_and_a_tree_that_was_not_read_is_not_an_empty_one(tmp_path: Path) -> None:
    dump = dump_of_empty_cluster(tmp_path / "zk.jsonl")

    result = rehearse(dump, RehearsalOptions(kafka_libraries(), tmp_path / "work", "/kafka"))

    assert (result.verdict, result.ending) == (RehearsalVerdict.WORKS, Ending.DUAL_WRITE), result.to_json(indent=1)
    assert "there was nothing to compare" in result.reason
    assert result.tree.topics == 0
    assert result.forecast.no_controller_seconds is not None
    rows = [json.loads(line) for line in dump.read_text().splitlines()]
    unread = {
        "a folder is missing": [row for row in rows if row["path"] != "/kafka/config/users"],
        "a child is missing": [row | {"numChildren": row["numChildren"] + (row["path"] == "/kafka/brokers/topics")} for row in rows],
        "a folder was not listed": [row | ({"problem": "NoAuth"} if row["path"] == "/kafka/config/topics" else {}) for row in rows],
    }  # fmt: skip
    for what, kept in unread.items():
        dump.write_text("".join(json.dumps(row) + "\n" for row in kept))
        compared = compare_copy(dump, "/kafka", tmp_path / "work" / "controller", None)
        assert (compared.compared, compared.whole) == (0, False), what


@pytest.mark.parametrize("path", ["/config/users/alice", "/config/users"])
def test_a_dump_from_which_znodes_are_missing_never_works(path: str, tmp_path: Path) -> None:
    """Kafka migrates what is in the dump. Nobody knows what it would do with the rest."""
    dump = stored_dump()
    counted = {each: row["numChildren"] for each, row in dump.znodes.items()}
    dump.remove(path)
    parent = path.rpartition("/")[0]
    dump.znodes[parent]["numChildren"] = counted[parent]
    options = RehearsalOptions(kafka_libraries(), tmp_path / "work", CHROOT, SETTINGS)

    result = rehearse(dump.write(tmp_path / "zk.jsonl"), options)

    assert (result.verdict, result.ending) == (RehearsalVerdict.UNKNOWN, Ending.DUAL_WRITE), result.to_json(indent=1)
    assert result.reason.startswith(f"{parent} has {counted[parent]} children")


def test_a_registration_that_stays_fenced_is_no_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller then sends no requests to brokers, and the measured heap lacks them. It enters dual-write all the same."""
    monkeypatch.setattr(
        registrations, "_FAR_OFFSET", 0
    )  # behind the registration: the controller keeps the broker fenced
    monkeypatch.setattr(rehearse_module, "_UNFENCE_SECONDS", 3.0)

    result = rehearsed("none", tmp_path)

    assert (result.verdict, result.ending) == (RehearsalVerdict.UNKNOWN, Ending.DUAL_WRITE), result.to_json(indent=1)
    assert result.reason == "registrations in place of brokers [0, 1, 2] stayed fenced"


def test_nothing_is_left_running_and_the_page_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump = planted(TRAPS["none"], tmp_path / "zk.jsonl")
    page, work = tmp_path / "page.html", tmp_path / "work"
    settings = [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}")]
    place = ["--zookeeper", str(dump), "--chroot", CHROOT, "--kafka-home", str(kafka_libraries()), "--work", str(work)]

    assert main([*place, *settings, "--html", str(page), "--json", str(tmp_path / "result.json")]) == 0

    assert RehearsalResult.model_validate_json((tmp_path / "result.json").read_text()).ending is Ending.DUAL_WRITE
    assert "without a controller" in capsys.readouterr().out
    text = page.read_text()
    assert "<script" not in text
    assert not any(secret in text for secret in SETTINGS.values())
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert [command for command in commands if str(work).encode() in command] == []
