"""A reading of the load as tables for a terminal, and as JSON."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harebell.cli.framework.output import EMPTY_CELL, STATE_STYLES, printable, to_json
from harebell.cli.top.queries import Reading
from harebell.contract.types import instant_text
from harebell.contract.views import ForecastView

LATE_WARNING: Final = 250.0  # milliseconds of lateness that the screen shows in yellow
LATE_ERROR: Final = 1_000.0  # milliseconds, the objective of the starts
MAX_GROUPS_SHOWN: Final = 8
MAX_LANES_SHOWN: Final = 20
MAX_BREAKERS_SHOWN: Final = 8
MAX_MESSAGE: Final = 60  # characters of an error message


def reading_json(reading: Reading) -> dict[str, Any]:
    """Return the JSON value of a reading."""
    return {
        "tenant": reading.tenant,
        "at": instant_text(reading.at),
        "is_partial": reading.is_partial,
        "lanes": [asdict(each) for each in reading.lanes],
        "breakers": [to_json(each) for each in reading.breakers],
        "dead_letters": {
            "open": reading.open_dead_letters,
            "groups": [to_json(each) for each in reading.groups],
        },
        "all_tenants": None if reading.hour is None else to_json(reading.hour),
    }


def reading_screen(reading: Reading, error: str | None = None) -> RenderableType:
    """Return the tables of a reading. `error` is that of a later reading that failed."""
    parts: list[RenderableType] = [_title(reading)]
    if error is not None:
        parts.append(Text(f"The last reading failed: {printable(error)}", style="red"))
    parts += [Text(), _lanes(reading), Text(), _breakers(reading), Text(), _dead_letters(reading)]
    if reading.hour is not None:
        parts += [Text(), _pools(reading.hour, reading.at)]
    return Group(*parts)


def _title(reading: Reading) -> Text:
    waiting = sum(each.waiting for each in reading.lanes)
    running = sum(each.running for each in reading.lanes)
    counts = f"running {running}   waiting {waiting}   dead letters {reading.open_dead_letters}"
    text = f"harebell top   {printable(reading.tenant)}   {reading.at:%H:%M:%S} UTC   {counts}"
    if reading.is_partial:
        text += "   (the counts are minimums)"
    return Text(text, style="bold")


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Text]]) -> Table:
    """Return a table whose first column has texts and whose numbers are aligned right."""
    table = Table(box=None, pad_edge=False, header_style="dim", title=title, title_justify="left")
    table.title_style = "bold"
    for column in columns:
        is_text = column in {"pool", "lane", "downstream", "state", "reason", "target", "error"}
        table.add_column(column, justify="left" if is_text else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def _lanes(reading: Reading) -> RenderableType:
    if not reading.lanes:
        return Text("No run was due within the last minute, and none waits or runs.")
    rows = [
        (
            Text(printable(each.pool)),
            Text(printable(each.lane)),
            Text(f"{each.started}"),
            _late(each.late_p50_ms),
            _late(each.late_p99_ms),
            Text(f"{each.running}", style="cyan" if each.running else ""),
            Text(f"{each.waiting}", style="yellow" if each.waiting else ""),
            Text(EMPTY_CELL if each.oldest_s is None else f"{each.oldest_s:.1f} s"),
        )
        for each in reading.lanes[:MAX_LANES_SHOWN]
    ]
    columns = ("pool", "lane", "started/min", "p50", "p99", "running", "waiting", "oldest")
    return _table("Lanes", columns, rows)


def _late(milliseconds: float | None) -> Text:
    if milliseconds is None:
        return Text(EMPTY_CELL)
    style = ""
    if milliseconds > LATE_WARNING:
        style = "red" if milliseconds > LATE_ERROR else "yellow"
    return Text(f"{milliseconds:.0f} ms", style=style)


def _breakers(reading: Reading) -> RenderableType:
    found = reading.breakers
    if not found:
        return Text("No breaker is open.")
    rows = [
        (
            Text(printable(each.downstream)),
            Text(each.effective_state, style=STATE_STYLES.get(each.effective_state, "yellow")),
            Text(EMPTY_CELL if each.since is None else f"{each.since:%H:%M:%S}"),
            Text(f"{each.failed}/{each.attempts}"),
            Text(printable(each.reason or EMPTY_CELL)),
        )
        for each in found[:MAX_BREAKERS_SHOWN]
    ]
    return _table("Breakers", ("downstream", "state", "since", "failed", "reason"), rows)


def _dead_letters(reading: Reading) -> RenderableType:
    found = reading.groups
    if not found:
        return Text("No dead letter is open.")
    rows = [
        (
            Text(f"{each.open}", style="red"),
            Text(f"{each.last_hour}"),
            Text(printable(each.target)),
            Text(printable(f"{each.error_code} {each.message}"[:MAX_MESSAGE])),
        )
        for each in found[:MAX_GROUPS_SHOWN]
    ]
    return _table("Dead letters", ("open", "last hour", "target", "error"), rows)


def _pools(hour: ForecastView, at: datetime) -> RenderableType:
    """Return the runs of all tenants in this hour and in the next one."""
    rows = [
        (
            Text(printable(each.name or EMPTY_CELL)),
            *(Text(EMPTY_CELL if count is None else f"{count}") for count in each.runs[:2]),
        )
        for each in hour.groups[:MAX_LANES_SHOWN]
    ]
    title = f"All tenants, runs of the hours {at:%H}:00 and the next"
    return _table(title, ("pool", "this hour", "next hour"), rows)
