"""One list says what is secret: for settings by their name, and for texts by the words in a name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftbridge.models.broker_settings import RULES
from kraftbridge.models.secrecy import OF_TOPICS, PASSWORDS, is_secret_setting
from kraftbridge.plugin.redaction import Redactor
from kraftbridge.rehearsal.controller_log import without

VALUE = "hunter2hunter2"
NAMES = (
    "vendor.api.key",
    "vendor.access-key",
    "ldap.bind.passwd",
    "key.passphrase",
    "registry.basic.auth.credentials",
    "metrics.token",
    *sorted(PASSWORDS),
)


@given(st.sampled_from(sorted(RULES)), st.sampled_from(["", "listener.name.a.", "listener.name.a_b.scram-sha-256."]))
def test_a_known_setting_is_secret_exactly_when_it_is_a_password(name: str, prefix: str) -> None:
    assert is_secret_setting(prefix + name) is (name in PASSWORDS)


@given(st.from_regex(r"[a-z]{1,8}(\.[a-z]{1,8}){0,4}", fullmatch=True))
def test_what_kafka_does_not_define_is_secret(name: str) -> None:
    known = name in RULES or name in OF_TOPICS
    assert known or is_secret_setting("vendor." + name)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", ["{}={}", "{} = {}", '"{}": "{}"', "{}: {}"])
def test_a_text_that_names_a_secret_loses_its_value(name: str, form: str) -> None:
    text = form.format(name, VALUE)
    assert VALUE not in Redactor().redact(text)
    assert VALUE not in without((), text)
