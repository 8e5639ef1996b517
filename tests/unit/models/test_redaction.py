"""A secret does not leave in any spelling of it, and what looks like one does not leave at all."""

from __future__ import annotations

import base64
import gzip
import html
import json
import time
import urllib.parse

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftbridge.models.redaction import Redactor

ODD = "p\"w'<d>\\ä&% 5+/=x"
LINES = "first-line-9Qz\nsecond-line-8Kp\n"


def base64_of(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def wrapped(text: str, width: int) -> str:
    return "\n".join(text[at : at + width] for at in range(0, len(text), width))


SPELLINGS = {
    "as it is": lambda value: value,
    "JSON": json.dumps,
    "JSON as it is": lambda value: json.dumps(value, ensure_ascii=False),
    "JSON in JSON": lambda value: json.dumps(json.dumps({"a": value})),
    "URL": lambda value: urllib.parse.quote(value, safe=""),
    "URL with slashes": urllib.parse.quote,
    "URL of a form": urllib.parse.quote_plus,
    "URL in lower case": lambda value: urllib.parse.quote(value, safe="").replace("%2F", "%2f").replace("%3D", "%3d"),
    "HTML": html.escape,
    "YAML in single quotes": lambda value: value.replace("'", "''"),
    "shell": lambda value: value.replace("'", "'\"'\"'"),
    "properties": lambda value: value.replace("\\", "\\\\").replace("=", "\\="),
    "base64": base64_of,
    "base64 for URLs": lambda value: base64.urlsafe_b64encode(value.encode()).decode(),
    "base64 of a longer text": lambda value: base64_of(f"user:{value}:tail"),
    "base64, one off": lambda value: base64_of(f"u:{value}"),
    "base64, two off": lambda value: base64_of(f"us:{value}"),
    "base64 of lines": lambda value: wrapped(base64_of("x" * 50 + value + "y" * 50), 76),
    "base64 of JSON": lambda value: base64_of(json.dumps({"x": value})),
    "base64 twice": lambda value: base64_of(base64_of(value)),
    "packed": lambda value: base64.b64encode(gzip.compress(f"x {value} y".encode())).decode(),
    "hexadecimal": lambda value: value.encode().hex(),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("value", ["hunter2-Value", ODD, LINES.strip()])
def test_a_known_secret_is_seen_in_every_spelling(spelling: str, value: str) -> None:
    spelled = SPELLINGS[spelling](value)
    redactor = Redactor([value])
    redacted = redactor.redact(f"before {spelled} after")
    assert spelled not in redacted
    assert redacted.startswith("before ")
    assert redacted.endswith(" after")
    assert redactor.found_in(f"before {spelled} after")
    assert not redactor.found_in(redacted)


def test_a_secret_of_several_lines_is_seen_line_by_line() -> None:
    redactor = Redactor([LINES])
    redacted = redactor.redact("  first-line-9Qz\n  second-line-8Kp and first-line-9Qz\\nsecond-line-8Kp")
    assert "9Qz" not in redacted
    assert "8Kp" not in redacted


@settings(max_examples=50, deadline=None)
@given(st.text(st.characters(exclude_categories=["C", "Z"]), min_size=6, max_size=30))
def test_any_secret_in_any_json(value: str) -> None:
    text = json.dumps({"a": [value, f"x {value} y"]})
    redacted = Redactor([value]).redact(text)
    assert json.dumps(value)[1:-1] not in redacted or json.dumps(value)[1:-1] in json.dumps({"a": ["***REMOVED***"]})


UNKNOWN = [
    "api.key=hush-hush",
    "vendor.api-key: hush-hush",
    "ACCESS_KEY=hush-hush",
    "apiKey: hush-hush",
    "clientSecret: hush-hush",
    "secret: hush-hush",
    "vendor.license.key=hush-hush",
    "DB_PWD=hush-hush",
    "key.passphrase=hush-hush",
    "basic.auth.user.info=user:hush-hush",
    "sas_signature=hush-hush",
    "--password hush-hush --x y",
    "args:\n- --api-key\n- hush-hush\n",
    '["--password", "hush-hush"]',
    "-Djavax.net.ssl.keyStorePassword=hush-hush -Dx=y",
    "zookeeper.connect=admin:hush-hush@zk:2181/kafka",
    "https://user:" + "hush-hush@proxy:3128/x",
    "jdbc:postgresql://db/x?user=a&password=hush-hush",
    r"{\"password\": \"hush-hush\"}",
    r"password=\"hush-hush\" username=\"x\"",
    r'password="a\"hush-hush"; other=1',
    "ssl.keystore.key=abc\\\n  hush-hush\\\n  hush-hush\nx=1",
    "password: |\n  hush-hush\n  hush-hush\nother: 1\n",
    "  password: >-\n      hush-hush\n\n      hush-hush\n  other: 1\n",
    "- name: MY_API_KEY\n  value: hush-hush\n",
    '{"name": "MY_API_KEY", "value": "hush-hush"}',
    '{"value": "hush-hush", "name": "MY_API_KEY"}',
    "-----BEGIN PRIVATE KEY-----\nhush-hush\n-----END PRIVATE KEY-----",
    "-----BEGIN PGP PRIVATE KEY BLOCK-----\nhush-hush\n",
    r"-----BEGIN RSA PRIVATE KEY-----\nhush-hush\n-----END RSA PRIVATE KEY-----",
    "url-encoded password%3Dhush-hush%3B",
    "Authorization: Basic aHVzaC1odXNoLWh1c2g6eA==hush-hush",
    "base64 " + base64_of("sasl.password=hush-hush"),
]


@pytest.mark.parametrize("text", UNKNOWN)
def test_what_looks_like_a_secret_is_removed(text: str) -> None:
    redacted = Redactor().redact(text)
    assert "hush" not in redacted
    assert base64_of("sasl.password=hush-hush") not in redacted


PLAIN = [
    "broker.id=1",
    "zookeeper.connect=zk:2181/kafka",
    "advertised.listeners=SSL://kafka-0.kafka:9093",
    "secretName: zk-auth",
    "topologyKey: kubernetes.io/hostname",
    "image: registry:5000/kafka@sha256:" + "0f" * 32,
    "key.deserializer and compass, bypass, passive",
    "at org.apache.kafka.common.utils.Utils.longMethodNameOfManyWords(Utils.java:12)",
    "uid: 6b1f7a9e-2a55-4d61-9f53-0f7f5be2b6ba",
    "log.retention.ms=1 50% done",
]


@pytest.mark.parametrize("text", PLAIN)
def test_what_is_no_secret_stays(text: str) -> None:
    assert Redactor(["other-value"]).redact(text) == text


LONG = [
    "a", "a.", "-----BEGIN PRIVATE KEY-----", "%20", "password", "name: \n", '"name": "x",', "x:", "a://", "password: |\n",
    " ", "\\", "password=\\\n", '"', "--x ", "- name: a.password\n  value: ", "A" * 60 + "\n",
]  # fmt: skip


@pytest.mark.parametrize("part", LONG)
def test_redaction_takes_time_that_grows_with_the_text_only(part: str) -> None:
    began = time.process_time()
    Redactor(["hunter2-Value", ODD]).redact(part * (300_000 // len(part)))
    assert time.process_time() - began < 5
