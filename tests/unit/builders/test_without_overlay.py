"""A template without the overlay is what its owner wrote: in each style and mode, with every part that the overlay brings."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.builders.test_brokers import FACTS
from tests.unit.builders.test_issued_certificate import ISSUED, MODES, OWN, STYLES, spec

from kraftbridge.builders.broker_overlays import ISSUED_DIRECTORY, BrokerFacts, environment, overlay
from kraftbridge.builders.dry_start_pods import _KEPT_OF_CONTAINER, overlaid
from kraftbridge.constants import ANNOTATION_CONFIGURATION
from kraftbridge.copies.templates import Overlaid, sight_of, without_overlay
from kraftbridge.models.mounted_files import FilesKind, MountedFiles
from kraftbridge.models.phase import BrokerMode
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.phases.nodes import templates

Object = dict[str, Any]
ENV = [
    {"name": "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP", "value": "INTERNAL:PLAINTEXT"},
    {"name": "KAFKA_HEAP_OPTS", "value": "-Xmx1g"},
    {"name": "JAVA_TOOL_OPTIONS", "value": "-Da=b"},
]
FILES = MountedFiles(FilesKind.CONFIG_MAP, "kafka-config", {"server.properties": "a=b"})


def owners() -> Object:
    own: Object = copy.deepcopy(OWN)
    own["spec"]["template"]["spec"]["containers"][0]["env"] = copy.deepcopy(ENV)
    own["spec"]["template"]["spec"]["volumes"].append({"name": "kept", "emptyDir": {}})
    return own


def stripped(wanted: MigrationSpec, facts: BrokerFacts, present: Object, mode: BrokerMode) -> Object:
    former = owners()["spec"]["template"]["spec"]
    volumes = overlay(wanted, facts, "kafka", mode)["spec"]["template"]["spec"].get("volumes", [])
    return without_overlay(
        present,
        Overlaid(
            container="kafka",
            variables=environment(wanted, facts, mode).keys(),
            volumes=[volume["name"] for volume in volumes],
            mount=ISSUED_DIRECTORY if facts.issued_secret else "",
            former_container=former["containers"][0],
            former_volumes=former["volumes"],
        ),
    )


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("facts", [FACTS, ISSUED], ids=["", "issued"])
def test_what_the_overlay_brought_is_taken_away_and_nothing_else(
    style: str, mode: BrokerMode, facts: BrokerFacts
) -> None:
    wanted = spec(style)
    facts = replace(facts, files=FILES, variables=tuple(entry["name"] for entry in ENV), java_tool_options="-Da=b")
    present, _ = overlaid(wanted, facts, "demo", owners(), mode)
    present["spec"]["template"]["metadata"]["annotations"] = {ANNOTATION_CONFIGURATION: f"{mode}-hash", "other": "1"}
    assert sight_of(present, {}).digest != sight_of(owners(), {}).digest
    own = stripped(wanted, facts, present, mode)
    assert own["spec"]["template"]["spec"] == owners()["spec"]["template"]["spec"]
    assert own["spec"]["template"]["metadata"]["annotations"] == {"other": "1"}
    assert sight_of(own, {}).digest == sight_of(owners(), {}).digest
    edited = copy.deepcopy(present)
    edited["spec"]["template"]["spec"]["containers"][0]["env"].append({"name": "ANOTHER", "value": "1"})
    edited["spec"]["template"]["spec"]["volumes"].append({"name": "another", "emptyDir": {}})
    differing = sight_of(stripped(wanted, facts, edited, mode), {}).parts.items() ^ sight_of(owners(), {}).parts.items()
    assert {name for name, _ in differing} == {"env of container kafka", "volume another (emptyDir)"}


def test_the_order_of_variables_mounts_and_volumes_does_not_matter_and_that_of_init_containers_does() -> None:
    one, two = owners(), owners()
    pod = two["spec"]["template"]["spec"]
    pod["containers"][0]["env"].reverse()
    pod["volumes"].reverse()
    assert sight_of(one, {}) == sight_of(two, {})
    for own in (one, two):
        own["spec"]["template"]["spec"]["initContainers"] = [{"name": "a"}, {"name": "b"}]
    pod["initContainers"].reverse()
    assert sight_of(one, {}).digest != sight_of(two, {}).digest


def test_content_counts_and_not_the_version_and_no_digest_of_a_secret_alone_is_shown() -> None:
    def seen(kind: str, value: str | None, version: str = "1") -> Any:
        found = None if value is None else {"metadata": {"resourceVersion": version}, "data": {"a": value}}
        return sight_of(owners(), {(kind, "x"): found})

    for kind in ("ConfigMap", "Secret"):
        assert seen(kind, "1", "1").digest == seen(kind, "1", "2").digest
        assert len({seen(kind, value).digest for value in ("1", "2", None)}) == 3
    assert seen("Secret", "1").parts == seen("Secret", "2").parts
    assert seen("Secret", "1").secrets == seen("Secret", "2").secrets == {"Secret x": "1"}


@pytest.mark.parametrize("field", [*sorted({*_KEPT_OF_CONTAINER} - {"name"}), "volumeMounts", "securityContext"])
def test_what_a_copy_keeps_of_a_container_is_seen(field: str) -> None:
    assert templates._is_seen(f"{field} of container kafka", "kafka")
    assert templates._is_seen(f"{field} of init container x", "kafka")
    assert not templates._is_seen(f"{field} of container exporter", "kafka")
    assert not templates._is_seen(f"{field} of sidecar mesh", "kafka")
