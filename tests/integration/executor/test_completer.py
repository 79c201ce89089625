"""Integration tests of completions and renewals, which only the owner of a run can write."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from math import inf

import orjson
import pytest
from tests.integration.executor.environment import (
    FaultyPool,
    open_faulty_pool,
    running,
    with_tenant,
)
from tests.rig.polling import until

from harebell.contract.ids import RunKey
from harebell.contract.policy import Backoff, Jitter, RetryPolicy
from harebell.domain.retry import Failure
from harebell.domain.run_states import RunState, seq_of
from harebell.executor import metrics
from harebell.executor.completer import Completer
from harebell.executor.model.claimed_run import ClaimedRun
from harebell.executor.running.claimed_runs import ClaimedRuns
from harebell.executor.running.leases import LeaseKeeper
from harebell.executor.running.start_guard import StartGuard
from harebell.executor.running.stop_requests import StopRequestHandler
from harebell.executor.targets.attempt import AttemptOutcome, Success
from harebell.messaging.topology.delay_queues import LONGEST_DELAY
from harebell.runtime.clock import monotonic

pytestmark = pytest.mark.postgres

MAX_COMPLETION = 2.0  # seconds; a statement waits up to 3 s for a locked row
FAILED = Failure("http_error", "HTTP 500", http_status=500)


@pytest.fixture
async def ledger(database_url: str) -> AsyncIterator[FaultyPool]:
    async with open_faulty_pool(database_url) as opened:
        yield opened


class RecordingStopRequests(StopRequestHandler):
    """A stop request handler that keeps the stop requests."""

    def __init__(self) -> None:
        self.applied: list[Mapping[RunKey, str]] = []

    async def apply(self, reasons: Mapping[RunKey, str]) -> None:
        self.applied.append(reasons)


class CompletionHarness:
    """A completer and a lease keeper with one registry of claimed runs."""

    def __init__(self, ledger: FaultyPool) -> None:
        self.ledger = ledger
        self.claimed_runs = ClaimedRuns()
        self.stop_requests = RecordingStopRequests()
        start_guard = StartGuard()
        self.leases = LeaseKeeper(
            pool=ledger,
            claimed_runs=self.claimed_runs,
            start_guard=start_guard,
            stop_requests=self.stop_requests,
            publisher=ledger.publisher,
            clock=ledger.clock,
        )
        self.completer = Completer(
            pool=ledger,
            publisher=ledger.publisher,
            clock=ledger.clock,
            claimed_runs=self.claimed_runs,
            start_guard=start_guard,
        )

    async def claimed(self, count: int, *, policy: RetryPolicy | None = None) -> list[ClaimedRun]:
        """Stage and claim runs whose attempts have started."""
        tickets = self.ledger.tickets(count)
        await self.ledger.stage(tickets)
        runs = await self.ledger.claim(tickets)
        for run in runs:
            changes = {} if policy is None else {"retry": policy}
            run_spec = run.ticket.run_spec.model_copy(update=changes)
            run.ticket = run.ticket.model_copy(update={"run_spec": run_spec})
            run.start(self.ledger.clock.now())
        self.claimed_runs.add(runs)
        return runs

    async def states(self, runs: Sequence[ClaimedRun]) -> list[str]:
        return [(await self.ledger.fetch_row(run.ticket))["state"] for run in runs]

    def run_ids_of_events(self) -> list[str]:
        published = self.ledger.publisher.published
        bodies = [each.body for each in published if each.exchange == "harebell.events"]
        return sorted(event["data"]["run_id"] for body in bodies for event in orjson.loads(body))

    def ticket_messages(self) -> int:
        publisher = self.ledger.publisher
        return publisher.count("harebell.delay") + publisher.count("harebell.due")


@pytest.fixture
def harness(ledger: FaultyPool) -> CompletionHarness:
    return CompletionHarness(ledger)


def fenced_completions() -> float:
    value: float = metrics.FENCED_COMPLETIONS._value.get()  # noqa: SLF001  # the library has no public reader
    return value


@pytest.mark.requirement("S72")
async def test_successes_are_recorded_and_their_events_published_in_batches(
    harness: CompletionHarness,
) -> None:
    runs = await harness.claimed(20)

    async with running(harness.completer.run()):
        for run in runs:
            harness.completer.complete(run, Success(200, "ok"))
        await harness.completer.flush()

    assert set(await harness.states(runs)) == {RunState.SUCCEEDED}
    assert harness.ledger.statements <= 4
    assert harness.ledger.publisher.count("harebell.events") >= 1
    assert len(harness.claimed_runs) == 0


@pytest.mark.requirement("P6")
@pytest.mark.parametrize("outcome", [Success(), FAILED], ids=["success", "failure"])
async def test_completion_waits_for_no_locked_row_of_another_tenant(
    harness: CompletionHarness, outcome: AttemptOutcome
) -> None:
    locked, *others = await harness.claimed(3)
    for run in others:
        run.ticket = with_tenant(run.ticket, "umbrella")
    ended = [RunState.SUCCEEDED if isinstance(outcome, Success) else RunState.RETRYING] * 2

    async with running(harness.completer.run()):
        async with harness.ledger.locked(locked.ticket):
            for run in (locked, *others):
                harness.completer.complete(run, outcome)

            async def have_ended() -> bool:
                return await harness.states(others) == ended

            await until(have_ended, within=MAX_COMPLETION)
            assert await harness.states([locked]) == [RunState.RUNNING]
        await harness.completer.flush()

    assert await harness.states([locked]) == ended[:1]
    assert len(harness.claimed_runs) == 0


@pytest.mark.requirement("S92")
async def test_completion_is_fenced_and_counted_when_another_executor_owns_the_run(
    harness: CompletionHarness,
) -> None:
    (lost, owned) = await harness.claimed(2)
    await harness.ledger.update_row(lost.ticket, "seq = seq + 2, attempt = 2")
    before = fenced_completions()

    async with running(harness.completer.run()):
        for run in (lost, owned):
            harness.completer.complete(run, Success())
        await harness.completer.flush()

    assert await harness.states([lost, owned]) == [RunState.RUNNING, RunState.SUCCEEDED]
    assert fenced_completions() == before + 1
    assert len(harness.claimed_runs) == 0


@pytest.mark.requirement("S92")
async def test_fenced_failure_publishes_no_retry(harness: CompletionHarness) -> None:
    (lost,) = await harness.claimed(1)
    await harness.ledger.update_row(lost.ticket, "seq = seq + 2, attempt = 2")

    async with running(harness.completer.run()):
        harness.completer.complete(lost, FAILED)
        await harness.completer.flush()

    assert harness.ledger.publisher.published == []
    assert await harness.states([lost]) == [RunState.RUNNING]


@pytest.mark.requirement("S91")
async def test_completion_is_found_by_the_next_try_when_its_response_is_lost(
    harness: CompletionHarness,
) -> None:
    runs = await harness.claimed(3)
    harness.ledger.lost_responses = 1
    before = fenced_completions()

    async with running(harness.completer.run()):
        for run in runs:
            harness.completer.complete(run, Success())
        await harness.completer.flush()

    assert set(await harness.states(runs)) == {RunState.SUCCEEDED}
    assert fenced_completions() == before
    assert [(await harness.ledger.fetch_row(run.ticket))["seq"] for run in runs] == [3, 3, 3]


@pytest.mark.requirement("S91")
@pytest.mark.parametrize("later_update", ["seq = seq", "seq = seq + 1, state = 'running'"])
async def test_failure_is_found_by_the_next_try_when_its_commit_was_in_doubt(
    harness: CompletionHarness, later_update: str
) -> None:
    backoff = Backoff(base=timedelta(seconds=1), jitter=Jitter.NONE)
    runs = await harness.claimed(2, policy=RetryPolicy(backoff=backoff))
    harness.ledger.lost_commits = 1
    before = fenced_completions()

    async with running(harness.completer.run()):
        for run in runs:
            harness.completer.complete(run, FAILED)
        while harness.ledger.lost_commits:  # noqa: ASYNC110  # a lost commit has no event
            await asyncio.sleep(0)
        await harness.ledger.update_row(runs[0].ticket, later_update)  # its retry may have begun
        await harness.completer.flush()

    rows = [await harness.ledger.fetch_row(run.ticket) for run in runs]
    assert fenced_completions() == before
    assert rows[1]["seq"] == seq_of(runs[1].token) + 1
    assert harness.ticket_messages() == 1  # both tickets in one batch
    assert harness.run_ids_of_events() == sorted(run.ticket.run_id for run in runs)
    assert len(harness.claimed_runs) == 0


@pytest.mark.requirement("S103")
@pytest.mark.parametrize(
    ("base", "is_cold"),
    [(timedelta(seconds=1), False), (LONGEST_DELAY + timedelta(minutes=1), True)],
)
async def test_retry_is_published_only_within_the_longest_delay(
    harness: CompletionHarness, base: timedelta, *, is_cold: bool
) -> None:
    backoff = Backoff(base=base, cap=timedelta(hours=1), jitter=Jitter.NONE)
    (run,) = await harness.claimed(1, policy=RetryPolicy(backoff=backoff))

    async with running(harness.completer.run()):
        harness.completer.complete(run, FAILED)
        await harness.completer.flush()

    row = await harness.ledger.fetch_row(run.ticket)
    assert (row["state"], row["finished_at"]) == (RunState.RETRYING, None)
    assert (row["staged_at"] is None) is is_cold
    assert harness.ticket_messages() == (0 if is_cold else 1)


@pytest.mark.requirement("S109")
async def test_last_failure_publishes_a_dead_letter_with_its_attempts(
    harness: CompletionHarness,
) -> None:
    (run,) = await harness.claimed(1, policy=RetryPolicy(max_attempts=1))

    async with running(harness.completer.run()):
        harness.completer.complete(run, FAILED)
        await harness.completer.flush()

    published = harness.ledger.publisher.published
    assert await harness.states([run]) == [RunState.DEAD]
    (dead_letter,) = [each for each in published if each.exchange == "harebell.dead"]
    assert b'"http_status":500' in dead_letter.body


@pytest.mark.requirement("S83")
async def test_renewal_extends_only_the_leases_of_owned_runs(harness: CompletionHarness) -> None:
    (owned, lost) = await harness.claimed(2)
    await harness.ledger.update_row(lost.ticket, "seq = seq + 1")
    for run in (owned, lost):
        run.renewed_at -= 10

    renewed = [await harness.leases.try_renew_before_start(run) for run in (owned, lost)]

    assert renewed == [True, False]
    assert owned.is_fresh(monotonic())
    assert not lost.is_fresh(monotonic())


async def test_simultaneous_renewals_before_starts_share_two_statements(
    harness: CompletionHarness,
) -> None:
    runs = await harness.claimed(100)
    for run in runs:
        run.renewed_at -= 10
    before = harness.ledger.statements

    renewed = await asyncio.gather(*map(harness.leases.try_renew_before_start, runs))

    assert all(renewed)
    assert all(run.is_fresh(monotonic()) for run in runs)
    # The first call renews alone, and the others share the next statement.
    assert harness.ledger.statements - before == 2


@pytest.mark.requirement("S91")
async def test_simultaneous_renewals_share_the_result_when_the_database_does_not_answer(
    harness: CompletionHarness,
) -> None:
    runs = await harness.claimed(100)
    for run in runs:
        run.renewed_at -= 10
    harness.leases.alive_since = monotonic() - 60
    harness.ledger.lost_responses = 2
    before = harness.ledger.statements

    may_start = await asyncio.gather(*map(harness.leases.try_renew_before_start, runs))

    assert all(may_start)
    assert harness.ledger.statements - before == 2


@pytest.mark.requirement("S91")
@pytest.mark.parametrize("alive_for", [60.0, 5.0, -inf])
async def test_run_may_start_without_a_renewal_only_if_no_ticker_can_have_recovered_it(
    harness: CompletionHarness, alive_for: float
) -> None:
    (run,) = await harness.claimed(1)
    run.renewed_at -= 10
    harness.leases.alive_since = monotonic() - alive_for
    harness.ledger.lost_responses = 1

    may_start = await harness.leases.try_renew_before_start(run)

    assert may_start is (alive_for > 10)
    assert not run.is_fresh(monotonic())


@pytest.mark.requirement("S92")
async def test_renewal_before_a_start_is_repeated_until_the_lease_ends(
    harness: CompletionHarness,
) -> None:
    (lost,) = await harness.claimed(1)
    await harness.ledger.update_row(lost.ticket, "seq = seq + 1")
    lost.renewed_at -= lost.lease - 0.2
    before = harness.ledger.statements

    may_start = await harness.leases.renew_before_start(lost)

    assert not may_start
    assert monotonic() >= lost.lease_ends
    assert harness.ledger.statements - before > 1


@pytest.mark.requirement("S33")
async def test_renewal_applies_the_stop_requests_of_the_rows(harness: CompletionHarness) -> None:
    (run, other) = await harness.claimed(2)
    await harness.ledger.update_row(run.ticket, "stop_requested_at = now(), reason = 'paused'")

    await harness.leases.renew([run, other])

    assert harness.stop_requests.applied == [{run.key: "paused"}]
