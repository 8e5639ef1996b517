"""What comes from outside is bounded: files that settings name, PEM, and what is packed."""

from __future__ import annotations

import base64
import gzip
import io
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.support import slow_stores
from tests.support.cert_manager import authority, secret
from tests.support.fakes import Clock, FakeKubernetes
from tests.support.memory import at_most
from tests.support.observations import IDENTITY, RUN_ID, record

from kraftbridge.builders import names
from kraftbridge.exceptions import ActionRefusedError, InvalidSpecError
from kraftbridge.kafka.client import Security, _unfold, inlined
from kraftbridge.models.entities import EntityKind
from kraftbridge.models.observation import RunState
from kraftbridge.models.phase import Phase
from kraftbridge.models.report import (
    GO_KEY,
    READY_KEY,
    REPORT_KEY,
    VERDICT_KEY,
    AttributeDifference,
    Difference,
    DifferenceState,
    Profile,
    Verdict,
    VerificationReport,
)
from kraftbridge.models.status import MigrationStatus
from kraftbridge.outside import bounds, stores
from kraftbridge.pods.credentials import CredentialsError, chain_problems, keystore
from kraftbridge.services import clients
from kraftbridge.services.act.archives import report_of
from kraftbridge.services.observe.runs import last_run
from kraftbridge.verification.configmap import bounded_report
from kraftbridge.verification.quorum import ConnectionSettingsError, read_security

PEM = {"security.protocol": "SSL", "ssl.truststore.type": "PEM"}


class UnopenedError(Exception):
    pass


@pytest.fixture
def nothing_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, *_: object, **__: object) -> None:
        raise UnopenedError(self)

    for name in ("open", "read_text", "read_bytes"):
        monkeypatch.setattr(Path, name, refuse)


@pytest.mark.usefixtures("nothing_opens")
@pytest.mark.parametrize("store", ["truststore", "keystore"])
@pytest.mark.parametrize("kind", ["PEM", "PKCS12"])
@pytest.mark.parametrize("location", ["/dev/zero", "/proc/self/environ", "../../etc/passwd", "/dev/stdin", "/", ""])
def test_the_operator_opens_no_file_on_a_tenants_word(store: str, kind: str, location: str) -> None:
    kubernetes = FakeKubernetes(Clock())
    text = f"security.protocol=SSL\nssl.{store}.type={kind}\nssl.{store}.location={location}\n"
    kubernetes.create(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "s", "namespace": "kafka"},
            "stringData": {"client.properties": text},
        }
    )
    if not location:
        assert "ssl.truststore.location" not in clients._client_properties(
            kubernetes, "kafka", "s", "client.properties"
        )
        return
    with pytest.raises(InvalidSpecError, match=r"client\.properties: .* is no file of Secret kafka/s.*Put the file"):
        clients._client_properties(kubernetes, "kafka", "s", "client.properties")
    with pytest.raises(InvalidSpecError, match="is not opened here"):
        Security.from_properties({**PEM, f"ssl.{store}.location": location})


def test_a_file_is_a_key_of_the_same_secret() -> None:
    read = bounds.held({"ca.pem": b"-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"}, "Secret kafka/s")
    for location in ("ca.pem", "/etc/kafka/ca.pem"):
        found = inlined({**PEM, "ssl.truststore.location": location}, read)
        assert "BEGIN CERTIFICATE" in found["ssl.truststore.certificates"]
        assert "ssl.truststore.location" not in found


def test_a_store_of_another_kind_is_refused() -> None:
    with pytest.raises(InvalidSpecError, match=r"JKS of x\.jks cannot be read; use PEM"):
        inlined({"security.protocol": "SSL", "ssl.truststore.location": "x.jks"}, bounds.held({"x.jks": b""}, "s"))


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "OPENED_WITHIN_SECONDS", 3.0)


@pytest.mark.usefixtures("soon")
def test_a_store_that_takes_hours_is_given_up_and_nobody_waits_for_it() -> None:
    with slow_stores.others_go_on(), pytest.raises(InvalidSpecError, match="not opened within 3 s"):
        inlined(
            {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": "s.p12", "ssl.keystore.password": "x"},
            bounds.held({"s.p12": slow_stores.store()}, "Secret kafka/s"),
        )


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("password", ["x", ""])
def test_a_key_that_takes_hours_is_given_up(password: str) -> None:
    wanted = "not opened within 3 s" if password else "Password was not given"
    key, chain = slow_stores.key_and_chain()
    settings = {**PEM, "ssl.keystore.key": key, "ssl.keystore.certificate.chain": chain, "ssl.key.password": password}
    with pytest.raises(InvalidSpecError, match=wanted):
        Security.from_properties(settings)


def test_a_key_of_two_large_primes_is_read_at_once() -> None:
    factors = 2**4423 - 1, 2**4253 - 1
    with slow_stores.others_go_on(), pytest.raises(CredentialsError, match="is not the key of the first certificate"):
        keystore(secret(authority()) | {"tls.key": slow_stores.rsa_key(*factors)})


def test_a_chain_of_any_length_is_refused_before_it_is_verified() -> None:
    data = secret(authority())
    for name, most in (("tls.crt", bounds.CHAIN), ("ca.crt", bounds.AUTHORITIES)):
        many = data | {name: data["ca.crt"] * (most + 1)}
        with pytest.raises(CredentialsError, match=f"{name} has {most + 1} certificates, and {most} is the most"):
            chain_problems(many, (), server=False, client=False)


def test_a_program_of_one_tenant_reads_regular_files_only(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"a" * (bounds.FILE_BYTES + 1))
    (tmp_path / "whole").write_bytes(b"a" * bounds.FILE_BYTES)
    for location in ("/dev/zero", str(tmp_path / "pipe"), str(tmp_path)):
        with pytest.raises(bounds.PathRefusedError, match=f"{location} is no regular file"):
            bounds.file(location)
    with at_most(8), pytest.raises(bounds.BoundExceededError, match=r"more than 1.0 MiB"):
        bounds.file(str(tmp_path / "large"))
    assert len(bounds.file(str(tmp_path / "whole"))) == bounds.FILE_BYTES
    (tmp_path / "client.properties").write_text(
        "security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=/dev/zero\n"
    )
    with at_most(8), pytest.raises(ConnectionSettingsError, match="/dev/zero is no regular file"):
        read_security(str(tmp_path / "client.properties"))
    (tmp_path / "zero").write_text("rubbish")
    with pytest.raises(ConnectionSettingsError, match="cannot be used: SSLError"):
        read_security(str(tmp_path / "client.properties"))


def test_pem_takes_time_that_grows_with_the_text_only() -> None:
    block = "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"
    beginnings = "-----BEGIN CERTIFICATE-----" * (bounds.FILE_BYTES // 27)
    assert _unfold(beginnings) == beginnings
    assert len(list(bounds.pem_blocks(block * 10_000))) == 10_000
    assert list(bounds.pem_blocks("x\n" + block + "-----BEGIN A" + block)) == [("CERTIFICATE", "\nQUJD\n")]
    assert (
        _unfold("-----BEGIN CERTIFICATE----- QUJD REVG -----END CERTIFICATE-----")
        == "-----BEGIN CERTIFICATE-----\nQUJD\nREVG\n-----END CERTIFICATE-----\n"
    )


def packed(*parts: bytes) -> bytes:
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", mtime=0) as stream:
        for part in parts:
            stream.write(part)
    return out.getvalue()


def config_map(report: bytes) -> dict[str, object]:
    return {"metadata": {"name": "x"}, "data": {REPORT_KEY: base64.b64encode(report).decode()}}


def test_a_report_that_unpacks_without_end_is_refused() -> None:
    bomb = packed(*[bytes(bounds.MIB)] * 700)
    assert len(base64.b64encode(bomb)) < 950 * bounds.KIB
    words = r"report in ConfigMap x: 6.. KiB.* unpack to more than 8\.0 MiB, and 8\.0 MiB is the most.*Restore"
    with at_most(24), pytest.raises(ActionRefusedError, match=words.replace("6.. KiB", r"[\d.]+ KiB")):
        report_of(config_map(bomb))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b'{"x":[' + b"[]," * (8 * bounds.MIB // 3 - 10) + b"[]]}", "values, and 500,000 is the most"),
        (b"[" * 200_000, "nested deeply"),
        (b"{}", "cannot be read"),
    ],
    ids=["wide", "deep", "no report"],
)
def test_a_report_of_many_values_is_refused_before_it_is_parsed(text: bytes, words: str) -> None:
    with at_most(24), pytest.raises(ActionRefusedError, match=words):
        report_of(config_map(packed(text)))


def test_what_is_not_one_whole_stream_is_refused() -> None:
    whole = packed(b"{}")
    for broken in (whole[:-4], whole + whole, b"rubbish", b""):
        with pytest.raises(OSError, match="gzip"):
            bounds.unpacked(broken, "it", 10, "Nothing.")
    assert bounds.unpacked(whole, "it", 2, "Nothing.") == b"{}"


def test_the_verifier_writes_no_report_that_the_operator_does_not_read() -> None:
    values = dict.fromkeys(("log", "zookeeper"), "v" * 900)
    each = [
        Difference(
            kind=EntityKind.TOPIC_CONFIG,
            key=f"t-{i}",
            state=DifferenceState.CHANGED,
            present_in=["log", "zookeeper"],
            attributes=[AttributeDifference(name=f"a{n}", values=values) for n in range(3)],
        )
        for i in range(5_000)
    ]
    now = datetime.now(UTC)
    report = VerificationReport(
        run_id="r",
        profile=Profile.DUAL_WRITE,
        verdict=Verdict.INCONSISTENT,
        reason="",
        differences=each,
        started_at=now,
        finished_at=now,
    )
    stored, complete = bounded_report(report)
    assert not complete
    found = report_of(config_map(packed(stored.encode())))
    assert 1_000 < len(found.differences) < 5_000
    few = report.model_copy(update={"differences": [d.model_copy(update={"attributes": []}) for d in each]})
    stored, complete = bounded_report(few)
    assert complete
    assert report_of(config_map(packed(stored.encode()))) == few


def test_a_verdict_and_a_release_that_others_wrote_are_read_in_bounds() -> None:
    kubernetes = FakeKubernetes(Clock())
    name = names.verification_config_map(RUN_ID)
    made = {"kind": "ConfigMap", "metadata": {"name": name, "namespace": IDENTITY.namespace, "uid": "u"}}
    unfinished = record(Profile.DUAL_WRITE, Phase.ROLLING_BROKERS, verdict=None, finished=False)
    status = MigrationStatus(verifications=(unfinished,))
    large = '{"x":[' + "[]," * 300_000 + "[]]}"
    kubernetes.objects["ConfigMap", IDENTITY.namespace, name] = made | {"data": {VERDICT_KEY: large}}
    found = last_run(kubernetes, IDENTITY, status)
    assert found.state is RunState.FAILED
    assert "characters, and 32,768 is the most that is read" in found.message
    for go in (large, "[" * 20_000, "no JSON", "[]"):
        kubernetes.objects["ConfigMap", IDENTITY.namespace, name] = made | {"data": {READY_KEY: "{}", GO_KEY: go}}
        assert last_run(kubernetes, IDENTITY, status).state is not RunState.RUNNING
