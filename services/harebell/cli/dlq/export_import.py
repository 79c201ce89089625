"""`harebell dlq export` and `import`: dead letters as JSON lines."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Final
from uuid import UUID

import orjson
import typer

from harebell.cli.dlq.filters import (
    DEFAULT_STATE,
    DeadLetterFilterOptions,
    DeadLetterStateName,
    dead_letter_filter,
)
from harebell.cli.dlq.output import DONE_RESULTS
from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode, exit_code_of_many
from harebell.cli.framework.options import Note
from harebell.cli.framework.output import error_line_of, to_json
from harebell.cli.framework.session import Session
from harebell.client import Client, DeadLetterDetail
from harebell.client.requests import DeadLetterFields
from harebell.contract.errors import InvalidInput, Rejected
from harebell.contract.json_codec import decode

app = typer.Typer()

MAX_CONCURRENT_QUERIES: Final = 20
MAX_BATCH_SIZE: Final = 64 * 1024  # bytes of one command; a larger dead letter has its own command
IMPORTED_FIELDS: Final = ("kind", "payload", "body")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions(DeadLetterFilterOptions):
    """The options of `dlq export`."""

    state: DeadLetterStateName = DEFAULT_STATE


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """The options of `dlq import`."""

    file: Annotated[
        typer.FileBinaryRead,
        typer.Argument(
            metavar="FILE|-", help="Read this file (JSON lines, as `dlq export` writes)."
        ),
    ]
    note: Note = None


@command(app, "export")
async def export(session: Session, options: ExportOptions) -> ExitCode:
    """Write whole dead letters to stdout, one JSON object on each line."""
    fields = dead_letter_filter(options, session.now())
    written = 0
    async with session.connect() as client:
        async for dead_letter in _whole_dead_letters(client, options.state, fields):
            session.output.print_json_line(to_json(dead_letter))
            written += 1
    return exit_code_of_many(done=written)


@command(app, "import")
async def import_(session: Session, options: ImportOptions) -> ExitCode:
    """Import exported dead letters. Dead letters that already exist remain unchanged."""
    done = failed = 0
    async with session.connect() as client:
        for batch in batches(_importable(options.file)):
            try:
                response = await client.import_dead_letters(batch, note=options.note)
            except Rejected as error:
                session.output.print_message(
                    f"{len(batch)} dead letters are not imported: {error_line_of(error)}"
                )
                failed += len(batch)
                continue
            done += sum(status in DONE_RESULTS for status in response.results.values())
    session.output.print_message(
        f"{done} dead letters are imported or already present, {failed} are not imported."
    )
    return exit_code_of_many(done=done, failed=failed)


def batches(dead_letters: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield the dead letters in batches that fit in one command."""
    batch: list[dict[str, Any]] = []
    batch_size = 0
    for dead_letter in dead_letters:
        size = len(orjson.dumps(dead_letter))
        if batch and batch_size + size > MAX_BATCH_SIZE:
            yield batch
            batch, batch_size = [], 0
        batch.append(dead_letter)
        batch_size += size
    if batch:
        yield batch


async def _whole_dead_letters(
    client: Client, state: str, fields: DeadLetterFields
) -> AsyncIterator[DeadLetterDetail]:
    """Yield the dead letters of a filter with all fields. Query several at the same time."""
    ids: list[UUID] = []
    async for row in client.dead_letters(state=state, **fields):
        ids.append(row.id)
        if len(ids) == MAX_CONCURRENT_QUERIES:
            for dead_letter in await asyncio.gather(*map(client.dead_letter, ids)):
                yield dead_letter
            ids = []
    for dead_letter in await asyncio.gather(*map(client.dead_letter, ids)):
        yield dead_letter


def _importable(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the fields that an import needs. Raises `InvalidInput`."""
    for number, line in enumerate(lines, 1):
        dead_letter = decode(line)
        if not isinstance(dead_letter, dict):
            reason = (
                f"Each line must be the JSON object of a dead letter, but line {number} is not."
            )
            raise InvalidInput(reason, code="not_a_dead_letter")
        yield {name: dead_letter.get(name) for name in IMPORTED_FIELDS}
