"""Take clusters of old releases to KRaft and back, and keep what it was like: ``python -m tests.journey``.

Resumable: a journey that has a result is not made again, unless ``--again`` is given.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from tests.journey.page import RESULTS, file_of
from tests.journey.travel import RELEASES, Journey, Way, attempted, present_commit, travel, written


def main() -> int:
    """Make the journeys that have no result yet; return 1 if one did not end as promised."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--release", action="append", choices=RELEASES, help="only this one; may be repeated")
    parser.add_argument("--way", action="append", type=Way, choices=list(Way), help="only this one; may be repeated")
    parser.add_argument("--again", action="store_true", help="also those that have a result")
    parser.add_argument(
        "--evidence", type=Path, help="keep what the processes of a journey wrote that does not end as promised"
    )
    options = parser.parse_args()
    options.results.mkdir(parents=True, exist_ok=True)
    commit = present_commit()
    wanted = [(release, way) for release in options.release or RELEASES for way in options.way or Way]
    is_good = True
    for release, way in wanted:
        path = options.results / file_of(release, way)
        if path.exists() and not options.again:
            continue
        if way is Way.BACK_FROM_BRIDGE and release == RELEASES[-1]:
            continue  # it is the bridge
        print(f"{release} {way}: begins", flush=True)
        kept = options.evidence / path.stem if options.evidence else None
        journey = attempted(Journey(release, way, commit), partial(travel, release, way, commit, kept))
        path.write_text(written(journey))
        is_good &= journey.good
        print(
            f"{release} {way}: {'as promised' if journey.good else 'NOT as promised'} after {journey.seconds:.0f} s; {journey}",
            flush=True,
        )
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
