"""The dashboard for the question whether Harebell works now."""

from typing import Final

from tests.tools.dashboards.panel import (
    Dashboard,
    Panel,
    Query,
    Row,
    Unit,
    quantiles,
    rate,
    shared,
    total,
)

_SERVICES: Final = Row(
    title="Services",
    panels=(
        Panel(
            title="Readiness",
            description="A check at 0 names the connection or the consumer that is not ready.",
            unit=Unit.NUMBER,
            queries=(Query("min by (job, check) (harebell_ready)", "{{job}} {{check}}"),),
        ),
        Panel(
            title="Instances by version",
            description="Two versions are normal only during an upgrade.",
            unit=Unit.NUMBER,
            queries=(
                Query("count by (job, version) (harebell_build_info)", "{{job}} {{version}}"),
            ),
        ),
        Panel(
            title="Time since the last staging pass",
            description="At least one ticker stages runs every few seconds, even without changes.",
            unit=Unit.SECONDS,
            queries=(
                Query("time() - max(harebell_last_staging_pass_timestamp_seconds)", "staging pass"),
            ),
        ),
    ),
)

_WORK: Final = Row(
    title="Commands and runs",
    panels=(
        Panel(
            title="Commands",
            description="Intake counts accepted and rejected commands, and tickers count the rest.",
            unit=Unit.PER_SECOND,
            queries=(rate("harebell_commands_total", "verb", "result"),),
        ),
        Panel(
            title="Runs staged",
            description="Runs enter the delay queues up to 126 s before they are due.",
            unit=Unit.PER_SECOND,
            queries=(rate("harebell_runs_staged_total"),),
        ),
        Panel(
            title="Runs that ended",
            description="Each end by its state. The dashboard of failures shows the reasons.",
            unit=Unit.PER_SECOND,
            queries=(rate("harebell_runs_total", "state"),),
            is_stacked=True,
        ),
    ),
)

_HEALTH: Final = Row(
    title="Health",
    panels=(
        Panel(
            title="Start lateness",
            description="The delay between the due time of a run and its start.",
            unit=Unit.SECONDS,
            queries=quantiles("harebell_start_lateness_seconds"),
        ),
        Panel(
            title="Due backlog",
            description="Runs that are due and have not started, as every ticker counts them.",
            unit=Unit.NUMBER,
            queries=(shared("harebell_due_backlog_runs", "pool", "lane"),),
        ),
        Panel(
            title="Open dead letters and breakers",
            description="Work for a person, and the downstreams whose runs are deferred.",
            unit=Unit.NUMBER,
            queries=(shared("harebell_dead_letters_open"), total("harebell_breakers", "state")),
        ),
    ),
)

_AUDIT: Final = Row(
    title="Audit from outside",
    panels=(
        Panel(
            title="Findings of the audit",
            description="The objective is 0: the ledger records what the schedules required.",
            unit=Unit.NUMBER,
            queries=(shared("harebell_audit_findings", "kind"),),
        ),
        Panel(
            title="Missed heartbeats and failed audits",
            description="Components that do no due work, and 1 if no audit reads the database.",
            unit=Unit.NUMBER,
            queries=(
                shared("harebell_audit_missed_heartbeats"),
                Query("1 - max(harebell_audit_success)", "audit failed"),
            ),
        ),
        Panel(
            title="Time since the last audit",
            description="An audit runs every minute. Without it, both panels show old values.",
            unit=Unit.SECONDS,
            queries=(Query("time() - max(harebell_audit_timestamp_seconds)", "audit"),),
        ),
    ),
)

OVERVIEW: Final = Dashboard(
    name="overview", title="Harebell / Overview", rows=(_SERVICES, _WORK, _HEALTH, _AUDIT)
)
