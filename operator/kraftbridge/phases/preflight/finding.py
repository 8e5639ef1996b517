"""How preflight makes its findings: a code of the catalogue, an object, and the details of this case."""

from __future__ import annotations

from collections.abc import Iterable

from kraftbridge.models.catalogue import Code
from kraftbridge.models.status import FindingStatus

MAXIMUM_REASON = 1024
"""Characters of a reason in status."""


def finding(code: Code, obj: str, /, **details: object) -> FindingStatus:
    """Return a finding; ``details`` are what the catalogue's texts of this code name."""
    reason, fix = code.describe(**details)
    return FindingStatus(code=code, severity=code.severity, object=obj, reason=reason[:MAXIMUM_REASON], fix=fix)


def some(names: Iterable[object], most: int = 5) -> str:
    """Return the first few names, and how many more there are."""
    listed = sorted(str(n) for n in names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more
