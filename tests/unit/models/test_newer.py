"""What a newer release wrote is ignored in the spec, kept in the status, and named."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from pydantic import ValidationError
from tests.support.observations import NOW, spec_document

from kraftbridge.models import newer
from kraftbridge.models.conditions import initial_conditions
from kraftbridge.models.phase import Phase
from kraftbridge.models.status import (
    ControllersStatus,
    MigrationStatus,
    PhaseRecord,
    RenderedControllers,
    ZooKeeperHistory,
)


def stored(**changes: Any) -> dict[str, Any]:
    """Return a status as this release stores it."""
    status = MigrationStatus(
        phase=Phase.DUAL_WRITE,
        conditions=initial_conditions(NOW, 3),
        controllers=ControllersStatus(name="demo-kraft", node_ids=(3000,), rendered=RenderedControllers()),
        history=(PhaseRecord(phase=Phase.PREFLIGHT, entered_at=NOW),),
        zookeeper_history=ZooKeeperHistory(attempt=1, seen_at=NOW, cluster_id="abc"),
    )
    return newer.as_stored(status) | changes


def test_what_this_release_wrote_is_read_and_stored_as_it_is() -> None:
    read = newer.read_status(stored())
    assert read.unknown == ()
    assert newer.replaced(read, read.status) == stored()
    assert newer.read_spec(spec_document()).unknown == ()


def test_unknown_fields_of_the_spec_are_left_out_and_named() -> None:
    document = spec_document(newPart={"a": 1})
    document["strategy"] = {"newField": 5, "addressCacheSeconds": 7}
    document["brokers"]["statefulSets"][0]["weight"] = 3
    before = copy.deepcopy(document)
    read = newer.read_spec(document)
    assert set(read.unknown) == {"spec.newPart", "spec.strategy.newField", "spec.brokers.statefulSets.0.weight"}
    assert read.spec.strategy.address_cache_seconds == 7
    assert document == before, "the resource is nobody's to change"


@pytest.mark.parametrize(
    "wrong",
    [{"target": "Kafka5"}, {"strategy": {"newField": 1, "addressCacheSeconds": -1}}, {"zookeeper": {"newField": 1}}],
    ids=["unknown value", "beside an unknown field", "what is required is missing"],
)
def test_an_unknown_value_is_not_guessed(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as refused:
        newer.read_spec({**spec_document(), **wrong})
    assert "extra_forbidden" not in {error["type"] for error in refused.value.errors()}


def odd_status() -> dict[str, Any]:
    """Return a status with what a newer release may add to each kind of part."""
    document = stored(newPart={"kept": [1, {"a": 2}]})
    document["controllers"]["newField"] = "of these controllers"
    document["controllers"]["rendered"]["newField"] = 1
    document["history"][0]["newField"] = "of Preflight"
    document["conditions"][0]["newField"] = "x"
    document["conditions"].append({**document["conditions"][0], "type": "Newer"})
    return document


def test_unknown_fields_of_the_status_are_named_and_kept() -> None:
    document = odd_status()
    before = copy.deepcopy(document)
    read = newer.read_status(document)
    assert set(read.unknown) == {
        "status.newPart",
        "status.controllers.newField",
        "status.controllers.rendered.newField",
        "status.history[0].newField",
        "status.conditions[0].newField",
        "status.conditions[Newer]",
    }
    assert newer.replaced(read, read.status) == before
    assert document == before


def test_an_unknown_field_goes_with_the_object_that_it_describes() -> None:
    read = newer.read_status(odd_status())
    assert read.status.controllers is not None
    body = newer.replaced(
        read,
        read.status.model_copy(
            update={
                "controllers": read.status.controllers.model_copy(update={"node_ids": (3000, 3001)}),
                "history": (*read.status.history, PhaseRecord(phase=Phase.DUAL_WRITE, entered_at=NOW)),
                "message": "changed",
            }
        ),
    )
    assert body["newPart"] == {"kept": [1, {"a": 2}]}
    assert "newField" not in body["controllers"]
    assert body["controllers"]["rendered"]["newField"] == 1
    assert [item.get("newField") for item in body["history"]] == ["of Preflight", None]
    assert body["conditions"][-1]["type"] == "Newer"
    assert newer.read_status(body).status.message == "changed"


def test_another_attempt_begins_without_what_was_kept_of_the_last() -> None:
    read = newer.read_status(odd_status())
    assert "newPart" not in newer.replaced(read, read.status.model_copy(update={"attempt": 2}))


def test_an_unknown_phase_is_not_guessed() -> None:
    with pytest.raises(ValidationError, match="phase"):
        newer.read_status(stored(phase="Newer"))
    kept = newer.refused(stored(phase="Newer", newPart=1), initial_conditions(NOW, 4), "words", 4)
    assert (kept["phase"], kept["newPart"], kept["message"], kept["observedGeneration"]) == ("Newer", 1, "words", 4)
