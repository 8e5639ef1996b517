"""No container of Kafka's image starts before the probe has failed inside the fence, on what it had reached outside."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.rehearsal.test_job import told

from kraftbridge.models.rehearsal import Ending, RehearsalVerdict
from kraftbridge.pods.fence import EXIT_REACHED
from kraftbridge.rehearsal import job


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def prove(work: Path, *addresses: str) -> int:
    (work / "addresses.json").write_text(json.dumps(addresses))
    return job.main(["fence", "--request", str(work), "--work", str(work)])


def test_an_address_that_still_answers_is_named_and_the_pod_fails(
    listener: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    port = listener.getsockname()[1]
    monkeypatch.setattr(job, "FENCE_SECONDS", 0.3)
    assert prove(tmp_path, f"127.0.0.1:{port}") == EXIT_REACHED
    found = told(capsys.readouterr().out)
    assert (found.verdict, found.ending) == (RehearsalVerdict.UNKNOWN, Ending.NOT_STARTED)
    assert f"egress is open: 127.0.0.1:{port} still answers" in found.reason


def test_a_proxy_that_accepts_everything_is_named_in_place_of_the_network_plugin(
    listener: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mesh's sidecar accepts each connection of its pod, and only then tries the real address."""
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    monkeypatch.setattr(job, "FENCE_SECONDS", 0.3)
    monkeypatch.setattr(job, "NOBODY", address)
    assert prove(tmp_path, address) == EXIT_REACHED
    found = told(capsys.readouterr().out)
    assert found.verdict is RehearsalVerdict.UNKNOWN
    assert "a proxy in this pod accepts every connection" in found.reason
    assert "spec.pods" in found.reason
    assert "network plugin" not in found.reason


def test_it_waits_until_the_fence_stands(listener: socket.socket, tmp_path: Path) -> None:
    port = listener.getsockname()[1]
    threading.Timer(0.3, listener.close).start()
    assert prove(tmp_path, f"127.0.0.1:{port}") == 0
    assert listener.fileno() == -1


def test_a_fence_that_cannot_be_tried_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert prove(tmp_path) == EXIT_REACHED
    assert "no address" in told(capsys.readouterr().out).reason
