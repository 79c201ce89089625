"""Metrics of the dlq_inspector: dead letters, replays and alerts."""

from typing import Final

from prometheus_client import Counter, Gauge

DEAD_LETTERS: Final = Counter(
    "harebell_dead_letters_total", "Dead letters, counted when one is stored.", ["kind"]
)
DEAD_LETTERS_DELETED: Final = Counter(
    "harebell_dead_letters_deleted_total",
    "Dead letters, counted when maintenance deletes one because of its age or the maximum count.",
    ["reason"],
)
REPLAYED_RUNS: Final = Counter(
    "harebell_replayed_runs_total", "Runs, counted when a replay stages one."
)
ALERTS: Final = Counter(
    "harebell_alerts_total", "Alert events, counted when one is published.", ["alert"]
)
ALERTS_POSTED: Final = Counter(
    "harebell_alerts_posted_total",
    "Alerts, counted when the webhook accepts one or the last try fails.",
    ["result"],
)
DEAD_LETTERS_OPEN: Final = Gauge(
    "harebell_dead_letters_open", "Dead letters in the state open, of all tenants."
)
REPLAY_JOBS_STALLED: Final = Gauge(
    "harebell_replay_jobs_stalled", "Replay jobs that make no progress and that no user paused."
)
