"""``docs/layouts.md``, from the kept results. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from e2e.harness.layouts import Layout

HEAD = """# Layouts of other people's brokers

<!-- Generated from docs/measured/layouts by `python docs/generate.py`; changes here are lost. -->

`make e2e-layouts VENDOR=DIR` brings up each layout on the embedded Kubernetes: a vendor's chart with the vendor's entrypoint, or plain manifests as people write them. It applies one KafkaMigration while a
producer and a consumer group are at work. `DIR` contains the charts (`charts/bitnami-kafka`, `charts/cp-kafka`) and the images' scripts (`images/bitnami`, `images/confluent`) as their projects publish them. They
are no part of this repository. The images are built on Kafka 3.9.1's jars. A layout whose result is in `docs/measured/layouts` does not run again; `ARGS="NAME --again"` repeats one.

After `Completed` the run stops ZooKeeper, uses the cluster, and compares the metadata that the brokers serve with the metadata before the migration. Then the release from before the migration (`helm upgrade`
with the old values, or `kubectl apply` of the old manifests) must be refused. The release with the [final manifest](kraft.md) (its values, or its kustomize patch) must be admitted, and the brokers must serve as
before. A refused layout stays in `Preflight`, and nothing was changed.

With `ARGS="NAME --back"` the run asks for the way back as soon as one broker runs KRaft. In `RolledBack` the pod templates must be those from before, and the brokers must serve as before.
"""

BACK = "-back"
"""Ends the name of a result of the way back."""
_NOTHING: Mapping[str, Any] = {"broken": ()}


def page(layouts: Sequence[Layout], known: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the page: a table of all layouts, and what preflight says about those that it refuses."""
    parts = [
        HEAD,
        "| layout | result | records acknowledged | lost | longest produce stall | the release afterwards restarts | a way back from RollingBrokers |",
        "|---|---|---|---|---|---|---|",
    ]
    parts += [_row(each, known.get(each.name), known.get(f"{each.name}{BACK}")) for each in layouts]
    for each in layouts:
        result = known.get(each.name, _NOTHING)
        back = known.get(f"{each.name}{BACK}", _NOTHING)
        if not (result.get("findings") or result["broken"] or back["broken"]):
            continue
        parts += ["", f"## {each.name}", "", f"{each.title}.", ""]
        parts += [
            f"- `{f['code']}` on {f['object']}: {_text(f['reason'])}. Fix: {_text(f['fix'])}."
            for f in result.get("findings", [])
        ]
        parts += [f"- {_text(problem)}" for problem in result["broken"]]
        parts += [f"- on the way back: {_text(problem)}" for problem in back["broken"]]
    return "\n".join(parts) + "\n"


def _row(layout: Layout, result: Mapping[str, Any] | None, back: Mapping[str, Any] | None) -> str:
    if result is None:
        return f"| {layout.title} | not run yet | | | | | |"
    link = f"[{layout.name}](#{layout.name})" if result.get("findings") or result["broken"] else layout.name
    match result["outcome"]:
        case "migrated" if not result["broken"]:
            told = "migrated to `Completed`"
        case "migrated":
            told = f"**✗** migrated, and not as promised ({link})"
        case "refused":
            told = f"refused in preflight: {', '.join(f'`{c}`' for c in dict.fromkeys(f['code'] for f in result['findings']))} ({link})"
        case _:
            told = f"**✗** stuck in `{result['phase']}` ({link})"
    figures = [result.get(key, "") for key in ("records", "lost")]
    stall = f"{result['longest_stall_s']} s" if "longest_stall_s" in result else ""
    upgrade = result.get("upgrade")
    restarts = "" if upgrade is None else ", ".join(upgrade["restarted"]) or "nothing"
    way_back = "" if result["outcome"] == "refused" else "not run" if back is None else _way_back(layout, back)
    return f"| {layout.title} | {told} | {figures[0]} | {figures[1]} | {stall} | {restarts} | {way_back} |"


def _way_back(layout: Layout, back: Mapping[str, Any]) -> str:
    if back["outcome"] == "rolled back" and not back["broken"]:
        return f"to `RolledBack`: {back['records']} records, {back['lost']} lost"
    return f"**✗** ended in `{back['phase']}` ([{layout.name}](#{layout.name}))"


def _text(text: str) -> str:
    # Angle brackets, braces and colours of an image's own words are no markup.
    return (
        re.sub(r"\x1b\[[0-9;]*m", "", text).rstrip(".").replace("<", "&lt;").replace("{", "&#123;").replace("*", "\\*")
    )
