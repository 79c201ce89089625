"""`harebell schedule`: put, look at and change schedules."""

from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from harebell.cli.arguments.assignments import apply_assignments
from harebell.cli.arguments.documents import read_document
from harebell.cli.arguments.schedule_ref import Id, Key, Name, schedule_ref
from harebell.cli.arguments.values import future_time, past_time
from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode, exit_code_of_many
from harebell.cli.framework.options import LIMIT, Limit, Note, RequestId, State
from harebell.cli.framework.output import Output, error_line
from harebell.cli.framework.session import Session
from harebell.client import ErrorResponse, ScheduleResponse
from harebell.contract.commands import MAX_BACKFILL
from harebell.contract.policy import Overlap

app = typer.Typer(help="Put, look at and steer schedules.", no_args_is_help=True)

ROW: Final = ("key", "id", "state", "next_at", "owner", "pool", "priority", "version", "tags")
STORED: Final = ("key", "id", "status", "state", "version", "next_at")

File = Annotated[typer.FileBinaryRead, typer.Argument(metavar="FILE|-", help="JSON; - is stdin.")]
PatchFile = Annotated[
    typer.FileBinaryRead | None,
    typer.Option("--file", "-f", metavar="FILE|-", help="A JSON merge patch."),
]
TagFilter = Annotated[str | None, typer.Option("--tag", help="Only those with this tag.")]
OwnerFilter = Annotated[str | None, typer.Option("--owner", help="Only those of this owner.")]
NameFilter = Annotated[str | None, typer.Option("--name", help="Only those of this name.")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="retry.max_attempts=3; null is the default."),
]
Version = Annotated[
    int | None, typer.Option("--expected-version", min=1, help="Refuse if it is at another.")
]
EffectiveAt = Annotated[
    str | None, typer.Option("--effective-at", help="An instant, or in how long; else at once.")
]
Instant = Annotated[str, typer.Option("--at", help="The instant, with its offset.")]
Start = Annotated[str, typer.Option("--from", help="An instant, or how long ago.")]
End = Annotated[str, typer.Option("--to", help="An instant, or how long ago.")]
MaxRuns = Annotated[
    int | None, typer.Option("--max", min=1, max=MAX_BACKFILL, help="Refuse more runs.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, do nothing.")]
OwnOverlap = Annotated[
    Overlap | None, typer.Option("--overlap", help="In place of the schedule's own policy.")
]


@command(app, "put")
async def put(session: Session, file: File) -> ExitCode:
    """Create or replace schedules: one JSON object, or an array of up to 500."""
    document = read_document(file)
    async with session.harebell() as harebell:
        if isinstance(document, dict):
            return show(session.output, await harebell.put(document))
        return _show_all(session.output, await harebell.put_many(document))


@command(app, "get")
async def get(
    session: Session,
    name: Name = None,
    key: Key = None,
    id: Id = None,  # noqa: A002  # the option's name
) -> ExitCode:
    """Show one schedule."""
    async with session.harebell() as harebell:
        session.output.record(await harebell.schedule(**schedule_ref(name, key, id)))
    return ExitCode.DONE


@command(app, "list")
async def list_schedules(
    session: Session,
    *,
    tag: TagFilter = None,
    owner: OwnerFilter = None,
    called: NameFilter = None,
    state: State = None,
    limit: Limit = LIMIT,
) -> ExitCode:
    """List schedules, newest first."""
    async with session.harebell() as harebell:
        found = harebell.schedules(tag=tag, owner=owner, name=called, state=state, limit=limit)
        rows = [row async for row in found]
    session.output.rows(rows, ROW)
    return exit_code_of_many(done=len(rows))


@command(app, "patch")
async def patch(
    session: Session,
    *,
    name: Name = None,
    key: Key = None,
    id: Id = None,  # noqa: A002  # the option's name
    sets: Sets = None,
    file: PatchFile = None,
    expected_version: Version = None,
    effective_at: EffectiveAt = None,
    note: Note = None,
    request_id: RequestId = None,
) -> ExitCode:
    """Change some fields of a schedule; the others stay."""
    named = schedule_ref(name, key, id)
    change = apply_assignments(sets or [], file)
    now = session.surroundings.now()
    at = None if effective_at is None else future_time(effective_at, now=now, field="effective_at")
    async with session.harebell() as harebell:
        answer = await harebell.patch(
            change,
            **named,
            expected_version=expected_version,
            effective_at=at,
            note=note,
            request_id=request_id,
        )
    return show(session.output, answer)


@command(app, "skip")
async def skip(
    session: Session,
    *,
    name: Name = None,
    key: Key = None,
    id: Id = None,  # noqa: A002  # the option's name
    at: Instant,
    note: Note = None,
    request_id: RequestId = None,
) -> ExitCode:
    """Take the run of one instant out."""
    named = schedule_ref(name, key, id)
    instant = future_time(at, now=session.surroundings.now(), field="at")
    async with session.harebell() as harebell:
        answer = await harebell.skip(instant, **named, note=note, request_id=request_id)
    return show(session.output, answer)


@command(app, "trigger")
async def trigger(
    session: Session,
    *,
    name: Name = None,
    key: Key = None,
    id: Id = None,  # noqa: A002  # the option's name
    overlap: OwnOverlap = None,
    note: Note = None,
    request_id: RequestId = None,
) -> ExitCode:
    """Run it once now, beside its timetable."""
    named = schedule_ref(name, key, id)
    async with session.harebell() as harebell:
        answer = await harebell.trigger(**named, overlap=overlap, note=note, request_id=request_id)
    return show(session.output, answer)


@command(app, "backfill")
async def backfill(
    session: Session,
    *,
    name: Name = None,
    key: Key = None,
    id: Id = None,  # noqa: A002  # the option's name
    start: Start,
    to: End,
    max_runs: MaxRuns = None,
    dry_run: DryRun = False,  # a flag
    note: Note = None,
    request_id: RequestId = None,
) -> ExitCode:
    """Make the runs that the timetable had between two instants and that are not on record."""
    named = schedule_ref(name, key, id)
    now = session.surroundings.now()
    first, last = (past_time(text, now=now, field="from") for text in (start, to))
    async with session.harebell() as harebell:
        answer = await harebell.backfill(
            first,
            last,
            **named,
            max_runs=max_runs,
            dry_run=dry_run,
            note=note,
            request_id=request_id,
        )
    show(session.output, answer)
    return exit_code_of_many(done=len(answer.runs or []))


def show(output: Output, answer: ScheduleResponse) -> ExitCode:
    output.record(_view(answer))
    say_in_flight(output, answer.in_flight)
    return ExitCode.DONE


def _show_all(output: Output, answers: Sequence[ScheduleResponse | ErrorResponse]) -> ExitCode:
    stored = [answer for answer in answers if isinstance(answer, ScheduleResponse)]
    refused = [answer.error for answer in answers if isinstance(answer, ErrorResponse)]
    output.rows([_view(answer) for answer in answers], STORED)
    for answer in stored:
        say_in_flight(output, answer.in_flight)
    for fault in refused:
        output.say(f"harebell: {error_line(fault.field, fault.reason, fault.code)}")
    return exit_code_of_many(done=len(stored), failed=len(refused))


def say_in_flight(output: Output, runs: Sequence[str]) -> None:
    for run in runs:
        output.say(f"harebell: {run} had already been claimed")


def _view(answer: ScheduleResponse | ErrorResponse) -> dict[str, Any]:
    return answer.model_dump(mode="json", exclude_none=True)
