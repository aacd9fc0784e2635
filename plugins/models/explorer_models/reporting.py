"""A verdict for other programs: as JSON, as annotations and summary of a GitHub workflow, and as a
chart in SVG."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from explorer.numbers import number
from explorer.sites import SITE_WORDS
from explorer.translation import speaking
from explorer_models.expecting import Verdict
from explorer_models.texts import text

SCHEMA = 1
"""Version of the report; `report.schema.json` describes it."""
WIDTH, HEIGHT, LEFT, RIGHT, BOTTOM = 640, 260, 56, 170, 34
"""Of the chart, and its margins, in pixels."""
COLORS = {"attn_out": "#0a7d6c", "mlp_out": "#c2571a", "resid_post": "#4b5bd0"}
"""Sites that the chart draws; each color is readable on white."""


def report(judged: Verdict) -> dict[str, Any]:
    """The verdict as JSON has it: numbers that are not finite are null."""
    rows = []
    for row in judged.departures:
        fields = row._asdict()
        fields["table"], fields["key"] = fields.pop("key")
        fields["words"] = row.words.strip()
        for name in ("value", "expected"):
            if isinstance(fields[name], float) and not math.isfinite(fields[name]):
                fields[name] = None
        rows.append(fields)
    return {
        "schema": SCHEMA,
        "model": judged.profile.model,
        "expect": judged.name,
        "starts": judged.agrees,
        "departures": rows,
        "notes": list(judged.remarks),
    }


def workflow_commands(judged: Verdict) -> Iterator[str]:
    """A workflow command of GitHub for each departure, at the line of the file where there is
    one."""
    for row in judged.departures:
        # from the root of the repository, wherever the command runs
        file = os.path.relpath(judged.name, os.environ.get("GITHUB_WORKSPACE", "."))
        where = f"file={_property(file)},line={row.line}," if row.line else ""
        title = _property(text("report", "title", design=judged.name))
        yield f"::error {where}title={title}::{_data(row.words.strip())}"


def _data(words: str) -> str:
    """A message as a workflow command has it."""
    return words.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(words: str) -> str:
    """A property of a workflow command."""
    return _data(words).replace(":", "%3A").replace(",", "%2C")


def summary(judged: Verdict) -> str:
    """The verdict as Markdown, for the summary of a job: a sentence, and a table of departures."""
    first = str(judged).partition("\n")[0]
    rows = [f"### {_cell(first)}", ""]
    if judged.departures:
        rows += [text("report", "columns"), "|---|---|---|---|"]
    for row in judged.departures:
        numbers = [_shown(value) for value in (row.value, row.expected, row.factor)]
        rows.append(f"| {_cell(row.words.strip())} | {' | '.join(numbers)} |")
    rows += [f"\n{_cell(text('expected', 'remark', remark=remark))}" for remark in judged.remarks]
    return "\n".join([*rows, "", ""])


def _cell(words: str) -> str:
    """Text as Markdown and its tables have it, without a meaning of its own."""
    return escape(words, quote=False).replace("|", "\\|").replace("*", "\\*").replace("_", "\\_")


def _shown(value: Any) -> str:
    """A value in a table: three digits, empty for none."""
    if value is None:
        return ""
    return number(value) if isinstance(value, float) else _cell(str(value))


@speaking("en")
def chart(judged: Verdict) -> str:
    """The second moment by layer of the model, drawn, and as expected, dashed, as one SVG."""
    own, usual = (
        start.tables.get("second_moment", {}) for start in (judged.start, judged.expected)
    )
    curves = [
        (site, dashed, [math.log10(value) if value > 0 else math.nan for value in table[site]])
        for site in COLORS
        for table, dashed in ((usual, True), (own, False))
        if site in table
    ]
    heights = [height for *_, curve in curves for height in curve if math.isfinite(height)]
    low, high = math.floor(min(heights, default=0)), math.ceil(max(heights, default=1))
    high = max(high, low + 1)
    count = max((len(curve) for *_, curve in curves), default=1)

    def at(layer: int, height: float) -> tuple[float, float]:
        """Pixels of a layer, from 0, and of a logarithm."""
        x = LEFT + (WIDTH - LEFT - RIGHT) * (layer + 0.5) / count
        return x, 12 + (HEIGHT - 12 - BOTTOM) * (high - height) / (high - low)

    shapes = []
    for power in sorted({low, (low + high) // 2, high}):
        y = at(0, power)[1]
        shapes += [
            f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>',
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{number(10.0**power)}</text>',
        ]
    for site, dashed, curve in curves:
        shapes += _curve(
            [at(*point) for point in enumerate(curve) if math.isfinite(point[1])],
            COLORS[site],
            dashed,
        )
    for row, (site, color) in enumerate(COLORS.items()):
        y = 24 + 18 * row
        shapes.append(
            f'<text x="{WIDTH - RIGHT + 12}" y="{y}" fill="{color}">{SITE_WORDS[site]}</text>'
        )
    title = escape(text("report", "chart", model=judged.profile.model, design=judged.name))
    shapes.append(f'<text x="{LEFT}" y="{HEIGHT - 10}">{title}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" font-family="sans-serif" font-size="12" role="img"><title>{title}</title>'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>{"".join(shapes)}</svg>\n'
    )


def _curve(points: Sequence[tuple[float, float]], color: str, dashed: bool) -> Iterator[str]:
    """A curve through points in pixels, and a dot at each of a model's."""
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashes = ' stroke-dasharray="5 4"' if dashed else ""
    yield f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="1.5"{dashes}/>'
    if not dashed:
        for x, y in points:
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>'
