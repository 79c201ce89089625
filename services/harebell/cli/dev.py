"""`harebell dev`: the local stack in the background."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep
from typing import Annotated, Final

import typer

from harebell.cli.framework.command import Form
from harebell.cli.framework.exit_codes import ExitCode
from harebell.cli.framework.output import Format, Output, printable
from harebell.cli.framework.session import ProcessContext
from harebell.dev.errors import StackError
from harebell.dev.logs import Follower, all_of, tail
from harebell.dev.plan import Counts
from harebell.dev.stack import DEFAULT_ROOT, Stack
from harebell.dev.status import StackHealth, StackStatus

MOST: Final = 16  # processes of one kind; more would only starve each other on one machine
LINES: Final = 20  # of each log, unless told otherwise
LOOK_S: Final = 0.2  # between two looks at followed logs
PROCESS_COLUMNS: Final = ("name", "pid", "port", "ready")
SERVER_COLUMNS: Final = ("name", "pid")
EXITS: Final = {
    StackHealth.RUNNING: ExitCode.DONE,
    StackHealth.PARTLY: ExitCode.PARTIAL,
    StackHealth.STOPPED: ExitCode.NO_MATCH,
}

app = typer.Typer(help="The local stack: servers and services on loopback.", no_args_is_help=True)

Root = Annotated[Path, typer.Option("--root", help="Where its data, logs and state are kept.")]
Count = Annotated[int, typer.Option(min=1, max=MOST, help="How many of them.")]


@app.command()
def start(
    context: typer.Context,
    *,
    tickers: Count = 1,
    dispatchers: Count = 1,
    executors: Count = 1,
    restart: Annotated[bool, typer.Option(help="Start a service again when it dies.")] = True,
    root: Root = DEFAULT_ROOT,
    output: Form = None,
) -> None:
    """Start servers and services; return when all are ready."""
    counts = Counts(tickers=tickers, dispatchers=dispatchers, executors=executors)
    with _errors_told():
        report = Stack(root, say=_say).start(counts, restart=restart)
    _show(report, _form(context, output))


@app.command()
def stop(
    *,
    wipe: Annotated[bool, typer.Option("--wipe", help="Delete all data as well.")] = False,
    root: Root = DEFAULT_ROOT,
) -> None:
    """Stop every process of the stack; keep its data."""
    with _errors_told():
        stopped = Stack(root, say=_say).stop(wipe=wipe)
    _say("stopped" if stopped else "nothing was running")


@app.command()
def status(context: typer.Context, *, root: Root = DEFAULT_ROOT, output: Form = None) -> None:
    """Show every process; exit code 0: all are ready, 4: not all, 3: none runs."""
    with _errors_told():
        report = Stack(root).status()
    if report is None:
        _say("nothing was started here")
        raise typer.Exit(ExitCode.NO_MATCH)
    _show(report, _form(context, output))
    raise typer.Exit(EXITS[report.health])


@app.command()
def logs(
    service: Annotated[str | None, typer.Argument(help="One log by name, else all.")] = None,
    *,
    following: Annotated[bool, typer.Option("--follow", "-f", help="Go on until ^C.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Of each log.")] = LINES,
    root: Root = DEFAULT_ROOT,
) -> None:
    """Print the ends of the logs of services and servers."""
    known = all_of(root)
    chosen = [log for log in known if service in (None, log.stem)]
    if not chosen:
        names = ", ".join(log.stem for log in known) or "none"
        _say(f"no such log; there are: {names}")
        raise typer.Exit(ExitCode.NO_MATCH)
    alone = len(chosen) == 1
    for log in chosen:
        for line in tail(log, lines).splitlines():
            _print_line(log.stem, line, alone=alone)
    if following:
        _follow(chosen, alone=alone)


def _follow(chosen: list[Path], *, alone: bool) -> None:
    follower = Follower(chosen)
    try:
        while True:
            for name, line in follower.news():
                _print_line(name, line, alone=alone)
            sleep(LOOK_S)
    except KeyboardInterrupt:
        return


def _print_line(name: str, line: str, *, alone: bool) -> None:
    typer.echo(printable(line if alone else f"{name} | {line}"))


def _form(context: typer.Context, given: Format | None) -> Format:
    surroundings: ProcessContext = context.obj
    return given or surroundings.options.output


def _show(report: StackStatus, form: Format) -> None:
    Output(form).record(report.model_dump(), processes=PROCESS_COLUMNS, servers=SERVER_COLUMNS)


def _say(message: str) -> None:
    typer.echo(f"harebell: {printable(message)}", err=True)


@contextmanager
def _errors_told() -> Iterator[None]:
    try:
        yield
    except StackError as error:
        _say(str(error))
        raise typer.Exit(ExitCode.FAILED) from None
