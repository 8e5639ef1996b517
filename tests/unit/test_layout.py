"""Guards of the repository's shape; each guards against something that once broke silently."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OPERATOR = ROOT / "operator"

EXPECTED_TOP_LEVEL = {
    "operator",
    "crds",
    "helm",
    "tests",
    "e2e",
    "agent",
    "benchmarks",
    "docs",
    "Dockerfile",
    "Makefile",
    "README.md",
    "pyproject.toml",
    "LICENSE",
}

# Each pattern is written in two parts, so that this file does not contain what it looks for.
FORBIDDEN = {
    "absolute path of somebody's machine": re.compile(
        "(?<![A-Za-z0-9_.$}~-])" + "/(?:ro" + r"ot|wo" + r"rk|ho" + r"me/[a-z]+)/"
    ),
    "host name of a package registry": re.compile(
        r"\b(?:[a-z0-9-]+\.)*(?:py"
        r"pi\.org|pythonho"
        r"sted\.org|(?:proxy|sum)\.golang\.o"
        r"rg|npmj"
        r"s\.org|maven\.org|debian\.o"
        r"rg)\b"
    ),
    "credentials in a URL": re.compile(r"\bhttps?://[^/\s:@{}$]+:" + r"[^/\s@{}$]+@"),
}
ALLOWED_LINES = re.compile(r"/ho" + r"me/(?:spark|kafka)\b|--mount=type=cache,target=/ro" + r"ot/\.cache")
"""Homes and caches inside our own images are no machine's."""


def tracked_files() -> list[Path]:
    output = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in output.split("\0") if name and (ROOT / name).is_file()]


TRACKED = tracked_files()
MODULES = sorted(OPERATOR.rglob("*.py"))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_there_is_something_to_guard() -> None:
    assert len(TRACKED) > 50
    assert len(MODULES) > 20


def test_operator_holds_the_package_only() -> None:
    # A file beside it can shadow the standard library's operator module and kill Python, or only Spark's workers.
    assert [path.name for path in OPERATOR.iterdir() if path.name != "__pycache__"] == ["kraftbridge"]


def test_operator_is_the_standard_librarys() -> None:
    for directory in (ROOT, OPERATOR, ROOT / "e2e"):
        result = subprocess.run(
            [sys.executable, "-c", "import operator; print(operator.__file__)"],
            cwd=directory,
            check=True,
            capture_output=True,
            text=True,
        )
        assert not result.stdout.startswith(str(ROOT)), f"in {directory} `import operator` finds {result.stdout}"


def test_nothing_at_the_top_shadows_the_standard_library() -> None:
    names = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert not names & sys.stdlib_module_names


def test_no_tests_under_operator() -> None:
    names = [relative(p) for p in OPERATOR.rglob("*.py") if p.name.startswith("test_") or p.name == "conftest.py"]
    assert names == []


def test_every_folder_with_tests_is_run_by_a_make_target() -> None:
    folders = {path.relative_to(ROOT).parts[:2] for path in (ROOT / "tests").rglob("test_*.py")}
    recipes = "\n".join(
        line for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith("\t@$(PYTEST)")
    )
    assert len(folders) > 2
    assert [folder for folder in sorted("/".join(parts) for parts in folders) if folder not in recipes] == []


def test_every_package_has_its_init() -> None:
    folders = {path.parent for path in MODULES}
    assert [relative(f) for f in sorted(folders) if not (f / "__init__.py").exists()] == []


def imported(module: Path) -> set[str]:
    """Return the first names of all modules that a module imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(module.read_text())):
        match node:
            case ast.Import(names=names):
                found |= {name.name.partition(".")[0] for name in names}
            case ast.ImportFrom(module=str(name), level=0):
                found.add(name.partition(".")[0])
    return found


def test_the_operator_and_the_tests_support_never_import_a_benchmark() -> None:
    support = sorted((ROOT / "tests" / "support").rglob("*.py"))
    assert support
    assert "benchmarks" in imported(ROOT / "benchmarks" / "__main__.py")
    assert [relative(path) for path in (*MODULES, *support) if "benchmarks" in imported(path)] == []


def test_the_operator_never_imports_tests() -> None:
    assert "tests" in imported(ROOT / "benchmarks" / "quorum" / "cluster.py")
    assert [relative(path) for path in MODULES if imported(path) & {"tests", "e2e"}] == []


def test_top_level() -> None:
    assert {path.name for path in ROOT.iterdir()} >= EXPECTED_TOP_LEVEL


PAGES = [path for path in TRACKED if path.suffix == ".md"]


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s#]+)(?:#[^)]*)?\)", text):
        if "://" not in link:
            assert (page.parent / link).exists(), f"{relative(page)} links to {link}"


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_tracked_file_contains(what: str) -> None:
    hits = []
    for path in TRACKED:
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue  # binary data
        hits += [
            f"{relative(path)}:{number}: {line.strip()[:120]}"
            for number, line in enumerate(text.splitlines(), 1)
            if FORBIDDEN[what].search(line) and not ALLOWED_LINES.search(line)
        ]
    assert hits == []


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("absolute path of somebody's machine", "see /ro" + "ot/x"),
        ("absolute path of somebody's machine", 'open("/wo' + 'rk/main/x")'),
        ("host name of a package registry", "index-url = https://files.pythonho" + "sted.org/x"),
        ("host name of a package registry", "GOPROXY=proxy.golang.o" + "rg"),
        ("credentials in a URL", "http://me:se" + "cret@host/"),
    ],
)
def test_the_patterns_find_what_they_are_for(what: str, line: str) -> None:
    assert FORBIDDEN[what].search(line)


@pytest.mark.parametrize("line", ["/opt/spark/work-dir", "$HOME/work/x", "a/work/b", "network/root/x", "../work/y"])
def test_the_patterns_leave_other_paths_alone(line: str) -> None:
    assert not FORBIDDEN["absolute path of somebody's machine"].search(line)


PROGRAMS = [
    path
    for folder in ("e2e", "e2e/harness", "benchmarks", "benchmarks/quorum", "benchmarks/verification")
    for path in sorted((ROOT / folder).glob("*.py"))
    if path.stem != "conftest" and not path.stem.startswith("test_")
]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_only_runs_on_a_cluster_can_be_imported_without_one(path: Path) -> None:
    importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
