"""Kubernetes quantities as whole numbers: millicores for CPU, bytes or a count for everything else."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from kubernetes.utils.quantity import parse_quantity


def whole(resource: str, text: object) -> int:
    """Return a quantity of a resource, rounded up: millicores for CPU, bytes or a count for all others.

    Raises
    ------
    ValueError
        ``text`` is not a quantity.
    """
    try:
        exact: Decimal = parse_quantity(text)
    except ValueError as e:
        raise ValueError(f"{text!r} is not a quantity") from e
    cpu = resource == "cpu" or resource.endswith(".cpu")
    return math.ceil(exact * (1000 if cpu else 1))


def wholes(resources: Mapping[str, Any] | None) -> dict[str, int]:
    """Return a resource list (``requests``, ``allocatable``, ``hard``) in whole numbers."""
    return {name: whole(name, text) for name, text in (resources or {}).items()}
