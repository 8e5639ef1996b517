"""Overlays on the user's StatefulSets: exactly what a mode needs, in both styles, and nothing that the user would miss."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest
from tests.support.golden import assert_golden
from tests.support.observations import CLUSTER_ID, CONTROLLERS, spec_document

from kraftbridge.builders import broker_overlays as brokers
from kraftbridge.constants import ACL_AUTHORIZER, ANNOTATION_CONFIGURATION, STANDARD_AUTHORIZER
from kraftbridge.models.mounted_files import FilesKind, MountedFiles
from kraftbridge.models.phase import BrokerMode
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.outside.properties import parse_properties

FILE = """# kept as it is
broker.id=1
zookeeper.connect=zk-0.zk:2181,\\
    zk-1.zk:2181/kafka
zookeeper.session.timeout.ms=18000
inter.broker.protocol.version=3.9
listeners=INTERNAL://:9092
listener.security.protocol.map=INTERNAL:SASL_PLAINTEXT
authorizer.class.name=kafka.security.authorizer.AclAuthorizer
super.users=User:admin
log.dirs=/data/0,/data/1
"""
MODES = [BrokerMode.MIGRATION, BrokerMode.KRAFT]


def migration_spec(style: str = "Env", **brokers_fields: Any) -> MigrationSpec:
    document = spec_document()
    document["brokers"] |= {"configStyle": style}
    if style == "Properties":
        document["brokers"]["properties"] = {"volume": "config", "configMap": "kafka-config"}
    document["brokers"] |= brokers_fields
    return MigrationSpec.model_validate(document)


FACTS = brokers.BrokerFacts(
    namespace="kafka",
    controllers=CONTROLLERS,
    cluster_domain="cluster.local",
    cluster_id=CLUSTER_ID,
    settings={
        "broker.id": "1",
        "zookeeper.connect": "zk-0.zk:2181,zk-1.zk:2181/kafka",
        "zookeeper.session.timeout.ms": "18000",
        "inter.broker.protocol.version": "3.9",
        "listener.security.protocol.map": "INTERNAL:SASL_PLAINTEXT",
        "authorizer.class.name": ACL_AUTHORIZER,
    },
    java_tool_options="-Dmine=1",
    properties_text=FILE,
)


def environment_in(overlay: dict[str, Any]) -> dict[str, str]:
    (container,) = overlay["spec"]["template"]["spec"]["containers"]
    return {e["name"]: e["value"] for e in container["env"]}


@pytest.mark.parametrize("prefix", ["KAFKA_", "KAFKA_CFG_"])
@pytest.mark.parametrize("mode", MODES)
def test_env_overlay(mode: BrokerMode, prefix: str) -> None:
    built = brokers.overlay(migration_spec(envPrefix=prefix), FACTS, "kafka", mode)
    assert_golden(built, f"builders/overlay-{prefix.lower()}{mode.lower()}.yaml")


@pytest.mark.parametrize("mode", MODES)
def test_properties_overlay_and_its_file(mode: BrokerMode) -> None:
    spec = migration_spec("Properties")
    config_map = brokers.properties_object(spec, FACTS, "demo", mode)
    assert_golden(
        [config_map, brokers.overlay(spec, FACTS, "kafka", mode)], f"builders/overlay-properties-{mode.lower()}.yaml"
    )


def with_files(kind: FilesKind, **data: str) -> brokers.BrokerFacts:
    """Return the facts of a StatefulSet whose volume mounts an object of its own, with keys besides the properties file."""
    return replace(FACTS, files=MountedFiles(kind, "zone-a", data))


@pytest.mark.parametrize("mode", MODES)
def test_every_key_of_a_config_map_is_carried_along(mode: BrokerMode) -> None:
    spec = migration_spec("Properties", properties={"volume": "config"})
    facts = with_files(FilesKind.CONFIG_MAP, **{"server.properties": FILE, "start.sh": "exec kafka"})
    facts = replace(facts, files=replace(facts.files, binary_data={"trust.jks": "/u3+7Q=="}))
    built = brokers.properties_object(spec, facts, "demo", mode)
    assert built is not None
    assert (built["kind"], built["metadata"]["name"]) == ("ConfigMap", f"zone-a-kraftbridge-{mode.lower()}")
    assert (built["data"]["start.sh"], built["binaryData"]) == ("exec kafka", {"trust.jks": "/u3+7Q=="})
    assert built["data"]["server.properties"] == brokers.properties_file(spec, facts, mode)
    (volume,) = brokers.overlay(spec, facts, "kafka", mode)["spec"]["template"]["spec"]["volumes"]
    assert volume == {"name": "config", "configMap": {"name": built["metadata"]["name"]}}


@pytest.mark.parametrize("mode", MODES)
def test_a_file_in_a_secret_stays_in_a_secret(mode: BrokerMode) -> None:
    spec = migration_spec("Properties", properties={"volume": "config"})
    encoded = {"server.properties": base64.b64encode(FILE.encode()).decode(), "key.jks": "/u3+7Q=="}
    facts = with_files(FilesKind.SECRET, **encoded)
    assert facts.files is not None
    assert facts.files.text("server.properties") == FILE
    assert facts.files.text("key.jks") == "", "it is no text"
    built = brokers.properties_object(spec, facts, "demo", mode)
    assert built is not None
    assert (built["kind"], built["data"]["key.jks"]) == ("Secret", "/u3+7Q==")
    assert base64.b64decode(built["data"]["server.properties"]).decode() == brokers.properties_file(spec, facts, mode)
    (volume,) = brokers.overlay(spec, facts, "kafka", mode)["spec"]["template"]["spec"]["volumes"]
    assert volume == {"name": "config", "secret": {"secretName": built["metadata"]["name"]}}


def test_the_users_items_and_modes_of_a_volume_stay() -> None:
    items = [{"key": "server.properties", "path": "conf/server.properties"}]
    own = [{"name": "config", "configMap": {"name": "mine", "items": items, "defaultMode": 365}}, {"name": "data"}]
    merged = brokers.with_volumes(own, [{"name": "config", "configMap": {"name": "ours"}}])
    assert merged == [
        {"name": "config", "configMap": {"name": "ours", "items": items, "defaultMode": 365}},
        {"name": "data"},
    ]


def test_env_style_has_no_file() -> None:
    assert brokers.properties_object(migration_spec(), FACTS, "demo", BrokerMode.KRAFT) is None


def test_each_mode_has_a_file_of_its_own() -> None:
    spec = migration_spec("Properties")
    maps = [brokers.properties_object(spec, FACTS, "demo", mode) for mode in MODES]
    assert len({m["metadata"]["name"] for m in maps if m is not None}) == len(MODES)
    assert all(m["metadata"]["name"] != "kafka-config" for m in maps if m is not None), (
        "the user's own is never written"
    )


@pytest.mark.parametrize("style", ["Env", "Properties"])
@pytest.mark.parametrize("mode", MODES)
def test_an_overlay_touches_nothing_else(mode: BrokerMode, style: str) -> None:
    built = brokers.overlay(migration_spec(style), FACTS, "kafka", mode)
    assert set(built["spec"]) == {"template"}
    assert set(built["spec"]["template"]) == {"metadata", "spec"}
    assert set(built["spec"]["template"]["metadata"]["annotations"]) == {ANNOTATION_CONFIGURATION}
    assert "ownerReferences" not in built["metadata"]
    (container,) = built["spec"]["template"]["spec"]["containers"]
    assert set(container) == {"name", "env"}


def test_migration_mode_keeps_the_broker_on_zookeeper() -> None:
    settings = brokers.broker_settings(migration_spec(), FACTS, BrokerMode.MIGRATION)
    assert settings["zookeeper.metadata.migration.enable"] == "true"
    assert "process.roles" not in settings
    assert "authorizer.class.name" not in settings, "AclAuthorizer serves until the broker is KRaft"


def test_a_kraft_broker_has_no_flag_and_the_standard_authorizer() -> None:
    settings = brokers.broker_settings(migration_spec(), FACTS, BrokerMode.KRAFT)
    assert settings["process.roles"] == "broker"
    assert "zookeeper.metadata.migration.enable" not in settings
    assert settings["authorizer.class.name"] == STANDARD_AUTHORIZER


@pytest.mark.parametrize("authorizer", ["", "com.example.Mine", STANDARD_AUTHORIZER])
def test_other_authorizers_stay(authorizer: str) -> None:
    facts = replace(FACTS, settings={**FACTS.settings, "authorizer.class.name": authorizer})
    assert "authorizer.class.name" not in brokers.broker_settings(migration_spec(), facts, BrokerMode.KRAFT)


def test_the_users_own_mode_asks_for_nothing() -> None:
    assert brokers.broker_settings(migration_spec(), FACTS, BrokerMode.ZOOKEEPER) == {}


def test_java_options_are_appended_once() -> None:
    once = brokers.java_tool_options("-Dmine=1")
    assert once.startswith("-Dmine=1 ")
    assert brokers.java_tool_options(once) == once
    assert not brokers.java_tool_options("").startswith(" ")


def test_the_configuration_names_its_mode_and_changes_with_every_setting() -> None:
    spec = migration_spec()
    names = {brokers.configuration(spec, FACTS, mode) for mode in MODES}
    names |= {
        brokers.configuration(spec, replace(FACTS, java_tool_options=""), BrokerMode.KRAFT),
        brokers.configuration(spec, replace(FACTS, properties_text=""), BrokerMode.KRAFT),
        brokers.configuration(spec, replace(FACTS, controllers="demo-kraft-2"), BrokerMode.KRAFT),
        brokers.configuration(spec, replace(FACTS, settings={}), BrokerMode.KRAFT),
    }
    assert len(names) == 6
    for mode in MODES:
        assert BrokerMode.of(brokers.configuration(spec, FACTS, mode)) is mode


@pytest.mark.parametrize("style", ["Env", "Properties"])
def test_the_kraft_configuration_has_no_zookeeper_flag_left(style: str) -> None:
    spec = migration_spec(style)
    facts = replace(FACTS, properties_text=FILE + "zookeeper.metadata.migration.enable=true\n")
    if style == "Env":
        assert not [
            v for v in environment_in(brokers.overlay(spec, facts, "kafka", BrokerMode.KRAFT)) if "MIGRATION" in v
        ]
        return
    config_map = brokers.properties_object(spec, facts, "demo", BrokerMode.KRAFT)
    assert config_map is not None
    text = config_map["data"]["server.properties"]
    read = parse_properties(text)
    assert not [k for k in read if k.startswith(("zookeeper.", "inter.broker.protocol"))]
    assert read["process.roles"] == "broker"
    assert read["log.dirs"] == "/data/0,/data/1"
    assert "zk-1.zk" not in text


# ------------------------------------------------------------------------------------------ without_settings

WITHOUT = [
    ("a=1\nb=2\n", "b=2\n"),
    ("a = 1\nb=2\n", "b=2\n"),
    ("  a=1\nb=2\n", "b=2\n"),
    ("a=1,\\\n  2,\\\n  3\nb=2\n", "b=2\n"),
    ("b=2\na=1,\\\n  2", "b=2\n"),
    ("#a=1\nb=2\n", "#a=1\nb=2\n"),
    ("aa=1\na.b=2\n", "aa=1\na.b=2\n"),
    ("a:1\nb=2\n", "b=2\n"),
    ("a 1\nb=2\n", "b=2\n"),
    ("a\nb=2\n", "b=2\n"),
    ("a=x\\\\\nb=2\n", "b=2\n"),
    ("b=1,\\\na=2\nc=3\n", "b=1,\\\na=2\nc=3\n"),
    ("# comment \\\na=1\nb=2\n", "# comment \\\nb=2\n"),
    ("a=1\r\nb=2\r\n", "b=2\r\n"),
]


@pytest.mark.parametrize(("text", "left"), WITHOUT, ids=[repr(t) for t, _ in WITHOUT])
def test_a_setting_is_taken_out_whole_and_nothing_else(text: str, left: str) -> None:
    assert brokers.without_settings(text, {"a"}) == left


def test_a_file_that_ends_in_a_continuation_swallows_nothing_of_ours() -> None:
    facts = replace(FACTS, properties_text="z=1\nlog.dirs=/data\\")
    config_map = brokers.properties_object(migration_spec("Properties"), facts, "demo", BrokerMode.KRAFT)
    assert config_map is not None
    read = parse_properties(config_map["data"]["server.properties"])
    assert read["log.dirs"] == "/data"
    assert read["process.roles"] == "broker"
