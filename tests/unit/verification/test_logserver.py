"""The log server over real TLS on loopback."""

from __future__ import annotations

import datetime as dt
import http.client
import os
import socket
import socketserver
import ssl
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kraftbridge.exceptions import LogUnavailableError, ObservationError
from kraftbridge.metadata.log import files as log_files
from kraftbridge.metadata.log.files import FileVanishedError, LocalLogFiles, RemoteLogFiles, listing
from kraftbridge.metadata.log.replay import LogReplay
from kraftbridge.pods import logserver
from kraftbridge.pods.logserver import LogServer
from kraftbridge.storage import paths as storage_paths

DATA = Path(__file__).resolve().parents[2] / "data" / "metadata" / "dualwrite" / "c3000"
TOKEN = "a-token-of-this-test-run"


def write_certificate(folder: Path, name: str = "127.0.0.1") -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    import ipaddress

    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "tls.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "tls.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[LogServer, Path]]:
    write_certificate(tmp_path)
    (tmp_path / "token").write_text(TOKEN + "\n")
    server = LogServer(("127.0.0.1", 0), DATA, tmp_path / "tls.crt", tmp_path / "tls.key", tmp_path / "token")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield server, tmp_path
    server.shutdown()
    server.server_close()


def remote(server: LogServer, folder: Path) -> RemoteLogFiles:
    return RemoteLogFiles(f"https://127.0.0.1:{server.server_address[1]}", folder / "token", folder / "tls.crt")


def get(server: LogServer, folder: Path, path: str, method: str = "GET", **headers: str) -> http.client.HTTPResponse:
    context = ssl.create_default_context(cafile=str(folder / "tls.crt"))
    connection = http.client.HTTPSConnection("127.0.0.1", server.server_address[1], context=context, timeout=5)
    connection.request(method, path, headers=headers)
    response = connection.getresponse()
    response.read()
    return response


def test_a_replay_through_the_server_equals_a_local_one(served):
    server, folder = served
    local, through = LogReplay(LocalLogFiles(DATA)), LogReplay(remote(server, folder))
    assert through.advance() == local.advance()
    assert through.end_offset == local.end_offset == 1684


def test_ranges(served):
    server, folder = served
    files = remote(server, folder)
    name = "00000000000000000000.log"
    whole = (DATA / "__cluster_metadata-0" / name).read_bytes()
    assert files.read(name, 10, 20) == whole[10:20]
    assert files.read(name, len(whole) - 5, len(whole) + 100) == whole[-5:]
    assert files.read(name, len(whole), len(whole) + 1) == b""
    assert listing(files) == listing(LocalLogFiles(DATA))


def test_a_vanished_file_is_told_from_a_failure(served):
    server, folder = served
    with pytest.raises(FileVanishedError, match="deleted"):
        remote(server, folder).read("00000000000000009999.log", 0, 1)


def test_what_kafkas_container_puts_beside_the_log_opens_no_other_file(tmp_path):
    """Both containers see the volume of the log: a link could name the server's own key, and a pipe holds a thread for good."""
    write_certificate(tmp_path)
    (tmp_path / "token").write_text(TOKEN + "\n")
    log = tmp_path / "data" / "__cluster_metadata-0"
    log.mkdir(parents=True)
    link, pipe, honest = (f"{number:020}.log" for number in range(3))
    (log / link).symlink_to(tmp_path / "tls.key")
    os.mkfifo(log / pipe)
    (log / honest).write_bytes(b"a batch")
    os.mkfifo(log.parent / "meta.properties")
    server = LogServer(("127.0.0.1", 0), log.parent, tmp_path / "tls.crt", tmp_path / "tls.key", tmp_path / "token")
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        files = remote(server, tmp_path)
        assert files.sizes() == {honest: 7}
        assert files.owner() is None
        for name in (link, pipe):
            with pytest.raises(FileVanishedError):
                files.read(name, 0, 40)
        assert files.read(honest, 0, 40) == b"a batch"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("token", ["", "wrong", TOKEN[:-1], TOKEN + "x", "tökén-that-is-not-ascii"])
def test_without_the_token_nothing_is_served(served, tmp_path, token):
    server, folder = served
    for path in ("/v1/files", "/v1/files/00000000000000000000.log"):
        headers = {"Authorization": f"Bearer {token}".encode().decode("latin-1")}
        assert get(server, folder, path, **headers).status == 401
        assert get(server, folder, path).status == 401
    other = tmp_path / "other"
    other.write_text(token.encode("ascii", "ignore").decode())
    files = RemoteLogFiles(f"https://127.0.0.1:{server.server_address[1]}", other, folder / "tls.crt")
    with pytest.raises(LogUnavailableError, match="401"):
        listing(files)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/files/../meta.properties",
        "/v1/files/%2e%2e%2fmeta.properties",
        "/v1/files/..%2f..%2fetc%2fpasswd",
        "/v1/files//etc/passwd",
        "/v1/files/partition.metadata",
        "/v1/files/00000000000000000000.log%00",
        "/v1/files/00000000000000000000.log/",
        "/v1/files/",
        "/",
        "/v1",
        "/v1/files/%E0%A4%A",
    ],
)
def test_nothing_but_the_log_is_served(served, path):
    server, folder = served
    assert get(server, folder, path, Authorization=f"Bearer {TOKEN}").status == 404


@pytest.mark.parametrize("method", ["PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"])
def test_other_methods_are_refused(served, method):
    server, folder = served
    assert get(server, folder, "/v1/files", method, Authorization=f"Bearer {TOKEN}").status == 501


@pytest.mark.parametrize(
    "value", ["bytes=5-2", "bytes=-5", "bytes=a-b", "bytes=0-1,3-4", "lines=0-1", "bytes=999999999-"]
)
def test_ranges_that_make_no_sense(served, value):
    server, folder = served
    headers = {"Authorization": f"Bearer {TOKEN}", "Range": value}
    assert get(server, folder, "/v1/files/00000000000000000000.log", **headers).status == 416


def test_health_needs_no_token(served):
    server, folder = served
    assert get(server, folder, "/healthz").status == 200


def test_old_tls_is_refused(served):
    server, folder = served
    context = ssl.create_default_context(cafile=str(folder / "tls.crt"))
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    connection = http.client.HTTPSConnection("127.0.0.1", server.server_address[1], context=context, timeout=5)
    with pytest.raises((ssl.SSLError, OSError)):
        connection.request("GET", "/healthz")


def test_certificate_and_token_are_read_again(served):
    server, folder = served
    write_certificate(folder)
    (folder / "token").write_text("another-token-of-this-run")
    assert get(server, folder, "/v1/files", Authorization=f"Bearer {TOKEN}").status == 401
    assert get(server, folder, "/v1/files", Authorization="Bearer another-token-of-this-run").status == 200


def test_a_broken_new_certificate_leaves_the_old_one(served):
    server, folder = served
    trusted = (folder / "tls.crt").read_bytes()
    (folder / "tls.crt").write_text("nonsense")
    (folder / "ca.crt").write_bytes(trusted)
    files = RemoteLogFiles(f"https://127.0.0.1:{server.server_address[1]}", folder / "token", folder / "ca.crt")
    assert listing(files).segments


def test_a_short_token_opens_nothing(served):
    server, folder = served
    (folder / "token").write_text("short")
    assert get(server, folder, "/v1/files", Authorization="Bearer short").status == 401
    (folder / "token").unlink()
    assert get(server, folder, "/v1/files", Authorization="Bearer ").status == 401


def test_an_untrusted_server_is_not_read(served, tmp_path):
    server, folder = served
    (tmp_path / "elsewhere").mkdir()
    write_certificate(tmp_path / "elsewhere")
    files = RemoteLogFiles(
        f"https://127.0.0.1:{server.server_address[1]}", folder / "token", tmp_path / "elsewhere" / "tls.crt"
    )
    with pytest.raises(LogUnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
        listing(files)


def test_the_listing_says_whose_files_they_are(served):
    server, folder = served
    owner = remote(server, folder).owner()
    assert owner == LocalLogFiles(DATA).owner()
    assert owner is not None
    assert (owner.node_id, owner.cluster_id) == (3000, "dx6gdXaeTPWBoHCS0D4i2A")


def test_files_without_meta_properties_are_nobodys(served, tmp_path):
    server, folder = served
    (tmp_path / "other" / "__cluster_metadata-0").mkdir(parents=True)
    server.directory = tmp_path / "other"
    assert remote(server, folder).owner() is None
    (tmp_path / "other" / "meta.properties").write_text("node.id=3000\n")
    assert remote(server, folder).owner() is None


def test_somebody_without_the_token_takes_no_more_than_his_connections(served, monkeypatch):
    server, folder = served
    monkeypatch.setattr(logserver, "_MOST_OF_ONE_ADDRESS", 3)
    held = [socket.create_connection(server.server_address) for _ in range(3)]
    try:
        eventually(lambda: len(server._until) == 3)
        with pytest.raises((OSError, http.client.HTTPException)):
            get(server, folder, "/healthz")
    finally:
        for each in held:
            each.close()
    eventually(lambda: not server._until)
    assert get(server, folder, "/healthz").status == 200


def test_a_connection_without_the_token_ends_in_time_though_it_goes_on_sending(served, monkeypatch):
    server, _ = served
    monkeypatch.setattr(logserver, "_CONNECTION_TIMEOUT_SECONDS", 0.5)
    with socket.create_connection(server.server_address) as slow:
        slow.settimeout(5)
        slow.sendall(b"\x16\x03\x01")  # the beginning of a handshake
        eventually(lambda: len(server._until) == 1)
        eventually(lambda: not server._until)


def eventually(holds):
    end = time.monotonic() + 5
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


class _Endless(socketserver.BaseRequestHandler):
    """Answers as a log server that never ends: at once, or a byte now and then, in the header or in the body."""

    def handle(self) -> None:
        where = self.server.where  # type: ignore[attr-defined]
        self.request.recv(65536)
        with suppress(OSError):
            self.request.sendall(b"HTTP/1.1 200 OK\r\n" + (b"\r\n" if where != "header" else b"X: "))
            while True:
                self.request.sendall(b"x" * (1 << 20 if where == "bytes" else 1))
                time.sleep(0.0 if where == "bytes" else 0.05)


@pytest.mark.parametrize("where", ["bytes", "body", "header"])
@pytest.mark.parametrize("asked", ["listing", "file", "paths"])
def test_an_answer_that_does_not_end_is_refused_in_time(tmp_path, monkeypatch, where, asked):
    write_certificate(tmp_path)
    monkeypatch.setattr(log_files, "_ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(storage_paths, "_MARGIN_SECONDS", -4.0)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Endless)
    server.daemon_threads = True
    server.where = where  # type: ignore[attr-defined]
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    port = server.server_address[1]
    authority = (tmp_path / "tls.crt").read_text()
    files = RemoteLogFiles(f"https://127.0.0.1:{port}", None, token=TOKEN, authority=authority, timeout_seconds=5.0)
    asks = {
        "listing": files.sizes,
        "file": lambda: files.read("quorum-state", 0, 100),
        "paths": lambda: storage_paths.try_paths("127.0.0.1", TOKEN, authority, [("kafka-0", 9092)], port),
    }
    tracemalloc.start()
    began = time.monotonic()
    try:
        with pytest.raises((LogUnavailableError, ObservationError)):
            asks[asked]()
        assert time.monotonic() - began < 4.0
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()
        files.close()
        server.shutdown()
        server.server_close()
