"""What a broker's metrics page shows of requests that Kafka 4 refuses.

``DeprecatedRequestsPerSec`` (KIP-896, since Kafka 3.7) counts requests of versions that are deprecated, by request,
version, and name and version of the client's software. In 3.9 these are exactly the versions that 4.0 and newer refuse.
Exporters turn its name into names and labels by rules of their own, so this looks for the words in both.
"""

from __future__ import annotations

import http.client
import re
import time
from collections import Counter
from collections.abc import Mapping
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from kraftbridge.exceptions import ObservationError
from kraftbridge.kafka.wire import CLIENT_ID
from kraftbridge.models.observation import OldRequests
from kraftbridge.outside import bounds
from kraftbridge.outside.endpoints import Judge, anywhere
from kraftbridge.storage.kafka_controllers import fetch_page

_MBEAN: Final = "deprecatedrequests"
_SOFTWARE: Final = "clientsoftwarename"
_VERSION: Final = "clientsoftwareversion"
_FOLDED: Final = re.compile(r"request_(?P<request>[A-Za-z]+)_+version_(?P<version>\d+)")
"""In the name of a label: a rule for MBeans with two further keys folds the first ones into one."""
_ADVICE: Final = "Let the exporter export fewer names"
_ABSENT: Final = (
    "it does not show the request of an old version that the operator has just sent: "
    "let the exporter's rules export kafka.network:type=RequestMetrics,name=DeprecatedRequestsPerSec,*"
)


def read_old_requests(
    broker: int, host: str, port: int, path: str, timeout_seconds: float, judge: Judge = anywhere
) -> tuple[OldRequests, ...]:
    """Return the requests that Kafka 4 refuses and a broker has got since its start, but the operator's own.

    The operator has sent one of them before, so a page without it does not show such requests.

    Raises
    ------
    ObservationError
        No page in time, or one that shows no such requests.
    """
    source = f"metrics of broker {broker} at {host}:{port}{path}"
    try:
        page = fetch_page(host, port, time.monotonic() + timeout_seconds, judge, path)
        seen = old_requests(page)
    except (OSError, http.client.HTTPException) as error:
        raise ObservationError(source, f"GET {path} failed: {type(error).__name__}: {error}") from error
    except (ValueError, OverflowError, bounds.BoundExceededError) as error:
        raise ObservationError(source, str(error)) from error
    if not any(each.software == CLIENT_ID for each in seen):
        raise ObservationError(source, _ABSENT)
    return tuple(each for each in seen if each.software != CLIENT_ID)


def old_requests(page: str) -> tuple[OldRequests, ...]:
    """Return the requests of old versions on an exporter's page, in the order of their names.

    Raises
    ------
    ValueError
        A line is not in Prometheus' format.
    BoundExceededError
        The page has more of them, or longer ones, than a broker's.
    """
    lines = [line for line in page.splitlines() if _MBEAN in line.lower() and not line.startswith("#")]
    bounds.count("the page", len(lines), bounds.OLD_REQUESTS, "lines of old requests", _ADVICE)
    bounds.count("a line of the page", max(map(len, lines), default=0), bounds.GAUGE_CHARACTERS, "characters", _ADVICE)
    counts: Counter[tuple[str, str, str]] = Counter()
    for family in text_string_to_metric_families("".join(f"{line}\n" for line in lines)):
        # A rule may export the rates of the same meter besides (``MeanRate``, ``OneMinuteRate``).
        for sample in (each for each in family.samples if not each.name.lower().endswith("rate")):
            key = _key(sample.labels)
            counts[key] = max(counts[key], int(sample.value))
    return tuple(OldRequests(*key, count) for key, count in sorted(counts.items()) if count > 0)


def _key(labels: Mapping[str, str]) -> tuple[str, str, str]:
    """Return software, its version, and the request with its version; ``?`` for what the labels do not tell."""
    software = "?"
    version = "?"
    request = labels.get("request", "?")
    request_version = labels.get("version", "?")
    for name, value in labels.items():
        plain = name.lower().replace("_", "")
        if plain.endswith(_SOFTWARE):
            software = value
        elif plain.endswith(_VERSION):
            version = value
        if folded := _FOLDED.search(name):
            request = folded["request"]
            request_version = folded["version"]
    return software, version, f"{request} v{request_version}"
