"""Every metric, by name. Base units; never an id as a label."""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram, Info

from harebell.contract import __version__

_LATENESS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 15, 60, 300)
_DURATION: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600)
_BATCH: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)

BUILD: Final = Info("harebell_build", "The version that runs.")
BUILD.info({"version": __version__})

COMMANDS: Final = Counter("harebell_commands_total", "Commands.", ["verb", "result"])
STAGED: Final = Counter("harebell_runs_staged_total", "Runs handed to the broker.")
RUNS: Final = Counter("harebell_runs_total", "Runs that ended.", ["outcome", "reason"])
ATTEMPTS: Final = Counter("harebell_attempts_total", "Attempts that ended.", ["outcome"])
PHANTOMS: Final = Counter("harebell_phantom_tickets_total", "Tickets without a row.")
STALE: Final = Counter("harebell_stale_tickets_total", "Tickets that the row refused.")
LATE_SETTLES: Final = Counter("harebell_late_settles_total", "Settles refused by fencing.")
SWEPT: Final = Counter("harebell_swept_runs_total", "Runs that a sweep put right.", ["why"])
LATE_BUNDLES: Final = Counter(
    "harebell_late_bundles_total", "Tickets that came later than their release instant."
)
NO_SUCH_POOL: Final = Counter(
    "harebell_no_such_pool_tickets_total", "Tickets sent round because nobody declared their pool."
)
DEAD_LETTERS: Final = Counter("harebell_dead_letters_total", "Dead letters kept.", ["kind"])
REPLAYS: Final = Counter("harebell_replays_total", "Runs replayed.")

LATENESS: Final = Histogram(
    "harebell_start_lateness_seconds", "Due instant to start.", ["lane"], buckets=_LATENESS
)
CHANGE_LATENCY: Final = Histogram(
    "harebell_change_latency_seconds",
    "Acceptance of a command to its effect.",
    buckets=_LATENESS,
)
DURATION: Final = Histogram(
    "harebell_attempt_duration_seconds", "Of an attempt.", ["outcome"], buckets=_DURATION
)
BATCH: Final = Histogram(
    "harebell_statement_rows", "Rows of one statement.", ["statement"], buckets=_BATCH
)
HELD: Final = Gauge("harebell_held_tickets", "Tickets held for their moment.")
IN_FLIGHT: Final = Gauge("harebell_attempts_in_flight", "Attempts running.", ["lane"])
CLAIMED: Final = Gauge("harebell_claimed_runs", "Runs claimed and not settled.")
LAST_TICK: Final = Gauge("harebell_last_tick_timestamp_seconds", "The last pass of a ticker.")
