"""The claim with slots: claims of runs that restrict overlap or have a concurrency label."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

import asyncpg
import structlog

from harebell.contract.ids import RunKey
from harebell.contract.ticket import Ticket
from harebell.domain.concurrency import LabelRole
from harebell.domain.overlap import OverlapSlot, Proceed, SkipRun, Wait, decide_all
from harebell.domain.run_states import Reason, RunState
from harebell.executor import metrics
from harebell.executor.claiming.claimer import ClaimResult, TicketsByKey
from harebell.executor.claiming.labels import decide_labels
from harebell.ledger.woken_runs import labels_of
from harebell.messaging.event_publisher import OutgoingEvent, publish_events
from harebell.messaging.publisher import Publisher
from harebell.messaging.run_events import run_event_without_attempt, stop_request_message
from harebell.runtime import failpoint
from harebell.runtime.clock import Clock, monotonic
from harebell.storage.runs import claims, label_slots, overlap, staging
from harebell.storage.runs.overlap import OpenRunRow, Role

log = structlog.get_logger()


async def claim_each_at_due_time(
    tickets: Iterable[Ticket], clock: Clock, claim: Callable[[list[Ticket]], Awaitable[bool]]
) -> bool:
    """Call `claim` for each ticket at its due time. Return whether all calls returned True.

    The other unfinished runs of a schedule, and its earlier starts, are known only at that time.
    """

    async def claim_at_due_time(ticket: Ticket) -> bool:
        await asyncio.sleep(max(0, clock.to_monotonic(ticket.due_at) - monotonic()))
        return await claim([ticket])

    return all(await asyncio.gather(*map(claim_at_due_time, tickets)))


@dataclass(slots=True, kw_only=True)
class OverlapPlan:
    """The decisions about the tickets of one statement."""

    claimed: list[claims.ClaimKey] = field(default_factory=list)
    waiting: list[claims.ClaimKey] = field(default_factory=list)
    waiting_for_label: list[claims.ClaimKey] = field(default_factory=list)
    skipped: list[claims.ClaimKey] = field(default_factory=list)
    roles: dict[RunKey, Role] = field(default_factory=dict)
    ends: dict[RunKey, tuple[RunState, Reason]] = field(default_factory=dict)
    stops: dict[RunKey, OpenRunRow] = field(default_factory=dict)
    end_tickets: dict[RunKey, Ticket] = field(default_factory=dict)  # of the same schedule

    @property
    def decided(self) -> frozenset[claims.ClaimKey]:
        """Return the keys that wait or are skipped, so that their tickets are done."""
        return frozenset([*self.waiting, *self.waiting_for_label, *self.skipped])


@dataclass(slots=True, kw_only=True)
class OverlapClaimer:
    """The claim strategy for runs that need a slot, in one transaction."""

    pool: asyncpg.Pool
    publisher: Publisher
    clock: Clock
    holder: str
    _publishing: set[asyncio.Task[None]] = field(default_factory=set)

    async def claim(self, tickets: TicketsByKey) -> ClaimResult:
        """Claim in one transaction, or in one for each tenant if a row or a schedule is locked.

        A tenant whose row stays locked gets no claim yet, and delays no other tenant.
        """
        parts = _by_tenant(tickets)
        if len(parts) > 1:
            with suppress(asyncpg.LockNotAvailableError):
                return await self._claim(tickets)
        claimed: dict[RunKey, claims.Claim] = {}
        decided: frozenset[claims.ClaimKey] = frozenset()
        for part in parts:
            with suppress(asyncpg.LockNotAvailableError):
                of_tenant, decided_of_tenant = await self._claim(part)
                claimed |= of_tenant
                decided |= decided_of_tenant
        return claimed, decided

    async def _claim(self, tickets: TicketsByKey) -> ClaimResult:
        """Claim in one transaction. Raise `LockNotAvailableError` after 100 ms for a lock."""
        async with self.pool.acquire() as connection, connection.transaction():
            await overlap.limit_lock_wait(connection)
            claimed, plan = await claim_with_overlap(connection, tickets, self.holder)
            await failpoint.reach("executor.before_overlap_commit")
        if plan.stops or plan.ends:  # in a task, because the claimed runs do not wait for RabbitMQ
            task = asyncio.create_task(self._publish(plan))
            self._publishing.add(task)
            task.add_done_callback(self._publishing.discard)
        metrics.LABEL_WAITS.inc(len(plan.waiting_for_label))
        if plan.waiting or plan.waiting_for_label or plan.ends:
            waiting = len(plan.waiting) + len(plan.waiting_for_label)
            log.info("runs not claimed", waiting=waiting, ended=len(plan.ends))
        return claimed, plan.decided

    async def _publish(self, plan: OverlapPlan) -> None:
        """Publish stop requests and events after the commit.

        The next lease renewal also returns a lost stop request.
        """
        now = self.clock.now()
        holders = [(run.lease_holder, key) for key, run in plan.stops.items() if run.lease_holder]
        await self.publisher.publish_each(
            [stop_request_message(holder, [key]) for holder, key in holders]
        )
        await publish_events(
            self.publisher,
            [
                _event(plan.end_tickets[key], key, end=end, now=now)
                for key, end in plan.ends.items()
            ],
        )


def _by_tenant(tickets: TicketsByKey) -> list[TicketsByKey]:
    parts: dict[str, dict[claims.ClaimKey, Ticket]] = defaultdict(dict)
    for key, ticket in tickets.items():
        parts[ticket.run_spec.tenant][key] = ticket
    return list(parts.values())


def _event(
    ticket: Ticket, key: RunKey, *, end: tuple[RunState, Reason], now: datetime
) -> OutgoingEvent:
    """Return the event of a run that ends without an attempt. The ticket is of its schedule."""
    state, reason = end
    run_spec = ticket.run_spec
    return run_event_without_attempt(
        run_spec.tenant,
        key,
        state=state,
        reason=reason,
        finished_at=now,
        schedule_key=run_spec.key,
    )


async def claim_with_overlap(
    connection: asyncpg.Connection, tickets: TicketsByKey, holder: str
) -> tuple[dict[RunKey, claims.Claim], OverlapPlan]:
    """Lock the open runs, apply the overlap policies and the labels, and write the decisions.

    A run that waits for its label keeps its overlap slot.

    The caller commits the transaction.
    """
    schedules = {ticket.schedule_id for ticket in tickets.values() if ticket.restricts_overlap}
    await overlap.lock(connection, schedules, labels_of(tickets.values()))
    open_runs = await overlap.lock_open_run_rows(connection, {key.key for key in tickets})
    plan = OverlapPlan()
    for schedule, candidates in _candidates(tickets, open_runs).items():
        _decide(plan, open_runs[schedule], candidates=candidates, tickets=tickets)
    decisions = await decide_labels(connection, {key: tickets[key] for key in plan.claimed})
    waiting = {each.key for each in decisions if each.slot.role is LabelRole.WAITING}
    plan.waiting_for_label = [key for key in plan.claimed if key.key in waiting]
    plan.claimed = [key for key in plan.claimed if key.key not in waiting]
    claimed: dict[RunKey, claims.Claim] = {}
    if plan.claimed:
        claimed = await claims.claim_in_transaction(connection, plan.claimed, holder)
    if decisions:
        await label_slots.save(connection, decisions)
    await overlap.mark_waiting(connection, [key.key for key in plan.waiting])
    await overlap.finish_without_attempt(connection, plan.ends)
    await staging.request_stop(connection, dict.fromkeys(plan.stops, Reason.REPLACED))
    await overlap.save_slots(connection, plan.roles)
    return claimed, plan


def _candidates(
    tickets: TicketsByKey, open_runs: Mapping[UUID, Sequence[OpenRunRow]]
) -> dict[UUID, dict[claims.ClaimKey, OverlapSlot]]:
    """Return the keys whose rows permit a claim, apart from the overlap policy, by schedule."""
    rows = {row.key: row for of_schedule in open_runs.values() for row in of_schedule}
    candidates: dict[UUID, dict[claims.ClaimKey, OverlapSlot]] = defaultdict(dict)
    for key in tickets:
        row = rows.get(key.key)
        if row is not None and row.can_be_claimed_by(key):
            candidates[key.key.schedule_id][key] = row.slot
    return candidates


def _decide(
    plan: OverlapPlan,
    open_runs: Sequence[OpenRunRow],
    *,
    candidates: Mapping[claims.ClaimKey, OverlapSlot],
    tickets: TicketsByKey,
) -> None:
    """Add the decisions about the candidates of one schedule to the plan."""
    rows = {row.key.scheduled_for: row for row in open_runs}
    slots = [row.slot for row in open_runs if row.role is not None]
    decisions = decide_all(
        slots, [(tickets[key].overlap, slot) for key, slot in candidates.items()]
    )
    for key, slot in candidates.items():
        match decisions[key.key.scheduled_for]:
            case Proceed(replaced):
                plan.claimed.append(key)
                if tickets[key].restricts_overlap:
                    plan.roles[key.key] = Role.RUNNING
                ends = _replaced_ends(rows, replaced)
            case Wait(replaced, stopped):
                plan.waiting.append(key)
                plan.roles[key.key] = Role.RUNNING if slot.is_running else Role.WAITING
                ends = _replaced_ends(rows, replaced)
                to_stop = (rows[scheduled_for] for scheduled_for in stopped)
                plan.stops |= {row.key: row for row in to_stop if row.reason != Reason.REPLACED}
            case SkipRun(reason):
                plan.skipped.append(key)
                state = RunState.SKIPPED if reason is Reason.OVERLAP else RunState.CANCELLED
                ends = {key.key: (state, reason)}
        plan.ends |= ends
        plan.end_tickets |= dict.fromkeys(ends, tickets[key])


def _replaced_ends(
    rows: Mapping[datetime, OpenRunRow], replaced: Iterable[datetime]
) -> dict[RunKey, tuple[RunState, Reason]]:
    return {rows[time].key: (RunState.CANCELLED, Reason.REPLACED) for time in replaced}
