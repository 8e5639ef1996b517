"""A bound on what a block of a test allocates."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

from kraftbridge.outside import bounds


@contextmanager
def at_most(mebibytes: int) -> Iterator[None]:
    """Fail if Python allocates more at any moment of the block."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < mebibytes * bounds.MIB, bounds.size(peak)
