"""The options that select dead letters, and the filter that they form."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final, TypeAlias

import typer

from harebell.cli.arguments.values import past_time
from harebell.client.requests import DeadLetterFields

DEFAULT_STATE: Final = "open"

DeadLetterStateName: TypeAlias = Annotated[
    str,
    typer.Option(
        "--state",
        metavar="STATE",
        help="Filter by state (open, replayed, resolved, discarded, superseded or all).",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterScopeOptions:
    """The options that name a failure group, a schedule or a tag."""

    group: Annotated[
        str | None,
        typer.Option("--group", metavar="ID", help="Filter dead letters by failure group (id)."),
    ] = None
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="KEY", help="Filter dead letters by schedule (key)."),
    ] = None
    tag: Annotated[
        str | None,
        typer.Option("--tag", metavar="TAG", help="Filter dead letters by tag of the schedule."),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFilterOptions(DeadLetterScopeOptions):
    """The options that select dead letters."""

    error: Annotated[
        str | None,
        typer.Option("--error", metavar="CODE", help="Filter dead letters by error code."),
    ] = None
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="TIME",
            help="Filter dead letters from this time (ISO 8601, or a duration ago).",
        ),
    ] = None
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="TIME",
            help="Filter dead letters before this time (ISO 8601, or a duration ago).",
        ),
    ] = None
    replayed: Annotated[
        bool | None,
        typer.Option(
            "--replayed/--not-replayed",
            help="Filter dead letters by an earlier replay of the run (default: both).",
        ),
    ] = None


def scope_fields(options: DeadLetterScopeOptions) -> DeadLetterFields:
    """Return the fields of a filter by failure group, schedule and tag."""
    fields: DeadLetterFields = {}
    if options.group is not None:
        fields["group"] = options.group
    if options.key is not None:
        fields["key"] = options.key
    if options.tag is not None:
        fields["tag"] = options.tag
    return fields


def dead_letter_filter(options: DeadLetterFilterOptions, now: datetime) -> DeadLetterFields:
    """Return the filter of the given options. Raises `InvalidInput` for a text that is no time."""
    fields = scope_fields(options)
    if options.error is not None:
        fields["error"] = options.error
    if options.since is not None:
        fields["since"] = past_time(options.since, now=now, field="since")
    if options.until is not None:
        fields["until"] = past_time(options.until, now=now, field="until")
    if options.replayed is not None:
        fields["replayed"] = options.replayed
    return fields
