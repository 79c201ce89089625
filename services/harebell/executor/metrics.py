"""Metrics of the executor: tickets, claims, starts and attempts in flight."""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

from harebell.contract.amqp_names import Lane

LATENESS_BUCKETS: Final = (
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
ROW_BUCKETS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)

ORPHAN_TICKETS: Final = Counter(
    "harebell_orphan_tickets_total",
    "Tickets without a visible row after two seconds, counted when the executor drops them.",
)
STALE_TICKETS: Final = Counter(
    "harebell_stale_tickets_total",
    "Tickets that the row of their run rejected, counted at the claim.",
)
FENCED_COMPLETIONS: Final = Counter(
    "harebell_fenced_completions_total",
    "Completions that the fencing token rejected, counted at the write.",
)
LABEL_WAITS: Final = Counter(
    "harebell_label_waits_total",
    "Runs that began to wait for a slot of their concurrency label, counted at each claim.",
)
RATE_LIMITED_RUNS: Final = Counter(
    "harebell_rate_limited_runs_total", "Runs that a rate limit delayed, counted at each delay."
)
HELD_RUNS: Final = Counter(
    "harebell_held_runs_total", "Runs that a blackout held back, counted at each delay of a start."
)
TARGET_SATURATED_TICKETS: Final = Counter(
    "harebell_target_saturated_tickets_total",
    "Tickets requeued because their target used its maximum share of the slots.",
)
TENANT_SATURATED_TICKETS: Final = Counter(
    "harebell_tenant_saturated_tickets_total",
    "Tickets requeued because their tenant used its maximum share of the slots.",
)
START_LATENESS: Final = Histogram(
    "harebell_start_lateness_seconds",
    "Delay of each start after its due time [s], observed when an attempt starts.",
    ["lane"],
    buckets=LATENESS_BUCKETS,
)
SQL_ROWS: Final = Histogram(
    "harebell_sql_rows",
    "Rows of one SQL statement, observed after each statement.",
    ["statement"],
    buckets=ROW_BUCKETS,
)
SLOTS: Final = Gauge("harebell_slots", "Slots of this executor for concurrent attempts.", ["lane"])
ATTEMPTS_IN_FLIGHT: Final = Gauge(
    "harebell_attempts_in_flight", "Attempts that run in this executor.", ["lane"]
)
CLAIMED_RUNS: Final = Gauge(
    "harebell_claimed_runs", "Runs that this executor has claimed and not completed."
)

# Prometheus cannot compute the rate of a series from its first sample. Each series exists at start.
for _lane in Lane:
    START_LATENESS.labels(_lane)
