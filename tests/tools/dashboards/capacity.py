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
            description="Rate limits, labels, blackouts, shares, and missing pools.",
            unit=Unit.PER_SECOND,
            queries=(
                rate("harebell_rate_limited_runs_total"),
                rate("harebell_label_waits_total"),
                rate("harebell_held_runs_total"),
                rate("harebell_target_saturated_tickets_total"),
                rate("harebell_tenant_saturated_tickets_total"),
                rate("harebell_no_such_pool_tickets_total"),
            ),
        ),
    ),
)

_PLANNED: Final = Row(
    title="Planned runs",
    panels=(
        Panel(
            title="Planned runs",
            description="Runs that will be due within 1, 5 and 15 minutes.",
            unit=Unit.NUMBER,
            queries=(shared("harebell_planned_runs", "pool", "lane", "within"),),
        ),
        Panel(
            title="Planned and done",
            description=(
                "The planned runs of the next 5 minutes as a rate, and the ended attempts."
                " More planned than done means that executors are missing soon."
            ),
            unit=Unit.PER_SECOND,
            queries=(
                Query(
                    'max by (pool, lane) (harebell_planned_runs{within="5m"}) / 300',
                    "planned {{pool}}, {{lane}}",
                ),
                Query(f"sum(rate(harebell_attempts_total[{RATE_INTERVAL}]))", "done"),
            ),
        ),
        Panel(
            title="Age of the planned runs",
            description="A ticker that shows an old count cannot read the database in time.",
            unit=Unit.SECONDS,
            queries=(shared("harebell_planned_runs_age_seconds"),),
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

_HELD: Final = "max by (kind, pid, application_name, user) ({metric}) or on () vector(0)"
_HOLDER: Final = "{{kind}} {{application_name}} {{pid}} {{user}}"
_RETENTION: Final = Row(
    title="Retention",
    panels=(
        Panel(
            title="Age of held snapshots",
            description="PostgreSQL keeps dead rows that are newer than the oldest snapshot.",
            unit=Unit.SECONDS,
            queries=(
                Query("max(harebell_oldest_snapshot_age_seconds)", "oldest snapshot"),
                Query(_HELD.format(metric="harebell_held_snapshot_age_seconds"), _HOLDER),
            ),
        ),
        Panel(
            title="Transactions since held snapshots",
            description="The number of transactions whose dead rows a snapshot keeps.",
            unit=Unit.NUMBER,
            queries=(Query(_HELD.format(metric="harebell_held_snapshot_transactions"), _HOLDER),),
        ),
        Panel(
            title="Removed rows",
            description="Rows that the retention removed, and repeated removals of partitions.",
            unit=Unit.PER_SECOND,
            queries=(
                rate("harebell_removed_rows_total", "kind"),
                rate("harebell_removed_parts_total"),
                rate("harebell_retention_lock_retries_total"),
            ),
        ),
        Panel(
            title="Archive",
            description="Runs and bytes that the ticker wrote to the archive.",
            unit=Unit.PER_SECOND,
            queries=(
                rate("harebell_archived_runs_total"),
                rate("harebell_archived_bytes_total"),
                rate("harebell_archived_parts_total"),
            ),
        ),
        Panel(
            title="Age of the history",
            description="The age of the first day of runs, and the time since the last pass.",
            unit=Unit.SECONDS,
            queries=(
                Query(
                    "time() - max(harebell_oldest_run_day_timestamp_seconds)", "first day of runs"
                ),
                Query("time() - max(harebell_last_retention_pass_timestamp_seconds)", "last pass"),
            ),
        ),
    ),
)

CAPACITY: Final = Dashboard(
    name="capacity",
    title="Harebell / Capacity",
    rows=(_SLOTS, _BACKLOG, _PLANNED, _THROUGHPUT, _RETENTION),
)
