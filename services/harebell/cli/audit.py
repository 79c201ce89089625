"""`harebell audit`: the required runs compared with the ledger.

Only `harebell doctor` may use the database too.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer

from harebell.cli.arguments.values import duration, optional_past_time, past_time
from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode
from harebell.cli.framework.session import Session
from harebell.contract.errors import InvalidInput
from harebell.contract.ids import run_id
from harebell.contract.types import instant_text

if TYPE_CHECKING:
    from harebell.audit.audit import Scope
    from harebell.audit.model.records import Finding
    from harebell.audit.model.report import Report
    from harebell.domain.tenant_policy import TenantPolicies

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
    metrics_file: Annotated[
        Path | None,
        typer.Option(
            "--metrics-file",
            metavar="FILE",
            help="Write the number of findings to this file after each audit, "
            "as gauges for the textfile collector of Prometheus' node exporter.",
        ),
    ] = None
    metrics_port: Annotated[
        int | None,
        typer.Option(
            "--metrics-port",
            min=1,
            max=65535,
            metavar="PORT",
            help="Show the number of findings to Prometheus on this port with --watch.",
        ),
    ] = None
    metrics_host: Annotated[
        str,
        typer.Option(
            "--metrics-host",
            metavar="ADDRESS",
            help="Listen on this address with --metrics-port (default: 127.0.0.1).",
        ),
    ] = "127.0.0.1"
    tenants_file: Annotated[
        Path | None,
        typer.Option(
            "--tenants-file",
            metavar="FILE",
            envvar="HAREBELL_TENANTS_FILE",
            help="Read the quotas from this document of tenant policies (YAML or JSON), "
            "so that runs above the quota runs_per_second are not late.",
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
    from harebell.audit import audit, gauges, store  # noqa: PLC0415  # the reason is above

    url = _database_url(options)
    tenant = session.options.tenant
    scope = audit.Scope(None if options.all_tenants else tenant, options.schedule)
    late_after = duration(options.late_after, field="late_after")
    if options.watch:
        await _watch(session, options, url=url, scope=scope)
    if options.metrics_port is not None:
        reason = "The port of the gauges needs the option --watch."
        raise InvalidInput(reason, field="metrics_port", code="not_watching")
    since = past_time(options.since, now=session.now(), field="since")
    until = optional_past_time(options.until, now=session.now(), field="until")
    read_policies = _policies(options)
    policies = None if read_policies is None else read_policies()
    async with store.connect_read_only(url) as connection:
        report = await audit.run_audit(
            connection,
            since,
            until,
            scope=scope,
            late_after=late_after,
            limit=options.limit,
            policies=policies,
        )
    if options.metrics_file is not None:
        audited = gauges.Audited(report, session.now())
        failure = gauges.write_gauges(options.metrics_file, audited)
        if failure is not None:
            session.output.print_message(failure)
    return _print(session, report)


async def _watch(session: Session, options: AuditOptions, *, url: str, scope: "Scope") -> NoReturn:
    """Repeat the audit until the command is interrupted."""
    from harebell.audit import gauges, watchdog  # noqa: PLC0415  # as above

    shown = gauges.AuditGauges()
    watched = watchdog.Watchdog(
        database_url=url,
        tenant=session.options.tenant,
        period=duration(options.since, field="since"),
        interval=duration(options.every, field="every"),
        ping_url=options.ping_url,
        amqp_url=session.known_amqp_url(),
        scope=scope,
        late_after=duration(options.late_after, field="late_after"),
        policies=_policies(options),
        gauges=shown,
        metrics_file=options.metrics_file,
    )
    with ExitStack() as stack:
        if (port := options.metrics_port) is not None:
            stack.enter_context(gauges.serve_gauges(shown, host=options.metrics_host, port=port))
        async for line in watched.lines(session.now):
            session.output.print_message(line)
    raise AssertionError("The watchdog has no end.")


def _policies(options: AuditOptions) -> "Callable[[], TenantPolicies] | None":
    """Return the reader of the document of tenant policies, which raises `InvalidInput`."""
    from harebell.runtime.policy_file import MAX_FILE_SIZE, parse_policies  # noqa: PLC0415  # slow, and optional

    path = options.tenants_file
    if path is None:
        return None

    def read() -> "TenantPolicies":
        try:
            with path.open("rb") as file:
                return parse_policies(file.read(MAX_FILE_SIZE + 1))
        except OSError as error:
            reason = f"The file {path} must be readable, but reading it failed: {error.strerror}."
            raise InvalidInput(reason, field="tenants_file", code="unreadable_file") from None

    return read


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
