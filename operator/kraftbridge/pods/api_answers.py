"""Answers what a copy's init containers ask the API server, from objects that were read before.

Charts find their outside addresses this way: Bitnami's ``externalAccess.autoDiscovery`` asks for its pod's Service.
A copy is fenced and reaches no API server.
This process stands in for it on the pod's own loopback: it answers reads of the objects in a file, and nothing else.
A container finds it by ``KUBERNETES_SERVICE_HOST`` and by the files of a service account
(https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/).
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import secrets
import signal
import ssl
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from typing_extensions import override

from kraftbridge.outside.visible import log_visibly

logger = logging.getLogger(__name__)

NOT_ANSWERED: Final = "not answered: "
"""Begins the log lines of what was asked for and is not in the file."""
KINDS: Final[Mapping[str, tuple[str, str]]] = {"services": ("Service", "svc"), "pods": ("Pod", "po")}
"""Kind and short name of each resource that is answered."""
_REFUSED_KINDS: Final[Mapping[str, tuple[str, str]]] = {
    "configmaps": ("ConfigMap", "cm"),
    "endpoints": ("Endpoints", "ep"),
    "nodes": ("Node", "no"),
    "persistentvolumeclaims": ("PersistentVolumeClaim", "pvc"),
    "secrets": ("Secret", ""),
}
"""Resources that are announced, so that a client asks for them and the log names them."""
_SECONDS: Final = 10.0
_EQUALITY: Final = re.compile(r"([\w./-]+)==?([\w.-]*)")


@dataclass(frozen=True, slots=True)
class Answers:
    """Objects of one namespace, by resource and name."""

    namespace: str
    objects: Mapping[str, Mapping[str, Mapping[str, Any]]]

    @classmethod
    def of(cls, namespace: str, objects: Sequence[Mapping[str, Any]]) -> Answers:
        """Return the answers for these objects."""
        by_resource: dict[str, dict[str, Mapping[str, Any]]] = {}
        for resource, (kind, _) in KINDS.items():
            of_kind = [obj for obj in objects if obj["kind"] == kind]
            by_resource[resource] = {obj["metadata"]["name"]: {"apiVersion": "v1", **obj} for obj in of_kind}
        return cls(namespace, by_resource)

    def answer(self, target: str) -> tuple[HTTPStatus, Mapping[str, Any]]:
        """Return the answer to a GET of a path with its query."""
        url = urlsplit(target)
        parts = [unquote(part) for part in url.path.split("/") if part]
        match parts:
            case ["version"]:
                return HTTPStatus.OK, {"major": "1", "minor": "30", "gitVersion": "v1.30.0"}
            case ["api"]:
                return HTTPStatus.OK, {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
            case ["apis"]:
                return HTTPStatus.OK, {"kind": "APIGroupList", "apiVersion": "v1", "groups": []}
            case ["api", "v1"]:
                return HTTPStatus.OK, _resources()
            case ["api", "v1", "namespaces", self.namespace, resource] if resource in KINDS:
                return self._list(resource, parse_qs(url.query))
            case ["api", "v1", "namespaces", self.namespace, resource, name] if resource in KINDS:
                found = self.objects[resource].get(name)
                return _refusal(HTTPStatus.NOT_FOUND, f"{name} not found") if found is None else (HTTPStatus.OK, found)
            case _:
                return _refusal(HTTPStatus.FORBIDDEN, "a copy of a broker's pod is answered Services and pods alone")

    def _list(self, resource: str, query: Mapping[str, Sequence[str]]) -> tuple[HTTPStatus, Mapping[str, Any]]:
        selectors = [text for name in ("labelSelector", "fieldSelector") for text in query.get(name, ())]
        pairs = [_EQUALITY.fullmatch(pair) for text in selectors for pair in text.split(",")]
        wanted = [pair for pair in pairs if pair is not None]
        if len(wanted) < len(pairs):
            return _refusal(HTTPStatus.FORBIDDEN, "a copy of a broker's pod is answered key=value selectors alone")
        items = [obj for obj in self.objects[resource].values() if all(_selects(pair, obj) for pair in wanted)]
        kind = KINDS[resource][0]
        listed = {"kind": f"{kind}List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}
        return HTTPStatus.OK, listed


def _selects(pair: re.Match[str], obj: Mapping[str, Any]) -> bool:
    """Return whether an object has a label, or is of a name."""
    key, value = pair.groups()
    metadata = obj["metadata"]
    return bool(metadata["name"] == value if key == "metadata.name" else metadata.get("labels", {}).get(key) == value)


def _resources() -> Mapping[str, Any]:
    resources = [
        {
            "name": resource,
            "singularName": kind.lower(),
            "namespaced": resource != "nodes",
            "kind": kind,
            "verbs": ["get", "list"],
            "shortNames": [short] if short else [],
        }
        for resource, (kind, short) in {**KINDS, **_REFUSED_KINDS}.items()
    ]
    return {"kind": "APIResourceList", "groupVersion": "v1", "resources": resources}


def _refusal(code: HTTPStatus, message: str) -> tuple[HTTPStatus, Mapping[str, Any]]:
    reason = "NotFound" if code is HTTPStatus.NOT_FOUND else "Forbidden"
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason}
    return code, {**status, "code": int(code)}


class Server(ThreadingHTTPServer):
    """Serves the answers on loopback, over TLS."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], answers: Answers, certificate: Path) -> None:
        super().__init__(address, _Handler)
        self.answers = answers
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = _SECONDS

    def do_GET(self) -> None:
        code, body = self.server.answers.answer(self.path)
        if code is not HTTPStatus.OK:
            logger.warning("%sGET %s", NOT_ANSWERED, self.path)
        self._send(code, body)

    def _send(self, code: HTTPStatus, body: Mapping[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    @override
    def log_error(self, format: str, *args: Any) -> None:
        """Log a request of another verb."""
        logger.warning("%s%s", NOT_ANSWERED, getattr(self, "requestline", format % args))

    @override
    def log_message(self, format: str, *args: Any) -> None:
        logger.debug(format, *args)


def write_identity(directory: Path, namespace: str, host: str) -> Path:
    """Write the files of a service account into a directory; return the server's own certificate with its key.

    The token is ours and opens nothing.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kraftbridge-dry-start")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(host))]), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    certificate = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    descriptor, own = tempfile.mkstemp()
    with os.fdopen(descriptor, "wb") as file_of_server:
        file_of_server.write(certificate + secret)
    for file, data in {"ca.crt": certificate, "namespace": namespace.encode()}.items():
        _write(directory / file, data)
    return Path(own)


def _write(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    file.chmod(0o444)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM."""
    log_visibly()
    parser = argparse.ArgumentParser(prog="python -m kraftbridge.pods.api_answers", description=__doc__)
    parser.add_argument("--address", required=True, metavar="HOST:PORT", help="address to listen on")
    parser.add_argument("--objects", type=Path, required=True, metavar="FILE", help="JSON list of what is answered")
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--identity", type=Path, required=True, metavar="DIR", help="write token and certificate there")
    options = parser.parse_args(arguments)
    answers = Answers.of(options.namespace, json.loads(options.objects.read_text(encoding="utf-8") or "[]"))
    host, _, port = options.address.rpartition(":")
    server = Server((host, int(port)), answers, write_identity(options.identity, options.namespace, host))
    # The token comes last: who finds it finds the server, too.
    _write(options.identity / "token", secrets.token_urlsafe().encode())
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown, daemon=True).start())
    server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
