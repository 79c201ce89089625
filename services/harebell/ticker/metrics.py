"""Metrics of the ticker: staging, recovery, the backlog and the planned runs."""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

LATENCY_BUCKETS: Final = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2,
    5,
    15,
    60,
    300,
)

RUNS_STAGED: Final = Counter(
    "harebell_runs_staged_total",
    "Runs whose tickets the ticker published, counted after the commit.",
)
STAGING_PASSES: Final = Counter(
    "harebell_staging_passes_total", "Staging passes, counted after the commit.", ["end"]
)
RECOVERED_RUNS: Final = Counter(
    "harebell_recovered_runs_total",
    "Runs that the rescuer recovered, counted after the commit.",
    ["reason"],
)
CHANGE_LATENCY: Final = Histogram(
    "harebell_change_latency_seconds",
    "Time from the acceptance or effective time of a change to its commit [s].",
    ["verb"],
    buckets=LATENCY_BUCKETS,
)
DUE_BACKLOG: Final = Gauge(
    "harebell_due_backlog_runs", "Runs that are due and have not started.", ["pool", "lane"]
)
OLDEST_DUE_AGE: Final = Gauge(
    "harebell_oldest_due_age_seconds",
    "Time since the oldest run of the backlog was due [s].",
    ["pool", "lane"],
)
PLANNED_RUNS: Final = Gauge(
    "harebell_planned_runs",
    "Runs that will be due within 1, 5 and 15 minutes, staged or not.",
    ["pool", "lane", "within"],
)
PLANNED_RUNS_AGE: Final = Gauge(
    "harebell_planned_runs_age_seconds",
    "Time since this ticker read the planned runs [s].",
)
OVERDUE_SCHEDULES: Final = Gauge(
    "harebell_overdue_schedules",
    "Schedules whose next scheduled time has passed and is not staged.",
)
OLDEST_SNAPSHOT_AGE: Final = Gauge(
    "harebell_oldest_snapshot_age_seconds",
    "Age of the oldest snapshot in the database, which prevents the cleanup of dead rows [s].",
)
HELD_SNAPSHOT_AGE: Final = Gauge(
    "harebell_held_snapshot_age_seconds",
    "Age of a snapshot that is held for a minute or longer, with its holder [s].",
    ["kind", "pid", "application_name", "user"],
)
HELD_SNAPSHOT_TRANSACTIONS: Final = Gauge(
    "harebell_held_snapshot_transactions",
    "Transactions since a snapshot that is held for a minute or longer.",
    ["kind", "pid", "application_name", "user"],
)
LAST_STAGING_PASS: Final = Gauge(
    "harebell_last_staging_pass_timestamp_seconds",
    "Unix time of the last successful staging pass of this ticker [s].",
)
REMOVED_ROWS: Final = Counter(
    "harebell_removed_rows_total",
    "Rows that the retention removed, counted after each batch.",
    ["kind"],
)
REMOVED_PARTS: Final = Counter(
    "harebell_removed_parts_total",
    "Days of runs, or parts of days, whose tables the retention dropped.",
)
ARCHIVED_RUNS: Final = Counter(
    "harebell_archived_runs_total", "Runs that the ticker wrote to the archive."
)
ARCHIVED_BYTES: Final = Counter(
    "harebell_archived_bytes_total", "Bytes of the files that the ticker wrote to the archive."
)
ARCHIVED_PARTS: Final = Counter(
    "harebell_archived_parts_total",
    "Days of runs, or parts of days, that the ticker wrote to the archive.",
)
RETENTION_LOCK_RETRIES: Final = Counter(
    "harebell_retention_lock_retries_total",
    "Removals of a partition that the retention repeats, because another transaction used it.",
)
LAST_RETENTION_PASS: Final = Gauge(
    "harebell_last_retention_pass_timestamp_seconds",
    "Unix time of the last complete pass of the retention by any ticker [s].",
)
OLDEST_RUN_DAY: Final = Gauge(
    "harebell_oldest_run_day_timestamp_seconds",
    "Unix time of the first day that has a partition or a run in the ledger [s].",
)


def count_removed(kind: str, count: int) -> None:
    """Count rows that the retention has removed."""
    REMOVED_ROWS.labels(kind).inc(count)
