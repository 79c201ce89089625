"""Claiming: whole bundles, all that are at hand, in one statement; then they are acknowledged."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import asyncpg
import orjson
import structlog

from harebell.contract.ids import RunKey
from harebell.contract.ticket import Ticket
from harebell.executor import metrics
from harebell.executor.claiming.in_doubt import InDoubtClaims
from harebell.executor.claiming.overlap import OverlapClaimer
from harebell.executor.model.claimed_run import ClaimedRun
from harebell.executor.running.start_guard import StartGuard
from harebell.runtime import failpoint
from harebell.runtime.clock import Clock, monotonic
from harebell.storage.engine import translate_db_errors
from harebell.storage.runs import claims

MAX_ROWS: Final = 250  # of one statement; more would keep the loop from what other lanes have due
GATHER_TIME: Final = 0.025  # seconds for more bundles to come while these are early
EARLY: Final = timedelta(milliseconds=60)  # before due: then lingering costs no lateness
VISIBILITY_TIMEOUT: Final = 2.0  # seconds for a commit to catch up with its ticket
LOOK_AGAIN: Final = 0.05  # seconds between looks for it
SHOWN: Final = 10  # phantoms that a log line names

log = structlog.get_logger()


@dataclass(slots=True)
class ClaimRequest:
    """One bundle on its way to being claimed; `done` is True when it may be acknowledged."""

    tickets: list[Ticket]
    done: asyncio.Future[bool]
    earliest: datetime = field(init=False)

    def __post_init__(self) -> None:
        self.earliest = min(ticket.due_at for ticket in self.tickets)

    def finish(self, *, is_claimed: bool) -> None:
        if not self.done.done():  # a lost session has cancelled it
            self.done.set_result(is_claimed)

    def fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)


@dataclass(slots=True)
class Claimer:
    """Of one lane. `take` gets what was claimed; `room` says how much more there is room for.

    With `turns`, of schedules that do not run over themselves.
    """

    pool: asyncpg.Pool
    clock: Clock
    holder: str
    lease: Callable[[Ticket], float]
    capacity: Callable[[], int]
    take: Callable[[list[ClaimedRun]], None]
    contains: Callable[[Ticket], bool]
    lulls: StartGuard = field(default_factory=StartGuard)
    overlap: OverlapClaimer | None = None
    _asks: deque[ClaimRequest] = field(default_factory=deque)  # bounded by prefetch
    _doubts: InDoubtClaims = field(default_factory=InDoubtClaims)
    _chases: set[asyncio.Task[None]] = field(default_factory=set)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _closed: bool = False

    async def claim(self, tickets: list[Ticket]) -> bool:
        """True when every ticket is claimed or known never to be; False when closed before."""
        if not tickets:
            return True
        ask = ClaimRequest(tickets, asyncio.get_running_loop().create_future())
        self._asks.append(ask)
        self._wake.set()
        if self._closed:
            self.close()
        return await ask.done

    def close(self) -> None:
        """Claim nothing more: what waits stays unacknowledged, for others."""
        self._closed = True
        while self._asks:
            self._asks.popleft().finish(is_claimed=False)

    def nudge(self) -> None:
        """There may be room again."""
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            if not self._asks or self.capacity() <= 0:
                self._wake.clear()
                await self._wake.wait()
                continue
            if self._is_early() and len(self._asks) * len(self._asks[0].tickets) < MAX_ROWS:
                await asyncio.sleep(GATHER_TIME)
            await self.lulls.wait_until_clear()
            asks = self._next_asks()
            try:
                ahead = await self._try([ticket for ask in asks for ticket in ask.tickets])
            except Exception as error:  # noqa: BLE001  # judged where deliveries are handled
                for ask in asks:
                    ask.fail(error)
            else:
                self._conclude(asks, ahead)

    def _is_early(self) -> bool:
        return min(ask.earliest for ask in self._asks) - self.clock.now() > EARLY

    def _next_asks(self) -> list[ClaimRequest]:
        """Whole bundles, while there is room and they fit a statement; at least one."""
        asks: list[ClaimRequest] = []
        rows, left = 0, max(1, self.capacity())
        while self._asks and rows < left:
            if asks and rows + len(self._asks[0].tickets) > MAX_ROWS:
                break
            ask = self._asks.popleft()
            if not ask.done.done():
                asks.append(ask)
                rows += len(ask.tickets)
        return asks

    def _conclude(self, asks: Sequence[ClaimRequest], ahead: Sequence[Ticket]) -> None:
        """Tickets ahead of their commits are chased apart: they must hold up nothing else."""
        waited_for = {(ticket.run_key, ticket.seq) for ticket in ahead}
        for ask in asks:
            if not waited_for:  # nearly always: then nothing needs to be hashed
                ask.finish(is_claimed=True)
                continue
            left = [t for t in ask.tickets if (t.run_key, t.seq) in waited_for]
            if not left:
                ask.finish(is_claimed=True)
                continue
            chase = asyncio.create_task(self._retry_until_visible(ask, left))
            self._chases.add(chase)
            chase.add_done_callback(self._chases.discard)

    async def _retry_until_visible(self, ask: ClaimRequest, left: list[Ticket]) -> None:
        deadline = monotonic() + VISIBILITY_TIMEOUT
        try:
            while left and monotonic() < deadline:
                await asyncio.sleep(LOOK_AGAIN)
                left = await self._try(left)
        except Exception as error:  # noqa: BLE001  # judged where deliveries are handled
            ask.fail(error)
            return
        if left:
            metrics.ORPHAN_TICKETS.inc(len(left))
            log.warning("phantom tickets", runs=[ticket.run_id for ticket in left][:SHOWN])
        ask.finish(is_claimed=True)

    async def _try(self, tickets: Sequence[Ticket]) -> list[Ticket]:
        """Claim what can be; returns the tickets that are ahead of their rows.

        Raises `DatabaseUnavailable`: what was claimed all the same is found again as mine.
        """
        wanted = self._all_wanted(tickets)
        if not wanted:
            return []
        await failpoint.reach("executor.before_claim")
        sent_at = monotonic()
        try:
            mine, told = await self._asked(wanted)
        except Exception:
            self._doubts.add(wanted)
            raise
        metrics.SQL_ROWS.labels("claim").observe(len(wanted))
        taken = [
            _claimed(ticket, each, claim, sent_at)
            for each, ticket in wanted.items()
            if each.matches(claim := mine.get(each.key)) and self._doubts.accept_claim(each)
        ]
        # one whose commit was unknown: its lease is of unknown age, so it is renewed before use
        taken += [
            _claimed(wanted[each], each, found, float("-inf"))
            for each, found in told.items()
            if isinstance(found, claims.Claim) and self._doubts.accept_recovered(each)
        ]
        # another copy of the ticket may have come meanwhile, and found its run to be mine as well
        self.take([run for run in taken if not self.contains(run.ticket)])
        metrics.STALE_TICKETS.inc(
            sum(found is claims.ClaimRejection.STALE for found in told.values())
        )
        return [
            wanted[each]
            for each, found in told.items()
            if found is claims.ClaimRejection.NOT_VISIBLE_YET
        ]

    async def _asked(
        self, wanted: Mapping[claims.ClaimKey, Ticket]
    ) -> tuple[
        dict[RunKey, claims.Claim], dict[claims.ClaimKey, claims.ClaimRejection | claims.Claim]
    ]:
        """What became mine, and why the others did not."""
        with translate_db_errors():
            mine, decided = await self._ask(wanted)
            refused = [
                each
                for each in wanted
                if not each.matches(mine.get(each.key)) and each not in decided
            ]
            return mine, await claims.explain_rejection(
                self.pool, refused, self.holder
            ) if refused else {}

    async def _ask(
        self, wanted: Mapping[claims.ClaimKey, Ticket]
    ) -> tuple[dict[RunKey, claims.Claim], frozenset[claims.ClaimKey]]:
        """What became mine, and of what else it has been decided what becomes."""
        if self.overlap is not None:
            return await self.overlap.claim(wanted)
        return await claims.claim(self.pool, list(wanted), self.holder), frozenset()

    def _all_wanted(self, tickets: Iterable[Ticket]) -> dict[claims.ClaimKey, Ticket]:
        """A run that was replaced has a ticket of each version: one of them is what its row says.

        Of copies that differ in their time the latest: so none starts before its row's.
        """
        wanted: dict[claims.ClaimKey, Ticket] = {}
        for ticket in sorted(tickets, key=lambda each: each.due_at, reverse=True):
            if not self.contains(ticket):
                wanted.setdefault(self._wanted(ticket), ticket)
        return wanted

    def _wanted(self, ticket: Ticket) -> claims.ClaimKey:
        override = None if ticket.override is None else orjson.dumps(ticket.override).decode()
        lease = self.lease(ticket)
        return claims.ClaimKey(
            ticket.run_key, ticket.seq, ticket.version, override, lease, ticket.due_at
        )


def _claimed(
    ticket: Ticket, wanted: claims.ClaimKey, claim: claims.Claim, sent_at: float
) -> ClaimedRun:
    return ClaimedRun(ticket, claim.token, claim.attempt, wanted.lease, sent_at)
