"""How the controllers are stopped: nothing of theirs is left, and no volume goes unasked."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.fakes import Clock, FakeKubernetes

from kraftbridge.exceptions import ActionError
from kraftbridge.models.decision import StopControllers
from kraftbridge.services.act.removal import stop_controllers

NAME = "demo-kraft"
UID = "uid-sts"
KEEP = StopControllers(NAME, (3000,))
REMOVE = StopControllers(NAME, (3000,), volumes=True)


def put(kubernetes: FakeKubernetes, api_version: str, kind: str, name: str, owner: str = "", **fields: Any) -> None:
    meta: dict[str, Any] = {"name": name, "namespace": "kafka", "uid": f"uid-{kind}-{name}", "labels": {"app": NAME}}
    if owner:
        meta["ownerReferences"] = [{"uid": owner}]
    obj = {"apiVersion": api_version, "kind": kind, "metadata": meta, **fields}
    kubernetes.objects[kind, "kafka", name] = obj


@pytest.fixture
def kubernetes(monkeypatch: pytest.MonkeyPatch) -> FakeKubernetes:
    fake = FakeKubernetes(Clock())
    monkeypatch.setattr(fake, "_settle_stateful_set", lambda *_: None)  # no controller acts here
    put(fake, "apps/v1", "StatefulSet", NAME, spec={"selector": {"matchLabels": {"app": NAME}}})
    fake.objects["StatefulSet", "kafka", NAME]["metadata"]["uid"] = UID
    put(fake, "v1", "Service", NAME)
    put(fake, "v1", "Secret", f"{NAME}-log-server")
    put(fake, "v1", "PersistentVolumeClaim", f"data-{NAME}-3000")
    put(fake, "v1", "Pod", f"{NAME}-3000", UID)
    put(fake, "v1", "Pod", "stranger", "uid-of-another")
    return fake


def deleted(kubernetes: FakeKubernetes) -> list[str]:
    return [call[2] for call in kubernetes.calls if call[0] == "delete"]


def present(kubernetes: FakeKubernetes) -> set[str]:
    return {f"{kind} {name}" for kind, _, name in kubernetes.objects}


CLAIM = f"PersistentVolumeClaim data-{NAME}-3000"


def test_what_belongs_to_the_statefulset_goes_with_it(kubernetes: FakeKubernetes) -> None:
    stop_controllers(kubernetes, "kafka", KEEP)
    assert present(kubernetes) == {CLAIM, "Pod stranger"}, "the volume is an archive"


def test_pods_that_are_still_there_are_stopped_at_once(kubernetes: FakeKubernetes) -> None:
    kubernetes.objects["StatefulSet", "kafka", NAME]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    stop_controllers(kubernetes, "kafka", KEEP)
    assert deleted(kubernetes) == [f"{NAME}-3000"]


def test_volumes_go_only_once_they_are_the_statefulsets(kubernetes: FakeKubernetes) -> None:
    with pytest.raises(ActionError, match=f"data-{NAME}-3000"):
        stop_controllers(kubernetes, "kafka", REMOVE)
    assert deleted(kubernetes) == []
    stateful_set = kubernetes.objects["StatefulSet", "kafka", NAME]
    assert stateful_set["spec"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] == "Delete"
    put(kubernetes, "v1", "PersistentVolumeClaim", f"data-{NAME}-3000", UID)
    stop_controllers(kubernetes, "kafka", REMOVE)
    assert present(kubernetes) == {"Pod stranger"}


def test_stopping_what_is_gone_is_no_error(kubernetes: FakeKubernetes) -> None:
    del kubernetes.objects["StatefulSet", "kafka", NAME]
    del kubernetes.objects["Pod", "kafka", f"{NAME}-3000"]
    stop_controllers(kubernetes, "kafka", KEEP)
    assert deleted(kubernetes) == []


def test_pods_that_a_deleted_statefulset_left_behind_are_stopped(kubernetes: FakeKubernetes) -> None:
    """``kubectl delete sts --cascade=orphan``: nothing owns them, and they serve on."""
    del kubernetes.objects["StatefulSet", "kafka", NAME]
    kubernetes.objects["Pod", "kafka", f"{NAME}-3000"]["metadata"].pop("ownerReferences")
    stop_controllers(kubernetes, "kafka", KEEP)
    assert deleted(kubernetes) == [f"{NAME}-3000"]
