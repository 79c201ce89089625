"""`harebell breaker`: the circuit breakers of downstreams, and the commands that force them."""

from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

import typer

from harebell.cli.arguments.values import optional_future_time
from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode, exit_code_of_many
from harebell.cli.framework.options import Note
from harebell.cli.framework.session import Session
from harebell.contract.breakers import BreakerResponse
from harebell.contract.downstream import downstream_of_json

app = typer.Typer()

COLUMNS: Final = (
    "tenant",
    "downstream",
    "effective_state",
    "state",
    "since",
    "failed",
    "attempts",
    "reason",
    "next_probe_at",
    "forced",
    "forced_until",
    "note",
    "actor",
)

Downstream: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="Name the downstream (URL, HOST:PORT, amqp:EXCHANGE or task:NAME).",
    ),
]
Until: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--until",
        metavar="TIME",
        help="Reset the breaker at this time (ISO 8601, or a duration from now, default: never).",
    ),
]


ForTenant: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--for-tenant",
        metavar="TENANT",
        help="Change the breaker of this tenant only (default: all tenants).",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerListOptions:
    """The options of `breaker list`."""

    own: Annotated[
        bool,
        typer.Option(
            "--own",
            help="List only the breakers of --tenant and those that hold all tenants.",
        ),
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerForceOptions:
    """The options of `breaker open` and `breaker close`."""

    target: Downstream
    for_tenant: ForTenant = None
    until: Until = None
    note: Note = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerResetOptions:
    """The options of `breaker reset`."""

    target: Downstream
    for_tenant: ForTenant = None
    note: Note = None


@command(app, "list")
async def list_breakers(session: Session, options: BreakerListOptions) -> ExitCode:
    """List the breakers that are open, half open or forced, or that closed within the last hour."""
    async with session.connect() as client:
        rows = await client.breakers(own=options.own)
    session.output.print_rows(rows, COLUMNS, empty="No breaker is open, half open or forced.")
    return exit_code_of_many(done=len(rows))


@command(app, "open")
async def force_open(session: Session, options: BreakerForceOptions) -> ExitCode:
    """Open a breaker by force, so that every run of TARGET is deferred and uses no attempt."""
    until = optional_future_time(options.until, now=session.now(), field="until")
    async with session.connect() as client:
        response = await client.open_breaker(
            _name(options.target), tenant=options.for_tenant, until=until, note=options.note
        )
    return _print(session, response)


@command(app, "close")
async def force_closed(session: Session, options: BreakerForceOptions) -> ExitCode:
    """Close a breaker by force, so that no run of TARGET is deferred after failures."""
    until = optional_future_time(options.until, now=session.now(), field="until")
    async with session.connect() as client:
        response = await client.close_breaker(
            _name(options.target), tenant=options.for_tenant, until=until, note=options.note
        )
    return _print(session, response)


@command(app, "reset")
async def reset(session: Session, options: BreakerResetOptions) -> ExitCode:
    """Reset a forced breaker, so that the outcomes of attempts decide its state again."""
    async with session.connect() as client:
        response = await client.reset_breaker(
            _name(options.target), tenant=options.for_tenant, note=options.note
        )
    return _print(session, response)


def _name(target: str) -> str:
    """Return the name of a downstream. A URL names the downstream of its host."""
    return downstream_of_json({"http": {"url": target}}) if "://" in target else target


def _print(session: Session, response: BreakerResponse) -> ExitCode:
    session.output.print_record(response.model_dump(mode="json", exclude={"ok"}))
    return ExitCode.DONE
