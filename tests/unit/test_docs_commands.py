"""What the pages tell the reader to type exists: make targets, plugin commands and their options, modules, chart values, fields, files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main
import yaml

from kraftbridge.models import crd
from kraftbridge.models.broker_settings import RULES
from kraftbridge.plugin.main import app

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path
    for path in (
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
        *(ROOT / "e2e").rglob("*.md"),
    )
)
TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
CLUSTER = (ROOT / "e2e/cluster/cluster").read_text()
VALUES: dict[str, Any] = yaml.safe_load((ROOT / "helm/kraftbridge/values.yaml").read_text())
SCHEMA = crd.custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
PLUGIN = typer.main.get_command(app)
OTHERS_FIELDS = {
    "spec.template",
    "spec.updateStrategy",
    "spec.replicas",
    "spec.podManagementPolicy",
    "status.phase",
    "spec.jobNamespaces",
}
"""Fields of other kinds that the pages write without the kind."""


def code(page: Path) -> Iterator[str]:
    """Yield the lines of a page's code blocks, continued lines joined, and its inline code."""
    text = page.read_text()
    fenced = re.findall(r"^ *```[a-z]*\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    rest = re.sub(r"^ *```[a-z]*\n.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    indented = re.findall(r"^(?: {4,}|\t)(\S.*)$", re.sub(r"\\\n\s*", "", rest), re.MULTILINE)
    for block in fenced:
        yield from (line.strip() for line in re.sub(r"\\\n\s*", "", block).splitlines() if line.strip())
    yield from (line for line in indented if not line.startswith(("-", "|")))
    yield from re.findall(r"`([^`\n]+)`", rest)


CODE = [(page, line) for page in PAGES for line in code(page)]


def found(pattern: str) -> list[tuple[str, str]]:
    """Return the matches of a pattern in the code of the pages, each with its page."""
    return [
        (str(page.relative_to(ROOT)), match if isinstance(match, str) else " ".join(match))
        for page, line in CODE
        for match in re.findall(pattern, line)
    ]


def test_there_is_something_to_check() -> None:
    assert len(PAGES) > 40
    assert len(CODE) > 2000


def test_make_targets_exist() -> None:
    named = found(r"(?:^|\$ |; )make ([a-z][a-z0-9-]+)")
    assert len(named) > 60
    assert [entry for entry in named if entry[1] not in TARGETS] == []


def test_commands_of_the_plugin_exist_with_their_options() -> None:
    named = found(r"kubectl kraftbridge ([a-z].*)")
    assert len(named) > 5
    wrong = []
    for page, words in named:
        parts = [part for part in shlex.split(words.partition("#")[0].partition("|")[0]) if part != "…"]
        command = PLUGIN.commands.get(parts[0])  # type: ignore[attr-defined]
        known = {option for parameter in getattr(command, "params", ()) for option in parameter.opts}
        used = {part.partition("=")[0] for part in parts[1:] if part.startswith("-")}
        if command is None or used - known:
            wrong.append((page, words))
    assert wrong == []


def test_the_page_of_the_plugin_has_every_command() -> None:
    text = (ROOT / "docs/plugin.md").read_text()
    assert [name for name in PLUGIN.commands if name != "version" and f"`{name}" not in text] == []  # type: ignore[attr-defined]


def module_files(module: str) -> list[Path]:
    """Return the files in which a module that is run may have its options; none if there is no such module."""
    base = ROOT / "operator" if module.startswith("kraftbridge") else ROOT
    path = base / module.replace(".", "/")
    if (path / "__main__.py").is_file():
        return list(path.rglob("*.py"))
    beside = "harness" if module.startswith("e2e") else ""
    return [path.with_suffix(".py"), *(base / "e2e" / beside).glob("*.py")] if path.with_suffix(".py").is_file() else []


def has_option(source: str, option: str) -> bool:
    """Return whether the source of a program adds an option, in full or from a list of names."""
    return f'"{option}"' in source or ('f"--{' in source and f'"{option.removeprefix("--")}"' in source)


def test_modules_that_are_run_exist_with_their_options() -> None:
    wrong = []
    named = found(r"python3? -m ((?:kraftbridge|e2e|benchmarks|tests)\b.*)")
    assert len(named) > 15
    for page, words in named:
        module, *arguments = words.partition("#")[0].split()
        files = module_files(module)
        if not files:
            wrong.append((page, words))
            continue
        text = "\n".join(path.read_text() for path in files)
        options = {a.partition("=")[0] for a in arguments if re.match(r"--[a-z]", a)} - {"--help"}
        wrong += [(page, option) for option in options if not has_option(text, option)]
    assert wrong == []


def test_commands_of_the_embedded_cluster_exist() -> None:
    commands = set(re.findall(r"^#   cluster ([a-z-]+)", CLUSTER, re.MULTILINE))
    named = found(r"(?:e2e/cluster/cluster|^cluster) ([a-z-]+)")
    assert len(named) > 8
    assert [entry for entry in named if entry[1] not in commands] == []


def test_values_of_the_chart_exist() -> None:
    helm = "\n".join(line for _, line in CODE if "helm " in line)
    named = [("--set", name) for name in re.findall(r"--set(?:-string)? '?([A-Za-z.]+)(?:\[\d\][A-Za-z.]*)?=", helm)]
    top = set(VALUES)
    named += [
        (page, words)
        for page, words in found(r"^([a-z][A-Za-z]+(?:\.[A-Za-z]+)+)$")
        if words.split(".")[0] in top and words not in RULES
    ]
    assert len(named) > 20
    wrong = []
    for page, path in named:
        node: Any = VALUES
        for part in path.rstrip(".").split("."):
            node = node.get(part, KeyError) if isinstance(node, dict) and node else node
            if node is KeyError:
                wrong.append((page, path))
                break
    assert wrong == []


def field_exists(path: str) -> bool:
    """Return whether the schema of a KafkaMigration has a field; below a map or a free object any name is one."""
    node: dict[str, Any] = SCHEMA
    for part in path.split("."):
        node = node.get("items", node)
        if "properties" not in node:
            return "additionalProperties" in node or bool(node.get("x-kubernetes-preserve-unknown-fields"))
        if part not in node["properties"]:
            return False
        node = node["properties"][part]
    return True


def test_fields_of_a_migration_exist() -> None:
    named = found(r"(?:^|(?<=[\s'\"{(.=]))((?:spec|status)(?:\.[a-z][A-Za-z0-9]*)+)")
    assert len(named) > 150
    assert [
        (page, path)
        for page, path in named
        if not field_exists(path) and not any(path.startswith(other) for other in OTHERS_FIELDS)
    ] == []


def test_files_that_are_named_exist() -> None:
    named = found(r"^((?:examples|helm|docs|e2e|tests|operator|benchmarks|crds)/[A-Za-z0-9_./-]*[a-z0-9])$")
    assert len(named) > 40
    assert [entry for entry in named if not (ROOT / entry[1]).exists()] == []


def test_a_field_that_does_not_exist_is_not_found() -> None:
    assert field_exists("spec.controllers.listener.secretName")
    assert field_exists("spec.controllers.config.anything")
    assert not field_exists("spec.controllers.listener.secret")
    assert not field_exists("spec.nothing")
