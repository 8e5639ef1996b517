"""A release fits together: the chart starts the images that the workflow pushes, for us and for a fork."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = ROOT / ".github/workflows"


@pytest.fixture(scope="module")
def release() -> ModuleType:
    """Return the script that workflow and make target run."""
    specification = importlib.util.spec_from_file_location("release_script", ROOT / ".ci/release.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def workflow() -> dict[str, Any]:
    return yaml.safe_load((WORKFLOWS / "release.yaml").read_text())


def steps(workflow: dict[str, Any], job: str) -> dict[str, dict[str, Any]]:
    return {step.get("id") or step.get("name") or step.get("uses", ""): step for step in workflow["jobs"][job]["steps"]}


def test_this_version_can_be_released(release: ModuleType) -> None:
    release.check(release.project_version())
    with pytest.raises(release.ReleaseError, match=r"pyproject\.toml states"):
        release.check("9.9.9")


@pytest.mark.parametrize(
    "registry", ["registry.example.com/kraftbridge", "localhost:5000/private/kb", "localhost:5000"]
)
def test_a_packaged_chart_starts_the_images_of_the_release(
    release: ModuleType, registry: str, tmp_path: Path, helm_binary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(Path(helm_binary).parent), prepend=":")
    package = release.chart(registry, "0.1.0", tmp_path)
    assert release.started_images(package) == {f"{registry}/operator:0.1.0", f"{registry}/verifier:0.1.0"}


def test_a_chart_that_starts_another_image_is_no_release(
    release: ModuleType, tmp_path: Path, helm_binary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(Path(helm_binary).parent), prepend=":")
    monkeypatch.setattr(release, "references", lambda registry, version: {"operator": f"{registry}/other:{version}"})
    with pytest.raises(release.ReleaseError, match="but the release has"):
        release.chart(release.EXAMPLE_REGISTRY, "0.1.0", tmp_path)


def test_the_workflow_builds_the_images_of_the_release(release: ModuleType, workflow: dict[str, Any]) -> None:
    images = workflow["jobs"]["images"]
    assert tuple(images["strategy"]["matrix"]["image"]) == release.IMAGES
    named, build = steps(workflow, "images")["name"], steps(workflow, "images")["build"]
    assert "release.py names" in named["run"]
    assert build["with"]["tags"] == "${{ steps.name.outputs.reference }}"
    assert build["with"]["platforms"] == release.PLATFORMS
    assert build["with"]["target"] == "${{ matrix.image }}"
    assert build["with"]["sbom"] is True
    assert build["with"]["push"] is True
    assert build["with"]["provenance"] == "mode=max"
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert all(f" AS {image}\n" in dockerfile for image in release.IMAGES)


DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that puts a `docker` on PATH, whose registry has this digest."""

    def install(digest: str) -> None:
        program = tmp_path / "docker"
        program.write_text(f"#!/bin/sh\necho '{digest}'\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    return install


def test_the_base_image_is_pinned_to_what_its_registry_has(release: ModuleType, docker: Callable[[str], None]) -> None:
    docker(DIGEST)
    assert release.base() == f"debian:bookworm-slim@{DIGEST}"


@pytest.mark.parametrize("digest", ["", "sha256:", DIGEST[:-1], DIGEST.upper(), "<no value>"])
def test_nothing_is_released_on_an_unpinned_base(
    release: ModuleType, docker: Callable[[str], None], digest: str
) -> None:
    docker(digest)
    with pytest.raises(release.ReleaseError, match="not pinned by a digest"):
        release.base()


def test_a_second_base_in_the_dockerfile_is_refused(
    release: ModuleType, docker: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker(DIGEST)
    other = tmp_path / "Dockerfile"
    other.write_text((ROOT / "Dockerfile").read_text() + "FROM alpine:3 AS another\n")
    monkeypatch.setattr(release, "DOCKERFILE", other)
    with pytest.raises(release.ReleaseError, match=r"FROM alpine:3 is no stage"):
        release.base()


def test_the_workflow_builds_on_the_pinned_base_only(workflow: dict[str, Any]) -> None:
    named, build = steps(workflow, "images")["name"], steps(workflow, "images")["build"]
    assert "base=$(python3 .ci/release.py base)" in named["run"], "the step's shell ends when it fails (bash -e)"
    assert "BASE=${{ steps.name.outputs.base }}" in build["with"]["build-args"].splitlines()


def test_the_workflow_signs_what_it_pushes(workflow: dict[str, Any]) -> None:
    assert "cosign sign" in steps(workflow, "images")["Sign the image"]["run"]
    assert "cosign sign" in steps(workflow, "chart")["Push and sign the chart"]["run"]
    assert all(workflow["jobs"][job]["permissions"]["id-token"] == "write" for job in ("images", "chart"))


def test_nothing_is_pushed_before_the_tests_pass(workflow: dict[str, Any]) -> None:
    assert workflow["jobs"]["test"]["uses"] == "./.github/workflows/test.yaml"
    assert workflow["jobs"]["images"]["needs"] == ["test", "audit"]
    assert workflow["jobs"]["chart"]["needs"] == "images"


def test_a_fork_needs_no_more_than_a_registry_and_its_secret(workflow: dict[str, Any]) -> None:
    assert workflow["env"]["REGISTRY"] == "${{ vars.REGISTRY }}"
    assert "${REGISTRY:?" in steps(workflow, "images")["name"]["run"], "a fork without the variable is told"
    text = (WORKFLOWS / "release.yaml").read_text()
    assert "secrets.REGISTRY_PASSWORD || secrets.GITHUB_TOKEN" in text


def test_the_air_gapped_list_names_the_images_of_the_chart(release: ModuleType) -> None:
    page = (ROOT / "docs/air-gapped.md").read_text()
    for reference in release.references("REGISTRY", release.project_version()).values():
        assert f"`{reference}`" in page
    defaults = yaml.safe_load((ROOT / "crds/kafkamigrations.yaml").read_text())["spec"]["versions"][0]["schema"]
    spec = defaults["openAPIV3Schema"]["properties"]["spec"]["properties"]
    assert f"`{spec['controllers']['properties']['image']['default']}`" in page


@pytest.mark.parametrize("command", [["names"], ["chart"], ["images"], ["dry-run", "--push"]])
def test_what_needs_a_registry_says_so(command: list[str]) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "REGISTRY"}
    script = [sys.executable, str(ROOT / ".ci/release.py"), *command]
    done = subprocess.run(script, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 1
    assert "no registry is given: set REGISTRY=host/path" in done.stderr


def test_the_notes_are_the_section_of_the_version(release: ModuleType) -> None:
    notes = release.notes(release.project_version())
    assert notes.startswith("The first release.")
    assert "### Limits" in notes
    for fragment in (ROOT / "changelog.d").glob("2*.md"):
        entry = next(line for line in fragment.read_text().splitlines() if line.startswith("- "))
        assert entry in notes, f"{fragment.name} is not in the section of the version that is to be released"


def test_without_a_section_the_notes_hold_every_fragment(
    release: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "changelog.d").mkdir()
    (tmp_path / "changelog.d/20261201_100000_a.md").write_text("### Bug fixes\n\n- A mended defect.\n")
    (tmp_path / "changelog.d/20261201_110000_b.md").write_text("### New features\n\n- A new feature.\n")
    (tmp_path / "CHANGELOG.md").write_text((ROOT / "CHANGELOG.md").read_text())
    monkeypatch.setattr(release, "ROOT", tmp_path)
    assert release.notes("99.0.0") == "### New features\n\n- A new feature.\n\n### Bug fixes\n\n- A mended defect.\n"
