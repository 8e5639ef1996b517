"""Makes a finding from a code of the catalogue, an object, and the details of the case."""

from __future__ import annotations

from collections.abc import Iterable

from kraftbridge.models.catalogue import Code
from kraftbridge.models.status import FindingStatus

MAXIMUM_REASON = 1024
"""Maximum length of a reason in status, in characters."""


def finding(code: Code, obj: str, /, **details: object) -> FindingStatus:
    """Return a finding; ``details`` fill the placeholders in the catalogue's texts of this code."""
    reason, fix = code.describe(**details)
    return FindingStatus(code=code, severity=code.severity, object=obj, reason=reason[:MAXIMUM_REASON], fix=fix)


def some(names: Iterable[object], most: int = 5) -> str:
    """Return the first ``most`` names in alphabetical order and the number of the others."""
    return first(sorted(str(n) for n in names), most)


def first(names: Iterable[object], most: int = 5) -> str:
    """Return the first ``most`` names in their own order and the number of the others."""
    listed = [str(n) for n in names]
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more
