"""Growth with the cluster's size as an SVG, drawn by hand: two axes, three lines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT, MARGIN = 720, 400, 64
LINES = (
    ("seconds", "wall time, s", "#b3261e", 1.0),
    ("cpuSeconds", "processor time of all processes, s", "#1f5fa8", 1.0),
    ("peakMiB", "peak memory of all processes, GiB", "#2e7d32", 1 / 1024),
)


def growth_plot(
    growth: Sequence[Mapping[str, float]],
    lines: Sequence[tuple[str, str, str, float]] = LINES,
    title: str = "Verification: time and memory by number of partitions",
    axis: str = "partitions (three replicas each, three voters)",
) -> str:
    """Return a plot with logarithmic axes of what a benchmark measured at several sizes.

    Parameters
    ----------
    lines
        For each line the name of its value, its label, its colour, and a factor.
    """
    sizes = [row["partitions"] for row in growth]
    values = [row[name] * scale for row in growth for name, _, _, scale in lines]
    left, right = math.floor(math.log10(min(sizes))), math.ceil(math.log10(max(sizes)))
    bottom, top = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))

    def x(size: float) -> float:
        return MARGIN + (math.log10(size) - left) / max(1, right - left) * (WIDTH - 2 * MARGIN)

    def y(value: float) -> float:
        return HEIGHT - MARGIN - (math.log10(value) - bottom) / max(1, top - bottom) * (HEIGHT - 2 * MARGIN)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for power in range(left, right + 1):
        at = x(10**power)
        parts.append(f'<path d="M{at:.1f} {MARGIN}V{HEIGHT - MARGIN}" stroke="#ddd"/>')
        parts.append(f'<text x="{at:.1f}" y="{HEIGHT - MARGIN + 18}" text-anchor="middle">{10**power:,}</text>')
    for power in range(bottom, top + 1):
        at = y(10.0**power)
        parts.append(f'<path d="M{MARGIN} {at:.1f}H{WIDTH - MARGIN}" stroke="#ddd"/>')
        parts.append(f'<text x="{MARGIN - 8}" y="{at + 4:.1f}" text-anchor="end">{10.0**power:g}</text>')
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 18}" text-anchor="middle">{escape(axis)}</text>')
    for index, (name, label, colour, scale) in enumerate(lines):
        points = [(x(row["partitions"]), y(row[name] * scale), row[name] * scale) for row in growth]
        path = "L".join(f"{across:.1f} {up:.1f}" for across, up, _ in points)
        parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for across, up, value in points:
            parts.append(f'<circle cx="{across:.1f}" cy="{up:.1f}" r="3" fill="{colour}"/>')
            parts.append(
                f'<text x="{across:.1f}" y="{up - 7:.1f}" text-anchor="middle" fill="{colour}" font-size="10">{value:.3g}</text>'
            )
        parts.append(f'<path d="M{MARGIN + 8} {MARGIN - 44 + 16 * index}h20" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{MARGIN + 34}" y="{MARGIN - 40 + 16 * index}">{escape(label)}</text>')
    return "\n".join([*parts, "</svg>", ""])
