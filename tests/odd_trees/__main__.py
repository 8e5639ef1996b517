"""Run odd trees through Kafka's own controller and keep what it did: ``python -m tests.odd_trees --results DIRECTORY``.

Resumable: a plant that has a result is not run again, unless ``--again`` names its beginning.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import zip_longest
from pathlib import Path

from tests.odd_trees.judge import kafkas
from tests.odd_trees.page import RESULTS, End, blocks, ours, read
from tests.odd_trees.plants import Plant, plants
from tests.support.kafka_processes import kafka_libraries

from kraftbridge.models.rehearsal import Ending


def _batches(wanted: list[Plant], size: int) -> list[list[Plant]]:
    """Return trees to run: what the check lets pass shares trees, everything else is alone in one."""
    harmless: list[Plant] = []
    by_place: dict[str, list[Plant]] = {}
    single = []
    for plant in wanted:
        if blocks(ours(plant)):
            single.append([plant])
        elif plant.alone:
            by_place.setdefault(plant.place, []).append(plant)
        else:
            harmless.append(plant)
    random.Random(1).shuffle(single)
    one_of_each = [[p for p in row if p is not None] for row in zip_longest(*by_place.values())]
    return [*(harmless[i : i + size] for i in range(0, len(harmless), size)), *one_of_each, *single]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--work", type=Path, required=True, help="scratch directory")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--company", type=int, default=24, help="plants that share a tree")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no tree after that")
    parser.add_argument("--only", default="", help="plants whose name begins so")
    parser.add_argument("--again", default=None, help="run plants anew whose name begins so")
    parser.add_argument("--alone", action="store_true", help="only plants that are alone in their tree")
    parser.add_argument("--every", type=int, default=1, help="only each n-th of the trees of one plant")
    options = parser.parse_args()
    options.results.parent.mkdir(parents=True, exist_ok=True)
    known = {r.plant: r for r in read(options.results)}
    again = options.again is not None
    wanted = [
        p
        for p in plants()
        if p.name.startswith(options.only)
        and p.alone >= options.alone
        and (p.name not in known or (again and p.name.startswith(options.again)))
    ]
    batches = _batches(wanted, options.company)
    batches = [b for i, b in enumerate(batches) if len(b) > 1 or i % options.every == 0]
    libraries, began, lock = kafka_libraries(), time.monotonic(), threading.Lock()
    print(f"{len(wanted)} plants in {len(batches)} trees; {len(known)} known", flush=True)

    def run(number: int, batch: list[Plant]) -> int:
        if time.monotonic() - began > options.seconds:
            return 0
        count = 0
        for r in kafkas(batch, libraries, options.work / f"tree-{number}"):
            if r.end is not End.NOT_REHEARSED or not r.detail.startswith(Ending.TIMED_OUT):
                count += 1
                with lock, options.results.open("a") as file:
                    file.write(f"{r.line()}\n")
            print(f"{time.monotonic() - began:7.0f} {r.end:13} {r.plant}  {r.detail[:110]}", flush=True)
        return count

    done = 0
    with ThreadPoolExecutor(options.workers) as pool:
        for future in as_completed([pool.submit(run, n, b) for n, b in enumerate(batches)]):
            try:
                done += future.result()
            except Exception as error:  # noqa: BLE001 - one tree must not end the others
                print(f"FAILED {error!r}", flush=True)
    print(f"{done} plants judged", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
