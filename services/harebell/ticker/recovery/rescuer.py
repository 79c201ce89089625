"""Sweeps: what got lost is published again, what rests is staged, what lapsed goes on."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from uuid import UUID

import asyncpg
import structlog

from harebell.contract.errors import Transient
from harebell.contract.ids import RunKey
from harebell.contract.policy import OnUnknown
from harebell.contract.ticket import Ticket
from harebell.domain.retry import LEASE_EXPIRED, Failure, decide
from harebell.domain.run_states import AttemptCompletion, Reason, RunState, state_after
from harebell.messaging.event_publisher import OutgoingEvent, publish_events
from harebell.messaging.publisher import Publisher
from harebell.messaging.run_events import run_event, run_event_without_attempt
from harebell.messaging.ticket_batches import TicketHeader
from harebell.runtime import failpoint
from harebell.runtime.clock import Clock, monotonic
from harebell.storage.engine import translate_db_errors
from harebell.storage.publishing_transaction import PublishingTransaction, publishing_transaction
from harebell.storage.run_completion import complete_and_publish
from harebell.storage.runs import recovery
from harebell.storage.runs.tickets import rebuild_tickets
from harebell.ticker import metrics
from harebell.ticker.recovery.executor_liveness import ExecutorLiveness
from harebell.ticker.recovery.stalled_overlaps import wake_stalled, without_locked_schedules

LEASE_CHECK_INTERVAL: Final = 1.0  # seconds
# While nobody held anything: whoever claims right after a look is suspect only SILENT later.
IDLE_CHECK_INTERVAL: Final = recovery.SILENT_AFTER + LEASE_CHECK_INTERVAL  # seconds
TICKET_CHECK_INTERVAL: Final = 5.0  # seconds
MAX_LEASE: Final = 15.0  # seconds of unbroken service before the first lease is ended
MIN_UPTIME_FOR_LIVENESS: Final = (
    5.0  # seconds of unbroken service before a silent holder can be taken for gone
)
FREEZE_THRESHOLD: Final = 3.0  # seconds that a pass may be late before it counts as a freeze

log = structlog.get_logger()


@dataclass(slots=True)
class Rescuer:
    """One ticker's sweeps. Any number may run: rows that another has locked are passed over."""

    pool: asyncpg.Pool
    publisher: Publisher
    clock: Clock
    liveness: ExecutorLiveness
    request_reconciliation: Callable[[Iterable[UUID]], None]
    _unbroken_since: float = field(default_factory=monotonic)

    async def run_lease_recovery(self) -> None:
        """Until cancelled. An outage is not a crash: after one, leases get their full time."""
        wait = LEASE_CHECK_INTERVAL
        while True:
            asked = monotonic()
            await asyncio.sleep(wait)
            if monotonic() - asked > wait + FREEZE_THRESHOLD:
                self._unbroken_since = monotonic()
            try:
                wait = LEASE_CHECK_INTERVAL if await self._lapse() else IDLE_CHECK_INTERVAL
            except Transient as error:
                self._unbroken_since = monotonic()
                wait = LEASE_CHECK_INTERVAL
                log.warning("lease sweep failed", error=error.code, reason=error.reason)

    async def run_ticket_recovery(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(TICKET_CHECK_INTERVAL)
            try:
                await self._recover()
                await wake_stalled(self.pool, self.publisher, self.clock)
            except Transient as error:
                log.warning("sweep failed", error=error.code, reason=error.reason)

    async def _recover(self) -> None:
        if not self.clock.steady_for(MAX_LEASE):
            return
        with translate_db_errors():
            found = await recovery.find_lost_tickets(self.pool)
        queues = {(row.pool, row.lane) for row in found if row.can_be_queued}
        empty = {queue for queue in queues if await self.liveness.is_queue_empty(*queue)}
        wanted = [row for row in found if not row.can_be_queued or (row.pool, row.lane) in empty]
        if wanted:
            await self._publish_again([row.key for row in wanted])

    async def _publish_again(self, keys: Sequence[RunKey]) -> None:
        """The seq stays: whichever of its tickets comes first claims the run."""
        async with publishing_transaction(self.pool, self.publisher, self.clock) as authority:
            expired = await recovery.expire_overdue(authority.connection, keys)
            over = await rebuild_tickets(authority.connection, list(expired))
            staged = await recovery.mark_restaged(authority.connection, keys)
            again = await rebuild_tickets(authority.connection, sorted(staged))
            await authority.publish(map(TicketHeader.of, again))
        now = self.clock.now()
        await publish_events(
            self.publisher, [_fact(each, expired[each.run_key], now) for each in over]
        )
        for why, count in (("published", len(again)), ("expired", len(expired))):
            if count:
                metrics.RECOVERED_RUNS.labels(why).inc(count)
                log.info("swept", why=why, runs=count)

    async def _lapse(self) -> bool:
        """False when nobody holds anything."""
        if not self.clock.steady_for(MAX_LEASE):
            return True
        with translate_db_errors():
            holders = await recovery.find_lease_holders(self.pool)
        unbroken = monotonic() - self._unbroken_since
        gone = await self._gone(holders) if unbroken > MIN_UPTIME_FOR_LIVENESS else []
        if gone or any(each.has_expired for each in holders):
            await self._end_lapsed(gone, unbroken)
        return bool(holders)

    async def _gone(self, holders: Sequence[recovery.LeaseHolder]) -> list[str]:
        """Silent ones, whose presence queue is gone with their connection."""
        silent = [each.name for each in holders if each.is_silent]
        return [name for name in silent if await self.liveness.is_gone(name)]

    async def _end_lapsed(self, gone: Sequence[str], unbroken: float) -> None:
        facts: list[OutgoingEvent] = []
        async with publishing_transaction(self.pool, self.publisher, self.clock) as authority:
            served = min(unbroken, await recovery.database_uptime(authority.connection))
            by_time = served > MAX_LEASE
            if lapsed := await recovery.lock_expired_leases(
                authority.connection, gone, by_time=by_time
            ):
                facts = await self._end(authority, lapsed)
                await failpoint.reach("ticker.recovery_before_commit")
        if facts:
            metrics.RECOVERED_RUNS.labels(LEASE_EXPIRED).inc(len(facts))
            log.warning("leases lease_expired", runs=len(facts), gone=gone)
            self.request_reconciliation({row.key.schedule_id for row in lapsed})
            await publish_events(self.publisher, facts)

    async def _end(
        self, authority: PublishingTransaction, lapsed: Sequence[recovery.ExpiredLease]
    ) -> list[OutgoingEvent]:
        """Each by the retry rule and its schedule's `on_unknown`."""
        connection = authority.connection
        found = await rebuild_tickets(connection, [row.key for row in lapsed])
        tickets = await without_locked_schedules(connection, found)
        rows = {row.key: row for row in lapsed}
        now = self.clock.now()
        ended = [
            (ticket, completion_of_lost_run(rows[ticket.run_key], ticket, now))
            for ticket in tickets
        ]
        moved = await complete_and_publish(authority, ended)
        return [
            run_event(ticket, each, rows[each.key].attempt)
            for ticket, each in ended
            if each.key in moved
        ]


def _fact(ticket: Ticket, attempt: int, now: datetime) -> OutgoingEvent:
    """Of a run that has expired, after so many attempts."""
    work, key, state = ticket.run_spec, ticket.run_key, RunState.EXPIRED
    return run_event_without_attempt(
        work.tenant,
        key,
        state=state,
        reason=Reason.EXPIRED,
        finished_at=now,
        attempt=attempt,
        schedule_key=work.key,
    )


def completion_of_lost_run(
    row: recovery.ExpiredLease, ticket: Ticket, now: datetime
) -> AttemptCompletion:
    """What becomes of a run that started and was not heard of again. Pure."""
    message = f"{row.holder} was not heard of again"
    failure = Failure(LEASE_EXPIRED, message, immediate=True)
    state, reason, at = _becomes(row, ticket, failure, now)
    return AttemptCompletion(
        row.key,
        row.token,
        state,
        LEASE_EXPIRED,
        row.started_at,
        now,
        reason=reason,
        next_attempt_at=at,
        staged_at=at,
        error_code=failure.code,
        error=failure.message,
    )


def _becomes(
    row: recovery.ExpiredLease, ticket: Ticket, failure: Failure, now: datetime
) -> tuple[RunState, str | None, datetime | None]:
    if row.stop_reason is not None:
        return RunState.CANCELLED, row.stop_reason, None
    match ticket.run_spec.on_unknown:
        case OnUnknown.SKIP:
            return RunState.SKIPPED, Reason.UNKNOWN_OUTCOME, None
        case OnUnknown.BLOCK:
            return RunState.UNRESOLVED, Reason.UNKNOWN_OUTCOME, None
        case OnUnknown.RETRY:
            pass
    expires_at = ticket.expires_at
    decided = decide(
        ticket.run_spec.retry,
        row.attempt,
        failure,
        now=now,
        random_fraction=0,
        expires_at=expires_at,
    )
    return state_after(decided)
