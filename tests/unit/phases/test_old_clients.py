"""Clients that Kafka 4 refuses are kept across restarts of brokers, and their absence means nothing before a week."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.observations import BROKER_IDS, NOW, Situation, open_gate
from tests.unit.phases.test_kafka4 import readiness, settings

from kraftbridge.models.catalogue import Code
from kraftbridge.models.observation import KafkaSettings, OldRequests, Unobserved
from kraftbridge.models.phase import Phase
from kraftbridge.models.spec import AcceptedFinding, BrokerMetricsSpec
from kraftbridge.models.status import FindingStatus, Kafka4Status, MigrationStatus
from kraftbridge.phases.old_clients import MAXIMUM_CLIENTS, MOST_UNSEEN, NOTED_EVERY, WATCHED_FOR

OLD = OldRequests("librdkafka", "0.9.5", "Fetch v2", 7)
NAMELESS = OldRequests("unknown", "unknown", "Produce v1", 1)
WEEK_AGO = NOW - WATCHED_FOR - timedelta(minutes=1)
A_WEEK_WATCHED = Kafka4Status(clients_since=WEEK_AGO, clients_seen_at=NOW - NOTED_EVERY)


def seeing(*of_first: OldRequests, **others: tuple[OldRequests, ...] | Unobserved) -> KafkaSettings:
    """Return what brokers tell: the first one these requests, the others nothing."""
    told: dict[int, tuple[OldRequests, ...] | Unobserved] = {0: of_first, **dict.fromkeys(BROKER_IDS[1:], ())}
    told |= {int(name.removeprefix("broker_")): answer for name, answer in others.items()}
    return replace(settings(), old_requests=told)


def watching(seen: KafkaSettings, known: Kafka4Status | None = None) -> Situation:
    case = open_gate(Phase.COMPLETED).observing(kafka4=seen)
    brokers = case.spec.brokers.model_copy(update={"metrics": BrokerMetricsSpec(port=9404)})
    return case.asking(brokers=brokers).with_status(kafka4=known)


def status_of(case: Situation) -> MigrationStatus:
    return case.decide().status


def kafka4(case: Situation) -> Kafka4Status:
    found = status_of(case).kafka4
    assert found is not None
    return found


def unknown_clients(case: Situation) -> FindingStatus | None:
    return next((f for f in kafka4(case).findings if f.code == Code.KAFKA4_CLIENTS_UNKNOWN), None)


def test_a_client_that_kafka_4_refuses_is_named_with_what_it_sends() -> None:
    case = watching(seeing(OLD, broker_2=(replace(OLD, count=3), NAMELESS)))
    found = {f.object: f for f in kafka4(case).findings if f.code == Code.KAFKA4_REFUSES_CLIENTS}
    assert found.keys() == {"librdkafka 0.9.5", "unknown unknown"}
    assert (
        "Kafka 4 refuses Fetch v2 of clients librdkafka 0.9.5, got by broker(s) 0, 2"
        in found["librdkafka 0.9.5"].reason
    )
    assert "clients that do not tell their software" in found["unknown unknown"].reason
    ready = readiness(status_of(case))
    assert (ready.status, ready.reason) == ("False", "ClientsRefused")
    assert "librdkafka" in ready.message
    (client, _) = kafka4(case).clients
    assert (client.requests, client.brokers, client.last_seen_at) == ({"Fetch v2": 10}, (0, 2), NOW)


def test_a_client_is_known_after_its_broker_has_restarted_and_forgotten_it() -> None:
    before = kafka4(watching(seeing(OLD)))
    for seen in (seeing(), seeing(broker_0=Unobserved("metrics of broker 0", "refused"))):
        case = replace(watching(seen, before), now=NOW + timedelta(days=6))
        assert [client.software for client in kafka4(case).clients] == ["librdkafka"]
        assert readiness(status_of(case)).status == "False"
    end = NOW + WATCHED_FOR + timedelta(minutes=5)
    watched = before.model_copy(update={"clients_seen_at": end - NOTED_EVERY})
    later = replace(watching(seeing(), watched), now=end)
    assert kafka4(later).clients == ()
    assert readiness(status_of(later)).status == "True"


@pytest.mark.parametrize(("count", "seen_again"), [(7, False), (8, True), (2, True)])
def test_another_count_is_news(count: int, seen_again: bool) -> None:
    """A smaller one is what a broker counts since its restart, which came after the look before."""
    before = kafka4(watching(seeing(OLD)))
    later = NOW + timedelta(days=1)
    (client,) = kafka4(replace(watching(seeing(replace(OLD, count=count)), before), now=later)).clients
    assert client.last_seen_at == (later if seen_again else NOW)
    assert client.requests == {"Fetch v2": count}
    again = kafka4(replace(watching(seeing(replace(OLD, count=3)), Kafka4Status(clients=(client,))), now=later))
    assert again.clients[0].last_seen_at == later


def test_what_a_broker_counts_after_its_restart_was_sent_after_it() -> None:
    """A job sends two requests a week; brokers restart in between, and none ever counts more than before."""
    weekly = replace(OLD, count=2)
    known = kafka4(watching(seeing(weekly)))
    restarted = NOW + timedelta(days=3)
    known = kafka4(replace(watching(seeing(), known), now=restarted))
    assert known.clients[0].last_seen_at == NOW
    again = NOW + WATCHED_FOR - timedelta(hours=1)
    known = kafka4(replace(watching(seeing(weekly), known), now=again))
    assert known.clients[0].last_seen_at == again
    case = replace(watching(seeing(weekly), known), now=again + timedelta(days=6))
    assert readiness(status_of(case)).status == "False"


def test_news_of_one_broker_is_not_hidden_by_the_restart_of_another() -> None:
    known = kafka4(watching(seeing(replace(OLD, count=100), broker_2=(replace(OLD, count=7),))))
    later = NOW + timedelta(days=1)
    (client,) = kafka4(replace(watching(seeing(broker_2=(replace(OLD, count=8),)), known), now=later)).clients
    assert client.last_seen_at == later
    assert client.requests == {"Fetch v2": 8}


def test_a_page_that_was_silent_for_a_while_is_no_news() -> None:
    known = kafka4(watching(seeing(OLD)))
    silent = seeing(broker_0=Unobserved("metrics of broker 0", "refused"))
    for minutes, seen in ((5, silent), (10, seeing(OLD))):
        known = kafka4(replace(watching(seen, known), now=NOW + timedelta(minutes=minutes)))
    assert known.clients[0].last_seen_at == NOW


def test_a_client_that_stopped_does_not_come_back_because_its_broker_still_counts_it() -> None:
    """The broker runs on for weeks: what it once got stays on its page."""
    known: Kafka4Status | None = None
    hours = [*range(0, 24 * 9, 12)]
    for hour in hours:
        now = NOW + timedelta(hours=hour)
        if known is not None:  # somebody looked every five minutes in between
            known = known.model_copy(update={"clients_seen_at": now - NOTED_EVERY})
        case = replace(watching(seeing(OLD), known), now=now)
        known = kafka4(case)
        is_refused = any(f.code == Code.KAFKA4_REFUSES_CLIENTS for f in known.findings)
        assert is_refused == (timedelta(hours=hour) <= WATCHED_FOR), hour
    assert readiness(status_of(case)).status == "True"
    sends_again = replace(watching(seeing(replace(OLD, count=8)), known), now=now + timedelta(minutes=5))
    assert readiness(status_of(sends_again)).status == "False"


def test_no_client_seen_means_nothing_before_a_week() -> None:
    first = watching(seeing())
    assert kafka4(first).clients_since == NOW
    found = unknown_clients(first)
    assert found is not None
    assert "watched since 2026" in found.reason
    assert "7 days are needed" in found.reason
    ready = readiness(status_of(first))
    assert (ready.status, ready.reason) == ("Unknown", "NotObserved")
    assert found.sentence in ready.message
    after = watching(seeing(), A_WEEK_WATCHED)
    assert unknown_clients(after) is None
    assert kafka4(after).clients_since == WEEK_AGO
    assert readiness(status_of(after)).status == "True"


SILENT = [
    (seeing(broker_1=Unobserved("metrics of broker 1 at 10.0.0.2:9404/metrics", "refused")), "10.0.0.2:9404/metrics"),
    (replace(settings(), old_requests={0: ()}), "metrics of broker 1 were not read"),
    (replace(settings(), old_requests={}), "metrics of broker 0 were not read"),
]


@pytest.mark.parametrize(("seen", "words"), SILENT)
def test_a_broker_that_does_not_tell_leaves_its_clients_unknown(seen: KafkaSettings, words: str) -> None:
    for known in (None, A_WEEK_WATCHED):
        case = watching(seen, known)
        found = unknown_clients(case)
        assert found is not None
        assert words in found.reason
        assert readiness(status_of(case)).status == "Unknown"
        assert kafka4(case).clients_since == (None if known is None else WEEK_AGO)


def test_who_was_not_watched_for_long_is_watched_anew() -> None:
    """A broker that restarts while its page is silent, or while the operator is away, forgets what it got."""
    silent = seeing(broker_1=Unobserved("metrics of broker 1", "refused"))
    known = A_WEEK_WATCHED
    for minutes in range(0, 61, 5):
        now = NOW + timedelta(minutes=minutes)
        known = kafka4(replace(watching(silent, known), now=now))
        assert (known.clients_since, known.clients_seen_at) == (WEEK_AGO, NOW - NOTED_EVERY)
    back = replace(watching(seeing(), known), now=NOW + MOST_UNSEEN)
    assert kafka4(back).clients_since == NOW + MOST_UNSEEN
    found = unknown_clients(back)
    assert found is not None
    assert "7 days are needed" in found.reason
    assert readiness(status_of(back)).status == "Unknown"


@pytest.mark.parametrize(("unseen", "since"), [(MOST_UNSEEN, WEEK_AGO), (MOST_UNSEEN * 2, NOW)])
def test_a_short_time_without_the_pages_does_not_begin_anew(unseen: timedelta, since: datetime) -> None:
    known = A_WEEK_WATCHED.model_copy(update={"clients_seen_at": NOW - unseen})
    assert kafka4(watching(seeing(), known)).clients_since == since


def test_a_clock_that_is_set_back_hides_no_time_without_the_pages() -> None:
    """The last look seems to be yet to come; an absence until then would not be noticed."""
    known = A_WEEK_WATCHED.model_copy(update={"clients_seen_at": NOW + timedelta(minutes=50)})
    known = kafka4(watching(seeing(), known))
    assert (known.clients_since, known.clients_seen_at) == (WEEK_AGO, NOW)
    back = NOW + timedelta(hours=10)
    ahead = A_WEEK_WATCHED.model_copy(update={"clients_seen_at": back + timedelta(minutes=1)})
    known = kafka4(watching(seeing(), ahead))
    assert known.clients_since == NOW
    assert readiness(status_of(watching(seeing(), ahead))).status == "Unknown"


def test_the_time_of_the_last_look_is_written_now_and_then() -> None:
    """At a rest of weeks, a status that changes at each look would be written at each look."""
    times = []
    known = None
    for minutes in range(0, 60, 5):
        known = kafka4(replace(watching(seeing(), known), now=NOW + timedelta(minutes=minutes)))
        times.append(known.clients_seen_at)
    assert len(set(times)) == 6
    assert known is not None
    assert known.clients_since == NOW


def test_without_a_page_the_clients_are_unknown_until_the_user_accepts_that() -> None:
    case = open_gate(Phase.AWAITING_FINALIZATION).observing(kafka4=settings())
    case = case.with_status(kafka4=A_WEEK_WATCHED)
    found = unknown_clients(case)
    assert found is not None
    assert "spec.brokers.metrics does not say" in found.reason
    assert kafka4(case).clients_since is None, "who takes the page away and brings it back begins anew"
    assert readiness(status_of(case)).status == "Unknown"
    finding = AcceptedFinding(code=str(Code.KAFKA4_CLIENTS_UNKNOWN), object="brokers")
    accepted = case.asking(preflight=case.spec.preflight.model_copy(update={"accepted": (finding,)}))
    found = unknown_clients(accepted)
    assert found is not None
    assert found.accepted
    assert readiness(status_of(accepted)).status == "True"


REQUESTS = st.builds(
    OldRequests,
    software=st.sampled_from(["a", "b", "unknown"]),
    version=st.sampled_from(["1", "2"]),
    request=st.sampled_from(["Fetch v2", "Produce v1"]),
    count=st.integers(1, 5),
)


@given(st.lists(st.tuples(st.lists(REQUESTS, max_size=5), st.booleans()), min_size=1, max_size=6))
def test_whatever_brokers_tell_no_client_of_the_last_week_is_lost(looks: list[tuple[list[OldRequests], bool]]) -> None:
    known: Kafka4Status | None = None
    sent: set[tuple[str, str]] = set()
    for number, (requests, silent) in enumerate(looks):
        others = {"broker_1": Unobserved("metrics of broker 1", "refused")} if silent else {}
        case = replace(watching(seeing(*requests, **others), known), now=NOW + timedelta(days=number))
        known = kafka4(case)
        sent |= {(each.software, each.version) for each in requests}
        assert {(client.software, client.version) for client in known.clients} == sent
        assert (readiness(status_of(case)).status == "False") == bool(sent)


def test_the_status_holds_those_that_were_seen_last() -> None:
    many = [OldRequests(f"client-{number}", "1", "Fetch v2", 1) for number in range(MAXIMUM_CLIENTS + 10)]
    before = kafka4(watching(seeing(*many)))
    assert len(before.clients) == MAXIMUM_CLIENTS
    late = OldRequests("the-last", "1", "Fetch v2", 1)
    after = kafka4(replace(watching(seeing(late), before), now=NOW + timedelta(hours=1)))
    assert after.clients[0].software == "the-last"
    assert len(after.clients) == MAXIMUM_CLIENTS


def test_several_clients_are_several_sentences() -> None:
    ready = readiness(status_of(watching(seeing(OLD, NAMELESS))))
    assert ready.message.count("Kafka 4 refuses") == 2
    assert ". Kafka 4 refuses" in ready.message or ". Kafka4RefusesClients" in ready.message
