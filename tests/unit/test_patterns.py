"""Regular expressions mean the same in every Python that the operator runs on."""

from __future__ import annotations

import importlib
import pkgutil
import re
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest

import kraftbridge
from kraftbridge.kafka import metadata

REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT)


def opcodes(tree: Any) -> list[Any]:
    """Return the opcodes of a part of a parsed pattern and of everything in it."""
    if isinstance(tree, parser.SubPattern):
        return [code for operation, argument in tree for code in (operation, *opcodes(argument))]
    return [code for each in tree for code in opcodes(each)] if isinstance(tree, tuple | list) else []


def misread(tree: Any) -> bool:
    """Return whether a part of a parsed pattern gives nothing back and repeats something within."""
    if not isinstance(tree, parser.SubPattern):
        return isinstance(tree, tuple | list) and any(map(misread, tree))
    return any(
        misread(argument)
        or (code in (codes.POSSESSIVE_REPEAT, codes.ATOMIC_GROUP) and set(REPEATS) & set(opcodes(argument)))
        for code, argument in tree
    )


@pytest.mark.parametrize(("pattern", "wrong"), [("(?:a.{2})++", True), ("(?>a*b)", True), ("(?:ab|c)*+d++", False)])
def test_the_check_finds_what_it_is_for(pattern: str, wrong: bool) -> None:
    assert misread(parser.parse(pattern)) is wrong


def test_no_pattern_repeats_within_what_gives_nothing_back() -> None:
    """Python 3.11.0 to 3.11.4 leave off in the middle of such a group (gh-106052); the operator's image has 3.11.2."""
    found = {"metadata.rows": metadata._rows(metadata.Form(3, 2, 1))}
    for module in pkgutil.walk_packages(kraftbridge.__path__, "kraftbridge."):
        members = vars(importlib.import_module(module.name)).items()
        found |= {f"{module.name}.{name}": member for name, member in members if isinstance(member, re.Pattern)}
    assert len(found) > 20
    assert [name for name, each in found.items() if misread(parser.parse(each.pattern, each.flags & ~re.UNICODE))] == []
