"""`harebell schedule preview` and `harebell why`: what a schedule will do, and what it did."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final
from uuid import UUID

import typer

from harebell.cli.arguments.documents import read_document
from harebell.cli.arguments.schedule_ref import Id, Key, schedule_ref
from harebell.cli.arguments.values import past_time
from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode
from harebell.cli.framework.session import Session
from harebell.cli.run import ATTEMPT
from harebell.contract.errors import InvalidCron, InvalidInput, Rejected
from harebell.contract.ids import schedule_id
from harebell.contract.message import parse
from harebell.contract.queries import MAX_PREVIEW
from harebell.contract.schedule import Definition
from harebell.domain.preview import upcoming_runs
from harebell.domain.validation import check_when
from harebell.domain.versions import VersionWindow

app = typer.Typer()  # joins that of `schedules`

COLUMNS: Final = ("at", "local", "due_at", "notes")
COUNT: Final = 10  # instants, unless told otherwise
FIELDS: Final = 5  # words that make an argument an expression and no key
NAMELESS: Final = UUID(int=0)
NO_MATTER: Final = {"task": {"name": "preview"}}  # a preview runs nothing

Previewed = Annotated[
    str | None,
    typer.Argument(metavar="KEY|EXPRESSION", help="A stored schedule, or a cron expression."),
]
Timezone = Annotated[str, typer.Option("--timezone", help="Of an expression.")]
Count = Annotated[int, typer.Option("--count", min=1, max=MAX_PREVIEW, help="Instants.")]
After = Annotated[
    str | None, typer.Option("--after", help="An instant, or how long ago (10m); else now.")
]
_SHAPE: Final = {field.alias or name for name, field in Definition.model_fields.items()}

File = Annotated[
    typer.FileBinaryRead | None,
    typer.Option("--file", "-f", metavar="FILE|-", help="A schedule that is not stored."),
]
At = Annotated[
    str | None, typer.Option("--at", help="An instant, or how long ago; else the last one.")
]


@command(app, "preview")
async def preview(
    session: Session,
    *,
    name: Previewed = None,
    key: Key = None,
    id: Id = None,  # noqa: A002  # the option's name
    file: File = None,
    timezone: Timezone = "UTC",
    count: Count = COUNT,
    after: After = None,
) -> ExitCode:
    """Show the next instants. An expression or a file needs no broker: all is computed here."""
    now = session.surroundings.now()
    start = now if after is None else past_time(after, now=now, field="after")
    if file is not None:
        instants = _computed(_one(read_document(file)), session.options.tenant, start, now, count)
    elif name is not None and _is_expression(name):
        when = {"cron": name, "timezone": timezone}
        instants = _computed({"when": when}, session.options.tenant, start, now, count)
    else:
        named = schedule_ref(name, key, id)
        async with session.harebell() as harebell:
            shown = await harebell.preview(**named, count=count, after=start)
        instants = shown["instants"]
        if shown["state"] != "active":
            session.output.say(f"harebell: the schedule is {shown['state']}")
    session.output.rows(instants, COLUMNS)
    return ExitCode.DONE if instants else ExitCode.NO_MATCH


async def why(
    session: Session,
    *,
    name: Annotated[
        str | None, typer.Argument(metavar="SCHEDULE", help="The schedule's key, or its id.")
    ] = None,
    key: Key = None,
    id: Id = None,  # noqa: A002  # the option's name
    at: At = None,
) -> ExitCode:
    """Say what became of an instant of a schedule, or what will, and why."""
    now = session.surroundings.now()
    instant = None if at is None else past_time(at, now=now, field="at")
    named = schedule_ref(name, key, id)
    async with session.harebell() as harebell:
        found = await harebell.why(**named, at=instant)
    session.output.record(found, attempts=ATTEMPT)
    return ExitCode.DONE


def _is_expression(text: str) -> bool:
    return text.startswith("@") or len(text.split()) >= FIELDS


def _one(document: object) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise InvalidInput("preview one schedule at a time", code="not_a_schedule")
    return document


def _computed(
    schedule: Mapping[str, Any], tenant: str, after: datetime, now: datetime, count: int
) -> list[dict[str, Any]]:
    """Raises `Malformed`."""
    fields = {"target": NO_MATTER, **schedule}
    definition = parse(Definition, {name: fields[name] for name in fields if name in _SHAPE})
    id_ = NAMELESS if definition.key is None else schedule_id(tenant, definition.key)
    try:
        check_when(definition.when, id_, now=now)
    except Rejected as error:
        raise _as_usage(error) from error
    edition = VersionWindow(id_, definition, min(after, now))
    return [each.view() for each in upcoming_runs([edition], after=after, count=count)]


def _as_usage(error: Rejected) -> InvalidInput:
    """What is wrong was typed here: nothing was sent."""
    place = error.position if isinstance(error, InvalidCron) else None
    where = "" if place is None else f" (at character {place + 1})"
    return InvalidInput(error.reason + where, field=error.field, code=error.code)
