"""`harebell topology`: whether the broker has what Harebell needs."""

import socket

import typer

from harebell.cli.command import command
from harebell.cli.exits import Exit
from harebell.cli.session import NAME, Session
from harebell.client.connection import connect
from harebell.contract import __version__
from harebell.kernel.amqp import declare
from harebell.kernel.bus import SYSTEM

app = typer.Typer(help="Compare the broker with what Harebell needs.", no_args_is_help=True)


@app.callback()
def topology() -> None:
    """A group even with one command in it."""


@command(app, "check")
async def check(session: Session) -> Exit:
    """Name what is missing or differs; change nothing."""
    problems = await _problems(session.amqp_url)
    session.output.rows([{"problem": problem} for problem in problems], ("problem",))
    if problems:
        session.output.say(f"harebell: the broker differs, problems: {len(problems)}")
        return Exit.FAILED
    session.output.say("harebell: the broker has every exchange and queue")
    return Exit.DONE


async def _problems(url: str) -> list[str]:
    properties = {"service": NAME, "version": __version__}
    connection = await connect(url, name=f"{NAME}@{socket.gethostname()}", properties=properties)
    async with connection:
        return await declare.check(connection, SYSTEM)
