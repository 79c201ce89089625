"""Metrics of ended runs, of attempts and of refused messages."""

from typing import Final

from prometheus_client import Counter, Histogram

from harebell.domain.reply_queue import INVALID_REPLY_TO
from harebell.domain.retry import LEASE_EXPIRED
from harebell.domain.run_states import FAILED, SUCCEEDED, Reason, RunState
from harebell.domain.sender import FOREIGN_ROUTE, FOREIGN_SENDER, NOT_YOUR_TENANT

DURATION_BUCKETS: Final = (
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    5,
    10,
    30,
    60,
    300,
    3600,
)

RUNS: Final = Counter(
    "harebell_runs_total", "Runs that ended, counted after the commit.", ["state", "reason"]
)
ATTEMPTS: Final = Counter(
    "harebell_attempts_total", "Attempts that ended, counted after the commit.", ["outcome"]
)
ATTEMPT_DURATION: Final = Histogram(
    "harebell_attempt_duration_seconds",
    "Duration of each attempt [s], observed after the commit of its end.",
    ["outcome"],
    buckets=DURATION_BUCKETS,
)

REFUSED_MESSAGES: Final = Counter(
    "harebell_refused_messages_total",
    "Messages that a service refused for their sender, their route or their reply queue.",
    ["code"],
)
OMITTED_EVENTS: Final = Counter(
    "harebell_omitted_events_total",
    "Events of rejections that exceeded the budget of their tenant and were not published.",
)
DROPPED_REPLIES: Final = Counter(
    "harebell_dropped_replies_total",
    "Replies that a service did not send, because too many waited or the broker was unavailable.",
    ["reason"],
)

# Prometheus cannot compute the rate of a series from its first sample. Each series exists at start.
for _outcome in (SUCCEEDED, FAILED, LEASE_EXPIRED):
    ATTEMPTS.labels(_outcome)
for _code in (FOREIGN_ROUTE, FOREIGN_SENDER, NOT_YOUR_TENANT, INVALID_REPLY_TO):
    REFUSED_MESSAGES.labels(_code)
for _reason_of_drop in ("failed", "full", "late", "receivers"):
    DROPPED_REPLIES.labels(_reason_of_drop)
for _state in (RunState.SKIPPED, RunState.CANCELLED, RunState.EXPIRED, RunState.UNRESOLVED):
    for _reason in Reason:
        RUNS.labels(_state, _reason)
