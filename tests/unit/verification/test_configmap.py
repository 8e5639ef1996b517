"""The ConfigMap protocol against a small stand-in for the API server."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from kraftbridge.models.catalogue import Severity
from kraftbridge.models.entities import EntityKind
from kraftbridge.models.report import (
    GO_KEY,
    MAXIMUM_SUMMARY_BYTES,
    READY_KEY,
    REPORT_KEY,
    REQUEST_KEY,
    VERDICT_KEY,
    ConfigMapReference,
    Difference,
    DifferenceState,
    Finding,
    Go,
    Profile,
    Verdict,
    VerdictSummary,
    VerificationReport,
    VerificationRequest,
)
from kraftbridge.verification.configmap import ConfigMapError, NotWantedError, RunConfigMap, bounded_report

PATH = "/api/v1/namespaces/ns/configmaps/run-1"


class ApiServer(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.data: dict[str, str] | None = {}
        self.calls: list[tuple[str, str]] = []
        self.failures: list[int] = []


class Handler(BaseHTTPRequestHandler):
    server: ApiServer

    def do_GET(self) -> None:
        self._answer(None)

    def do_PATCH(self) -> None:
        assert self.headers["Content-Type"] == "application/merge-patch+json"
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _answer(self, patch) -> None:
        server = self.server
        server.calls.append((self.command, self.headers["Authorization"]))
        status = server.failures.pop(0) if server.failures else 200
        if server.data is None or self.path != PATH:
            status = 404
        if status == 200 and patch:
            server.data.update(patch["data"])
        body = json.dumps({"data": server.data} if status == 200 else {"message": "no"}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments) -> None:
        pass


@pytest.fixture
def api() -> Iterator[ApiServer]:
    server = ApiServer()
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def config_map(api, tmp_path):
    (tmp_path / "token").write_text("t1")
    url = f"http://127.0.0.1:{api.server_address[1]}"
    return RunConfigMap(ConfigMapReference(namespace="ns", name="run-1"), url, tmp_path)


def report(**fields) -> VerificationReport:
    now = datetime.now(UTC)
    base = {"run_id": "r", "profile": Profile.DUAL_WRITE, "verdict": Verdict.CONSISTENT, "reason": "same"}
    return VerificationReport(**(base | {"started_at": now, "finished_at": now} | fields))


def test_request_ready_go_verdict(api, config_map):
    request = VerificationRequest(run_id="r", profile=Profile.DUAL_WRITE, generation=7)
    api.data[REQUEST_KEY] = request.to_json()
    assert config_map.request() == request
    config_map.announce("r")
    assert json.loads(api.data[READY_KEY])["runId"] == "r"
    api.data[GO_KEY] = Go(run_id="another", at=datetime.now(UTC)).to_json()
    timer = threading.Timer(0.7, lambda: api.data.update({GO_KEY: Go(run_id="r", at=datetime.now(UTC)).to_json()}))
    timer.start()
    began = time.monotonic()
    assert config_map.await_go("r", 10).run_id == "r"
    assert 0.6 < time.monotonic() - began < 3
    summary = config_map.publish(report(generation=7))
    assert VerdictSummary.model_validate_json(api.data[VERDICT_KEY]) == summary
    stored = gzip.decompress(base64.b64decode(api.data[REPORT_KEY]))
    assert hashlib.sha256(stored).hexdigest() == summary.report_sha256
    assert VerificationReport.model_validate_json(stored).generation == 7
    assert summary.report_complete


def test_a_go_that_is_there_already_is_seen_at_once_and_only_that_of_this_run(api, config_map):
    assert config_map.go("r") is None
    api.data[GO_KEY] = Go(run_id="another", at=datetime.now(UTC)).to_json()
    assert config_map.go("r") is None
    api.data[GO_KEY] = Go(run_id="r", at=datetime.now(UTC)).to_json()
    assert config_map.go("r") == config_map.await_go("r", 0.1)


def test_a_go_that_does_not_come(config_map):
    with pytest.raises(NotWantedError, match="no go for run r"):
        config_map.await_go("r", 0.3)


def test_a_configmap_that_is_gone(api, config_map):
    api.data = None
    with pytest.raises(NotWantedError, match="ns/run-1 does not exist"):
        config_map.await_go("r", 5)


def test_the_token_is_read_each_time(api, config_map, tmp_path):
    config_map.announce("r")
    (tmp_path / "token").write_text("t2\n")
    config_map.announce("r")
    assert api.calls == [("PATCH", "Bearer t1"), ("PATCH", "Bearer t2")]


def test_passing_trouble_of_the_api_server_is_waited_out(api, config_map):
    api.failures = [503, 429]
    config_map.announce("r")
    assert READY_KEY in api.data


def test_a_refusal_is_told(api, config_map):
    api.failures = [403]
    with pytest.raises(ConfigMapError, match="403"):
        config_map.announce("r")


@pytest.mark.parametrize(
    "text", ["", "{}", '{"runId":"x","profile":"other"}', '{"runId":"x","profile":"replicas","new":1}']
)
def test_a_request_that_is_none(api, config_map, text):
    api.data[REQUEST_KEY] = text
    with pytest.raises(ConfigMapError, match=r"request\.json"):
        config_map.request()
    del api.data[REQUEST_KEY]
    with pytest.raises(ConfigMapError, match=r"no request\.json"):
        config_map.request()


def many(count: int, width: int = 20) -> list[Difference]:
    import random

    source = random.Random(1)
    return [
        Difference(kind=EntityKind.TOPIC, key=f"{i}-{source.randbytes(width).hex()}", state=DifferenceState.EXTRA)
        for i in range(count)
    ]


def test_a_report_is_bounded_to_fit():
    whole = report(verdict=Verdict.INCONSISTENT, differing=500, differences=many(500, 400))
    text, complete = bounded_report(whole, 50_000)
    bounded = VerificationReport.model_validate_json(text)
    assert not complete
    assert 0 < len(bounded.differences) < 500
    assert bounded.differing == 500
    assert len(base64.b64encode(gzip.compress(text.encode()))) <= 50_000
    assert bounded_report(whole)[1]


def test_the_summary_stays_small_and_exact():
    finding = Finding(code="C", severity=Severity.BLOCKING, object="o" * 3000, reason="r" * 3000, fix="f")
    counts = {kind: {"zookeeper": 10**9, "log": 10**9, "served": 10**9, "compared": 10**9} for kind in EntityKind}
    big = report(
        verdict=Verdict.INCONSISTENT,
        reason="x" * 5000,
        differing=10**6,
        differences=many(100, 900),
        findings=[finding] * 9,
        findings_total=9,
        blocking_findings_total=9,
        counts=counts,
    )
    summary = VerdictSummary.of(big)
    assert len(summary.to_json()) < MAXIMUM_SUMMARY_BYTES
    assert (summary.differing, summary.blocking_findings, len(summary.samples)) == (10**6, 9, 5)
    assert summary.compared == 10**9 * len(EntityKind)
