"""Five-minute certificates on three real voters: the operator's own decision renews and rolls them in time, and restarts all voters at once when nobody did.

Nothing but voters runs: their brokers belong to somebody else by now. Kubernetes is left out: a pod is a process, and the operator's clock is the
API server's.
"""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from tests.integration.test_issued_certificates import DOMAIN, IDENTITY, NODES, Cluster
from tests.integration.test_metadata_version import CLUSTER_ID, seen
from tests.support.fakes import Clock, FakeKubernetes
from tests.support.kafka_processes import kafka_processes, wait_for
from tests.support.observations import open_gate

from kraftbridge.exceptions import MigrationError
from kraftbridge.models.decision import ApplyControllers, Decision, IssueListenerCertificates, RestartPod
from kraftbridge.models.observation import ControllersWorkload, Observation, Unobserved
from kraftbridge.models.phase import ControllerMode, Phase
from kraftbridge.models.status import RenderedControllers, tuned_controllers
from kraftbridge.phases.draft import Migration
from kraftbridge.phases.machine import decide
from kraftbridge.services.certificates import ListenerIssuer
from kraftbridge.storage.kafka_controllers import ControllerClient, read_controller_metrics
from kraftbridge.storage.listener_certificates import ListenerCertificates

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.xdist_group("kafka-processes")]

MINUTES = 5


class Voters(Cluster):
    """Controllers that never had a ZooKeeper, with certificates of five minutes."""

    mode = ControllerMode.FINAL
    with_metrics = True
    cluster_id = CLUSTER_ID

    def issued(self) -> ListenerIssuer:
        issuer = super().issued()
        issuer._days = MINUTES / 1440  # type: ignore[assignment] - in seconds, for this test
        return issuer


class Operator:
    """The operator's mind on these voters."""

    def __init__(self, voters: Voters) -> None:
        self.voters = voters
        fine = open_gate(Phase.COMPLETED)
        listener = fine.spec.controllers.listener.model_copy(update={"generate": True})
        self.spec = fine.spec.model_copy(
            update={"controllers": fine.spec.controllers.model_copy(update={"listener": listener})}
        )
        self.fine = fine
        self.starts = dict.fromkeys(NODES, 0)
        self.revisions = dict.fromkeys(NODES, 0)
        self.revision = 0
        known = fine.status.controllers
        assert known is not None
        rendered = RenderedControllers.of(
            tuned_controllers(self.spec, fine.status), self._credentials(), self.spec.pods, fine.status.broker_settings
        )
        self.status = fine.status.model_copy(
            update={"given_back_at": datetime.now(UTC), "controllers": known.model_copy(update={"rendered": rendered})}
        )
        self.restarts: list[tuple[int, ...]] = []
        """Nodes that restarted together."""

    def _credentials(self) -> dict[str, str]:
        found = self.voters.issued().look(datetime.now(UTC)).controllers
        return {found.name: found.fingerprint}

    def step(self) -> Decision:
        now = datetime.now(UTC)
        decision = decide(Migration(IDENTITY, self.spec, self.status), self._observe(now), now)
        self.status = decision.status
        for action in decision.actions:
            if isinstance(action, IssueListenerCertificates):
                self.voters.issued().issue(datetime.now(UTC))
            elif isinstance(action, ApplyControllers):
                self.revision += 1
        self._restart(tuple(a.node_id for a in decision.actions if isinstance(a, RestartPod)))
        return decision

    def _restart(self, nodes: tuple[int, ...]) -> None:
        if not nodes:
            return
        self.restarts.append(nodes)
        for node in nodes:
            self.voters.stop(f"controller-{node}", signal.SIGKILL if len(nodes) > 1 else signal.SIGTERM)
        for node in nodes:
            self.voters.start_issued_controller(node)
            self.starts[node] += 1
            self.revisions[node] = self.revision

    def _observe(self, now: datetime) -> Observation:
        voters = self.voters
        addresses = {node: (host, voters.controller_ports[node]) for node, host in voters.hosts.items()}
        client = ControllerClient(addresses, voters.client())
        reader = ListenerCertificates(voters.hosts, voters.client())
        workload = self.fine.observation.controllers
        assert isinstance(workload, ControllersWorkload)
        assert workload.stateful_set is not None
        pods = tuple(
            replace(p, uid=f"pod-{p.ordinal}-{self.starts[p.ordinal]}", revision=f"rev-{self.revisions[p.ordinal]}")
            for p in workload.stateful_set.pods
        )
        stateful_set = replace(workload.stateful_set, pods=pods, update_revision=f"rev-{self.revision}")
        metrics = {n: seen(partial(read_controller_metrics, n, "127.0.0.1", port, 2.0)) for n, port in voters.metrics_ports.items()}  # fmt: skip
        shown = {p.ordinal: seen(partial(reader.read, p.ordinal, "127.0.0.1", voters.controller_ports[p.ordinal], p.process, 3.0)) for p in pods}  # fmt: skip
        try:
            return replace(
                self.fine.observation,
                at=now,
                quorum=seen(client.quorum_state),
                metrics=metrics,
                presented=shown,
                issued=voters.issued().look(now),
                server_time=now,
                stateful_sets=(Unobserved("StatefulSet kafka/kafka", "it does not exist"),),
                controllers=replace(
                    workload,
                    stateful_set=stateful_set,
                    credentials=self._credentials(),
                    claims={node: f"pvc-{node}" for node in NODES},
                ),
            )
        finally:
            client.close()

    def until(self, what: str, reached: Callable[[], bool], seconds: float = 200.0) -> None:
        deadline = time.monotonic() + seconds
        while not reached():
            decision = self.step()
            assert time.monotonic() < deadline, f"{what}: {decision.status.message}"
            time.sleep(0.5)

    def renewed(self) -> bool:
        """Return whether every voter presents what the Secret holds, and nothing is under way."""
        secret = self.voters.issued().look(datetime.now(UTC)).controllers
        known = self.status.controllers
        assert known is not None
        same = {record.fingerprint for record in self.status.presented} == {secret.fingerprint}
        return same and len(self.status.presented) == len(NODES) and known.change is None


@pytest.fixture
def operator() -> Iterator[Operator]:
    real = socket.getaddrinfo

    def found(host: Any, *arguments: Any, **options: Any) -> Any:
        return real("127.0.0.1" if str(host).endswith(f".{DOMAIN}") else host, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch, kafka_processes((), NODES, Voters) as voters:
        patch.setattr(socket, "getaddrinfo", found)
        voters.kubernetes = FakeKubernetes(Clock())
        voters.issued().issue(datetime.now(UTC))
        for node in NODES:
            voters.start_issued_controller(node)
        wait_for("the quorum", lambda: voters.agree(voters.client()))
        yield Operator(voters)


@pytest.mark.timeout(900)
def test_certificates_of_five_minutes_are_rolled_in_time_and_replaced_all_at_once_after_their_end(operator: Operator) -> None:  # fmt: skip
    voters = operator.voters
    first = voters.issued().look(datetime.now(UTC)).controllers
    operator.until(
        "renewal", lambda: voters.issued().look(datetime.now(UTC)).controllers.fingerprint != first.fingerprint
    )
    operator.until("roll", operator.renewed)
    assert first.expires_at is not None
    assert datetime.now(UTC) < first.expires_at
    assert [len(nodes) for nodes in operator.restarts] == [1, 1, 1]
    assert sorted(node for nodes in operator.restarts for node in nodes) == list(NODES)
    # Nobody looks until the end.
    second = voters.issued().look(datetime.now(UTC)).controllers
    assert second.expires_at is not None
    time.sleep(max(0.0, (second.expires_at - datetime.now(UTC)).total_seconds()) + 2)
    addresses = {node: (host, voters.controller_ports[node]) for node, host in voters.hosts.items()}
    client = ControllerClient(addresses, voters.client())
    with pytest.raises(MigrationError, match=r"(?i)certificate.*expired"):
        client.quorum_state()
    client.close()
    ended = ListenerCertificates(voters.hosts, voters.client())
    assert ended.read(NODES[0], "127.0.0.1", voters.controller_ports[NODES[0]], "p", 5.0).ends_at == second.expires_at
    operator.restarts.clear()
    began = time.monotonic()
    operator.until("another quorum", lambda: bool(operator.restarts) and operator.renewed() and _is_over(operator))
    assert operator.restarts == [NODES], "all at once, and once"
    assert voters.agree(voters.client())
    print(f"from the operator's return to a quorum: {time.monotonic() - began:.0f} s")
    restart = operator.status.quorum_restart
    assert restart is not None
    assert restart.finished_at is not None
    assert restart.finished_at - restart.began_at < timedelta(minutes=3)


def _is_over(operator: Operator) -> bool:
    current = operator.status.quorum_restart
    return current is not None and current.finished_at is not None
