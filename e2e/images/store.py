"""Transfers images from buildah to the containerd of each node of the cluster.

One OCI layout in the cache holds all images, uncompressed, so shared layers are written once. Only the blobs that
containerd does not have yet travel: after a change of our code that is one small layer, however large the image.
"""

import io
import json
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from materials import CACHE, STATE, BuildError, run

LAYOUT = CACHE / "oci"
SOCKET = Path("containerd") / "containerd.sock"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"


def ctr(socket: Path, *arguments: str) -> list[str]:
    """Return a command of the client of that node's containerd."""
    return ["ctr", "--address", str(socket), "--namespace", "k8s.io", *arguments]


def nodes() -> list[Path]:
    """Return the sockets of the nodes whose containerd answers, the first node's first.

    A node that is stopped gets what it lacks from the first one when it is started.
    """
    further = sorted(STATE.glob(f"nodes/*/{SOCKET}"))
    return [socket for socket in (STATE / SOCKET, *further) if socket.exists() and answers(socket)]


def answers(socket: Path) -> bool:
    """Return whether the containerd of that socket answers."""
    return subprocess.run(ctr(socket, "version"), check=False, capture_output=True).returncode == 0


def blob(digest: str) -> Path:
    """Return where the layout keeps that blob."""
    return LAYOUT / "blobs" / digest.replace(":", "/", 1)


def index() -> dict[str, Any]:
    """Return the layout's index, which has no manifests before the first export."""
    path = LAYOUT / "index.json"
    return dict(json.loads(path.read_text())) if path.exists() else {"manifests": []}


def reference_of(entry: Mapping[str, Any]) -> str | None:
    """Return the name of an entry of the index; buildah takes an image's name away when another image gets it."""
    name = (entry.get("annotations") or {}).get("org.opencontainers.image.ref.name")
    return str(name) if name else None


def descriptors() -> dict[str, dict[str, Any]]:
    """Return the layout's manifests by image reference."""
    return {name: entry for entry in index()["manifests"] if (name := reference_of(entry)) is not None}


def export(reference: str) -> str:
    """Copy the image from buildah's storage into the layout and return its digest."""
    run("buildah", "push", "--disable-compression", reference, f"oci:{LAYOUT}:{reference}")
    return str(descriptors()[reference]["digest"])


def blobs_of(digest: str) -> list[str]:
    """Return the digests of a manifest, its configuration and its layers."""
    manifest = json.loads(blob(digest).read_text())
    return [digest, manifest["config"]["digest"], *(layer["digest"] for layer in manifest["layers"])]


def has_all_blobs(entry: Mapping[str, Any]) -> bool:
    """Return whether the layout has the entry's manifest, configuration and layers, each with all its bytes."""
    if not is_there(entry):
        return False
    manifest = json.loads(blob(entry["digest"]).read_text())
    return all(is_there(part) for part in (manifest["config"], *manifest["layers"]))


def is_there(part: Mapping[str, Any]) -> bool:
    """Return whether the layout has that blob with the size that its descriptor states."""
    path = blob(part["digest"])
    return path.exists() and path.stat().st_size == part["size"]


def is_whole(reference: str, digest: str) -> bool:
    """Return whether the layout has that image with all its blobs."""
    entry = descriptors().get(reference)
    return entry is not None and entry["digest"] == digest and has_all_blobs(entry)


def remove_unreferenced_blobs() -> None:
    """Delete the blobs of images that have been replaced, and the entries of images without a name or with missing blobs.

    An entry must not outlive its blobs. buildah gives an old entry its name back when the same image is built again, and
    everything that reads the index then looks for what is gone.
    """
    found = index()
    kept = [entry for entry in found["manifests"] if reference_of(entry) is not None and has_all_blobs(entry)]
    if kept != found["manifests"]:
        new = LAYOUT / "index.json.new"
        new.write_text(json.dumps({**found, "manifests": kept}))
        new.replace(LAYOUT / "index.json")
    wanted = {name.split(":", 1)[1] for entry in kept for name in blobs_of(entry["digest"])}
    for path in (LAYOUT / "blobs" / "sha256").iterdir():
        if path.name not in wanted:
            path.unlink()


def loaded_digest(node: Path, reference: str) -> str | None:
    """Return the digest of the image of that name on a node."""
    for line in run(*ctr(node, "images", "ls", f"name=={reference}")).splitlines()[1:]:
        columns = line.split()
        if columns[0] == reference:
            return columns[2]
    return None


def load(node: Path, reference: str, digest: str) -> int:
    """Give a node the image; return how many bytes had to be sent."""
    present = set(run(*ctr(node, "content", "ls", "--quiet")).split())
    importer = subprocess.Popen(
        ctr(node, "images", "import", "-"), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert importer.stdin is not None
    sent = 0
    with suppress(BrokenPipeError):  # the importer's own words say why
        sent = write_archive(importer.stdin, reference, digest, without=present)
    _, error = importer.communicate()
    if importer.returncode != 0:
        raise BuildError(f"containerd did not take {reference}: {error.decode(errors='replace').strip()}")
    return sent


def load_into_kind(reference: str, digest: str, cluster: str) -> int:
    """Give every node of a kind cluster the image; return the bytes of its layers."""
    if shutil.which("kind") is None:
        raise BuildError(f"{reference} cannot be loaded into kind cluster {cluster}: there is no kind on PATH")
    with tempfile.NamedTemporaryFile(suffix=".tar") as file:
        size = write_archive(file, reference, digest)
        file.flush()
        run("kind", "load", "image-archive", file.name, "--name", cluster)
    return size


def write_archive(file: IO[bytes], reference: str, digest: str, *, without: Collection[str] = ()) -> int:
    """Write the image as an OCI archive without the blobs that the receiver has; return the bytes of those that are in it."""
    entry = dict(descriptors()[reference])
    entry["annotations"] = {"io.containerd.image.name": reference}
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [entry]}
    written = 0
    with tarfile.open(fileobj=file, mode="w|") as archive:
        for name, content in (
            ("oci-layout", b'{"imageLayoutVersion": "1.0.0"}'),
            ("index.json", json.dumps(index).encode()),
        ):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        for name in blobs_of(digest):
            if name not in without:
                written += blob(name).stat().st_size
                archive.add(blob(name), "blobs/" + name.replace(":", "/", 1))
    return written
