"""The CustomResourceDefinition of KafkaMigration, made from the pydantic models.

``python -m kraftbridge.models.crd`` writes it as YAML; ``make crds`` puts it into place and a test keeps it equal.

Notes
-----
A structural schema (Kubernetes, "Specifying a structural schema") knows no ``$ref``, ``anyOf`` with null,
``const`` or ``additionalProperties: false``.
Optional fields are not ``nullable`` here: at creation and update the API server drops a null
before it applies defaults (Kubernetes, "Defaulting and Nullable"),
so ``secretName: null`` means the same as leaving it out, and CEL's ``has()`` need not ask twice.
Server-side apply refuses a null by its type.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from typing import Any, Final

import yaml
from pydantic import BaseModel

from kraftbridge.constants import GROUP, KIND, PLURAL, SHORT_NAME, VERSION
from kraftbridge.models.conditions import ConditionType
from kraftbridge.models.phase import FORWARD, LAST_PHASE, Phase, Target
from kraftbridge.models.spec import ConfigStyle, HandOver, MigrationSpec, OnDeletion
from kraftbridge.models.status import MigrationStatus

Schema = dict[str, Any]

HEADER: Final = "# Generated from the models in operator/kraftbridge/models by `make crds`; changes here are lost.\n"

MAXIMUM_NAME_LENGTH: Final = 32
"""Longest name of a migration: objects and label values (63 characters at most) are made from it."""

DEFAULT_MAXIMUM_LENGTH: Final = 4096
"""Bound of a string in ``spec`` without one: the API server estimates the cost of a CEL rule from the bounds."""
DEFAULT_MAXIMUM_ITEMS: Final = 64
DEFAULT_MAXIMUM_PROPERTIES: Final = 256

_KEPT: Final = (
    "type",
    "format",
    "description",
    "default",
    "enum",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
)
"""Keywords of JSON schema that mean the same in a structural schema, in the order in which they are written."""

_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_STRUCTURE: Final = {"$defs", "title", "properties", "required", "items", "additionalProperties"}
"""Keywords that `_Converter` treats itself or leaves out."""

_LIST_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "spec.brokers.statefulSets": ("name",),
    "spec.preflight.accepted": ("code", "object"),
    "status.conditions": ("type",),
}
"""Lists that are maps by these keys: a key may occur once, and server-side apply merges by it."""


class UnsupportedSchemaError(ValueError):
    """A model uses something that a structural schema cannot say."""


def structural_schema(model: type[BaseModel], path: str, *, with_defaults: bool) -> Schema:
    """Return the structural schema of a model.

    Parameters
    ----------
    model
        The pydantic model; its camelCase aliases become the field names.
    path
        Where it stands in the resource: ``spec`` or ``status``.
    with_defaults
        Whether the API server shall fill defaults in. It does for ``spec``, so that a newer operator's defaults never
        change a migration under way; the status holds what the operator wrote and nothing else.

    Raises
    ------
    UnsupportedSchemaError
        If the model uses something that a structural schema cannot say.
    """
    source = model.model_json_schema(by_alias=True)
    return _Converter(source.get("$defs", {}), with_defaults=with_defaults).convert(source, path)


class _Converter:
    """Turns JSON schema as pydantic writes it into structural schema."""

    def __init__(self, definitions: Mapping[str, Schema], *, with_defaults: bool) -> None:
        self._definitions = definitions
        self._with_defaults = with_defaults

    def convert(self, source: Schema, path: str) -> Schema:
        """Return one schema node and all below it."""
        source = self._resolved(source, path)
        unknown = set(source) - set(_KEPT) - _STRUCTURE
        if unknown or not ("type" in source or _INT_OR_STRING in source):
            raise UnsupportedSchemaError(f"{path}: a structural schema cannot say {sorted(unknown) or 'any type'}")
        node: Schema = {key: source[key] for key in _KEPT if key in source}
        if "description" in node:
            node["description"] = _plain_text(node["description"])
        self._set_default(node, source)
        self._bound(node, source, path)
        if keys := _LIST_KEYS.get(path):
            node |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}
        if required := source.get("required"):
            node["required"] = list(required)
        if "items" in source:
            node["items"] = self.convert(source["items"], f"{path}[]")
        values = source.get("additionalProperties")
        if isinstance(values, dict):
            node["additionalProperties"] = self.convert(values, f"{path}{{}}")
        elif values is True and not node.get("x-kubernetes-preserve-unknown-fields"):
            raise UnsupportedSchemaError(f"{path}: free-form objects need x-kubernetes-preserve-unknown-fields")
        if "properties" in source:
            node["properties"] = {
                name: self.convert(field, f"{path}.{name}") for name, field in source["properties"].items()
            }
        return node

    def _resolved(self, source: Schema, path: str) -> Schema:
        """Return the node with its reference inlined and ``X | None`` taken as an optional X."""
        if "anyOf" in source:
            choices = [choice for choice in source["anyOf"] if choice != {"type": "null"}]
            rest = {key: value for key, value in source.items() if key != "anyOf"}
            if [choice.get("type") for choice in choices] == ["integer", "string"]:
                # The bounds of the number hold for a number, and the pattern for a string (JSON schema).
                whole = {key: value for choice in choices for key, value in choice.items() if key != "type"}
                return {**whole, **rest, _INT_OR_STRING: True}
            if len(choices) != 1:
                raise UnsupportedSchemaError(f"{path}: a union of types has no structural schema")
            return self._resolved({**choices[0], **rest}, path)
        if "$ref" in source:
            target = self._definitions[source["$ref"].rpartition("/")[2]]
            rest = {key: value for key, value in source.items() if key != "$ref"}
            return self._resolved({**target, **rest}, path)
        if "const" in source:
            rest = {key: value for key, value in source.items() if key != "const"}
            return {**rest, "enum": [source["const"]]}
        return source

    def _set_default(self, node: Schema, source: Schema) -> None:
        if not self._with_defaults or node.get("default") is None:
            node.pop("default", None)
        elif "properties" in source:
            # An empty object: the API server then fills in the defaults of the fields one by one.
            node["default"] = {}
        elif node["default"] in ([], {}):
            del node["default"]

    def _bound(self, node: Schema, source: Schema, path: str) -> None:
        """Give every string, list and map of ``spec`` a bound."""
        if not path.startswith("spec") or "type" not in node:
            return
        if node["type"] == "string" and "enum" not in node and "format" not in node:
            node.setdefault("maxLength", DEFAULT_MAXIMUM_LENGTH)
        elif node["type"] == "array":
            node.setdefault("maxItems", DEFAULT_MAXIMUM_ITEMS)
        elif node["type"] == "object" and isinstance(source.get("additionalProperties"), dict):
            node.setdefault("maxProperties", DEFAULT_MAXIMUM_PROPERTIES)


def _plain_text(docstring: str) -> str:
    """Return a docstring as one paragraph per line, without reStructuredText's double backticks."""
    paragraphs = re.split(r"\n\s*\n", docstring.strip())
    return "\n".join(" ".join(paragraph.split()) for paragraph in paragraphs).replace("``", "`")


# ------------------------------------------------------------------------------------------------ CEL rules

_OPEN: Final = [phase for phase in Phase if phase.row.is_open]
_PHASE = "(has(self.status) && has(self.status.phase) ? self.status.phase : 'Preflight')"
_OLD_PHASE = "(has(oldSelf.status) && has(oldSelf.status.phase) ? oldSelf.status.phase : 'Preflight')"

_FIXED_FIELDS: Final = (
    "zookeeper.connect",
    "brokers.statefulSets",
    "brokers.container",
    "brokers.configStyle",
    "brokers.envPrefix",
    "brokers.properties",
    "brokers.upgrade",
    "brokers.bootstrapServers",
    "controllers.replicas",
    "controllers.firstNodeId",
    "controllers.listener",
    "controllers.passwordEncoderSecret",
    "controllers.storage",
)
"""Fields that say *which* cluster is migrated, *how* its pods are configured and *what* the quorum is.

The evidence gathered so far, node ids and formatted volumes hang on them. What only says how to log in (names of
Secrets), with which image or how much of it to run, where to schedule, or how to verify may change at any time:
otherwise an image that cannot be pulled or an expired credential would end a migration half-way.
"""

_HOW_TO_CHANGE: Final = (
    f"Before {Phase.FINALIZING}, roll back first (spec.target {Target.ZOOKEEPER}). "
    f"After {Phase.COMPLETED}, delete the KafkaMigration: brokers and controllers run on without it (docs/kraft.md)"
)


def fixed_field_rules() -> list[Schema]:
    """Return the rules that keep the identity of a migration from changing while it is under way."""
    optional = {"brokers.properties", "brokers.upgrade", "controllers.passwordEncoderSecret"}
    open_phases = _cel_list(_OPEN)
    return [
        {
            "rule": f"{_OLD_PHASE} in {open_phases} || {_equal(field, optional=field in optional)}",
            "message": f"spec.{field} cannot change in this phase. {_HOW_TO_CHANGE}",
            "reason": "FieldValueForbidden",
            "fieldPath": f".spec.{field}",
        }
        for field in _FIXED_FIELDS
    ]


def _equal(field: str, *, optional: bool) -> str:
    new = f"self.spec.{field}"
    old = f"oldSelf.spec.{field}"
    if optional:
        return f"(has({new}) == has({old}) && (!has({new}) || {new} == {old}))"
    return f"{new} == {old}"


def channel_rules() -> list[Schema]:
    """Return the rule that keeps the channel which preflight has found for ``configStyle: Auto``.

    An operator of an earlier release knows no channel, and would remove it with the first status that it writes.
    """
    new = "self.status.channel"
    old = "oldSelf.status.channel"
    open_phases = _cel_list(_OPEN)
    same = " && ".join(
        f"has({new}.{field}) == has({old}.{field}) && (!has({new}.{field}) || {new}.{field} == {old}.{field})"
        for field in ("configStyle", "envPrefix", "volume", "key")
    )
    return [
        {
            "rule": f"{_OLD_PHASE} in {open_phases} || self.spec.brokers.configStyle != '{ConfigStyle.AUTO}' || "
            f"!has(oldSelf.status) || !has({old}) || "
            f"(has(self.status) && has({new}) && {same})",
            "message": (
                "status.channel cannot change while a migration is under way: "
                "spec.brokers.configStyle is Auto, and nothing else says how the brokers are configured"
            ),
            "reason": "FieldValueForbidden",
            "fieldPath": ".status.channel",
        }
    ]


def target_rules() -> list[Schema]:
    """Return the rules between ``spec.target`` and ``status.phase``.

    They are evaluated at updates of spec and of status alike, so they also hold when both are written at the same
    moment: the API server refuses the operator's entry into ``Finalizing`` once the user has
    withdrawn ``target: KRaft``, and vice versa.
    """
    final = _cel_list([phase for phase in Phase if not phase.reversible and not _leads_to_kafka4(phase)])
    back = Target.ZOOKEEPER
    forward = Target.KRAFT
    behind = " || ".join(
        f"self.spec.target == '{target}' && {_PHASE} in {_cel_list(_phases_beyond(target))}"
        for target in Target
        if target is not back and _phases_beyond(target)
    )
    deletion_rolls_back = f"(has(self.spec.onDeletion) && self.spec.onDeletion == '{OnDeletion.ROLL_BACK}')"
    rules = {
        f"!({_PHASE} in {final}) || self.spec.target == '{forward}'": (
            f"finalization has begun and cannot be undone: spec.target must stay {forward}"
        ),
        f"!({behind})": (
            f"spec.target lies behind the phase that was reached: the only way back is spec.target {back}"
        ),
        # A deletion with this word leads there whatever the target is (`phases.guards.effective_spec`).
        f"{_PHASE} != '{Phase.ROLLING_BACK}' || self.spec.target == '{back}' || {deletion_rolls_back}": (
            f"the cluster is being rolled back: spec.target must stay {back} until the phase is {Phase.ROLLED_BACK}"
        ),
    }
    return [
        {"rule": rule, "message": message, "reason": "FieldValueForbidden", "fieldPath": ".spec.target"}
        for rule, message in rules.items()
    ]


def _leads_to_kafka4(phase: Phase) -> bool:
    """Return whether ``spec.target`` may be Kafka4 in a phase."""
    return phase is Phase.COMPLETED or (phase.row.on_kafka4 and phase.row.forward)


def kafka4_rules() -> list[Schema]:
    """Return the rules of the way on to Kafka 4: from ``Completed`` on, back until it is final, with fixed images."""
    on_the_way = _cel_list([phase for phase in Phase if _leads_to_kafka4(phase)])
    started = _cel_list([phase for phase in Phase if phase.row.on_kafka4])
    kafka4 = Target.KAFKA4
    kraft = Target.KRAFT
    ended = "has(self.status) && has(self.status.handOver) && has(self.status.handOver.endedAt)"
    guarded = f"self.spec.handOver == '{HandOver.GUARD}'"
    final = "has(self.status) && has(self.status.kafka4Leg) && has(self.status.kafka4Leg.finalAt)"
    rules = {
        f"!({_PHASE} in {on_the_way}) || self.spec.target in ['{kraft}', '{kafka4}']": (
            f"the migration is complete: spec.target must be {kraft} or {kafka4}"
        ),
        f"self.spec.target != '{kafka4}' || {_PHASE} in {on_the_way}": (
            f"spec.target {kafka4} is possible once the phase is {Phase.COMPLETED}"
        ),
        f"self.spec.target != '{kafka4}' || has(self.spec.kafka4)": (
            f"spec.target {kafka4} needs spec.kafka4 with an image"
        ),
        f"!({final}) || self.spec.target == '{kafka4}'": (
            f"there is no way back from Kafka 4 any more (condition Kafka4Leavable): spec.target must stay {kafka4}"
        ),
        # A change of the target alone is judged: a hand-over that ends later is the operator's own record.
        f"self.spec.target != '{kafka4}' || oldSelf.spec.target == '{kafka4}' || {_PHASE} in {started} || "
        f"({guarded} && !({ended}))": (
            f"spec.target {kafka4} is refused once brokers or controllers are handed over (spec.handOver, "
            "status.handOver.endedAt)"
        ),
    }
    found = [
        {"rule": rule, "message": message, "reason": "FieldValueForbidden", "fieldPath": ".spec.target"}
        for rule, message in rules.items()
    ]
    same = " && ".join(
        f"(has(self.spec.kafka4.{field}) == has(oldSelf.spec.kafka4.{field}) && "
        f"(!has(self.spec.kafka4.{field}) || self.spec.kafka4.{field} == oldSelf.spec.kafka4.{field}))"
        for field in ("image", "controllersImage")
    )
    images = {
        "rule": f"!({_OLD_PHASE} in {started}) || (has(self.spec.kafka4) && has(oldSelf.spec.kafka4) && {same})",
        "message": f"the images of spec.kafka4 cannot change in this phase: set spec.target to {kraft} first",
        "reason": "FieldValueForbidden",
        "fieldPath": ".spec.kafka4",
    }
    return [*found, images]


def hand_over_rules() -> list[Schema]:
    """Return the rule that nobody takes ``Clean`` back once the controllers are rendered without the operator's image.

    A roll-out that failed renders them as before, so then the word can be taken back.
    """
    rendered = "self.status.controllers.rendered"
    has_all = f"has(self.status) && has(self.status.controllers) && has({rendered}) && has({rendered}.clean)"
    return [
        {
            "rule": f"!({has_all} && {rendered}.clean) || self.spec.handOver == '{HandOver.CLEAN}'",
            "message": (
                f"spec.handOver must stay {HandOver.CLEAN}: "
                "the controllers run without the operator's image, and it does not come back"
            ),
            "reason": "FieldValueForbidden",
            "fieldPath": ".spec.handOver",
        }
    ]


def _phases_beyond(target: Target) -> list[Phase]:
    """Return the reversible phases behind which the target lies; the irreversible ones have a rule of their own."""
    return [phase for phase in FORWARD[FORWARD.index(LAST_PHASE[target]) + 1 :] if phase.reversible]


def _cel_list(values: list[Phase]) -> str:
    return "[" + ", ".join(f"'{value}'" for value in values) + "]"


def name_rules() -> list[Schema]:
    """Return the rule for the resource's name: Services (RFC 1035) and labels (63 characters) are named after it."""
    pattern = "^[a-z]([-a-z0-9]*[a-z0-9])?$"
    return [
        {
            "rule": f"size(self.metadata.name) <= {MAXIMUM_NAME_LENGTH} && self.metadata.name.matches('{pattern}')",
            "message": f"metadata.name must be a DNS label of at most {MAXIMUM_NAME_LENGTH} characters that begins "
            "with a letter: Services and labels are named after it",
        }
    ]


def _properties_rule() -> Schema:
    """Return the rule that the model states too (`BrokersSpec`), so that the API server says it first."""
    return {
        "rule": f"self.configStyle != '{ConfigStyle.PROPERTIES}' || has(self.properties)",
        "message": "brokers.configStyle Properties needs brokers.properties (volume, key)",
        "reason": "FieldValueRequired",
        "fieldPath": ".properties",
    }


def _listener_rules() -> list[Schema]:
    """Return the rules that the model states too (`ListenerSpec`)."""
    # The API server judges the default, an empty object, before it fills in the defaults of its fields.
    asked = "(has(self.generate) && self.generate)"
    needed = "controllers.listener.generate needs controllers.listener.securityProtocol SSL or SASL_SSL"
    return [
        {
            "rule": f"!{asked} || self.securityProtocol in ['SSL', 'SASL_SSL']",
            "message": needed,
            "reason": "FieldValueInvalid",
            "fieldPath": ".securityProtocol",
        },
    ]


def _reformat_rule() -> Schema:
    """Return the rule that only a voter may format a volume."""
    first, id_ = "self.firstNodeId", "self.reformat.id"
    return {
        "rule": f"!has(self.reformat) || ({id_} >= {first} && {id_} < {first} + self.replicas)",
        "message": "controllers.reformat.id is no voter: the voters have firstNodeId and the ids that follow",
        "reason": "FieldValueInvalid",
        "fieldPath": ".reformat.id",
    }


# ------------------------------------------------------------------------------------------------ the definition


def _condition_column(name: str, condition: ConditionType, *, field: str = "status", priority: int = 0) -> Schema:
    return _column(name, f'.status.conditions[?(@.type=="{condition}")].{field}', priority=priority)


def _column(name: str, path: str, *, kind: str = "string", priority: int = 0, description: str = "") -> Schema:
    column: Schema = {"name": name, "type": kind, "jsonPath": path}
    if priority:
        column["priority"] = priority
    if description:
        column["description"] = description
    return column


def printer_columns() -> list[Schema]:
    """Return the columns of ``kubectl get kmig``; those of priority 1 appear with ``-o wide``."""
    return [
        _column("Phase", ".status.phase"),
        _column("Target", ".spec.target"),
        _column(
            "Brokers", ".status.brokers.summary", description="Brokers that have reached the mode of the last roll"
        ),
        _condition_column("Consistent", ConditionType.METADATA_CONSISTENT),
        _condition_column("Ready", ConditionType.READY),
        _column("Age", ".metadata.creationTimestamp", kind="date"),
        _column("Message", ".status.message", priority=1, description="What is being waited for"),
        _condition_column("Rollback", ConditionType.ROLLBACK_POSSIBLE, priority=1),
        _condition_column("Reason", ConditionType.READY, field="reason", priority=1),
        _column("Rehearsal", ".status.rehearsal.verdict", priority=1, description="Verdict of the last rehearsal"),
        _column(
            "Metadata-Version",
            ".status.metadataVersion.current",
            priority=1,
            description="What the cluster has finalized, whatever spec asks for",
        ),
    ]


def custom_resource_definition() -> Schema:
    """Return the whole CustomResourceDefinition."""
    spec = structural_schema(MigrationSpec, "spec", with_defaults=True)
    spec["properties"]["brokers"]["x-kubernetes-validations"] = [_properties_rule()]
    spec["properties"]["controllers"]["x-kubernetes-validations"] = [_reformat_rule()]
    spec["properties"]["controllers"]["properties"]["listener"]["x-kubernetes-validations"] = _listener_rules()
    schema: Schema = {
        "type": "object",
        "description": "Takes one ZooKeeper-based Kafka cluster to KRaft: "
        "spec.target states how far, the operator walks there phase by phase.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": structural_schema(MigrationStatus, "status", with_defaults=False),
        },
        "x-kubernetes-validations": [
            *name_rules(),
            *target_rules(),
            *fixed_field_rules(),
            *channel_rules(),
            *hand_over_rules(),
            *kafka4_rules(),
        ],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": [SHORT_NAME],
                "categories": ["kraftbridge"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": printer_columns(),
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def as_yaml() -> str:
    """Return the definition as YAML, the content of ``crds/kafkamigrations.yaml``."""
    fresh = json.loads(json.dumps(custom_resource_definition()))  # no object twice, hence no YAML anchors
    return HEADER + str(yaml.safe_dump(fresh, sort_keys=False, allow_unicode=True, width=130))


if __name__ == "__main__":
    sys.stdout.write(as_yaml())
