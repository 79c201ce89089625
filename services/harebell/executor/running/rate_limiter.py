"""The rate limiter: reservations before a claim, and admissions before a start.

PostgreSQL counts the reservations and starts of all executors (decision 15).
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias

import asyncpg
import structlog

from harebell.contract.errors import Transient
from harebell.contract.ids import RunKey
from harebell.contract.policy import RateLimit
from harebell.contract.ticket import Ticket
from harebell.domain.rate_limit import (
    RateLimitDecision,
    RateLimitState,
    admit,
    rate_limit_key,
    reserve,
    start_slack,
)
from harebell.domain.run_states import Reason
from harebell.executor import metrics
from harebell.executor.model.claimed_run import ClaimedRun
from harebell.executor.running.claimed_runs import ClaimedRuns
from harebell.ledger.delayed_runs import delay_and_publish
from harebell.ledger.publishing_transaction import PublishingTransaction, publishing_transaction
from harebell.messaging.publisher import Publisher
from harebell.runtime.clock import Clock, monotonic
from harebell.runtime.micro_batcher import MicroBatcher
from harebell.runtime.retries import backoff_delay
from harebell.storage.runs import rate_limits

# A start after a slow response is counted again, so that its count has the time of the start. If
# every response is slow, the run starts after this number of admissions.
MAX_ADMISSIONS: Final = 3

Rule: TypeAlias = Callable[
    [RateLimitState, RateLimit, datetime], tuple[RateLimitState, RateLimitDecision]
]
RateLimitRequest: TypeAlias = tuple[Ticket, int]  # with the expected sequence number of its row

log = structlog.get_logger()


@dataclass(slots=True, kw_only=True)
class RateLimiter:
    """The rate limiter of all lanes of an executor."""

    pool: asyncpg.Pool
    publisher: Publisher
    clock: Clock
    claimed_runs: ClaimedRuns
    _reservations: MicroBatcher[Ticket, RateLimitDecision] = field(init=False)
    _admissions: MicroBatcher[ClaimedRun, RateLimitDecision] = field(init=False)

    def __post_init__(self) -> None:
        self._reservations = MicroBatcher(self._reserve_batch)
        self._admissions = MicroBatcher(self._admit_batch)

    async def run(self) -> None:
        """Decide about reservations and admissions until the task is cancelled."""
        await asyncio.gather(self._reservations.run(), self._admissions.run())

    async def reserve(self, ticket: Ticket) -> bool:
        """Return whether a due ticket may be claimed now.

        Otherwise the run has a reservation, and a new ticket arrives at that time.
        """
        if ticket.run_spec.rate_limit is None:
            return True
        return (await self._reservations.submit(ticket)).is_allowed

    async def admit(self, run: ClaimedRun) -> bool:
        """Return whether a claimed run may start now, and count its start.

        Otherwise the run has a reservation and is no longer claimed. While the database is
        unavailable, no run with a rate limit starts. The wait ends with the lease of the run.
        """
        rate_limit, tries = run.ticket.run_spec.rate_limit, 0
        while rate_limit is not None and monotonic() < run.lease_ends and tries < MAX_ADMISSIONS:
            try:
                decision = await self._admissions.submit(run)
            except Transient as error:
                log.warning("admission failed", run=str(run.key), error=error.code)
                await asyncio.sleep(backoff_delay(tries))
                continue
            if not decision.is_allowed:
                self.claimed_runs.remove([run])
                return False
            start_at = self.clock.to_monotonic(decision.at)
            await asyncio.sleep(max(0.0, start_at - monotonic()))
            if monotonic() - start_at <= start_slack(rate_limit).total_seconds():
                break
            tries += 1
        return True

    async def _reserve_batch(self, tickets: Sequence[Ticket]) -> list[RateLimitDecision]:
        """Return a decision for each ticket.

        A ticket that cannot be claimed any more is allowed, because its claim then rejects it.
        """
        by_identity = {(ticket.run_key, ticket.seq): ticket for ticket in tickets}
        async with publishing_transaction(self.pool, self.publisher, self.clock) as transaction:
            claimable = await rate_limits.lock_claimable(transaction.connection, list(by_identity))
            requests = [(by_identity[key, seq], seq) for key, seq in claimable]
            decisions = await _decide_and_publish(transaction, requests, reserve)
        allowed = RateLimitDecision(self.clock.now(), is_allowed=True)
        return [decisions.get((ticket.run_key, ticket.seq), allowed) for ticket in tickets]

    async def _admit_batch(self, runs: Sequence[ClaimedRun]) -> list[RateLimitDecision]:
        requests = [(run.ticket, run.token) for run in runs]
        async with publishing_transaction(self.pool, self.publisher, self.clock) as transaction:
            decisions = await _decide_and_publish(transaction, requests, admit)
        return [decisions[run.key, run.token] for run in runs]


async def _decide_and_publish(
    transaction: PublishingTransaction, requests: Sequence[RateLimitRequest], rule: Rule
) -> dict[tuple[RunKey, int], RateLimitDecision]:
    """Apply the rule, store the delayed runs and publish their new tickets.

    The publication is the last step of the transaction.
    """
    decisions = await _decide(transaction.connection, requests, rule)
    delayed = [
        (ticket, seq, decision.at)
        for (ticket, seq), decision in zip(requests, decisions, strict=True)
        if not decision.is_allowed
    ]
    if delayed:
        moved = await delay_and_publish(transaction, delayed, Reason.RATE_LIMITED)
        metrics.RATE_LIMITED_RUNS.inc(len(moved))
    return {
        (ticket.run_key, seq): decision
        for (ticket, seq), decision in zip(requests, decisions, strict=True)
    }


async def _decide(
    connection: asyncpg.Connection, requests: Sequence[RateLimitRequest], rule: Rule
) -> list[RateLimitDecision]:
    """Apply the rule to the requests in their order. Requests of one key have the same time."""
    limits = [
        (rate_limit_key(ticket, rate_limit), rate_limit)
        for ticket, _ in requests
        if (rate_limit := ticket.run_spec.rate_limit) is not None
    ]
    locked = await rate_limits.lock_rate_limits(connection, {key for key, _ in limits})
    states = {key: state for key, (state, _) in locked.items()}
    decisions = []
    for key, rate_limit in limits:
        states[key], decision = rule(states[key], rate_limit, locked[key][1])
        decisions.append(decision)
    expires_at = {key: states[key].expires_at(rate_limit) for key, rate_limit in limits}
    await rate_limits.save_rate_limits(
        connection, {key: (states[key], at) for key, at in expires_at.items()}
    )
    return decisions
