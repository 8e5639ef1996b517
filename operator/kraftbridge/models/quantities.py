"""Kubernetes quantities (``k8s.io/apimachinery/pkg/api/resource``) as whole numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

_SUFFIXES: Final[Mapping[str, Fraction]] = {
    "": Fraction(1), "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000),
    "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12), "P": Fraction(10**15), "E": Fraction(10**18),
    "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30), "Ti": Fraction(2**40), "Pi": Fraction(2**50), "Ei": Fraction(2**60),
}  # fmt: skip
_QUANTITY: Final = re.compile(r"([+-]?[0-9.]+)(?:([eE][+-]?[0-9]+)|([numkKMGTPE]i?|))")


def quantity(text: object) -> Fraction:
    """Return a quantity exactly.

    Raises
    ------
    ValueError
        It is none.
    """
    match = _QUANTITY.fullmatch(str(text).strip())
    if match is None or (match[3] or "") not in _SUFFIXES:
        raise ValueError(f"{text!r} is no quantity")
    return Fraction(match[1]) * (Fraction(f"1{match[2]}") if match[2] else _SUFFIXES[match[3] or ""])


def whole(resource: str, text: object) -> int:
    """Return a quantity of a resource in its unit here: millicores for CPU, bytes or a count for all others; rounded up."""
    cpu = resource == "cpu" or resource.endswith(".cpu")
    return math.ceil(quantity(text) * (1000 if cpu else 1))


def wholes(resources: Mapping[str, Any] | None) -> dict[str, int]:
    """Return a resource list (``requests``, ``allocatable``, ``hard`` …) in whole numbers."""
    return {name: whole(name, text) for name, text in (resources or {}).items()}


def shown(resource: str, amount: int) -> str:
    """Return an amount as people write it: ``500m``, ``2Gi``, ``3``."""
    if resource == "cpu" or resource.endswith(".cpu"):
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    if "memory" in resource or "storage" in resource:
        for unit in ("Gi", "Mi", "Ki"):
            size = int(_SUFFIXES[unit])
            if amount and amount % size == 0:
                return f"{amount // size}{unit}"
    return str(amount)
