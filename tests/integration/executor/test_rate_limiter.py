"""What a limit does not allow yet is put off, its attempt unused; who may start is counted once."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import orjson
import pytest
from tests.integration.executor.environment import LEASE, FaultyPool, running, open_faulty_pool

from harebell.contract.policy import RateLimit, RateLimitScope
from harebell.contract.ticket import Ticket
from harebell.executor.model.claimed_run import ClaimedRun
from harebell.executor.running.rate_limiter import RateLimiter
from harebell.runtime.clock import monotonic
from harebell.storage.runs import claims, rate_limits
from harebell.storage.runs.claims import ClaimKey

pytestmark = pytest.mark.postgres

THREE = RateLimit(per=RateLimitScope.TARGET, starts=3, within=timedelta(minutes=5))
TWO_A_DAY = RateLimit(per=RateLimitScope.TARGET, starts=2, within=timedelta(days=1))


class Door:
    """Executors that ask one ledger whether their runs may come and start."""

    def __init__(self, books: FaultyPool) -> None:
        self.books = books
        self.freed: list[ClaimedRun] = []
        self.limiters = [self._limiter() for _ in range(2)]

    def _limiter(self) -> RateLimiter:
        return RateLimiter(self.books.pool, self.books.publisher, self.books.clock, self.freed.extend)

    async def tickets(
        self, count: int, limit: RateLimit = THREE, *, first: int = 0
    ) -> list[Ticket]:
        plain = self.books.tickets(count, first=first)
        tickets = [
            each.model_copy(update={"run_spec": each.run_spec.model_copy(update={"limit": limit})})
            for each in plain
        ]
        await self.books.stage(tickets)
        return tickets

    async def claimed(self, tickets: Sequence[Ticket]) -> list[ClaimedRun]:
        wanted = [
            ClaimKey(
                key=each.run_key,
                seq=each.seq,
                version=each.version,
                override=None,
                lease=LEASE,
                due_at=each.due_at,
            )
            for each in tickets
        ]
        mine = await claims.claim(self.books.pool, wanted, "executor-1")
        return [
            ClaimedRun(each, mine[each.run_key].token, 1, LEASE, monotonic()) for each in tickets
        ]

    async def come(self, tickets: Sequence[Ticket]) -> list[bool]:
        """By turns to one executor and to the other."""
        asked = (self.limiters[n % 2].reserve(each) for n, each in enumerate(tickets))
        return await asyncio.gather(*asked)

    async def start(self, runs: Sequence[ClaimedRun]) -> list[bool]:
        asked = (self.limiters[n % 2].admit(run) for n, run in enumerate(runs))
        return await asyncio.gather(*asked)

    def again(self) -> list[Ticket]:
        """What has been published to come again."""
        bodies = [each.body for each in self.books.publisher.published]
        return [Ticket.model_validate(each) for body in bodies for each in orjson.loads(body)]


@pytest.fixture
async def door(database_url: str) -> AsyncIterator[Door]:
    async with open_faulty_pool(database_url) as books:
        await books.pool.execute("DELETE FROM limits")
        door = Door(books)
        first, second = door.limiters
        async with running(first.run()), running(second.run()):
            yield door


@pytest.mark.requirement("S70")
async def test_however_many_executors_ask_only_so_many_start(door: Door) -> None:
    runs = await door.claimed(await door.tickets(8))

    answers = await door.start(runs)

    refused = [run for run, may in zip(runs, answers, strict=True) if not may]
    assert sum(answers) == 3
    assert {run.key for run in door.freed} == {run.key for run in refused}
    for run in refused:
        row = await door.books.fetch_row(run.ticket)
        assert (row["state"], row["attempt"], row["reason"]) == ("staged", 0, "limited")
        assert (row["seq"], row["lease_holder"]) == (run.token + 1, None)


@pytest.mark.requirement("S70")
async def test_what_is_put_off_comes_again_as_its_row_says(door: Door) -> None:
    tickets = await door.tickets(4)

    answers = await door.come(tickets)
    (again,) = door.again()

    row = await door.books.fetch_row(again)
    assert sum(answers) == 3
    assert (again.seq, again.reserved) == (row["seq"], True)
    assert timedelta(0) <= again.due_at - row["next_attempt_at"] < timedelta(milliseconds=1)
    assert timedelta(minutes=5) < again.due_at - tickets[0].due_at < timedelta(minutes=6)
    assert len(await door.claimed([again])) == 1


@pytest.mark.requirement("S70")
async def test_what_is_put_off_for_long_rests_in_the_ledger(door: Door) -> None:
    tickets = await door.tickets(3, TWO_A_DAY)

    answers = await door.come(tickets)

    (rests,) = (t for t, comes in zip(tickets, answers, strict=True) if not comes)
    row = await door.books.fetch_row(rests)
    assert door.books.publisher.published == []
    assert row["staged_at"] is None
    assert row["next_attempt_at"] > rests.due_at + timedelta(days=1)


@pytest.mark.requirement("S70")
async def test_a_ticket_that_would_not_be_claimed_takes_nobodys_place(door: Door) -> None:
    stale = [each.model_copy(update={"seq": 7}) for each in await door.tickets(5)]
    tickets = await door.tickets(3, first=5)

    assert await door.come(stale) == [True] * 5
    assert await door.come(tickets) == [True] * 3


@pytest.mark.requirement("S70")
async def test_a_run_that_was_asked_to_stop_is_left_to_its_lease(door: Door) -> None:
    runs = await door.claimed(await door.tickets(4))
    for run in runs:
        await door.books.update_row(run.ticket, "stop_requested_at = now()")

    answers = await door.start(runs)

    assert sum(answers) == 3
    states = {(await door.books.fetch_row(run.ticket))["state"] for run in runs}
    assert states == {"running"}
    assert door.again() == []


async def test_a_limit_without_anything_to_say_takes_no_room(door: Door) -> None:
    async def accounts() -> int:
        count: int = await door.books.pool.fetchval("SELECT count(*) FROM limits")
        return count

    await door.come(await door.tickets(1))
    assert await accounts() == 1

    await door.books.pool.execute("UPDATE limits SET expires_at = now() - interval '1 second'")
    await rate_limits.delete_expired(door.books.pool)

    assert await accounts() == 0
