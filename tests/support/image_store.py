"""The module ``e2e/images/store.py``, which is no package, with an OCI layout of its own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

_IMAGES = Path(__file__).resolve().parents[2] / "e2e/images"


def image_store(monkeypatch: pytest.MonkeyPatch, layout: Path) -> Any:
    """Return the module, whose layout is in that folder until the test ends."""
    monkeypatch.syspath_prepend(str(_IMAGES))
    for name in ("store", "materials"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import store

    monkeypatch.setattr(store, "LAYOUT", layout)
    return store
