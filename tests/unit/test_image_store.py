"""The images' OCI layout: what leaves it for a kind cluster is whole, and what a build that was cut off left in it does no harm.

Which nodes of the embedded cluster get an image.
"""

from __future__ import annotations

import json
import tarfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from tests.support.image_store import image_store

REFERENCE = "localhost/kraftbridge-x:dev"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    return image_store(monkeypatch, tmp_path / "oci")


def add_image(layout: Path, *, name: str | None = REFERENCE, layer: bytes = b"layer two") -> str:
    def put(content: bytes) -> dict[str, Any]:
        digest = sha256(content).hexdigest()
        path = layout / "blobs/sha256" / digest
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return {"digest": f"sha256:{digest}", "size": len(content)}

    manifest = {"config": put(b"{}"), "layers": [put(b"layer one"), put(layer)]}
    entry = put(json.dumps(manifest).encode())
    if name is not None:
        entry["annotations"] = {"org.opencontainers.image.ref.name": name}
    index = layout / "index.json"
    before = json.loads(index.read_text())["manifests"] if index.exists() else []
    index.write_text(json.dumps({"schemaVersion": 2, "manifests": [*before, entry]}))
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


def blobs(store: Any) -> set[str]:
    return {f"sha256:{path.name}" for path in (store.LAYOUT / "blobs/sha256").iterdir()}


def test_replaced_images_leave_the_index_with_their_blobs(store: Any) -> None:
    """buildah leaves an entry without a name for each image that lost its name to a newer one."""
    old = [add_image(store.LAYOUT, name=None, layer=content) for content in (b"first", b"second")]
    digest = add_image(store.LAYOUT)
    store.remove_unreferenced_blobs()
    assert [entry["digest"] for entry in store.index()["manifests"]] == [digest]
    assert store.index()["schemaVersion"] == 2
    assert blobs(store) == set(store.blobs_of(digest))
    assert not set(old) & blobs(store)


@pytest.mark.parametrize("part", [0, 1, 2, 3], ids=["manifest", "configuration", "first layer", "second layer"])
@pytest.mark.parametrize("damage", ["missing", "truncated"])
def test_an_image_with_a_damaged_blob_is_built_again(store: Any, part: int, damage: str) -> None:
    digest = add_image(store.LAYOUT)
    other = add_image(store.LAYOUT, name="localhost/kraftbridge-y:dev", layer=b"of y alone")
    assert store.is_whole(REFERENCE, digest)
    path = store.blob(store.blobs_of(digest)[part])
    path.unlink() if damage == "missing" else path.write_bytes(path.read_bytes()[:-1])
    assert not store.is_whole(REFERENCE, digest)
    store.remove_unreferenced_blobs()
    assert REFERENCE not in store.descriptors()
    shared = part in {1, 2}  # both images have the same configuration and first layer
    assert set(store.descriptors()) == (set() if shared else {"localhost/kraftbridge-y:dev"})
    assert shared or blobs(store) == set(store.blobs_of(other))


def test_an_empty_layout_has_no_images(store: Any) -> None:
    assert store.descriptors() == {}
    assert not store.is_whole(REFERENCE, "sha256:0")


def test_every_node_that_runs_gets_images_the_first_one_first(
    store: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(store, "STATE", tmp_path)
    first, second, third = (tmp_path / folder / "containerd/containerd.sock" for folder in ("", "nodes/2", "nodes/3"))
    monkeypatch.setattr(store, "answers", lambda socket: socket != second)
    assert store.nodes() == []
    for socket in (third, second, first):
        socket.parent.mkdir(parents=True)
        socket.touch()
    assert store.nodes() == [first, third]
