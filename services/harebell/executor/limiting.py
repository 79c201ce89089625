"""Limits: whether a run may start now is asked of the ledger, which answers one after another."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias

import asyncpg
import structlog

from harebell.contract.errors import Transient
from harebell.contract.identity import RunKey
from harebell.contract.policy import Limit
from harebell.contract.scalars import cut_up
from harebell.contract.ticket import Ticket
from harebell.executor.asking import Asking
from harebell.executor.core import Claimed
from harebell.kernel import metrics
from harebell.kernel.amqp.consume import pause
from harebell.kernel.amqp.publish import Publisher
from harebell.kernel.authorising import Authority, authorising
from harebell.kernel.clock import Clock, monotonic
from harebell.kernel.db.ledger import limits
from harebell.kernel.delay import REACH, Way, route
from harebell.kernel.limits import Tally, Told, account_of, place, slack_of, start
from harebell.kernel.routing import Routed

# A start whose answer was slow to come is counted anew, so that it is counted when it is. Where
# every answer is slow, it starts all the same.
MAX_COUNTS: Final = 3

Rule: TypeAlias = Callable[[Tally, Limit, datetime], tuple[Tally, Told]]
Asked: TypeAlias = tuple[Ticket, int]  # with the seq that its row must say

log = structlog.get_logger()


@dataclass(slots=True)
class Limiter:
    """Of all lanes of an executor. `freed` is told of every run that is no longer its own."""

    pool: asyncpg.Pool
    publisher: Publisher
    clock: Clock
    freed: Callable[[Sequence[Claimed]], None]
    _placing: Asking[Ticket, Told] = field(init=False)
    _starting: Asking[Claimed, Told] = field(init=False)

    def __post_init__(self) -> None:
        self._placing = Asking(self._place)
        self._starting = Asking(self._start)

    async def run(self) -> None:
        """Until cancelled."""
        await asyncio.gather(self._placing.run(), self._starting.run())

    async def lets_come(self, ticket: Ticket) -> bool:
        """Of a run that is due. False: it has been put off, and comes again."""
        return ticket.work.limit is None or (await self._placing.ask(ticket)).may

    async def lets_start(self, run: Claimed) -> bool:
        """False: it has been put off, and is no longer ours. Its lease bounds how long this asks.

        While the ledger is away nothing is counted, so nothing starts.
        """
        limit, tries = run.ticket.work.limit, 0
        while limit is not None and monotonic() < run.lease_ends and tries < MAX_COUNTS:
            try:
                told = await self._starting.ask(run)
            except Transient as error:
                log.warning("not counted", run=str(run.key), error=error.code)
                await asyncio.sleep(pause(tries))
                continue
            if not told.may:
                self.freed([run])
                return False
            moment = self.clock.moment(told.at)
            await asyncio.sleep(max(0.0, moment - monotonic()))
            if monotonic() - moment <= slack_of(limit).total_seconds():
                break
            tries += 1
        return True

    async def _place(self, tickets: Sequence[Ticket]) -> list[Told]:
        """What is not to be claimed any more goes on, to be told so by the claim."""
        asked = {(ticket.run_key, ticket.seq): ticket for ticket in tickets}
        async with authorising(self.pool, self.publisher, self.clock) as authority:
            due = await limits.due(authority.connection, list(asked))
            counted = [(asked[key, seq], seq) for key, seq in due]
            told = await _told(authority, counted, place)
        goes_on = Told(self.clock.now(), may=True)
        return [told.get((ticket.run_key, ticket.seq), goes_on) for ticket in tickets]

    async def _start(self, runs: Sequence[Claimed]) -> list[Told]:
        asked = [(run.ticket, run.token) for run in runs]
        async with authorising(self.pool, self.publisher, self.clock) as authority:
            told = await _told(authority, asked, start)
        return [told[run.key, run.token] for run in runs]


async def _told(
    authority: Authority, asked: Sequence[Asked], rule: Rule
) -> dict[tuple[RunKey, int], Told]:
    """By the rule; what is put off is on the record and published, as the caller's last step."""
    told = await _counted(authority.connection, asked, rule)
    off = [
        (ticket, limits.PutOff(ticket.run_key, seq, each.at, _rests(each.at, authority.now())))
        for (ticket, seq), each in zip(asked, told, strict=True)
        if not each.may
    ]
    if off:
        moved = await limits.put_off(authority.connection, [run for _, run in off])
        metrics.PUT_OFF.inc(len(moved))
        going = [(t, run) for t, run in off if run.key in moved and not run.rests]
        await authority.publish(Routed.of(_again(t, run, moved[run.key])) for t, run in going)
    return {(t.run_key, seq): each for (t, seq), each in zip(asked, told, strict=True)}


async def _counted(
    connection: asyncpg.Connection, asked: Sequence[Asked], rule: Rule
) -> list[Told]:
    """In their order; all of an account at one moment."""
    bound = [(account_of(t, limit), limit) for t, _ in asked if (limit := t.work.limit) is not None]
    opened = await limits.open_accounts(connection, {account for account, _ in bound})
    tallies = {account: tally for account, (tally, _) in opened.items()}
    told = []
    for account, limit in bound:
        tallies[account], answer = rule(tallies[account], limit, opened[account][1])
        told.append(answer)
    over_at = {account: tallies[account].over_at(limit) for account, limit in bound}
    await limits.keep(connection, {each: (tallies[each], at) for each, at in over_at.items()})
    return told


def _rests(at: datetime, now: datetime) -> bool:
    return route(at, now, reach=REACH).way is Way.COLD


def _again(ticket: Ticket, off: limits.PutOff, seq: int) -> Ticket:
    told = {"seq": seq, "due_at": cut_up(off.at), "placed": True}
    return ticket.model_copy(update=told)
