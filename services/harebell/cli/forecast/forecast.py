"""`harebell forecast`: the number of runs in each hour, recorded and planned."""

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from harebell.cli.arguments.values import optional_future_time, optional_past_time
from harebell.cli.forecast.page import forecast_html, forecast_svg
from harebell.cli.forecast.terminal import SHADES, forecast_lines
from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode
from harebell.cli.framework.options import Format
from harebell.cli.framework.session import Session
from harebell.contract.errors import InvalidInput
from harebell.contract.queries import ForecastGrouping

app = typer.Typer()

DEFAULT_WIDTH: Final = 100  # characters, without a terminal


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastOptions:
    """The options of `forecast`."""

    from_time: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Begin with the hour of this time (ISO 8601, or a duration ago, default: now).",
        ),
    ] = None
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="TIME",
            help="End with this time (ISO 8601, or a duration from now, default: 24 h later).",
        ),
    ] = None
    by: Annotated[
        ForecastGrouping, typer.Option("--by", help="Count the runs of each of these.")
    ] = ForecastGrouping.POOL
    own: Annotated[
        bool,
        typer.Option("--own", help="Count only the runs of --tenant (default: all tenants)."),
    ] = False
    svg: Annotated[
        Path | None,
        typer.Option("--svg", metavar="FILE", help="Write the heat map as an SVG image."),
    ] = None
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write the heat map as an HTML page."),
    ] = None


@command(app, "forecast")
async def forecast(session: Session, options: ForecastOptions) -> ExitCode:
    """Print the number of runs in each hour, recorded and planned, as a heat map."""
    now = session.now()
    start = optional_past_time(options.from_time, now=now, field="from")
    end = optional_future_time(options.to, now=now, field="to")
    async with session.connect() as client:
        view = await client.forecast(own=options.own, from_time=start, to=end, by=options.by)
    for file, content in ((options.svg, forecast_svg), (options.html, forecast_html)):
        if file is not None:
            _write(file, content(view))
    if session.options.output is Format.JSON:
        session.output.print_record(view)
    elif options.svg is None and options.html is None:
        console = Console(file=sys.stdout, width=_width(), highlight=False, soft_wrap=True)
        for line in forecast_lines(view, width=_width(), can_shade=_can_shade()):
            console.print(line)
    return ExitCode.DONE


def _width() -> int:
    """Return the characters of a line: `COLUMNS`, or else those of the terminal."""
    return shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns


def _can_shade() -> bool:
    try:
        SHADES.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def _write(file: Path, content: str) -> None:
    """Write a file. Raise `InvalidInput` if the file cannot be written."""
    try:
        file.write_text(content, encoding="utf-8")
    except OSError as error:
        reason = f"The file {file} cannot be written: {error.strerror}."
        raise InvalidInput(reason, field=file.suffix[1:] or "file") from None
