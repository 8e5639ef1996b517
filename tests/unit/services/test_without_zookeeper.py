"""After ``Completed`` nothing of ZooKeeper's is needed: its Secret may go, and it need not answer."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from tests.support.fakes import fake_clients
from tests.unit.services.conftest import Operator

from kraftbridge.exceptions import ObservationError
from kraftbridge.models.conditions import ConditionType, condition
from kraftbridge.models.phase import Phase
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.services import clients

SECRET = "zk-login"


@pytest.fixture
def secured(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> Operator:
    """Return an operator whose migration logs in at ZooKeeper, and which reads the Secrets as in production."""
    monkeypatch.setattr(clients, "resolve_all", lambda names, _seconds: dict.fromkeys(names, ("10.0.0.1",)))
    data = {"username": "kafka", "password": "secret", "scheme": "sasl"}
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    metadata = {"name": SECRET, "namespace": "kafka"}
    operator.kubernetes.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded})
    operator.edit(zookeeper={"secretName": SECRET})
    return operator


def reads_secrets(operator: Operator) -> None:
    """Let the present process open its connections with what the Secrets hold."""

    def opened(*given: Any) -> clients.ClusterClients:
        clients.open_clients(*given).close()
        return fake_clients(operator.kafka)

    operator.reconciler._open_clients = opened


def restart(operator: Operator) -> None:
    operator.restart()
    reads_secrets(operator)


def test_the_secret_of_zookeeper_may_go_after_completed(secured: Operator) -> None:
    reads_secrets(secured)
    secured.walk(Phase.COMPLETED)
    secured.rest()
    del secured.kubernetes.objects["Secret", "kafka", SECRET]
    restart(secured)
    secured.edit(handOver="Release")
    status = secured.rest()
    assert "does not exist" not in status.message
    stalled = condition(status.conditions, ConditionType.STALLED)
    assert stalled is not None
    assert stalled.status == "False"
    assert status.hand_over is not None
    assert not status.hand_over.guarded


def test_before_completed_the_secret_is_needed(secured: Operator) -> None:
    reads_secrets(secured)
    secured.edit(target="KRaftBrokers")
    secured.walk(Phase.AWAITING_FINALIZATION)
    del secured.kubernetes.objects["Secret", "kafka", SECRET]
    restart(secured)
    assert f"Secret kafka/{SECRET} does not exist" in secured.rest(2).message


def test_a_rotated_secret_of_zookeeper_reopens_nothing_after_completed(
    secured: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads_secrets(secured)
    secured.walk(Phase.COMPLETED)
    secured.rest()
    monkeypatch.setattr("kraftbridge.services.reconcile._CREDENTIALS_SECONDS", 0.0)
    opened = secured.reconciler._clients[secured.migration()["metadata"]["uid"]]
    secured.kubernetes.merge_patch("v1", "Secret", "kafka", SECRET, {"data": {"password": "bmV3"}})
    secured.rest(3)
    assert secured.reconciler._clients[secured.migration()["metadata"]["uid"]] is opened


def test_a_completed_migration_has_no_session_at_zookeeper(secured: Operator) -> None:
    spec = MigrationSpec.model_validate(secured.migration()["spec"])
    place = secured.kubernetes, "kafka", "controllers", spec
    opened = clients.open_clients(*place, "cluster.local", "cluster.local", 9093, Phase.COMPLETED.row.needs)
    with pytest.raises(ObservationError, match=r"ZooKeeper: .*does not use it"):
        opened.zookeeper.observe()
    opened.close()
