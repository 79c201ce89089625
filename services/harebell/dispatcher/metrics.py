"""Metrics of the dispatcher: queued and deferred tickets, breakers."""

from typing import Final

from prometheus_client import Counter, Gauge

LATE_TICKETS: Final = Counter(
    "harebell_late_tickets_total", "Tickets, counted when one arrives after its release time."
)
NO_SUCH_POOL_TICKETS: Final = Counter(
    "harebell_no_such_pool_tickets_total",
    "Tickets, counted when one is deferred because no work queue of its pool exists.",
)
QUEUED_TICKETS: Final = Gauge(
    "harebell_queued_tickets", "Tickets that the dispatcher keeps until their lead."
)
DEFERRED_TICKETS: Final = Gauge(
    "harebell_deferred_tickets", "Tickets that a gate of the dispatcher defers.", ["gate"]
)
BREAKERS: Final = Gauge(
    "harebell_breakers", "Breakers that are not closed, by their state.", ["state"]
)
BREAKER_OPEN: Final = Gauge(
    "harebell_breaker_open",
    "Value 1 for each open breaker, for a limited number of downstreams.",
    ["downstream"],
)
