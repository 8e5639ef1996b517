"""Ports for the processes of other tests."""

from __future__ import annotations

from tests.support.programs import free_port


def test_no_port_is_given_twice() -> None:
    # A controller whose metrics got the port of its listener died after a test had seen that port open.
    ports = [free_port() for _ in range(2_000)]
    assert len(set(ports)) == len(ports)
