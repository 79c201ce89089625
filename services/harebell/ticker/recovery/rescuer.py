"""The rescuer: loops that recover lost tickets, resting retries and expired leases."""

import asyncio
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import asyncpg
import structlog

from harebell.contract.errors import Transient
from harebell.contract.ids import RunKey
from harebell.contract.policy import OnUnknown
from harebell.contract.ticket import Ticket
from harebell.domain.retry import LEASE_EXPIRED, NO_WAIT, Failure, decide, no_min_wait
from harebell.domain.run_states import (
    WORKER,
    AttemptCompletion,
    Reason,
    RunState,
    is_executor,
    state_after,
)
from harebell.ledger.publishing_transaction import PublishingTransaction, publishing_transaction
from harebell.ledger.run_completion import complete_and_publish
from harebell.messaging.event_publisher import OutgoingEvent, publish_events
from harebell.messaging.publisher import Publisher
from harebell.messaging.run_events import run_event, run_event_without_attempt
from harebell.messaging.ticket_batches import TicketHeader
from harebell.messaging.topology.delay_queues import LONGEST_DELAY, Tier, route
from harebell.runtime import failpoint
from harebell.runtime.clock import Clock, monotonic
from harebell.storage.engine import translate_db_errors
from harebell.storage.runs import recovery
from harebell.storage.runs.staging import rebuild_tickets
from harebell.ticker import metrics
from harebell.ticker.recovery.executor_liveness import ExecutorLiveness
from harebell.ticker.recovery.search_window import SearchWindow
from harebell.ticker.recovery.stalled_labels import wake_stalled_labels
from harebell.ticker.recovery.stalled_overlaps import wake_stalled, without_locked

LEASE_CHECK_INTERVAL: Final = 1.0  # seconds
# Seconds while no executor holds a lease. A later claim is not silent before the next check.
IDLE_CHECK_INTERVAL: Final = recovery.SILENT_AFTER + LEASE_CHECK_INTERVAL
TICKET_CHECK_INTERVAL: Final = 5.0  # seconds
LABEL_CHECKS: Final = 3  # ticket checks for each search for stalled labels
MAX_LEASE: Final = 15.0  # seconds of uninterrupted service before the first lease expires
MIN_UPTIME_FOR_LIVENESS: Final = 5.0  # seconds of uninterrupted service before a holder is gone
FREEZE_THRESHOLD: Final = 3.0  # seconds of delay after which a check means a frozen process

log = structlog.get_logger()


@dataclass(slots=True, kw_only=True)
class Rescuer:
    """The recovery of one ticker. Any number may run, because each skips locked rows."""

    pool: asyncpg.Pool
    publisher: Publisher
    clock: Clock
    liveness: ExecutorLiveness
    request_reconciliation: Callable[[Iterable[UUID]], None]
    retry_min_wait: Callable[[str], timedelta | None] = no_min_wait  # of a tenant
    _uninterrupted_since: float = field(default_factory=monotonic)
    _reports_read_since: float = field(default_factory=monotonic)
    _window: SearchWindow = field(init=False)

    def __post_init__(self) -> None:
        self._window = SearchWindow(pool=self.pool, clock=self.clock)

    async def run_ticket_recovery(self) -> None:
        """Recover lost tickets, stalled overlap slots and stalled labels until cancelled."""
        for number in itertools.count(1):
            await asyncio.sleep(TICKET_CHECK_INTERVAL)
            try:
                await self._recover_lost_tickets()
                await wake_stalled(self.pool, self.publisher, self.clock)
                if number % LABEL_CHECKS == 0:
                    await wake_stalled_labels(self.pool, self.publisher, self.clock)
            except Transient as error:
                log.warning("ticket recovery failed", error=error.code, reason=error.reason)

    async def _recover_lost_tickets(self) -> None:
        if not self.clock.steady_for(MAX_LEASE):
            return
        with translate_db_errors():
            found = await recovery.find_lost_tickets(self.pool, await self._window.scope())
        queues = {(each.pool, each.lane) for each in found if each.can_be_queued}
        empty = {queue for queue in queues if await self.liveness.is_queue_empty(*queue)}
        lost = [e.key for e in found if not e.can_be_queued or (e.pool, e.lane) in empty]
        if lost:
            await self._republish(lost)

    async def _republish(self, keys: Sequence[RunKey]) -> None:
        """Publish the tickets again with the same `seq`: the first ticket claims the run."""
        async with publishing_transaction(self.pool, self.publisher, self.clock) as transaction:
            connection = transaction.connection
            attempts = await recovery.expire_overdue(connection, keys)
            expired = await rebuild_tickets(connection, list(attempts))
            restaged = await recovery.mark_restaged(connection, keys)
            tickets = await rebuild_tickets(connection, sorted(restaged))
            await transaction.publish(map(TicketHeader.of, tickets))
        now = self.clock.now()
        events = [_expiry_event(each, attempts[each.run_key], now) for each in expired]
        await publish_events(self.publisher, events)
        for reason, count in (("republished", len(tickets)), ("expired", len(attempts))):
            if count:
                metrics.RECOVERED_RUNS.labels(reason).inc(count)
                log.info("runs recovered", reason=reason, runs=count)

    async def run_lease_recovery(self) -> None:
        """Complete the attempts of expired leases until the task is cancelled.

        An outage is no crash of an executor: after an outage, each lease gets its full time.
        """
        interval = LEASE_CHECK_INTERVAL
        while True:
            slept_at = monotonic()
            await asyncio.sleep(interval)
            if monotonic() - slept_at > interval + FREEZE_THRESHOLD:
                self._uninterrupted_since = monotonic()
            try:
                has_leases = await self._recover_expired_leases()
            except Transient as error:
                self._uninterrupted_since = monotonic()
                has_leases = True
                log.warning("lease recovery failed", error=error.code, reason=error.reason)
            interval = LEASE_CHECK_INTERVAL if has_leases else IDLE_CHECK_INTERVAL

    async def _recover_expired_leases(self) -> bool:
        """Return False if no executor holds a lease."""
        if not self.clock.steady_for(MAX_LEASE):
            return True
        with translate_db_errors():
            scope = await self._window.scope()
            holders = await recovery.find_lease_holders(self.pool, scope)
        if any(holder.name == WORKER for holder in holders):
            await self._check_reports()
        uptime = monotonic() - self._uninterrupted_since
        gone = await self._find_gone(holders) if uptime > MIN_UPTIME_FOR_LIVENESS else []
        if gone or any(holder.has_expired for holder in holders):
            await self._complete_expired(gone, uptime, scope.since)
        return bool(holders)

    async def _find_gone(self, holders: Sequence[recovery.LeaseHolder]) -> list[str]:
        """Return the silent holders whose control queue has gone with its connection."""
        silent = [each.name for each in holders if each.is_silent and is_executor(each.name)]
        return [name for name in silent if await self.liveness.is_gone(name)]

    async def _check_reports(self) -> None:
        """Give each worker its full lease after a time in which no service read its heartbeats."""
        if not await self.liveness.are_reports_read():
            self._reports_read_since = monotonic()

    async def _complete_expired(self, gone: Sequence[str], uptime: float, since: datetime) -> None:
        events: list[OutgoingEvent] = []
        async with publishing_transaction(self.pool, self.publisher, self.clock) as transaction:
            database_uptime = await recovery.database_uptime(transaction.connection)
            expired = await recovery.lock_expired_leases(
                transaction.connection,
                gone,
                by_time=min(uptime, database_uptime) > MAX_LEASE,
                reports_read_for=min(
                    uptime, database_uptime, monotonic() - self._reports_read_since
                ),
                since=since,
            )
            if expired:
                events = await self._complete(transaction, expired)
                await failpoint.reach("ticker.recovery_before_commit")
        if events:
            metrics.RECOVERED_RUNS.labels(LEASE_EXPIRED).inc(len(events))
            log.warning("expired leases recovered", runs=len(events), gone=gone)
            self.request_reconciliation({each.key.schedule_id for each in expired})
            await publish_events(self.publisher, events)

    async def _complete(
        self, transaction: PublishingTransaction, expired: Sequence[recovery.ExpiredLease]
    ) -> list[OutgoingEvent]:
        """Complete each attempt by the retry rule and `on_unknown`, and return the events."""
        connection = transaction.connection
        found = await rebuild_tickets(connection, [each.key for each in expired])
        tickets = await without_locked(connection, found)
        leases = {each.key: each for each in expired}
        now = self.clock.now()
        completed = [
            (
                ticket,
                completion_of_lost_run(
                    leases[ticket.run_key],
                    ticket,
                    now,
                    min_wait=self.retry_min_wait(ticket.run_spec.tenant) or NO_WAIT,
                ),
            )
            for ticket in tickets
        ]
        recorded = await complete_and_publish(transaction, completed)
        return [
            run_event(ticket, completion, leases[completion.key].attempt)
            for ticket, completion in completed
            if completion.key in recorded
        ]


def _expiry_event(ticket: Ticket, attempt: int, now: datetime) -> OutgoingEvent:
    return run_event_without_attempt(
        ticket.run_spec.tenant,
        ticket.run_key,
        state=RunState.EXPIRED,
        reason=Reason.EXPIRED,
        finished_at=now,
        attempt=attempt,
        schedule_key=ticket.run_spec.key,
    )


def completion_of_lost_run(
    lease: recovery.ExpiredLease, ticket: Ticket, now: datetime, *, min_wait: timedelta = NO_WAIT
) -> AttemptCompletion:
    """Return the completion of an attempt whose executor stopped renewing its lease.

    The next attempt starts at least `min_wait` after the start of this one. A retry beyond the
    longest delay stays unstaged in PostgreSQL until the ticker stages it.
    """
    text = (
        f"The executor {lease.holder} stopped renewing its lease."
        if is_executor(lease.holder)
        else "The worker sent no heartbeat within its lease, or exceeded the longest duration."
    )
    failure = Failure(LEASE_EXPIRED, text, immediate=True)
    passed = now - (lease.started_at or now)
    state, reason, at = _state_after(
        failure, lease, ticket, now=now, min_wait=max(NO_WAIT, min_wait - passed)
    )
    is_cold = at is None or route(at, now, horizon=LONGEST_DELAY).tier is Tier.COLD
    return AttemptCompletion(
        key=lease.key,
        token=lease.token,
        state=state,
        outcome=LEASE_EXPIRED,
        started_at=lease.started_at,
        finished_at=now,
        reason=reason,
        next_attempt_at=at,
        staged_at=None if is_cold else now,
        error_code=failure.code,
        error=failure.message,
    )


def _state_after(
    failure: Failure,
    lease: recovery.ExpiredLease,
    ticket: Ticket,
    *,
    now: datetime,
    min_wait: timedelta,
) -> tuple[RunState, str | None, datetime | None]:
    if lease.stop_reason is not None:
        return RunState.CANCELLED, lease.stop_reason, None
    match ticket.run_spec.on_unknown:
        case OnUnknown.SKIP:
            return RunState.SKIPPED, Reason.UNKNOWN_OUTCOME, None
        case OnUnknown.BLOCK:
            return RunState.UNRESOLVED, Reason.UNKNOWN_OUTCOME, None
        case OnUnknown.RETRY:
            decision = decide(
                ticket.run_spec.retry,
                lease.attempt,
                failure,
                now=now,
                random_fraction=0,
                expires_at=ticket.expires_at,
                failed_probes=lease.failed_probes,
                min_wait=min_wait,
            )
            return state_after(decision)
