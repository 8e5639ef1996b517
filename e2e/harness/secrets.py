"""The secrets of a namespace, and what of them is in what leaves it: status, events, logs, ConfigMaps, metrics."""

import base64
import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from e2e.harness.kube import Kube

_SECRET_KEY = re.compile(r"(?i)(password|passwd|secret|token|jaas|credential)")
_PASSWORD = re.compile(r'password="([^"]+)"')
_PRIVATE = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----(.*?)-----END", re.DOTALL)
_SHORTEST = 8
"""Characters. Shorter words are found by chance."""
_WHOLE = re.compile(r"[\x21-\x7e]+")
_PUBLIC_TYPES = ("helm.sh/release.v1",)


def secrets_of(kube: Kube, namespace: str) -> dict[str, str]:
    """Return where each secret value of a namespace is from, by the value."""
    found: dict[str, str] = {}
    for secret in kube.list("secrets", namespace):
        if secret.get("type") in _PUBLIC_TYPES:
            continue
        for key, encoded in (secret.get("data") or {}).items():
            where = f"{secret['metadata']['name']}/{key}"
            text = base64.b64decode(encoded).decode("utf-8", "replace")
            found |= dict.fromkeys(_values(key, text), where)
    return found


def _values(key: str, text: str) -> Iterator[str]:
    """Yield what is secret of one entry: a whole word, the lines of a private key, the passwords of a file."""
    for body in _PRIVATE.findall(text):
        yield from (line for line in body.split() if len(line) >= _SHORTEST)
    yield from (password for password in _PASSWORD.findall(text) if len(password) >= _SHORTEST)
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if _SECRET_KEY.search(name) and len(value.strip()) >= _SHORTEST:
            yield value.strip()
    is_word = _WHOLE.fullmatch(text.strip()) is not None
    if is_word and _SECRET_KEY.search(key) and len(text.strip()) >= _SHORTEST:
        yield text.strip()


def what_leaves(kube: Kube, namespace: str, operator_namespace: str, artifacts: Path) -> dict[str, str]:
    """Return everything that others than the owners of the namespace's Secrets can read, by its name."""
    texts = {
        "events": json.dumps(kube.list("events", namespace)),
        "migrations": json.dumps(kube.list("kafkamigrations", namespace)),
    }
    for config_map in kube.list("configmaps", namespace):
        texts[f"ConfigMap/{config_map['metadata']['name']}"] = _content(config_map)
    for owner, pods in (
        (namespace, kube.list("pods", namespace)),
        (operator_namespace, kube.list("pods", operator_namespace)),
    ):
        for pod in pods:
            texts |= _logs(kube, owner, pod)
    texts |= {
        f"artifact {path.name}": path.read_text(errors="replace") for path in artifacts.rglob("*") if path.is_file()
    }
    return texts


def _content(config_map: dict[str, Any]) -> str:
    """Return a ConfigMap with what is packed in it."""
    packed = [base64.b64decode(each) for each in (config_map.get("binaryData") or {}).values()]
    packed += [base64.b64decode(t) for t in (config_map.get("data") or {}).values() if t.startswith("H4sI")]
    unpacked = [gzip.decompress(each) for each in packed if each.startswith(b"\x1f\x8b")]
    return json.dumps(config_map) + "".join(each.decode("utf-8", "replace") for each in unpacked)


def _logs(kube: Kube, namespace: str, pod: dict[str, Any]) -> dict[str, str]:
    """Return the logs of a pod that has started; one that cannot be read is an error, not an empty one."""
    name = pod["metadata"]["name"]
    if pod["status"]["phase"] == "Pending":
        return {}
    return {f"log of {name}": kube.kubectl("logs", "-n", namespace, name, "--all-containers", "--tail=-1")}


def spellings(value: str) -> set[str]:
    """Return a value as it may stand in JSON, base64, and by itself."""
    return {value, json.dumps(value)[1:-1], base64.b64encode(value.encode()).decode().rstrip("=")}
