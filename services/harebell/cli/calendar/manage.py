"""`harebell calendar`: the calendars that schedules exclude or include."""

from dataclasses import dataclass
from typing import Annotated, BinaryIO, Final, TypeAlias

import typer

from harebell.cli.arguments.documents import read_body, read_document
from harebell.cli.calendar.holiday_days import market_closures, public_holidays
from harebell.cli.calendar.ical import MAX_ICAL_SIZE, ical_days
from harebell.cli.calendar.source import content_of, parse_years, summary
from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode, exit_code_of_many
from harebell.cli.framework.options import Note
from harebell.cli.framework.session import Session
from harebell.contract.calendar import CalendarContent, CalendarResponse
from harebell.contract.errors import InvalidInput
from harebell.contract.message import parse

app = typer.Typer()

COLUMNS: Final = ("name", "version", "timezone", "schedules", "changed_at", "actor", "note")

CalendarArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="NAME", help="Name the calendar of the tenant.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarPutOptions:
    """The options of `calendar put`."""

    name: CalendarArgument
    file: Annotated[
        typer.FileBinaryRead | None,
        typer.Argument(metavar="FILE|-", help="Read this file (JSON, - for standard input)."),
    ] = None
    ical: Annotated[
        typer.FileBinaryRead | None,
        typer.Option(
            "--ical", metavar="FILE", help="Read the whole days of this iCalendar file instead."
        ),
    ] = None
    country: Annotated[
        str | None,
        typer.Option(
            "--country", metavar="CODE", help="Store the public holidays of a country (ISO 3166)."
        ),
    ] = None
    subdivision: Annotated[
        str | None,
        typer.Option(
            "--subdivision", metavar="CODE", help="Add the holidays of this part of the country."
        ),
    ] = None
    market: Annotated[
        str | None,
        typer.Option(
            "--market",
            metavar="CODE",
            help="Store the days without trading of a market (ISO 10383, such as XNYS).",
        ),
    ] = None
    years: Annotated[
        str | None,
        typer.Option(
            "--years",
            metavar="YEAR[-YEAR]",
            help="Store these years of the source (default: this year and the next two).",
        ),
    ] = None
    timezone: Annotated[
        str | None,
        typer.Option(
            "--timezone", metavar="NAME", help="Begin the days of the source in this time zone."
        ),
    ] = None
    expected_version: Annotated[
        int | None,
        typer.Option(
            "--expected-version",
            min=1,
            metavar="N",
            help="Reject the change if the calendar has another version.",
        ),
    ] = None
    note: Note = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarGetOptions:
    """The options of `calendar get`."""

    name: CalendarArgument
    version: Annotated[
        int | None,
        typer.Option(
            "--version", min=1, metavar="N", help="Print this version (default: the latest)."
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarListOptions:
    """The options of `calendar list`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarDeleteOptions:
    """The options of `calendar delete`."""

    name: CalendarArgument
    note: Note = None


@command(app, "put")
async def put(session: Session, options: CalendarPutOptions) -> ExitCode:
    """Create or replace a calendar, and print how many schedules this changes.

    The days are in a file, or they are public holidays, the days without trading of a market, or
    the whole days of an iCalendar file.
    """
    content = _content(session, options)
    async with session.connect() as client:
        response = await client.put_calendar(
            options.name,
            days=content.days,
            weekly=[each.model_dump(by_alias=True) for each in content.weekly],
            timezone=content.timezone,
            expected_version=options.expected_version,
            note=options.note,
        )
    return _print(session, response)


def _content(session: Session, options: CalendarPutOptions) -> CalendarContent:
    """Return the content from the one source of the options. Raise `InvalidInput`."""
    sources = (options.file, options.ical, options.country, options.market)
    if sum(each is not None for each in sources) != 1:
        reason = "The command must have one source: FILE, --ical, --country or --market."
        raise InvalidInput(reason, code="one_source")
    if options.subdivision is not None and options.country is None:
        reason = "The option --subdivision must follow --country."
        raise InvalidInput(reason, field="subdivision", code="no_country")
    if options.file is not None:
        return _file_content(options.file, options)
    if options.timezone is None:
        reason = "The option --timezone must be present, because the source has no time zone."
        raise InvalidInput(reason, field="timezone", code="missing_field")
    years = parse_years(options.years, current=session.now().year)
    if options.ical is not None:
        found = ical_days(read_body(options.ical, MAX_ICAL_SIZE), years)
    elif options.country is not None:
        found = public_holidays(options.country, options.subdivision, years)
    else:
        assert options.market is not None  # noqa: S101  # the only source that remains
        found = market_closures(options.market, years)
    content = content_of(found, timezone=options.timezone)
    session.output.print_message(summary(found, years))
    return content


def _file_content(file: BinaryIO, options: CalendarPutOptions) -> CalendarContent:
    if options.years is not None or options.timezone is not None:
        reason = "The options --years and --timezone are for the other sources, not for FILE."
        raise InvalidInput(reason, code="one_source")
    document = read_document(file)
    if not isinstance(document, dict):
        reason = "The file must contain one calendar, not an array."
        raise InvalidInput(reason, code="not_a_calendar")
    return parse(CalendarContent, document)


@command(app, "get")
async def get(session: Session, options: CalendarGetOptions) -> ExitCode:
    """Print one calendar with its days and its weekly hours."""
    async with session.connect() as client:
        view = await client.calendar(options.name, version=options.version)
    session.output.print_record(view.model_dump(mode="json", by_alias=True, exclude={"ok"}))
    return ExitCode.DONE


@command(app, "list")
async def list_calendars(session: Session, options: CalendarListOptions) -> ExitCode:  # noqa: ARG001  # each command has options
    """List the calendars of the tenant, by name."""
    async with session.connect() as client:
        rows = await client.calendars()
    session.output.print_rows(rows, COLUMNS, empty="The tenant has no calendar.")
    return exit_code_of_many(done=len(rows))


@command(app, "delete")
async def delete(session: Session, options: CalendarDeleteOptions) -> ExitCode:
    """Delete a calendar that no schedule uses."""
    async with session.connect() as client:
        response = await client.delete_calendar(options.name, note=options.note)
    return _print(session, response)


def _print(session: Session, response: CalendarResponse) -> ExitCode:
    session.output.print_record(response.model_dump(mode="json", exclude={"ok"}))
    return ExitCode.PARTIAL if response.rejected else ExitCode.DONE
