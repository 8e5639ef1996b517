"""Keeps connections to nodes of Kafka open between questions."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

from kraftbridge.kafka.wire import Connection, Security, WireError

Address = tuple[str, int]
T = TypeVar("T")


class Connections:
    """One connection to each address. Threads may ask different addresses at the same time, and do nothing else."""

    def __init__(self, security: Security) -> None:
        self._security = security
        self._open: dict[Address, Connection] = {}

    def __contains__(self, address: Address) -> bool:
        return address in self._open

    def to(self, address: Address, connect_seconds: float) -> Connection:
        """Return the connection to an address, opened if there is none that can be used.

        Raises
        ------
        WireError
            Nobody answers there in time, or the login fails.
        """
        kept = self._open.get(address)
        if kept is not None and kept.usable:
            return kept
        self.drop(address)
        host, port = address
        self._open[address] = Connection(host, port, self._security, connect_seconds)
        return self._open[address]

    def ask(
        self,
        address: Address,
        connect_seconds: float,
        question: Callable[[Connection], T],
        *,
        again_after: type[WireError] = WireError,
    ) -> T:
        """Send a question that can be repeated.

        On a kept connection it is asked once more after ``again_after``: the node may have restarted meanwhile.

        Raises
        ------
        WireError
            A new connection does not answer either.
        """
        kept = self._open.get(address)
        if kept is not None and kept.usable:
            try:
                return question(kept)
            except again_after:
                self.drop(address)
        try:
            return question(self.to(address, connect_seconds))
        except WireError:
            self.drop(address)
            raise

    def drop(self, address: Address) -> None:
        """Close the connection to an address."""
        connection = self._open.pop(address, None)
        if connection is not None:
            connection.close()

    def keep_only(self, addresses: Collection[Address]) -> None:
        """Close the connections to all other addresses."""
        for address in self._open.keys() - set(addresses):
            self.drop(address)

    def close(self) -> None:
        """Close all connections."""
        self.keep_only(())
