"""Which fixes a test runs. The catalogue's own reasons say why the others are not run (`kraftbridge.models.fixes`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from kraftbridge.models.catalogue import Code

EXECUTED: Final[dict[Code, str]] = {}
"""The test that runs the fix of each code."""

F = TypeVar("F", bound=Callable[..., object])


def runs(*codes: Code) -> Callable[[F], F]:
    """Note that a test runs the fixes of these codes."""

    def note(test: F) -> F:
        for code in codes:
            EXECUTED[code] = f"{test.__module__}.{test.__name__}"  # type: ignore[attr-defined]
        return test

    return note
