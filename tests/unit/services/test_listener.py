"""What the operator reads of the controllers' credentials, without a controller."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import pytest
from tests.support.cert_manager import authority, secret
from tests.support.observations import spec_document

from kraftbridge.listener.logins import Logins
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.services.listener import (
    CannotBeTriedError,
    key_and_chain,
    listener_of_controllers,
    of_listener,
    trusted,
)

FOLDER = "/etc/kraftbridge-listener"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def spec(protocol: str, **config: str) -> MigrationSpec:
    document: dict[str, Any] = spec_document()
    document["controllers"] |= {"listener": {"securityProtocol": protocol, "secretName": "l"}, "config": config}
    return MigrationSpec.model_validate(document)


def test_a_setting_of_the_listener_overrides_the_common_one() -> None:
    own = of_listener({"ssl.key.password": "a", "listener.name.internal.ssl.key.password": "b"}, "INTERNAL")
    assert own["ssl.key.password"] == "b"
    assert of_listener({"ssl.key.password": "a"}, "INTERNAL")["ssl.key.password"] == "a"


def test_stores_are_files_of_the_secret_or_written_by_the_init_container() -> None:
    data = secret(authority())
    own = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": f"{FOLDER}/ca.crt",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": "/etc/kraftbridge-credentials/listener/keystore.pem",
    }
    assert trusted(own, data) == data["ca.crt"]
    key, chain = key_and_chain(own, data)
    assert key.startswith("-----BEGIN PRIVATE KEY-----")
    assert chain.count("BEGIN CERTIFICATE") == data["tls.crt"].count("BEGIN CERTIFICATE")
    assert key_and_chain({}, data) == ("", "")


@pytest.mark.parametrize(
    ("protocol", "properties", "words"),
    [
        ("SSL", "", "has no certificate of the listener"),
        (
            "SSL",
            f"listener.name.controller.ssl.keystore.location={FOLDER}/keystore.p12\nlistener.name.controller.ssl.keystore.type=PKCS12\n",
            "has type PKCS12, and the operator reads PEM only",
        ),
        (
            "SSL",
            f"listener.name.controller.ssl.keystore.location={FOLDER}/none.pem\nlistener.name.controller.ssl.keystore.type=PEM\n",
            "none.pem is no file of the Secret",
        ),
        ("SASL_PLAINTEXT", "sasl.mechanism.controller.protocol=OAUTHBEARER\n", "a login with OAUTHBEARER"),
        ("SASL_PLAINTEXT", "sasl.mechanism.controller.protocol=PLAIN\n", "names no user"),
        (
            "SASL_PLAINTEXT",
            "sasl.mechanism.controller.protocol=PLAIN\nlistener.name.controller.plain.sasl.server.callback.handler.class=x.Y\n",
            "only Kafka itself can check",
        ),
    ],
)
def test_what_the_operator_cannot_know_has_a_reason(protocol: str, properties: str, words: str) -> None:
    with pytest.raises(CannotBeTriedError, match=words):
        listener_of_controllers(spec(protocol), {"listener.properties": properties})


def test_users_of_a_plain_login_are_read_as_java_reads_them() -> None:
    login = rf'{PLAIN} username="c" password="x" user_c="a \"b\" \\ c" user_d=plain;'
    escaped = login.replace("\\", "\\\\")
    properties = (
        f"sasl.mechanism.controller.protocol=PLAIN\nlistener.name.controller.plain.sasl.jaas.config={escaped}\n"
    )
    found = listener_of_controllers(spec("SASL_PLAINTEXT"), {"listener.properties": properties})
    assert found is not None
    assert found.users == {"c": 'a "b" \\ c', "d": "plain"}
    assert listener_of_controllers(spec("PLAINTEXT"), {}) is None


@pytest.mark.parametrize("unit", ["user_-", "user_a ", "user_a", 'user_a="', 'user_a="\\\\'])
def test_a_login_of_any_form_is_read_in_time_that_grows_with_it(unit: str) -> None:
    """The operator reads it for one tenant, and all others wait meanwhile."""
    login = (unit * 60_000)[:300_000]
    properties = f"sasl.mechanism.controller.protocol=PLAIN\nlistener.name.controller.plain.sasl.jaas.config={login}\n"
    began = time.process_time()
    with suppress(CannotBeTriedError):
        listener_of_controllers(spec("SASL_PLAINTEXT"), {"listener.properties": properties})
    assert time.process_time() - began < 10.0


def test_the_logins_that_the_operator_issues_are_tried_without_a_controller() -> None:
    issued = Logins("1a2b3c4d", "c" * 43, "b" * 43)
    data = secret(authority()) | {name: content.decode() for name, content in issued.for_controllers().items()}
    found = listener_of_controllers(spec("SASL_SSL"), data)
    assert found is not None
    assert found.users == {"kraftbridge-controllers-1a2b3c4d": "c" * 43, "kraftbridge-brokers-1a2b3c4d": "b" * 43}


def test_clients_need_a_certificate_only_where_the_listener_asks_for_one() -> None:
    data = secret(authority())
    found = listener_of_controllers(spec("SSL"), data)
    assert found is not None
    assert (found.authorities != "", found.users) == (True, {})
    users = f'sasl.mechanism.controller.protocol=PLAIN\nlistener.name.controller.plain.sasl.jaas.config={PLAIN} user_c="x";\n'
    both = listener_of_controllers(spec("SASL_SSL"), data | {"listener.properties": users})
    assert both is not None
    assert (both.certificate, both.authorities, both.users) == (found.certificate, "", {"c": "x"})
