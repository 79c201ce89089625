"""Metrics of the dispatcher: queued and deferred tickets, breakers."""

from typing import Final

from prometheus_client import Counter, Gauge

LATE_TICKETS: Final = Counter(
    "harebell_late_tickets_total",
    "Tickets that arrived after their release time, counted when the dispatcher releases them.",
)
NO_SUCH_POOL_TICKETS: Final = Counter(
    "harebell_no_such_pool_tickets_total",
    "Tickets returned by the broker because no executor has declared their pool.",
)
QUEUED_TICKETS: Final = Gauge(
    "harebell_queued_tickets", "Tickets that this dispatcher has received and not yet published."
)
DEFERRED_TICKETS: Final = Gauge(
    "harebell_deferred_tickets", "Tickets that a gate of this dispatcher has deferred.", ["gate"]
)
BREAKERS: Final = Gauge("harebell_breakers", "Breakers that are not closed.", ["state"])
BREAKER_OPEN: Final = Gauge(
    "harebell_breaker_open",
    "Downstream with a breaker that is not closed, shown as 1 for at most 100 downstreams.",
    ["downstream"],
)
