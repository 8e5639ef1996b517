"""The plugin's commands, as typed, against an API server in this process."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support.fakes import Clock, FakeKubernetes, migration_object, user_stateful_set
from tests.support.observations import spec_document
from typer.testing import CliRunner, Result

from kraftbridge.plugin import main as plugin

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def kubernetes() -> FakeKubernetes:
    store = FakeKubernetes(Clock(NOW))
    store.served |= {
        "StatefulSet", "ConfigMap", "Service", "Pod", "Event", "Secret", "PersistentVolumeClaim", "NetworkPolicy",
        "PodDisruptionBudget", "Job",
    }  # fmt: skip
    store.create(user_stateful_set())
    store.settle()
    return store


@pytest.fixture
def migrate(kubernetes: FakeKubernetes) -> Callable[..., None]:
    """Return a function that makes the migration ``demo`` with a status."""

    def make(status: dict[str, Any] | None = None, name: str = "demo", **spec: Any) -> None:
        kubernetes.create(migration_object(spec_document(**spec), name=name))
        found = kubernetes.objects["KafkaMigration", "kafka", name]
        found["status"] = status or {}

    return make


@pytest.fixture
def run(kubernetes: FakeKubernetes, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Return a function that types a command."""
    monkeypatch.setattr(plugin, "_STEP_SECONDS", 0.0)
    monkeypatch.setattr(plugin, "connect", lambda _kubeconfig, _context: kubernetes)

    def typed(*arguments: str, answer: str | None = None) -> Result:
        return CliRunner(env={"COLUMNS": "200"}).invoke(plugin.app, [*arguments, "-n", "kafka"], input=answer)

    return typed


@pytest.fixture
def spec_of(kubernetes: FakeKubernetes) -> Callable[[], dict[str, Any]]:
    """Return a function to the migration's spec as it is now."""
    return lambda: dict(kubernetes.objects["KafkaMigration", "kafka", "demo"]["spec"])
