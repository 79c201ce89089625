"""The dashboard for the question whether runs start on time, and which step delays them."""

from typing import Final

from tests.tools.dashboards.panel import (
    RATE_INTERVAL,
    Dashboard,
    Panel,
    Query,
    Row,
    Unit,
    quantiles,
    rate,
    shared,
)


def _started_within(seconds: str) -> Query:
    started = f'harebell_start_lateness_seconds_bucket{{le="{seconds}"}}[{RATE_INTERVAL}]'
    all_starts = f"harebell_start_lateness_seconds_count[{RATE_INTERVAL}]"
    share = f"sum by (lane) (rate({started})) / sum by (lane) (rate({all_starts}))"
    return Query(share, f"{{{{lane}}}} within {seconds} s")


_STARTS: Final = Row(
    title="Starts",
    panels=(
        Panel(
            title="Start lateness by lane",
            description="The delay between the due time of a run and its start.",
            unit=Unit.SECONDS,
            queries=quantiles("harebell_start_lateness_seconds", "lane"),
        ),
        Panel(
            title="Starts within one second",
            description="The objective is 99.9 % of the starts.",
            unit=Unit.RATIO,
            queries=(_started_within("1.0"),),
        ),
        Panel(
            title="Age of the oldest due run",
            description="The longest time that a due run has waited for a slot.",
            unit=Unit.SECONDS,
            queries=(shared("harebell_oldest_due_age_seconds", "pool", "lane"),),
        ),
    ),
)

_STEPS: Final = Row(
    title="Steps before a start",
    panels=(
        Panel(
            title="Overdue schedules",
            description="Schedules that no ticker has staged in time. Zero is normal.",
            unit=Unit.NUMBER,
            queries=(shared("harebell_overdue_schedules"),),
        ),
        Panel(
            title="Staging passes",
            description="Passes by their end. Many full passes show a ticker at its limit.",
            unit=Unit.PER_SECOND,
            queries=(rate("harebell_staging_passes_total", "end"),),
        ),
        Panel(
            title="Late tickets",
            description="Tickets that left the delay queues after their release time.",
            unit=Unit.PER_SECOND,
            queries=(rate("harebell_late_tickets_total"),),
        ),
    ),
)

_CHANGES: Final = Row(
    title="Changes and statements",
    panels=(
        Panel(
            title="Latency of changes",
            description="The objective is that 99 % of the changes take effect within 2 s.",
            unit=Unit.SECONDS,
            queries=quantiles("harebell_change_latency_seconds"),
        ),
        Panel(
            title="Duration of SQL statements",
            description="A statement with its round trip. A slow database delays every step.",
            unit=Unit.SECONDS,
            queries=quantiles("harebell_database_statement_seconds"),
        ),
        Panel(
            title="Recovered and republished runs",
            description="Work that the rescuer had to repeat after a lost ticket or executor.",
            unit=Unit.PER_SECOND,
            queries=(
                rate("harebell_recovered_runs_total", "reason"),
                rate("harebell_republished_tickets_total", "reason"),
            ),
        ),
    ),
)

LATENESS: Final = Dashboard(
    name="lateness", title="Harebell / Lateness", rows=(_STARTS, _STEPS, _CHANGES)
)
