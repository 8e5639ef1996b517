"""Run the tests of rules and policies on each supported API server: ``support.py [--again] [VERSION …]``.

Each version is tested with Helm 3, and the newest one with Helm 4, too.
The results are kept in ``benchmarks/measured/kubernetes``, and ``docs/support.md`` is made from what is there.
What has a result is not tested again unless ``--again`` is given.
"""

# ruff: noqa: INP001 - a script, not a package
from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from tiers import JUNIT, ROOT, counts, say

VERSIONS_FILE = ROOT / "e2e/cluster/versions.env"
RESULTS = ROOT / "benchmarks/measured/kubernetes"
TARGET = "chart-live"


@dataclass(frozen=True)
class Combination:
    """What is tested together."""

    kubernetes: str
    helm: str
    """Major version."""

    def __str__(self) -> str:
        """Return the words of messages."""
        return f"Kubernetes {self.kubernetes} with Helm {self.helm}"

    @property
    def file(self) -> Path:
        """Return where the result is kept."""
        return RESULTS / f"{self.kubernetes}-helm-{self.helm}.json"


def main() -> int:
    """Test what has no result yet; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "versions", nargs="*", metavar="VERSION", help="of Kubernetes; otherwise all that are supported"
    )
    parser.add_argument("--again", action="store_true", help="test also what has a result")
    arguments = parser.parse_args()
    RESULTS.mkdir(parents=True, exist_ok=True)
    chosen = arguments.versions
    wanted = [each for each in combinations() if not chosen or each.kubernetes in chosen]
    failed = [str(each) for each in wanted if not has_passed(each, again=arguments.again)]
    say(f"not as promised: {', '.join(failed)}" if failed else f"as promised: {', '.join(map(str, wanted))}")
    return int(bool(failed) or not wanted)


def combinations() -> list[Combination]:
    """Return what is tested, oldest version of Kubernetes first."""
    versions = setting("SUPPORTED_KUBERNETES_VERSIONS").split()
    return [*(Combination(version, "3") for version in versions), Combination(versions[-1], "4")]


def setting(name: str) -> str:
    """Return a value of ``versions.env``.

    Raises
    ------
    SystemExit
        It has no such name.
    """
    line = re.search(rf'^{name}="?([^"#\n]+)', VERSIONS_FILE.read_text(), re.MULTILINE)
    if line is None:
        sys.exit(f"{VERSIONS_FILE} has no {name}")
    return line[1].strip()


def has_passed(combination: Combination, *, again: bool) -> bool:
    """Return whether a combination passed, now or before; a result of now is kept."""
    if combination.file.exists() and not again:
        return not json.loads(combination.file.read_text())["failed"]
    report = JUNIT / f"{TARGET}.xml"
    report.unlink(missing_ok=True)
    make = os.environ.get("MAKE", "make")
    given = [f"KUBERNETES_VERSION={combination.kubernetes}", f"HELM={combination.helm}", "SECOND_TRY=", "ARGS="]
    exit_code = subprocess.call([make, TARGET, *given], cwd=ROOT, stdin=subprocess.DEVNULL)  # noqa: S603 - our own target
    if not report.exists():
        say(f"{combination}: no test ran")
        return False
    passed, failed, skipped, _ = counts(report)
    commit = subprocess.check_output(["git", "describe", "--always", "--dirty"], cwd=ROOT, text=True).strip()  # noqa: S607
    result = {**asdict(combination), "passed": passed, "failed": failed, "skipped": skipped, "commit": commit}
    combination.file.write_text(json.dumps(result, indent=1) + "\n")
    say(f"{combination}: {passed} passed, {failed} failed, {skipped} skipped")
    return exit_code == 0 and failed == 0


if __name__ == "__main__":
    sys.exit(main())
