"""What Kafka 3.9 takes as the parts of an ACL and as a quota, for every check of a tree."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from kraftbridge.metadata.log.image import ACL_OPERATIONS, ACL_PERMISSIONS, ACL_RESOURCE_TYPES
from kraftbridge.models.config_values import java_double

_FOR_FILTERS: Final = frozenset({"Any"})
"""``ResourcePattern`` and ``AccessControlEntry`` refuse ANY, which is for filters."""
RESOURCE_TYPES: Final = frozenset(ACL_RESOURCE_TYPES.values()) - _FOR_FILTERS
OPERATIONS: Final = frozenset(ACL_OPERATIONS.values()) - _FOR_FILTERS
PERMISSIONS: Final = frozenset(ACL_PERMISSIONS.values()) - _FOR_FILTERS

_WHOLE: Final = "a whole number below 2^63"
_WHOLE_32: Final = "a whole number below 2^31"
_NUMBER: Final = "a number"
_CLIENT_QUOTAS: Final[Mapping[str, str]] = {
    "producer_byte_rate": _WHOLE,
    "consumer_byte_rate": _WHOLE,
    "request_percentage": _NUMBER,
    "controller_mutation_rate": _NUMBER,
}
QUOTAS: Final[Mapping[str, Mapping[str, str]]] = {
    "users": _CLIENT_QUOTAS,
    "clients": _CLIENT_QUOTAS,
    "ips": {"connection_creation_rate": _WHOLE_32},
}
"""Quotas of Kafka 3.9's ``QuotaConfigs`` by the folder of the entity, with what each must be, in words."""
_QUOTA_LIMITS: Final[Mapping[str, int]] = {_WHOLE: 2**63 - 1, _WHOLE_32: 2**31 - 1}
_ROUNDING: Final = 1e-6
"""``ZkConfigMigrationClient`` accepts a limit as whole if it is this close to a whole number."""


def is_limit(text: str, expected: str) -> bool:
    """Return whether a quota's value is what `QUOTAS` expects."""
    limit = java_double(text)
    if limit is None:
        return False
    bound = _QUOTA_LIMITS.get(expected)
    return bound is None or _is_whole(limit, bound)


def _is_whole(limit: float, bound: int) -> bool:
    """Return whether ``ZkConfigMigrationClient`` accepts a limit as whole.

    Adding a millionth and truncating does not change it.
    A negative whole number is not accepted: -1 becomes 0.
    """
    return math.isfinite(limit) and abs(max(-bound, min(bound, math.trunc(limit + _ROUNDING))) - limit) <= _ROUNDING
