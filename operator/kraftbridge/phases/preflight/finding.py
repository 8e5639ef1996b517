"""How findings are made; ``docs/generate.py`` reads the calls of these two, so their texts are string literals."""

from __future__ import annotations

from kraftbridge.models.status import FindingStatus, Severity


def finding(severity: Severity, code: str, obj: str, reason: str, fix: str) -> FindingStatus:
    """Return a finding."""
    return FindingStatus(code=code, severity=severity, object=obj, reason=reason[:1024], fix=fix)


def block(code: str, obj: str, reason: str, fix: str) -> FindingStatus:
    """Return a finding that closes the gate."""
    return finding(Severity.BLOCKING, code, obj, reason, fix)


def some(names: object, most: int = 5) -> str:
    """Return the first few names, and how many more there are."""
    listed = sorted(str(n) for n in names)  # type: ignore[attr-defined]
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more
