"""The watch figures as a picture: four small charts, both sides in each, as SVG without any library."""

from __future__ import annotations

import math
from typing import Any

WIDTH, HEIGHT, MARGIN = 360, 260, 56
CHARTS = (
    ("requests_per_minute", "requests a minute"),
    ("cpu_seconds_per_minute", "CPU seconds a minute"),
    ("event_ms_p50", "end to event, p50, ms"),
    ("event_ms_p99", "end to event, p99, ms"),
)
COLOURS = {"everstep": "#0b6e4f", "provider": "#b5452c"}
NAMES = {"everstep": "Everstep", "provider": "KubernetesJobTrigger"}


def plot(figures: dict[str, Any]) -> str:
    """Return an SVG of `watch.json`: waits to the right, figures upwards on a logarithmic scale."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * WIDTH}" height="{2 * HEIGHT + 30}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for number, (key, title) in enumerate(CHARTS):
        left, top = number % 2 * WIDTH, number // 2 * HEIGHT
        parts.append(f'<g transform="translate({left},{top})">{_chart(figures["waits"], key, title)}</g>')
    for number, (side, name) in enumerate(NAMES.items()):
        x = MARGIN + number * 120
        parts.append(f'<rect x="{x}" y="{2 * HEIGHT + 8}" width="12" height="12" fill="{COLOURS[side]}"/>')
        parts.append(f'<text x="{x + 18}" y="{2 * HEIGHT + 18}">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _chart(waits: dict[str, Any], key: str, title: str) -> str:
    counts = sorted(int(count) for count in waits)
    values = {side: [max(float(waits[str(count)][side][key]), 0.01) for count in counts] for side in COLOURS}
    low = math.floor(math.log10(min(map(min, values.values()))))
    high = max(math.ceil(math.log10(max(map(max, values.values())))), low + 1)

    def x_of(count: int) -> float:
        return MARGIN + (WIDTH - MARGIN - 20) * count / counts[-1]

    def y_of(value: float) -> float:
        return 30 + (HEIGHT - 30 - MARGIN) * (high - math.log10(value)) / (high - low)

    parts = [f'<text x="{MARGIN}" y="18" font-weight="bold">{title}</text>']
    for power in range(low, high + 1):
        y = y_of(10.0**power)
        parts.append(f'<line x1="{MARGIN}" y1="{y:.1f}" x2="{WIDTH - 20}" y2="{y:.1f}" stroke="#dddddd"/>')
        parts.append(f'<text x="{MARGIN - 6}" y="{y + 4:.1f}" text-anchor="end">{10.0**power:g}</text>')
    for count in counts:
        parts.append(f'<text x="{x_of(count):.1f}" y="{HEIGHT - MARGIN + 18}" text-anchor="middle">{count}</text>')
    for side, colour in COLOURS.items():
        points = [(x_of(count), y_of(value)) for count, value in zip(counts, values[side], strict=True)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
    parts.append(f'<text x="{WIDTH - 20}" y="{HEIGHT - MARGIN + 34}" text-anchor="end">concurrent waits</text>')
    return "".join(parts)
