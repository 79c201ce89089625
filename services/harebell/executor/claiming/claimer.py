"""The claimer of a lane, which claims the runs of several work batches in one statement.

If the answer of a statement is lost, its claims are in doubt, and each run is accepted only once.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, NamedTuple, Protocol, TypeAlias

import asyncpg
import orjson
import structlog

from harebell.contract.ids import RunKey
from harebell.contract.ticket import Ticket
from harebell.executor import metrics
from harebell.executor.claiming.unclaimed_tickets import ClaimRequest, Portion, UnclaimedTickets
from harebell.executor.model.claimed_run import ClaimedRun
from harebell.executor.running.claimed_runs import ClaimedRuns
from harebell.executor.running.start_guard import StartGuard
from harebell.executor.running.starter import LaneStarter
from harebell.runtime import failpoint
from harebell.runtime.clock import Clock, monotonic
from harebell.storage.engine import translate_db_errors
from harebell.storage.runs import claims
from harebell.storage.runs.claims import ClaimKey

MAX_IN_DOUBT: Final = 10_000  # the latest claims
GATHER_TIME: Final = 0.025  # seconds in which more work batches may join a statement
# Before the due time of the first ticket. A claimer that gathers this early makes no run late.
MIN_TIME_TO_GATHER: Final = timedelta(milliseconds=60)
VISIBILITY_TIMEOUT: Final = 2.0  # seconds until the row of a ticket must be visible
LOCK_TIMEOUT: Final = 10.0  # seconds until a locked row must be free; recovery finds it otherwise
# Seconds before the next claim of an invisible row, which is usually visible a moment later.
MIN_VISIBILITY_WAIT: Final = 0.004
MAX_VISIBILITY_WAIT: Final = 0.05  # seconds; the wait doubles until this bound
MAX_LOGGED_RUNS: Final = 10

TicketsByKey: TypeAlias = Mapping[claims.ClaimKey, Ticket]
# The successful claims, and the other keys for which the strategy has decided the next step.
ClaimResult: TypeAlias = tuple[dict[RunKey, claims.Claim], frozenset[claims.ClaimKey]]
RejectionsByKey: TypeAlias = dict[claims.ClaimKey, claims.ClaimRejection | claims.Claim]

_NOT_YET: Final = (claims.ClaimRejection.NOT_VISIBLE_YET, claims.ClaimRejection.NOT_CLAIMED_YET)

log = structlog.get_logger()


@dataclass(slots=True)
class InDoubtClaims:
    """The claims whose statement failed, so that their commit is unknown.

    From a later ticket we may learn that such a claim succeeded. If a claim was never in doubt, it
    has given its run to this executor, so the run must not start again. As responses arrive in any
    order, a claim may succeed after another ticket has recovered its run.
    """

    _is_open: dict[ClaimKey, bool] = field(default_factory=dict)  # False: the run was accepted

    def add(self, claims: Iterable[ClaimKey]) -> None:
        for each in claims:
            self._is_open.setdefault(each, True)
        for oldest in list(self._is_open)[:-MAX_IN_DOUBT]:
            del self._is_open[oldest]

    def accept_claim(self, claim: ClaimKey) -> bool:
        """Return whether the executor may start the run of a successful claim."""
        if not self._is_open:  # the usual case, without a hash of the claim
            return True
        return claim not in self._is_open or self.accept_recovered(claim)

    def accept_recovered(self, claim: ClaimKey) -> bool:
        """Return whether the executor may start a run that it turns out to own."""
        is_open = self._is_open.get(claim, False)
        if is_open:
            self._is_open[claim] = False
        return is_open


class Remaining(NamedTuple):
    """The tickets of rejected claims of which a later one may succeed."""

    tickets: list[Ticket]
    has_locked: bool = False  # whether the row of one of them exists


class ClaimStrategy(Protocol):
    """The way in which a claimer claims the rows of tickets."""

    async def claim(self, tickets: TicketsByKey) -> ClaimResult:
        """Return the successful claims, and the keys that need no further claim."""


@dataclass(frozen=True, slots=True)
class DirectClaim:
    """The claim of runs without an overlap policy, in one statement."""

    pool: asyncpg.Pool
    holder: str

    async def claim(self, tickets: TicketsByKey) -> ClaimResult:
        return await claims.claim(self.pool, list(tickets), self.holder), frozenset()


@dataclass(slots=True, kw_only=True)
class Claimer:
    """The claims of one lane with one strategy."""

    pool: asyncpg.Pool
    clock: Clock
    holder: str
    strategy: ClaimStrategy
    lease: Callable[[Ticket], float]  # seconds
    starter: LaneStarter
    claimed_runs: ClaimedRuns
    start_guard: StartGuard
    _waiting: UnclaimedTickets = field(default_factory=UnclaimedTickets)
    _requested: asyncio.Event = field(default_factory=asyncio.Event)
    _changed: asyncio.Event = field(init=False)  # the capacity, or what waits for it
    _in_doubt: InDoubtClaims = field(default_factory=InDoubtClaims)
    _retries: set[asyncio.Task[None]] = field(default_factory=set)
    _is_closed: bool = False

    def __post_init__(self) -> None:
        self._changed = self.starter.watch_capacity()

    async def claim(self, tickets: list[Ticket]) -> bool:
        """Claim the runs of a work batch. Return False if the claimer is closed before that.

        After True, each ticket is claimed or can never be claimed.
        """
        if not tickets:
            return True
        request = ClaimRequest(tickets=tickets, done=asyncio.get_running_loop().create_future())
        self._waiting.add(request)
        self._requested.set()
        # With faster attempts the lane may claim more, which no start reports.
        self._changed.set()
        if self._is_closed:
            self.close()
        try:
            return await request.done
        except asyncio.CancelledError:  # the broker delivers the batch of a lost consumer again
            self._waiting.discard_ended()
            raise

    def close(self) -> None:
        """Claim nothing more. The waiting deliveries stay unacknowledged for other executors."""
        self._is_closed = True
        self._waiting.abandon()

    async def run(self) -> None:
        """Claim the requested tickets within the capacity of the lane until cancelled."""
        while True:
            if not self._waiting:
                self._requested.clear()
                await self._requested.wait()
                continue
            if self.starter.capacity() > 0:
                if self._is_early():
                    await asyncio.sleep(GATHER_TIME)
            elif not self._has_urgent():
                await self._wait_for_capacity()
                continue
            await self.start_guard.wait_until_clear()
            if portions := self._next_portions():
                await self._claim_portions(portions)

    def _is_early(self) -> bool:
        """Return whether the claimer can wait for more work batches and make no run late."""
        if not self._waiting.has_few():
            return False
        return self._waiting.earliest() - self.clock.now() > MIN_TIME_TO_GATHER

    def _has_urgent(self) -> bool:
        """Return whether a waiting ticket must start before every run that the lane has claimed.

        Without its claim, all claimed runs of a lower priority would start before it.
        """
        now = self.clock.now()
        return self.starter.urgent_capacity() > 0 and self._waiting.has_urgent(
            self.starter.queue.first_rank(now), now
        )

    async def _wait_for_capacity(self) -> None:
        """Wait until the lane may claim more runs, a ticket arrives, or a ticket becomes due."""
        self._changed.clear()
        next_due = self._waiting.next_change(self.clock.now())
        if next_due is None:
            await self._changed.wait()
            return
        seconds = max(GATHER_TIME, self.clock.to_monotonic(next_due) - monotonic())
        timer = asyncio.get_running_loop().call_later(seconds, self._changed.set)
        try:
            await self._changed.wait()
        finally:
            timer.cancel()

    def _next_portions(self) -> list[Portion]:
        """Remove and return the tickets of the next statement."""
        now = self.clock.now()
        if (capacity := self.starter.capacity()) > 0:
            return self._waiting.take(capacity, now)
        before = self.starter.queue.first_rank(now)
        return self._waiting.take_urgent(self.starter.urgent_capacity(), before, now)

    async def _claim_portions(self, portions: Sequence[Portion]) -> None:
        try:
            remaining = await self._claim_tickets(
                [ticket for _, tickets in portions for ticket in tickets]
            )
        except Exception as error:  # noqa: BLE001  # the consumer handles the error
            for request, _ in portions:
                request.fail(error)
            self._waiting.discard_ended()
        else:
            self._conclude(portions, remaining.tickets)

    async def _claim_tickets(self, tickets: Sequence[Ticket]) -> Remaining:
        """Claim the rows of the tickets and return those whose rows are invisible or locked.

        Raise `DatabaseUnavailable`. The claims are then in doubt, and a later claim of the same
        tickets recovers the successful ones.
        """
        by_key = self._unclaimed(tickets)
        if not by_key:
            return Remaining([])
        await failpoint.reach("executor.before_claim")
        sent_at = monotonic()
        try:
            claimed, rejections = await self._claim_rows(by_key)
        except Exception:
            self._in_doubt.add(by_key)
            raise
        metrics.SQL_ROWS.labels("claim").observe(len(by_key))
        runs = [
            _claimed_run(ticket, key, claim, renewed_at=sent_at)
            for key, ticket in by_key.items()
            if key.matches(claim := claimed.get(key.key)) and self._in_doubt.accept_claim(key)
        ]
        # The age of a recovered lease is unknown, so the run needs a renewal before its start.
        runs += [
            _claimed_run(by_key[key], key, found, renewed_at=float("-inf"))
            for key, found in rejections.items()
            if isinstance(found, claims.Claim) and self._in_doubt.accept_recovered(key)
        ]
        # Another copy of a ticket may have claimed or recovered its run during the statement.
        new_runs = [run for run in runs if not self.claimed_runs.contains(run.ticket)]
        self.claimed_runs.add(new_runs)
        self.starter.add(new_runs)
        metrics.STALE_TICKETS.inc(
            sum(found is claims.ClaimRejection.STALE for found in rejections.values())
        )
        return Remaining(
            [by_key[key] for key, found in rejections.items() if found in _NOT_YET],
            claims.ClaimRejection.NOT_CLAIMED_YET in rejections.values(),
        )

    def _unclaimed(self, tickets: Iterable[Ticket]) -> dict[claims.ClaimKey, Ticket]:
        """Return the tickets of runs that this executor has not claimed, by claim key.

        A run with several versions has several tickets, and its row matches one of them. Of copies
        with different due times the latest counts, so that no run starts before the time in its
        row.
        """
        by_key: dict[claims.ClaimKey, Ticket] = {}
        for ticket in sorted(tickets, key=lambda each: each.due_at, reverse=True):
            if not self.claimed_runs.contains(ticket):
                by_key.setdefault(self._claim_key(ticket), ticket)
        return by_key

    def _claim_key(self, ticket: Ticket) -> claims.ClaimKey:
        override = None if ticket.override is None else orjson.dumps(ticket.override).decode()
        return claims.ClaimKey(
            key=ticket.run_key,
            seq=ticket.seq,
            version=ticket.version,
            override=override,
            lease=self.lease(ticket),
            due_at=ticket.due_at,
        )

    async def _claim_rows(
        self, tickets: TicketsByKey
    ) -> tuple[dict[RunKey, claims.Claim], RejectionsByKey]:
        """Return the successful claims and the reasons for the rejected ones."""
        with translate_db_errors():
            claimed, decided = await self.strategy.claim(tickets)
            rejected = [
                key
                for key in tickets
                if not key.matches(claimed.get(key.key)) and key not in decided
            ]
            if not rejected:
                return claimed, {}
            return claimed, await claims.explain_rejection(self.pool, rejected, self.holder)

    def _conclude(self, portions: Sequence[Portion], remaining: Sequence[Ticket]) -> None:
        """Finish the tickets. Claim the remaining ones again in a task of their own.

        The other tickets therefore do not wait for such tickets.
        """
        identities = {(ticket.run_key, ticket.seq) for ticket in remaining}
        for request, tickets in portions:
            if not identities:  # the usual case, without a hash of each ticket
                request.finish(len(tickets))
                continue
            unclaimed = [t for t in tickets if (t.run_key, t.seq) in identities]
            request.finish(len(tickets) - len(unclaimed))
            if unclaimed:
                task = asyncio.create_task(self._retry_until_claimed(request, unclaimed))
                self._retries.add(task)
                task.add_done_callback(self._retries.discard)

    async def _retry_until_claimed(self, request: ClaimRequest, tickets: list[Ticket]) -> None:
        """Claim tickets until their rows are visible and free, for a bounded time.

        A ticket leaves before the commit of its row and may arrive before that commit. Another
        transaction, such as a command to the run, may have locked the row.
        """
        began, count = monotonic(), len(tickets)
        deadline = began + VISIBILITY_TIMEOUT
        wait = MIN_VISIBILITY_WAIT
        try:
            while tickets and monotonic() < deadline:
                await asyncio.sleep(wait)
                wait = min(2 * wait, MAX_VISIBILITY_WAIT)
                tickets, has_locked = await self._claim_tickets(tickets)
                if has_locked:
                    deadline = min(monotonic() + VISIBILITY_TIMEOUT, began + LOCK_TIMEOUT)
        except Exception as error:  # noqa: BLE001  # the consumer handles the error
            request.fail(error)
            self._waiting.discard_ended()
            return
        if tickets:
            metrics.ORPHAN_TICKETS.inc(len(tickets))
            runs = [ticket.run_id for ticket in tickets[:MAX_LOGGED_RUNS]]
            log.warning("orphan tickets dropped", runs=runs)
        request.finish(count)


def _claimed_run(
    ticket: Ticket, key: claims.ClaimKey, claim: claims.Claim, *, renewed_at: float
) -> ClaimedRun:
    return ClaimedRun(
        ticket=ticket,
        token=claim.token,
        attempt=claim.attempt,
        lease=key.lease,
        renewed_at=renewed_at,
        failed_probes=claim.failed_probes,
        checkpoint=claim.checkpoint,
    )
