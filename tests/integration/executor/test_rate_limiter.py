"""Integration tests of the rate limiter of two executors with one database."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import timedelta

import orjson
import pytest
from tests.integration.executor.environment import FaultyPool, open_faulty_pool, running

from harebell.contract.policy import RateLimit, RateLimitScope
from harebell.contract.ticket import Ticket
from harebell.domain.run_states import seq_of
from harebell.executor.model.claimed_run import ClaimedRun
from harebell.executor.running import rate_limiter
from harebell.executor.running.claimed_runs import ClaimedRuns
from harebell.executor.running.rate_limiter import RateLimiter
from harebell.storage.runs import rate_limits

pytestmark = pytest.mark.postgres

THREE = RateLimit(per=RateLimitScope.TARGET, starts=3, within=timedelta(minutes=5))
TWO_A_DAY = RateLimit(per=RateLimitScope.TARGET, starts=2, within=timedelta(days=1))


class RecordingClaimedRuns(ClaimedRuns):
    """A registry that keeps the removed runs."""

    def __init__(self) -> None:
        super().__init__()
        self.removed: list[ClaimedRun] = []

    def remove(self, runs: Iterable[ClaimedRun]) -> None:
        self.removed.extend(runs)


class TwoExecutors:
    """The rate limiters of two executors, which alternate."""

    def __init__(self, ledger: FaultyPool) -> None:
        self.ledger = ledger
        self.claimed_runs = RecordingClaimedRuns()
        self.rate_limiters = [
            RateLimiter(
                pool=ledger.pool,
                publisher=ledger.publisher,
                clock=ledger.clock,
                claimed_runs=self.claimed_runs,
            )
            for _ in range(2)
        ]

    async def tickets(
        self, count: int, rate_limit: RateLimit = THREE, *, first: int = 0
    ) -> list[Ticket]:
        changes = {"rate_limit": rate_limit}
        tickets = [
            each.model_copy(update={"run_spec": each.run_spec.model_copy(update=changes)})
            for each in self.ledger.tickets(count, first=first)
        ]
        await self.ledger.stage(tickets)
        return tickets

    async def reserve(self, tickets: Sequence[Ticket]) -> list[bool]:
        return await asyncio.gather(
            *(self.rate_limiters[n % 2].reserve(each) for n, each in enumerate(tickets))
        )

    async def admit(self, runs: Sequence[ClaimedRun]) -> list[bool]:
        return await asyncio.gather(
            *(self.rate_limiters[n % 2].admit(run) for n, run in enumerate(runs))
        )

    def published_tickets(self) -> list[Ticket]:
        bodies = [each.body for each in self.ledger.publisher.published]
        return [Ticket.model_validate(each) for body in bodies for each in orjson.loads(body)]


@pytest.fixture
async def executors(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[TwoExecutors]:
    # A response of a busy machine is later than a second, and its start would be counted again.
    monkeypatch.setattr(rate_limiter, "start_slack", lambda limit: limit.within)
    async with open_faulty_pool(database_url) as ledger:
        await ledger.pool.execute("DELETE FROM rate_limits")
        executors = TwoExecutors(ledger)
        first, second = executors.rate_limiters
        async with running(first.run()), running(second.run()):
            yield executors


@pytest.mark.requirement("S70")
async def test_two_executors_start_only_the_permitted_number_of_runs(
    executors: TwoExecutors,
) -> None:
    runs = await executors.ledger.claim(await executors.tickets(8))

    admitted = await executors.admit(runs)

    delayed = [run for run, is_admitted in zip(runs, admitted, strict=True) if not is_admitted]
    assert sum(admitted) == 3
    assert {run.key for run in executors.claimed_runs.removed} == {run.key for run in delayed}
    for run in delayed:
        row = await executors.ledger.fetch_row(run.ticket)
        assert (row["state"], row["attempt"], row["reason"]) == ("staged", 0, "rate_limited")
        assert (row["seq"], row["lease_holder"]) == (seq_of(run.token) + 1, None)


@pytest.mark.requirement("S70")
async def test_delayed_run_has_a_new_ticket_that_matches_its_row(executors: TwoExecutors) -> None:
    tickets = await executors.tickets(4)

    allowed = await executors.reserve(tickets)
    (new_ticket,) = executors.published_tickets()

    row = await executors.ledger.fetch_row(new_ticket)
    assert sum(allowed) == 3
    assert (new_ticket.seq, new_ticket.reserved) == (row["seq"], True)
    assert timedelta(0) <= new_ticket.due_at - row["next_attempt_at"] < timedelta(milliseconds=1)
    assert timedelta(minutes=5) < new_ticket.due_at - tickets[0].due_at < timedelta(minutes=6)
    assert len(await executors.ledger.claim([new_ticket])) == 1


@pytest.mark.requirement("S70")
async def test_run_with_a_long_delay_waits_in_the_database_without_a_ticket(
    executors: TwoExecutors,
) -> None:
    tickets = await executors.tickets(3, TWO_A_DAY)

    allowed = await executors.reserve(tickets)

    (delayed,) = (t for t, is_allowed in zip(tickets, allowed, strict=True) if not is_allowed)
    row = await executors.ledger.fetch_row(delayed)
    assert executors.ledger.publisher.published == []
    assert row["staged_at"] is None
    assert row["next_attempt_at"] > delayed.due_at + timedelta(days=1)


@pytest.mark.requirement("S70")
async def test_stale_ticket_makes_no_reservation(executors: TwoExecutors) -> None:
    stale = [each.model_copy(update={"seq": 7}) for each in await executors.tickets(5)]
    tickets = await executors.tickets(3, first=5)

    assert await executors.reserve(stale) == [True] * 5
    assert await executors.reserve(tickets) == [True] * 3


@pytest.mark.requirement("S70")
async def test_run_with_a_stop_request_is_not_delayed_and_its_lease_expires(
    executors: TwoExecutors,
) -> None:
    runs = await executors.ledger.claim(await executors.tickets(4))
    for run in runs:
        await executors.ledger.update_row(run.ticket, "stop_requested_at = now()")

    admitted = await executors.admit(runs)

    assert sum(admitted) == 3
    states = {(await executors.ledger.fetch_row(run.ticket))["state"] for run in runs}
    assert states == {"running"}
    assert executors.published_tickets() == []


async def test_expired_rate_limit_has_no_row(executors: TwoExecutors) -> None:
    pool = executors.ledger.pool
    query = "SELECT count(*) FROM rate_limits"

    await executors.reserve(await executors.tickets(1))
    assert await pool.fetchval(query) == 1

    await pool.execute("UPDATE rate_limits SET expires_at = now() - interval '1 second'")
    await rate_limits.delete_expired(pool)

    assert await pool.fetchval(query) == 0
