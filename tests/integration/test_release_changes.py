"""The table of what Kafka 3.9 makes of former settings is what the configuration classes of the releases say."""

from __future__ import annotations

import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest
from tests.support.kafka_processes import installed_tool, kafka_libraries

from kraftbridge.models.broker_settings import may_change
from kraftbridge.models.metadata_version import Release
from kraftbridge.models.release_changes import (
    CHANGED_BEHAVIOUR,
    CHANGED_DEFAULTS,
    INTERNAL,
    NEW_BEHAVIOUR,
    REMOVED,
    is_changed_default,
)

pytestmark = pytest.mark.integration
BRIDGE = "3.9.2"
RELEASES = (
    "2.4.1",
    "2.5.1",
    "2.6.3",
    "2.7.2",
    "2.8.2",
    "3.0.2",
    "3.1.2",
    "3.2.3",
    "3.3.2",
    "3.4.1",
    "3.5.2",
    "3.6.2",
    "3.7.2",
    "3.8.1",
)
JAVA = """
import org.apache.kafka.common.config.ConfigDef;

public class Defaults {
    public static void main(String[] arguments) throws Exception {
        Class<?> type = Class.forName("kafka.server.KafkaConfig$");
        Object config = type.getField("MODULE$").get(null);
        ConfigDef definition = null;
        for (var method : type.getDeclaredMethods())
            if (method.getName().equals("configDef") && method.getParameterCount() == 0) {
                method.setAccessible(true);
                definition = (ConfigDef) method.invoke(config);
            }
        for (var field : type.getDeclaredFields())
            if (definition == null && field.getName().contains("configDef")) {
                field.setAccessible(true);
                definition = (ConfigDef) field.get(config);
            }
        for (var key : definition.configKeys().values())
            System.out.println(key.name + "\\t" + key.internalConfig + "\\t"
                + (key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : "<none>"));
    }
}
"""
MAP = "listener.security.protocol.map"


@cache
def defined(release: str) -> dict[str, tuple[bool, str]]:
    """Return of each setting of a broker whether it is internal, and its default, ``null`` for none."""
    libraries: Path = kafka_libraries(release)
    java = installed_tool("java", "openjdk-17-jdk-headless", "the integration tests")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "Defaults.java"
        source.write_text(JAVA)
        done = subprocess.run([java, "-cp", f"{libraries}/*", str(source)], check=True, capture_output=True, text=True)
    rows = (line.split("\t") for line in done.stdout.splitlines())
    return {name: (internal == "true", value) for name, internal, value in rows}


def defaults(release: str) -> dict[str, str]:
    """Return the default of each setting of a broker, ``null`` for none."""
    return {name: value for name, (_, value) in defined(release).items()}


@pytest.mark.parametrize("release", RELEASES)
def test_every_difference_between_a_release_and_3_9_has_its_row(release: str) -> None:
    before, after = defaults(release), defaults(BRIDGE)
    assert len(before) > 180
    assert before.keys() - after.keys() <= REMOVED.keys()
    for name in sorted(before.keys() & after.keys()):
        former = None if before[name] == "null" else before[name]
        same = (
            sorted(before[name].split(",")) == sorted(after[name].split(","))
            if name == MAP
            else before[name] == after[name]
        )
        assert same or may_change(name) or is_changed_default(name, former, after[name]), name


def test_the_settings_that_3_9_tells_nobody_are_known() -> None:
    assert {name for name, (is_internal, _) in defined(BRIDGE).items() if is_internal} == INTERNAL


def test_no_row_is_of_nothing() -> None:
    after = defaults(BRIDGE)
    seen = {(name, value) for release in RELEASES for name, value in defaults(release).items()}
    for changed in CHANGED_DEFAULTS:
        before = "null" if changed.before is None else changed.before
        assert (changed.name, before) in seen
        assert after[changed.name] == changed.after
    names = {name for name, _ in seen}
    assert REMOVED.keys() <= names
    assert not REMOVED.keys() & after.keys()
    assert NEW_BEHAVIOUR.keys() <= after.keys() - defaults("2.8.2").keys()


def test_what_changes_for_users_has_its_defaults_and_its_release() -> None:
    assert CHANGED_BEHAVIOUR.keys() <= {changed.name for changed in CHANGED_DEFAULTS}
    for name, changed in CHANGED_BEHAVIOUR.items():
        differing = [r for r in RELEASES if defaults(r)[name] != defaults(BRIDGE)[name]]
        assert "2.4.1" in differing
        assert Release.of("2.4.1") < changed.since
        # From that release on only the newest TLS differs.
        later = [r for r in differing if Release.of(r) >= changed.since]
        assert not later or name == "ssl.enabled.protocols"
