"""Clients that Kafka 4 refuses, as the brokers' metrics show them until a restart. The status keeps them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from typing import Final

from kraftbridge.models.catalogue import Code
from kraftbridge.models.observation import KafkaSettings, OldRequests, Unobserved
from kraftbridge.models.status import FindingStatus, Kafka4Status, RefusedClient, finding, first
from kraftbridge.phases.draft import StepContext

WATCHED_FOR: Final = timedelta(days=7)
"""How long clients are watched before their absence means something: some run once a week."""
MOST_UNSEEN: Final = timedelta(hours=1)
"""How long a page may be silent, or the operator away. A broker that restarts meanwhile forgets its clients."""
NOTED_EVERY: Final = timedelta(minutes=10)
"""How often the status notes that all pages were read: each look would write it at a rest of weeks."""
MAXIMUM_CLIENTS: Final = 50
_BROKERS: Final = "brokers"
_NOT_ASKED: Final = "spec.brokers.metrics does not say where the brokers' metrics are"


def watched(step: StepContext, seen: KafkaSettings) -> Kafka4Status:
    """Return the clients that are known now, and since when all brokers are watched; findings are not set."""
    before = step.status.kafka4 or Kafka4Status()
    told = {broker: answer for broker, answer in seen.old_requests.items() if not isinstance(answer, Unobserved)}
    known = {(client.software, client.version): client for client in before.clients}
    by_client: dict[tuple[str, str], dict[int, list[OldRequests]]] = {}
    for broker, requests in told.items():
        for each in requests:
            by_client.setdefault((each.software, each.version), {}).setdefault(broker, []).append(each)
    for key in known.keys() | by_client.keys():
        known[key] = _client(step, key, known.get(key), by_client.get(key, {}), told.keys())
    # What a broker still counts is kept: it would be news at the next look.
    kept = [client for client in known.values() if client.counts or is_recent(step, client)]
    kept.sort(key=lambda client: (-client.last_seen_at.timestamp(), client.software, client.version))
    since, seen_at = _watch(step, seen, before)
    return Kafka4Status(clients=tuple(kept[:MAXIMUM_CLIENTS]), clients_since=since, clients_seen_at=seen_at)


def _watch(step: StepContext, seen: KafkaSettings, before: Kafka4Status) -> tuple[datetime | None, datetime | None]:
    """Return since when all brokers are watched, and when all of them told last."""
    if step.spec.brokers.metrics is None:
        return None, None
    if _silence(step, seen):
        return before.clients_since, before.clients_seen_at
    if before.clients_since is None or before.clients_seen_at is None:
        return step.now, step.now
    unseen = step.now - before.clients_seen_at
    if abs(unseen) > MOST_UNSEEN:  # the operator's own clock may have been set back
        return step.now, step.now
    is_noted = timedelta(0) <= unseen < NOTED_EVERY
    return before.clients_since, before.clients_seen_at if is_noted else step.now


def is_recent(step: StepContext, client: RefusedClient) -> bool:
    """Return whether a client was seen so lately that it may come again."""
    return step.now - client.last_seen_at <= WATCHED_FOR


def _client(
    step: StepContext,
    key: tuple[str, str],
    before: RefusedClient | None,
    of_brokers: Mapping[int, list[OldRequests]],
    told: AbstractSet[int],
) -> RefusedClient:
    """Return what is known of a client after a look at the brokers that told.

    What a broker counts after its restart is news as well, although it is less than before.
    """
    former = {} if before is None else {int(broker): count for broker, count in before.counts.items()}
    counts = {broker: sum(each.count for each in requests) for broker, requests in of_brokers.items()}
    by_request: Counter[str] = Counter()
    for each in (each for requests in of_brokers.values() for each in requests):
        by_request[each.request] += each.count
    is_news = any(count != former.get(broker) for broker, count in counts.items())
    silent = {broker: count for broker, count in former.items() if broker not in told}
    return RefusedClient(
        software=key[0],
        version=key[1],
        requests=dict(sorted(by_request.items())) if before is None or of_brokers else before.requests,
        brokers=tuple(sorted({*of_brokers, *(() if before is None else before.brokers)})),
        counts={str(broker): count for broker, count in sorted((silent | counts).items())},
        last_seen_at=step.now if before is None or is_news else before.last_seen_at,
    )


def findings(step: StepContext, seen: KafkaSettings, clients: Kafka4Status) -> tuple[FindingStatus, ...]:
    """Return what is known of clients that Kafka 4 refuses, and that it is not known of all."""
    found = [_refused(client) for client in clients.clients if is_recent(step, client)]
    if reason := _unknown(step, seen, clients):
        unknown = finding(Code.KAFKA4_CLIENTS_UNKNOWN, _BROKERS, reason=reason)
        found.append(unknown.model_copy(update={"accepted": is_accepted(step)}))
    return tuple(found)


def is_accepted(step: StepContext) -> bool:
    """Return whether the user accepts that not all clients are known."""
    return step.spec.preflight.accepts(Code.KAFKA4_CLIENTS_UNKNOWN, _BROKERS)


def _refused(client: RefusedClient) -> FindingStatus:
    name = f"clients {client.software} {client.version}"
    if client.software in ("unknown", "?"):
        name = "clients that do not tell their software (before KIP-511)"
    return finding(
        Code.KAFKA4_REFUSES_CLIENTS,
        f"{client.software} {client.version}",
        client=name,
        requests=first(list(client.requests)),
        brokers=_listed(client.brokers),
        at=f"{client.last_seen_at:%Y-%m-%d %H:%M} UTC",
    )


def _listed(brokers: Iterable[int]) -> str:
    return first([str(broker) for broker in brokers], 10)


def _unknown(step: StepContext, seen: KafkaSettings, clients: Kafka4Status) -> str:
    """Return why not all clients are known, ``""`` if they are."""
    if silence := _silence(step, seen):
        return silence
    if clients.clients_since is None:
        return ""
    passed = step.now - clients.clients_since
    if passed < WATCHED_FOR:
        return (
            f"the brokers' metrics are watched since {clients.clients_since:%Y-%m-%d %H:%M} UTC, "
            f"and {WATCHED_FOR.days} days are needed: some clients run once a week"
        )
    return ""


def _silence(step: StepContext, seen: KafkaSettings) -> str:
    """Return which broker's metrics do not tell, ``""`` if all do."""
    if step.spec.brokers.metrics is None:
        return _NOT_ASKED
    for broker in sorted({*step.status.broker_ids.values(), *seen.old_requests}):
        answer = seen.old_requests.get(broker)
        if answer is None:
            return f"metrics of broker {broker} were not read"
        if isinstance(answer, Unobserved):
            return str(answer)
    return "" if seen.old_requests else "no broker's metrics were read"
