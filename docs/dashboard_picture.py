"""Draw the Grafana dashboard of a running migration to ``docs/images/dashboard.svg``: ``make dashboard-picture`` beside ``make demo``.

A Prometheus of its own (``make alerts`` builds it) scrapes the operator through ``kubectl port-forward``. When the migration is Completed, every
panel of ``helm/kraftbridge/files/dashboards/migrations.json`` is drawn from the answers to its own queries, in its own place. The drawing is not
Grafana's. No test needs it.
"""

# ruff: noqa: INP001, T201, S603, S607, S310 - a script that runs programs and asks a Prometheus on this host
from __future__ import annotations

import argparse
import contextlib
import json
import socket
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
DASHBOARD: Final = ROOT / "helm/kraftbridge/files/dashboards/migrations.json"
COLUMN, ROW, GAP, HEAD = 50, 30, 6, 24
COLOURS: Final = (
    "#1f5fa8",
    "#2e7d32",
    "#b3261e",
    "#8e5bb5",
    "#c77700",
    "#00838f",
    "#ad1457",
    "#5d4037",
    "#546e7a",
    "#9e9d24",
)
SETTLE_SECONDS: Final = 20
STEP_SECONDS: Final = 2
_MINUTE, _ROOMY = 60, 24
Series = tuple[str, Sequence[tuple[float, float]]]
"""Name, and pairs of time and value."""


def free_port() -> int:
    """Return a free port of this host."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Prometheus:
    """A Prometheus that scrapes one target on this host."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, path: str, **query: str) -> list[dict[str, Any]]:
        """Return the results of a query."""
        with urllib.request.urlopen(f"{self.url}{path}?{urllib.parse.urlencode(query)}", timeout=10) as answer:
            return list(json.load(answer)["data"]["result"])

    def series(self, target: Mapping[str, Any], start: float, end: float) -> list[Series]:
        """Return what a target of a panel shows, with the names of its legend."""
        expression = target["expr"].replace("$namespace", ".*").replace("$name", ".*").replace("$__rate_interval", "1m")
        found = self.ask(
            "/api/v1/query_range", query=expression, start=str(start), end=str(end), step=str(STEP_SECONDS)
        )
        named = []
        for each in found:
            name = target.get("legendFormat") or ""
            for label, value in each["metric"].items():
                name = name.replace("{{" + label + "}}", value)
            named.append((name.strip(), [(float(at), float(value)) for at, value in each["values"] if value != "NaN"]))
        return sorted((s for s in named if s[1]), key=lambda s: s[1][0][0])


@contextlib.contextmanager
def running(namespace: str, service: str) -> Iterator[Prometheus]:
    """Run a Prometheus, and keep a way to the operator's metrics open."""
    target, port = free_port(), free_port()
    scrape = {"job_name": "kraftbridge", "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}
    with tempfile.TemporaryDirectory() as folder:
        configuration = Path(folder) / "prometheus.yml"
        configuration.write_text(
            json.dumps({"global": {"scrape_interval": f"{STEP_SECONDS}s"}, "scrape_configs": [scrape]})
        )
        command = ["prometheus", f"--config.file={configuration}", f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]  # fmt: skip
        forward = f"while :; do kubectl -n {namespace} port-forward service/{service} {target}:8000 >/dev/null 2>&1; sleep 1; done"
        started = [subprocess.Popen(command), subprocess.Popen(["bash", "-c", forward], start_new_session=True)]
        try:
            yield Prometheus(f"http://127.0.0.1:{port}")
        finally:
            subprocess.run(["kill", "--", f"-{started[1].pid}"], check=False)
            for process in started:
                process.terminate()
                process.wait(10)


def until_completed(prometheus: Prometheus) -> tuple[float, float]:
    """Wait for a migration and its end; return the times of both."""
    start = 0.0
    while True:
        time.sleep(STEP_SECONDS)
        with contextlib.suppress(OSError):
            phases = prometheus.ask("/api/v1/query", query="kraftbridge_migration_phase == 1")
            if phases and not start:
                start = time.time()
            if any(each["metric"]["phase"] == "Completed" for each in phases):
                time.sleep(SETTLE_SECONDS)
                return start, time.time()


def text(x: float, y: float, words: str, size: int = 11, colour: str = "#333", weight: str = "normal") -> str:
    """Return words."""
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" fill="{colour}" font-weight="{weight}">{escape(words)}</text>'


def clipped(words: str, width: float) -> str:
    """Return what of a title fits."""
    fitting = int(width / 7)
    return words if len(words) <= fitting else f"{words[: fitting - 1]}…"


def shown(value: float, unit: str | None) -> str:
    """Return a value with its unit, as people read it."""
    match unit:
        case "s":
            return f"{value:.1f} s" if value < _MINUTE else f"{value / _MINUTE:.1f} min"
        case "percent":
            return f"{value:.0f} %"
        case _:
            return f"{value:g}"


def timeline(
    series: Sequence[Series], box: tuple[float, float, float, float], start: float, end: float
) -> Iterator[str]:
    """Draw a bar for each time at which a series has the value 1."""
    x, y, width, height = box
    line = min(18.0, height / max(len(series), 1))
    left = 190.0
    for index, (name, values) in enumerate(series):
        top, colour = y + index * line, COLOURS[index % len(COLOURS)]
        yield text(x, top + line * 0.75, name, 10)
        for at, value in values:
            if value:
                begin = x + left + (at - start) / (end - start) * (width - left)
                yield f'<rect x="{begin:.1f}" y="{top + 2:.1f}" width="{(width - left) * STEP_SECONDS / (end - start) + 0.6:.1f}" height="{line - 4:.1f}" fill="{colour}"/>'


def lines(
    series: Sequence[Series], box: tuple[float, float, float, float], start: float, end: float, unit: str | None
) -> Iterator[str]:
    """Draw a line for each series."""
    x, y, width, height = box
    legend = 13 * -(-len(series) // 3)
    most = max((value for _, values in series for _, value in values), default=0.0) or 1.0
    bottom, top = y + height - legend - 4, y + 8
    for part in (0.0, 0.5, 1.0):
        level = bottom - (bottom - top) * part
        yield f'<line x1="{x + 48:.0f}" x2="{x + width:.0f}" y1="{level:.0f}" y2="{level:.0f}" stroke="#e3e3e3"/>'
        yield text(x, level + 4, shown(most * part, unit), 9, "#777")
    for index, (name, values) in enumerate(series):
        colour = COLOURS[index % len(COLOURS)]
        places = " ".join(f"{x + 48 + (at - start) / (end - start) * (width - 48):.1f},{bottom - (bottom - top) * value / most:.1f}" for at, value in values)  # fmt: skip
        yield f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        yield text(x + index % 3 * width / 3, bottom + 14 + index // 3 * 13, f"— {name}", 9, colour)


def numbers(series: Sequence[Series], box: tuple[float, float, float, float], unit: str | None) -> Iterator[str]:
    """Write the last value of each series."""
    x, y, _, height = box
    line = min(34.0, height / max(len(series), 1))
    for index, (name, values) in enumerate(series):
        middle = y + (index + 0.65) * line
        size = 18 if line > _ROOMY else 11
        yield text(x, middle, shown(values[-1][1], unit), size, COLOURS[0], "bold")
        yield text(x + 12 + 0.62 * size * len(shown(values[-1][1], unit)), middle, name, 10, "#555")


def picture(prometheus: Prometheus, start: float, end: float) -> str:
    """Return the dashboard between two times."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    height = max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in panels) * ROW
    parts = []
    for panel in panels:
        place, unit = panel["gridPos"], panel.get("fieldConfig", {}).get("defaults", {}).get("unit")
        left, top = place["x"] * COLUMN + GAP / 2, place["y"] * ROW + GAP / 2
        wide, high = place["w"] * COLUMN - GAP, place["h"] * ROW - GAP
        parts.append(f'<rect x="{left}" y="{top}" width="{wide}" height="{high}" rx="3" fill="#fff" stroke="#d8d8d8"/>')
        parts.append(text(left + 8, top + 17, clipped(panel["title"], wide), 12, "#111", "bold"))
        series = [s for target in panel["targets"] for s in prometheus.series(target, start, end)]
        box = (left + 10, top + HEAD + 4, wide - 20, high - HEAD - 10)
        match panel["type"]:
            case "state-timeline":
                parts += timeline(series, box, start, end)
            case "timeseries":
                parts += lines(series, box, start, end, unit)
            case _:
                parts += numbers(series, box, unit)
        if not series:
            parts.append(text(box[0], box[1] + 16, "no sample", 11, "#999"))
    body = "\n".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="{24 * COLUMN}" height="{height}" font-family="sans-serif"><rect width="100%" height="100%" fill="#f4f5f5"/>\n{body}\n</svg>\n'


def main() -> None:
    """Wait for a migration from its begin to its end, and draw it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--namespace", default="kraftbridge", help="of the operator")
    parser.add_argument("--service", default="kraftbridge-metrics")
    parser.add_argument("--output", type=Path, default=ROOT / "docs/images/dashboard.svg")
    arguments = parser.parse_args()
    with running(arguments.namespace, arguments.service) as prometheus:
        print("waiting for a migration to begin and to be Completed", flush=True)
        start, end = until_completed(prometheus)
        arguments.output.write_text(picture(prometheus, start, end))
    print(f"{arguments.output.name}: {end - start:.0f} s of a migration")


if __name__ == "__main__":
    main()
