"""The heat map as an SVG image or an HTML page, which loads no other file.

Both have a light and a dark form, which the browser of the reader selects.
"""

from collections.abc import Iterator
from html import escape
from typing import Final

from harebell.cli.forecast.heat import (
    LEVELS,
    calendar_sentences,
    group_name,
    level_of,
    peak_of,
    short_number,
)
from harebell.cli.framework.output import printable
from harebell.contract.types import instant_text
from harebell.contract.views import ForecastGroup, ForecastView

LABEL_WIDTH: Final = 190  # pixels
CELL_HEIGHT: Final = 28
TOP: Final = 96  # of the first row, below the title and the hours
WIDE_CELL: Final = 38  # of a forecast of two days at most, with a number in each cell
NARROW_CELL: Final = 8
MAX_WIDE_HOURS: Final = 48
MAX_NAME: Final = 24  # characters
LEGEND_HEIGHT: Final = 56
# Each level has a fill and the colour of its number, with a contrast of at least 4.5.
STYLE: Final = """
.map { --page: #ffffff; --ink: #1f2328; --soft: #59636e; --line: #d1d9e0; --empty: #f1f3f5;
  --f1: #d8ecff; --f2: #9fcfff; --f3: #4f9fec; --f4: #1565b8; --f5: #0b3d78; --unknown: #ffe2b8;
  --t1: #1f2328; --t2: #1f2328; --t3: #10151a; --t4: #ffffff; --t5: #ffffff; }
@media (prefers-color-scheme: dark) {
  .map { --page: #0d1117; --ink: #e6edf3; --soft: #9198a1; --line: #3d444d; --empty: #161b22;
    --f1: #12304f; --f2: #164b80; --f3: #2272c3; --f4: #58a6ff; --f5: #b6dcff; --unknown: #5a3d10;
    --t1: #e6edf3; --t2: #e6edf3; --t3: #ffffff; --t4: #0d1117; --t5: #0d1117; }
}
.map text { fill: var(--ink); font: 13px system-ui, sans-serif; }
.map .page { fill: var(--page); }
.map .title { font-size: 18px; font-weight: 600; }
.map .soft { fill: var(--soft); font-size: 11px; }
.map .number { font-size: 11px; text-anchor: middle; }
.map .now { stroke: var(--ink); stroke-width: 2; stroke-dasharray: 4 3; }
.map .l0 { fill: var(--empty); } .map .unknown { fill: var(--unknown); }
""" + "".join(
    f".map .l{level} {{ fill: var(--f{level}); }} .map .n{level} {{ fill: var(--t{level}); }}\n"
    for level in range(1, LEVELS + 1)
)
HTML_STYLE: Final = """
:root { color-scheme: light dark; }
body { margin: 1.5rem; background: #ffffff; color: #1f2328; font: 15px system-ui, sans-serif; }
@media (prefers-color-scheme: dark) { body { background: #0d1117; color: #e6edf3; } }
div { overflow-x: auto; }
svg { display: block; }
"""


def forecast_svg(forecast: ForecastView) -> str:
    """Return the heat map as an SVG document."""
    return "\n".join(_svg(forecast)) + "\n"


def forecast_html(forecast: ForecastView) -> str:
    """Return an HTML page with the heat map, the quiet hours, the calendars and the notes."""
    sentences = [*calendar_sentences(forecast), *map(printable, forecast.notes)]
    notes = [f"<p>{escape(sentence)}</p>" for sentence in sentences]
    quiet = ", ".join(f"{hour:%a %d %H:%M}" for hour in forecast.quiet_hours)
    if quiet:
        notes.insert(0, f"<p>Quiet hours (UTC): {quiet}.</p>")
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width">',
            f"<title>{_title(forecast)}</title><style>{HTML_STYLE}</style></head><body><div>",
            *_svg(forecast),
            "</div>",
            *notes,
            "</body></html>\n",
        ]
    )


def _svg(forecast: ForecastView) -> Iterator[str]:
    is_wide = len(forecast.hours) <= MAX_WIDE_HOURS
    cell = WIDE_CELL if is_wide else NARROW_CELL
    total = sum(count or 0 for count in forecast.runs)
    fleet = ForecastGroup(name="all runs", total=total, runs=forecast.runs)
    rows = [fleet, *forecast.groups]
    width = LABEL_WIDTH + cell * len(forecast.hours) + 24
    height = TOP + CELL_HEIGHT * (len(rows) + 1) + LEGEND_HEIGHT
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="map" width="{width}" height="{height}"'
        f' viewBox="0 0 {width} {height}" role="img">'
    )
    yield f"<title>{_title(forecast)}</title><style>{STYLE}</style>"
    yield f'<rect class="page" width="{width}" height="{height}"/>'
    yield f'<text class="title" x="16" y="30">{_title(forecast)}</text>'
    span = f"{forecast.from_:%Y-%m-%d %H:%M} to {forecast.to:%Y-%m-%d %H:%M} UTC"
    yield f'<text class="soft" x="16" y="48">{span}, read at {instant_text(forecast.at)}</text>'
    yield from _hours(forecast, cell, is_wide=is_wide)
    peaks = [peak_of([fleet]), *[peak_of(forecast.groups)] * len(forecast.groups)]
    for number, (group, peak) in enumerate(zip(rows, peaks, strict=True)):
        top = TOP + number * CELL_HEIGHT
        yield from _row(forecast, group, peak=peak, top=top, cell=cell, is_wide=is_wide)
    bottom = TOP + len(rows) * CELL_HEIGHT
    if is_wide:
        yield from _lateness(forecast, cell, bottom)
    yield from _now_line(forecast, cell)
    yield from _legend(bottom + CELL_HEIGHT + 16)
    yield "</svg>"


def _title(forecast: ForecastView) -> str:
    return f"Runs of each hour by {escape(forecast.by)}"


def _hours(forecast: ForecastView, cell: int, *, is_wide: bool) -> Iterator[str]:
    for number, hour in enumerate(forecast.hours):
        x = LABEL_WIDTH + number * cell
        if number == 0 or hour.hour == 0:
            yield f'<text class="soft" x="{x + 2}" y="{TOP - 26}">{hour:%a %d %b}</text>'
        if is_wide:
            yield f'<text class="soft number" x="{x + cell // 2}" y="{TOP - 8}">{hour:%H}</text>'
        elif hour.hour in (0, 12):
            yield f'<text class="soft" x="{x}" y="{TOP - 8}">{hour:%H}</text>'


def _row(
    forecast: ForecastView, group: ForecastGroup, *, peak: int, top: int, cell: int, is_wide: bool
) -> Iterator[str]:
    name = printable(group_name(group))
    label = name if len(name) <= MAX_NAME else name[: MAX_NAME - 1] + "…"
    middle = top + CELL_HEIGHT // 2 + 4
    yield f'<text x="16" y="{middle}">{escape(label)}<title>{escape(name)}</title></text>'
    for number, (hour, count) in enumerate(zip(forecast.hours, group.runs, strict=True)):
        x, level = LABEL_WIDTH + number * cell, level_of(count, peak)
        kind = "unknown" if count is None else f"l{level}"
        runs = "not counted" if count is None else f"{count} runs"
        yield (
            f'<rect class="{kind}" x="{x}" y="{top}" width="{cell - 1}" height="{CELL_HEIGHT - 2}"'
            f' rx="2"><title>{escape(name)}, {hour:%a %d %H:%M}: {runs}</title></rect>'
        )
        if is_wide and count:
            number_style = f'class="number n{level}" x="{x + cell // 2}" y="{middle}"'
            yield f"<text {number_style}>{short_number(count)}</text>"


def _lateness(forecast: ForecastView, cell: int, top: int) -> Iterator[str]:
    """Yield the row of the p99 lateness, which only recorded hours have."""
    if not any(each is not None for each in forecast.late_p99_ms):
        return
    y = top + CELL_HEIGHT // 2 + 4
    yield f'<text class="soft" x="16" y="{y}">lateness p99 [ms]</text>'
    for number, late in enumerate(forecast.late_p99_ms):
        x, text = (
            LABEL_WIDTH + number * cell + cell // 2,
            "" if late is None else short_number(late),
        )
        yield f'<text class="soft number" x="{x}" y="{y}">{text}</text>'


def _now_line(forecast: ForecastView, cell: int) -> Iterator[str]:
    """Yield the line between the record and the planning, if the forecast contains both."""
    if not forecast.from_ < forecast.at < forecast.to:
        return
    x = LABEL_WIDTH + (forecast.at - forecast.from_).total_seconds() / 3600 * cell
    yield f'<line class="now" x1="{x:.1f}" y1="{TOP - 20}" x2="{x:.1f}" y2="{TOP}"/>'


def _legend(top: int) -> Iterator[str]:
    x = LABEL_WIDTH
    yield f'<text class="soft" x="16" y="{top + 12}">runs (logarithmic)</text>'
    names = ("none", *[""] * (LEVELS - 2), "", "most")
    for level, name in enumerate(names):
        left = x + level * 44
        yield f'<rect class="l{level}" x="{left}" y="{top}" width="40" height="14" rx="2"/>'
        yield f'<text class="soft" x="{left}" y="{top + 28}">{name}</text>'
