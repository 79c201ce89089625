"""`harebell dlq export, import, watch`: dead letters as JSON lines, and as they come."""

import asyncio
import sys
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Annotated, Any, Final

import orjson
import typer

from harebell.cli.dlq.dead_letters import ROW, DeskState
from harebell.cli.dlq.filters import (
    NewerThan,
    OfError,
    OfGroup,
    OfKey,
    OfTag,
    OlderThan,
    Replayed,
    dead_letter_filter,
)
from harebell.cli.dlq.output import DONE
from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode, exit_code_of_many
from harebell.cli.framework.options import Note
from harebell.cli.framework.session import Session
from harebell.client import Client, View
from harebell.client.requests import DeadLetterFields
from harebell.contract.errors import InvalidInput, Rejected
from harebell.contract.json_codec import decode

app = typer.Typer()  # joins that of `dead_letters`

AT_ONCE: Final = 20  # letters that are asked for together
MAX_PORTION: Final = 64 * 1024  # bytes of letters in one command; a larger one goes alone
LOOKED_AT: Final = 500  # letters of one look
REMEMBERED: Final = 5_000  # letters that have been told
KEPT_OF: Final = ("kind", "payload", "body")

Lines = Annotated[
    typer.FileBinaryRead, typer.Argument(metavar="FILE|-", help="As `dlq export` writes it.")
]
Every = Annotated[float, typer.Option("--every", min=0.1, help="Seconds between looks.")]
Looks = Annotated[int | None, typer.Option("--looks", min=1, help="So many, then end; else ^C.")]


@command(app, "export")
async def export(
    session: Session,
    *,
    state: DeskState = "open",
    group: OfGroup = None,
    key: OfKey = None,
    tag: OfTag = None,
    error: OfError = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    replayed: Replayed = None,
) -> ExitCode:
    """Write dead letters whole, one JSON object a line."""
    only = dead_letter_filter(session, group, key, tag, error, older_than, newer_than, replayed)
    written = 0
    async with session.harebell() as harebell:
        async for letter in _whole(harebell, state, only):
            sys.stdout.write(orjson.dumps(letter).decode() + "\n")
            written += 1
    return exit_code_of_many(done=written)


async def _whole(harebell: Client, state: str, only: DeadLetterFields) -> AsyncIterator[View]:
    portion: list[str] = []
    async for row in harebell.dead_letters(state=state, **only):
        portion.append(row["id"])
        if len(portion) == AT_ONCE:
            for letter in await asyncio.gather(*map(harebell.dead_letter, portion)):
                yield letter
            portion = []
    for letter in await asyncio.gather(*map(harebell.dead_letter, portion)):
        yield letter


@command(app, "import")
async def import_(session: Session, lines: Lines, note: Note = None) -> ExitCode:
    """Keep exported letters; those that are kept already stay as they are."""
    done = failed = 0
    async with session.harebell() as harebell:
        for portion in portions(_letters(lines)):
            try:
                answer = await harebell.import_dead_letters(portion, note=note)
            except Rejected as error:
                session.output.say(f"harebell: {len(portion)} not imported: {error.reason}")
                failed += len(portion)
                continue
            done += sum(status in DONE for status in answer.results.values())
    session.output.say(f"harebell: {done} imported or present, {failed} not")
    return exit_code_of_many(done=done, failed=failed)


def _letters(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Only what a letter is kept from. Raises `Malformed`."""
    for number, line in enumerate(lines, 1):
        letter = decode(line)
        if not isinstance(letter, dict):
            raise InvalidInput(f"line {number} is no letter", code="not_a_letter")
        yield {name: letter.get(name) for name in KEPT_OF}


def portions(letters: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """As many together as one command may hold."""
    portion: list[dict[str, Any]] = []
    size = 0
    for letter in letters:
        length = len(orjson.dumps(letter))
        if portion and size + length > MAX_PORTION:
            yield portion
            portion, size = [], 0
        portion.append(letter)
        size += length
    if portion:
        yield portion


@command(app, "watch")
async def watch(
    session: Session,
    *,
    group: OfGroup = None,
    key: OfKey = None,
    tag: OfTag = None,
    every: Every = 2.0,
    looks: Looks = None,
) -> ExitCode:
    """Print dead letters as they come, until ^C."""
    only = dead_letter_filter(session, group, key, tag, None, None, None, None)
    told: OrderedDict[str, None] = OrderedDict()
    looked = 0
    async with session.harebell() as harebell:
        while looks is None or looked < looks:
            if looked:
                await asyncio.sleep(every)
            rows = [row async for row in harebell.dead_letters(limit=LOOKED_AT, **only)]
            fresh = [row for row in reversed(rows) if row["id"] not in told]
            told |= OrderedDict.fromkeys(row["id"] for row in fresh)
            while len(told) > REMEMBERED:
                told.popitem(last=False)
            if looked and fresh:
                session.output.rows(fresh, ROW)
            looked += 1
    return ExitCode.DONE
