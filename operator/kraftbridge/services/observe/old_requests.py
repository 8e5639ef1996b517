"""Reads from the brokers' metrics which clients send requests that Kafka 4 refuses."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from kraftbridge.exceptions import ObservationError
from kraftbridge.models.observation import OldRequests, Unobserved
from kraftbridge.models.spec import BrokerMetricsSpec
from kraftbridge.services.clients import ClusterClients
from kraftbridge.storage.broker_metrics import read_old_requests

_PAGE_SECONDS: Final = 5.0
"""An exporter with many MBeans takes seconds for its page."""
_SILENT_SECONDS: Final = 10.0
"""After this time no further page is asked for, if one did not come: a step must not outlast the Leases."""
_AT_A_TIME: Final = 2
"""Pages in memory: that of a broker with thousands of partitions has tens of megabytes."""


def old_requests_of(
    page: BrokerMetricsSpec, addresses: Mapping[int, str], clients: ClusterClients
) -> dict[int, tuple[OldRequests, ...] | Unobserved]:
    """Return the requests of old versions that each broker has got since its start.

    Parameters
    ----------
    addresses
        Address of each broker's pod; ``""`` where it has none.

    Raises
    ------
    ObservationError
        No broker returned the list of brokers.
    """
    sent = clients.brokers.send_old_requests()
    until = time.monotonic() + _SILENT_SECONDS
    silent: list[int] = []

    def read(broker: int) -> tuple[OldRequests, ...] | Unobserved:
        refused = sent.get(broker, Unobserved(f"broker {broker}", "it is not among the brokers that run"))
        if refused is not None:
            return refused
        if not addresses[broker]:
            return Unobserved(f"metrics of broker {broker}", "its pod has no address")
        if silent and time.monotonic() > until:
            return Unobserved(f"metrics of broker {broker}", "not asked for, because other pages did not come in time")
        try:
            return read_old_requests(broker, addresses[broker], page.port, page.path, _PAGE_SECONDS, clients.judge)
        except ObservationError as error:
            silent.append(broker)
            return Unobserved(error.source, error.reason)

    with ThreadPoolExecutor(_AT_A_TIME, "metrics") as pool:
        told = dict(zip(addresses, pool.map(read, addresses), strict=True))
    unknown = {
        broker: Unobserved(f"metrics of broker {broker}", "its pod is not known")
        for broker in sent
        if broker not in addresses
    }
    return told | unknown
