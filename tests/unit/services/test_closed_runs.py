"""A verification's pods are closed before the first one exists."""

from __future__ import annotations

import base64

import pytest
from tests.unit.services.conftest import Operator

from kraftbridge.builders import names
from kraftbridge.models.phase import Phase


@pytest.mark.parametrize("executors", [0, 1])
def test_policy_and_secret_are_there_before_the_application(operator: Operator, executors: int) -> None:
    if executors:
        operator.edit(verification={"executors": executors})
    created: list[tuple[str, str]] = []
    operator.kubernetes.before_call = lambda verb, kind, name: (
        created.append((kind, name)) if verb == "create" else None
    )
    operator.walk(Phase.DUAL_WRITE, 300)
    secret = names.spark_secret("demo", operator.migration()["metadata"]["uid"])
    objects = operator.kubernetes.objects
    runs = [name for kind, name in created if kind == "SparkApplication"]
    assert runs
    for run in runs:
        own = names.verification_config_map(run)
        order = [("ConfigMap", own), ("NetworkPolicy", own), ("SparkApplication", run)]
        assert sorted(order, key=created.index) == order
        (owner,) = objects["NetworkPolicy", "kafka", own]["metadata"]["ownerReferences"]
        assert owner["kind"] == "ConfigMap"
    assert [name for kind, name in created if kind == "Secret" and name == secret][:1] == [secret] * bool(executors)
    if executors:
        assert created.index(("Secret", secret)) < created.index(("SparkApplication", runs[0]))
        kept = objects["Secret", "kafka", secret]
        value = kept.get("stringData", {}).get("secret") or base64.b64decode(kept["data"]["secret"]).decode()
        assert len(value) >= 64
        others = {key: obj for key, obj in objects.items() if key[0] != "Secret"}
        assert value not in str(others), "in no other object"
