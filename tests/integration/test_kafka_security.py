"""The clients' security settings against a real broker: SASL PLAIN and SCRAM, TLS with a client certificate, both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509 import load_pem_x509_certificate
from kafka.net.sasl.scram import ScramClient
from kafka.protocol.admin.users import AlterUserScramCredentialsRequest
from tests.integration.certificates import Authority, Certificate
from tests.support.kafka_processes import ZOOKEEPER, kafka_processes, wait_for
from tests.support.programs import free_port

from kraftbridge.builders.broker_overlays import render_properties
from kraftbridge.exceptions import InvalidSpecError, MetadataError, ObservationError
from kraftbridge.kafka.client import Security, inlined
from kraftbridge.kafka.wire import Connection
from kraftbridge.models.observation import BrokerZnode, Endpoint, Unobserved
from kraftbridge.models.report import BrokerAccess
from kraftbridge.models.survey import BrokerSetting, LoginTrial, SettingSource
from kraftbridge.outside import bounds
from kraftbridge.services.observe.inter_broker import Controllers, LoginTrials
from kraftbridge.storage.kafka_brokers import BrokerClient
from kraftbridge.verification.sources.brokers import brokers_behind, served_broker

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kafka-processes")]

PASSWORD = 'p"4 ss\\word'
JAAS_PASSWORD = 'p\\"4 ss\\\\word'


@dataclass(frozen=True)
class Secured:
    ports: dict[str, int]
    authority: Authority
    client: Certificate
    directory: Path

    def client_for(self, listener: str, properties: dict[str, str]) -> BrokerClient:
        return BrokerClient(f"127.0.0.1:{self.ports[listener]}", inlined(properties, bounds.file))

    @property
    def inline_tls(self) -> dict[str, str]:
        return {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": self.authority.certificate.replace("\n", " "),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": self.client.key.replace("\n", "\\n"),
            "ssl.keystore.certificate.chain": self.client.certificate,
        }


def jaas(
    mechanism: str, username: str, password: str = JAAS_PASSWORD, protocol: str = "SASL_PLAINTEXT"
) -> dict[str, str]:
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    return {
        "security.protocol": protocol,
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'org.apache.kafka.common.security.{module} required username="{username}" '
        f'password="{password}";',
    }


def one_line(pem: str) -> str:
    """PEM as one line of a Java properties file."""
    return pem.strip().replace("\n", "\\n")


def create_scram_user(port: int, username: str) -> None:
    """Store SCRAM credentials (KIP-554)."""
    request = AlterUserScramCredentialsRequest
    connection = Connection("127.0.0.1", port, Security(), 5)
    upsertions = []
    for number, mechanism in ((1, "SCRAM-SHA-256"), (2, "SCRAM-SHA-512")):
        scram = ScramClient(username, PASSWORD, mechanism)
        scram.create_salted_password(b"salt-of-the-test", 4096)
        upsertions.append(
            request.ScramCredentialUpsertion(
                name=username,
                mechanism=number,
                iterations=4096,
                salt=b"salt-of-the-test",
                salted_password=scram.salted_password,
            )
        )
    answer = connection.call(request, 10, max_version=0, deletions=[], upsertions=upsertions)
    connection.close()
    assert [r.error_code for r in answer.results] == [0]


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    with kafka_processes([0], []) as processes:
        authority = Authority()
        server = authority.issue("broker")
        ports = {"PLAINTEXT": processes.broker_ports[0]}
        ports |= {name: free_port() for name in ("SASL_PLAINTEXT", "SSL", "SASL_SSL")}
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
        plain = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="{JAAS_PASSWORD}";'
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        lines = [
            f"listeners={listeners}",
            "listener.security.protocol.map=" + ",".join(f"{name}:{name}" for name in ports),
            "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "ssl.client.auth=required",
            "sasl.mechanism.controller.protocol=PLAIN",
            f"listener.name.controller.plain.sasl.jaas.config={plain}".replace("\\", "\\\\"),
            f"listener.name.controller.ssl.truststore.certificates={one_line(authority.certificate)}",
            "ssl.keystore.type=PEM",
            f"ssl.keystore.key={one_line(server.key)}",
            f"ssl.keystore.certificate.chain={one_line(server.certificate)}",
            "ssl.truststore.type=PEM",
            f"ssl.truststore.certificates={one_line(authority.certificate)}",
        ]
        for name in ("sasl_plaintext", "sasl_ssl"):
            prefix = f"listener.name.{name}"
            lines.append(f"{prefix}.plain.sasl.jaas.config=" + plain.replace("\\", "\\\\"))
            lines += [f"{prefix}.scram-sha-{bits}.sasl.jaas.config={scram}" for bits in (256, 512)]
        lines.append("listener.name.sasl_plaintext.connections.max.reauth.ms=60000")
        processes.extra_broker_settings[0] = "\n".join(lines) + "\n"
        processes.start_zookeeper()
        processes.start_broker(0, ZOOKEEPER)
        plaintext = BrokerClient(f"127.0.0.1:{ports['PLAINTEXT']}", {})
        wait_for("the cluster", lambda: plaintext.cluster_state().controller_id == 0)
        plaintext.close()
        create_scram_user(ports["PLAINTEXT"], "ben")
        running = Secured(ports, authority, authority.issue("operator"), processes.directory)
        client = running.client_for("SSL", running.inline_tls)
        wait_for("the first TLS handshake, for which the broker loads classes", lambda: client.cluster_state().brokers)
        client.close()
        yield running


@pytest.mark.parametrize(
    ("mechanism", "username"), [("PLAIN", "ann"), ("SCRAM-SHA-256", "ben"), ("SCRAM-SHA-512", "ben")]
)
def test_sasl_plaintext(secured: Secured, mechanism: str, username: str) -> None:
    client = secured.client_for("SASL_PLAINTEXT", jaas(mechanism, username))
    assert client.cluster_state().brokers == {0}
    assert client.controller_by_broker() == {0: 0}
    client.close()


def test_what_a_broker_has_for_the_controllers_listener_is_seen_by_name(secured: Secured) -> None:
    """Preflight asks the running broker, in ZooKeeper mode and without such a listener, for these names (``BrokerCredentialsMissing``)."""
    client = secured.client_for("SASL_PLAINTEXT", jaas("PLAIN", "ann"))
    (settings,) = client.broker_settings().values()
    client.close()
    assert not isinstance(settings, Unobserved)
    values = {s.name: s.value for s in settings}
    assert values["sasl.mechanism.controller.protocol"] == "PLAIN"
    prefixed = (
        "listener.name.controller.plain.sasl.jaas.config",
        "listener.name.controller.ssl.truststore.certificates",
    )
    assert [values.get(name, "absent") for name in (*prefixed, "ssl.keystore.key")] == [None, None, None]


def test_a_session_with_a_lifetime_is_made_anew_before_it_ends(secured: Secured) -> None:
    client = secured.client_for("SASL_PLAINTEXT", jaas("PLAIN", "ann"))
    client.cluster_state()
    first = client._connection
    assert first.usable
    assert first._expires_at is not None
    first._expires_at = 0.0
    client.cluster_state()
    assert client._connection is not first
    client.close()


@pytest.mark.parametrize(("mechanism", "username"), [("PLAIN", "ann"), ("SCRAM-SHA-256", "ben")])
def test_a_wrong_password_is_named(secured: Secured, mechanism: str, username: str) -> None:
    client = secured.client_for("SASL_PLAINTEXT", jaas(mechanism, username, "wrong"))
    with pytest.raises(ObservationError, match=f"SASL {mechanism} as {username}: .*[Aa]uthentication failed") as caught:
        client.cluster_state()
    assert "wrong" not in str(caught.value), "a password must not reach a message"


def test_tls_with_inline_pem(secured: Secured) -> None:
    client = secured.client_for("SSL", secured.inline_tls)
    assert client.cluster_state().brokers == {0}
    client.close()


def test_tls_with_pem_files(secured: Secured) -> None:
    keys, trust = secured.directory / "client.pem", secured.directory / "ca.pem"
    keys.write_text(secured.client.key + secured.client.certificate)
    trust.write_text(secured.authority.certificate)
    properties = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trust),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys),
    }
    client = secured.client_for("SSL", properties)
    assert client.cluster_state().brokers == {0}
    client.close()


def test_tls_with_pkcs12_files(secured: Secured) -> None:
    keys, trust = secured.directory / "client.p12", secured.directory / "ca.p12"
    key = load_pem_private_key(secured.client.key.encode(), None)
    certificate = load_pem_x509_certificate(secured.client.certificate.encode())
    ca = load_pem_x509_certificate(secured.authority.certificate.encode())
    secret = BestAvailableEncryption(b"changeit")
    keys.write_bytes(serialize_key_and_certificates(b"client", key, certificate, None, secret))
    trust.write_bytes(serialize_key_and_certificates(b"ca", None, None, [ca], secret))
    properties = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": str(trust),
        "ssl.truststore.password": "changeit",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(keys),
        "ssl.keystore.password": "changeit",
    }
    client = secured.client_for("SSL", properties)
    assert client.cluster_state().brokers == {0}
    client.close()


def test_sasl_over_tls(secured: Secured) -> None:
    properties = secured.inline_tls | jaas("SCRAM-SHA-512", "ben", protocol="SASL_SSL")
    client = secured.client_for("SASL_SSL", properties)
    assert client.cluster_state().brokers == {0}
    client.close()


def test_a_broker_of_another_authority_is_refused(secured: Secured) -> None:
    properties = secured.inline_tls | {"ssl.truststore.certificates": Authority().certificate}
    with pytest.raises(ObservationError, match=r"(?i)certificate verify failed"):
        secured.client_for("SSL", properties).cluster_state()


def test_a_client_without_certificate_is_refused(secured: Secured) -> None:
    properties = {k: v for k, v in secured.inline_tls.items() if "keystore" not in k}
    with pytest.raises(ObservationError, match=r"(?i)certificate"):
        secured.client_for("SSL", properties).cluster_state()


def test_plaintext_to_a_tls_listener_fails_in_time(secured: Secured) -> None:
    with pytest.raises(ObservationError, match="none answered"):
        secured.client_for("SSL", {}).cluster_state()


def test_mechanisms_that_this_client_lacks_are_refused_at_once() -> None:
    with pytest.raises(InvalidSpecError, match="GSSAPI is not supported"):
        Security.from_properties({"security.protocol": "SASL_SSL"})


# ------------------------------------------------------------------------------------------------ the verifier's connection


def served(secured: Secured, folder: Path, listener: str, properties: dict[str, str]) -> set[tuple[str, str]]:
    """Ask the broker as the verification does, with the settings in a file as a Secret mounts it."""
    path = folder / "client.properties"
    path.write_text(render_properties(properties))
    (found,) = brokers_behind(f"127.0.0.1:{secured.ports[listener]}", str(path))
    assert (found.id, found.port) == (0, secured.ports[listener])
    with served_broker(found, str(path), 10) as broker:
        return {(entity.kind, entity.key) for entity in [*broker.topics(), *broker.own_configs()]}


@pytest.mark.parametrize("case", ["plaintext", "plain", "scram 256", "scram 512", "inline tls", "both"])
def test_the_verifier_asks_brokers_with_the_users_settings(secured: Secured, tmp_path: Path, case: str) -> None:
    with served_broker(BrokerAccess(id=0, host="127.0.0.1", port=secured.ports["PLAINTEXT"]), None, 10) as b:
        expected = {(entity.kind, entity.key) for entity in [*b.topics(), *b.own_configs()]}
    listener, properties = {
        "plaintext": ("PLAINTEXT", {}),
        "plain": ("SASL_PLAINTEXT", jaas("PLAIN", "ann")),
        "scram 256": ("SASL_PLAINTEXT", jaas("SCRAM-SHA-256", "ben")),
        "scram 512": ("SASL_PLAINTEXT", jaas("SCRAM-SHA-512", "ben")),
        "inline tls": ("SSL", secured.inline_tls),
        "both": ("SASL_SSL", {**secured.inline_tls, **jaas("SCRAM-SHA-512", "ben", protocol="SASL_SSL")}),
    }[case]
    assert served(secured, tmp_path, listener, properties) == expected


def test_the_verifier_names_settings_that_are_refused(secured: Secured, tmp_path: Path) -> None:
    with pytest.raises(MetadataError, match=r"no bootstrap server names the brokers.*authentication"):
        served(secured, tmp_path, "SASL_PLAINTEXT", jaas("SCRAM-SHA-256", "ben", "wrong"))
    with pytest.raises(MetadataError, match="no bootstrap server names the brokers"):
        served(secured, tmp_path, "SSL", {"security.protocol": "SSL"})
    with pytest.raises(MetadataError, match=r"sasl\.mechanism GSSAPI is not supported"):
        served(secured, tmp_path, "SASL_PLAINTEXT", {"security.protocol": "SASL_PLAINTEXT"})


# ------------------------------------------------------------------- the controllers' credentials at the brokers' inter-broker listener


def given(name: str, value: str) -> BrokerSetting:
    return BrokerSetting(name, value, SettingSource.STATIC, sensitive=False, known=True)


def trial(
    secured: Secured, listener: str, settings: dict[str, str], secret: dict[str, str], port: int | None = None
) -> LoginTrial | None:
    """Try what a controller with these settings would connect with, as preflight does."""
    values = {
        s.name: s
        for s in (
            given("inter.broker.listener.name", listener),
            given("listener.security.protocol.map", ",".join(f"{name}:{name}" for name in secured.ports)),
            given("sasl.mechanism.inter.broker.protocol", "SCRAM-SHA-512"),
            given(f"listener.name.{listener.lower()}.ssl.client.auth", "required"),
        )
    }
    znode = BrokerZnode(0, ("127.0.0.1",), (Endpoint(listener, "127.0.0.1", port or secured.ports[listener]),))
    own = secured.client_for("PLAINTEXT", {})
    try:
        controllers = Controllers(settings, secret, lambda address: address)
        return LoginTrials().failed(own, {0: values}, (znode,), controllers).get(0)
    finally:
        own.close()


def login_setting(listener: str, password: str = JAAS_PASSWORD) -> dict[str, str]:
    login = jaas("SCRAM-SHA-512", "ben", password)["sasl.jaas.config"]
    return {f"listener.name.{listener.lower()}.scram-sha-512.sasl.jaas.config": login}


def own_certificate(listener: str) -> dict[str, str]:
    """Name the files that the init container makes of a Secret as cert-manager writes it."""
    prefix, files = f"listener.name.{listener.lower()}.ssl", "/etc/kraftbridge-credentials/listener"
    return {
        f"{prefix}.truststore.type": "PEM",
        f"{prefix}.truststore.location": f"{files}/truststore.pem",
        f"{prefix}.keystore.type": "PEM",
        f"{prefix}.keystore.location": f"{files}/keystore.pem",
    }


def listener_secret(
    secured: Secured, authority: Authority | None = None, own: Certificate | None = None
) -> dict[str, str]:
    client = own or secured.client
    return {
        "tls.crt": client.certificate,
        "tls.key": client.key,
        "ca.crt": (authority or secured.authority).certificate,
    }


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SSL", "SASL_SSL"])
def test_a_broker_that_lets_the_controllers_in_is_no_finding(secured, listener):
    settings = {"SASL_PLAINTEXT": {}}.get(listener, own_certificate(listener))
    settings |= login_setting(listener) if listener.startswith("SASL") else {}
    assert trial(secured, listener, settings, listener_secret(secured)) is None


def test_files_of_the_secret_and_inline_pem_are_tried_as_well(secured):
    prefix = "listener.name.ssl.ssl"
    inline = {
        f"{prefix}.truststore.certificates": one_line(secured.authority.certificate),
        f"{prefix}.keystore.key": one_line(secured.client.key),
        f"{prefix}.keystore.certificate.chain": one_line(secured.client.certificate),
    }
    files = {
        name: value.replace("-credentials/listener", "-listener") for name, value in own_certificate("SSL").items()
    }
    data = {
        "keystore.pem": secured.client.key + secured.client.certificate,
        "truststore.pem": secured.authority.certificate,
    }
    assert trial(secured, "SSL", inline, {}) is None
    assert trial(secured, "SSL", files, data) is None


def test_a_wrong_password_is_refused_in_the_brokers_words(secured):
    for listener, settings in (("SASL_PLAINTEXT", {}), ("SASL_SSL", own_certificate("SASL_SSL"))):
        found = trial(secured, listener, settings | login_setting(listener, "another"), listener_secret(secured))
        assert found is not None
        assert found.tried
        assert "SASL SCRAM-SHA-512 as ben: Authentication failed" in found.reason
        assert (found.listener, found.address) == (listener, f"127.0.0.1:{secured.ports[listener]}")


@pytest.mark.parametrize(("wrong", "words"), [("authority", "CERTIFICATE_VERIFY_FAILED"), ("certificate", "ALERT")])
def test_certificates_that_do_not_fit_are_refused(secured, wrong, words):
    other = Authority()
    data = (
        listener_secret(secured, other)
        if wrong == "authority"
        else listener_secret(secured, own=other.issue("controllers"))
    )
    found = trial(secured, "SSL", own_certificate("SSL"), data)
    assert found is not None
    assert found.tried, found
    assert words in found.reason.upper()


def test_what_cannot_be_tried_is_said_to_be_so(secured):
    own = own_certificate("SSL")
    elsewhere = own | {"listener.name.ssl.ssl.truststore.location": "/etc/elsewhere/ca.pem"}
    java = own | {"listener.name.ssl.ssl.truststore.type": "JKS"}
    for settings, port, words in (
        (elsewhere, None, "/etc/elsewhere/ca.pem is no file of the Secret"),
        (java, None, "has type JKS"),
        (own, free_port(), "Connection refused"),
    ):
        found = trial(secured, "SSL", settings, listener_secret(secured), port)
        assert found is not None
        assert not found.tried
        assert words in found.reason
