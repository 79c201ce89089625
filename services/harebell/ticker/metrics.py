"""Metrics of the ticker: staging, recovery and the backlog."""

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
OVERDUE_SCHEDULES: Final = Gauge(
    "harebell_overdue_schedules",
    "Schedules whose next scheduled time has passed and is not staged.",
)
LAST_STAGING_PASS: Final = Gauge(
    "harebell_last_staging_pass_timestamp_seconds",
    "Unix time of the last successful staging pass of this ticker [s].",
)
