"""A function that answers does not act: who may change the decision is found in the syntax tree, through every call."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tests.support.purity import READ_ONLY, functions, mutating

from kraftbridge import phases

PACKAGE = Path(phases.__file__).parent
FUNCTIONS = functions(PACKAGE)
MUTATING = mutating(FUNCTIONS)
QUERY_MODULES = frozenset({"gates", "brokers", "findings", "kafka", "kubernetes"})
"""Modules in which nothing changes the decision."""
VERBS = frozenset(
    [
        "begin",
        "close",
        "configure",
        "drop",
        "end",
        "enforce",
        "ensure",
        "enter",
        "fail",
        "finish",
        "follow",
        "forget",
        "give",
        "heal",
        "hold",
        "judge",
        "keep",
        "launch",
        "move",
        "note",
        "prove",
        "raise",
        "reassert",
        "reconcile",
        "record",
        "refuse",
        "relaunch",
        "release",
        "remember",
        "remove",
        "renew",
        "repeat",
        "replace",
        "restart",
        "restore",
        "roll",
        "run",
        "send",
        "set",
        "stop",
        "take",
        "track",
        "validate",
        "conclude",
    ]
)
"""First words of the names of functions that change the decision."""


def test_there_is_something_to_check() -> None:
    assert len(FUNCTIONS) > 100
    assert 50 < len(MUTATING) < len(FUNCTIONS)


@pytest.mark.parametrize("key", sorted(FUNCTIONS), ids=".".join)
def test_a_function_takes_a_draft_exactly_when_it_changes_it(key: tuple[str, str]) -> None:
    function = FUNCTIONS[key]
    if function.type == READ_ONLY or key[0] in QUERY_MODULES:
        assert key not in MUTATING, f"{'.'.join(key)} is a query and changes the decision"
    else:
        assert key in MUTATING, f"{'.'.join(key)} changes nothing: let it take a StepContext"


@pytest.mark.parametrize("key", sorted(MUTATING), ids=".".join)
def test_a_function_that_changes_the_decision_is_named_by_a_verb(key: tuple[str, str]) -> None:
    assert key[1].lstrip("_").partition("_")[0] in VERBS


def test_the_spec_is_computed_once() -> None:
    assigned = [
        f"{path.name}:{node.lineno}"
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "spec" and isinstance(node.ctx, ast.Store)
    ]
    assert assigned == []


def test_a_change_through_calls_is_found(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(
        "def answers(step: StepContext) -> bool:\n    return helper(step)\n\n"
        "def helper(draft: Draft) -> bool:\n    draft.act(1)\n\n"
        "def hidden(step: StepContext) -> None:\n    step.status = None\n\n"
        "def reads(step: StepContext) -> int:\n    return step.status.update(1)\n"
    )
    assert {name for _, name in mutating(functions(tmp_path))} == {"answers", "helper", "hidden"}
