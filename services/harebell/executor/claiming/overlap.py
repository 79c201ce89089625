"""Claiming by turns: what is due of schedules that do not run over themselves."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias
from uuid import UUID

import asyncpg
import structlog

from harebell.contract.ids import RunKey
from harebell.contract.ticket import Ticket
from harebell.domain.overlap import OverlapSlot, Proceed, SkipRun, Wait, decide_all
from harebell.domain.run_states import Reason, RunState
from harebell.messaging.event_publisher import OutgoingEvent, publish_events
from harebell.messaging.publisher import Publisher
from harebell.messaging.run_events import run_event_without_attempt, stop_request_message
from harebell.runtime import failpoint
from harebell.runtime.clock import Clock, monotonic
from harebell.storage.runs import claims, overlap, staging
from harebell.storage.runs.overlap import OpenRunRow, Role

Wanted: TypeAlias = Mapping[claims.ClaimKey, Ticket]

log = structlog.get_logger()


async def claim_each_at_due_time(
    tickets: Iterable[Ticket], clock: Clock, claim: Callable[[list[Ticket]], Awaitable[bool]]
) -> bool:
    """Each held unclaimed until its instant: only then is it known what it would run over."""

    async def on_its_instant(ticket: Ticket) -> bool:
        await asyncio.sleep(max(0, clock.to_monotonic(ticket.due_at) - monotonic()))
        return await claim([ticket])

    return all(await asyncio.gather(*map(on_its_instant, tickets)))


@dataclass(slots=True)
class OverlapPlan:
    """What has been decided of a batch."""

    claimed: list[claims.ClaimKey] = field(default_factory=list)
    waiting: list[claims.ClaimKey] = field(default_factory=list)
    skipped: list[claims.ClaimKey] = field(default_factory=list)
    roles: dict[RunKey, Role] = field(default_factory=dict)
    ends: dict[RunKey, tuple[RunState, Reason]] = field(default_factory=dict)
    stops: dict[RunKey, OpenRunRow] = field(default_factory=dict)
    told: dict[RunKey, Ticket] = field(default_factory=dict)  # a ticket of the schedule of each end

    @property
    def decided(self) -> frozenset[claims.ClaimKey]:
        return frozenset([*self.waiting, *self.skipped])


@dataclass(slots=True)
class OverlapClaimer:
    """One transaction a batch: locks, what stands, the pure rule, what it says."""

    pool: asyncpg.Pool
    publisher: Publisher
    clock: Clock
    holder: str
    _telling: set[asyncio.Task[None]] = field(default_factory=set)

    async def claim(
        self, wanted: Wanted
    ) -> tuple[dict[RunKey, claims.Claim], frozenset[claims.ClaimKey]]:
        """What became mine; and what waits or is skipped, so that its ticket is done with."""
        async with self.pool.acquire() as connection, connection.transaction():
            mine, plan = await claim_with_overlap(connection, wanted, self.holder)
            await failpoint.reach("executor.before_overlap_commit")
        if plan.stops or plan.ends:  # apart: what was claimed is not to wait for the broker
            task = asyncio.create_task(self._tell(plan))
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)
        if plan.waiting or plan.ends:
            log.info("not claimed", waiting=len(plan.waiting), given_up=len(plan.ends))
        return mine, plan.decided

    async def _tell(self, plan: OverlapPlan) -> None:
        """After the commit: facts, and orders that the next renewal would bring too."""
        now = self.clock.now()
        holders = [(run.lease_holder, key) for key, run in plan.stops.items() if run.lease_holder]
        await self.publisher.publish_each(
            [stop_request_message(holder, [key]) for holder, key in holders]
        )
        await publish_events(
            self.publisher,
            [
                _fact(plan.told[key], key, state, reason, now)
                for key, (state, reason) in plan.ends.items()
            ],
        )


def _fact(
    ticket: Ticket, key: RunKey, state: RunState, reason: Reason, now: datetime
) -> OutgoingEvent:
    """`ticket`: of any run of its schedule."""
    work = ticket.run_spec
    return run_event_without_attempt(work.tenant, key, state, reason, now, schedule_key=work.key)


async def claim_with_overlap(
    connection: asyncpg.Connection, wanted: Wanted, holder: str
) -> tuple[dict[RunKey, claims.Claim], OverlapPlan]:
    """Within the caller's transaction."""
    await overlap.lock(connection, {each.key.schedule_id for each in wanted})
    found = await overlap.lock_open_run_rows(connection, {each.key for each in wanted})
    plan = OverlapPlan()
    for schedule, candidates in _candidates(wanted, found).items():
        _decide(plan, found[schedule], candidates, wanted)
    mine = await claims.claim(connection, plan.claimed, holder) if plan.claimed else {}
    await overlap.mark_waiting(connection, [each.key for each in plan.waiting])
    await overlap.finish_without_attempt(connection, plan.ends)
    await staging.request_stop(connection, dict.fromkeys(plan.stops, Reason.REPLACED))
    await overlap.save_slots(connection, plan.roles)
    return mine, plan


def _candidates(
    wanted: Wanted, found: Mapping[UUID, Sequence[OpenRunRow]]
) -> dict[UUID, dict[claims.ClaimKey, OverlapSlot]]:
    """Those that their rows would let be claimed, if there were no turns."""
    runs = {run.key: run for of_schedule in found.values() for run in of_schedule}
    chosen: dict[UUID, dict[claims.ClaimKey, OverlapSlot]] = defaultdict(dict)
    for each in wanted:
        run = runs.get(each.key)
        if run is not None and run.can_be_claimed_by(each):
            chosen[each.key.schedule_id][each] = run.slot
    return chosen


def _decide(
    plan: OverlapPlan,
    found: Sequence[OpenRunRow],
    candidates: Mapping[claims.ClaimKey, OverlapSlot],
    wanted: Wanted,
) -> None:
    runs = {run.key.scheduled_for: run for run in found}
    standing = [run.slot for run in found if run.role is not None]
    decided = decide_all(standing, [(wanted[each].overlap, t) for each, t in candidates.items()])
    for each, turn in candidates.items():
        match decided[each.key.scheduled_for]:
            case Proceed(replaced):
                plan.claimed.append(each)
                plan.roles[each.key] = Role.RUNNING
                ends = _replaced(runs, replaced)
            case Wait(replaced, stopped):
                plan.waiting.append(each)
                plan.roles[each.key] = Role.RUNNING if turn.is_running else Role.WAITING
                ends = _replaced(runs, replaced)
                asked = (runs[moment] for moment in stopped)
                plan.stops |= {run.key: run for run in asked if run.reason != Reason.REPLACED}
            case SkipRun(reason):
                plan.skipped.append(each)
                state = RunState.SKIPPED if reason is Reason.OVERLAP else RunState.CANCELLED
                ends = {each.key: (state, reason)}
        plan.ends |= ends
        plan.told |= dict.fromkeys(ends, wanted[each])


def _replaced(
    runs: Mapping[datetime, OpenRunRow], moments: Iterable[datetime]
) -> dict[RunKey, tuple[RunState, Reason]]:
    return {runs[moment].key: (RunState.CANCELLED, Reason.REPLACED) for moment in moments}
