"""Steps of a migration as the operator observes them: the real `Observer` and the real client of the brokers.

The API server, ZooKeeper and the controllers are the tests' fakes in this process, and tell the same in each step.
What they cost is part of a step. `BrokerNow` (the comparison of one broker before and after) and dry starts are not.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from tests.support.fakes import (
    FaithfulDryStarts,
    FakeKafka,
    FakeKubernetes,
    fake_clients,
    migration_object,
    surroundings,
    user_stateful_set,
)
from tests.support.observations import spec_document

from benchmarks.fleet.api import RealClock
from kraftbridge.config import Settings
from kraftbridge.constants import KIND
from kraftbridge.models.observation import NOT_NEEDED, BrokerZnode, Endpoint, Observation, Unobserved
from kraftbridge.models.phase import Phase
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.models.status import BrokerUpgradeStatus, CanaryStatus, ControllersStatus, MigrationStatus
from kraftbridge.phases.draft import Identity, Migration
from kraftbridge.services.clients import ClusterClients
from kraftbridge.services.facts import Facts
from kraftbridge.services.leases import Leases
from kraftbridge.services.observe.observer import Memory, Observer
from kraftbridge.services.observe.reading import ReadOnce
from kraftbridge.storage.kafka_brokers import BrokerClient

THREADS: Final = 24
"""As many as the lane of a healthy migration has (`reconcile`)."""
_HOST: Final = "127.0.0.1"
_LISTENER: Final = "PLAINTEXT"
_NAMESPACE, _NAME = "kafka", "demo"
_WITHOUT_TOPIC_IDS: Final = "2.7-IV2"


@dataclass(frozen=True)
class Scene:
    """A step of one kind."""

    name: str
    phase: Phase
    most: int | None = None
    """``spec.strategy.maxUnavailable``; one broker at a time where it is None."""
    canary: bool = False
    """Whether each broker is asked for the canary's topic."""
    lifts: bool = False
    """Whether each broker is asked for the ids of its topics."""


@dataclass(frozen=True)
class Step:
    """What one step took."""

    seconds: float
    cpu_seconds: float
    unobserved: tuple[str, ...]
    """What the brokers did not tell."""


class Cluster:
    """A migration of the cluster, and the fakes of what is not Kafka's brokers."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = ports
        clock = RealClock()
        self.kubernetes = FakeKubernetes(clock)  # type: ignore[arg-type]
        self.kubernetes.create(user_stateful_set(replicas=len(ports)))
        for obj in surroundings():
            self.kubernetes.create(obj)
        self._document = spec_document(
            brokers={
                "statefulSets": [{"name": "kafka"}],
                "bootstrapServers": f"{_HOST}:{ports[0]}",
                "configStyle": "Env",
            },
            controllers={"listener": {"securityProtocol": "SSL"}},
        )
        self.kubernetes.create(migration_object(self._document))
        self.kubernetes.settle()
        self.kafka = Same(FakeKafka(self.kubernetes, clock), ports)  # type: ignore[arg-type]
        self._identity = Identity(
            _NAMESPACE, _NAME, self.kubernetes.objects[KIND, _NAMESPACE, _NAME]["metadata"]["uid"], 1
        )

    def migration(self, scene: Scene) -> Migration:
        """Return the migration as it is before a step."""
        document = self._document | {"strategy": {} if scene.most is None else {"maxUnavailable": scene.most}}
        now = datetime.now(UTC)
        fields: dict[str, Any] = {"phase": scene.phase}
        if scene.phase is not Phase.PREFLIGHT:
            fields["broker_ids"] = {f"kafka-{broker}": broker for broker in range(len(self._ports))}
        if scene.phase not in (Phase.PREFLIGHT, Phase.UPGRADING_BROKERS):
            fields["controllers"] = ControllersStatus(name="demo-controllers", node_ids=(3000, 3001, 3002))
        if scene.canary:
            fields["canary"] = CanaryStatus(value=42, written_at=now)
        if scene.lifts:
            fields["broker_upgrade"] = BrokerUpgradeStatus(needed=True, protocol=_WITHOUT_TOPIC_IDS, lifted_at=now)
        return Migration(self._identity, MigrationSpec.model_validate(document), MigrationStatus(**fields))

    @contextmanager
    def operator(self) -> Iterator[Operator]:
        """Start an operator that knows nothing yet."""
        address = f"{_HOST}:{self._ports[0]}"
        clients = replace(fake_clients(self.kafka), brokers=BrokerClient(address, {}))  # type: ignore[arg-type]
        settings = Settings(
            operator_image="operator:bench", verifier_image="verifier:bench", cluster_domain="cluster.local"
        )
        reads = ReadOnce(self.kubernetes)
        facts = Facts(reads, settings)
        with ThreadPoolExecutor(THREADS, "observe") as pool:
            dry_starts = FaithfulDryStarts(self.kafka)  # type: ignore[arg-type]
            found = Observer(reads, pool, settings, Leases(self.kubernetes, "bench"), facts, dry_starts)
            yield Operator(found, clients, reads)
            clients.close()


class Same:
    """A fake cluster that computes each answer once. ZooKeeper holds the addresses at which the brokers listen."""

    def __init__(self, kafka: FakeKafka, ports: Sequence[int]) -> None:
        self._kafka = kafka
        znodes = (BrokerZnode(i, (_HOST,), (Endpoint(_LISTENER, _HOST, port),)) for i, port in enumerate(ports))
        self._known: dict[str, Any] = {"observe": replace(kafka.observe(), brokers=tuple(znodes))}

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._kafka, name)
        if not callable(found):
            return found

        def once(*args: Any, **kwargs: Any) -> Any:
            if name not in self._known:
                self._known[name] = found(*args, **kwargs)
            return self._known[name]

        return once


class Operator:
    """Observes one migration."""

    def __init__(self, found: Observer, clients: ClusterClients, reads: ReadOnce) -> None:
        self._observer = found
        self._clients = clients
        self._reads = reads
        self._memory = Memory()

    def step(self, migration: Migration) -> Step:
        """Observe once."""
        gc.collect()
        began, used = time.perf_counter(), time.process_time()
        with self._reads.step():
            seen = self._observer.observe(migration, self._clients, self._memory, datetime.now(UTC))
        return Step(time.perf_counter() - began, time.process_time() - used, tuple(_unobserved(seen)))


def _unobserved(seen: Observation) -> Iterator[str]:
    """Yield what the brokers should have told and did not."""
    asked: dict[str, object] = {
        "cluster": seen.cluster,
        "cluster_by_broker": seen.cluster_by_broker,
        "redundancy": seen.redundancy,
        "assignments": seen.assignments,
        "canary_by_broker": seen.canary_by_broker,
        "controller_by_broker": seen.controller_by_broker,
        "features": seen.features,
        "topic_ids": seen.topic_ids,
        "survey": seen.survey,
    }
    if not isinstance(seen.survey, Unobserved):
        survey = seen.survey
        asked |= {
            "visibility": survey.visibility,
            "settings": survey.brokers,
            "log_dirs": survey.log_dirs,
            "reassigning": survey.reassigning,
            "inter_broker": survey.inter_broker,
        }
    for name, answer in asked.items():
        if isinstance(answer, Unobserved):
            if answer.reason != NOT_NEEDED.reason:
                yield f"{name}: {answer}"
        elif isinstance(answer, Mapping):
            silent = [each for each in answer.values() if isinstance(each, Unobserved)]
            if silent:
                yield f"{name}: {len(silent)} of {len(answer)} brokers: {silent[0]}"
