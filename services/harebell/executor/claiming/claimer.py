"""The claimer of a lane, which claims the runs of several work batches in one statement."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Protocol, TypeAlias

import asyncpg
import orjson
import structlog

from harebell.contract.ids import RunKey
from harebell.contract.ticket import Ticket
from harebell.executor import metrics
from harebell.executor.claiming.in_doubt import InDoubtClaims
from harebell.executor.model.claimed_run import ClaimedRun
from harebell.executor.running.claimed_runs import ClaimedRuns
from harebell.executor.running.start_guard import StartGuard
from harebell.executor.running.starter import LaneStarter
from harebell.runtime import failpoint
from harebell.runtime.clock import Clock, monotonic
from harebell.storage.engine import translate_db_errors
from harebell.storage.runs import claims

MAX_ROWS: Final = 250  # of a statement; more rows would delay due starts of other lanes
GATHER_TIME: Final = 0.025  # seconds in which more work batches may join a statement
# Before the due time of the first ticket. A claimer that gathers this early makes no run late.
MIN_TIME_TO_GATHER: Final = timedelta(milliseconds=60)
VISIBILITY_TIMEOUT: Final = 2.0  # seconds until the row of a ticket must be visible
VISIBILITY_CHECK_INTERVAL: Final = 0.05  # seconds between two claims of an invisible row
MAX_LOGGED_RUNS: Final = 10

TicketsByKey: TypeAlias = Mapping[claims.ClaimKey, Ticket]
# The successful claims, and the other keys for which the strategy has decided the next step.
ClaimResult: TypeAlias = tuple[dict[RunKey, claims.Claim], frozenset[claims.ClaimKey]]
RejectionsByKey: TypeAlias = dict[claims.ClaimKey, claims.ClaimRejection | claims.Claim]

log = structlog.get_logger()


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


@dataclass(slots=True)
class ClaimRequest:
    """One work batch that waits for its claim.

    `done` becomes True when the delivery may be acknowledged.
    """

    tickets: list[Ticket]
    done: asyncio.Future[bool]
    earliest: datetime = field(init=False)

    def __post_init__(self) -> None:
        self.earliest = min(ticket.due_at for ticket in self.tickets)

    def finish(self, *, is_claimed: bool) -> None:
        if not self.done.done():  # the loss of a consumer cancels its requests
            self.done.set_result(is_claimed)

    def fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)


@dataclass(slots=True, kw_only=True)
class Claimer:
    """The claims of one lane with one strategy.

    The number of requests is bounded by the prefetch of the consumer.
    """

    pool: asyncpg.Pool
    clock: Clock
    holder: str
    strategy: ClaimStrategy
    lease: Callable[[Ticket], float]  # seconds
    starter: LaneStarter
    claimed_runs: ClaimedRuns
    start_guard: StartGuard
    _requests: deque[ClaimRequest] = field(default_factory=deque)
    _requested: asyncio.Event = field(default_factory=asyncio.Event)
    _in_doubt: InDoubtClaims = field(default_factory=InDoubtClaims)
    _retries: set[asyncio.Task[None]] = field(default_factory=set)
    _is_closed: bool = False

    async def claim(self, tickets: list[Ticket]) -> bool:
        """Claim the runs of a work batch. Return False if the claimer is closed before that.

        After True, each ticket is claimed or can never be claimed.
        """
        if not tickets:
            return True
        request = ClaimRequest(tickets, asyncio.get_running_loop().create_future())
        self._requests.append(request)
        self._requested.set()
        # Faster attempts also increase the capacity, and no start reports that.
        self.starter.capacity_changed.set()
        if self._is_closed:
            self.close()
        return await request.done

    def close(self) -> None:
        """Claim nothing more. The waiting deliveries stay unacknowledged for other executors."""
        self._is_closed = True
        while self._requests:
            self._requests.popleft().finish(is_claimed=False)

    async def run(self) -> None:
        """Claim the requested tickets within the capacity of the lane until cancelled."""
        while True:
            if not self._requests:
                self._requested.clear()
                await self._requested.wait()
                continue
            if self.starter.capacity() <= 0:
                self.starter.capacity_changed.clear()
                await self.starter.capacity_changed.wait()
                continue
            if self._is_early() and len(self._requests) * len(self._requests[0].tickets) < MAX_ROWS:
                await asyncio.sleep(GATHER_TIME)
            await self.start_guard.wait_until_clear()
            requests = self._next_requests()
            try:
                invisible = await self._claim_tickets(
                    [ticket for request in requests for ticket in request.tickets]
                )
            except Exception as error:  # noqa: BLE001  # the consumer handles the error
                for request in requests:
                    request.fail(error)
            else:
                self._conclude(requests, invisible)

    def _is_early(self) -> bool:
        earliest = min(request.earliest for request in self._requests)
        return earliest - self.clock.now() > MIN_TIME_TO_GATHER

    def _next_requests(self) -> list[ClaimRequest]:
        """Remove and return whole requests within the capacity and MAX_ROWS, at least one."""
        requests: list[ClaimRequest] = []
        rows, capacity = 0, max(1, self.starter.capacity())
        while self._requests and rows < capacity:
            if requests and rows + len(self._requests[0].tickets) > MAX_ROWS:
                break
            request = self._requests.popleft()
            if not request.done.done():
                requests.append(request)
                rows += len(request.tickets)
        return requests

    async def _claim_tickets(self, tickets: Sequence[Ticket]) -> list[Ticket]:
        """Claim the rows of the tickets and return the tickets whose rows are not visible yet.

        Raise `DatabaseUnavailable`. The claims are then in doubt, and a later claim of the same
        tickets recovers the successful ones.
        """
        by_key = self._unclaimed(tickets)
        if not by_key:
            return []
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
        return [
            by_key[key]
            for key, found in rejections.items()
            if found is claims.ClaimRejection.NOT_VISIBLE_YET
        ]

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

    def _conclude(self, requests: Sequence[ClaimRequest], invisible: Sequence[Ticket]) -> None:
        """Finish the requests. Claim tickets with an invisible row again in a task of their own.

        The other requests therefore do not wait for such tickets.
        """
        identities = {(ticket.run_key, ticket.seq) for ticket in invisible}
        for request in requests:
            if not identities:  # the usual case, without a hash of each ticket
                request.finish(is_claimed=True)
                continue
            remaining = [t for t in request.tickets if (t.run_key, t.seq) in identities]
            if not remaining:
                request.finish(is_claimed=True)
                continue
            task = asyncio.create_task(self._retry_until_visible(request, remaining))
            self._retries.add(task)
            task.add_done_callback(self._retries.discard)

    async def _retry_until_visible(self, request: ClaimRequest, tickets: list[Ticket]) -> None:
        """Claim tickets until their rows are visible, for at most VISIBILITY_TIMEOUT.

        A ticket leaves before the commit of its row and may arrive before that commit.
        """
        deadline = monotonic() + VISIBILITY_TIMEOUT
        try:
            while tickets and monotonic() < deadline:
                await asyncio.sleep(VISIBILITY_CHECK_INTERVAL)
                tickets = await self._claim_tickets(tickets)
        except Exception as error:  # noqa: BLE001  # the consumer handles the error
            request.fail(error)
            return
        if tickets:
            metrics.ORPHAN_TICKETS.inc(len(tickets))
            runs = [ticket.run_id for ticket in tickets[:MAX_LOGGED_RUNS]]
            log.warning("orphan tickets dropped", runs=runs)
        request.finish(is_claimed=True)


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
    )
