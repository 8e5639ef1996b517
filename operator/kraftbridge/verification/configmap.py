"""Reads and writes the run's ConfigMap over REST, with the pod's service account and no client library."""

from __future__ import annotations

import base64
import gzip
import json
import ssl
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from kraftbridge.exceptions import MetadataError
from kraftbridge.models.report import (
    GO_KEY,
    MAXIMUM_REPORT_BYTES,
    MAXIMUM_SUMMARY_BYTES,
    READY_KEY,
    REPORT_KEY,
    REQUEST_KEY,
    VERDICT_KEY,
    ConfigMapReference,
    Go,
    Ready,
    VerdictSummary,
    VerificationReport,
    VerificationRequest,
    digest_of,
)
from kraftbridge.outside import bounds

_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_POLL_SECONDS: Final = 0.5
_ATTEMPTS: Final = 8
_TIMEOUT_SECONDS: Final = 10.0
_RETRIED_STATUS: Final = frozenset({408, 409, 429, 500, 502, 503, 504})


class ConfigMapError(MetadataError):
    """The run's ConfigMap cannot be read or written."""


class NotWantedError(MetadataError):
    """The operator did not release the run before the armed deadline."""


@dataclass(slots=True)
class RunConfigMap:
    """One ConfigMap."""

    reference: ConfigMapReference
    """Namespace and name."""
    server: str
    """Address of the API server."""
    account: Path = _ACCOUNT
    """Folder with the service account's `token` and `ca.crt`."""

    def request(self, digest: str = "") -> VerificationRequest:
        """Return the request in the ConfigMap.

        Parameters
        ----------
        digest
            Of the request that the operator has made; ``""`` for any.

        Raises
        ------
        ConfigMapError
            There is none, or it is another one: somebody has changed where this run logs in.
        """
        text = self._data().get(REQUEST_KEY)
        if text is None:
            raise ConfigMapError(f"{self._name} has no {REQUEST_KEY}")
        if digest and digest_of(text) != digest:
            raise ConfigMapError(
                f"{self._name}: {REQUEST_KEY} is not the request that the operator made; the run reads nothing"
            )
        try:
            return VerificationRequest.model_validate_json(text)
        except ValidationError as error:
            raise ConfigMapError(f"{self._name}: {REQUEST_KEY} is not a request: {error}") from error

    def announce(self, run_id: str) -> None:
        """Write that the session is ready."""
        self._patch({READY_KEY: Ready(run_id=run_id, at=datetime.now(UTC)).to_json()})

    def go(self, run_id: str) -> Go | None:
        """Return the operator's release of this run, if it is there."""
        text = self._data().get(GO_KEY)
        if not text:
            return None
        try:
            go = Go.model_validate_json(text)
        except ValidationError as error:
            raise ConfigMapError(f"{self._name}: {GO_KEY} is not a go: {error}") from error
        return go if go.run_id == run_id else None

    def await_go(self, run_id: str, deadline_seconds: float) -> Go:
        """Wait until the operator releases this run.

        Raises
        ------
        NotWantedError
            The release did not come in time, or the ConfigMap was deleted.
        """
        until = time.monotonic() + deadline_seconds
        while time.monotonic() < until:
            go = self.go(run_id)
            if go is not None:
                return go
            time.sleep(_POLL_SECONDS)
        raise NotWantedError(f"no go for run {run_id} within {deadline_seconds:g} s")

    def publish(self, report: VerificationReport) -> VerdictSummary:
        """Write summary and report; return the summary."""
        stored, complete = bounded_report(report)
        packed = base64.b64encode(gzip.compress(stored.encode(), mtime=0)).decode()
        digest = sha256(stored.encode()).hexdigest()
        summary = VerdictSummary.of(report, report_sha256=digest, report_complete=complete)
        if len(summary.to_json()) > MAXIMUM_SUMMARY_BYTES:
            summary = summary.model_copy(update={"samples": []})
        self._patch({VERDICT_KEY: summary.to_json(), REPORT_KEY: packed})
        return summary

    @property
    def _name(self) -> str:
        return f"ConfigMap {self.reference.namespace}/{self.reference.name}"

    def _data(self) -> dict[str, str]:
        body = self._call("GET", None)
        data: dict[str, str] = body.get("data") or {}
        return data

    def _patch(self, data: dict[str, str]) -> None:
        self._call("PATCH", json.dumps({"data": data}).encode())

    def _call(self, method: str, body: bytes | None) -> dict[str, Any]:
        url = f"{self.server}/api/v1/namespaces/{self.reference.namespace}/configmaps/{self.reference.name}"
        for attempt in range(_ATTEMPTS):
            last = attempt == _ATTEMPTS - 1
            try:
                return self._send(url, method, body)
            except urllib.error.HTTPError as error:
                if error.code == 404:  # noqa: PLR2004 - the status of what is gone
                    raise NotWantedError(f"{self._name} does not exist (any more)") from error
                if last or error.code not in _RETRIED_STATUS:
                    text = error.read(500).decode(errors="replace")
                    raise ConfigMapError(f"{method} {self._name}: {error.code} {error.reason}: {text}") from error
            except (OSError, ValueError) as error:
                if last:
                    raise ConfigMapError(f"{method} {self._name}: {error}") from error
            time.sleep(min(0.25 * 2**attempt, 5.0))
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _send(self, url: str, method: str, body: bytes | None) -> dict[str, Any]:
        request = urllib.request.Request(url, data=body, method=method)  # noqa: S310 - the API server's address
        token = (
            (self.account / "token").read_text(encoding="utf-8").strip()
        )  # the kubelet rotates the token, so read it each time
        request.add_header("Authorization", f"Bearer {token}")
        request.add_header("Accept", "application/json")
        if body is not None:
            request.add_header("Content-Type", "application/merge-patch+json")
        context = None
        if url.startswith("https:"):
            context = ssl.create_default_context(cafile=str(self.account / "ca.crt"))
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS, context=context) as response:  # noqa: S310
            answer: dict[str, Any] = json.load(response)
            return answer


def bounded_report(report: VerificationReport, limit: int = MAXIMUM_REPORT_BYTES) -> tuple[str, bool]:
    """Return a report's JSON that fits into a ConfigMap when compressed, and whether it is complete."""
    complete = True
    while True:
        text = report.to_json()
        plain = text.encode()
        # The operator unpacks no more (`archives.report_of`).
        values = sum(plain.count(mark) for mark in (b",", b"[", b"{"))
        small = len(plain) <= bounds.REPORT_BYTES and values <= bounds.REPORT_VALUES
        if small and len(base64.b64encode(gzip.compress(plain, mtime=0))) <= limit:
            return text, complete
        complete = False
        half = max(len(report.differences), len(report.findings), len(report.problems)) // 2
        report = report.model_copy(
            update={
                "differences": report.differences[:half],
                "findings": report.findings[:half],
                "problems": report.problems[:half],
            }
        )
