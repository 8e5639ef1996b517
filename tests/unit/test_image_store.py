"""Images on their way into a kind cluster: what `kind load image-archive` is given is a whole OCI archive of that name."""

from __future__ import annotations

import json
import sys
import tarfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = "localhost/kraftbridge-x:dev"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "e2e/images"))
    for name in ("store", "materials"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import store

    monkeypatch.setattr(store, "LAYOUT", tmp_path / "oci")
    return store


def add_image(layout: Path) -> str:
    def put(content: bytes) -> dict[str, Any]:
        digest = sha256(content).hexdigest()
        path = layout / "blobs/sha256" / digest
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return {"digest": f"sha256:{digest}", "size": len(content)}

    manifest = {"config": put(b"{}"), "layers": [put(b"layer one"), put(b"layer two")]}
    entry = put(json.dumps(manifest).encode())
    entry["annotations"] = {"org.opencontainers.image.ref.name": REFERENCE}
    (layout / "index.json").write_text(json.dumps({"manifests": [entry]}))
    return str(entry["digest"])


def test_kind_gets_a_whole_archive_of_that_name(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = add_image(store.LAYOUT)
    seen: dict[str, Any] = {}

    def kind(*command: str) -> str:
        seen["command"] = command
        with tarfile.open(command[3]) as archive:
            seen["names"] = set(archive.getnames())
            (entry,) = json.load(archive.extractfile("index.json"))["manifests"]  # type: ignore[arg-type]
            seen["reference"] = entry["annotations"]["io.containerd.image.name"]
        return ""

    monkeypatch.setattr(store, "run", kind)
    monkeypatch.setattr(store.shutil, "which", lambda name: f"/usr/bin/{name}")
    size = store.load_into_kind(REFERENCE, digest, "mine")
    assert seen["command"][:3] == ("kind", "load", "image-archive")
    assert seen["command"][4:] == ("--name", "mine")
    assert seen["reference"] == REFERENCE
    assert seen["names"] == {"oci-layout", "index.json"} | {
        f"blobs/{path.parent.name}/{path.name}" for path in (store.LAYOUT / "blobs/sha256").iterdir()
    }
    assert size == sum(path.stat().st_size for path in (store.LAYOUT / "blobs/sha256").iterdir())
    assert not Path(seen["command"][3]).exists()


def test_without_kind_it_says_so(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store.shutil, "which", lambda _name: None)
    with pytest.raises(store.BuildError, match="no kind on PATH"):
        store.load_into_kind(REFERENCE, add_image(store.LAYOUT), "mine")
