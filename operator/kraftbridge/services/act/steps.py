"""The ConfigMap with one recorded step (`kraftbridge.phases.recorded_step`), for a support archive."""

from __future__ import annotations

import base64
import gzip
from typing import Any, Final

from kraftbridge.builders import names
from kraftbridge.constants import API_VERSION, KIND
from kraftbridge.phases.draft import Identity
from kraftbridge.phases.recorded_step import ASKED_KEY, STEP_KEY

_MAXIMUM_BYTES: Final = 700_000
"""Of the compressed document. The API server refuses ConfigMaps over 1 MiB, with what base64 adds."""


def config_map(identity: Identity, document: str, asked: str) -> dict[str, Any]:
    """Return the ConfigMap with a step. It goes with the resource. A step that is too large is only named."""
    packed = gzip.compress(document.encode())
    found: dict[str, Any] = {"binaryData": {STEP_KEY: base64.b64encode(packed).decode()}}
    if len(packed) > _MAXIMUM_BYTES:
        found = {}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": names.step_config_map(identity.name, identity.uid),
            "namespace": identity.namespace,
            "labels": names.labels(identity.name),
            "ownerReferences": [{"apiVersion": API_VERSION, "kind": KIND, "name": identity.name, "uid": identity.uid}],
        },
        "data": {ASKED_KEY: asked},
        **found,
    }
