"""``docs/layouts.md``, from the kept results. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from e2e.harness.layouts import Layout

HEAD = """# Layouts of other people's brokers

<!-- Generated from benchmarks/measured/layouts by `python docs/generate.py`; changes here are lost. -->

Each row is a cluster of three brokers (six with batches) on the embedded Kubernetes: a vendor's chart with the vendor's entrypoint, or plain manifests as people write them. One KafkaMigration is applied while a producer and a
consumer group are at work.

`make e2e-layouts VENDOR=DIR` runs the rows without a result; `ARGS="NAME --again"` repeats one. With `ARGS="NAME --by-hand"` you write the KafkaMigration yourself, and no result is kept. `DIR` contains the charts (`charts/bitnami-kafka`, `charts/bitnami-kafka-22`, `charts/cp-kafka`) and the images' scripts
(`images/bitnami`, `images/bitnami-3.4`, `images/confluent`) as their projects publish them. They are no part of this repository. The images are built on the jars of Kafka 3.9.1, that of `bitnami-3.4` on those of 3.4.1.
"""

MIGRATED = """
## Migrated

- *Result*: after `Completed` the run stops ZooKeeper, uses the cluster, and compares the metadata that the brokers serve with the metadata before the migration.
- *Lost*: records that were acknowledged and cannot be read afterwards, out of the records that were acknowledged.
- *Stall of the migration*: the longest time between sending a record and its acknowledgement, from the start of the load until ZooKeeper is stopped and the cluster is used.
- *The release afterwards*: the release from before the migration (`helm upgrade` with the old values, or `kubectl apply` of the old manifests) must be refused. The release with the
  [final manifest](kraft.md) (its values, or its kustomize patch) must be admitted, and the brokers must serve as before. The column names the brokers that this release restarts, one after the other, and the longest
  produce stall during it.
- *Way back*: a second run (`ARGS="NAME --back"`) asks for `spec.target: ZooKeeper` as soon as one broker runs KRaft, in `RollingBrokers`. In `RolledBack` the pod templates must be those from before, the brokers
  must serve as before, and the metadata must be the same. In brackets: what the migration said last when the longest stall began.
- *Load*: the 5-minute load average of the machine (two cores) at the end of the run. Three brokers, three controllers, Kubernetes, the clients and a verification alone make 4 to 8. Where it was not recorded, `plain-image` shared the machine
  with other tests (10 to 20), and the others ran alone.
- Runs without a recorded load had `strategy.addressCacheSeconds: 10`, those until 2026-11-26 35. Now the operator holds as long as the brokers cache addresses. On the way back the brokers' JVMs run the user's own template and cache addresses for 30 s. With 10, a broker still connected to the former
  address of the one restarted before, until the connection's setup timeout of 10 s: the cause of the stalls of about 10 s.

| layout | `spec.brokers` | result | lost | stall of the migration | the release afterwards | way back from `RollingBrokers` |
|---|---|---|---|---|---|---|"""

REFUSED = """
## Refused in preflight

The migration stays in `Preflight`, nothing is changed, and there is nothing to take back. Each row states what blocks and what mends it. The last section contains the operator's own words in full.

| layout | `spec.brokers` | finding | what is wrong | what to do |
|---|---|---|---|---|"""

AUTOMATIC = """
## With `configStyle: Auto`

The same clusters, with a KafkaMigration that says only `configStyle: Auto`: the dry start of preflight finds how the brokers get their configuration (`ARGS="NAME --auto"`). The columns are those of the first table.

| layout | channel found | result | lost | stall of the migration | the release afterwards |
|---|---|---|---|---|---|"""

AUTO = "-auto"
"""Ends the name of a result with ``configStyle: Auto``."""
CHANNEL = ("configStyle", "envPrefix", "volume", "key")
"""What ``status.channel`` says about the channel itself."""
BACK = "-back"
"""Ends the name of a result of the way back."""
_NOTHING: Mapping[str, Any] = {"broken": ()}
Results = Mapping[str, Mapping[str, Any]]


def page(layouts: Sequence[Layout], known: Results) -> str:
    """Return the page: what was migrated, what preflight refuses and why, and what is not as promised."""
    refused = [each for each in layouts if known.get(each.name, _NOTHING).get("outcome") == "refused"]
    parts = [HEAD + MIGRATED]
    parts += [
        _row(each, known.get(each.name), known.get(f"{each.name}{BACK}")) for each in layouts if each not in refused
    ]
    if found := [(each, known[f"{each.name}{AUTO}"]) for each in layouts if f"{each.name}{AUTO}" in known]:
        parts += [AUTOMATIC, *(_automatic(each, result) for each, result in found)]
    if refused:
        parts += [REFUSED, *(row for each in refused for row in _refusals(each, known[each.name]["findings"]))]
        parts += ["", "## What the operator says"]
    for each in layouts:
        result = known.get(each.name, _NOTHING)
        back = known.get(f"{each.name}{BACK}", _NOTHING)
        automatic = known.get(f"{each.name}{AUTO}", _NOTHING)
        if not (result.get("findings") or result["broken"] or back["broken"] or automatic["broken"]):
            continue
        parts += ["", f"### {each.name}", "", f"{each.title}; {each.channel}.", ""]
        parts += [
            f"- `{f['code']}` on {f['object']}: {_text(f['reason'])}. Fix: {_text(f['fix'])}."
            for f in result.get("findings", [])
        ]
        parts += [f"- {_text(problem)}" for problem in result["broken"]]
        parts += [f"- on the way back: {_text(problem)}" for problem in back["broken"]]
        parts += [f"- with `configStyle: Auto`: {_text(problem)}" for problem in automatic["broken"]]
    return "\n".join(parts) + "\n"


def _row(layout: Layout, result: Mapping[str, Any] | None, back: Mapping[str, Any] | None) -> str:
    head = f"| **{layout.name}**: {layout.title} | {layout.channel} |"
    way_back = "not run yet" if back is None else _way_back(layout, back)
    if result is None:
        return f"{head} not run yet | | | | {way_back} |"
    told = _told(layout, result)
    return f"{head} {told} | {_lost(result)} | {_stall(result)} | {_release(result)} | {way_back} |"


def _automatic(layout: Layout, result: Mapping[str, Any]) -> str:
    channel = result.get("channel", {})
    found = ", ".join(f"`{name}: {channel[name]}`" for name in CHANNEL if channel.get(name))
    return f"| **{layout.name}** | {found} | {_told(layout, result)} | {_lost(result)} | {_stall(result)} | {_release(result)} |"


def _told(layout: Layout, result: Mapping[str, Any]) -> str:
    link = f"[{layout.name}](#{layout.name})" if result["broken"] else layout.name
    match result["outcome"]:
        case "migrated" if not result["broken"]:
            return f"`Completed`{_batches(result)}"
        case "migrated":
            return f"**✗** `Completed`, and not as promised ({link})"
        case "refused":
            return f"refused in preflight: {', '.join(f'`{c}`' for c in dict.fromkeys(f['code'] for f in result['findings']))}"
        case _:
            return f"**✗** stuck in `{result['phase']}` ({link})"


def _batches(result: Mapping[str, Any]) -> str:
    together = [f"{', '.join(map(str, brokers))} ({mode})" for mode, brokers in result.get("batches", ())]
    killed = f"; killed meanwhile: {result['killed']}" if result.get("killed") else ""
    return f"; down together: {'; '.join(together)}{killed}" if together else ""


def _lost(result: Mapping[str, Any]) -> str:
    return f"{result['lost']} of {result['records']}" if "records" in result else ""


def _stall(result: Mapping[str, Any]) -> str:
    if "longest_stall_migration_s" in result:
        return f"{result['longest_stall_migration_s']} s{_load(result)}"
    if "longest_stall_s" not in result:
        return ""
    # Results of earlier versions do not tell the two parts of a run apart.
    return f"at most {result['longest_stall_s']} s"


def _release(result: Mapping[str, Any]) -> str:
    upgrade = result.get("upgrade")
    if upgrade is None:
        return ""
    told = f"restarts {', '.join(upgrade['restarted'])}" if upgrade["restarted"] else "restarts nothing"
    stall = result.get("longest_stall_release_s")
    if stall is not None:
        return f"{told}; stall {stall} s"
    return f"{told}; stall contained in that of the migration" if upgrade["restarted"] else told


def _way_back(layout: Layout, back: Mapping[str, Any]) -> str:
    if back["outcome"] == "rolled back" and not back["broken"]:
        during = f" ({_text(back['longest_stall_during'])})" if "longest_stall_during" in back else ""
        return f"`RolledBack`; lost {back['lost']} of {back['records']}; stall {back['longest_stall_s']} s{during}{_load(back)}"
    return f"**✗** ended in `{back['phase']}` ([{layout.name}](#{layout.name}))"


def _load(result: Mapping[str, Any]) -> str:
    return f"; load {result['load_average_5_min']}" if "load_average_5_min" in result else ""


def _refusals(layout: Layout, findings: Sequence[Mapping[str, str]]) -> list[str]:
    """Return a row for each code; the layout is named in the first. The first part of each message says what is wrong."""
    first: dict[str, Mapping[str, str]] = {}
    for finding in findings:
        first.setdefault(finding["code"], finding)
    heads = [f"[**{layout.name}**](#{layout.name}): {layout.title} | {layout.channel}"] + [" | "] * (len(first) - 1)
    return [
        f"| {head} | `{code}` | {_text(found['reason'].split(': ')[0])} | {_text(found['fix'])} |"
        for head, (code, found) in zip(heads, first.items(), strict=True)
    ]


def _text(text: str) -> str:
    # Angle brackets, braces and colours of an image's own words are no markup.
    return (
        re.sub(r"\x1b\[[0-9;]*m", "", text).rstrip(".").replace("<", "&lt;").replace("{", "&#123;").replace("*", "\\*")
    )
