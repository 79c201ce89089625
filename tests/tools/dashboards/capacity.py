"""The dashboard for the question whether there are enough executors and slots."""

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
    total,
)

_SLOTS: Final = Row(
    title="Slots",
    panels=(
        Panel(
            title="Utilisation of the slots",
            description="A lane that stays near 100 % needs more executors or more slots.",
            unit=Unit.RATIO,
            queries=(
                Query(
                    "sum by (lane) (harebell_attempts_in_flight) / sum by (lane) (harebell_slots)",
                    "{{lane}}",
                ),
            ),
        ),
        Panel(
            title="Slots and running attempts",
            description="The slots of all executors, and the attempts that use them.",
            unit=Unit.NUMBER,
            queries=(
                Query("sum by (lane) (harebell_slots)", "slots {{lane}}"),
                Query("sum by (lane) (harebell_attempts_in_flight)", "running {{lane}}"),
            ),
        ),
        Panel(
            title="Executors",
            description="The number of executors with slots in the lane normal.",
            unit=Unit.NUMBER,
            queries=(Query('count(harebell_slots{lane="normal"} > 0)', "executors"),),
        ),
    ),
)

_BACKLOG: Final = Row(
    title="Backlog",
    panels=(
        Panel(
            title="Due backlog",
            description="Runs that are due and have not started. An autoscaler reads this value.",
            unit=Unit.NUMBER,
            queries=(shared("harebell_due_backlog_runs", "pool", "lane"),),
        ),
        Panel(
            title="Claimed runs and queued tickets",
            description="Work in the memory of executors and dispatchers.",
            unit=Unit.NUMBER,
            queries=(total("harebell_claimed_runs"), total("harebell_queued_tickets")),
        ),
        Panel(
            title="Runs that a limit delays",
            description="Rate limits, shares of targets and tenants, and missing pools.",
            unit=Unit.PER_SECOND,
            queries=(
                rate("harebell_rate_limited_runs_total"),
                rate("harebell_target_saturated_tickets_total"),
                rate("harebell_tenant_saturated_tickets_total"),
                rate("harebell_no_such_pool_tickets_total"),
            ),
        ),
    ),
)

_THROUGHPUT: Final = Row(
    title="Throughput",
    panels=(
        Panel(
            title="Attempts",
            description="Attempts that ended, by their outcome.",
            unit=Unit.PER_SECOND,
            queries=(rate("harebell_attempts_total", "outcome"),),
            is_stacked=True,
        ),
        Panel(
            title="Duration of attempts",
            description="Longer attempts need more slots for the same rate.",
            unit=Unit.SECONDS,
            queries=quantiles("harebell_attempt_duration_seconds"),
        ),
        Panel(
            title="Rows of a statement",
            description="The mean number of runs that one statement claims, completes or renews.",
            unit=Unit.NUMBER,
            queries=(
                Query(
                    f"sum by (statement) (rate(harebell_sql_rows_sum[{RATE_INTERVAL}]))"
                    f" / sum by (statement) (rate(harebell_sql_rows_count[{RATE_INTERVAL}]))",
                    "{{statement}}",
                ),
            ),
        ),
    ),
)

CAPACITY: Final = Dashboard(
    name="capacity", title="Harebell / Capacity", rows=(_SLOTS, _BACKLOG, _THROUGHPUT)
)
