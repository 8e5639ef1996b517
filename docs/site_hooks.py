"""Hook of mkdocs: a page that `nav` in mkdocs.yml does not name is listed at the end of "Reference"."""

# ruff: noqa: INP001 - loaded by mkdocs from its path
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

SECTION = "Reference"


def named(item: Any) -> Iterator[str]:
    """Yield the pages that a part of `nav` names."""
    if isinstance(item, str):
        yield item
    elif isinstance(item, list):
        for part in item:
            yield from named(part)
    else:
        for part in item.values():
            yield from named(part)


def on_config(config: Any) -> Any:
    """Add the pages that are missing in `nav`."""
    docs = Path(config["docs_dir"])
    known = set(named(config["nav"]))
    missing = sorted(
        str(page.relative_to(docs)) for page in docs.rglob("*.md") if str(page.relative_to(docs)) not in known
    )
    section = next(entry[SECTION] for entry in config["nav"] if SECTION in entry)
    section.extend(missing)
    return config
