"""`harebell schedule pause, resume, cancel`: to one schedule, or to many at once."""

from typing import Annotated

import typer

from harebell.cli.arguments.schedule_ref import Id, Key, Name
from harebell.cli.arguments.values import future_time
from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode, exit_code_of_many
from harebell.cli.framework.options import Note, RequestId
from harebell.cli.framework.session import Session
from harebell.cli.schedule.filters import (
    NameFilter,
    Owner,
    Receipt,
    ScheduleSelection,
    StateFilter,
    Tag,
    bulk_operation_id,
)
from harebell.cli.schedule.manage import say_in_flight, show
from harebell.client import BulkResponse

app = typer.Typer()  # joins that of `schedules`

Until = Annotated[
    str | None, typer.Option("--until", help="An instant, or for how long (2h); else for good.")
]


@command(app, "pause")
async def pause(
    session: Session,
    *,
    name: Name = None,
    key: Key = None,
    id: Id = None,  # noqa: A002  # the option's name
    tag: Tag = None,
    owner: Owner = None,
    called: NameFilter = None,
    state: StateFilter = None,
    until: Until = None,
    note: Note = None,
    request_id: RequestId = None,
) -> ExitCode:
    """Make no run until resumed: of one schedule, or of all that match; prints a receipt."""
    chosen = ScheduleSelection.by(name, key, id, tag=tag, owner=owner, name=called, state=state)
    now = session.surroundings.now()
    end = None if until is None else future_time(until, now=now, field="until")
    async with session.harebell() as harebell:
        if chosen.one is not None:
            one = await harebell.pause(**chosen.one, note=note, request_id=request_id, until=end)
            return show(session.output, one)
        many = await harebell.pause_all(
            chosen.select or {},
            request_id=bulk_operation_id("pause", request_id, now),
            until=end,
            note=note,
        )
    return _show_many(session, many)


@command(app, "resume")
async def resume(
    session: Session,
    *,
    name: Name = None,
    key: Key = None,
    id: Id = None,  # noqa: A002  # the option's name
    tag: Tag = None,
    owner: Owner = None,
    called: NameFilter = None,
    state: StateFilter = None,
    receipt: Receipt = None,
    note: Note = None,
    request_id: RequestId = None,
) -> ExitCode:
    """Make runs again; the catch-up policy decides what was missed. By receipt, exactly those."""
    chosen = ScheduleSelection.by(
        name, key, id, tag=tag, owner=owner, name=called, state=state, receipt=receipt
    )
    async with session.harebell() as harebell:
        if chosen.one is not None:
            one = await harebell.resume(**chosen.one, note=note, request_id=request_id)
            return show(session.output, one)
        many = await harebell.resume_all(
            chosen.select,
            receipt=chosen.receipt,
            request_id=bulk_operation_id("resume", request_id, session.surroundings.now()),
            note=note,
        )
    return _show_many(session, many)


@command(app, "cancel")
async def cancel(
    session: Session,
    *,
    name: Name = None,
    key: Key = None,
    id: Id = None,  # noqa: A002  # the option's name
    tag: Tag = None,
    owner: Owner = None,
    called: NameFilter = None,
    state: StateFilter = None,
    note: Note = None,
    request_id: RequestId = None,
) -> ExitCode:
    """Make no run ever again: of one schedule, or of all that match."""
    chosen = ScheduleSelection.by(name, key, id, tag=tag, owner=owner, name=called, state=state)
    async with session.harebell() as harebell:
        if chosen.one is not None:
            one = await harebell.cancel(**chosen.one, note=note, request_id=request_id)
            return show(session.output, one)
        many = await harebell.cancel_all(
            chosen.select or {},
            request_id=bulk_operation_id("cancel", request_id, session.surroundings.now()),
            note=note,
        )
    return _show_many(session, many)


def _show_many(session: Session, answer: BulkResponse) -> ExitCode:
    session.output.record(answer.model_dump(mode="json"))
    say_in_flight(session.output, answer.in_flight)
    for schedule, reason in answer.rejected.items():
        session.output.say(f"harebell: {schedule}: {reason}")
    return exit_code_of_many(done=len(answer.changed), failed=len(answer.rejected))
