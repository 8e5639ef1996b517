"""``docs/nodes.md``, from the kept results. Pure."""

from collections.abc import Mapping
from typing import Any

from e2e.harness.nodes import CELLS, WHAT, Cell, Trouble

HEAD = """# On three nodes

<!-- Generated from benchmarks/measured/nodes by `python docs/generate.py`; changes here are lost. -->

Each row is a migration of six brokers on the embedded Kubernetes with three nodes, while a producer with `acks=all` and a consumer group are at work. Each of three StatefulSets has two brokers and is bound to one zone,
which is one node, by its `nodeSelector`; each volume is bound to its node. `broker.rack` is the zone. Topics have three replicas, one in each rack, and `min.insync.replicas=2` where the load writes.
With `strategy.maxUnavailable: 2` the brokers of a zone restart together. ZooKeeper, the operator and the clients run on the first node, which carries the API server and cannot be taken away.
No PodDisruptionBudget protects the brokers: what keeps a second zone from going down are the gates of the operator alone.

`make e2e-nodes` runs the rows without a result. `ARGS="--only drain@RollingBrokers --again"` repeats one, `ARGS=--plan` shows what is missing, and `--away-seconds 120` shortens the time without network.
It starts the cluster with three nodes. If one with another number of nodes is up, run `e2e/cluster/cluster down` first.

The trouble comes to a further node with two brokers and a controller, as soon as every broker is up:

- `TakingOver`, `RollingBrokers`: at least one broker was restarted in that phase, and those of the node were not.
- `DualWrite`: in that phase.
- `back`: in `RollingBack`. `spec.target: ZooKeeper` is set as soon as one broker runs KRaft.
- `forward` and `back` of `none` are the same without a trouble.

"""

TABLE = """
| trouble | when | result | lost | longest stall | errors of clients | batches | down by us | below min ISR | whole again |
|---|---|---|---|---|---|---|---|---|---|"""

COLUMNS = """
- *Result*: the phase in which it ended, and after how many seconds. **✗** means that something was not as promised (below). Promised is: no acknowledged record is lost or doubled, the metadata is as before, the controllers run one in each zone,
  the operator stops no broker while one of another zone is down, and no partition falls below its min ISR without a trouble. It is checked against observed pods, partitions and clients, not against the status of the operator.
- *Lost*: records that were acknowledged and cannot be read afterwards, out of the records that were acknowledged.
- *Longest stall*: the longest time between sending a record and its acknowledgement. In brackets: what the migration said last when it began.
  A node without network closes no connection: a request that is under way to its brokers waits for the client's own timeout, which is 60 s in librdkafka (`socket.timeout.ms`).
- *Errors of clients*: by kind, and how many; with a trouble they are told, and not judged.
- *Batches*: the batches of several brokers (mode to which they restarted). *Down by us*: the most brokers that the operator had down at a time. The next one of a batch is stopped once the one before has handed over its leaders;
  where a broker ends within seconds, that is seen only when its next start tells how it ended, and it may be Ready again by then.
- *Below min ISR*: the most partitions at a time from the beginning of the trouble until every replica is in sync again, as read every half second.
- *Whole again*: how many seconds the trouble lasted, and how many seconds later every replica was in sync.
"""

Results = Mapping[str, Mapping[str, Any]]


def page(known: Results) -> str:
    """Return the page: the table, what the operator said, and what is not as promised."""
    found = [(cell, known[str(cell)]) for cell in CELLS if str(cell) in known]
    parts = [
        HEAD + "\n".join(f"- `{trouble}`: {what}." for trouble, what in WHAT.items() if trouble is not Trouble.NONE)
    ]
    parts += [TABLE, *(_row(cell, known.get(str(cell))) for cell in CELLS), COLUMNS]
    good = sum(not result["broken"] for _, result in found)
    acked = sum(result["records"] for _, result in found)
    lost = sum(result["lost"] for _, result in found)
    parts.append(
        f"{len(found)} of {len(CELLS)} rows have a result, {good} of them as promised: {acked} records were acknowledged, {lost} lost."
    )
    if bad := [(cell, result) for cell, result in found if result["broken"]]:
        parts += ["\n## Not as promised\n", *(f"- `{c}`: {_text(what)}." for c, r in bad for what in r["broken"])]
    if struck := [(cell, result) for cell, result in found if "trouble" in result]:
        parts.append("\n## Messages of the operator\n")
        parts.append(
            "While the trouble lasted, with the seconds for which each was shown. Messages that differ in numbers only are shown once."
        )
        for cell, result in struck:
            trouble = result["trouble"]
            note = f" {result['note']}." if "note" in result else ""
            parts.append(f"\n### {cell}\n\n`{trouble['node']}` carried {', '.join(trouble['pods'])}.{note}\n")
            parts += [f"- {_text(text)}" for text in trouble["said"]]
    return "\n".join(parts) + "\n"


def _row(cell: Cell, result: Mapping[str, Any] | None) -> str:
    head = f"| `{cell.trouble}` | {cell.when} |"
    if result is None:
        return f"{head} not run yet | | | | | | | |"
    mark = "**✗** " if result["broken"] else ""
    errors = ", ".join(f"{name} {count}" for name, count in sorted(result.get("errors", {}).items())) or "none"
    together = "; ".join(f"{', '.join(map(str, brokers))} ({mode})" for mode, brokers in result["batches"])
    trouble = result.get("trouble")
    below = trouble["below_min_isr"] if trouble else result["below_min_isr"]
    if result["moments_unread"]:
        below = f"{below} (not read in {result['moments_unread']} of {result['moments']} moments)"
    whole = f"{trouble['seconds']} s, {trouble['whole_again_after_s']} s" if trouble else ""
    return (
        f"{head} {mark}`{result['phase']}`, {result['seconds']} s | {result['lost']} of {result['records']} "
        f"| {result['longest_stall_s']} s ({_text(result['longest_stall_during'])}) | {errors} | {together} | {result['brokers_down_at_once_by_us']} | {below} | {whole} |"
    )


def _text(text: str) -> str:
    return (
        text.rstrip(".")
        .replace("<", "&lt;")
        .replace("{", "&#123;")
        .replace("*", "\\*")
        .replace("|", "\\|")
        .replace("\n", " ")
    )
