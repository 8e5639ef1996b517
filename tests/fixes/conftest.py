"""Prints at the end which fixes ran, and the catalogue's reason for each that did not."""

from __future__ import annotations

import pytest
from tests.chart.conftest import helm_binary  # noqa: F401 - a fixture
from tests.chart.live.conftest import cluster  # noqa: F401 - a fixture
from tests.fixes.registry import EXECUTED

from kraftbridge.models.catalogue import Code
from kraftbridge.models.fixes import UNRUN


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    write = terminalreporter.write_line
    terminalreporter.section("fixes")
    for code in sorted(EXECUTED):
        write(f"{code}: run by {EXECUTED[code]}")
    for code, reason in sorted(UNRUN.items()):
        write(f"{code}: not run, {reason}")
    write(f"{len(EXECUTED)} run + {len(UNRUN)} with a reason = {len(EXECUTED) + len(UNRUN)} of {len(Code)} codes")
