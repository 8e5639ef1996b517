r"""A ``\u`` without its four digits: Java reads no such file, and no step of the operator ends in a trace for it."""

from __future__ import annotations

import base64
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kraftbridge.exceptions import InvalidSpecError, ObservationError
from kraftbridge.kafka import __main__ as kafka
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.outside.properties import parse_properties
from kraftbridge.rehearsal import command_line as rehearsal
from kraftbridge.services import clients, listener
from kraftbridge.services.observe.workloads import migration_flag

BROKEN = "a=\\uZZZZ\n"
SPEC = MigrationSpec.model_validate(
    {
        "zookeeper": {"connect": "zk:2181"},
        "brokers": {"statefulSets": [{"name": "k"}], "bootstrapServers": "k:1", "clientConfigSecret": "client"},
        "controllers": {"listener": {"secretName": "listener"}},
    }
)


def secret(key: str) -> Any:
    data = {"client.properties": "", key: BROKEN}
    encoded = {name: base64.b64encode(text.encode()).decode() for name, text in data.items()}
    return SimpleNamespace(get=lambda *_: {"data": encoded, "metadata": {"resourceVersion": "1"}}, list=lambda *_: ())


def test_java_reads_no_such_file() -> None:
    with pytest.raises(ObservationError, match="Kafka does not start with it"):
        parse_properties(BROKEN)
    assert parse_properties("a=\\u00fc\n") == {"a": "ü"}


@pytest.mark.parametrize("key", ["client.properties", "controller.properties"])
def test_the_secret_of_the_clients_is_named_with_its_key(key: str) -> None:
    with pytest.raises(InvalidSpecError, match=f"Secret kafka/client, key {key}: .*Correct it"):
        clients.open_clients(secret(key), "kafka", "demo-kraft", SPEC, "cluster.local", "cluster.local")


def test_the_secret_of_the_listener_is_named() -> None:
    with pytest.raises(listener.CannotBeTriedError, match=r"controllers\.listener\.secretName"):
        listener.settings_of(SPEC, {"listener.properties": BROKEN})


def test_a_flag_in_a_broken_file_is_not_known() -> None:
    assert migration_flag({"data": {"controller.properties": BROKEN}}) is None


def test_by_hand_it_is_told_with_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "client.properties"
    file.write_text(BROKEN)
    asked = ["remove-config", "--config", "a", "--topic", "t", "--brokers", "127.0.0.1:1", "--client-config", str(file)]
    assert kafka.main(asked) != 0
    assert f"{file}: a properties file: " in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--properties", "--broker-properties"])
def test_a_rehearsal_by_hand_refuses_it(tmp_path: Path, caplog: pytest.LogCaptureFixture, option: str) -> None:
    file = tmp_path / "server.properties"
    file.write_text(BROKEN)
    dump = tmp_path / "dump.jsonl"
    dump.write_text("")
    assert rehearsal.main(["--zookeeper", str(dump), "--kafka-home", str(tmp_path), option, str(file)]) != 0
    assert "a properties file: " in caplog.text
