"""A real ledger for executors' parts: runs staged by hand, faults by order, messages kept."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import asyncpg
from tests.fakes.tickets import ticket

from harebell.client.connection import PUBLISH_TIMEOUT
from harebell.contract.ticket import Ticket
from harebell.domain.run_states import NewRun, Placement
from harebell.executor.claiming.claimer import Claimer
from harebell.executor.model.claimed_run import ClaimedRun
from harebell.messaging.publisher import OutgoingMessage, Publisher
from harebell.runtime.clock import Clock
from harebell.storage.engine import database_time, open_pool
from harebell.storage.runs import staging

WITHIN = 20.0  # seconds
LEASE = 15.0


class RecordingPublisher(Publisher):
    """Hears what is published, instead of a broker.

    `meanwhile`: what happens when it is about to be, which is just before a commit.
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

    async def publish(self, outgoing: OutgoingMessage, *, within: float = 0) -> None:  # noqa: ARG002
        self.published.append(outgoing)


_END_THOSE_OPEN = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND state = 'idle in transaction'
"""


@dataclass
class FaultyPool:
    """`lost_answers`: statements whose result is lost on its way back, though they are done.

    `lost_commits`: transactions likewise.
    """

    pool: asyncpg.Pool
    clock: Clock
    publisher: RecordingPublisher = field(default_factory=RecordingPublisher)
    lost_responses: int = 0
    lost_commits: int = 0
    statements: int = 0

    async def fetch(self, query: str, *args: Any) -> Any:
        """As the pool's."""
        rows = await self.pool.fetch(query, *args)
        self.statements += 1
        if self.lost_responses:
            self.lost_responses -= 1
            raise asyncpg.ConnectionDoesNotExistError("lost on the way back")
        return rows

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[Any]:
        """As the pool's."""
        async with self.pool.acquire() as connection:
            yield connection
        if self.lost_commits:
            self.lost_commits -= 1
            raise asyncpg.ConnectionDoesNotExistError("lost on the way back")

    async def lose_transactions(self) -> None:
        """All that are open now end here, and what they did is undone."""
        await self.pool.execute(_END_THOSE_OPEN)

    def tickets(self, count: int, *, first: int = 0) -> list[Ticket]:
        """Due now; each a run of its own."""
        now = self.clock.now().replace(microsecond=0)
        return [ticket(number, now) for number in range(first, first + count)]

    async def stage(self, tickets: Sequence[Ticket]) -> None:
        owed = [
            NewRun(
                each.run_key,
                Placement("default", each.version, each.pool, each.lane, each.priority),
                *(each.due_at, each.expires_at),
            )
            for each in tickets
        ]
        async with self.pool.acquire() as connection:
            await staging.stage(connection, owed)

    async def fetch_row(self, of: Ticket) -> asyncpg.Record:
        query = "SELECT * FROM runs WHERE scheduled_for = $1 AND schedule_id = $2"
        return await self.pool.fetchrow(query, of.scheduled_for, of.schedule_id)

    async def update_row(self, of: Ticket, setting: str) -> None:
        query = f"UPDATE runs SET {setting} WHERE scheduled_for = $1 AND schedule_id = $2"  # noqa: S608
        await self.pool.execute(query, of.scheduled_for, of.schedule_id)


@asynccontextmanager
async def open_faulty_pool(database_url: str) -> AsyncIterator[FaultyPool]:
    async with open_pool(database_url, name="test") as pool:
        clock = Clock(lambda: database_time(pool))
        await clock.refresh()
        yield FaultyPool(pool, clock)


@asynccontextmanager
async def running(loop: Any) -> AsyncIterator[None]:
    """Until the block ends."""
    task = asyncio.create_task(loop)
    try:
        async with asyncio.timeout(WITHIN):
            yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class ClaimingLane:
    """What a claimer claims for: room, and what is held there."""

    def __init__(self, books: FaultyPool, holder: str = "executor-1") -> None:
        self.held: list[ClaimedRun] = []
        self.slots = 1_000_000
        self.claimer = Claimer(
            books,  # it looks like a pool
            books.clock,
            holder,
            lambda _: LEASE,
            lambda: self.slots - len(self.held),
            self.held.extend,
            self.holds,
        )

    def holds(self, ticket: Ticket) -> bool:
        return any(run.key == ticket.run_key and run.token > ticket.seq for run in self.held)

    @property
    def numbers(self) -> list[tuple[str, int, int]]:
        return sorted((str(run.key), run.token, run.attempt) for run in self.held)
