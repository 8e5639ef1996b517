"""Compares what a client sees at a broker's listeners before and after its restart. Pure.

DescribeConfigs is not the whole truth about listeners: a dynamic ``listeners`` that changes only a port is shown while
the socket stays where it was.
"""

from __future__ import annotations

from collections.abc import Iterator

from kraftbridge.models.broker_record import (
    BrokerNow,
    BrokerRecord,
    Certificate,
    Difference,
    DifferenceKind,
    Effect,
    ListenerState,
)


def differing_listeners(record: BrokerRecord, now: BrokerNow) -> Iterator[Difference]:
    """Yield each listener that worked before and is gone, elsewhere, or shows other certificates or mechanisms."""
    after = {state.name: state for state in now.listeners}
    for before in record.listeners:
        if before.trouble:
            continue  # the operator did not reach it before, so it cannot tell whether clients do
        state = after.get(before.name)
        if state is None:
            yield _difference(before, _address(before), "no such listener")
        elif _host(before, record, now) != state.host or before.port != state.port:
            yield _difference(before, _address(before), _address(state))
        elif state.trouble:
            yield _difference(before, f"{_address(before)} answered", state.trouble)
        elif frozenset(before.mechanisms) != frozenset(state.mechanisms):
            yield _difference(before, _mechanisms(before), _mechanisms(state))
        elif _is_worse(before.certificate, state.certificate):
            yield _difference(before, _shown(before.certificate), _shown(state.certificate))


def _host(before: ListenerState, record: BrokerRecord, now: BrokerNow) -> str:
    return now.pod_ip if before.host == record.pod_ip else before.host


def _difference(listener: ListenerState, before: str, after: str) -> Difference:
    return Difference(DifferenceKind.LISTENER, Effect.CUTS_OFF, listener.name, before, after)


def _address(listener: ListenerState) -> str:
    return f"{listener.host}:{listener.port}"


def _mechanisms(listener: ListenerState) -> str:
    return f"SASL {', '.join(sorted(listener.mechanisms)) or 'none'}"


def _is_worse(before: Certificate | None, after: Certificate | None) -> bool:
    """Return whether another certificate is shown; a renewed one has the same names and issuer, and ends no earlier."""
    if before is None or after is None:
        return before is not None
    return (after.names, after.issuer) != (before.names, before.issuer) or after.not_after < before.not_after


def _shown(certificate: Certificate | None) -> str:
    if certificate is None:
        return "no certificate"
    names = ", ".join(certificate.names)
    return f"certificate of {names}, issued by {certificate.issuer}, valid until {certificate.not_after:%Y-%m-%d}"
