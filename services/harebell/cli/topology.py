"""`harebell topology`: what the bus must have, written down for a broker or compared with one."""

import secrets
import socket
from typing import Annotated, Final

import orjson
import typer

from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode
from harebell.cli.framework.session import CLIENT_NAME, Session
from harebell.client.connection import connect
from harebell.contract import __version__
from harebell.contract.json_codec import decode
from harebell.contract.message import parse
from harebell.messaging import declare
from harebell.messaging.topology.bus import SYSTEM
from harebell.messaging.topology.definitions_file import InstallationOptions, definitions_file

app = typer.Typer(help="What the broker must have for Harebell.", no_args_is_help=True)

MAX_PASSWORDS: Final = 1024 * 1024  # bytes of the file

Vhost = Annotated[str, typer.Option("--vhost", help="The virtual host.")]
Pools = Annotated[list[str] | None, typer.Option("--pool", help="A pool beside the default one.")]
Tenants = Annotated[list[str] | None, typer.Option("--for-tenant", help="A user for its services.")]
Passwords = Annotated[
    typer.FileBinaryRead | None,
    typer.Option("--passwords", help="JSON of user names and passwords; they are kept as hashes."),
]


@command(app, "check")
async def check(session: Session) -> ExitCode:
    """Name what is missing or differs; change nothing."""
    problems = await _problems(session.amqp_url)
    session.output.rows([{"problem": problem} for problem in problems], ("problem",))
    if problems:
        session.output.say(f"harebell: the broker differs, problems: {len(problems)}")
        return ExitCode.FAILED
    session.output.say("harebell: the broker has every exchange and queue")
    return ExitCode.DONE


@command(app, "definitions")
async def print_definitions(
    session: Session,
    *,
    vhost: Vhost = "/",
    pool: Pools = None,
    for_tenant: Tenants = None,
    passwords: Passwords = None,
) -> ExitCode:
    """Print a definitions file for RabbitMQ: exchanges, queues, users with least permissions."""
    del session  # needs no broker
    known = {} if passwords is None else decode(passwords.read(MAX_PASSWORDS))
    wanted = {"vhost": vhost, "pools": pool or (), "tenants": for_tenant or (), "passwords": known}
    said = definitions_file(parse(InstallationOptions, wanted), secrets.token_bytes)
    typer.echo(orjson.dumps(said, option=orjson.OPT_INDENT_2).decode())
    return ExitCode.DONE


async def _problems(url: str) -> list[str]:
    properties = {"service": CLIENT_NAME, "version": __version__}
    connection = await connect(
        url, name=f"{CLIENT_NAME}@{socket.gethostname()}", properties=properties
    )
    async with connection:
        return await declare.find_differences(connection, SYSTEM)
