"""``python -m tests.simulation --runs N --seed S``: many simulated migrations, and what they went through."""

from __future__ import annotations

import argparse
import ast
import gc
import hashlib
import itertools
import json
import re
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.simulation.aims import table
from tests.simulation.planted import PLANTED, planted
from tests.simulation.run import BrokenPromiseError, Coverage, Run

from kraftbridge.models.phase import FORWARD, Phase

Record = dict[str, Any]
CHUNK = 100
SHOWN = 12
COUNTERS = ("states", "transitions", "faults", "ends", "worlds")
POSSIBLE = (
    *itertools.pairwise(FORWARD),
    (Phase.PREFLIGHT, Phase.PROVISIONING_QUORUM),
    *((p, Phase.ROLLING_BACK) for p in FORWARD if p.reversible and p is not Phase.PREFLIGHT),
    (Phase.ROLLING_BACK, Phase.ROLLED_BACK),
    (Phase.ROLLED_BACK, Phase.PREFLIGHT),
    *((p, Phase.LEAVING_KAFKA4) for p in FORWARD if p.row.on_kafka4),
    (Phase.LEAVING_KAFKA4, Phase.COMPLETED),
)
"""Every transition that `decide` can make."""


def play_many(first: int, runs: int, plant: str, *, guarded: bool) -> tuple[Coverage, list[tuple[int, str]]]:
    """Return what ``runs`` runs covered, and seed and words of each broken promise."""
    coverage, broken = Coverage(), []
    with planted(plant):
        for seed in range(first, first + runs):
            try:
                Run(seed, coverage, guarded=guarded).play()
            except BrokenPromiseError as e:
                broken.append((seed, str(e)))
    return coverage, broken


def main() -> int:
    """Play, print, and return 1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="seed of the first run; the others follow")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--plant", choices=["", *PLANTED], default="", help="plant a bug in decide, to see it found")
    parser.add_argument(
        "--unguarded", action="store_true", help="without an admission policy: others may take our fields back"
    )
    parser.add_argument(
        "--until-found", action="store_true", help="with --plant: stop at the first run that breaks a promise, print it"
    )
    parser.add_argument("--trail", type=int, metavar="SEED", help="print the steps of one run")
    parser.add_argument(
        "--results",
        type=Path,
        metavar="FILE",
        help="append each hundred runs as a JSON line; those in it are not repeated",
    )
    parser.add_argument("--report", action="store_true", help="play nothing, sum up what --results has")
    arguments = parser.parse_args()
    guarded = not arguments.unguarded
    if arguments.trail is not None:
        return _print_trail(arguments.trail, arguments.plant, guarded=guarded)
    if arguments.until_found:
        return _print_first(range(arguments.seed, arguments.seed + arguments.runs), arguments.plant, guarded=guarded)
    setting = {"sources": sources_digest(), "plant": arguments.plant, "guarded": guarded}
    known = _recorded(arguments.results, setting)
    wanted = range(arguments.seed, arguments.seed + arguments.runs, CHUNK)
    firsts = [] if arguments.report else [first for first in wanted if first not in known]
    sizes = [min(CHUNK, arguments.seed + arguments.runs - first) for first in firsts]
    started = time.monotonic()
    with ProcessPoolExecutor(arguments.jobs, initializer=_collect_rarely) as pool:
        parts = pool.map(_chunk, firsts, sizes, [arguments.plant] * len(sizes), [guarded] * len(sizes))
        for number, (first, size, (part, failures, seconds)) in enumerate(zip(firsts, sizes, parts, strict=True), 1):
            known[first] = {
                **setting, "first": first, "runs": size, "steps": part.steps, "cpuSeconds": round(seconds, 2), "broken": failures,
                **{name: _flat(getattr(part, name)) for name in COUNTERS},
            }  # fmt: skip
            if arguments.results is not None:
                with arguments.results.open("a") as file:
                    file.write(json.dumps(known[first], ensure_ascii=False) + "\n")
            if number % 10 == 0:
                print(f"{number * CHUNK} runs in {time.monotonic() - started:.0f} s", flush=True)
    return _print_report(list(known.values()))


def sources_digest() -> str:
    """Return a digest of what a run depends upon, so that results of other sources are not mixed in.

    Comments and docstrings change no run.
    """
    root = Path(__file__).resolve().parents[2]
    folders = ("operator/kraftbridge/phases", "operator/kraftbridge/models", "tests/simulation")
    files = sorted(path for folder in folders for path in (root / folder).rglob("*.py"))
    programs = [ast.dump(_Undocumented().visit(ast.parse(path.read_bytes()))) for path in files]
    return hashlib.sha256("\0".join(programs).encode()).hexdigest()[:16]


class _Undocumented(ast.NodeTransformer):
    """Drops each statement that is only a text."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else node


def _recorded(results: Path | None, setting: Record) -> dict[int, Record]:
    """Return the chunks that a file has for these sources, by first seed."""
    if results is None or not results.exists():
        return {}
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    return {line["first"]: line for line in lines if all(line[k] == v for k, v in setting.items())}


def _collect_rarely() -> None:
    """Let the collector pass over what was imported: its full passes take a seventh of the time of a run."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def _chunk(first: int, runs: int, plant: str, guarded: bool) -> tuple[Coverage, list[tuple[int, str]], float]:
    began = time.process_time()
    coverage, broken = play_many(first, runs, plant, guarded=guarded)
    return coverage, broken, time.process_time() - began


def _flat(counter: Counter[Any]) -> dict[str, int]:
    return {k if isinstance(k, str) else " → ".join(k): n for k, n in counter.items()}


def _print_trail(seed: int, plant: str, *, guarded: bool) -> int:
    run = Run(seed, Coverage(), guarded=guarded)
    with planted(plant):
        try:
            run.play()
        except BrokenPromiseError as e:
            print("\n".join(run.trail))
            print(f"broken promise: {e}")
            return 1
    print("\n".join(run.trail))
    return 0


def _print_first(seeds: range, plant: str, *, guarded: bool) -> int:
    """Print the first run that a bug makes break a promise; return 1 when there is none."""
    for number, seed in enumerate(seeds, 1):
        for _, words in play_many(seed, 1, plant, guarded=guarded)[1]:
            print(f"{plant}: run {number} (seed {seed}): {words}")
            return 0
    print(f"{plant}: not found in {len(seeds)} runs")
    return 1


def _print_report(chunks: list[Record]) -> int:
    """Print the sum of all chunks; return 1 when a promise was broken."""
    runs, steps, seconds = (sum(c[k] for c in chunks) for k in ("runs", "steps", "cpuSeconds"))
    rate = 60 * runs / seconds if seconds else 0.0
    states, transitions, faults, ends, worlds = (_sum(chunks, name) for name in COUNTERS)
    broken = [(seed, words) for c in chunks for seed, words in c["broken"]]
    print(f"{runs} runs, {steps} steps, {timedelta(seconds=round(seconds))} of CPU ({rate:.0f} runs/min/core)")
    print(f"ended in: {_counts(ends)}")
    print(f"{len(faults)} kinds of faults: {_counts(faults)}")
    print("worlds, by the phase in which each began:")
    print("\n".join(table(worlds)))
    print(f"{len(states)} distinct states (phase, act): {_counts(states)}")
    missing = sorted({" → ".join(map(str, t)) for t in POSSIBLE} - set(transitions))
    print(f"{len(transitions)} of {len(POSSIBLE)} possible transitions: {_counts(transitions)}")
    if missing:
        print(f"never seen: {', '.join(missing)}")
    print(f"{len(broken)} broken promises")
    kinds = Counter(re.sub(r"[0-9a-f]*\d[0-9a-f]*", "N", words) for _, words in broken)
    for kind, count in kinds.most_common(SHOWN):
        seed = next(s for s, words in broken if re.sub(r"[0-9a-f]*\d[0-9a-f]*", "N", words) == kind)
        print(f"  {count} times, first with seed {seed}: {kind}")
    return 1 if broken else 0


def _sum(chunks: list[Record], name: str) -> Counter[str]:
    total: Counter[str] = Counter()
    for chunk in chunks:
        total.update(chunk[name])
    return total


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{k} {n}" for k, n in counter.most_common())


if __name__ == "__main__":
    sys.exit(main())
