"""What tells the operator that a Secret of the controllers was rotated."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from tests.support.fakes import Clock, FakeKubernetes
from tests.support.observations import spec

from kraftbridge.builders import names
from kraftbridge.config import Settings
from kraftbridge.models.status import MigrationStatus, controllers_name
from kraftbridge.phases.draft import Identity
from kraftbridge.services import facts as facts_module
from kraftbridge.services.facts import Facts


def secret(name: str, annotation: str = "", **values: str) -> dict[str, Any]:
    data = {k: base64.b64encode(v.encode()).decode() for k, v in values.items()}
    metadata = {"name": name, "namespace": "kafka", "annotations": {"seen": annotation}}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


def test_the_fingerprint_of_a_secret_follows_its_data_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts_module, "CREDENTIALS_SECONDS", 0.0)
    kubernetes, identity = FakeKubernetes(Clock()), Identity("kafka", "demo", "uid-1", 1)
    facts = Facts(kubernetes, Settings(operator_image="operator:test"))
    listener = spec().controllers.listener.model_copy(update={"secret_name": "listener"})
    wanted = spec().model_copy(update={"controllers": spec().controllers.model_copy(update={"listener": listener})})

    def seen() -> dict[str, str]:
        return facts.credentials(identity, wanted, MigrationStatus())

    kubernetes.create(secret("listener", password="one"))
    assert seen() == {}, "without a key a fingerprint could be guessed"
    access = names.log_access_secret(controllers_name("demo", "uid-1", 1))
    kubernetes.create(secret(access, token="t" * 32))
    first = seen()
    assert set(first) == {"listener"}
    kubernetes.merge_patch("v1", "Secret", "kafka", "listener", {"metadata": {"annotations": {"seen": "again"}}})
    assert seen() == first
    data = secret("listener", password="two")["data"]
    kubernetes.merge_patch("v1", "Secret", "kafka", "listener", {"data": data})
    assert seen()["listener"] != first["listener"]
    kubernetes.delete("v1", "Secret", "kafka", "listener")
    assert seen() == {}, "a Secret that is being replaced is not a change"
