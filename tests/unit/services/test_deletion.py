"""A deletion before any broker was changed leaves nothing that runs."""

from __future__ import annotations

import pytest
from tests.unit.services.conftest import Operator

from kraftbridge.constants import KIND
from kraftbridge.models.phase import Phase
from kraftbridge.models.spec import OnDeletion
from kraftbridge.phases.machine import deletion_blocker


def deleted_in_provisioning(operator: Operator, target: str, on_deletion: OnDeletion) -> str:
    """Return the name of the controllers of a migration that is deleted while it has them."""
    operator.edit(target=target, onDeletion=on_deletion)
    operator.walk(Phase.PROVISIONING_QUORUM)
    operator.rest(3)
    name = operator.controllers()
    assert ("StatefulSet", "kafka", name) in operator.kubernetes.objects
    operator.migration()["metadata"]["deletionTimestamp"] = "2026-03-04T06:00:00Z"
    return name


@pytest.mark.parametrize("on_deletion", OnDeletion)
def test_the_quorum_of_a_migration_that_changed_no_broker_goes_with_it(
    operator: Operator, on_deletion: OnDeletion
) -> None:
    name = deleted_in_provisioning(operator, "QuorumReady", on_deletion)
    operator.step()
    assert deletion_blocker(operator.status()), "the finalizer stays until the controllers are gone"
    for _ in range(30):
        if not deletion_blocker(operator.status()):
            break
        operator.step()
    assert deletion_blocker(operator.status()) == ""
    operator.kubernetes.settle()
    left = {(kind, obj) for kind, _, obj in operator.kubernetes.objects if name in obj}
    assert not left & {("StatefulSet", name), *(("Pod", f"{name}-{i}") for i in (3000, 3001, 3002))}
    assert {kind for kind, _ in left} <= {
        "PersistentVolumeClaim",
        "Secret",
        "ConfigMap",
        "Service",
        "NetworkPolicy",
        "PodDisruptionBudget",
    }
    for kind in ("Service", "ConfigMap", "NetworkPolicy", "PodDisruptionBudget"):
        for key, obj in operator.kubernetes.objects.items():
            if key[0] == kind and name in key[2]:
                assert obj["metadata"]["ownerReferences"][0]["name"] == name, "the garbage collection takes it"
    assert set(operator.kafka.broker_modes().values()) == {"zookeeper"}


def test_what_shall_be_finished_goes_on(operator: Operator) -> None:
    name = deleted_in_provisioning(operator, "KRaft", OnDeletion.FINISH)
    operator.walk(Phase.COMPLETED)
    assert ("StatefulSet", "kafka", name) in operator.kubernetes.objects
    assert (KIND, "kafka", "demo") in operator.kubernetes.objects
