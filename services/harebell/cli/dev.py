"""`harebell dev`: the local stack in the background."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import Annotated, Final, TypeAlias

import typer

from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode
from harebell.cli.framework.output import printable
from harebell.cli.framework.session import Session
from harebell.dev.errors import StackError
from harebell.dev.logs import LogFollower, log_files, tail
from harebell.dev.plan import ServiceCounts
from harebell.dev.stack import DEFAULT_ROOT, Stack
from harebell.dev.status import StackHealth, StackStatus

MAX_PROCESSES: Final = 16  # processes of one service; more of them slow each other on one machine
DEFAULT_LINES: Final = 20  # lines of each log
POLL_INTERVAL: Final = 0.2  # seconds between two reads of the followed logs
PROCESS_COLUMNS: Final = ("name", "pid", "port", "ready")
SERVER_COLUMNS: Final = ("name", "pid")
EXIT_CODES: Final = {
    StackHealth.RUNNING: ExitCode.DONE,
    StackHealth.PARTLY: ExitCode.PARTIAL,
    StackHealth.STOPPED: ExitCode.NO_MATCH,
}
# The stack is local, so its commands accept none of the options for a broker after their names.
OUTPUT_ONLY: Final = ("output",)

app = typer.Typer()

Root: TypeAlias = Annotated[
    Path,
    typer.Option("--root", metavar="DIR", help="Keep the data, logs and state in this folder."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOptions:
    """The options of `dev start`."""

    tickers: Annotated[
        int,
        typer.Option(
            "--tickers",
            min=1,
            max=MAX_PROCESSES,
            metavar="N",
            help="Start this number of ticker processes.",
        ),
    ] = 1
    dispatchers: Annotated[
        int,
        typer.Option(
            "--dispatchers",
            min=1,
            max=MAX_PROCESSES,
            metavar="N",
            help="Start this number of dispatcher processes.",
        ),
    ] = 1
    executors: Annotated[
        int,
        typer.Option(
            "--executors",
            min=1,
            max=MAX_PROCESSES,
            metavar="N",
            help="Start this number of executor processes.",
        ),
    ] = 1
    restart: Annotated[
        bool,
        typer.Option(
            "--restart/--no-restart", help="Restart a service after its process has ended."
        ),
    ] = True
    root: Root = DEFAULT_ROOT


@dataclass(frozen=True, slots=True, kw_only=True)
class StopOptions:
    """The options of `dev stop`."""

    wipe: Annotated[
        bool, typer.Option("--wipe", help="Delete all data of the stack after the stop.")
    ] = False
    root: Root = DEFAULT_ROOT


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusOptions:
    """The options of `dev status`."""

    root: Root = DEFAULT_ROOT


@dataclass(frozen=True, slots=True, kw_only=True)
class LogsOptions:
    """The options of `dev logs`."""

    service: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Print only the log with this name (default: all)."),
    ] = None
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new lines until Ctrl-C.")
    ] = False
    lines: Annotated[
        int,
        typer.Option(
            "--lines", "-n", min=0, metavar="N", help="Print this number of lines of each log."
        ),
    ] = DEFAULT_LINES
    root: Root = DEFAULT_ROOT


@command(app, "start", global_options=OUTPUT_ONLY)
def start(session: Session, options: StartOptions) -> ExitCode:
    """Start the servers and the services, and return when all are ready."""
    counts = ServiceCounts(
        tickers=options.tickers, dispatchers=options.dispatchers, executors=options.executors
    )
    with _stack_errors(session):
        status = Stack(options.root, print_message=session.output.print_message).start(
            counts, restart=options.restart
        )
    _print_status(session, status)
    return ExitCode.DONE


@command(app, "stop", global_options=())
def stop(session: Session, options: StopOptions) -> ExitCode:
    """Stop every process of the stack and keep its data."""
    with _stack_errors(session):
        is_stopped = Stack(options.root, print_message=session.output.print_message).stop(
            wipe=options.wipe
        )
    session.output.print_message(
        "The stack is stopped." if is_stopped else "No process of the stack was running."
    )
    return ExitCode.DONE


@command(app, "status", global_options=OUTPUT_ONLY)
def print_status(session: Session, options: StatusOptions) -> ExitCode:
    """Print every process. The exit code is 0 (all are ready), 4 (not all) or 3 (none runs)."""
    with _stack_errors(session):
        status = Stack(options.root).status()
    if status is None:
        session.output.print_message(f"No stack was started in {options.root}.")
        return ExitCode.NO_MATCH
    _print_status(session, status)
    return EXIT_CODES[status.health]


@command(app, "logs", global_options=())
def print_logs(session: Session, options: LogsOptions) -> ExitCode:
    """Print the last lines of the logs of services and servers."""
    known = log_files(options.root)
    logs = [log for log in known if options.service in (None, log.stem)]
    if not logs:
        names = ", ".join(log.stem for log in known) or "none"
        session.output.print_message(f"No log has this name (logs: {names}).")
        return ExitCode.NO_MATCH
    is_only = len(logs) == 1
    for log in logs:
        for line in tail(log, options.lines).splitlines():
            _print_line(log.stem, line, is_only=is_only)
    if options.follow:
        _follow(logs, is_only=is_only)
    return ExitCode.DONE


def _follow(logs: list[Path], *, is_only: bool) -> None:
    follower = LogFollower(logs)
    try:
        while True:
            for name, line in follower.new_lines():
                _print_line(name, line, is_only=is_only)
            sleep(POLL_INTERVAL)
    except KeyboardInterrupt:
        return


def _print_line(name: str, line: str, *, is_only: bool) -> None:
    typer.echo(printable(line if is_only else f"{name} | {line}"))


def _print_status(session: Session, status: StackStatus) -> None:
    session.output.print_record(
        status.model_dump(), processes=PROCESS_COLUMNS, servers=SERVER_COLUMNS
    )


@contextmanager
def _stack_errors(session: Session) -> Iterator[None]:
    """Print a `StackError` as a message and end the command with exit code 1."""
    try:
        yield
    except StackError as error:
        session.output.print_message(str(error))
        raise typer.Exit(ExitCode.FAILED) from None
