"""Metrics of the dlq_inspector: dead letters, replays and alerts."""

from typing import Final

from prometheus_client import Counter, Gauge

DEAD_LETTERS: Final = Counter(
    "harebell_dead_letters_total",
    "Dead letters, counted when the dlq_inspector stores them.",
    ["kind"],
)
DEAD_LETTERS_DELETED: Final = Counter(
    "harebell_dead_letters_deleted_total",
    "Dead letters that the retention deleted, counted after each batch.",
    ["reason"],
)
DEAD_LETTER_CONFLICTS: Final = Counter(
    "harebell_dead_letter_conflicts_total",
    "Dead letters whose id or run belongs to another tenant, counted when they are stored.",
)
REPLAYED_RUNS: Final = Counter(
    "harebell_replayed_runs_total",
    "Runs that the dlq_inspector replayed, counted after the commit.",
)
ALERTS: Final = Counter(
    "harebell_alerts_total", "Alerts that the dlq_inspector published as events.", ["alert"]
)
ALERTS_POSTED: Final = Counter(
    "harebell_alerts_posted_total",
    "Alerts for the webhook, counted after the delivery or after the alert was given up.",
    ["result"],
)
DEAD_LETTERS_OPEN: Final = Gauge(
    "harebell_dead_letters_open",
    "Dead letters that are open, without those of muted and archived groups.",
)
DEAD_LETTERS_PARKED: Final = Gauge(
    "harebell_dead_letters_parked",
    "Dead letters that cannot be stored, in the queue harebell.parked, at the last look.",
)
REPLAY_JOBS_STALLED: Final = Gauge(
    "harebell_replay_jobs_stalled", "Replay jobs without progress that no person has paused."
)
