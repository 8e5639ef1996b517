"""Take the pictures of the documentation with headless Chromium: ``python docs/screenshots.py [--check-pages]``.

Writes the page of a verification's report to ``docs/images/report.png``. With ``--check-pages`` it also takes a picture of every page of the
site (``make docs`` first) into ``out/screenshots``, and fails if a page is blank. Needs ``chromium``; no test needs it.
"""

# ruff: noqa: INP001, T201, S603 - a script that runs a browser
from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests/data/metadata/dualwrite"
SITE = ROOT / "out/site"
WIDTH, HEIGHT = 1280, 900
BLANK_BYTES = 12_000
"""A picture of an empty page compresses to less."""


def browser() -> str:
    """Return the path of Chromium."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        sys.exit("there is no chromium on PATH; run: apt-get install -y chromium")
    return found


def picture(page: Path, output: Path, height: int = HEIGHT) -> None:
    """Take a picture of a local HTML page."""
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as profile:
        command = [
            browser(),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={profile}",
        ]
        command += [f"--window-size={WIDTH},{height}", f"--screenshot={output}", page.resolve().as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    print(f"{output.relative_to(ROOT)}: {output.stat().st_size} bytes")


def report() -> None:
    """Verify the recorded cluster of the tests and take a picture of the report's page."""
    with tempfile.TemporaryDirectory() as directory:
        page = Path(directory) / "report.html"
        command = [
            sys.executable,
            "-m",
            "kraftbridge.verification",
            "offline",
            "--zookeeper",
            str(DATA / "zk.jsonl.gz"),
        ]
        command += ["--chroot", "/kafka", "--html", str(page), "--json", str(page.with_suffix(".json"))]
        for voter in ("c3000", "c3001", "c3002"):
            command += ["--voter", f"{voter}={DATA / voter}"]
        subprocess.run(command, check=False, env={**os.environ, "PYTHONSAFEPATH": "1"})
        picture(page, ROOT / "docs/images/report.png", 1000)


def site() -> int:
    """Take a picture of every page of the site; return the number of blank ones."""
    blank = 0
    for page in sorted(SITE.rglob("*.html")):
        output = ROOT / "out/screenshots" / page.relative_to(SITE).with_suffix(".png")
        picture(page, output)
        blank += output.stat().st_size < BLANK_BYTES
    return blank


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check-pages", action="store_true")
    arguments = parser.parse_args()
    report()
    return int(bool(arguments.check_pages and site()))


if __name__ == "__main__":
    sys.exit(main())
