"""The examples and the YAML of the documentation, as an API server takes them: schema, defaults and CEL rules."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import GROUP, NAMESPACE, Cluster

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("*/*.yaml"))
KUSTOMIZED = sorted(path.parent for path in (ROOT / "examples").glob("*/kustomization.yaml"))
PAGES = sorted((ROOT / "docs").glob("*.md"))
MIGRATIONS = [
    pytest.param(document, id=f"{page.name} {number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL))
    for document in yaml.safe_load_all(block)
    if isinstance(document, dict) and document.get("kind") == "KafkaMigration"
]


def admitted(cluster: Cluster, document: dict[str, Any]) -> None:
    """Create an object without keeping it; unknown fields are an error."""
    if document["apiVersion"].startswith("kraftbridge.dev/"):
        document["apiVersion"] = document["apiVersion"].replace("kraftbridge.dev", GROUP)
    document["metadata"]["namespace"] = NAMESPACE
    text = json.dumps(document)
    cluster.do("create", "--dry-run=server", "--validate=strict", "--filename", "-", stdin=text)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_an_api_server_takes_the_example(cluster: Cluster, path: Path) -> None:
    documents = [d for d in yaml.safe_load_all(path.read_text()) if "kind" in d]
    assert documents or path.name == "kustomization.yaml"
    for document in documents:
        admitted(cluster, document)


@pytest.mark.parametrize("directory", KUSTOMIZED, ids=lambda p: p.name)
def test_kustomize_renders_the_example(cluster: Cluster, directory: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    example = tmp_path / "examples" / directory.name
    prepare = example / "prepare.sh"
    for argument in ((), ("shop-kraft-1a2b3c4d",)) if prepare.exists() else ():
        subprocess.run([prepare, *argument], check=True, timeout=120)
    kinds: set[str] = set()
    for path in example.rglob("kustomization.yaml"):
        for document in yaml.safe_load_all(cluster.do("kustomize", str(path.parent))):
            admitted(cluster, document)
            kinds.add(document["kind"])
    assert {"StatefulSet", "Service"} <= kinds


@pytest.mark.parametrize("document", MIGRATIONS)
def test_an_api_server_takes_the_migration_of_a_page(cluster: Cluster, document: dict[str, Any]) -> None:
    admitted(cluster, document)
