"""What comes from outside is bounded: files that settings name, PEM, and what is packed."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.fakes import Clock, FakeKubernetes

from kraftbridge import bounds
from kraftbridge.exceptions import InvalidSpecError
from kraftbridge.kafka.client import Security, _unfold, inlined
from kraftbridge.services import clients
from kraftbridge.verification.quorum import ConnectionSettingsError, read_security

PEM = {"security.protocol": "SSL", "ssl.truststore.type": "PEM"}


@contextmanager
def at_most(mebibytes: int) -> Iterator[None]:
    """Fail if Python allocates more at any moment of the block."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < mebibytes * bounds.MIB, bounds.size(peak)


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
