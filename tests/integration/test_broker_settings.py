"""The table of broker settings holds the settings that Kafka 3.9 defines, no more and no less."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.support.kafka_processes import installed_tool, kafka_libraries

from kraftbridge.metadata.entities import is_password_config
from kraftbridge.models.broker_settings import OF_AUTHORIZERS, RULES
from kraftbridge.models.secrecy import OF_TOPICS, is_secret_setting

pytestmark = pytest.mark.integration
JAVA = """
public class Settings {
    public static void main(String[] arguments) {
        for (var key : kafka.server.KafkaConfig.configDef().configKeys().values())
            System.out.println("setting " + key.name + " " + kafka.server.DynamicBrokerConfig.isPasswordConfig(key.name));
        for (var key : kafka.server.KafkaConfig.configDef().configKeys().values())
            System.out.println("type " + key.name + " " + key.type);
        for (var key : org.apache.kafka.storage.internals.log.LogConfig.configKeys().values())
            System.out.println("topic " + key.name + " " + key.type);
        for (var config : java.util.List.of(
                org.apache.kafka.server.config.QuotaConfigs.userAndClientQuotaConfigs(),
                org.apache.kafka.server.config.QuotaConfigs.ipConfigs(),
                org.apache.kafka.server.metrics.ClientMetricsConfigs.configDef()))
            for (var name : config.names())
                System.out.println("other " + name + " -");
    }
}
"""


Rows = list[tuple[str, str, str]]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """Return what Kafka says of its settings: what is said, of which one, and the answer."""
    source = tmp_path_factory.mktemp("java") / "Settings.java"
    source.write_text(JAVA)
    libraries: Path = kafka_libraries()
    java = installed_tool("java", "openjdk-17-jdk-headless", "the integration tests")
    done = subprocess.run([java, "-cp", f"{libraries}/*", str(source)], check=True, capture_output=True, text=True)
    return [(said, name, answer) for said, name, answer in map(str.split, done.stdout.splitlines())]


@pytest.fixture(scope="module")
def settings(rows: Rows) -> dict[str, bool]:
    """Return the settings of a broker, and whether each is a password that brokers encrypt."""
    return {name: answer == "true" for said, name, answer in rows if said == "setting"}


def test_every_setting_has_its_row(settings: dict[str, bool]) -> None:
    assert len(settings) > 300
    assert set(settings) == set(RULES) - OF_AUTHORIZERS


def test_dynamic_passwords_are_known(settings: dict[str, bool]) -> None:
    assert {name for name in settings if is_password_config(name)} == {
        n for n, password in settings.items() if password
    }


def test_every_password_is_secret_and_no_other_known_setting(rows: Rows) -> None:
    types = {name: answer for said, name, answer in rows if said == "type"}
    assert {name for name in types if is_secret_setting(name)} == {n for n, kind in types.items() if kind == "PASSWORD"}


def test_settings_of_topics_groups_metrics_and_quotas_are_not_secret(rows: Rows) -> None:
    topics = {name: answer for said, name, answer in rows if said == "topic"}
    assert set(topics) == OF_TOPICS
    assert "PASSWORD" not in topics.values()
    others = {name for said, name, _ in rows if said == "other"}
    assert len(others) > 5
    assert [name for name in others if is_secret_setting(name)] == []
