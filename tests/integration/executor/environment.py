"""A PostgreSQL database for the parts of an executor, with faults on request and no RabbitMQ."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import asyncpg
from tests.fakes.tickets import ticket

from harebell.connection.amqp import PUBLISH_TIMEOUT
from harebell.contract.ticket import Ticket
from harebell.domain.run_states import NewRun, Placement, seq_of
from harebell.executor.claiming.claimer import Claimer, DirectClaim
from harebell.executor.model.claimed_run import ClaimedRun
from harebell.executor.model.start_queue import StartQueue
from harebell.executor.running.claimed_runs import ClaimedRuns
from harebell.executor.running.start_guard import StartGuard
from harebell.executor.running.starter import LaneStarter
from harebell.messaging.publisher import OutgoingMessage, Publisher
from harebell.runtime.clock import Clock, monotonic
from harebell.storage.engine import database_time, open_pool
from harebell.storage.runs import claims, staging

TIMEOUT = 20.0  # seconds
LEASE = 15.0


class RecordingPublisher(Publisher):
    """A publisher that keeps its messages.

    `before_publish` runs before each publication, which is the last step before a commit.
    """

    def __init__(self) -> None:
        self.published: list[OutgoingMessage] = []
        self.before_publish: Callable[[], Awaitable[Any]] | None = None

    async def publish_all(
        self, messages: Iterable[OutgoingMessage], *, within: float = PUBLISH_TIMEOUT
    ) -> None:
        if self.before_publish is not None:
            await self.before_publish()
        await super().publish_all(messages, within=within)

    async def publish(self, outgoing: OutgoingMessage, *, within: float = 0) -> None:  # noqa: ARG002  # as in the base class
        self.published.append(outgoing)

    def count(self, exchange: str) -> int:
        """Return the number of messages to an exchange."""
        return sum(message.exchange == exchange for message in self.published)


_TERMINATE_OPEN_TRANSACTIONS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND state = 'idle in transaction'
"""


@dataclass(kw_only=True)
class FaultyPool:
    """A connection pool whose next statements or transactions lose their responses.

    The database has executed them, as after a lost connection.
    """

    pool: asyncpg.Pool
    clock: Clock
    publisher: RecordingPublisher = field(default_factory=RecordingPublisher)
    lost_responses: int = 0
    lost_commits: int = 0
    statements: int = 0

    async def fetch(self, query: str, *args: Any) -> Any:
        rows = await self.pool.fetch(query, *args)
        self.statements += 1
        if self.lost_responses:
            self.lost_responses -= 1
            raise asyncpg.ConnectionDoesNotExistError("The response was lost.")
        return rows

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[Any]:
        async with self.pool.acquire() as connection:
            yield connection
        if self.lost_commits:
            self.lost_commits -= 1
            raise asyncpg.ConnectionDoesNotExistError("The response was lost.")

    async def terminate_transactions(self) -> None:
        """End the connections of all open transactions, which rolls them back."""
        await self.pool.execute(_TERMINATE_OPEN_TRANSACTIONS)

    def tickets(self, count: int, *, first: int = 0) -> list[Ticket]:
        """Return due tickets of different runs."""
        now = self.clock.now().replace(microsecond=0)
        return [ticket(number, now) for number in range(first, first + count)]

    async def stage(self, tickets: Sequence[Ticket]) -> None:
        """Insert the rows of the tickets."""
        runs = [
            NewRun(
                each.run_key,
                Placement("default", each.version, each.pool, each.lane, each.priority),
                each.due_at,
                each.expires_at,
            )
            for each in tickets
        ]
        async with self.pool.acquire() as connection:
            await staging.stage(connection, runs)

    async def claim(self, tickets: Sequence[Ticket]) -> list[ClaimedRun]:
        """Claim the rows of the tickets for `executor-1`, without a claimer."""
        keys = map(claim_key, tickets)
        claimed = await claims.claim(self.pool, list(keys), "executor-1")
        return [
            ClaimedRun(
                ticket=each,
                token=claimed[each.run_key].token,
                attempt=claimed[each.run_key].attempt,
                lease=LEASE,
                renewed_at=monotonic(),
            )
            for each in tickets
        ]

    async def fetch_row(self, ticket: Ticket) -> asyncpg.Record:
        query = "SELECT * FROM runs WHERE scheduled_for = $1 AND schedule_id = $2"
        return await self.pool.fetchrow(query, ticket.scheduled_for, ticket.schedule_id)

    @asynccontextmanager
    async def locked(self, ticket: Ticket) -> AsyncIterator[None]:
        """Lock the row of a ticket, as a command to its run does."""
        async with self.pool.acquire() as connection, connection.transaction():
            query = "SELECT FROM runs WHERE scheduled_for = $1 AND schedule_id = $2 FOR UPDATE"
            await connection.execute(query, ticket.scheduled_for, ticket.schedule_id)
            yield

    async def update_row(self, ticket: Ticket, setting: str) -> None:
        query = f"UPDATE runs SET {setting} WHERE scheduled_for = $1 AND schedule_id = $2"  # noqa: S608  # the test wrote the setting
        await self.pool.execute(query, ticket.scheduled_for, ticket.schedule_id)


def claim_key(ticket: Ticket) -> claims.ClaimKey:
    return claims.ClaimKey(
        key=ticket.run_key,
        seq=ticket.seq,
        version=ticket.version,
        override=None,
        lease=LEASE,
        due_at=ticket.due_at,
    )


def with_tenant(ticket: Ticket, tenant: str) -> Ticket:
    """Return the ticket of another tenant."""
    run_spec = ticket.run_spec.model_copy(update={"tenant": tenant})
    return ticket.model_copy(update={"run_spec": run_spec})


@asynccontextmanager
async def open_faulty_pool(database_url: str) -> AsyncIterator[FaultyPool]:
    async with open_pool(database_url, name="test") as pool:
        clock = Clock(lambda: database_time(pool))
        await clock.refresh()
        yield FaultyPool(pool=pool, clock=clock)


@asynccontextmanager
async def running(loop: Any) -> AsyncIterator[None]:
    """Run a loop in a task until the block ends."""
    task = asyncio.create_task(loop)
    try:
        async with asyncio.timeout(TIMEOUT):
            yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class CollectingStarter(LaneStarter):
    """A starter that collects the claimed runs and never starts them."""

    def __init__(self) -> None:
        self.runs: list[ClaimedRun] = []
        self.limit = 1_000_000
        self.queue = StartQueue()  # stays empty
        self.capacity_changed = asyncio.Event()

    def watch_capacity(self) -> asyncio.Event:
        return self.capacity_changed

    def capacity(self) -> int:
        return self.limit - len(self.runs)

    def urgent_capacity(self) -> int:
        return 0

    def add(self, runs: Iterable[ClaimedRun]) -> None:
        self.runs.extend(runs)


class ClaimingLane:
    """A claimer of one executor, and the runs that it has claimed."""

    def __init__(
        self, ledger: FaultyPool, holder: str = "executor-1", *, guard: StartGuard | None = None
    ) -> None:
        self.starter = CollectingStarter()
        self.claimed_runs = ClaimedRuns()
        self.claimer = Claimer(
            pool=ledger,
            clock=ledger.clock,
            holder=holder,
            strategy=DirectClaim(ledger, holder),
            lease=lambda _: LEASE,
            starter=self.starter,
            claimed_runs=self.claimed_runs,
            start_guard=guard or StartGuard(),
        )

    @property
    def runs(self) -> list[ClaimedRun]:
        return self.starter.runs

    @property
    def claims(self) -> list[tuple[str, int, int]]:
        """Return the run id, the `seq` of the claim and the attempt of each run, sorted."""
        return sorted((str(run.key), seq_of(run.token), run.attempt) for run in self.runs)
