"""`harebell dlq watch`: new dead letters as they arrive."""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import Annotated, Final
from uuid import UUID

import typer

from harebell.cli.dlq.filters import DeadLetterScopeOptions, scope_fields
from harebell.cli.dlq.output import COLUMNS
from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode
from harebell.cli.framework.session import Session
from harebell.client import Client, DeadLetterView
from harebell.client.requests import DeadLetterFields

app = typer.Typer()

MAX_ROWS_PER_POLL: Final = 500  # dead letters
MAX_REMEMBERED: Final = 5_000  # ids of dead letters that the command has seen


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions(DeadLetterScopeOptions):
    """The options of `dlq watch`."""

    every: Annotated[
        float,
        typer.Option(
            "--every",
            min=0.1,
            metavar="SECONDS",
            help="Wait this long between two polls (seconds).",
        ),
    ] = 2.0
    max_polls: Annotated[
        int | None,
        typer.Option(
            "--max-polls",
            min=1,
            metavar="N",
            help="End after this number of polls (default: run until Ctrl-C).",
        ),
    ] = None


@command(app, "watch")
async def watch(session: Session, options: WatchOptions) -> ExitCode:
    """Print new dead letters as they arrive, until Ctrl-C."""
    fields = scope_fields(options)
    seen: OrderedDict[UUID, None] = OrderedDict()
    polls = 0
    async with session.connect() as client:
        while options.max_polls is None or polls < options.max_polls:
            if polls:
                await asyncio.sleep(options.every)
            rows = await _unseen(client, fields, seen)
            # The first poll returns dead letters that are not new.
            if polls and rows:
                session.output.print_rows(rows, COLUMNS)
            polls += 1
    return ExitCode.DONE


async def _unseen(
    client: Client, fields: DeadLetterFields, seen: OrderedDict[UUID, None]
) -> list[DeadLetterView]:
    """Return the dead letters that are not in `seen`, oldest first, and add them to `seen`."""
    rows = [row async for row in client.dead_letters(limit=MAX_ROWS_PER_POLL, **fields)]
    unseen = [row for row in reversed(rows) if row.id not in seen]
    seen |= OrderedDict.fromkeys(row.id for row in unseen)
    while len(seen) > MAX_REMEMBERED:
        seen.popitem(last=False)
    return unseen
