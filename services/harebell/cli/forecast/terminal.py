"""The heat map as lines of a terminal: one line for each hour, one column for each group.

Shades and numbers show the load, so the map is readable without colours.
"""

from collections.abc import Iterator
from textwrap import wrap
from typing import Final

from rich.text import Text

from harebell.cli.forecast.heat import (
    calendar_sentences,
    group_name,
    level_of,
    peak_of,
    short_duration,
    short_number,
)
from harebell.cli.framework.output import printable
from harebell.contract.types import instant_text
from harebell.contract.views import ForecastGroup, ForecastView

MIN_WIDTH: Final = 60  # characters
MAX_WIDTH: Final = 200
TIME_WIDTH: Final = 12  # "Mon 23 21:00"
TOTAL_WIDTH: Final = 7
LATE_WIDTH: Final = 7
CELL_WIDTH: Final = 11  # with the space before the cell
SHADES: Final = " ░▒▒▓█"  # by level
ASCII_SHADES: Final = " .::=#"
STYLES: Final = ("dim", "green", "green", "yellow", "red", "bold red")
BAR_WIDTH: Final = 3
NO_RUNS: Final = "-"
MAX_QUIET: Final = 12  # quiet hours with their names


def forecast_lines(forecast: ForecastView, *, width: int, can_shade: bool) -> Iterator[Text]:
    """Yield the lines, none of which is longer than `width` characters.

    Groups that do not fit are summed in the last column. Without `can_shade`, shades are ASCII.
    """
    width = max(MIN_WIDTH, min(width, MAX_WIDTH))
    columns = (width - TIME_WIDTH - TOTAL_WIDTH - LATE_WIDTH) // CELL_WIDTH
    groups = _fitting(forecast.groups, columns)
    peak, shades = peak_of(groups), SHADES if can_shade else ASCII_SHADES
    yield _header(groups)
    for number, hour in enumerate(forecast.hours):
        line = Text(f"{hour:%a %d %H:%M}".ljust(TIME_WIDTH))
        if hour >= forecast.at:
            line.stylize("bold")
        line.append(short_number(forecast.runs[number]).rjust(TOTAL_WIDTH))
        late = short_duration(forecast.late_p99_ms[number])
        line.append(late.rjust(LATE_WIDTH), style="dim")
        for group in groups:
            line.append_text(_cell(group.runs[number], peak, shades))
        line.rstrip()
        yield line
    yield Text()
    for sentence in _summary(forecast):
        yield from map(Text, wrap(sentence, width))


def _header(groups: list[ForecastGroup]) -> Text:
    header = Text("hour (UTC)".ljust(TIME_WIDTH), style="bold")
    header.append("runs".rjust(TOTAL_WIDTH) + "late".rjust(LATE_WIDTH))
    for group in groups:
        name = printable(group_name(group))
        name = name if len(name) < CELL_WIDTH else name[: CELL_WIDTH - 2] + "~"
        header.append(name.rjust(CELL_WIDTH))
    return header


def _cell(count: int | None, peak: int, shades: str) -> Text:
    """Return a bar of three characters and a number, or a mark for an hour without runs."""
    level = level_of(count, peak)
    if count == 0:
        return Text(NO_RUNS.rjust(CELL_WIDTH), style=STYLES[level])
    number = short_number(count).rjust(CELL_WIDTH - BAR_WIDTH - 2)
    return Text("  " + shades[level] * BAR_WIDTH + number, style=STYLES[level])


def _fitting(groups: list[ForecastGroup], columns: int) -> list[ForecastGroup]:
    """Return at most `columns` groups, of which the last one may be the sum of the others."""
    if len(groups) <= columns:
        return groups
    shown, others = groups[: columns - 1], groups[columns - 1 :]
    hours = zip(*(group.runs for group in others), strict=True)
    sums = [None if None in hour else sum(each or 0 for each in hour) for hour in hours]
    total = sum(group.total for group in others)
    return [*shown, ForecastGroup(is_rest=True, total=total, runs=sums)]


def _summary(forecast: ForecastView) -> Iterator[str]:
    """Yield the sentences below the map."""
    known = [count for count in forecast.runs if count is not None]
    yield f"{short_number(sum(known))} runs by {forecast.by}."
    if forecast.from_ < forecast.at < forecast.to:
        yield f"Hours in bold begin after {instant_text(forecast.at)}. Earlier hours are recorded."
    if any(known):
        busiest = max(range(len(forecast.runs)), key=lambda hour: forecast.runs[hour] or 0)
        most = short_number(forecast.runs[busiest])
        yield f"The busiest hour is {forecast.hours[busiest]:%a %d %H:%M} with {most} runs."
    if forecast.quiet_hours:
        names = ", ".join(f"{hour:%a %H:%M}" for hour in forecast.quiet_hours[:MAX_QUIET])
        more = len(forecast.quiet_hours) - MAX_QUIET
        yield f"Quiet hours: {names}{f' and {more} more' if more > 0 else ''}."
    yield from calendar_sentences(forecast)
    yield from map(printable, forecast.notes)
