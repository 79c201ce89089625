"""Claiming: whole bundles, all that are at hand, in one statement; then they are acknowledged."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import asyncpg
import orjson
import structlog

from harebell.contract.ticket import Ticket
from harebell.executor.core import Claimed
from harebell.kernel import failpoint, metrics
from harebell.kernel.clock import Clock, monotonic
from harebell.kernel.db.engine import passing_faults
from harebell.kernel.db.ledger import claims

MAX_ROWS: Final = 500  # of one statement
LINGER: Final = 0.025  # seconds for more bundles to come while these are early
EARLY: Final = timedelta(milliseconds=60)  # before due: then lingering costs no lateness
PATIENCE: Final = 2.0  # seconds for a commit to catch up with its ticket
LOOK_AGAIN: Final = 0.05  # seconds between looks for it

log = structlog.get_logger()


@dataclass(slots=True)
class Ask:
    """One bundle on its way to being claimed; `done` tells its delivery."""

    tickets: list[Ticket]
    done: asyncio.Future[None]


@dataclass(slots=True)
class Claimer:
    """Of one lane. `take` gets what was claimed; `room` says how much more there is room for."""

    pool: asyncpg.Pool
    clock: Clock
    holder: str
    lease: Callable[[Ticket], float]
    room: Callable[[], int]
    take: Callable[[list[Claimed]], None]
    holds: Callable[[Ticket], bool]
    _asks: deque[Ask] = field(default_factory=deque)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    async def claim(self, tickets: list[Ticket]) -> None:
        """Returns when every ticket is claimed, or known never to be; then it may be acked."""
        ask = Ask(tickets, asyncio.get_running_loop().create_future())
        self._asks.append(ask)
        self._wake.set()
        await ask.done

    def nudge(self) -> None:
        """There may be room again."""
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            if not self._asks or self.room() <= 0:
                self._wake.clear()
                await self._wake.wait()
                continue
            if self._is_early() and len(self._asks) * len(self._asks[0].tickets) < MAX_ROWS:
                await asyncio.sleep(LINGER)
            asks = self._next_asks()
            try:
                await self._claim_all([ticket for ask in asks for ticket in ask.tickets])
            except Exception as error:  # noqa: BLE001  # whoever waits decides about it
                _fail(asks, error)
            else:
                _finish(asks)

    def _is_early(self) -> bool:
        earliest = min(ticket.due_at for ask in self._asks for ticket in ask.tickets)
        return earliest - self.clock.now() > EARLY

    def _next_asks(self) -> list[Ask]:
        """Whole bundles, while there is room and they fit a statement."""
        asks: list[Ask] = []
        rows, left = 0, max(1, self.room())
        while self._asks and rows < left and rows + len(self._asks[0].tickets) <= MAX_ROWS:
            ask = self._asks.popleft()
            if not ask.done.cancelled():
                asks.append(ask)
                rows += len(ask.tickets)
        return asks

    async def _claim_all(self, tickets: Sequence[Ticket]) -> None:
        """Raises `DatabaseUnavailable`; what was claimed before a fault is found again as mine."""
        deadline = monotonic() + PATIENCE
        left = {ticket.run_key: ticket for ticket in tickets if not self.holds(ticket)}
        while left:
            await failpoint.reach("executor.before_claim")
            ahead = await self._try(list(left.values()))
            left = {ticket.run_key: ticket for ticket in ahead}
            if left and monotonic() > deadline:
                metrics.PHANTOMS.inc(len(left))
                log.warning("phantom tickets", runs=[str(key) for key in left][:10])
                return
            if left:
                await asyncio.sleep(LOOK_AGAIN)

    async def _try(self, tickets: Sequence[Ticket]) -> list[Ticket]:
        """Claim what can be; returns the tickets that are ahead of their rows."""
        wanted = [self._wanted(ticket) for ticket in tickets]
        sent_at = monotonic()
        with passing_faults():
            mine = await claims.claim(self.pool, wanted, self.holder)
            refused = [each for each in wanted if each.key not in mine]
            told = await claims.explain(self.pool, refused, self.holder) if refused else {}
        metrics.BATCH.labels("claim").observe(len(wanted))
        taken = [self._claimed(t, mine[t.run_key], sent_at) for t in tickets if t.run_key in mine]
        # one whose commit was unknown: its lease is of unknown age, so it is renewed before use
        taken += [
            self._claimed(ticket, found, float("-inf"))
            for ticket in tickets
            if isinstance(found := told.get(ticket.run_key), claims.Claim)
        ]
        self.take(taken)
        stale = sum(each is claims.Refused.STALE for each in told.values())
        metrics.STALE.inc(stale)
        return [t for t in tickets if told.get(t.run_key) is claims.Refused.AHEAD]

    def _wanted(self, ticket: Ticket) -> claims.Wanted:
        override = None if ticket.override is None else orjson.dumps(ticket.override).decode()
        lease = self.lease(ticket)
        return claims.Wanted(ticket.run_key, ticket.seq, ticket.version, override, lease)

    def _claimed(self, ticket: Ticket, claim: claims.Claim, sent_at: float) -> Claimed:
        return Claimed(ticket, claim.token, claim.attempt, self.lease(ticket), sent_at)


def _fail(asks: Sequence[Ask], error: Exception) -> None:
    for ask in asks:
        if not ask.done.done():
            ask.done.set_exception(error)


def _finish(asks: Sequence[Ask]) -> None:
    for ask in asks:
        if not ask.done.done():
            ask.done.set_result(None)
