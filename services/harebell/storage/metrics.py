"""Metrics of the database: statements and republished tickets."""

from typing import Final

from prometheus_client import Counter, Histogram

SLOW: Final = "slow"  # the commit took more than one second after the publish
UNKNOWN: Final = "unknown"  # the result of the commit is unknown
STATEMENT_BUCKETS: Final = (0.001, 0.005, 0.025, 0.1, 0.5, 1, 5, 10)

REPUBLISHED_TICKETS: Final = Counter(
    "harebell_republished_tickets_total",
    "Tickets published again because their commit was slow or in doubt.",
    ["reason"],
)
DATABASE_STATEMENT: Final = Histogram(
    "harebell_database_statement_seconds",
    "Duration of each SQL statement with its round trip [s], observed when the result arrives.",
    buckets=STATEMENT_BUCKETS,
)

# Prometheus cannot compute the rate of a series from its first sample. Each series exists at start.
for _reason in (SLOW, UNKNOWN):
    REPUBLISHED_TICKETS.labels(_reason)
