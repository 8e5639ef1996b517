"""Every fix is run by a test of ``make fixes``, or the catalogue says why not."""

from __future__ import annotations

import importlib

import pytest
from tests.fixes.registry import EXECUTED
from tests.fixes.test_api_server import SPEC_CODES, SPEC_PATH, VALUES

from kraftbridge.models.catalogue import Code
from kraftbridge.models.fixes import UNRUN, Unrun

for module in (
    "tests.fixes.test_kafka",
    "tests.fixes.test_api_server",
    "tests.fixes.test_starts",
    "tests.integration.test_config_that_stops_failovers",
):
    importlib.import_module(module)


def test_executed_and_reasoned_are_all_codes() -> None:
    assert {code: EXECUTED[code] for code in EXECUTED.keys() & UNRUN.keys()} == {}, "run, and a reason why not"
    assert set(Code) - EXECUTED.keys() - UNRUN.keys() == set(), "neither run nor a reason why not"
    assert len(EXECUTED) + len(UNRUN) == len(Code)


@pytest.mark.parametrize("code", UNRUN)
def test_a_fix_with_a_command_has_no_excuse(code: Code) -> None:
    assert "`" not in code.fix or UNRUN[code] is Unrun.NODES
    assert not SPEC_PATH.search(code.fix)


def test_no_reason_is_unused() -> None:
    assert set(UNRUN.values()) == set(Unrun)


def test_every_field_of_spec_that_a_fix_names_has_a_value_to_try() -> None:
    named = {path for code in SPEC_CODES for path in SPEC_PATH.findall(code.fix)}
    assert named <= VALUES.keys(), named - VALUES.keys()
    assert VALUES.keys() == named
