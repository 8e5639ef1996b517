"""Our containers in a rehearsal's pod: the tree is read first, Kafka starts behind the fence only, and a result is written whatever happens."""

from __future__ import annotations

import base64
import gzip
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from kraftbridge.metadata.zookeeper.reader import write_dump
from kraftbridge.metadata.zookeeper.znodes import Znode
from kraftbridge.models.entities import EntityKind
from kraftbridge.models.rehearsal import (
    PAGE_MARK,
    PLAN_KEY,
    PROPERTIES_KEY,
    REQUEST_KEY,
    RESULT_MARK,
    BrokerRehearsal,
    ComparedSetting,
    Ending,
    RehearsalRequest,
    RehearsalResult,
    RehearsalVerdict,
    RehearsedSettings,
)
from kraftbridge.models.report import Difference, DifferenceState, ZooKeeperAccess
from kraftbridge.outside import bounds
from kraftbridge.rehearsal import job
from kraftbridge.rehearsal.page import render_page
from kraftbridge.rehearsal.rehearse import RehearsalOptions, _batch_size

NOW = datetime(2026, 3, 4, tzinfo=UTC)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def request(zookeeper: str, brokers: str = "127.0.0.1:1") -> RehearsalRequest:
    return RehearsalRequest(
        run_id="r",
        zookeeper=ZooKeeperAccess(connect=zookeeper),
        bootstrap_servers=brokers,
        release_version="3.9",
        heap_bytes=1,
        zookeeper_heap_bytes=1,
    )


def result(**changes: object) -> RehearsalResult:
    fine: dict[str, object] = {
        "verdict": RehearsalVerdict.WORKS,
        "reason": "as it is",
        "ending": Ending.DUAL_WRITE,
        "started_at": NOW,
        "finished_at": NOW,
    }
    return RehearsalResult.model_validate(fine | changes)


def told(output: str) -> RehearsalResult:
    line = next(text for text in output.splitlines() if text.startswith(RESULT_MARK))
    return RehearsalResult.model_validate_json(gzip.decompress(base64.b64decode(line[len(RESULT_MARK) :])))


def test_only_addresses_that_answer_can_prove_a_fence(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    host, port = listener.getsockname()
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
    assert job.reached_outside(request(f"localhost:{port}/kafka")) == [f"{host}:{port}"]
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(port))
    assert job.reached_outside(request("127.0.0.1:1,localhost:" + str(port))) == [f"{host}:{port}"]


def test_the_fence_must_close_what_is_reached_beyond_the_cluster(listener: socket.socket) -> None:
    """An address that nobody reached outside proves nothing: a cluster without a way out is no obstacle."""
    host, port = listener.getsockname()
    with socket.create_server((host, 0)) as other:
        beyond = (f"{host}:{other.getsockname()[1]}", "127.0.0.1:1")
        asked = request(f"{host}:{port}").model_copy(update={"beyond_the_cluster": beyond})
        assert job.reached_outside(asked) == [f"{host}:{port}", beyond[0]]
    assert job.reached_outside(asked) == [f"{host}:{port}"]


def test_a_fence_that_brokers_alone_could_prove_is_none(listener: socket.socket) -> None:
    host, port = listener.getsockname()
    assert job.reached_outside(request("127.0.0.1:1", f"{host}:{port}")) == []


@pytest.mark.parametrize(
    ("content", "given"),
    [(b"a secret\n", "a secret"), (b"a secret\r\n", "a secret"), (b"a secret", "a secret"), (b"\n", None)],
)
def test_kafka_and_the_comparison_get_the_encoder_secret_without_the_end_of_its_file(
    content: bytes, given: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(content)
    asked = request("127.0.0.1:1").model_copy(update={"password_encoder_secret_path": str(secret)})
    (tmp_path / REQUEST_KEY).write_text(asked.to_json())
    (tmp_path / PROPERTIES_KEY).write_text("a=b\n")
    rehearsed: list[RehearsalOptions] = []

    def rehearse(_processes: object, _dump: Path, options: RehearsalOptions) -> RehearsalResult:
        rehearsed.append(options)
        return result()

    monkeypatch.setattr(job, "rehearse_with", rehearse)
    assert job.run(tmp_path, tmp_path) == 0
    assert rehearsed[0].settings.get("password.encoder.secret") == given


def test_a_tree_that_cannot_be_read_is_a_result_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / REQUEST_KEY).write_text("{}")
    assert job.main(["read", "--request", str(tmp_path), "--work", str(tmp_path)]) == 1
    assert told(capsys.readouterr().out).verdict is RehearsalVerdict.UNKNOWN


def test_the_result_fits_into_what_an_api_server_gives_of_a_log() -> None:
    many = [
        Difference(kind=EntityKind.TOPIC, key=f"{i:040x}{hash(str(i)) % 10**18}", state=DifferenceState.EXTRA)
        for i in range(3000)
    ]
    lines = job.lines(result(verdict=RehearsalVerdict.LOSES, differing=3000, differences=many), limit=20_000)
    assert sum(map(len, lines)) < 20_100
    found = told("\n".join(lines))
    assert found.differing == 3000
    assert 0 < len(found.differences) < 3000


def test_a_result_with_many_brokers_keeps_what_is_lost_and_every_verdict() -> None:
    """The operator unpacks no more than `bounds.RESULT_BYTES`."""
    brokers = [
        BrokerRehearsal(
            broker=number,
            verdict=RehearsalVerdict.FAILS,
            reason="no",
            words=["w" * 400] * 25,
            compared=[
                ComparedSetting(name="lost", stored="1", held=False),
                *(ComparedSetting(name=f"held.{i}", stored="1", holds="1", held=True) for i in range(50)),
            ],
            replaced_settings=dict.fromkeys(map(str, range(50)), "an address of the real cluster"),
        )
        for number in range(300)
    ]
    found = told("\n".join(job.lines(result(brokers=brokers))))
    assert len(found.to_json()) <= bounds.RESULT_BYTES
    assert [each.broker for each in found.brokers] == list(range(300))
    assert all([setting.name for setting in each.unheld] == ["lost"] for each in found.brokers)


@pytest.mark.parametrize(
    ("seconds", "has_agent", "words"),
    [(60, False, "agent.jar"), (-1, True, "the time of the rehearsal was up")],
    ids=["an image without the agent", "no time"],
)
def test_brokers_that_cannot_be_started_are_unknown_and_the_controllers_part_stays(
    seconds: float, words: str, tmp_path: Path, *, has_agent: bool
) -> None:
    agent = tmp_path / "image" / "agent.jar"
    agent.parent.mkdir()
    if has_agent:
        agent.touch()
    write_dump([Znode(f"/brokers/ids/{number}", b"{}") for number in range(3)], tmp_path / job._DUMP, "")
    given = [RehearsedSettings(broker=number, image="kafka:1", settings={}) for number in (0, 1, 7)]
    packed = gzip.compress(TypeAdapter(list[RehearsedSettings]).dump_json(given, by_alias=True))
    options = RehearsalOptions(None, tmp_path)
    found = job.with_brokers(result(), packed, options, time.monotonic() + seconds, agent)
    assert found.verdict is RehearsalVerdict.UNKNOWN
    assert {each.verdict for each in found.brokers} == {RehearsalVerdict.UNKNOWN}
    assert words in found.brokers[0].reason
    assert (found.of_controllers.verdict, found.of_controllers.reason) == (RehearsalVerdict.WORKS, "as it is")
    stuck = job.with_brokers(result(ending=Ending.STICKS), packed, options, time.monotonic() + 60, agent)
    assert stuck.verdict is RehearsalVerdict.WORKS if has_agent else stuck.brokers, "no copy, so nothing to start on"


def test_the_page_shows_the_plan_of_the_rolling_restarts_that_came_with_the_request(tmp_path: Path) -> None:
    assert job.with_plan(result(), tmp_path) == result()
    (tmp_path / PLAN_KEY).write_text("Rolling restart to mode KRaft: <3> restarts\nAll: 3 restarts", encoding="utf-8")
    planned = job.with_plan(result(), tmp_path)
    assert planned.plan == ["Rolling restart to mode KRaft: <3> restarts", "All: 3 restarts"]
    page = render_page(planned)
    assert "<li>Rolling restart to mode KRaft: &lt;3&gt; restarts</li>" in page
    assert "rolling restarts that are ahead" not in render_page(result())


def test_a_small_result_has_its_page() -> None:
    page, last = job.lines(result())
    assert page.startswith(PAGE_MARK)
    assert b"<html" in gzip.decompress(base64.b64decode(page[len(PAGE_MARK) :]))
    assert told(last) == result()


@pytest.mark.parametrize(
    ("copied", "expected"),
    [
        ("20500 records were generated in 9300 ms across 105 batches. The average time spent waiting on a batch was 22.60 ms", 2000),
        ("20500 records were generated in 9300 ms across 105 batches. The average time spent waiting on a batch was 1.60 ms", None),
        ("409 records were generated in 400 ms across 3 batches. The average time spent waiting on a batch was 70.00 ms", None),
        (None, None),
    ],
    ids=["waits much", "waits little", "is small", "was not made"],
)  # fmt: skip
def test_larger_batches_where_the_copy_waited_for_small_ones(copied: str | None, expected: int | None) -> None:
    assert _batch_size(copied) == expected
