"""`harebell archive`: the archive of removed runs, read from its directory without a service."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final
from uuid import UUID

import typer

from harebell.cli.arguments.values import optional_past_time
from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode
from harebell.cli.framework.session import Session
from harebell.contract.errors import InvalidInput
from harebell.contract.ids import RunKey, run_id
from harebell.runtime.archive import (
    ArchiveDay,
    ArchiveFault,
    list_days,
    read_day,
    read_rows,
    verify_part,
)

app = typer.Typer()

DAY_COLUMNS: Final = ("day", "parts", "runs", "attempts", "bytes")
RUN_COLUMNS: Final = ("run_id", "tenant", "key", "state", "started_at", "finished_at")
DEFAULT_LIMIT: Final = 100  # runs
ONE_DAY: Final = timedelta(days=1)

_Directory = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        metavar="DIRECTORY",
        envvar="HAREBELL_ARCHIVE_DIR",
        help="Read the archive in this directory.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveListOptions:
    """The options of `archive list`."""

    directory: _Directory = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveVerifyOptions:
    """The options of `archive verify`."""

    directory: _Directory = None
    day: Annotated[
        datetime | None,
        typer.Option(
            "--day", metavar="DAY", formats=["%Y-%m-%d"], help="Verify only this day (YYYY-MM-DD)."
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveShowOptions:
    """The options of `archive show`."""

    directory: _Directory = None
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="KEY", help="Print only runs of the schedule with this key."),
    ] = None
    tenant: Annotated[
        str | None,
        typer.Option("--tenant", metavar="NAME", help="Print only runs of this tenant."),
    ] = None
    state: Annotated[
        str | None,
        typer.Option("--state", metavar="STATE", help="Print only runs that ended in this state."),
    ] = None
    run: Annotated[
        str | None, typer.Option("--run", metavar="RUN_ID", help="Print only the run with this id.")
    ] = None
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="TIME",
            help="Begin at this scheduled time (ISO 8601, or a duration ago).",
        ),
    ] = None
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="TIME",
            help="End before this scheduled time (ISO 8601, or a duration ago).",
        ),
    ] = None
    limit: Annotated[
        int,
        typer.Option("--limit", min=1, metavar="N", help="Print at most this number of runs."),
    ] = DEFAULT_LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """The filters of archived runs. A filter that is None matches every run."""

    equal: Mapping[str, str | None]  # by the name of the field
    run: RunKey | None
    since: datetime | None
    until: datetime | None

    def includes_day(self, day: date) -> bool:
        """Return whether a day may contain a matching run."""
        start = datetime(day.year, day.month, day.day, tzinfo=UTC)
        if self.run is not None and not start <= self.run.scheduled_for < start + ONE_DAY:
            return False
        return (self.since is None or self.since < start + ONE_DAY) and (
            self.until is None or start < self.until
        )

    def matches(self, row: Mapping[str, Any]) -> bool:
        """Return whether a run matches all filters."""
        if any(value is not None and row.get(name) != value for name, value in self.equal.items()):
            return False
        at = datetime.fromisoformat(row["scheduled_for"])
        if self.run is not None and (at, UUID(row["schedule_id"])) != tuple(self.run):
            return False
        return (self.since is None or at >= self.since) and (self.until is None or at < self.until)


@command(app, "list", global_options=("output",))
def list_(session: Session, options: ArchiveListOptions) -> ExitCode:
    """List the days of an archive with their sizes."""
    try:
        days = list(_days(_directory(options.directory)))
    except ArchiveFault as error:
        session.output.print_message(error.reason)
        return ExitCode.FAILED
    rows = [
        {
            "day": each.day.isoformat(),
            "parts": len(each.parts),
            "runs": each.count("runs"),
            "attempts": each.count("attempts"),
            "bytes": each.size,
        }
        for each in days
    ]
    session.output.print_rows(rows, DAY_COLUMNS, empty="The archive has no day.")
    return ExitCode.DONE


@command(app, "verify", global_options=("output",))
def verify(session: Session, options: ArchiveVerifyOptions) -> ExitCode:
    """Compare the files of an archive with their manifests. The exit code is 1 after a fault."""
    root, faults, days = _directory(options.directory), 0, 0
    for day in list_days(root):
        if options.day is not None and day != options.day.date():
            continue
        days += 1
        try:
            for part in read_day(root, day).parts:
                verify_part(root, day, part)
        except ArchiveFault as error:
            faults += 1
            session.output.print_message(f"{day}: {error.reason}")
    if not days:
        session.output.print_message("The archive contains no such day.")
        return ExitCode.NO_MATCH
    session.output.print_record({"days": days, "faults": faults})
    return ExitCode.FAILED if faults else ExitCode.DONE


@command(app, "show", global_options=("output",))
def show(session: Session, options: ArchiveShowOptions) -> ExitCode:
    """Print the archived runs that match all filters, with attempts."""
    filter_ = RunFilter(
        equal={"key": options.key, "tenant": options.tenant, "state": options.state},
        run=None if options.run is None else RunKey.parse(options.run),
        since=optional_past_time(options.since, now=session.now(), field="since"),
        until=optional_past_time(options.until, now=session.now(), field="until"),
    )
    root = _directory(options.directory)
    try:
        rows = list(_matching(root, filter_, limit=options.limit))
    except ArchiveFault as error:
        session.output.print_message(error.reason)
        return ExitCode.FAILED
    session.output.print_rows(rows, RUN_COLUMNS, empty="No run matches.")
    return ExitCode.DONE if rows else ExitCode.NO_MATCH


def _directory(directory: Path | None) -> Path:
    """Return the directory. Raise `InvalidInput` without one."""
    if directory is None:
        reason = "The archive needs a directory: set HAREBELL_ARCHIVE_DIR or pass --dir."
        raise InvalidInput(reason, code="no_archive_dir")
    return directory


def _days(root: Path) -> Iterator[ArchiveDay]:
    for day in list_days(root):
        yield read_day(root, day)


def _matching(root: Path, filter_: RunFilter, *, limit: int) -> Iterator[dict[str, Any]]:
    """Yield at most `limit` matching runs with their attempts, the oldest day first."""
    remaining = limit
    for day in list_days(root):
        if remaining <= 0 or not filter_.includes_day(day):
            continue
        content = read_day(root, day)
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for row in read_rows(root, content, "runs"):
            if filter_.matches(row):
                found[_key(row)] = row
            if len(found) == remaining:
                break
        remaining -= len(found)
        _add_attempts(found, read_rows(root, content, "attempts"))
        yield from found.values()


def _add_attempts(
    runs: Mapping[tuple[str, str], dict[str, Any]], attempts: Iterable[Mapping[str, Any]]
) -> None:
    for row in runs.values():
        id_, at = UUID(row["schedule_id"]), datetime.fromisoformat(row["scheduled_for"])
        row |= {"run_id": run_id(id_, at), "attempts": []}
    if not runs:
        return
    for each in attempts:
        run = runs.get(_key(each))
        if run is not None:
            run["attempts"].append(dict(each))


def _key(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["scheduled_for"], row["schedule_id"]
