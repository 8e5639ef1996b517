"""The CRD is what the models say, and nothing that a structural schema cannot hold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from pydantic import BaseModel, Field

from kraftbridge.models import crd
from kraftbridge.models.conditions import ConditionType
from kraftbridge.models.phase import FORWARD, LAST_PHASE, Phase, Target
from kraftbridge.models.spec import MigrationSpec

ROOT = Path(__file__).resolve().parents[2]
DEFINITION = crd.custom_resource_definition()
VERSION = DEFINITION["spec"]["versions"][0]
SCHEMA = VERSION["schema"]["openAPIV3Schema"]

MINIMAL_SPEC: dict[str, Any] = {
    "zookeeper": {"connect": "zookeeper:2181/kafka"},
    "brokers": {"statefulSets": [{"name": "kafka"}], "bootstrapServers": "kafka:9092"},
}


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, field in schema.get("properties", {}).items():
        yield from nodes(field, f"{path}.{name}")
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from nodes(schema["additionalProperties"], f"{path}{{}}")


NODES = dict(nodes(SCHEMA))


def is_int_or_string(node: dict[str, Any]) -> bool:
    """Return whether it is a number or a string: such a node has no type (Kubernetes, "Specifying a structural schema")."""
    return node.get("x-kubernetes-int-or-string") is True


def with_defaults(value: Any, schema: dict[str, Any]) -> Any:
    """Fill defaults in as the API server does: those of a field only where its parent exists."""
    if is_int_or_string(schema):
        return value
    if schema["type"] == "array":
        return [with_defaults(item, schema["items"]) for item in value]
    if schema["type"] != "object":
        return value
    result = dict(value)
    for name, field in schema.get("properties", {}).items():
        if name not in result and "default" in field:
            result[name] = field["default"]
        if name in result:
            result[name] = with_defaults(result[name], field)
    return result


def test_the_committed_file_is_what_the_models_generate() -> None:
    assert (ROOT / "crds/kafkamigrations.yaml").read_text() == crd.as_yaml(), "run: make crds"


def test_the_yaml_holds_the_whole_definition() -> None:
    assert yaml.safe_load(crd.as_yaml()) == DEFINITION


def test_the_yaml_has_no_anchors() -> None:
    assert not re.search(r"^\s*(- |\w+: )[&*]", crd.as_yaml(), re.MULTILINE)


@pytest.mark.parametrize(("path", "node"), NODES.items(), ids=NODES)
def test_every_node_is_structural(path: str, node: dict[str, Any]) -> None:
    if is_int_or_string(node):
        assert node.keys() <= {
            "x-kubernetes-int-or-string",
            "description",
            "default",
            "minimum",
            "maximum",
            "maxLength",
            "pattern",
        }
        return
    assert isinstance(node["type"], str)
    assert not {"$ref", "anyOf", "oneOf", "allOf", "const", "title", "nullable", "exclusiveMinimum"} & set(node)
    assert node.get("additionalProperties") not in (True, False)
    if node["type"] == "object" and path != ".metadata":
        kinds = {"properties", "additionalProperties", "x-kubernetes-preserve-unknown-fields"} & set(node)
        assert len(kinds) == 1, f"{path} must be exactly one of a structure, a map or free-form"
    if node["type"] == "array":
        assert "items" in node


@pytest.mark.parametrize("path", [path for path in NODES if path.startswith(".spec")])
def test_every_string_list_and_map_of_the_spec_is_bounded(path: str) -> None:
    node = NODES[path]
    if is_int_or_string(node):
        assert {"maximum", "maxLength"} <= node.keys()
    elif node["type"] == "string":
        assert "enum" in node or "maxLength" in node or "format" in node
    elif node["type"] == "array":
        assert "maxItems" in node
    elif "additionalProperties" in node:
        assert "maxProperties" in node


def test_defaults_of_the_api_server_are_those_of_the_models() -> None:
    filled = with_defaults(MINIMAL_SPEC, NODES[".spec"])
    assert MigrationSpec.model_validate(filled) == MigrationSpec.model_validate(MINIMAL_SPEC)
    assert filled["controllers"]["firstNodeId"] == 3000
    assert filled["target"] == Target.KRAFT_BROKERS


def test_status_is_never_defaulted() -> None:
    assert not [path for path, node in NODES.items() if path.startswith(".status") and "default" in node]


def test_required_fields_are_those_without_a_default() -> None:
    assert NODES[".spec"]["required"] == ["zookeeper", "brokers"]
    assert NODES[".spec.brokers"]["required"] == ["statefulSets", "bootstrapServers"]
    assert SCHEMA["required"] == ["spec"]


def test_closed_sets_are_enums() -> None:
    assert NODES[".spec.target"]["enum"] == list(Target)
    assert NODES[".status.phase"]["enum"] == list(Phase)
    assert NODES[".status.conditions[].type"]["enum"] == list(ConditionType)
    assert NODES[".spec.controllers.replicas"] == {
        "type": "integer",
        "description": "Number of controllers. Three tolerate the loss of one, five the loss of two; use one for tests only.",
        "default": 3,
        "enum": [1, 3, 5],
    }


def test_conditions_are_a_map_by_type() -> None:
    conditions = NODES[".status.conditions"]
    assert conditions["x-kubernetes-list-type"] == "map"
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]
    assert {"type", "status", "reason", "lastTransitionTime"} <= set(conditions["items"]["required"])
    assert NODES[".status.conditions[].lastTransitionTime"]["format"] == "date-time"


def test_keys_of_map_lists_are_required_or_have_a_default() -> None:
    for path, node in NODES.items():
        for key in node.get("x-kubernetes-list-map-keys", ()):
            item = node["items"]
            assert key in item.get("required", ()) or "default" in item["properties"][key], f"{path} key {key}"


def test_every_field_of_the_spec_that_has_a_docstring_shows_it() -> None:
    assert NODES[".spec.zookeeper.connect"]["description"].startswith("Value of the brokers' `zookeeper.connect`:")
    assert "``" not in crd.as_yaml()


def test_names_and_columns() -> None:
    names = DEFINITION["spec"]["names"]
    assert (names["shortNames"], names["categories"]) == (["kmig"], ["kraftbridge"])
    assert DEFINITION["spec"]["scope"] == "Namespaced"
    assert VERSION["subresources"] == {"status": {}}
    columns = VERSION["additionalPrinterColumns"]
    plain = [column["name"] for column in columns if not column.get("priority")]
    assert plain == ["Phase", "Target", "Brokers", "Consistent", "Ready", "Age"]


@pytest.mark.parametrize("column", VERSION["additionalPrinterColumns"], ids=lambda column: column["name"])
def test_every_column_shows_a_field_that_exists(column: dict[str, Any]) -> None:
    path = column["jsonPath"]
    if path == ".metadata.creationTimestamp":
        assert column["type"] == "date"
        return
    if match := re.search(r'\[\?\(@\.type=="(\w+)"\)\]', path):
        assert match[1] in list(ConditionType)
        path = path.replace(match[0], "[]")
    assert path in NODES


@pytest.mark.parametrize("target", list(Target))
def test_rules_know_every_phase_behind_which_a_target_lies(target: Target) -> None:
    beyond = crd._phases_beyond(target) if target is not Target.ZOOKEEPER else []
    if target in (Target.ZOOKEEPER, Target.KRAFT, Target.KRAFT_BROKERS):
        assert beyond == []  # nothing reversible lies beyond; Finalizing and Completed have a rule of their own
    else:
        reached = FORWARD.index(LAST_PHASE[target])
        assert set(beyond) == {p for p in FORWARD if p.reversible and FORWARD.index(p) > reached}


def test_a_deletion_may_roll_back_whatever_the_target_is() -> None:
    """CEL does not see ``metadata.deletionTimestamp``, and the operator does not write ``spec``."""
    (rule,) = [r["rule"] for r in crd.target_rules() if r["rule"].startswith(f"{crd._PHASE} != 'RollingBack'")]
    assert rule.endswith("|| (has(self.spec.onDeletion) && self.spec.onDeletion == 'RollBack')")


def test_a_refused_change_advises_what_each_phase_allows() -> None:
    """There is no rollback from Finalizing on."""
    for rule in crd.fixed_field_rules():
        assert "Before Finalizing, roll back first (spec.target ZooKeeper)" in rule["message"]
        assert "After Completed, delete the KafkaMigration" in rule["message"]
        assert len(rule["message"]) < 300


def test_clean_stays_exactly_while_the_controllers_are_rendered_so() -> None:
    """A roll-out that failed renders them as before. Spec and status are compared as they are, whichever is written."""
    (rule,) = [r["rule"] for r in crd.hand_over_rules()]
    assert rule.endswith("self.status.controllers.rendered.clean) || self.spec.handOver == 'Clean'")
    assert "oldSelf" not in rule


def test_every_rule_has_a_message_and_names_an_existing_field() -> None:
    rules = SCHEMA["x-kubernetes-validations"]
    assert len({rule["rule"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["message"]
        if path := rule.get("fieldPath"):
            assert path in NODES
        for name in re.findall(r"(?:self|oldSelf)((?:\.(?:spec|status)\b)(?:\.[a-zA-Z0-9]+)+)", rule["rule"]):
            assert name in NODES, f"{rule['rule']} reads {name}"


@pytest.mark.parametrize(
    "field",
    [
        "zookeeper.secretName",
        "controllers.image",
        "controllers.resources",
        "controllers.tolerations",
        "strategy",
        "paused",
    ],
)
def test_what_may_need_repair_half_way_stays_changeable(field: str) -> None:
    fixed = [rule["fieldPath"] for rule in crd.fixed_field_rules()]
    assert not [path for path in fixed if f".spec.{field}".startswith(path)]


class _Union(BaseModel):
    value: int | bool | str


class _NumberOrText(BaseModel):
    value: int | str


class _FreeForm(BaseModel):
    value: dict[str, Any]


class _Constant(BaseModel):
    value: Literal["only"] = Field("only")


@pytest.mark.parametrize("model", [_Union, _FreeForm])
def test_what_has_no_structural_schema_is_refused_with_its_place(model: type[BaseModel]) -> None:
    with pytest.raises(crd.UnsupportedSchemaError, match=r"spec\.value"):
        crd.structural_schema(model, "spec", with_defaults=True)


def test_a_number_or_a_string_has_the_type_of_kubernetes() -> None:
    schema = crd.structural_schema(_NumberOrText, "spec", with_defaults=True)
    assert schema["properties"]["value"] == {"x-kubernetes-int-or-string": True}


def test_a_constant_is_an_enum_of_one() -> None:
    schema = crd.structural_schema(_Constant, "spec", with_defaults=True)
    assert schema["properties"]["value"] == {"type": "string", "default": "only", "enum": ["only"]}
