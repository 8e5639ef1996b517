"""What the controllers' objects are computed from, read from the brokers' StatefulSets."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.fakes import Clock, FakeKubernetes, user_stateful_set
from tests.support.observations import spec

from kraftbridge.builders.controllers import controllers_objects
from kraftbridge.config import Settings
from kraftbridge.models.phase import ControllerMode
from kraftbridge.models.status import MigrationStatus
from kraftbridge.phases.draft import Identity
from kraftbridge.services.facts import Facts

BY_EXPRESSION = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["kafka"]}]}
BY_LABEL = {"matchLabels": {"app": "kafka"}}


@pytest.mark.parametrize("selector", [BY_LABEL, BY_EXPRESSION, BY_LABEL | BY_EXPRESSION])
def test_the_controllers_policy_admits_exactly_the_pods_that_the_brokers_statefulset_selects(
    selector: dict[str, Any],
) -> None:
    kubernetes = FakeKubernetes(Clock())
    stateful_set = user_stateful_set()
    stateful_set["spec"]["selector"] = selector
    kubernetes.create(stateful_set)
    facts = Facts(kubernetes, Settings(operator_image="operator:test"))
    of_quorum = facts.controllers(Identity("kafka", "demo", "uid-1", 1), spec(), MigrationStatus())
    (policy,) = (
        o["spec"]
        for o in controllers_objects(spec(), of_quorum, ControllerMode.MIGRATION, format_allowed=True)
        if o["kind"] == "NetworkPolicy"
    )
    listener, *_ = policy["ingress"]
    assert listener["from"][0] == {"podSelector": selector}
    assert all(peer.get("podSelector") for rule in policy["ingress"] for peer in rule["from"])
