"""`harebell top`: lanes, lateness, backlog, breakers and dead letters, as they are now."""

import asyncio
import sys
from dataclasses import dataclass
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.live import Live

from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode
from harebell.cli.framework.options import Format
from harebell.cli.framework.output import Output, error_line_of
from harebell.cli.framework.session import Session
from harebell.cli.top.queries import Reading, read_load
from harebell.cli.top.screen import reading_json, reading_screen
from harebell.client import Client
from harebell.contract.errors import Transient

app = typer.Typer()

MIN_INTERVAL: Final = 1.0  # seconds between two readings, each of seven queries
MAX_INTERVAL: Final = 60.0  # seconds
PLAIN_WIDTH: Final = 120  # characters of a line without a terminal


@dataclass(frozen=True, slots=True, kw_only=True)
class TopOptions:
    """The options of `top`."""

    interval: Annotated[
        float,
        typer.Option(
            "--interval",
            min=MIN_INTERVAL,
            max=MAX_INTERVAL,
            metavar="SECONDS",
            help="Wait this long between two readings (seconds).",
        ),
    ] = 2.0
    is_once: Annotated[
        bool,
        typer.Option("--once", help="Print one reading and end, as without a terminal."),
    ] = False
    is_json: Annotated[bool, typer.Option("--json", help="Print one reading as JSON and end.")] = (
        False
    )
    all_tenants: Annotated[
        bool,
        typer.Option(
            "--all", help="Add the runs and the breakers of all tenants, for an operator."
        ),
    ] = False


@command(app, "top")
async def top(session: Session, options: TopOptions) -> ExitCode:
    """Show the lanes, the lateness, the backlog, the breakers and the dead letters now.

    In a terminal, the screen is refreshed until Ctrl-C. Lateness is that of the last minute.
    """
    is_json = options.is_json or session.options.output is Format.JSON
    async with session.connect() as client:
        if is_json:
            reading = await _read(client, session, options)
            Output(Format.JSON).print_record(reading_json(reading))
            return ExitCode.DONE
        if options.is_once or not sys.stdout.isatty():
            reading = await _read(client, session, options)
            console = Console(file=sys.stdout, width=PLAIN_WIDTH, highlight=False)
            console.print(reading_screen(reading))
            return ExitCode.DONE
        await _show(client, session, options)
    return ExitCode.DONE


async def _read(client: Client, session: Session, options: TopOptions) -> Reading:
    now, tenant = session.now(), session.options.tenant
    return await read_load(client, tenant, now, is_operator=options.all_tenants)


async def _show(client: Client, session: Session, options: TopOptions) -> None:
    """Refresh the screen until Ctrl-C. A failed reading leaves the last one with its error."""
    reading = await _read(client, session, options)
    console = Console(file=sys.stdout, highlight=False)
    with Live(reading_screen(reading), console=console, screen=True, auto_refresh=False) as live:
        live.refresh()
        while True:
            await asyncio.sleep(options.interval)
            error = None
            try:
                reading = await _read(client, session, options)
            except Transient as failure:
                error = error_line_of(failure)
            live.update(reading_screen(reading, error), refresh=True)
