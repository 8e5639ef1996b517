"""``python -m tests.rehearsal traps|random|forecast``: rehearsals on real processes that have no result yet; prints what breaks a promise.

Results are lines of ``benchmarks/measured/rehearsal``; one stands for as long as its tree and its expectation are the same.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from tests.rehearsal.table import PAGE, page
from tests.rehearsal.takeover import takeover
from tests.support.kafka_processes import KAFKA_VERSION, kafka_libraries
from tests.support.traps import CHROOT, SETTINGS, TRAPS, planted
from tests.support.trees import damaged_trees, drawn, sound_trees, write

from kraftbridge.exceptions import RehearsalError
from kraftbridge.models.rehearsal import Ending, RehearsalResult, RehearsalVerdict
from kraftbridge.rehearsal.rehearse import RehearsalOptions, rehearse

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "measured" / "rehearsal"
Row = dict[str, Any]
_REWRITTEN = ("/config/users/", "/config/clients/", "/config/ips/", "/delegation_token/tokens/", "/config/brokers/")
"""Every full sync writes these anew, even where they are equal; the comparison says whether they are."""


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def trap(name: str) -> Row:
    expected = TRAPS[name]
    with tempfile.TemporaryDirectory(prefix="kraftbridge-rehearsal-") as folder:
        dump = planted(expected, Path(folder) / "zk.jsonl")
        tree = digest(dump)
        options = RehearsalOptions(kafka_libraries(), Path(folder) / "work", CHROOT, expected.settings)
        result = rehearse(dump, options)
    broken = []
    if (result.ending, result.verdict) != (expected.ending, expected.verdict):
        broken.append(f"expected {expected.ending} and {expected.verdict}")
    if expected.code is not None and expected.code not in {mend.code for mend in result.mends}:
        broken.append(f"the trap is not named by {expected.code}")
    if expected.words not in " ".join(result.words):
        broken.append(f"Kafka did not say {expected.words!r}")
    return row(name, tree, result, broken)


def random_tree(name: str) -> Row:
    kind, _, number = name.partition("-")
    if kind == "sound":
        tree, damage = drawn(sound_trees(), int(number)), ""
    else:
        tree, damage = drawn(damaged_trees(), int(number))
    with tempfile.TemporaryDirectory(prefix="kraftbridge-rehearsal-") as folder:
        dump = write(tree, Path(folder) / "zk.jsonl")
        try:
            result = rehearse(dump, RehearsalOptions(kafka_libraries(), Path(folder) / "work", "", SETTINGS))
        except RehearsalError as error:
            return {"name": name, "tree": digest(dump), "kafka": KAFKA_VERSION, "damage": damage, "ending": "Refused",
                    "verdict": "Unknown", "reason": str(error), "broken": ["a sound tree is refused"] if not damage else []}  # fmt: skip
        answer = row(name, digest(dump), result, broken_by(result, damage))
    return answer | {"damage": damage}


def broken_by(result: RehearsalResult, damage: str) -> list[str]:
    """Return which promises a rehearsal of a random tree has broken; Kafka's own sync is the witness against a wrong `Works`."""
    broken = []
    works = result.verdict is RehearsalVerdict.WORKS
    if not damage and not works:
        broken.append("a sound tree does not rehearse to Works")
    if works and result.ending is not Ending.DUAL_WRITE:
        broken.append(f"Works although Kafka ended with {result.ending}")
    if works and result.sync.removed:
        broken.append(f"Works although the sync removed {result.sync.removed}")
    if works and (changed := [path for path in result.sync.changed if not path.startswith(_REWRITTEN)]):
        broken.append(f"Works although the sync changed {changed}")
    return broken


def row(name: str, tree: str, result: RehearsalResult, broken: list[str]) -> Row:
    return {
        "name": name, "tree": tree, "kafka": KAFKA_VERSION, "ending": result.ending, "verdict": result.verdict,
        "reason": result.reason[:500], "mends": sorted({mend.code for mend in result.mends}),
        "seconds": round((result.finished_at - result.started_at).total_seconds(), 1), "broken": broken,
    }  # fmt: skip


def known(path: Path) -> dict[str, Row]:
    rows = (json.loads(line) for line in path.read_text().splitlines()) if path.exists() else ()
    return {each["name"]: each for each in rows}


def stands(each: Row) -> bool:
    """Return whether a result was made of the same tree."""
    if each["kafka"] != KAFKA_VERSION or each["broken"]:
        return False
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "zk.jsonl"
        if each["name"] in TRAPS:
            return digest(planted(TRAPS[each["name"]], path)) == each["tree"]
        kind, _, number = each["name"].partition("-")
        tree = drawn(sound_trees(), int(number)) if kind == "sound" else drawn(damaged_trees(), int(number))[0]
        return digest(write(tree, path)) == each["tree"]


def run(what: str, names: list[str], jobs: int) -> Iterator[Row]:
    path = RESULTS / f"{what}.jsonl"
    rows = known(path)
    missing = [name for name in names if name not in rows or not stands(rows[name])]
    print(f"{len(names) - len(missing)} of {len(names)} have a result; {len(missing)} to go", flush=True)
    with ProcessPoolExecutor(jobs) as pool:
        for each in pool.map(trap if what == "traps" else random_tree, missing):
            rows[each["name"]] = each
            RESULTS.mkdir(parents=True, exist_ok=True)
            ordered = [rows[name] for name in sorted(rows)]
            path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in ordered))
            print(each["name"], each["ending"], each["verdict"], each.get("damage", ""), *each["broken"], flush=True)
    yield from (rows[name] for name in names)


def forecast(sizes: list[int]) -> int:
    """Append a row per takeover; nothing is resumed, because each run is another measurement."""
    rows = []
    for size in sizes:
        rows.append(takeover(size))
        with (RESULTS / "forecast.jsonl").open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")
        print(json.dumps(rows[-1]), flush=True)
    PAGE.write_text(page())
    return 1 if any(each["broken"] for each in rows) else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.rehearsal", description=__doc__)
    parser.add_argument("what", choices=["traps", "random", "forecast"])
    parser.add_argument(
        "--partitions", type=int, nargs="+", default=[336, 5000], help="sizes of the clusters for `forecast`"
    )
    parser.add_argument("--runs", type=int, default=20, help="random trees of each sort: sound ones and damaged ones")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    if options.what == "forecast":
        return forecast(options.partitions)
    sorts = [f"{kind}-{number}" for number in range(options.runs) for kind in ("sound", "damaged")]
    names = list(TRAPS) if options.what == "traps" else sorts
    broken = [each for each in run(options.what, names, options.jobs) if each["broken"]]
    for each in broken:
        print(f"BROKEN {each['name']}: {'; '.join(each['broken'])}: {each['reason']}")
    print(f"{len(names)} rehearsals, {len(broken)} broke a promise")
    if options.what == "traps":
        PAGE.write_text(page())
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
