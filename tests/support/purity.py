"""Finds the functions of a package that change the draft of a decision, through every call, in the syntax tree.

``python -m tests.support.purity DIRECTORY`` prints the count for another tree.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

WRITERS = frozenset({"update", "act", "tell", "set_condition", "set_findings"})
"""Methods of `Draft` that change it."""
READ_ONLY = "StepContext"
TYPES = frozenset({"Draft", READ_ONLY})


@dataclass
class Function:
    """A function with a parameter that is a draft, or its read-only half."""

    module: str
    name: str
    type: str
    """Annotation of the parameter."""
    changes: bool = False
    """Whether its own body changes the draft."""
    calls: set[tuple[str, str]] = field(default_factory=set)
    """Functions that its body passes the draft to, as (module, name)."""
    takers: frozenset[str] = frozenset()
    """Parameters that are themselves functions of a draft which may change it."""


def functions(package: Path) -> dict[tuple[str, str], Function]:
    """Return every module-level function below ``package`` that takes a draft, by module and name."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        tree = ast.parse(path.read_text())
        module = path.stem
        imported = _imported(tree)
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and (parameter := _parameter(node)) is not None:
                found[module, node.name] = _read(module, node, parameter, imported)
    return found


def mutating(found: dict[tuple[str, str], Function]) -> frozenset[tuple[str, str]]:
    """Return the functions that change the draft, directly or through what they call."""
    changing = {key for key, function in found.items() if function.changes}
    while True:
        more = {key for key, function in found.items() if key not in changing and function.calls & changing}
        if not more:
            return frozenset(changing)
        changing |= more


def _parameter(node: ast.FunctionDef) -> ast.arg | None:
    return next((a for a in node.args.args if isinstance(a.annotation, ast.Name) and a.annotation.id in TYPES), None)


def _imported(tree: ast.Module) -> dict[str, tuple[str, str]]:
    """Return the imports of a module: modules as ``(module, "")``, functions as ``(module, function)``."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("kraftbridge.phases"):
            parent = node.module.rpartition(".")[2]
            for alias in node.names:
                names[alias.asname or alias.name] = (parent, alias.name)
    return names


def _read(module: str, node: ast.FunctionDef, parameter: ast.arg, imported: dict[str, tuple[str, str]]) -> Function:
    name = parameter.arg
    function = Function(module, node.name, parameter.annotation.id)  # type: ignore[union-attr]
    for each in ast.walk(node):
        function.changes |= any(_is_attribute_of(target, name) for target in _targets(each))
        if not isinstance(each, ast.Call):
            continue
        called = each.func
        if isinstance(called, ast.Attribute) and _is(called.value, name):
            function.changes |= called.attr in WRITERS
        elif isinstance(called, ast.Attribute) and _is_attribute_of(called.value, name):
            function.changes |= called.attr in {"append", "extend", "clear", "insert", "remove", "pop"}
        if any(_is(argument, name) for argument in (*each.args, *(k.value for k in each.keywords))):
            function.calls |= set(_callees(called, module, imported))
        # A function that is handed on by name is called with the draft as well.
        for argument in each.args:
            if isinstance(argument, ast.Attribute | ast.Name):
                function.calls |= set(_callees(argument, module, imported))
    return function


def _callees(called: ast.expr, module: str, imported: dict[str, tuple[str, str]]) -> Iterator[tuple[str, str]]:
    if isinstance(called, ast.Name):
        yield imported.get(called.id, (module, called.id))
    elif isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
        yield imported.get(called.value.id, ("", called.value.id))[1], called.attr


def _targets(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AnnAssign | ast.AugAssign) else []


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _is_attribute_of(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Attribute) and _is(node.value, name)


if __name__ == "__main__":
    all_of_them = functions(Path(sys.argv[1]))
    changing = mutating(all_of_them)
    print(f"{len(all_of_them)} functions take a draft, {len(changing)} of them change it")
    print("\n".join(sorted(f"{'changes' if key in changing else 'reads  '} {'.'.join(key)}" for key in all_of_them)))
