"""Which other channels a dry start tries, and when."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest
from tests.support.observations import dry_start_of, spec

from kraftbridge.copies.dry_start import described, likely_channels, other_channels, without_overlay
from kraftbridge.models.mounted_files import FilesKind, MountedFiles
from kraftbridge.models.phase import BrokerMode
from kraftbridge.models.spec import BrokersSpec, ConfigStyle, PropertiesSource

POD = {
    "volumes": [
        {"name": "config", "configMap": {"name": "broker-config"}},
        {"name": "scripts", "configMap": {"name": "scripts"}},
        {"name": "tmp", "emptyDir": {}},
    ]
}
FILES = {
    "broker-config": {
        "server.properties": "# zone a\n zookeeper.connect = zk:2181\nlog.dirs=/data",
        "log4j.properties": "log4j.rootLogger=INFO",
    },
    "scripts": {"init.sh": "echo zookeeper.connect=$ZK >> /config/server.properties"},
    "not-mounted": {"server.properties": "broker.id=1"},
}
CONFIG_MAPS = {("ConfigMap", n): MountedFiles(FilesKind.CONFIG_MAP, n, data) for n, data in FILES.items()}
KAFKA = "configStyle: Env, envPrefix: KAFKA_"
CFG = "configStyle: Env, envPrefix: KAFKA_CFG_"
FILE = "configStyle: Properties, properties: {volume: config, key: server.properties}"


def brokers(**changes: Any) -> BrokersSpec:
    return spec().brokers.model_copy(update=changes)


PROPERTIES = {
    "config_style": ConfigStyle.PROPERTIES,
    "properties": PropertiesSource(volume="config", config_map="broker-config"),
}


@pytest.mark.parametrize(
    ("chosen", "others"),
    [
        (brokers(config_style=ConfigStyle.ENV, env_prefix="KAFKA_"), [CFG, FILE]),
        (brokers(config_style=ConfigStyle.ENV, env_prefix="KAFKA_CFG_"), [KAFKA, FILE]),
        (brokers(**PROPERTIES), [KAFKA, CFG]),
    ],
)
def test_every_other_channel_that_the_template_may_have_is_tried(chosen: BrokersSpec, others: list[str]) -> None:
    assert [described(b) for b in other_channels(chosen, POD, CONFIG_MAPS)] == others


def test_a_file_in_a_secret_is_tried_too() -> None:
    text = base64.b64encode(b"zookeeper.connect=zk:2181").decode()
    secret = MountedFiles(FilesKind.SECRET, "broker-secret", {"kafka.properties": text, "key.jks": "/u3+7Q=="})
    pod = {"volumes": [{"name": "config", "secret": {"secretName": "broker-secret"}}]}
    tried = other_channels(brokers(), pod, {("Secret", "broker-secret"): secret})
    assert "properties: {volume: config, key: kafka.properties}" in described(tried[-1])
    assert len(tried) == 2


def test_a_template_without_volumes_has_the_two_prefixes_only() -> None:
    assert [described(b) for b in other_channels(brokers(**PROPERTIES), {}, {})] == [KAFKA, CFG]


def container(*names: str, name: str = "kafka", **more: Any) -> dict[str, Any]:
    return {**POD, "containers": [{"name": name, "env": [{"name": n, "value": "x"} for n in names], **more}]}


@pytest.mark.parametrize(
    ("chosen", "pods", "order"),
    [
        ({}, [container("KAFKA_ZOOKEEPER_CONNECT")], [KAFKA, FILE, CFG]),
        ({}, [container("KAFKA_CFG_ZOOKEEPER_CONNECT")], [CFG, FILE, KAFKA]),
        ({}, [container("KAFKA_CFG_ZOOKEEPER_CONNECT", name="metrics")], [FILE, KAFKA, CFG]),
        ({}, [container("KAFKA_HEAP_OPTS")], [FILE, KAFKA, CFG]),
        ({"env_prefix": "KAFKA_CFG_"}, [container()], [FILE, CFG, KAFKA]),
        (PROPERTIES, [container("KAFKA_ZOOKEEPER_CONNECT")], [FILE, KAFKA, CFG]),
        # A guess must fit every StatefulSet.
        ({}, [container("KAFKA_ZOOKEEPER_CONNECT"), container()], [FILE, KAFKA, CFG]),
        ({}, [container(), {**container("KAFKA_ZOOKEEPER_CONNECT"), "volumes": []}], [KAFKA, CFG]),
        ({}, [container(envFrom=[{"configMapRef": {"name": "broker-env"}}])], [KAFKA, FILE, CFG]),
        ({}, [container(envFrom=[{"configMapRef": {"name": "not-there"}}])], [FILE, KAFKA, CFG]),
    ],
)
def test_the_channel_that_is_guessed_first_follows_what_spec_and_templates_say(
    chosen: dict[str, Any], pods: list[dict[str, Any]], order: list[str]
) -> None:
    variables = MountedFiles(FilesKind.CONFIG_MAP, "broker-env", {"KAFKA_ZOOKEEPER_CONNECT": "zk:2181"})
    files = {**CONFIG_MAPS, ("ConfigMap", "broker-env"): variables}
    stated = brokers(**{**chosen, "config_style": ConfigStyle.AUTO})
    assert [described(b) for b in likely_channels(stated, [(pod, files) for pod in pods])] == order


def test_a_file_that_spec_names_is_tried_whatever_it_contains() -> None:
    stated = brokers(config_style=ConfigStyle.AUTO, properties=PropertiesSource(volume="scripts", key="made.conf"))
    first = likely_channels(stated, [(container("KAFKA_ZOOKEEPER_CONNECT"), CONFIG_MAPS)])[0]
    assert described(first) == "configStyle: Properties, properties: {volume: scripts, key: made.conf}"
    present = brokers(config_style=ConfigStyle.ENV, properties=stated.properties)
    assert described(first) in [described(b) for b in other_channels(present, container(), CONFIG_MAPS)]


def test_a_channel_is_lost_where_a_copy_lacks_a_setting_or_does_not_start() -> None:
    state = dry_start_of()
    assert state.report is not None
    faithful = state.report.copies
    assert without_overlay(faithful) == ()
    for spoiled in (
        [replace(c, overlay={"process.roles": "other"}) if c.key.mode is BrokerMode.KRAFT else c for c in faithful],
        [replace(c, start=None) if c.key.mode is BrokerMode.MIGRATION else c for c in faithful],
    ):
        assert without_overlay(spoiled) == ("kafka",)
    # Without a copy in the present mode no other channel could be judged.
    without = [replace(c, start=None) if c.key.mode is BrokerMode.ZOOKEEPER else c for c in faithful]
    assert without_overlay([replace(c, overlay={"a": "b"}) for c in without]) == ()
