"""For every tier: generated examples have no deadline, and what failed before a second try is printed.

How fast a machine is must not decide whether a test passes.
"""

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print why the first try of a test failed; pytest-rerunfailures only counts it."""
    for report in terminalreporter.getreports("rerun"):
        terminalreporter.section(f"first try of {report.nodeid}", yellow=True)
        terminalreporter.line(report.longreprtext)
