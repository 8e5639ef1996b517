"""Brokers that go on to Kafka 4 and back: the overlay, what restores their image, drift, the final manifests, the inputs."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import yaml
from tests.support.observations import NOW, kafka4_leg
from tests.unit.builders.test_brokers import FACTS, environment_in, migration_spec
from tests.unit.builders.test_upgrade import UPGRADED, recorded, spec_of, stateful_set, status

from kraftbridge.builders import broker_overlays as brokers
from kraftbridge.builders import hand_over
from kraftbridge.builders.broker_overlays import NewImage
from kraftbridge.builders.dry_start_pods import overlaid
from kraftbridge.models.phase import BrokerMode
from kraftbridge.models.status import MigrationStatus
from kraftbridge.services import original_state
from kraftbridge.services.observe import workloads

IMAGE = "registry.example.com/kafka:4.1.2"
NEW = NewImage(IMAGE, ("prepare",))
ON_KAFKA4 = replace(FACTS, kafka4=NEW)
STYLES = pytest.mark.parametrize("style", ["Env", "Properties"])


def of_leg(before: MigrationStatus | None = None) -> MigrationStatus:
    leg = kafka4_leg().model_copy(update={"image": IMAGE, "controllers_image": IMAGE})
    return (before or MigrationStatus()).model_copy(update={"kafka4_leg": leg})


@STYLES
@pytest.mark.parametrize("facts", [ON_KAFKA4, replace(UPGRADED, kafka4=NEW)])
def test_nothing_but_the_image_is_another_than_in_kraft_mode(style: str, facts: brokers.BrokerFacts) -> None:
    spec = migration_spec(style)
    kraft, kafka4 = (brokers.overlay(spec, facts, "kafka", m) for m in (BrokerMode.KRAFT, BrokerMode.KAFKA4))
    pod = kafka4["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == IMAGE
    assert pod["initContainers"] == [{"name": "prepare", "image": IMAGE}]
    assert environment_in(kafka4) == environment_in(kraft)
    assert pod.get("volumes") == kraft["spec"]["template"]["spec"].get("volumes")
    assert brokers.broker_settings(spec, facts, BrokerMode.KAFKA4) == brokers.broker_settings(
        spec, facts, BrokerMode.KRAFT
    )


def test_the_properties_file_is_that_of_kraft_mode() -> None:
    spec = migration_spec("Properties")
    texts = {brokers.properties_file(spec, ON_KAFKA4, mode) for mode in (BrokerMode.KRAFT, BrokerMode.KAFKA4)}
    assert len(texts) == 1
    assert brokers.mode_of_file(BrokerMode.KAFKA4) is BrokerMode.KRAFT
    assert brokers.mode_of_file(BrokerMode.MIGRATION) is BrokerMode.MIGRATION


def test_the_prepared_image_changes_no_other_mode_and_another_image_is_another_configuration() -> None:
    spec = migration_spec()
    for mode in (BrokerMode.MIGRATION, BrokerMode.KRAFT):
        assert brokers.configuration(spec, ON_KAFKA4, mode) == brokers.configuration(spec, FACTS, mode)
        assert brokers.overlay(spec, ON_KAFKA4, "kafka", mode) == brokers.overlay(spec, FACTS, "kafka", mode)
    other = replace(FACTS, kafka4=NewImage("kafka:4.4.0", ("prepare",)))
    names = [brokers.configuration(spec, facts, BrokerMode.KAFKA4) for facts in (ON_KAFKA4, other)]
    assert len(set(names)) == 2
    assert {BrokerMode.of(name) for name in names} == {BrokerMode.KAFKA4}


def test_the_leg_in_the_status_is_what_brings_the_image() -> None:
    original = recorded()
    assert original_state.kafka4_of(MigrationStatus(), original) is None
    assert original_state.kafka4_of(of_leg(), original) == NEW
    assert original_state.modes_of(FACTS) == (BrokerMode.MIGRATION, BrokerMode.KRAFT)
    assert original_state.modes_of(ON_KAFKA4)[-1] is BrokerMode.KAFKA4


def test_the_way_back_writes_the_image_that_the_owner_had() -> None:
    """The brokers were on 3.9 by themselves: no overlay of KRaft mode has an image, so the recorded one is restored."""
    original = recorded()
    patches = dict(original_state.restoring_patches(spec_of(), original, ON_KAFKA4, BrokerMode.KRAFT))
    assert patches["helm"]["spec"]["template"]["spec"] == {
        "containers": [{"name": "kafka", "image": "kafka:2.8"}],
        "initContainers": [{"name": "prepare", "image": "kafka:2.8"}],
    }
    assert not any(
        "image" in str(patch)
        for _, patch in original_state.restoring_patches(spec_of(), original, ON_KAFKA4, BrokerMode.KAFKA4)
    )
    assert not any(
        "image" in str(patch)
        for _, patch in original_state.restoring_patches(spec_of(), original, FACTS, BrokerMode.KRAFT)
    )


def test_after_an_upgrade_of_the_migration_the_way_back_leads_to_its_image() -> None:
    spec, original = spec_of(), recorded()
    upgrade = original_state.upgrade_of(spec, status(lifted_at=NOW), original)
    assert upgrade is not None
    facts = replace(FACTS, upgrade=upgrade, kafka4=NEW)
    pod = brokers.overlay(spec, facts, "kafka", BrokerMode.KRAFT)["spec"]["template"]["spec"]
    assert [c["image"] for c in (*pod["containers"], *pod["initContainers"])] == [upgrade.image] * 2
    patches = original_state.restoring_patches(spec, original, facts, BrokerMode.KRAFT)
    assert not any("image" in str(patch) for _, patch in patches)


def template_in(mode: BrokerMode, facts: brokers.BrokerFacts) -> dict[str, Any]:
    changed, _ = overlaid(migration_spec(), facts, "demo", stateful_set(), mode)
    mark = {"kraftbridge.dev/configuration": brokers.configuration(migration_spec(), facts, mode)}
    changed["spec"]["template"]["metadata"]["annotations"] = mark
    return changed


def test_drift_is_an_image_that_somebody_took_back_and_one_that_the_way_back_has_left() -> None:
    spec, image = migration_spec(), "image of kafka"
    on_kafka4 = template_in(BrokerMode.KAFKA4, ON_KAFKA4)
    assert workloads.drift_of(spec, ON_KAFKA4, on_kafka4) == ()
    former = copy.deepcopy(on_kafka4)
    former["spec"]["template"]["spec"]["containers"][0]["image"] = "kafka:3.9.2"
    assert workloads.drift_of(spec, ON_KAFKA4, former) == (image,)
    back = template_in(BrokerMode.KRAFT, ON_KAFKA4)
    assert workloads.drift_of(spec, ON_KAFKA4, back) == ()
    back["spec"]["template"]["spec"]["containers"][0]["image"] = IMAGE
    assert workloads.drift_of(spec, ON_KAFKA4, back) == (image,)
    assert workloads.drift_of(spec, FACTS, back) == ()


def test_the_image_of_kafka_4_is_no_change_of_others() -> None:
    spec, original = migration_spec(), recorded()
    changed = template_in(BrokerMode.KAFKA4, ON_KAFKA4)
    ours = original_state.variables_of_modes(spec, ON_KAFKA4)
    assert workloads.foreign_changes(spec, original.container, original.volumes, ours, changed, [IMAGE]) == ()
    assert workloads.foreign_changes(spec, original.container, original.volumes, ours, changed) != ()


@pytest.mark.parametrize("prefix", ["KAFKA_", "KAFKA_CFG_"])
def test_the_owner_gets_manifests_with_the_image_of_kafka_4(prefix: str) -> None:
    spec = migration_spec(envPrefix=prefix)
    files = hand_over.broker_manifests(spec, {"kafka": ON_KAFKA4}, "demo")
    assert any(IMAGE in text for name, text in files.items() if "values" not in name)
    if prefix == "KAFKA_CFG_":
        values = yaml.safe_load(files["values-bitnami-kafka.yaml"])
        assert values["image"] == {"registry": "registry.example.com", "repository": "kafka", "tag": "4.1.2"}
    before = hand_over.broker_manifests(spec, {"kafka": FACTS}, "demo")
    assert not any(IMAGE in text for text in before.values())


@pytest.mark.parametrize(
    ("image", "words"),
    [("kafka:3.9.2", ["an image with Kafka 4.1"]), (IMAGE, []), ("kafka:4.4.0", []), ("mine", [])],
)
def test_a_next_release_with_an_older_image_is_told(image: str, words: list[str]) -> None:
    spec = migration_spec()
    needed = hand_over.required(spec, ON_KAFKA4, "kafka").model_copy(update={"image": IMAGE})
    template = brokers.overlay(spec, ON_KAFKA4, "kafka", BrokerMode.KAFKA4)["spec"]["template"]
    template["spec"]["containers"][0]["image"] = image
    assert [lack.partition(",")[0] for lack in hand_over.lacking(needed, template)] == words
