"""`harebell dev`: the local stack in the background."""

from enum import IntEnum, StrEnum
from pathlib import Path
from time import sleep
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from harebell.dev.errors import StackError
from harebell.dev.logs import Follower, all_of, tail
from harebell.dev.plan import Counts
from harebell.dev.report import Health, Report
from harebell.dev.stack import DEFAULT_ROOT, Stack

MOST = 16  # processes of one kind; more would only starve each other on one machine
LOOK_S = 0.2  # between two looks at followed logs
LINES = 20  # of each log, when none are asked for

app = typer.Typer(help="The local stack: servers and services on loopback.", no_args_is_help=True)
results = Console(soft_wrap=True)
messages = Console(stderr=True, soft_wrap=True)


class Exit(IntEnum):
    FAILED = 1
    NOTHING_MATCHED = 3
    PARTLY = 4


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"


Root = Annotated[Path, typer.Option(help="Where the stack keeps its data, logs and state.")]
Format = Annotated[Output, typer.Option("--output", "-o", help="How to print the result.")]
Count = Annotated[int, typer.Option(min=1, max=MOST)]


@app.command()
def start(
    tickers: Count = 1,
    dispatchers: Count = 1,
    executors: Count = 1,
    *,
    restart: Annotated[
        bool, typer.Option(help="Start a service again within 2 s when it dies.")
    ] = True,
    output: Format = Output.TABLE,
    root: Root = DEFAULT_ROOT,
) -> None:
    """Start servers and services; return when all are healthy."""
    counts = Counts(tickers=tickers, dispatchers=dispatchers, executors=executors)
    try:
        report = Stack(root, say=_say).start(counts, restart=restart)
    except StackError as error:
        _fail(error)
    _show(report, output)


@app.command()
def stop(
    *,
    wipe: Annotated[bool, typer.Option("--wipe", help="Delete all data as well.")] = False,
    root: Root = DEFAULT_ROOT,
) -> None:
    """Stop every process of the stack; keep its data."""
    try:
        stopped = Stack(root, say=_say).stop(wipe=wipe)
    except StackError as error:
        _fail(error)
    _say("stopped" if stopped else "nothing was running")


@app.command()
def status(output: Format = Output.TABLE, root: Root = DEFAULT_ROOT) -> None:
    """Show every process; exit 0 when all are healthy, 4 when some are, 3 when none runs."""
    try:
        report = Stack(root).status()
    except StackError as error:
        _fail(error)
    if report is None:
        _say("nothing was ever started here")
        raise typer.Exit(Exit.NOTHING_MATCHED)
    _show(report, output)
    match report.health:
        case Health.RUNNING:
            return
        case Health.PARTLY:
            raise typer.Exit(Exit.PARTLY)
        case Health.STOPPED:
            raise typer.Exit(Exit.NOTHING_MATCHED)


@app.command()
def logs(
    service: Annotated[str | None, typer.Argument(help="One log by name, or all.")] = None,
    *,
    following: Annotated[bool, typer.Option("--follow", "-f", help="Go on until ^C.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Of each log.")] = LINES,
    root: Root = DEFAULT_ROOT,
) -> None:
    """Print the ends of the logs."""
    known = all_of(root)
    chosen = [log for log in known if service in (None, log.stem)]
    if not chosen:
        names = ", ".join(log.stem for log in known) or "none"
        _say(f"no such log; there are: {names}")
        raise typer.Exit(Exit.NOTHING_MATCHED)
    for log in chosen:
        for line in tail(log, lines).splitlines():
            _line(log.stem, line, alone=len(chosen) == 1)
    if following:
        try:
            _follow(chosen)
        except KeyboardInterrupt:
            return


def _follow(chosen: list[Path]) -> NoReturn:
    follower = Follower(chosen)
    while True:
        for name, line in follower.news():
            _line(name, line, alone=len(chosen) == 1)
        sleep(LOOK_S)


def _line(name: str, line: str, *, alone: bool) -> None:
    typer.echo(line if alone else f"{name} | {line}")


def _show(report: Report, output: Output) -> None:
    if output is Output.JSON:
        typer.echo(report.model_dump_json(indent=2))
        return
    table = Table("process", "pid", "state", "health and metrics")
    for process in report.processes:
        state = "ready" if process.ready else "not ready" if process.pid else "dead"
        address = f"http://127.0.0.1:{process.port}/metrics"
        table.add_row(process.name, str(process.pid or "-"), state, address)
    for server in report.servers:
        table.add_row(server.name, str(server.pid or "-"), "up" if server.pid else "dead", "")
    results.print(table)
    results.print(f"AMQP        {report.amqp_url}")
    results.print(f"PostgreSQL  {report.database_url}")
    if report.management_url:
        results.print(f"Management  {report.management_url} (the login is in the AMQP URL)")


def _say(message: str) -> None:
    messages.print(message, markup=False, highlight=False)


def _fail(error: StackError) -> NoReturn:
    _say(str(error))
    raise typer.Exit(Exit.FAILED)
