"""What came of attempts goes on the record once, by whoever still holds the run."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from math import inf

import orjson
import pytest
from tests.integration.executor.environment import LEASE, FaultyPool, running, open_faulty_pool

from harebell.contract.policy import Backoff, Jitter, RetryPolicy
from harebell.contract.ticket import Ticket
from harebell.domain.retry import Failure
from harebell.domain.run_states import RunState
from harebell.executor import metrics as executor_metrics
from harebell.executor.completer import Completer
from harebell.executor.model.claimed_run import ClaimedRun
from harebell.executor.running.leases import LeaseKeeper
from harebell.executor.targets.attempt import Success
from harebell.messaging.topology.delay_queues import LONGEST_DELAY
from harebell.runtime.clock import monotonic
from harebell.storage.runs import claims

pytestmark = pytest.mark.postgres

FAILED = Failure("http_error", "HTTP 500", http_status=500)


@pytest.fixture
async def books(database_url: str) -> AsyncIterator[FaultyPool]:
    async with open_faulty_pool(database_url) as opened:
        yield opened


class Desk:
    """A settler, and who is told of what is no longer held."""

    def __init__(self, books: FaultyPool) -> None:
        self.books = books
        self.leases = LeaseKeeper(books)  # it looks like a pool
        self.settler = Completer(books, books.publisher, books.clock, self.leases.remove)

    async def claimed(self, count: int, *, policy: RetryPolicy | None = None) -> list[ClaimedRun]:
        tickets = self.books.tickets(count)
        await self.books.stage(tickets)
        wanted = [
            claims.ClaimKey(
                key=each.run_key, seq=1, version=1, override=None, lease=LEASE, due_at=each.due_at
            )
            for each in tickets
        ]
        mine = await claims.claim(self.books.pool, wanted, "executor-1")
        runs = [self._claimed(each, mine[each.run_key], policy) for each in tickets]
        self.leases.add(runs)
        return runs

    def _claimed(self, of: Ticket, claim: claims.Claim, policy: RetryPolicy | None) -> ClaimedRun:
        work = of.run_spec.model_copy(update={} if policy is None else {"retry": policy})
        known = of.model_copy(update={"run_spec": work})
        now = self.books.clock.now()
        return ClaimedRun(known, claim.token, claim.attempt, LEASE, monotonic(), now)

    async def states(self, runs: Sequence[ClaimedRun]) -> list[str]:
        return [(await self.books.fetch_row(run.ticket))["state"] for run in runs]

    def told(self) -> list[str]:
        """The run of each fact."""
        bodies = [each.body for each in self.books.publisher.published if each.exchange == "harebell.events"]
        return sorted(fact["data"]["run_id"] for body in bodies for fact in orjson.loads(body))

    def heard(self, exchange: str) -> int:
        return sum(message.exchange == exchange for message in self.books.publisher.published)


@pytest.fixture
def desk(books: FaultyPool) -> Desk:
    return Desk(books)


def late_settles() -> float:
    value: float = executor_metrics.FENCED_COMPLETIONS._value.get()  # no other way to read it  # noqa: SLF001  # the library has no public reader
    return value


@pytest.mark.requirement("S72")
async def test_successes_are_on_the_record_and_told_when_flushed(desk: Desk) -> None:
    runs = await desk.claimed(20)

    async with running(desk.settler.run()):
        for run in runs:
            desk.settler.complete(run, Success(200, "ok"))
        await desk.settler.flush()

    assert set(await desk.states(runs)) == {RunState.SUCCEEDED}
    assert desk.books.statements <= 4  # batches, not runs
    assert desk.heard("harebell.events") >= 1
    assert desk.leases.held == {}


@pytest.mark.requirement("S92")
async def test_a_late_settle_is_refused_and_counted(desk: Desk) -> None:
    (late, mine) = await desk.claimed(2)
    await desk.books.update_row(late.ticket, "seq = seq + 2, attempt = 2")
    before = late_settles()

    async with running(desk.settler.run()):
        for run in (late, mine):
            desk.settler.complete(run, Success())
        await desk.settler.flush()

    assert await desk.states([late, mine]) == [RunState.RUNNING, RunState.SUCCEEDED]
    assert late_settles() == before + 1
    assert desk.leases.held == {}


@pytest.mark.requirement("S92")
async def test_a_late_failure_publishes_no_retry(desk: Desk) -> None:
    (late,) = await desk.claimed(1)
    await desk.books.update_row(late.ticket, "seq = seq + 2, attempt = 2")

    async with running(desk.settler.run()):
        desk.settler.complete(late, FAILED)
        await desk.settler.flush()

    assert desk.books.publisher.published == []
    assert await desk.states([late]) == [RunState.RUNNING]


@pytest.mark.requirement("S91")
async def test_a_settle_whose_answer_was_lost_is_read_back(desk: Desk) -> None:
    runs = await desk.claimed(3)
    desk.books.lost_responses = 1
    before = late_settles()

    async with running(desk.settler.run()):
        for run in runs:
            desk.settler.complete(run, Success())
        await desk.settler.flush()

    assert set(await desk.states(runs)) == {RunState.SUCCEEDED}
    assert late_settles() == before
    assert [(await desk.books.fetch_row(run.ticket))["seq"] for run in runs] == [3, 3, 3]


@pytest.mark.requirement("S91")
@pytest.mark.parametrize("meanwhile", ["seq = seq", "seq = seq + 1, state = 'running'"])
async def test_a_failure_whose_commit_was_unknown_is_found_on_the_record(
    desk: Desk, meanwhile: str
) -> None:
    backoff = Backoff(base=timedelta(seconds=1), jitter=Jitter.NONE)
    runs = await desk.claimed(2, policy=RetryPolicy(backoff=backoff))
    desk.books.lost_commits = 1
    before = late_settles()

    async with running(desk.settler.run()):
        for run in runs:
            desk.settler.complete(run, FAILED)
        while desk.books.lost_commits:  # noqa: ASYNC110  # it is settled, and nobody knows
            await asyncio.sleep(0)
        await desk.books.update_row(runs[0].ticket, meanwhile)  # its retry may be claimed already
        await desk.settler.flush()

    rows = [await desk.books.fetch_row(run.ticket) for run in runs]
    assert late_settles() == before
    assert rows[1]["seq"] == runs[1].token + 1
    assert desk.heard("harebell.delay") + desk.heard("harebell.due") == 1  # both in one bundle
    assert desk.told() == sorted(run.ticket.run_id for run in runs)
    assert desk.leases.held == {}


@pytest.mark.requirement("S103")
@pytest.mark.parametrize(
    ("base", "resting"),
    [(timedelta(seconds=1), False), (LONGEST_DELAY + timedelta(minutes=1), True)],
)
async def test_a_retry_within_reach_is_published_and_a_later_one_rests(
    desk: Desk, base: timedelta, *, resting: bool
) -> None:
    backoff = Backoff(base=base, cap=timedelta(hours=1), jitter=Jitter.NONE)
    (run,) = await desk.claimed(1, policy=RetryPolicy(backoff=backoff))

    async with running(desk.settler.run()):
        desk.settler.complete(run, FAILED)
        await desk.settler.flush()

    row = await desk.books.fetch_row(run.ticket)
    assert (row["state"], row["finished_at"]) == (RunState.RETRYING, None)
    assert (row["staged_at"] is None) is resting
    assert desk.heard("harebell.delay") + desk.heard("harebell.due") == (0 if resting else 1)


@pytest.mark.requirement("S109")
async def test_the_last_failure_is_a_dead_letter_with_its_story(desk: Desk) -> None:
    (run,) = await desk.claimed(1, policy=RetryPolicy(max_attempts=1))

    async with running(desk.settler.run()):
        desk.settler.complete(run, FAILED)
        await desk.settler.flush()

    assert await desk.states([run]) == [RunState.DEAD]
    (letter,) = [each for each in desk.books.publisher.published if each.exchange == "harebell.dead"]
    assert b'"http_status":500' in letter.body


@pytest.mark.requirement("S83")
async def test_a_renewal_keeps_what_is_held_and_tells_what_is_not(desk: Desk) -> None:
    (mine, lost) = await desk.claimed(2)
    await desk.books.update_row(lost.ticket, "seq = seq + 1")
    for run in (mine, lost):
        run.renewed_at -= 10

    kept = [await desk.leases.renew_before_start(run) for run in (mine, lost)]

    assert kept == [True, False]
    assert mine.is_fresh(monotonic())
    assert not lost.is_fresh(monotonic())


async def test_many_that_ask_before_they_start_share_two_statements(desk: Desk) -> None:
    runs = await desk.claimed(100)
    for run in runs:
        run.renewed_at -= 10
    before = desk.books.statements

    kept = await asyncio.gather(*(desk.leases.renew_before_start(run) for run in runs))

    assert all(kept)
    assert all(run.is_fresh(monotonic()) for run in runs)
    assert desk.books.statements - before == 2  # the first asks alone, the others meanwhile


@pytest.mark.requirement("S91")
async def test_many_that_ask_in_vain_hear_of_it_together(desk: Desk) -> None:
    runs = await desk.claimed(100)
    for run in runs:
        run.renewed_at -= 10
    desk.leases.present_since = monotonic() - 60
    desk.books.lost_responses = 2
    before = desk.books.statements

    allowed = await asyncio.gather(*(desk.leases.renew_before_start(run) for run in runs))

    assert all(allowed)
    assert desk.books.statements - before == 2


@pytest.mark.requirement("S91")
@pytest.mark.parametrize("seconds", [60.0, 5.0, -inf])
async def test_when_the_ledger_cannot_be_asked_the_lease_decides_of_whom_nobody_took_for_dead(
    desk: Desk, seconds: float
) -> None:
    """`seconds`: for how long its sign of life has been there."""
    (run,) = await desk.claimed(1)
    run.renewed_at -= 10
    desk.leases.present_since = monotonic() - seconds
    desk.books.lost_responses = 1

    allowed = await desk.leases.renew_before_start(run)

    assert allowed is (seconds > 10)
    assert not run.is_fresh(monotonic())


@pytest.mark.requirement("S33")
async def test_a_renewal_tells_of_runs_that_were_asked_to_stop(desk: Desk) -> None:
    (run, other) = await desk.claimed(2)
    await desk.books.update_row(run.ticket, "stop_requested_at = now(), reason = 'paused'")
    told: list[object] = []

    async def stop(keys: object) -> None:
        told.append(keys)

    desk.leases.stop = stop
    await desk.leases.renew([run, other])

    assert told == [{run.key: "paused"}]
