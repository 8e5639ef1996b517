"""Pages of exporters that strangers have, with requests that Kafka 4 refuses. Real ones: tests/integration/test_old_clients.py."""

from __future__ import annotations

import pytest
from tests.unit.storage.servers import http_server

from kraftbridge.exceptions import ObservationError
from kraftbridge.kafka.wire import CLIENT_ID
from kraftbridge.models.observation import OldRequests
from kraftbridge.storage.broker_metrics import read_old_requests


def line(software: str, count: str) -> str:
    name = "kafka_network_requestmetrics_deprecatedrequestspersec_total"
    return f'{name}{{version="2",clientsoftwareversion="1",request="Fetch",clientsoftwarename="{software}",}} {count}\n'


def read(page: str) -> tuple[OldRequests, ...]:
    with http_server() as server:
        server.respond = lambda _: (200, page)
        return read_old_requests(0, "127.0.0.1", server.port, "/metrics", 5.0)


def test_names_with_quotes_and_braces_are_whole() -> None:
    own = line(CLIENT_ID, "1.0")
    assert read(own + line(r"a\"} 7\\", "3.0")) == (OldRequests('a"} 7\\', "1", "Fetch v2", 3),)


@pytest.mark.parametrize("count", ["+Inf", "-Inf", "1e999", "NaN", "three"])
def test_a_number_that_is_none_is_told_and_ends_no_step(count: str) -> None:
    with pytest.raises(ObservationError, match=r"metrics of broker 0 at 127\.0\.0\.1"):
        read(line(CLIENT_ID, "1.0") + line("old", count))
