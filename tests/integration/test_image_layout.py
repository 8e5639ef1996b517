"""The images' OCI layout as buildah leaves it when an image is built, replaced, and built again as it was."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.image_store import image_store


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    return image_store(monkeypatch, tmp_path / "oci")


@pytest.fixture
def label() -> Iterator[str]:
    """Return a label for images, and remove from buildah's storage what was built with it."""
    label = f"kraftbridge-test={uuid.uuid4().hex}"
    yield label
    command = ["buildah", "images", "--quiet", "--no-trunc", "--filter", f"label={label}"]
    if built := set(subprocess.run(command, check=True, text=True, capture_output=True).stdout.split()):
        subprocess.run(["buildah", "rmi", "--force", *sorted(built)], check=True, capture_output=True)


def test_images_that_are_built_again_as_they_were(store: Any, label: str, tmp_path: Path) -> None:
    """buildah takes the name off a replaced image's entry, and gives it back when that image is built again.

    After these six builds the old code's index had an entry whose manifest was gone: CI ended with FileNotFoundError.
    """
    digests: dict[str, str] = {}
    current: dict[str, str] = {}
    for build in ("x1", "y1", "y2", "x2", "x1", "x2"):
        reference = f"localhost/kraftbridge-test-{build[0]}:dev"
        context = tmp_path / build
        context.mkdir(exist_ok=True)
        (context / "content").write_text(build)
        (context / "Dockerfile").write_text(f"FROM scratch\nLABEL {label}\nCOPY content /content\n")
        command = ["buildah", "build", "--isolation", "chroot", "--layers", "--tag", reference, str(context)]
        subprocess.run(command, check=True, capture_output=True)
        current[reference] = store.export(reference)
        assert digests.setdefault(build, current[reference]) == current[reference]
        store.remove_unreferenced_blobs()
        assert all(store.is_whole(name, digest) for name, digest in current.items())
    manifests = json.loads((store.LAYOUT / "index.json").read_text())["manifests"]
    assert {entry["digest"] for entry in manifests} == set(current.values())
    assert len(manifests) == len(current)
