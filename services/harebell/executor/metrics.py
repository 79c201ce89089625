"""Metrics of the executor: tickets, claims, starts and attempts in flight."""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

from harebell.contract.amqp_names import Lane

LATENESS_BUCKETS: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1, 2, 5, 15, 60, 300),
)
ROW_BUCKETS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)

ORPHAN_TICKETS: Final = Counter(
    "harebell_orphan_tickets_total", "Tickets, counted when no row of the run becomes visible."
)
STALE_TICKETS: Final = Counter(
    "harebell_stale_tickets_total", "Tickets, counted when the row of the run rejects the claim."
)
FENCED_COMPLETIONS: Final = Counter(
    "harebell_fenced_completions_total",
    "Completions, counted when the fencing token of one is older than the row.",
)
RATE_LIMITED_RUNS: Final = Counter(
    "harebell_rate_limited_runs_total", "Runs, counted when a rate limit delays a start."
)
TARGET_SATURATED_TICKETS: Final = Counter(
    "harebell_target_saturated_tickets_total",
    "Tickets, counted when one is requeued because its target uses its share of the slots.",
)
START_LATENESS: Final = Histogram(
    "harebell_start_lateness_seconds",
    "Delay of each start after its due time [s], observed when an attempt starts.",
    ["lane"],
    buckets=LATENESS_BUCKETS,
)
SQL_ROWS: Final = Histogram(
    "harebell_sql_rows",
    "Rows of each SQL statement, observed when the statement is sent.",
    ["statement"],
    buckets=ROW_BUCKETS,
)
SLOTS: Final = Gauge("harebell_slots", "Attempts that may run at the same time.", ["lane"])
ATTEMPTS_IN_FLIGHT: Final = Gauge("harebell_attempts_in_flight", "Attempts that run now.", ["lane"])
CLAIMED_RUNS: Final = Gauge(
    "harebell_claimed_runs", "Runs that this executor has claimed and not completed."
)

# Prometheus cannot compute the rate of a series from its first sample. Each series exists at start.
for _lane in Lane:
    START_LATENESS.labels(_lane)
