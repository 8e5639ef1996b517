"""Certificates as cert-manager writes them become what Kafka reads, and what controllers could not use is named before they start."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509 import load_pem_x509_certificates
from cryptography.x509.oid import ExtendedKeyUsageOID
from tests.support.cert_manager import KeyKind, authority, secret

from kraftbridge.kafka.client import Security
from kraftbridge.pods.credentials import (
    CredentialsError,
    client_properties,
    keystore,
    listener_files,
    listener_problems,
    main,
    truststore,
)

NOW = dt.datetime.now(dt.UTC)
HOSTS = [f"demo-kraft-{i}.demo-kraft.kafka.svc.cluster.local" for i in (3000, 3001, 3002)]
WILDCARD = "*.demo-kraft.kafka.svc.cluster.local"
ROOT = authority()


@pytest.mark.parametrize("kind", KeyKind)
def test_every_key_becomes_pkcs8_and_the_chain_stays_whole(kind: KeyKind) -> None:
    intermediate = authority("an intermediate", ROOT)
    data = secret(intermediate, [WILDCARD], kind)
    text = keystore(data)
    assert "-----BEGIN PRIVATE KEY-----" in text
    assert "RSA PRIVATE KEY" not in text
    assert "EC PRIVATE KEY" not in text
    key, chain = load_pem_private_key(text.encode(), None), load_pem_x509_certificates(text.encode())
    assert key.public_key() == chain[0].public_key()
    assert [c.issuer for c in chain] == [intermediate.certificate.subject, ROOT.certificate.subject]
    assert listener_problems(data, "SSL", HOSTS, NOW) == ()


def test_every_authority_of_a_bundle_is_trusted() -> None:
    data = secret(ROOT, bundle=(authority("the former root"), authority("another")))
    assert len(load_pem_x509_certificates(truststore(data).encode())) == 3


def test_clients_show_a_certificate_unless_they_log_in() -> None:
    data = secret(ROOT)
    assert "client.auth=required" in listener_files(data, "SSL", "/c")["listener.properties"]
    assert "client.auth" not in listener_files(data, "SASL_SSL", "/c")["listener.properties"]
    assert listener_files({"listener.properties": "a=b"}, "SSL", "/c") == {}


@pytest.mark.parametrize("kind", KeyKind)
def test_the_operators_client_shows_the_listeners_certificate_or_uses_its_login(kind: KeyKind) -> None:
    data = secret(ROOT, kind=kind)
    properties = client_properties(data, "SSL")
    assert Security.from_properties(properties).tls is not None
    assert client_properties(secret(ROOT), "SASL_SSL") == {}
    login = data | {"sasl.jaas.config": 'x required username="u" password="p";'}
    found = Security.from_properties(client_properties(login, "SASL_SSL"))
    assert (found.mechanism, found.username, found.password) == ("PLAIN", "u", "p")
    assert "ssl.keystore.key" not in client_properties(login, "SASL_SSL")
    assert client_properties(login, "SSL") == properties
    assert client_properties({"listener.properties": "a=b"}, "SSL") == {}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (secret(ROOT, ["kafka.example"]), f"no subject alternative name for {', '.join(HOSTS)}"),
        (secret(ROOT, HOSTS[:2]), f"no subject alternative name for {HOSTS[2]}"),
        (secret(ROOT, ["*.kafka.svc.cluster.local"]), "no subject alternative name"),
        (secret(ROOT, [WILDCARD], expires=NOW - dt.timedelta(hours=1)), "tls.crt expired at"),
        (secret(ROOT, [WILDCARD], usages=[ExtendedKeyUsageOID.SERVER_AUTH]), "lacks the usage 'client auth'"),
        (
            secret(ROOT, [WILDCARD]) | {"ca.crt": authority("another").pem},
            "ca.crt has no certificate that signed tls.crt",
        ),
        (secret(ROOT, [WILDCARD]) | {"ca.crt": ""}, "ca.crt is missing"),
        (secret(ROOT, [WILDCARD]) | {"tls.key": secret(ROOT)["tls.key"]}, "not the key of the first certificate"),
        (secret(ROOT, [WILDCARD]) | {"tls.key": "-----BEGIN"}, "tls.key is not a private key"),
        (secret(ROOT, [WILDCARD]) | {"tls.crt": "x"}, "tls.crt is not a certificate"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_certificate_that_controllers_cannot_use_is_named(data: dict[str, str], words: str) -> None:
    assert any(words in problem for problem in listener_problems(data, "SSL", HOSTS, NOW))


def test_with_sasl_no_certificate_of_a_client_is_needed() -> None:
    data = secret(ROOT, [WILDCARD], usages=[ExtendedKeyUsageOID.SERVER_AUTH])
    assert listener_problems(data, "SASL_SSL", HOSTS, NOW) == ()


def test_a_certificate_without_usages_may_be_used_for_all() -> None:
    assert listener_problems(secret(ROOT, HOSTS, usages=()), "SSL", HOSTS, NOW) == ()


def test_the_init_container_writes_files_for_its_user_only(tmp_path: Path) -> None:
    for name, data in {"listener": secret(ROOT), "zookeeper": secret(ROOT)}.items():
        (tmp_path / name).mkdir()
        for key, text in data.items():
            (tmp_path / name / key).write_text(text)
    out = tmp_path / "out"
    arguments = ["--listener", str(tmp_path / "listener"), "--zookeeper", str(tmp_path / "zookeeper")]
    assert main([*arguments, "--directory", str(out)]) == 0
    written = {str(p.relative_to(out)) for p in out.rglob("*") if p.is_file()}
    assert written == {
        "listener/keystore.pem",
        "listener/truststore.pem",
        "listener/listener.properties",
        "zookeeper/keystore.pem",
    }
    assert all(p.stat().st_mode & 0o077 == 0 for p in out.rglob("*"))
    assert f"keystore.location={out}/listener/keystore.pem" in (out / "listener/listener.properties").read_text()


def test_secrets_without_certificates_give_no_files(tmp_path: Path) -> None:
    (tmp_path / "listener").mkdir()
    (tmp_path / "listener/listener.properties").write_text("a=b")
    arguments = ["--listener", str(tmp_path / "listener"), "--zookeeper", str(tmp_path / "absent")]
    assert main([*arguments, "--directory", str(tmp_path / "out")]) == 0
    assert not [p for p in (tmp_path / "out").rglob("*") if p.is_file()]


def test_the_init_container_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tls.crt").write_text(secret(ROOT)["tls.crt"])
    assert main(["--listener", str(tmp_path), "--directory", str(tmp_path / "out")]) == 1
    assert (
        capsys.readouterr().err
        == "the Secret of spec.controllers.listener.secretName cannot be used: tls.key is missing\n"
    )


def test_the_error_of_a_key_with_a_password_does_not_show_it() -> None:
    with pytest.raises(CredentialsError, match="without password"):
        keystore(
            secret(ROOT)
            | {"tls.key": "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----"}
        )
