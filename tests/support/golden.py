"""Golden files: the expected output of builders, as YAML that a person can review."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

DATA = Path(__file__).resolve().parents[1] / "data"
REGENERATE = "KRAFTBRIDGE_REGENERATE_GOLDEN"
"""Set to 1 to write the files anew; then read the difference in git."""


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def assert_golden(actual: Any, name: str) -> None:
    """Compare with ``tests/data/<name>``.

    Parameters
    ----------
    actual
        JSON-like: what the API server would get.
    name
        Path below ``tests/data``.
    """
    path = DATA / name
    text = yaml.dump_all(actual if isinstance(actual, list) else [actual], Dumper=_Dumper, sort_keys=False, width=120)
    if os.environ.get(REGENERATE) == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert path.exists(), f"{name} is missing; {REGENERATE}=1 writes it"
    expected = list(yaml.safe_load_all(path.read_text()))
    assert list(yaml.safe_load_all(text)) == expected, f"differs from tests/data/{name}; {REGENERATE}=1 writes it anew"
