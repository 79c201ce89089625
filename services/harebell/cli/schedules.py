"""`harebell schedule`: put, look at and steer schedules."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, Final, TypeAlias

import typer

from harebell.cli.command import command
from harebell.cli.documents import read_document
from harebell.cli.exits import Exit, exit_of_many
from harebell.cli.options import LIMIT, Limit, Note, RequestId, State
from harebell.cli.output import Output, complaint
from harebell.cli.references import Id, Key, Name, reference
from harebell.cli.session import Session
from harebell.client import Harebell, Refusal, ScheduleAnswer

app = typer.Typer(help="Put, look at and steer schedules.", no_args_is_help=True)

ROW: Final = ("key", "id", "state", "next_at", "pool", "priority", "version", "tags")
STORED: Final = ("key", "id", "status", "state", "version", "next_at")

File = Annotated[typer.FileBinaryRead, typer.Argument(metavar="FILE|-", help="JSON; - is stdin.")]
TagFilter = Annotated[str | None, typer.Option("--tag", help="Only those with this tag.")]
Order: TypeAlias = Callable[..., Awaitable[ScheduleAnswer]]


@command(app, "put")
async def put(session: Session, file: File) -> Exit:
    """Create or replace schedules: one JSON object, or an array of up to 500."""
    document = read_document(file)
    async with session.harebell() as harebell:
        if isinstance(document, dict):
            return _show(session.output, await harebell.put(document))
        return _show_all(session.output, await harebell.put_many(document))


@command(app, "get")
async def get(
    session: Session,
    name: Name = None,
    key: Key = None,
    id: Id = None,  # noqa: A002  # the option's name
) -> Exit:
    """Show one schedule."""
    async with session.harebell() as harebell:
        session.output.record(await harebell.schedule(**reference(name, key, id)))
    return Exit.DONE


@command(app, "list")
async def list_schedules(
    session: Session, tag: TagFilter = None, state: State = None, limit: Limit = LIMIT
) -> Exit:
    """List schedules."""
    async with session.harebell() as harebell:
        rows = [row async for row in harebell.schedules(tag=tag, state=state, limit=limit)]
    session.output.rows(rows, ROW)
    return exit_of_many(done=len(rows))


def _mount(verb: str, order: Order, text: str) -> None:
    """The orders to one schedule are all given alike."""

    async def give(
        session: Session,
        *,
        name: Name = None,
        key: Key = None,
        id: Id = None,  # noqa: A002  # the option's name
        note: Note = None,
        request_id: RequestId = None,
    ) -> Exit:
        named = reference(name, key, id)
        async with session.harebell() as harebell:
            answer = await order(harebell, **named, note=note, request_id=request_id)
        return _show(session.output, answer)

    give.__doc__ = text
    command(app, verb)(give)


_mount("pause", Harebell.pause, "Make no run of it until it is resumed.")
_mount("resume", Harebell.resume, "Make runs again; its catch-up policy decides what was missed.")
_mount("cancel", Harebell.cancel, "Make no run of it ever again.")
_mount("trigger", Harebell.trigger, "Run it once now, beside its timetable.")


def _show(output: Output, answer: ScheduleAnswer) -> Exit:
    output.record(_view(answer))
    _say_in_flight(output, answer)
    return Exit.DONE


def _show_all(output: Output, answers: Sequence[ScheduleAnswer | Refusal]) -> Exit:
    stored = [answer for answer in answers if isinstance(answer, ScheduleAnswer)]
    refused = [answer.error for answer in answers if isinstance(answer, Refusal)]
    output.rows([_view(answer) for answer in answers], STORED)
    for answer in stored:
        _say_in_flight(output, answer)
    for fault in refused:
        output.say(f"harebell: {complaint(fault.field, fault.reason, fault.code)}")
    return exit_of_many(done=len(stored), failed=len(refused))


def _say_in_flight(output: Output, answer: ScheduleAnswer) -> None:
    for run in answer.in_flight:
        output.say(f"harebell: {run} had already been claimed")


def _view(answer: ScheduleAnswer | Refusal) -> dict[str, Any]:
    return answer.model_dump(mode="json", exclude_none=True)
