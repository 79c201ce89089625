"""Limits: whether a run may start now is asked of the ledger, which answers one after another."""

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
from harebell.contract.types import ceil_ms
from harebell.domain.rate_limit import (
    RateLimitDecision,
    RateLimitState,
    admit,
    rate_limit_key,
    reserve,
    start_slack,
)
from harebell.executor import metrics
from harebell.executor.model.claimed_run import ClaimedRun
from harebell.messaging.publisher import Publisher
from harebell.messaging.ticket_batches import TicketHeader
from harebell.messaging.topology.delay_queues import LONGEST_DELAY, Tier, route
from harebell.runtime.clock import Clock, monotonic
from harebell.runtime.micro_batcher import MicroBatcher
from harebell.runtime.retries import backoff_delay
from harebell.storage.publishing_transaction import PublishingTransaction, publishing_transaction
from harebell.storage.runs import rate_limits

# A start whose answer was slow to come is counted anew, so that it is counted when it is. Where
# every answer is slow, it starts all the same.
MAX_COUNTS: Final = 3

Rule: TypeAlias = Callable[
    [RateLimitState, RateLimit, datetime], tuple[RateLimitState, RateLimitDecision]
]
Asked: TypeAlias = tuple[Ticket, int]  # with the seq that its row must say

log = structlog.get_logger()


@dataclass(slots=True)
class RateLimiter:
    """Of all lanes of an executor. `freed` is told of every run that is no longer its own."""

    pool: asyncpg.Pool
    publisher: Publisher
    clock: Clock
    freed: Callable[[Sequence[ClaimedRun]], None]
    _placing: MicroBatcher[Ticket, RateLimitDecision] = field(init=False)
    _starting: MicroBatcher[ClaimedRun, RateLimitDecision] = field(init=False)

    def __post_init__(self) -> None:
        self._placing = MicroBatcher(self._place)
        self._starting = MicroBatcher(self._start)

    async def run(self) -> None:
        """Until cancelled."""
        await asyncio.gather(self._placing.run(), self._starting.run())

    async def reserve(self, ticket: Ticket) -> bool:
        """Of a run that is due. False: it has been put off, and comes again."""
        return ticket.run_spec.rate_limit is None or (await self._placing.submit(ticket)).is_allowed

    async def admit(self, run: ClaimedRun) -> bool:
        """False: it has been put off, and is no longer ours. Its lease bounds how long this asks.

        While the ledger is away nothing is counted, so nothing starts.
        """
        limit, tries = run.ticket.run_spec.rate_limit, 0
        while limit is not None and monotonic() < run.lease_ends and tries < MAX_COUNTS:
            try:
                told = await self._starting.submit(run)
            except Transient as error:
                log.warning("not counted", run=str(run.key), error=error.code)
                await asyncio.sleep(backoff_delay(tries))
                continue
            if not told.is_allowed:
                self.freed([run])
                return False
            moment = self.clock.to_monotonic(told.at)
            await asyncio.sleep(max(0.0, moment - monotonic()))
            if monotonic() - moment <= start_slack(limit).total_seconds():
                break
            tries += 1
        return True

    async def _place(self, tickets: Sequence[Ticket]) -> list[RateLimitDecision]:
        """What is not to be claimed any more goes on, to be told so by the claim."""
        asked = {(ticket.run_key, ticket.seq): ticket for ticket in tickets}
        async with publishing_transaction(self.pool, self.publisher, self.clock) as authority:
            due = await rate_limits.lock_claimable(authority.connection, list(asked))
            counted = [(asked[key, seq], seq) for key, seq in due]
            told = await _told(authority, counted, reserve)
        goes_on = RateLimitDecision(self.clock.now(), is_allowed=True)
        return [told.get((ticket.run_key, ticket.seq), goes_on) for ticket in tickets]

    async def _start(self, runs: Sequence[ClaimedRun]) -> list[RateLimitDecision]:
        asked = [(run.ticket, run.token) for run in runs]
        async with publishing_transaction(self.pool, self.publisher, self.clock) as authority:
            told = await _told(authority, asked, admit)
        return [told[run.key, run.token] for run in runs]


async def _told(
    authority: PublishingTransaction, asked: Sequence[Asked], rule: Rule
) -> dict[tuple[RunKey, int], RateLimitDecision]:
    """By the rule; what is put off is on the record and published, as the caller's last step."""
    told = await _counted(authority.connection, asked, rule)
    off = [
        (
            ticket,
            rate_limits.DelayedRun(ticket.run_key, seq, each.at, _rests(each.at, authority.now())),
        )
        for (ticket, seq), each in zip(asked, told, strict=True)
        if not each.is_allowed
    ]
    if off:
        moved = await rate_limits.delay_runs(authority.connection, [run for _, run in off])
        metrics.RATE_LIMITED_RUNS.inc(len(moved))
        going = [(t, run) for t, run in off if run.key in moved and not run.is_cold]
        await authority.publish(TicketHeader.of(_again(t, run, moved[run.key])) for t, run in going)
    return {(t.run_key, seq): each for (t, seq), each in zip(asked, told, strict=True)}


async def _counted(
    connection: asyncpg.Connection, asked: Sequence[Asked], rule: Rule
) -> list[RateLimitDecision]:
    """In their order; all of an account at one moment."""
    bound = [
        (rate_limit_key(t, limit), limit)
        for t, _ in asked
        if (limit := t.run_spec.rate_limit) is not None
    ]
    opened = await rate_limits.lock_rate_limits(connection, {account for account, _ in bound})
    tallies = {account: tally for account, (tally, _) in opened.items()}
    told = []
    for account, limit in bound:
        tallies[account], answer = rule(tallies[account], limit, opened[account][1])
        told.append(answer)
    over_at = {account: tallies[account].over_at(limit) for account, limit in bound}
    await rate_limits.save_rate_limits(
        connection, {each: (tallies[each], at) for each, at in over_at.items()}
    )
    return told


def _rests(at: datetime, now: datetime) -> bool:
    return route(at, now, horizon=LONGEST_DELAY).tier is Tier.COLD


def _again(ticket: Ticket, off: rate_limits.DelayedRun, seq: int) -> Ticket:
    told = {"seq": seq, "due_at": ceil_ms(off.next_attempt_at), "placed": True}
    return ticket.model_copy(update=told)
