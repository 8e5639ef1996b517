"""Fields go back to the owners that they had, and nothing else moves."""

from __future__ import annotations

import copy
from typing import Any

from kraftbridge.services import ownership

PATH = ("f:spec", "f:template", "f:env", 'k:{"name":"A"}')
OTHER = 'k:{"name":"B"}'


def entry(manager: str, operation: str, *variables: str, **more: Any) -> dict[str, Any]:
    env = {name: {".": {}, "f:name": {}, "f:value": {}} for name in variables}
    fields = {"f:spec": {"f:template": {"f:env": env}}} if env else {"f:status": {}}
    return {"manager": manager, "operation": operation, "apiVersion": "apps/v1", "fieldsV1": fields, **more}


def test_what_was_applied_is_applied_again_and_the_update_is_forgotten() -> None:
    recorded = [entry("helm", "Apply", PATH[-1], OTHER)]
    current = [
        entry("helm", "Apply", OTHER),
        entry("helm", "Update", PATH[-1]),
        entry("kraftbridge", "Apply", PATH[-1]),
    ]
    assert ownership.returned(current, recorded, [PATH]) == recorded


def test_an_owner_that_lost_its_only_field_has_it_again() -> None:
    recorded = [entry("kubectl-edit", "Update", PATH[-1])]
    assert ownership.returned([entry("kraftbridge", "Apply", PATH[-1])], recorded, [PATH]) == recorded


def test_a_field_that_nobody_owned_has_no_owner() -> None:
    assert ownership.returned([entry("unknown", "Update", PATH[-1], OTHER)], [], [PATH]) == [
        entry("unknown", "Update", OTHER)
    ]


def test_other_fields_and_subresources_stay() -> None:
    recorded = [entry("helm", "Apply", PATH[-1]), entry("old", "Update", PATH[-1], subresource="status")]
    current = [
        entry("helm", "Apply", PATH[-1]),
        entry("somebody", "Update", OTHER),
        entry("kube-controller-manager", "Update", subresource="status"),
    ]
    before = copy.deepcopy(current)
    assert ownership.returned(current, recorded, [PATH]) == before == current
