"""`harebell audit`: the required runs compared with the ledger.

Only `harebell doctor` may use the database too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from harebell.cli.arguments.values import duration, optional_past_time, past_time
from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode
from harebell.cli.framework.session import Session
from harebell.contract.errors import InvalidInput
from harebell.contract.ids import run_id
from harebell.contract.types import instant_text

if TYPE_CHECKING:
    from harebell.audit.model.records import Finding
    from harebell.audit.model.report import Report

app = typer.Typer()

FINDING_COLUMNS: Final = ("kind", "tenant", "key", "at", "text")
HEARTBEAT_COLUMNS: Final = ("component", "since")
DEFAULT_LIMIT: Final = 100  # findings


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """The options of `audit`."""

    since: Annotated[
        str,
        typer.Option(
            "--since", metavar="TIME", help="Begin at this time (ISO 8601, or a duration ago)."
        ),
    ] = "24h"
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="TIME",
            help="End before this time (ISO 8601, or a duration ago, default: now).",
        ),
    ] = None
    schedule: Annotated[
        str | None,
        typer.Option(
            "--schedule", metavar="SCHEDULE", help="Check only this schedule (key or id)."
        ),
    ] = None
    all_tenants: Annotated[
        bool, typer.Option("--all-tenants", help="Check the schedules of all tenants.")
    ] = False
    late_after: Annotated[
        str,
        typer.Option(
            "--late-after",
            metavar="DURATION",
            help="Report a run as late or stuck after this time (such as 60s).",
        ),
    ] = "60s"
    limit: Annotated[
        int,
        typer.Option(
            "--limit",
            min=0,
            metavar="N",
            help="Print at most this number of findings, and count all.",
        ),
    ] = DEFAULT_LIMIT
    watch: Annotated[bool, typer.Option("--watch", help="Repeat the audit until Ctrl-C.")] = False
    every: Annotated[
        str,
        typer.Option(
            "--every",
            metavar="DURATION",
            help="Repeat at this interval with --watch (such as 60s).",
        ),
    ] = "60s"
    ping_url: Annotated[
        str | None,
        typer.Option(
            "--ping-url",
            metavar="URL",
            help="Send a POST to this URL after each clean audit with --watch, "
            "and to URL/fail after any other audit.",
        ),
    ] = None
    database_url: Annotated[
        str | None,
        typer.Option(
            "--database-url",
            metavar="URL",
            envvar="HAREBELL_DATABASE_URL",
            help="Connect to this PostgreSQL database, with the role harebell_auditor.",
        ),
    ] = None


@command(app, "audit")
async def audit(session: Session, options: AuditOptions) -> ExitCode:
    """Compare the required runs with the ledger. The exit code is 1 after a finding.

    The command only reads the database and needs neither the broker nor a service.
    """
    # The import is here, because no other command may load the driver of the database.
    from harebell.audit import audit, store, watchdog  # noqa: PLC0415  # the reason is above

    url = _database_url(options)
    tenant = session.options.tenant
    scope = audit.Scope(None if options.all_tenants else tenant, options.schedule)
    late_after = duration(options.late_after, field="late_after")
    if options.watch:
        watched = watchdog.Watchdog(
            database_url=url,
            tenant=tenant,
            period=duration(options.since, field="since"),
            interval=duration(options.every, field="every"),
            ping_url=options.ping_url,
            amqp_url=session.known_amqp_url(),
            scope=scope,
            late_after=late_after,
        )
        async for line in watched.lines(session.now):
            session.output.print_message(line)
    since = past_time(options.since, now=session.now(), field="since")
    until = optional_past_time(options.until, now=session.now(), field="until")
    async with store.connect_read_only(url) as connection:
        report = await audit.run_audit(
            connection, since, until, scope=scope, late_after=late_after, limit=options.limit
        )
    return _print(session, report)


def _database_url(options: AuditOptions) -> str:
    """Return the URL of the database. Raises `InvalidInput` without a URL."""
    if not options.database_url:
        raise InvalidInput(
            "The audit needs a database: set HAREBELL_DATABASE_URL or pass --database-url.",
            code="no_database_url",
        )
    return options.database_url


def _print(session: Session, report: "Report") -> ExitCode:
    record: dict[str, Any] = {
        "since": instant_text(report.since),
        "until": instant_text(report.until),
        "schedules": report.schedules,
        "runs": report.runs,
        "expected": report.expected,
        "recorded": report.recorded,
        "counts": {kind.value: count for kind, count in sorted(report.counts.items())},
        "missed_heartbeats": [
            {"component": each.component, "since": instant_text(each.since)}
            for each in report.missed_heartbeats
        ],
        "findings": [_finding(each) for each in report.findings],
    }
    session.output.print_record(
        record, missed_heartbeats=HEARTBEAT_COLUMNS, findings=FINDING_COLUMNS
    )
    if report.omitted:
        session.output.print_message(
            f"The audit found {report.omitted} more findings: increase --limit to print them."
        )
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
