"""The counters of the servers: messages of the broker and statements of the database."""

import asyncio
import re
import urllib.request
from collections import Counter
from dataclasses import dataclass

from tests.acceptance.stack import Tenant
from tests.rig.polling import until

# Messages that clients published, and messages that the broker moved from a queue to an exchange.
RECEIVED = "rabbitmq_global_messages_received_total"
EXPIRED = "rabbitmq_global_messages_dead_lettered_expired_total"
_SAMPLE = rf"^(?:{RECEIVED}|{EXPIRED})(?:{{[^}}]*}})? (\S+)$"

# Statements of the services. The tests connect as the owner of the database.
_STATEMENTS = """
SELECT coalesce(sum(calls), 0)::int FROM pg_stat_statements
WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND userid <> (SELECT usesysid FROM pg_user WHERE usename = current_user)
"""
_TICKER_STATEMENTS = """
SELECT query, calls FROM pg_stat_statements
WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND userid = 'harebell_ticker'::regrole
"""
_RUN_STATEMENT = """
SELECT sum(calls)::int AS calls, sum(rows)::int AS rows FROM pg_stat_statements
WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND query LIKE $1
"""
# Text that occurs only in the statement that stages, claims or completes runs.
RUN_STATEMENTS = {
    "stage": "%INSERT INTO runs AS r%override, state, staged_at)%",
    "claim": "%make_interval(secs => claimable.lease)%",
    "complete": "%INSERT INTO attempts%",
}
MIN_RECOVERY_QUERIES = 4  # of two tickers, so that both have started the recovery of leases
_RECOVERY_QUERIES = _STATEMENTS + "AND query LIKE $1"


@dataclass(frozen=True)
class ServerCounts:
    """Counts of both servers. `statements` includes each BEGIN and COMMIT."""

    messages: int
    statements: int

    def __sub__(self, before: "ServerCounts") -> "ServerCounts":
        return ServerCounts(self.messages - before.messages, self.statements - before.statements)


async def prepare(tenant: Tenant) -> None:
    """Wait until the services do all periodic work.

    Tickers recover leases only after their clocks have been steady for a while.
    """
    await tenant.ledger.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")

    async def is_recovering() -> bool:
        queries: int = await tenant.ledger.fetchval(_RECOVERY_QUERIES, "%GROUP BY lease_holder%")
        return queries > MIN_RECOVERY_QUERIES

    await until(is_recovering, what="the recovery of leases")


async def ticker_statements(tenant: Tenant) -> Counter[str]:
    """Return the calls of each statement of the tickers, with each BEGIN and COMMIT."""
    counts: Counter[str] = Counter()
    for row in await tenant.ledger.fetch(_TICKER_STATEMENTS):
        counts[row["query"]] += row["calls"]
    return counts


async def run_statements(tenant: Tenant) -> dict[str, tuple[int, int]]:
    """Return the written rows and the calls of each statement."""
    rows = {
        name: await tenant.ledger.fetchrow(_RUN_STATEMENT, like)
        for name, like in RUN_STATEMENTS.items()
    }
    return {name: (row["rows"] or 0, row["calls"] or 0) for name, row in rows.items()}


async def read(tenant: Tenant) -> ServerCounts:
    private = tenant.stack.servers.private
    assert private is not None, (
        "Other programs use the given servers, so their counters are useless."
    )
    url = private.broker.prometheus_url
    with await asyncio.to_thread(urllib.request.urlopen, url, timeout=10) as response:
        samples = re.findall(_SAMPLE, response.read().decode(), re.MULTILINE)
    statements = await tenant.ledger.fetchval(_STATEMENTS)
    return ServerCounts(int(sum(map(float, samples))), statements)
