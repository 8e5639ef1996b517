"""What a release consists of, for the workflow and for this machine.

::

    release.py names   --registry R --version V            the images of a release, as NAME=REFERENCE
    release.py check   --version V                         whether pyproject.toml, the chart and the changelog fit a version
    release.py chart   --registry R --version V --output D package the chart for a registry, and check the images that it starts
    release.py base                                        the Dockerfile's base image with its digest, as BASE=REFERENCE; asks its registry
    release.py notes   --version V                         the release notes: the version's section of CHANGELOG.md, else the fragments
    release.py images  --registry R --version V [--push]   tag (and push) the images that e2e/images/build built; for this architecture
    release.py dry-run [--registry R] [--push]             all of it; --push also pushes to the registry

Needs helm; ``images`` and ``dry-run`` need buildah, ``dry-run`` actionlint or Go as well.
"""

# ruff: noqa: INP001, T201, S603 - a script that runs helm, buildah and git
from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "helm/kraftbridge"
DOCKERFILE = ROOT / "Dockerfile"
EXAMPLE_REGISTRY = "registry.example.com/kraftbridge"
"""What a dry run names images with when no registry is given; the sources name none."""
IMAGES = ("operator", "verifier")
ACTIONLINT = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.7"
PLATFORMS = "linux/amd64,linux/arm64"


class ReleaseError(Exception):
    """Something about the release does not fit; the message says what."""


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """Run a command and return what it prints.

    Raises
    ------
    ReleaseError
        If it fails; its last words are in the message.
    """
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        words = (done.stderr or done.stdout).strip()[-2000:]
        raise ReleaseError(f"{' '.join(str(part) for part in command)}: exit code {done.returncode}\n{words}")
    return done.stdout


def references(registry: str, version: str) -> dict[str, str]:
    """Return the reference of each image of a release."""
    return {name: f"{registry}/{name}:{version}" for name in IMAGES}


def require(registry: str) -> None:
    """Raise `ReleaseError` when no registry is given."""
    if not registry:
        raise ReleaseError(
            "no registry is given: set REGISTRY=host/path, in GitHub the repository's variable of that name"
        )


def project_version() -> str:
    """Return the version that pyproject.toml states."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def chart_field(name: str) -> str:
    """Return a field of Chart.yaml."""
    found = re.search(rf'^{name}: *"?([^"\n]+?)"?$', (CHART / "Chart.yaml").read_text(), re.MULTILINE)
    if found is None:
        raise ReleaseError(f"Chart.yaml has no {name}")
    return found[1]


def check(version: str) -> None:
    """Raise `ReleaseError` unless the sources state this version and the changelog has something to say about it."""
    stated = {
        "pyproject.toml": project_version(),
        "Chart.yaml, version": chart_field("version"),
        "Chart.yaml, appVersion": chart_field("appVersion"),
    }
    if wrong := [f"{where} states {found}" for where, found in stated.items() if found != version]:
        raise ReleaseError(f"version {version} is to be released, but {', '.join(wrong)}")
    if not notes(version).strip():
        raise ReleaseError(f"CHANGELOG.md has no section {version}, and changelog.d/ has no fragment")


def base() -> str:
    """Return the base image of the Dockerfile, pinned to the digest that its registry has for all platforms now."""
    stages = set(re.findall(r"^FROM \S+ AS (\S+)", DOCKERFILE.read_text(), re.MULTILINE))
    arguments = dict(re.findall(r"^ARG (\w+)=(\S+)", DOCKERFILE.read_text(), re.MULTILINE))
    outside = set(re.findall(r"^FROM (\S+)", DOCKERFILE.read_text(), re.MULTILINE)) - stages - {"${BASE}"}
    if foreign := sorted(name for name in outside if arguments.get(name.strip("${}")) not in stages):
        raise ReleaseError(f"Dockerfile: FROM {', '.join(foreign)} is no stage and not ${{BASE}}, so nothing pins it")
    name = arguments["BASE"].partition("@")[0]
    if shutil.which("docker") is None:
        raise ReleaseError(f"there is no docker on PATH to ask for the digest of {name}")
    digest = run("docker", "buildx", "imagetools", "inspect", name, "--format", "{{.Manifest.Digest}}").strip()
    return pinned(f"{name}@{digest}")


def pinned(reference: str) -> str:
    """Return a reference of an image, which must name its digest.

    Raises
    ------
    ReleaseError
        If it does not: its tag may be another image tomorrow.
    """
    if not re.fullmatch(r"[^@\s]+@sha256:[0-9a-f]{64}", reference):
        raise ReleaseError(
            f"base image {reference!r} is not pinned by a digest (NAME@sha256:…): nothing is released on it"
        )
    return reference


def notes(version: str) -> str:
    """Return the notes of a version: its section of CHANGELOG.md, or what the fragments say before they are collected."""
    changelog = (ROOT / "CHANGELOG.md").read_text()
    section = re.search(rf"^## v?{re.escape(version)}\b[^\n]*\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if section is not None:
        return re.sub(r"^<a id=.*$", "", section[1], flags=re.MULTILINE).strip() + "\n"
    headings = ("Backwards-incompatible changes", "New features", "Bug fixes", "Other changes")
    entries: dict[str, list[str]] = {heading: [] for heading in headings}
    for fragment in sorted((ROOT / "changelog.d").glob("[0-9]*.md")):
        for heading, text in re.findall(
            r"^### ([^\n]+)\n(.*?)(?=^### |\Z)", fragment.read_text(), re.MULTILINE | re.DOTALL
        ):
            if heading not in entries:
                raise ReleaseError(f"{fragment.name}: heading {heading!r} is none of {', '.join(headings)}")
            entries[heading].append(text.strip())
    return "\n\n".join(f"### {heading}\n\n" + "\n".join(texts) for heading, texts in entries.items() if texts) + "\n"


def helm() -> str:
    """Return a helm binary: the one on PATH, or the embedded cluster's."""
    if found := shutil.which("helm"):
        return found
    cached = run("bash", "-c", 'eval "$(e2e/cluster/cluster env)" && echo "$PATH"').strip()
    found = shutil.which("helm", path=cached)
    if found is None:
        raise ReleaseError("there is no helm on PATH or in the cache; run: make cluster-build")
    return found


def chart(registry: str, version: str, output: Path) -> Path:
    """Package the chart with the images of a registry as its defaults, and check what it starts.

    Raises
    ------
    ReleaseError
        If the packaged chart, installed without any value, starts another image than those of the release.
    """
    output.mkdir(parents=True, exist_ok=True)
    copy = output / "chart/kraftbridge"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(CHART, copy)
    values, line = (copy / "values.yaml").read_text(), '  registry: ""\n'
    if values.count(line) != 1:
        raise ReleaseError(f"values.yaml should have the line {line.strip()!r} once")
    (copy / "values.yaml").write_text(values.replace(line, f"  registry: {registry}\n"))
    run(helm(), "lint", "--strict", copy)
    run(helm(), "package", copy, "--version", version, "--app-version", version, "--destination", output)
    package = output / f"kraftbridge-{version}.tgz"
    started = started_images(package)
    expected = set(references(registry, version).values())
    if started != expected:
        raise ReleaseError(f"{package.name} starts {sorted(started)}, but the release has {sorted(expected)}")
    return package


def started_images(package: Path) -> set[str]:
    """Return the images that a chart starts when it is installed without values, now or for a migration."""
    rendered = run(
        helm(), "template", "kraftbridge", package, "--kube-version", "1.37.0", "--set", "verifier.namespaces={kafka}"
    )
    containers = re.findall(r"^\s+image: \"?([^\s\"]+)", rendered, re.MULTILINE)
    settings = re.findall(r"name: KRAFTBRIDGE_\w+_IMAGE\n\s+value: \"?([^\s\"]+)", rendered)
    return {*containers, *settings}


def images(registry: str, version: str, *, push: bool) -> None:
    """Tag the images that e2e/images/build built, and push them."""
    run(sys.executable, "e2e/images/build", *IMAGES)
    for name, reference in references(registry, version).items():
        run("buildah", "tag", f"localhost/kraftbridge-{name}:dev", reference)
        print(f"{reference}: {size(reference)}")
        if push:
            run("buildah", "push", *plain_http(registry), reference, f"docker://{reference}")
            print(f"{reference}: pushed")


def plain_http(registry: str) -> list[str]:
    """Return the option for a registry on this machine, which has no certificate."""
    return ["--tls-verify=false"] if is_local(registry) else []


def is_local(registry: str) -> bool:
    """Return whether a registry runs on this machine."""
    return registry.partition("/")[0].partition(":")[0] in {"localhost", "127.0.0.1"}


def size(reference: str) -> str:
    """Return an image's size as buildah lists it."""
    return run("buildah", "images", "--format", "{{.Size}}", reference).split("\n")[0]  # one line for each of its names


def lint_workflows() -> None:
    """Run actionlint over the workflows."""
    program = shutil.which("actionlint")
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if program is None and go is None:
        raise ReleaseError("neither actionlint nor Go is on PATH")
    run(*([program] if program else [str(go), "run", ACTIONLINT]), *sorted((ROOT / ".github/workflows").glob("*.yaml")))


def dry_run(registry: str, version: str, *, push: bool) -> None:
    """Do what the release workflow does, on this machine and for its architecture."""
    output = ROOT / "out/release"
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    print("==> workflows: actionlint")
    lint_workflows()
    print(f"==> version {version} in pyproject.toml, Chart.yaml and changelog")
    check(version)
    (output / "notes.md").write_text(notes(version))
    print(f"==> images for this architecture (the workflow builds {PLATFORMS})")
    images(registry, version, push=push)
    print("==> chart: helm lint --strict, package, and the images that it starts")
    package = chart(registry, version, output)
    for name, reference in references(registry, version).items():
        print(f"{package.name}: {name} is {reference}, as the release names it")
    if push:
        plain = ["--plain-http"] if is_local(registry) else []
        run(helm(), "push", package, f"oci://{registry}/charts", *plain)
        print(f"oci://{registry}/charts/kraftbridge:{version}: pushed")
    print(f"notes and chart are in {output.relative_to(ROOT)}; {'everything was' if push else 'nothing was'} pushed")


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("names", "check", "base", "chart", "notes", "images", "dry-run"))
    parser.add_argument("--registry", default=os.environ.get("REGISTRY", ""))
    parser.add_argument("--version", default=project_version())
    parser.add_argument("--output", type=Path, default=ROOT / "out/release")
    parser.add_argument("--push", action="store_true")
    arguments = parser.parse_args()
    # An image's name is lower case; an owner of a repository need not be.
    registry, version = arguments.registry.rstrip("/").lower(), arguments.version.removeprefix("v")
    if not registry and arguments.command == "dry-run" and not arguments.push:
        registry = EXAMPLE_REGISTRY
    try:
        if arguments.command not in ("check", "base", "notes"):
            require(registry)
        match arguments.command:
            case "names":
                print("\n".join(f"{name}={reference}" for name, reference in references(registry, version).items()))
            case "check":
                check(version)
            case "base":
                print(f"BASE={base()}")
            case "notes":
                print(notes(version), end="")
            case "chart":
                print(chart(registry, version, arguments.output))
            case "images":
                images(registry, version, push=arguments.push)
            case "dry-run":
                dry_run(registry, version, push=arguments.push)
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
