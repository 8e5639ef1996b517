"""The fence's probe: real sockets decide, and a copy is prepared only behind a closed fence."""

from __future__ import annotations

import json
import socket
import stat
import threading
import time
from pathlib import Path

import pytest

from kraftbridge.pods import fence
from kraftbridge.pods.fence import EXIT_REACHED, main, reached_after


@pytest.fixture
def server() -> socket.socket:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def address_of(server: socket.socket) -> str:
    return f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "agent-in-image.jar").write_text("agent")
    (tmp_path / "run-salt").write_text("salt")
    (tmp_path / "dir").mkdir()
    monkeypatch.setattr(fence, "AGENT", tmp_path / "agent-in-image.jar")
    monkeypatch.setattr(fence, "TERMINATION_LOG", tmp_path / "termination-log")
    monkeypatch.setenv("META_PROPERTIES", "version=0\nbroker.id=1\n")


def prepare(tmp_path: Path) -> list[str]:
    return [f"--agent={tmp_path / 'dir'}", f"--salt={tmp_path / 'run-salt'}", f"--meta-properties={tmp_path / 'v/a/b'}"]


def test_an_open_address_ends_it_before_anything_is_prepared(tmp_path: Path, server: socket.socket) -> None:
    arguments = [f"--closed={address_of(server)}", "--closed=127.0.0.1:1", "--within=0.2", *prepare(tmp_path)]
    assert main(arguments) == EXIT_REACHED
    assert json.loads((tmp_path / "termination-log").read_text()) == {"reached": [address_of(server)]}
    assert list((tmp_path / "dir").iterdir()) == []
    assert not (tmp_path / "v").exists()


def test_a_policy_that_takes_a_while_is_waited_for(server: socket.socket) -> None:
    address = address_of(server)
    threading.Timer(0.7, server.close).start()
    assert reached_after([address], 20.0) == []


def test_one_quiet_round_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([False, True, False, False])
    monkeypatch.setattr(fence, "connects", lambda _: next(answers))
    assert reached_after(["10.0.0.1:9092"], 30.0) == []
    assert list(answers) == []


def test_a_name_that_does_not_resolve_is_closed_and_quick() -> None:
    began = time.monotonic()
    assert not fence.connects("nowhere.invalid:2181")
    assert time.monotonic() - began < 5


def test_behind_a_closed_fence_every_user_can_read_what_is_brought(tmp_path: Path) -> None:
    assert main(["--closed=127.0.0.1:1", *prepare(tmp_path)]) == 0
    assert (tmp_path / "dir/agent.jar").read_text() == "agent"
    assert (tmp_path / "dir/salt").read_text() == "salt"
    assert (tmp_path / "v/a/b/meta.properties").read_text() == "version=0\nbroker.id=1\n"
    modes = [
        stat.S_IMODE((tmp_path / p).stat().st_mode) for p in ("dir/agent.jar", "v/a/b/meta.properties", "v/a", "dir")
    ]
    assert modes == [0o444, 0o666, 0o777, 0o777]


def test_without_the_agent_nothing_is_called_prepared(tmp_path: Path) -> None:
    (tmp_path / "agent-in-image.jar").unlink()
    with pytest.raises(FileNotFoundError):
        main(prepare(tmp_path))
