"""The operator's own authority: what it issues, when it renews, and what it takes for foreign."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID

from kraftbridge.listener import authority
from kraftbridge.listener.authority import Purpose
from kraftbridge.pods.credentials import CredentialsError, listener_problems, subject

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
HOSTS = ("c-3000.c.kafka.svc.cluster.local", "c-3001.c.kafka.svc.cluster.local")
CONTROLLERS, BROKERS = Purpose("kraftbridge-controllers-1a2b3c4d", HOSTS), Purpose("kraftbridge-brokers-1a2b3c4d")


def texts(files: dict[str, bytes]) -> dict[str, str]:
    return {name: content.decode() for name, content in files.items() if not name.endswith(".p12")}


@pytest.fixture(scope="module")
def signer() -> dict[str, str]:
    return texts(authority.new_authority("kraftbridge listener 1a2b3c4d", NOW))


@pytest.fixture(scope="module")
def stranger() -> dict[str, str]:
    return texts(authority.new_authority("kraftbridge listener 1a2b3c4d", NOW))


def leaf(data: dict[str, str]) -> x509.Certificate:
    return x509.load_pem_x509_certificate(data["tls.crt"].encode())


def test_the_controllers_certificate_is_one_that_preflight_accepts(signer: dict[str, str]) -> None:
    data = texts(authority.issue(signer, CONTROLLERS, 1825, NOW))
    assert listener_problems(data, "SSL", HOSTS, NOW) == ()
    assert authority.problem(data, CONTROLLERS, signer) == ""
    assert subject(data) == "CN=kraftbridge-controllers-1a2b3c4d"
    assert leaf(data).not_valid_after_utc == NOW + timedelta(days=1825)
    assert data["tls.key"].startswith("-----BEGIN PRIVATE KEY-----"), "PKCS#8, as Kafka reads it"


def test_a_brokers_certificate_is_no_servers_and_comes_in_both_forms(signer: dict[str, str]) -> None:
    files = authority.with_stores(authority.issue(signer, BROKERS, 1825, NOW))
    usage = leaf(texts(files)).extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert authority.stores_problem(files) == ""
    key, certificate, _ = pkcs12.load_key_and_certificates(files["keystore.p12"], files["password"])
    assert key is not None
    assert certificate == leaf(texts(files))
    renewed = authority.with_stores(authority.issue(signer, BROKERS, 1825, NOW), files["password"].decode())
    assert renewed["password"] == files["password"], "the brokers' configuration refers to it"
    assert renewed["keystore.pem"] != files["keystore.pem"]


def test_no_certificate_outlives_its_authority(signer: dict[str, str]) -> None:
    late = NOW + authority.AUTHORITY_LIFETIME - timedelta(days=100)
    assert leaf(texts(authority.issue(signer, BROKERS, 1825, late))).not_valid_after_utc == NOW + timedelta(days=3650)


@pytest.mark.parametrize(
    ("after", "due"),
    [
        (timedelta(0), False),
        (timedelta(days=1210), False),
        (timedelta(days=1220), True),
        (timedelta(days=2000), True),
        (timedelta(days=3650), True),
    ],
    ids=str,
)
def test_two_thirds_of_the_lifetime_make_a_renewal_due(signer: dict[str, str], after: timedelta, due: bool) -> None:
    data = texts(authority.issue(signer, CONTROLLERS, 1825, NOW))
    last = after == timedelta(days=3650)
    assert authority.is_due(data, signer, 1825, NOW + after) is due or (last and due)


def test_a_renewal_that_gains_nothing_is_not_due(signer: dict[str, str]) -> None:
    late = NOW + timedelta(days=3000)
    data = texts(authority.issue(signer, CONTROLLERS, 1825, late))
    for days in range(600):
        assert not authority.is_due(data, signer, 1825, late + timedelta(days=days)), "the authority ends with it"


def test_a_short_lifetime_is_renewed_too(signer: dict[str, str]) -> None:
    data = texts(authority.issue(signer, CONTROLLERS, 1, NOW))
    assert not authority.is_due(data, signer, 1, NOW + timedelta(hours=12))
    assert authority.is_due(data, signer, 1, NOW + timedelta(hours=17))


def test_what_somebody_put_in_its_place_is_a_problem(signer: dict[str, str], stranger: dict[str, str]) -> None:
    data = texts(authority.issue(signer, CONTROLLERS, 1825, NOW))
    foreign = texts(authority.issue(stranger, CONTROLLERS, 1825, NOW))
    other_hosts = texts(authority.issue(signer, Purpose(CONTROLLERS.common_name, ("else.svc",)), 1825, NOW))
    cases = {
        "is not the operator's authority": foreign,
        "has no certificate that signed": data | {"tls.crt": foreign["tls.crt"], "tls.key": foreign["tls.key"]},
        "is not the key of": data | {"tls.key": foreign["tls.key"]},
        "tls.crt is missing": {k: v for k, v in data.items() if k != "tls.crt"},
        "ca.crt is missing": {k: v for k, v in data.items() if k != "ca.crt"},
        "is not a certificate in PEM": data | {"tls.crt": "edited"},
        "no subject alternative name": other_hosts,
        "has the subject": texts(authority.issue(signer, Purpose("another", HOSTS), 1825, NOW)),
        "lacks the usage 'server auth'": texts(authority.issue(signer, Purpose(CONTROLLERS.common_name), 1825, NOW)),
    }
    for words, case in cases.items():
        found = authority.problem(case, CONTROLLERS, signer)
        expected = "no subject alternative name" if words.startswith("lacks") else words
        assert expected in found, (words, found)
    assert authority.problem(foreign, CONTROLLERS, None) == "", "nobody knows the authority"


def test_an_edited_key_store_is_a_problem(signer: dict[str, str]) -> None:
    files = authority.with_stores(authority.issue(signer, BROKERS, 1825, NOW))
    other = authority.with_stores(authority.issue(signer, BROKERS, 1825, NOW), files["password"].decode())
    for name in ("keystore.pem", "keystore.p12", "truststore.p12", "password"):
        assert name in authority.stores_problem({k: v for k, v in files.items() if k != name})
        assert authority.stores_problem(files | {name: b"edited"})
    for name in ("keystore.pem", "keystore.p12"):
        assert authority.stores_problem(files | {name: other[name]})


def test_what_is_no_authority_issues_nothing(signer: dict[str, str], stranger: dict[str, str]) -> None:
    no_authority = texts(authority.issue(signer, CONTROLLERS, 1825, NOW))
    assert authority.authority_problem(signer, NOW) == ""
    assert "is no authority" in authority.authority_problem(no_authority, NOW)
    assert "is not the key" in authority.authority_problem(signer | {"tls.key": stranger["tls.key"]}, NOW)
    assert "expired" in authority.authority_problem(signer, NOW + timedelta(days=3651))
    with pytest.raises(CredentialsError):
        authority.issue({}, CONTROLLERS, 1825, NOW)
