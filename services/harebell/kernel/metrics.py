"""Every metric, by name. Base units; never an id as a label.

The same names stand in docs/operations/metrics.md.
"""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram, Info

from harebell.contract import __version__
from harebell.contract.names import Lane
from harebell.kernel.ledger import FAILED, SUCCEEDED, Reason, RunState

_LATENESS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 15, 60, 300)
_DURATION: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600)
_STATEMENT: Final = (0.001, 0.005, 0.025, 0.1, 0.5, 1, 5, 10)
_BATCH: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)

BUILD: Final = Info("harebell_build", "The version that runs.")
BUILD.info({"version": __version__})
READY: Final = Gauge("harebell_ready", "What a service needs to work: 1 there, 0 not.", ["check"])

COMMANDS: Final = Counter("harebell_commands_total", "Commands.", ["verb", "result"])
STAGED: Final = Counter("harebell_runs_staged_total", "Runs handed to the broker.")
PASSES: Final = Counter("harebell_staging_passes_total", "Passes of a ticker.", ["end"])
RUNS: Final = Counter("harebell_runs_total", "Runs that ended.", ["outcome", "reason"])
ATTEMPTS: Final = Counter("harebell_attempts_total", "Attempts that ended.", ["outcome"])
PHANTOMS: Final = Counter("harebell_phantom_tickets_total", "Tickets without a row.")
STALE: Final = Counter("harebell_stale_tickets_total", "Tickets that the row refused.")
LATE_SETTLES: Final = Counter("harebell_late_settles_total", "Settles refused by fencing.")
PUBLISHED_AGAIN: Final = Counter(
    "harebell_tickets_published_again_total", "Tickets whose commit may have come late.", ["commit"]
)
SWEPT: Final = Counter("harebell_swept_runs_total", "Runs that a sweep put right.", ["why"])
PUT_OFF: Final = Counter("harebell_put_off_runs_total", "Runs told to come later, by their limits.")
CROWDED: Final = Counter(
    "harebell_crowded_tickets_total",
    "Tickets sent round because their target had its share of the slots.",
)
LATE_BUNDLES: Final = Counter(
    "harebell_late_bundles_total", "Tickets that came later than their release instant."
)
NO_SUCH_POOL: Final = Counter(
    "harebell_no_such_pool_tickets_total", "Tickets sent round because nobody declared their pool."
)
DEAD_LETTERS: Final = Counter("harebell_dead_letters_total", "Dead letters kept.", ["kind"])
LETTERS_DELETED: Final = Counter(
    "harebell_dead_letters_deleted_total", "Dead letters that were too old, or too many.", ["why"]
)
REPLAYS: Final = Counter("harebell_replays_total", "Runs replayed.")
ALERTS_TOLD: Final = Counter("harebell_alerts_total", "Alerts told on the bus.", ["alert"])
ALERTS_POSTED: Final = Counter(
    "harebell_alerts_posted_total", "Alerts posted to the webhook, or given up.", ["result"]
)

LATENESS: Final = Histogram(
    "harebell_start_lateness_seconds", "Due instant to start.", ["lane"], buckets=_LATENESS
)
CHANGE_LATENCY: Final = Histogram(
    "harebell_change_latency_seconds",
    "Acceptance of a change, or the time that it was put off to, to its effect.",
    ["verb"],
    buckets=_LATENESS,
)
DURATION: Final = Histogram(
    "harebell_attempt_duration_seconds", "Of an attempt.", ["outcome"], buckets=_DURATION
)
BATCH: Final = Histogram(
    "harebell_statement_rows", "Rows of one statement.", ["statement"], buckets=_BATCH
)
STATEMENT: Final = Histogram(
    "harebell_database_statement_seconds", "Of a statement, with its way.", buckets=_STATEMENT
)
BACKLOG: Final = Gauge(
    "harebell_due_backlog_runs", "Runs that are due and have not begun.", ["pool", "lane"]
)
OLDEST_DUE: Final = Gauge(
    "harebell_oldest_due_age_seconds", "How long the oldest of them is due.", ["pool", "lane"]
)
OVERDUE: Final = Gauge(
    "harebell_overdue_schedules", "Schedules whose next instant has passed and was not handed over."
)
LETTERS_OPEN: Final = Gauge("harebell_dead_letters_open", "Dead letters that wait for a person.")
REPLAYS_STALLED: Final = Gauge(
    "harebell_replays_stalled", "Replays of many that do not move, though nobody paused them."
)
SLOTS: Final = Gauge("harebell_slots", "Attempts that may run at once.", ["lane"])
HELD: Final = Gauge("harebell_held_tickets", "Tickets held for their moment.")
CIRCLING: Final = Gauge(
    "harebell_circling_tickets", "Tickets that a gate of the dispatcher holds back.", ["gate"]
)
BREAKERS: Final = Gauge("harebell_breakers", "Downstreams that are not closed.", ["state"])
BREAKER_OPEN: Final = Gauge(
    "harebell_breaker_open", "1 for each of them; no more are shown than a few.", ["downstream"]
)
IN_FLIGHT: Final = Gauge("harebell_attempts_in_flight", "Attempts running.", ["lane"])
CLAIMED: Final = Gauge("harebell_claimed_runs", "Runs claimed and not settled.")
LAST_TICK: Final = Gauge("harebell_last_tick_timestamp_seconds", "The last pass of a ticker.")

# A rate is blind to the first of a series that was not there before it, and of these one counts.
for _outcome in (SUCCEEDED, FAILED, LEASE_EXPIRED):
    ATTEMPTS.labels(_outcome)
for _lane in Lane:
    LATENESS.labels(_lane)
for _state in (RunState.SKIPPED, RunState.CANCELLED, RunState.EXPIRED, RunState.UNRESOLVED):
    for _reason in Reason:
        RUNS.labels(_state, _reason)
