"""`harebell audit`: what was owed against what was recorded. It alone needs the database."""

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from pydantic_core import PydanticCustomError

from harebell.cli.arguments.values import past_time
from harebell.cli.framework.exit_codes import ExitCode
from harebell.cli.framework.session import Session
from harebell.contract.errors import InvalidInput
from harebell.contract.ids import run_id
from harebell.contract.types import instant_text, parse_duration

if TYPE_CHECKING:
    from harebell.audit.model.records import Finding
    from harebell.audit.model.report import Report

COLUMNS: Final = ("kind", "tenant", "key", "at", "text")
SILENCES: Final = ("component", "since")
BACK: Final = "24h"

DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        metavar="URL",
        envvar="HAREBELL_DATABASE_URL",
        help="PostgreSQL; the role harebell_auditor may read what is needed.",
    ),
]
Since = Annotated[
    str, typer.Option("--since", help="An instant (2026-11-20T14:00:00Z), or how long ago (24h).")
]
Until = Annotated[str | None, typer.Option("--until", help="The same; else now.")]
Name = Annotated[
    str | None, typer.Option("--schedule", metavar="KEY|ID", help="Only this schedule.")
]
AllTenants = Annotated[bool, typer.Option("--all-tenants", help="Whatever --tenant says.")]
LateAfter = Annotated[
    str, typer.Option("--late-after", help="From when on a run is late, or stuck.")
]
Most = Annotated[int, typer.Option("--limit", min=0, help="Findings told; all are counted.")]
Watched = Annotated[bool, typer.Option("--watch", help="Again and again, until ^C.")]
Every = Annotated[str, typer.Option("--every", help="Of --watch: how often.")]
PingUrl = Annotated[
    str | None,
    typer.Option(
        "--ping-url", help="Of --watch: posted to when all is well, else with /fail behind it."
    ),
]


async def audit(
    session: Session,
    *,
    since: Since = BACK,
    until: Until = None,
    schedule: Name = None,
    all_tenants: AllTenants = False,
    late_after: LateAfter = "60s",
    limit: Most = 100,
    watch: Watched = False,
    every: Every = "60s",
    ping_url: PingUrl = None,
    database_url: DatabaseUrl = None,
) -> ExitCode:
    """Compare what was owed with what was recorded, from the tables alone; 1: something is wrong.

    It reads the database, needs neither the broker nor any service, and changes nothing.
    """
    # only here, so that no other command needs the database's driver
    from harebell.audit import audit, store, watchdog  # noqa: PLC0415

    url = _named(database_url)
    options, now = session.options, session.surroundings.now
    scope = audit.Scope(None if all_tenants else options.tenant, schedule)
    bound = _duration(late_after, "late_after")
    if watch:
        often = (_duration(since, "since"), _duration(every, "every"))
        whom = (ping_url, options.amqp_url)
        watched = watchdog.Watchdog(url, options.tenant, *often, *whom, scope, bound)
        async for line in watched.lines(now):
            session.output.say(f"harebell: {line}")
    start = past_time(since, now=now(), field="since")
    end = None if until is None else past_time(until, now=now(), field="until")
    async with store.connect_read_only(url) as connection:
        report = await audit.run_audit(
            connection, start, end, scope=scope, late_after=bound, most=limit
        )
    return _show(session, report)


def _named(database_url: str | None) -> str:
    """Raises `Malformed` when there is none."""
    if not database_url:
        reason = "no database is named: set HAREBELL_DATABASE_URL or give --database-url"
        raise InvalidInput(reason, code="no_database_url")
    return database_url


def _show(session: Session, report: "Report") -> ExitCode:
    record: dict[str, Any] = {
        "since": instant_text(report.since),
        "until": instant_text(report.until),
        "schedules": report.schedules,
        "runs": report.runs,
        "owed": report.expected,
        "recorded": report.recorded,
        "found": {kind.value: count for kind, count in sorted(report.counts.items())},
        "silences": [
            {"component": each.who, "since": instant_text(each.since)} for each in report.silences
        ],
        "findings": [_finding(each) for each in report.findings],
    }
    session.output.record(record, silences=SILENCES, findings=COLUMNS)
    if report.omitted:
        session.output.say(f"harebell: {report.omitted} findings more; --limit tells more of them")
    return ExitCode.DONE if report.is_clean else ExitCode.FAILED


def _finding(finding: "Finding") -> Mapping[str, Any]:
    at = finding.at
    return {
        "kind": finding.kind.value,
        "tenant": finding.tenant,
        "schedule_id": str(finding.schedule_id),
        "key": finding.key,
        "at": None if at is None else instant_text(at),
        "run_id": None if at is None else run_id(finding.schedule_id, at),
        "text": finding.text,
    }


def _duration(text: str, field: str) -> timedelta:
    """Raises `Malformed`."""
    try:
        return parse_duration(text)
    except PydanticCustomError as error:
        raise InvalidInput(error.message(), field=field, code=error.type) from None
