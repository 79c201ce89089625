"""Which dead letters a command is for: the options of the filter, and the filter."""

from typing import Annotated

import typer

from harebell.cli.arguments.values import past_time
from harebell.cli.framework.session import Session
from harebell.client.requests import DeadLetterFields

OfGroup = Annotated[
    str | None, typer.Option("--group", metavar="ID", help="Only those of this group.")
]
OfKey = Annotated[str | None, typer.Option("--key", help="Only those of this schedule.")]
OfTag = Annotated[str | None, typer.Option("--tag", help="Only those of schedules with this tag.")]
OfError = Annotated[
    str | None, typer.Option("--error", metavar="CODE", help="Only those with this error.")
]
OlderThan = Annotated[
    str | None, typer.Option("--older-than", help="Died before: an instant, or so long ago (2h).")
]
NewerThan = Annotated[str | None, typer.Option("--newer-than", help="Died since then.")]
Replayed = Annotated[
    bool | None,
    typer.Option("--replayed/--not-replayed", help="Whose run was replayed before, or not."),
]


def dead_letter_filter(  # noqa: PLR0917  # the options, one by one
    session: Session,
    group: str | None,
    key: str | None,
    tag: str | None,
    error: str | None,
    older_than: str | None,
    newer_than: str | None,
    replayed: bool | None,  # noqa: FBT001
) -> DeadLetterFields:
    """Only what was given. Raises `Malformed` for a moment that is none."""
    now = session.surroundings.now()
    only: DeadLetterFields = {}
    for name, text in (("group", group), ("key", key), ("tag", tag), ("error", error)):
        if text is not None:
            only[name] = text  # type: ignore[literal-required]  # each is one of its names
    if older_than is not None:
        only["before"] = past_time(older_than, now=now, field="older_than")
    if newer_than is not None:
        only["since"] = past_time(newer_than, now=now, field="newer_than")
    if replayed is not None:
        only["replayed"] = replayed
    return only
