"""Brokers that are brought to another image: overlays, what a rollback restores before and after the lift, copies, manifests."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import yaml
from tests.support.fakes import user_stateful_set
from tests.support.observations import NOW
from tests.unit.builders.test_brokers import FACTS, environment_in, migration_spec

from kraftbridge.builders import broker_overlays as brokers
from kraftbridge.builders import hand_over
from kraftbridge.builders.broker_overlays import Upgrade
from kraftbridge.builders.dry_start_pods import overlaid
from kraftbridge.copies.templates import Overlaid, without_overlay
from kraftbridge.models.mounted_files import FilesKind, MountedFiles
from kraftbridge.models.phase import BrokerMode
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.models.status import BrokerUpgradeStatus, MigrationStatus
from kraftbridge.outside.json_text import parsed_json
from kraftbridge.outside.properties import parse_properties
from kraftbridge.phases.draft import Identity
from kraftbridge.services import original_secrets, original_state
from kraftbridge.services.observe import workloads

IMAGE = "registry.example.com/kafka:3.9.2"
UPGRADE = Upgrade(IMAGE, {"KAFKA_LOG4J_OPTS": "-Dnew", "KAFKA_NUM_IO_THREADS": "9"}, "2.8-IV1", ("prepare",))
UPGRADED = replace(FACTS, upgrade=UPGRADE)
PROTOCOL = "inter.broker.protocol.version"
VARIABLE = "KAFKA_INTER_BROKER_PROTOCOL_VERSION"
ALL = [BrokerMode.UPGRADED, BrokerMode.MIGRATION, BrokerMode.KRAFT]


@pytest.mark.parametrize("mode", ALL)
def test_every_mode_has_the_image_and_only_the_first_one_the_former_protocol(mode: BrokerMode) -> None:
    built = brokers.overlay(migration_spec(), UPGRADED, "kafka", mode)
    pod = built["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == IMAGE
    assert pod["initContainers"] == [{"name": "prepare", "image": IMAGE}]
    env = environment_in(built)
    assert env["KAFKA_LOG4J_OPTS"] == "-Dnew"
    assert env[VARIABLE] == ("2.8-IV1" if mode is BrokerMode.UPGRADED else "3.9")
    if mode is BrokerMode.UPGRADED:
        assert env.keys() == {"JAVA_TOOL_OPTIONS", "KAFKA_LOG4J_OPTS", "KAFKA_NUM_IO_THREADS", VARIABLE}
    settings = brokers.overlaid_settings(migration_spec(), UPGRADED, mode)
    assert (settings["num.io.threads"], settings[PROTOCOL]) == ("9", env[VARIABLE])


def test_a_protocol_without_topic_ids_is_lifted_in_a_mode_of_its_own() -> None:
    old = replace(FACTS, upgrade=replace(UPGRADE, protocol="2.4-IV1", lifts_alone=True))
    assert original_state.modes_of(old) == (BrokerMode.UPGRADED, BrokerMode.LIFTED, *ALL[1:])
    assert original_state.modes_of(UPGRADED) == tuple(ALL)
    for spec in (migration_spec(), migration_spec("Properties")):
        assert brokers.broker_settings(spec, old, BrokerMode.UPGRADED) == {PROTOCOL: "2.4-IV1"}
        assert brokers.broker_settings(spec, old, BrokerMode.LIFTED) == {PROTOCOL: "3.9"}
    template = brokers.overlay(migration_spec(), old, "kafka", BrokerMode.LIFTED)["spec"]["template"]
    assert template["spec"]["containers"][0]["image"] == IMAGE
    assert {e["name"] for e in template["spec"]["containers"][0]["env"]} == {
        "JAVA_TOOL_OPTIONS", "KAFKA_LOG4J_OPTS", "KAFKA_NUM_IO_THREADS", VARIABLE,
    }  # fmt: skip
    assert BrokerMode.of(brokers.configuration(migration_spec(), old, BrokerMode.LIFTED)) is BrokerMode.LIFTED


@pytest.mark.parametrize("mode", [BrokerMode.MIGRATION, BrokerMode.KRAFT])
def test_without_an_upgrade_nothing_of_it_is_there(mode: BrokerMode) -> None:
    pod = brokers.overlay(migration_spec(), FACTS, "kafka", mode)["spec"]["template"]["spec"]
    assert "image" not in pod["containers"][0]
    assert "initContainers" not in pod
    assert VARIABLE not in environment_in(brokers.overlay(migration_spec(), FACTS, "kafka", mode))


@pytest.mark.parametrize("mode", ALL)
def test_in_properties_style_the_protocol_is_in_the_operators_own_file(mode: BrokerMode) -> None:
    spec = migration_spec("Properties")
    settings = parse_properties(brokers.properties_file(spec, UPGRADED, mode))
    assert settings.get(PROTOCOL) == {BrokerMode.UPGRADED: "2.8-IV1", BrokerMode.MIGRATION: "3.9"}.get(mode)
    if mode is BrokerMode.UPGRADED:
        own = parse_properties(FACTS.properties_text)
        assert settings == {**own, PROTOCOL: "2.8-IV1"}
    assert VARIABLE not in environment_in(brokers.overlay(spec, UPGRADED, "kafka", mode))


def test_another_image_or_protocol_is_another_configuration() -> None:
    spec = migration_spec()
    others = [
        replace(UPGRADE, image="other:3.9"),
        replace(UPGRADE, protocol="3.4-IV0"),
        replace(UPGRADE, env={}),
        replace(UPGRADE, init_containers=()),
    ]
    names = {brokers.configuration(spec, replace(FACTS, upgrade=u), BrokerMode.UPGRADED) for u in (UPGRADE, *others)}
    assert len(names) == 5
    assert all(BrokerMode.of(name) is BrokerMode.UPGRADED for name in names)


# ------------------------------------------------------------------------------------- the original state


def stateful_set() -> dict[str, Any]:
    found = user_stateful_set()
    pod = found["spec"]["template"]["spec"]
    pod["containers"][0]["image"] = "kafka:2.8"
    pod["containers"][0]["env"] = [e for e in pod["containers"][0]["env"] if e["name"] != VARIABLE]
    pod["initContainers"] = [{"name": "prepare", "image": "kafka:2.8"}, {"name": "volumes", "image": "shell:1"}]
    owned = {
        "f:containers": {'k:{"name":"kafka"}': {"f:image": {}}},
        "f:initContainers": {'k:{"name":"prepare"}': {"f:image": {}}},
    }
    fields = {"f:spec": {"f:template": {"f:spec": owned}}}
    found["metadata"]["managedFields"] = [{"manager": "helm", "operation": "Update", "fieldsV1": fields}]
    return found


def spec_of() -> MigrationSpec:
    return migration_spec(upgrade={"image": IMAGE, "env": dict(UPGRADE.env)})


def recorded() -> original_state.OriginalState:
    found = original_state.capture(spec_of(), stateful_set(), None)
    assert found is not None
    return found


def status(**changes: Any) -> MigrationStatus:
    return MigrationStatus(broker_upgrade=BrokerUpgradeStatus(needed=True, protocol="2.8-IV1", **changes))


def test_the_record_knows_which_init_containers_share_the_image() -> None:
    original = recorded()
    assert original.init_containers == ("prepare",)
    identity = Identity("kafka", "demo", "uid", 1)
    value = original_secrets._encode(identity, status(), "kafka", original)
    assert original_secrets._decode(parsed_json(value)) == original
    older = {k: v for k, v in dict(parsed_json(value)).items() if k != "initContainers"}
    assert original_secrets._decode(older).init_containers == ()


def test_before_the_lift_a_rollback_writes_the_former_image_as_its_owner() -> None:
    original = recorded()
    facts = replace(FACTS, upgrade=original_state.upgrade_of(spec_of(), status(), original))
    patches = dict(original_state.restoring_patches(spec_of(), original, facts))
    pod = patches["helm"]["spec"]["template"]["spec"]
    assert pod == {
        "containers": [{"name": "kafka", "image": "kafka:2.8"}],
        "initContainers": [{"name": "prepare", "image": "kafka:2.8"}],
    }
    paths = {path[-2] for path in original_state.overwritten_paths(spec_of(), original, facts) if path[-1] == "f:image"}
    assert paths == {'k:{"name":"kafka"}', 'k:{"name":"prepare"}'}
    onwards = original_state.restoring_patches(spec_of(), original, facts, BrokerMode.MIGRATION)
    assert not any("image" in str(patch) for _, patch in onwards)


def test_after_the_lift_what_is_restored_has_the_new_image_and_protocol() -> None:
    original = recorded()
    assert original_state.restored_state(spec_of(), status(), original) is original
    kept = original_state.restored_state(spec_of(), status(lifted_at=NOW), original)
    env = {e["name"]: e["value"] for e in kept.container["env"]}
    assert (kept.container["image"], env[VARIABLE], env["KAFKA_LOG4J_OPTS"]) == (IMAGE, "3.9", "-Dnew")
    settings, _ = original_state.settings_of(spec_of(), kept)
    assert settings[PROTOCOL] == "3.9"
    files = MountedFiles(FilesKind.CONFIG_MAP, "kafka-config", {"server.properties": "broker.id=1"})
    in_file = migration_spec("Properties", upgrade={"image": IMAGE})
    of_file = original_state.restored_state(in_file, status(lifted_at=NOW), replace(original, files=files))
    assert of_file.container["image"] == IMAGE
    assert VARIABLE not in {e["name"] for e in of_file.container["env"]}


def test_an_image_that_somebody_else_wrote_is_drift_and_ours_is_no_change_of_others() -> None:
    spec = spec_of()
    original = recorded()
    facts = replace(FACTS, upgrade=original_state.upgrade_of(spec, status(), original))
    changed, _ = overlaid(spec, facts, "demo", stateful_set(), BrokerMode.UPGRADED)
    mark = {"kraftbridge.dev/configuration": brokers.configuration(spec, facts, BrokerMode.UPGRADED)}
    changed["spec"]["template"]["metadata"]["annotations"] = mark
    assert workloads.drift_of(spec, facts, changed) == ()
    ours = original_state.variables_of_modes(spec, facts)
    assert workloads.foreign_changes(spec, original.container, original.volumes, ours, changed, [IMAGE]) == ()
    other = copy.deepcopy(changed)
    other["spec"]["template"]["spec"]["initContainers"][0]["image"] = "kafka:2.8"
    assert workloads.drift_of(spec, facts, other) == ("image of prepare",)
    other["spec"]["template"]["spec"]["containers"][0]["image"] = "somebody/else"
    assert workloads.drift_of(spec, facts, other) == ("image of kafka", "image of prepare")
    assert workloads.foreign_changes(spec, original.container, original.volumes, ours, other, [IMAGE]) != ()


@pytest.mark.parametrize("mode", ALL)
def test_a_copy_has_the_image_and_without_the_overlay_it_is_what_it_was(mode: BrokerMode) -> None:
    spec, original = spec_of(), recorded()
    facts = replace(FACTS, upgrade=original_state.upgrade_of(spec, status(), original))
    changed, _ = overlaid(spec, facts, "demo", stateful_set(), mode)
    pod = changed["spec"]["template"]["spec"]
    assert [c["image"] for c in (*pod["containers"], *pod["initContainers"])] == [IMAGE, IMAGE, "shell:1"]
    back = without_overlay(
        changed,
        Overlaid(
            container="kafka",
            variables=brokers.environment(spec, facts, mode).keys(),
            volumes=(),
            mount="",
            former_container=original.container,
            former_volumes=original.volumes,
            images=("kafka", *original.init_containers),
        ),
    )
    assert back["spec"]["template"]["spec"].pop("volumes") == []
    assert back["spec"]["template"]["spec"] == stateful_set()["spec"]["template"]["spec"]
    present, _ = overlaid(spec, facts, "demo", stateful_set(), BrokerMode.ZOOKEEPER)
    assert present["spec"]["template"]["spec"]["containers"][0]["image"] == "kafka:2.8"


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("registry.example.com/team/kafka:3.9.2", ("registry.example.com", "team/kafka", {"tag": "3.9.2"})),
        ("bitnamilegacy/kafka:3.9.0", ("docker.io", "bitnamilegacy/kafka", {"tag": "3.9.0"})),
        ("localhost:5000/kafka@sha256:ab", ("localhost:5000", "kafka", {"digest": "sha256:ab"})),
        ("kafka", ("docker.io", "kafka", {"tag": "latest"})),
    ],
)
def test_an_image_as_the_bitnami_chart_takes_it(image: str, expected: tuple[str, str, dict[str, str]]) -> None:
    facts = {"kafka": replace(FACTS, upgrade=replace(UPGRADE, image=image))}
    files = hand_over.broker_manifests(migration_spec(envPrefix="KAFKA_CFG_"), facts, "demo")
    values = yaml.safe_load(files["values-bitnami-kafka.yaml"])
    registry, repository, rest = expected
    assert values["image"] == {"registry": registry, "repository": repository, **rest}


@pytest.mark.parametrize(
    ("image", "words"), [("bitnami/kafka:2.8.1", ["an image with Kafka 3.9"]), (IMAGE, []), ("mine", [])]
)
def test_a_next_release_with_the_former_image_is_told(image: str, words: list[str]) -> None:
    spec = migration_spec()
    needed = hand_over.required(spec, UPGRADED, "kafka")
    template = brokers.overlay(spec, UPGRADED, "kafka", BrokerMode.KRAFT)["spec"]["template"]
    template["spec"]["containers"][0]["image"] = image
    assert [lack.partition(",")[0] for lack in hand_over.lacking(needed, template)] == words
    assert hand_over.lacking(hand_over.required(spec, FACTS, "kafka"), template) == ()


@pytest.mark.parametrize("prefix", ["KAFKA_", "KAFKA_CFG_"])
@pytest.mark.parametrize(
    ("values", "refused"),
    [
        (["2.8"], True),
        (["2.4-IV1"], True),
        ([" 2.8"], True),
        (["3.0-IV0"], True),
        (["3.9", "2.8"], True),
        (["2.8", "3.9"], False),
        (["3.0"], False),
        (["3.0-IV1"], False),
        (["10.2"], False),
        ([], False),
    ],
)
def test_a_next_release_with_the_former_protocol_is_refused(values: list[str], prefix: str, *, refused: bool) -> None:
    """A KRaft broker does not start with a version below 3.0 (`KafkaConfig`), and the user's own values may have it."""
    spec = migration_spec(envPrefix=prefix)
    needed = hand_over.required(spec, UPGRADED, "kafka")
    template = brokers.overlay(spec, UPGRADED, "kafka", BrokerMode.KRAFT)["spec"]["template"]
    container = template["spec"]["containers"][0]
    name = f"{prefix}INTER_BROKER_PROTOCOL_VERSION"
    container["env"] = [entry for entry in container["env"] if entry["name"] != name]
    container["env"] += [{"name": name, "value": value} for value in values]
    assert hand_over.lacking(needed, template) == ((f"no {name}={values[-1]}",) if refused else ())


def test_the_guard_asks_for_no_protocol_which_kraft_ignores() -> None:
    needed = hand_over.required(migration_spec(), UPGRADED, "kafka")
    assert VARIABLE not in {variable.name for variable in needed.variables}


@pytest.mark.parametrize("style", ["Env", "Properties"])
@pytest.mark.parametrize("entry", [None, {"value": "-Dold"}])
def test_a_release_keeps_the_variables_of_the_new_image(entry: dict[str, Any] | None, style: str) -> None:
    """Without them, or with the user's former value, the image does not start as it did."""
    facts = replace(UPGRADED, variables=("KAFKA_LOG4J_OPTS",))
    needed = hand_over.required(migration_spec(style), facts, "kafka")
    template = brokers.overlay(migration_spec(style), facts, "kafka", BrokerMode.KRAFT)["spec"]["template"]
    assert hand_over.lacking(needed, template) == ()
    container = template["spec"]["containers"][0]
    container["env"] = [e for e in container["env"] if e["name"] != "KAFKA_LOG4J_OPTS"]
    container["env"] += [] if entry is None else [{"name": "KAFKA_LOG4J_OPTS", **entry}]
    assert hand_over.lacking(needed, template) == ("KAFKA_LOG4J_OPTS=-Dnew",)


@pytest.mark.parametrize("style", ["Env", "Properties"])
def test_what_the_overlay_sets_itself_is_none_of_the_new_images_variables(style: str) -> None:
    own = ("JAVA_TOOL_OPTIONS", VARIABLE, "KAFKA_ZOOKEEPER_BOOTSTRAP_SCRAM_USERS")
    upgrade = replace(UPGRADE, env=dict.fromkeys(own, "true"))
    facts = replace(FACTS, upgrade=upgrade, zookeeper_writers=own[2:])
    named = {v.name for v in hand_over.required(migration_spec(style), facts, "kafka").variables}
    assert not named & ({*own} if style == "Env" else {own[0], own[2]})
