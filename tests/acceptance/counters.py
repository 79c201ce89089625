"""What the servers themselves have counted: messages of the broker, statements of the database."""

import asyncio
import re
import urllib.request
from collections import Counter
from dataclasses import dataclass

from tests.acceptance.stack import Tenant, until

# Published by clients, and moved from queue to exchange by the broker itself.
RECEIVED = "rabbitmq_global_messages_received_total"
EXPIRED = "rabbitmq_global_messages_dead_lettered_expired_total"
_SAMPLE = rf"^(?:{RECEIVED}|{EXPIRED})(?:{{[^}}]*}})? (\S+)$"

# The services' own; the tests ask as the database's owner.
_STATEMENTS = """
SELECT coalesce(sum(calls), 0)::int FROM pg_stat_statements
WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND userid <> (SELECT usesysid FROM pg_user WHERE usename = current_user)
"""
_OF_TICKERS = """
SELECT query, calls FROM pg_stat_statements
WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND userid = 'harebell_ticker'::regrole
"""
_OF_RUNS = """
SELECT sum(calls)::int AS calls, sum(rows)::int AS rows FROM pg_stat_statements
WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND query LIKE $1
"""
# By what only they say: what inserts runs, what claims them, what records how they ended.
OF_RUNS = {
    "stage": "%INSERT INTO runs AS r%override, state, staged_at)%",
    "claim": "%make_interval(secs => t.lease)%",
    "settle": "%INSERT INTO attempts%",
}
SETTLED = 4  # sweeps: of each ticker some
_SWEEPS = _STATEMENTS + "AND query LIKE $1"


@dataclass(frozen=True)
class Counted:
    """`statements` counts every BEGIN and COMMIT too."""

    messages: int
    statements: int

    def __sub__(self, before: "Counted") -> "Counted":
        return Counted(self.messages - before.messages, self.statements - before.statements)


async def prepare(tenant: Tenant) -> None:
    """Returns when the services do all that they do by themselves.

    Tickers sweep leases only when their clocks have been steady for a while.
    """
    await tenant.ledger.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")

    async def is_sweeping() -> bool:
        sweeps: int = await tenant.ledger.fetchval(_SWEEPS, "%GROUP BY lease_holder%")
        return sweeps > SETTLED

    await until(is_sweeping, what="the sweep of leases")


async def of_tickers(tenant: Tenant) -> Counter[str]:
    """How often they have asked what, every BEGIN and COMMIT too."""
    counts: Counter[str] = Counter()
    for row in await tenant.ledger.fetch(_OF_TICKERS):
        counts[row["query"]] += row["calls"]
    return counts


async def of_runs(tenant: Tenant) -> dict[str, tuple[int, int]]:
    """Rows that were written, and statements that wrote them."""
    rows = {name: await tenant.ledger.fetchrow(_OF_RUNS, like) for name, like in OF_RUNS.items()}
    return {name: (row["rows"] or 0, row["calls"] or 0) for name, row in rows.items()}


async def read(tenant: Tenant) -> Counted:
    private = tenant.stack.servers.private
    assert private is not None, "the counters of servers that others use tell nothing"
    url = private.broker.prometheus_url
    with await asyncio.to_thread(urllib.request.urlopen, url, timeout=10) as answer:
        samples = re.findall(_SAMPLE, answer.read().decode(), re.MULTILINE)
    statements = await tenant.ledger.fetchval(_STATEMENTS)
    return Counted(int(sum(map(float, samples))), statements)
