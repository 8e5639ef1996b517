"""What a container's template gives to Kafka: the kubelet's rules for variables, and Kafka's for ``--override``."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from kraftbridge.builders.template import container_environment, overrides_of
from kraftbridge.models.mounted_files import FilesKind, MountedFiles

OBJECTS = {
    (FilesKind.CONFIG_MAP, "common"): {"KAFKA_A": "common", "KAFKA_B": "common", "ZK": "zk:2181"},
    (FilesKind.CONFIG_MAP, "zone"): {"KAFKA_B": "zone"},
    (FilesKind.SECRET, "secret"): {"KAFKA_SUPER_USERS": base64.b64encode(b"User:admin").decode()},
}


def read(kind: FilesKind, name: str) -> MountedFiles | None:
    data = OBJECTS.get((kind, name))
    return None if data is None else MountedFiles(kind, name, data)


def by(source: str, name: str, key: str) -> dict[str, Any]:
    return {source: {"name": name, "key": key}}


FROM = [
    {"configMapRef": {"name": "common"}},
    {"configMapRef": {"name": "zone"}},
    {"configMapRef": {"name": "absent", "optional": True}},
    {"secretRef": {"name": "secret"}, "prefix": "X_"},
]


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ([], {"KAFKA_A": "common", "KAFKA_B": "zone", "X_KAFKA_SUPER_USERS": "User:admin"}),
        ([{"name": "KAFKA_B", "value": "own"}], {"KAFKA_B": "own"}),
        ([{"name": "KAFKA_B"}], {"KAFKA_B": ""}),
        ([{"name": "KAFKA_C", "value": "$(ZK)/$(KAFKA_B)"}], {"KAFKA_C": "zk:2181/zone"}),
        ([{"name": "KAFKA_C", "value": "$(LATER) $$(ZK)"}, {"name": "LATER", "value": "1"}], {"KAFKA_C": "$(LATER) $(ZK)"}),
        ([{"name": "KAFKA_C", "valueFrom": by("configMapKeyRef", "zone", "KAFKA_B")}], {"KAFKA_C": "zone"}),
        ([{"name": "KAFKA_C", "valueFrom": by("secretKeyRef", "secret", "KAFKA_SUPER_USERS")}], {"KAFKA_C": "User:admin"}),
        ([{"name": "NS", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}], {"NS": "shop"}),
        ([{"name": "KAFKA_A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}], {"KAFKA_A": None}),
        ([{"name": "KAFKA_A", "valueFrom": by("secretKeyRef", "absent", "a")}], {"KAFKA_A": None}),
        ([{"name": "KAFKA_A", "valueFrom": by("configMapKeyRef", "zone", "absent")}], {"KAFKA_A": None}),
    ],
)  # fmt: skip
def test_variables_are_those_that_the_kubelet_gives(env: list[dict[str, Any]], expected: dict[str, str | None]) -> None:
    found = container_environment({"env": env, "envFrom": FROM}, "shop", read)
    for name, value in expected.items():
        assert found.values.get(name) == value
        assert (name in found.unknown) is (value is None)


def test_it_is_known_what_a_value_cannot_replace_and_what_no_message_may_show() -> None:
    env = [
        {"name": "KAFKA_A", "value": "own"},
        {"name": "KAFKA_C", "valueFrom": by("secretKeyRef", "secret", "KAFKA_SUPER_USERS")},
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]
    found = container_environment({"env": env, "envFrom": FROM}, "shop", read)
    assert found.references == {"KAFKA_C", "POD"}
    assert found.secret == {"KAFKA_C", "X_KAFKA_SUPER_USERS"}
    assert found.inherited == {"KAFKA_B", "ZK", "X_KAFKA_SUPER_USERS"}


@pytest.mark.parametrize(
    ("command", "arguments", "expected"),
    [
        (["kafka-server-start.sh"], ["server.properties", "--override", "broker.id=1", "--override", "a=b=c"], {"broker.id": "1", "a": "b=c"}),
        (["sh", "-c"], ["exec kafka-server-start.sh x --override broker.id=${HOSTNAME##*-} \\\n  --override 'a=b c'"], {"broker.id": "${HOSTNAME##*-}", "a": "b c"}),
        ([], ["--override", "a=1", "--override", "a=2"], {"a": "2"}),
        ([], ["--override=a=1"], {"a": "1"}),
        (["sh", "-c", "exec k --override a=1 'unfinished"], [], {"a": "1"}),
        (["sh", "-c", "echo no overrides"], ["--override"], {}),
    ],
)  # fmt: skip
def test_overrides_are_read_from_arguments_and_from_a_shells_line(
    command: list[str], arguments: list[str], expected: dict[str, str]
) -> None:
    assert overrides_of({"command": command, "args": arguments}) == expected
