"""What the observer reads of certificates: of each process what it presents, of the user's Secret what it holds, and the API server's clock."""

from __future__ import annotations

import base64
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from tests.support.fakes import Clock, FakeKubernetes
from tests.support.observations import IDENTITY, NOW, open_gate

from kraftbridge.exceptions import ObservationError
from kraftbridge.listener import authority
from kraftbridge.models.issued import PresentedCertificate
from kraftbridge.models.observation import ControllersWorkload, Unobserved
from kraftbridge.models.phase import Phase
from kraftbridge.models.spec import ListenerSpec
from kraftbridge.phases.draft import Migration
from kraftbridge.services.certificates import IssuedSecrets, ListenerIssuer, brought_certificate
from kraftbridge.services.clients import ClusterClients
from kraftbridge.services.observe import observer
from kraftbridge.services.observe.observer import Memory, Observer
from kraftbridge.storage.kubernetes import KubernetesTransport

FINE = open_gate(Phase.COMPLETED)
SHOWN = PresentedCertificate("p", "f" * 16, NOW, NOW + timedelta(days=9))


class Reader:
    """Answers for controllers, of which some are silent."""

    def __init__(self) -> None:
        self.silent: set[int] = set()
        self.asked: list[tuple[int, str, int]] = []

    def read(self, node_id: int, address: str, port: int, process: str, _seconds: float) -> PresentedCertificate:
        self.asked.append((node_id, address, port))
        if node_id in self.silent:
            raise ObservationError(f"certificate of controller {node_id}", "connection refused")
        return replace(SHOWN, process=process)


def look(reader: Reader | None, memory: Memory, fine: Any = FINE) -> Any:
    with ThreadPoolExecutor() as pool:
        looking = object.__new__(Observer)
        looking._pool = pool
        clients = cast("ClusterClients", type("Clients", (), {"certificates": reader}))
        return looking._presented(fine.spec, fine.status, fine.observation.controllers, clients, memory)


def test_each_process_is_asked_until_it_answers_and_no_process_is_taken_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(observer, "PRESENTED_EVERY_SECONDS", 0.0)
    reader, memory = Reader(), Memory()
    reader.silent = {3001}
    seen = look(reader, memory)
    assert seen[3000].fingerprint == "f" * 16
    assert isinstance(seen[3001], Unobserved)
    assert {port for _, _, port in reader.asked} == {9093}
    reader.silent = {3000}
    seen = look(reader, memory)
    assert seen[3000].fingerprint == seen[3001].fingerprint == "f" * 16, "it has said so before"
    workload = FINE.observation.controllers
    assert isinstance(workload, ControllersWorkload)
    assert workload.stateful_set is not None
    pods = tuple(replace(p, uid=f"new-{p.ordinal}") for p in workload.stateful_set.pods)
    other = FINE.observing(controllers=replace(workload, stateful_set=replace(workload.stateful_set, pods=pods)))
    assert isinstance(look(reader, memory, other)[3000], Unobserved)
    assert set(memory.presented) == {p.process for p in pods}


def test_nothing_is_asked_of_a_listener_without_tls() -> None:
    plain = FINE.spec.controllers.model_copy(update={"listener": ListenerSpec(security_protocol="PLAINTEXT")})
    reader = Reader()
    assert look(reader, Memory(), FINE.asking(controllers=plain)) == {}
    assert reader.asked == []
    assert isinstance(look(None, Memory()), Unobserved)


def test_the_issued_secrets_tell_certificate_and_key_of_the_authority() -> None:
    kubernetes = FakeKubernetes(Clock(NOW))
    listener = FINE.spec.controllers.listener.model_copy(update={"generate": True})
    spec = FINE.spec.model_copy(update={"controllers": FINE.spec.controllers.model_copy(update={"listener": listener})})
    before = FINE.status.model_copy(update={"controllers": None})
    ListenerIssuer(kubernetes, Migration(IDENTITY, spec, before)).issue(NOW)
    seen = IssuedSecrets(kubernetes, Migration(IDENTITY, spec, FINE.status)).look(NOW)
    assert len(seen.controllers.fingerprint) == len(seen.brokers.fingerprint) == 16
    assert seen.controllers.fingerprint != seen.brokers.fingerprint
    assert seen.controllers.begins_at == NOW - timedelta(minutes=5)
    assert len(seen.authority_key) == 64
    due = NOW + timedelta(days=1500)
    ListenerIssuer(kubernetes, Migration(IDENTITY, spec, FINE.status)).issue(due)
    renewed = IssuedSecrets(kubernetes, Migration(IDENTITY, spec, FINE.status)).look(due)
    assert renewed.controllers.fingerprint != seen.controllers.fingerprint
    assert renewed.authority_key == seen.authority_key


def test_a_certificate_that_the_user_brings_is_judged_with_its_dates() -> None:
    kubernetes = FakeKubernetes(Clock(NOW))
    listener = ListenerSpec(security_protocol="SSL", secret_name="listener")
    spec = FINE.spec.model_copy(update={"controllers": FINE.spec.controllers.model_copy(update={"listener": listener})})
    assert brought_certificate(kubernetes, Migration(IDENTITY, spec, FINE.status), NOW) is None
    signer = {k: v.decode() for k, v in authority.new_authority("theirs", NOW).items()}
    host = "*.demo-kraft-5f0c6a1e.kafka.svc.cluster.local"
    files = authority.issue(signer, authority.Purpose("controllers", (host,)), 30, NOW)
    data = {k: base64.b64encode(v).decode() for k, v in files.items()}
    kubernetes.create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "listener", "namespace": "kafka"}, "data": data})  # fmt: skip
    seen = brought_certificate(kubernetes, Migration(IDENTITY, spec, FINE.status), NOW)
    assert seen is not None
    assert (seen.name, seen.problem, seen.expires_at) == ("listener", "", NOW + timedelta(days=30))
    assert seen.is_pkcs8
    sec1 = "-----BEGIN EC PRIVATE KEY-----"
    other = {**data, "tls.key": base64.b64encode(sec1.encode()).decode()}
    kubernetes.merge_patch("v1", "Secret", "kafka", "listener", {"data": other})
    converted = brought_certificate(kubernetes, Migration(IDENTITY, spec, FINE.status), NOW)
    assert converted is not None
    assert not converted.is_pkcs8
    kubernetes.merge_patch("v1", "Secret", "kafka", "listener", {"data": data})
    late = brought_certificate(kubernetes, Migration(IDENTITY, spec, FINE.status), NOW + timedelta(days=31))
    assert late is not None
    assert "expired at" in late.problem


def test_the_api_server_tells_the_time() -> None:
    transport = object.__new__(KubernetesTransport)
    transport._told = None
    assert transport.server_time() is None
    transport._note_time("Thu, 01 Jan 2026 00:00:07 GMT")
    told = transport.server_time()
    assert told is not None
    assert timedelta(0) <= told - datetime(2026, 1, 1, 0, 0, 7, tzinfo=UTC) < timedelta(seconds=5)
    for nonsense in ("", "yesterday"):
        transport._note_time(nonsense)
    again = transport.server_time()
    assert again is not None
    assert again >= told
