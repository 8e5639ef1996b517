"""What tells the operator that a Secret of the controllers was rotated."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from tests.support.fakes import Clock, FakeKubernetes
from tests.support.observations import spec

from kraftbridge.builders import names
from kraftbridge.config import Settings
from kraftbridge.models.status import ControllersStatus, MigrationStatus, controllers_name
from kraftbridge.phases.draft import Identity, Migration
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

    status = MigrationStatus()

    def seen() -> dict[str, str]:
        return {name: secret.fingerprint for name, secret in facts.secrets(Migration(identity, wanted, status)).items()}

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


def test_a_lost_key_changes_no_fingerprint_of_a_secret_that_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody deletes the Secrets of the log servers, and another token takes their place."""
    monkeypatch.setattr(facts_module, "CREDENTIALS_SECONDS", 0.0)
    kubernetes, identity = FakeKubernetes(Clock()), Identity("kafka", "demo", "uid-1", 1)
    facts = Facts(kubernetes, Settings(operator_image="operator:test"))
    listener = spec().controllers.listener.model_copy(update={"secret_name": "listener"})
    wanted = spec().model_copy(update={"controllers": spec().controllers.model_copy(update={"listener": listener})})
    name = controllers_name("demo", "uid-1", 1)
    kubernetes.create(secret("listener", password="one"))
    kubernetes.create(secret(names.log_access_secret(name), token="t" * 32))
    first = facts.secrets(Migration(identity, wanted, MigrationStatus()))
    status = MigrationStatus(controllers=ControllersStatus(name=name, node_ids=(3000,), secrets=first), attempt=1)
    kubernetes.delete("v1", "Secret", "kafka", names.log_access_secret(name))
    kubernetes.create(secret(names.log_access_secret(name), token="u" * 32))
    assert facts.secrets(Migration(identity, wanted, MigrationStatus())) != first, "the key is another one"
    assert facts.secrets(Migration(identity, wanted, status)) == first
    kubernetes.merge_patch("v1", "Secret", "kafka", "listener", {"data": secret("listener", password="two")["data"]})
    assert facts.secrets(Migration(identity, wanted, status))["listener"].fingerprint != first["listener"].fingerprint
