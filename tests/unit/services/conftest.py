"""The operator's loop on fakes, with a clock that tests move."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, tzinfo
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.fakes import (
    READ_VERBS,
    Clock,
    FaithfulDryStarts,
    FakeKafka,
    FakeKubernetes,
    Killed,
    fake_clients,
    migration_object,
    surroundings,
    user_stateful_set,
)
from tests.support.observations import spec_document

from kraftbridge.config import Settings
from kraftbridge.constants import KIND
from kraftbridge.models import newer
from kraftbridge.models.phase import Phase
from kraftbridge.models.status import MigrationStatus
from kraftbridge.services import answers, reconcile
from kraftbridge.services.act import actuator, verifications
from kraftbridge.services.observe import observer
from kraftbridge.services.observe.workloads import mounted_configuration

POLICY = "kraftbridge-policy"
SETTINGS = Settings(
    operator_image="operator:test", verifier_image="verifier:test", admission_policy=POLICY, dry_start=True
)


@dataclass
class Operator:
    """One cluster, and the operator process that runs now."""

    clock: Clock
    kubernetes: FakeKubernetes
    kafka: FakeKafka
    reconciler: reconcile.Reconciler
    real_dry_starts: bool = False
    """Whether dry starts run their copies as pods; else they end at once."""

    def restart(self) -> None:
        """Let a new process begin, with nothing in memory."""
        self.reconciler.close()
        self.reconciler = _reconciler(self.kubernetes, self.kafka, real_dry_starts=self.real_dry_starts)

    def step(self, seconds: float = 2.0) -> MigrationStatus | None:
        """Let time pass and take one step."""
        self.clock.advance(seconds)
        self.kubernetes.settle()
        return self.reconciler.step("kafka", "demo")

    def walk(self, until: Phase, steps: int = 120) -> MigrationStatus:
        """Take steps until a phase is entered; a process that dies is replaced."""
        for _ in range(steps):
            try:
                self.step()
            except Killed:
                self.restart()
            if self.migration().get("status", {}).get("phase") == until:
                return self.status()
        status = self.status()
        raise AssertionError(f"{until} not reached in {steps} steps: {status.phase}: {status.message}")

    def rest(self, steps: int = 10) -> MigrationStatus:
        """Take further steps; return the status after them."""
        for _ in range(steps):
            self.step()
        return self.status()

    def status(self) -> MigrationStatus:
        """Return the status that the API server has."""
        return newer.known_status(self.migration().get("status") or {})

    def migration(self) -> dict[str, Any]:
        """Return the stored resource."""
        return self.kubernetes.objects[KIND, "kafka", "demo"]

    def configuration(self) -> tuple[str, str, str]:
        """Return the key of the ConfigMap that the controllers' template mounts as their configuration."""
        stateful_set = self.kubernetes.objects["StatefulSet", "kafka", self.controllers()]
        return ("ConfigMap", "kafka", mounted_configuration(stateful_set))

    def controllers(self) -> str:
        """Return the name of the controllers' StatefulSet."""
        controllers = self.status().controllers
        assert controllers is not None
        return controllers.name

    def edit(self, **spec: Any) -> None:
        """Change the spec as a user would."""
        live = self.kubernetes.get("", KIND, "kafka", "demo")
        assert live is not None
        self.kubernetes.merge_patch("", KIND, "kafka", "demo", {"spec": spec})

    def acts(self) -> list[tuple[str, str, str]]:
        """Return every write but those of status."""
        return [c for c in self.kubernetes.calls if c[0] not in READ_VERBS | {"replace_status"}]


def _reconciler(kubernetes: FakeKubernetes, kafka: FakeKafka, *, real_dry_starts: bool = False) -> reconcile.Reconciler:
    return reconcile.Reconciler(
        kubernetes,
        SETTINGS.model_copy(),
        lambda *_: fake_clients(kafka),
        None if real_dry_starts else FaithfulDryStarts(kafka),
    )


@pytest.fixture
def operator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Operator]:
    clock = Clock()

    class MovedDatetime(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return clock.now

    for module in (reconcile, actuator, observer, verifications):
        if hasattr(module, "datetime"):
            monkeypatch.setattr(module, "datetime", MovedDatetime)
    monkeypatch.setattr(answers, "time", SimpleNamespace(monotonic=_monotonic_with(clock)))
    running = new_operator(clock)
    monkeypatch.setattr(observer, "read_controller_metrics", running.kafka.metrics)
    yield running
    running.reconciler.close()


def _monotonic_with(clock: Clock) -> Callable[[], float]:
    """Return a monotonic clock that a test's clock moves, too: an answer ages by the steps, however fast they are."""
    begun_at = clock.now

    def monotonic() -> float:
        return time.monotonic() + (clock.now - begun_at).total_seconds()

    return monotonic


def new_operator(clock: Clock, *, real_dry_starts: bool = False) -> Operator:
    """Return a cluster with a migration that nobody has taken a step for yet."""
    kubernetes = FakeKubernetes(clock)
    kafka = FakeKafka(kubernetes, clock)
    kubernetes.create(user_stateful_set())
    for obj in surroundings():
        kubernetes.create(obj)
    for kind in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"):
        kubernetes.create({"kind": kind, "metadata": {"name": POLICY}})
    document = spec_document(strategy={"addressCacheSeconds": 1, "sessionTimeoutHoldSeconds": 2})
    document["controllers"] = {"listener": {"securityProtocol": "SSL"}}
    kubernetes.create(migration_object(document))
    kubernetes.calls.clear()
    reconciler = _reconciler(kubernetes, kafka, real_dry_starts=real_dry_starts)
    return Operator(clock, kubernetes, kafka, reconciler, real_dry_starts)
