"""`harebell schedule preview`: the next scheduled times of a schedule."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final
from uuid import UUID

import typer

from harebell.cli.arguments.documents import read_document
from harebell.cli.arguments.schedule_ref import ScheduleRefOptions
from harebell.cli.arguments.values import past_time
from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode
from harebell.cli.framework.session import Session
from harebell.contract.errors import InvalidCron, InvalidInput, Rejected
from harebell.contract.ids import schedule_id
from harebell.contract.message import parse
from harebell.contract.queries import MAX_PREVIEW
from harebell.contract.schedule import Definition
from harebell.contract.views import UpcomingRunView
from harebell.domain.preview import upcoming_runs
from harebell.domain.validation import check_when
from harebell.domain.versions import VersionWindow

app = typer.Typer()

COLUMNS: Final = ("at", "local", "due_at", "notes")
DEFAULT_COUNT: Final = 10  # scheduled times
MIN_CRON_FIELDS: Final = 5  # an argument with this number of words is an expression, not a key
NO_ID: Final = UUID(int=0)  # the id of a schedule without a key
ANY_TARGET: Final = {"task": {"name": "preview"}}  # a preview executes nothing
ACTIVE: Final = "active"

_DEFINITION_FIELDS: Final = {field.alias or name for name, field in Definition.model_fields.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewOptions(ScheduleRefOptions):
    """The options of `schedule preview`."""

    schedule: Annotated[
        str | None,
        typer.Argument(
            metavar="SCHEDULE|EXPRESSION",
            help="Name a stored schedule (key or id), or pass a cron expression.",
        ),
    ] = None
    file: Annotated[
        typer.FileBinaryRead | None,
        typer.Option(
            "--file", "-f", metavar="FILE|-", help="Preview the schedule in this file (JSON)."
        ),
    ] = None
    timezone: Annotated[
        str,
        typer.Option(
            "--timezone", metavar="ZONE", help="Use this time zone for an expression (IANA name)."
        ),
    ] = "UTC"
    count: Annotated[
        int,
        typer.Option(
            "--count",
            min=1,
            max=MAX_PREVIEW,
            metavar="N",
            help="Print this number of scheduled times.",
        ),
    ] = DEFAULT_COUNT
    after: Annotated[
        str | None,
        typer.Option(
            "--after",
            metavar="TIME",
            help="Begin after this time (ISO 8601, or a duration ago, default: now).",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Range:
    """The scheduled times to compute: `count` times after `after`."""

    after: datetime
    count: int
    now: datetime


@command(app, "preview")
async def preview(session: Session, options: PreviewOptions) -> ExitCode:
    """Print the next scheduled times of a stored schedule, an expression or a file.

    The command computes the times of an expression or a file without a broker.
    """
    now = session.now()
    after = now if options.after is None else past_time(options.after, now=now, field="after")
    wanted = _Range(after=after, count=options.count, now=now)
    times: Sequence[UpcomingRunView]
    if options.file is not None:
        schedule = _single(read_document(options.file))
        if schedule.get("calendars"):  # only the service knows their content
            async with session.connect() as client:
                view = await client.preview(
                    definition={"target": ANY_TARGET, **schedule}, count=options.count, after=after
                )
            times = view.instants
        else:
            times = _compute(schedule, session.options.tenant, wanted)
    elif options.schedule is not None and _is_expression(options.schedule):
        when = {"cron": options.schedule, "timezone": options.timezone}
        times = _compute({"when": when}, session.options.tenant, wanted)
    else:
        times = await _query(session, options, after)
    session.output.print_rows(times, COLUMNS)
    return ExitCode.DONE if times else ExitCode.NO_MATCH


async def _query(
    session: Session, options: PreviewOptions, after: datetime
) -> Sequence[UpcomingRunView]:
    """Return the next scheduled times of a stored schedule."""
    ref = options.ref
    async with session.connect() as client:
        view = await client.preview(**ref, count=options.count, after=after)
    if view.state != ACTIVE:
        session.output.print_message(f"The schedule is {view.state}.")
    return view.instants


def _is_expression(text: str) -> bool:
    return text.startswith("@") or len(text.split()) >= MIN_CRON_FIELDS


def _single(document: object) -> dict[str, Any]:
    if not isinstance(document, dict):
        reason = "The file must contain one schedule, not an array."
        raise InvalidInput(reason, code="not_a_schedule")
    return document


def _compute(schedule: Mapping[str, Any], tenant: str, wanted: _Range) -> list[UpcomingRunView]:
    """Return the scheduled times of a definition. Raises `InvalidInput`."""
    fields = {"target": ANY_TARGET, **schedule}
    known = {name: fields[name] for name in fields if name in _DEFINITION_FIELDS}
    definition = parse(Definition, known)
    id_ = NO_ID if definition.key is None else schedule_id(tenant, definition.key)
    try:
        check_when(definition.when, id_, now=wanted.now)
    except Rejected as error:
        raise _as_invalid_input(error) from error
    window = VersionWindow(schedule_id=id_, policy=definition, since=min(wanted.after, wanted.now))
    runs = upcoming_runs([window], after=wanted.after, count=wanted.count)
    return [each.to_view() for each in runs]


def _as_invalid_input(error: Rejected) -> InvalidInput:
    """Return the error as wrong usage, because the command sent nothing."""
    position = error.position if isinstance(error, InvalidCron) else None
    suffix = "" if position is None else f" The error is at character {position + 1}."
    return InvalidInput(error.reason + suffix, field=error.field, code=error.code)
