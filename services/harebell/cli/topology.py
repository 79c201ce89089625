"""`harebell topology`: the topology as a definitions file, or compared with a broker."""

import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass
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
from harebell.messaging.topology.bus import SYSTEM, tenant_intake_queue, with_tenant_queues
from harebell.messaging.topology.definitions_file import InstallationOptions, definitions_file

app = typer.Typer()

NO_INTAKE: Final = (
    "No intake consumes this queue. Name its tenant in HAREBELL_TENANTS_FILE or "
    "HAREBELL_INTAKE_TENANTS."
)

MAX_PASSWORD_FILE_SIZE: Final = 1024 * 1024  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionsOptions:
    """The options of `topology definitions`."""

    vhost: Annotated[
        str, typer.Option("--vhost", metavar="NAME", help="Use this virtual host of RabbitMQ.")
    ] = "/"
    pools: Annotated[
        list[str] | None,
        typer.Option(
            "--pool",
            metavar="NAME",
            help="Add the work queues of this pool (repeatable, default: the default pool only).",
        ),
    ] = None
    tenants: Annotated[
        list[str] | None,
        typer.Option(
            "--for-tenant", metavar="NAME", help="Add a user for this tenant (repeatable)."
        ),
    ] = None
    passwords: Annotated[
        typer.FileBinaryRead | None,
        typer.Option(
            "--passwords",
            metavar="FILE|-",
            help="Read the password of each user (JSON object) and print salted hashes.",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyCheckOptions:
    """The options of `topology check`."""

    tenants: Annotated[
        list[str] | None,
        typer.Option(
            "--for-tenant",
            metavar="NAME",
            help="Check the intake queue of this tenant and its consumer (repeatable).",
        ),
    ] = None


@command(app, "check")
async def check(session: Session, options: TopologyCheckOptions) -> ExitCode:
    """Print each part of the topology that the broker lacks or has differently."""
    tenants = parse(InstallationOptions, {"tenants": options.tenants or ()}).tenants
    problems = await _find_problems(session.amqp_url, tenants)
    session.output.print_rows([{"problem": problem} for problem in problems], ("problem",))
    if problems:
        session.output.print_message(
            f"The topology of the broker differs (problems: {len(problems)})."
        )
        return ExitCode.FAILED
    session.output.print_message("The broker has every exchange and queue of the topology.")
    return ExitCode.DONE


@command(app, "definitions")
async def print_definitions(session: Session, options: DefinitionsOptions) -> ExitCode:
    """Print a definitions file for RabbitMQ with the topology, the users and their permissions."""
    passwords = (
        {} if options.passwords is None else decode(options.passwords.read(MAX_PASSWORD_FILE_SIZE))
    )
    installation = parse(
        InstallationOptions,
        {
            "vhost": options.vhost,
            "pools": options.pools or (),
            "tenants": options.tenants or (),
            "passwords": passwords,
        },
    )
    definitions = definitions_file(installation, secrets.token_bytes)
    if installation.tenants:
        session.output.print_message(
            "Intake finds the queues of the tenants that HAREBELL_TENANTS_FILE or "
            f"HAREBELL_INTAKE_TENANTS={','.join(installation.tenants)} names."
        )
    typer.echo(orjson.dumps(definitions, option=orjson.OPT_INDENT_2).decode())
    return ExitCode.DONE


async def _find_problems(url: str, tenants: Sequence[str]) -> list[str]:
    properties = {"service": CLIENT_NAME, "version": __version__}
    name = f"{CLIENT_NAME}@{socket.gethostname()}"
    connection = await connect(url, name=name, properties=properties)
    async with connection:
        problems = await declare.find_differences(connection, with_tenant_queues(SYSTEM, tenants))
        queues = [tenant_intake_queue(tenant).name for tenant in tenants]
        missing = await declare.find_unconsumed(connection, queues)
        return problems + [f"{queue}: {NO_INTAKE}" for queue in missing]
