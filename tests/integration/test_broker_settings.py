"""The table of broker settings holds the settings that Kafka 3.9 defines, no more and no less."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.support.kafka_processes import installed_tool, kafka_libraries

from kraftbridge.metadata.entities import is_password_config
from kraftbridge.models.broker_settings import OF_AUTHORIZERS, RULES

pytestmark = pytest.mark.integration
JAVA = """
public class Settings {
    public static void main(String[] arguments) {
        for (var key : kafka.server.KafkaConfig.configDef().configKeys().values())
            System.out.println("setting " + key.name + " " + kafka.server.DynamicBrokerConfig.isPasswordConfig(key.name));
    }
}
"""


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bool]:
    """Return Kafka's settings, and whether each is a password that brokers encrypt."""
    source = tmp_path_factory.mktemp("java") / "Settings.java"
    source.write_text(JAVA)
    libraries: Path = kafka_libraries()
    java = installed_tool("java", "openjdk-17-jdk-headless", "the integration tests")
    done = subprocess.run([java, "-cp", f"{libraries}/*", str(source)], check=True, capture_output=True, text=True)
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("setting ")]
    return {name: password == "true" for _, name, password in rows}


def test_every_setting_has_its_row(settings: dict[str, bool]) -> None:
    assert len(settings) > 300
    assert set(settings) == set(RULES) - OF_AUTHORIZERS


def test_dynamic_passwords_are_known(settings: dict[str, bool]) -> None:
    assert {name for name in settings if is_password_config(name)} == {
        n for n, password in settings.items() if password
    }
