"""Kafka settings from and to environment variables and properties files."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kraftbridge.builders.broker_overlays import render_properties, setting_of, short_hash, with_listener
from kraftbridge.models.broker_settings import variable_of
from kraftbridge.outside.properties import parse_properties

names = st.from_regex(r"[a-z0-9]+([._-][a-z0-9]+)*", fullmatch=True)
"""Names as Kafka has them: lower case, one separator at a time (``listener.name.internal.sasl_ssl.…`` is user-made)."""


@settings(deadline=None)
@given(names, st.sampled_from(["KAFKA_", "KAFKA_CFG_"]))
def test_a_setting_survives_its_variable(name: str, prefix: str) -> None:
    variable = variable_of(name, prefix)
    assert variable == variable.upper()
    assert (
        setting_of(variable, prefix) == name
        or variable.startswith("KAFKA_LOG4J")
        or variable in {"KAFKA_OPTS", "KAFKA_VERSION"}
    )


@pytest.mark.parametrize(
    ("setting", "variable"),
    [
        ("zookeeper.connect", "KAFKA_ZOOKEEPER_CONNECT"),
        ("zookeeper.metadata.migration.enable", "KAFKA_ZOOKEEPER_METADATA_MIGRATION_ENABLE"),
        ("listener.security.protocol.map", "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"),
        ("zookeeper.clientCnxnSocket", "KAFKA_ZOOKEEPER_CLIENTCNXNSOCKET"),
        ("listener.name.sasl_ssl.plain.sasl.jaas.config", "KAFKA_LISTENER_NAME_SASL__SSL_PLAIN_SASL_JAAS_CONFIG"),
        ("listener.name.scram-sha.x", "KAFKA_LISTENER_NAME_SCRAM___SHA_X"),
    ],
)
def test_variables_as_the_images_read_them(setting: str, variable: str) -> None:
    assert variable_of(setting, "KAFKA_") == variable


@pytest.mark.parametrize(
    "variable", ["KAFKA_OPTS", "KAFKA_HEAP_OPTS", "KAFKA_LOG4J_LOGGERS", "KAFKA_JMX_OPTS", "PATH", "CLUSTER_ID"]
)
def test_variables_that_are_no_settings(variable: str) -> None:
    assert setting_of(variable, "KAFKA_") is None


def test_bitnamis_prefix_leaves_other_variables_alone() -> None:
    assert setting_of("KAFKA_CFG_BROKER_ID", "KAFKA_CFG_") == "broker.id"
    assert setting_of("KAFKA_BROKER_ID", "KAFKA_CFG_") is None


JAVA = [
    ("a=1", {"a": "1"}),
    ("a:1", {"a": "1"}),
    ("a 1", {"a": "1"}),
    ("a\t1", {"a": "1"}),
    ("a = b = c", {"a": "b = c"}),
    ("a=http://x", {"a": "http://x"}),
    ("a:x=y", {"a": "x=y"}),
    ("url:jdbc=1", {"url": "jdbc=1"}),
    ("# a=1\n! b=2\n\nc=3", {"c": "3"}),
    ("   a=1", {"a": "1"}),
    ("a=1\na=2", {"a": "2"}),
    ("a=1,\\\n   2,\\\n   3", {"a": "1,2,3"}),
    ("# comment \\\na=1", {"a": "1"}),
    ("a=x\\\\\nb=2", {"a": "x\\", "b": "2"}),
    ("a=", {"a": ""}),
    ("a", {"a": ""}),
    ("a=1\r\nb=2\r\n", {"a": "1", "b": "2"}),
    ("a=1,\\\r\n 2", {"a": "1,2"}),
    ("a=x\\ty", {"a": "x\ty"}),
    ("a=\\u0041", {"a": "A"}),
    ("a\\ b=1", {"a b": "1"}),
    ("a\\:b=1", {"a:b": "1"}),
    ("a=C\\:\\\\x", {"a": "C:\\x"}),
    ("a=trailing  ", {"a": "trailing  "}),
]
"""Files, and what ``java.util.Properties.load`` reads from them (checked with Java 17)."""


@pytest.mark.parametrize(("text", "settings"), JAVA, ids=[repr(t) for t, _ in JAVA])
def test_properties_are_read_as_java_reads_them(text: str, settings: dict[str, str]) -> None:
    # Kafka's ConfigDef trims values, so blanks at the end make no difference to a broker.
    assert {k: v.strip() for k, v in parse_properties(text).items()} == {k: v.strip() for k, v in settings.items()}


values = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=40).map(str.strip)


@example({"a": "C:\\x"})
@settings(deadline=None)
@given(st.dictionaries(names, values, max_size=8))
def test_rendered_properties_read_back(settings: dict[str, str]) -> None:
    text = render_properties(settings)
    assert parse_properties(text) == settings
    assert len(text.splitlines()) == len(settings)


@pytest.mark.parametrize("value", ["a\nprocess.roles=controller", "a\rb=1", "a\r\nb=1"])
def test_a_line_break_injects_no_setting(value: str) -> None:
    try:
        text = render_properties({"a": value})
    except ValueError:
        return  # refusing is fine, too
    assert parse_properties(text) == {"a": value}
    assert len(text.splitlines()) == 1


@pytest.mark.parametrize(
    ("present", "wanted"),
    [
        (None, "CONTROLLER:SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"),
        ("", "CONTROLLER:SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"),
        ("INTERNAL:SASL_SSL, EXTERNAL:SSL", "CONTROLLER:SSL,INTERNAL:SASL_SSL,EXTERNAL:SSL"),
        ("CONTROLLER:PLAINTEXT,INTERNAL:SSL", "CONTROLLER:SSL,INTERNAL:SSL"),
        ("controller:PLAINTEXT,INTERNAL:SSL", "CONTROLLER:SSL,INTERNAL:SSL"),
        ("INTERNAL:SSL,", "CONTROLLER:SSL,INTERNAL:SSL"),
    ],
)
def test_the_listener_map_gains_one_listener(present: str | None, wanted: str) -> None:
    assert with_listener(present, "CONTROLLER", "SSL") == wanted


@settings(deadline=None)
@given(st.dictionaries(names, values, max_size=5))
def test_the_hash_depends_on_content_only(settings: dict[str, str]) -> None:
    turned = dict(reversed(settings.items()))
    assert short_hash([settings]) == short_hash([turned])
    assert short_hash([settings]) != short_hash([settings, "more"])
