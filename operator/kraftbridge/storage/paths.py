"""Asks the sidecar of a controller's pod which addresses that pod reaches (`kraftbridge.pods.paths`)."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Sequence
from contextlib import closing
from http import HTTPStatus
from typing import Final

from kraftbridge.constants import LOG_SERVER_PORT
from kraftbridge.exceptions import ObservationError
from kraftbridge.outside.endpoints import Judge, anywhere, connect_to_host, ended_after
from kraftbridge.outside.json_text import parsed_json
from kraftbridge.pods.paths import (
    CONNECTED_WITHIN_SECONDS,
    MOST_ADDRESSES,
    MOST_BYTES,
    PATHS_PATH,
    RESOLVED_WITHIN_SECONDS,
    Target,
)

_MARGIN_SECONDS: Final = 3.0
_UNKNOWN_TO_IT: Final = frozenset({HTTPStatus.NOT_IMPLEMENTED, HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED})
OLDER_SIDECAR: Final = "its sidecar has the image of an earlier release of the operator, which cannot try connections"


def try_paths(
    host: str,
    token: str,
    authority: str,
    targets: Sequence[Target],
    port: int = LOG_SERVER_PORT,
    judge: Judge = anywhere,
) -> list[str]:
    """Return for each target why the pod behind ``host`` gets no TCP connection to it, ``""`` where it gets one.

    Raises
    ------
    ObservationError
        The sidecar does not answer, does not know the question, or answers with something else.
    """
    failures: list[str] = []
    for start in range(0, len(targets), MOST_ADDRESSES):
        asked = targets[start : start + MOST_ADDRESSES]
        failures += _ask(host, port, token, authority, asked, judge)
    return failures


def _ask(host: str, port: int, token: str, authority: str, targets: Sequence[Target], judge: Judge) -> list[str]:
    where = f"log server {host}:{port}"
    seconds = RESOLVED_WITHIN_SECONDS + CONNECTED_WITHIN_SECONDS + _MARGIN_SECONDS
    body = json.dumps({"targets": targets})
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    try:
        context = ssl.create_default_context(cadata=authority)
        with closing(http.client.HTTPSConnection(host, port, timeout=seconds, context=context)) as connection:
            plain = connect_to_host(host, port, seconds, judge)
            connection.sock = context.wrap_socket(plain, server_hostname=host)
            with ended_after(connection.sock, seconds):
                connection.request("POST", PATHS_PATH, body, headers)
                response = connection.getresponse()
                answer = response.read(MOST_BYTES + 1)
    except (OSError, http.client.HTTPException) as error:
        raise ObservationError(where, str(error) or type(error).__name__) from error
    if response.status in _UNKNOWN_TO_IT:
        raise ObservationError(where, OLDER_SIDECAR)
    if response.status != HTTPStatus.OK:
        raise ObservationError(where, f"it answers {response.status} {response.reason}")
    return _failures(where, answer, len(targets))


def _failures(where: str, answer: bytes, expected: int) -> list[str]:
    try:
        failures = [str(words) for words in parsed_json(answer[:MOST_BYTES])["failures"]]
    except (ValueError, KeyError, TypeError) as error:
        raise ObservationError(where, f"it answers with something else than a result: {error}") from error
    if len(failures) != expected:
        raise ObservationError(where, f"it answers for {len(failures)} of {expected} addresses")
    return failures
