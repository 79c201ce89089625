"""`harebell breaker list, open, close, auto`: whose runs are held back, and by whose word."""

from typing import Annotated, Final

import typer

from harebell.cli.arguments.values import future_time
from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode, exit_code_of_many
from harebell.cli.framework.options import Note
from harebell.cli.framework.session import Session
from harebell.contract.breakers import BreakerResponse
from harebell.contract.downstream import downstream_of_json

app = typer.Typer(help="Circuit breakers, of whom targets call.", no_args_is_help=True)

ROW: Final = (
    *("downstream", "acts", "state", "since", "failed", "attempts"),
    *("forced", "forced_until", "note", "actor"),
)

Downstream = Annotated[
    str,
    typer.Argument(metavar="TARGET", help="http:acme.example or a URL; amqp:EXCHANGE; task:NAME."),
]
For = Annotated[
    str | None, typer.Option("--for", help="How long (2h), or until when; else until told.")
]


@command(app, "list")
async def list_breakers(session: Session) -> ExitCode:
    """List those open, half open or forced, and those that have closed within the hour."""
    async with session.harebell() as harebell:
        rows = await harebell.breakers()
    session.output.rows(rows, ROW)
    return exit_code_of_many(done=len(rows))


@command(app, "open")
async def force_open(
    session: Session, *, target: Downstream, for_: For = None, note: Note = None
) -> ExitCode:
    """Hold back every run to TARGET, as for maintenance; no attempt is spent."""
    until = None if for_ is None else future_time(for_, now=session.surroundings.now(), field="for")
    async with session.harebell() as harebell:
        return _show(session, await harebell.open_breaker(_name(target), until=until, note=note))


@command(app, "close")
async def force_closed(
    session: Session, *, target: Downstream, for_: For = None, note: Note = None
) -> ExitCode:
    """Let every run to TARGET pass, however many attempts fail."""
    until = None if for_ is None else future_time(for_, now=session.surroundings.now(), field="for")
    async with session.harebell() as harebell:
        return _show(session, await harebell.close_breaker(_name(target), until=until, note=note))


@command(app, "auto")
async def release(session: Session, *, target: Downstream, note: Note = None) -> ExitCode:
    """Let what comes of attempts decide again."""
    async with session.harebell() as harebell:
        return _show(session, await harebell.reset_breaker(_name(target), note=note))


def _name(target: str) -> str:
    """A URL stands for its host."""
    return downstream_of_json({"http": {"url": target}}) if "://" in target else target


def _show(session: Session, answer: BreakerResponse) -> ExitCode:
    session.output.record(answer.model_dump(mode="json", exclude={"ok"}))
    return ExitCode.DONE
