"""Replays of many: starts and steers them, and carries each on, a small transaction at a time."""

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Final
from uuid import UUID

import asyncpg
import structlog

from harebell.contract.answers import JobAnswer, Refusal, refusal
from harebell.contract.changes import Change, ChangeItem
from harebell.contract.commands import DlqJobCommand, DlqStart
from harebell.contract.errors import NotFound, Rejected, Transient
from harebell.contract.identity import replay_id
from harebell.dlq_inspector import jobs
from harebell.dlq_inspector.core.replay import Finish, Job, Take, changed, next_step
from harebell.dlq_inspector.core.verdict import Status
from harebell.dlq_inspector.series import Order, begin
from harebell.kernel import failpoint, metrics
from harebell.kernel.amqp.publish import Publisher
from harebell.kernel.authorising import Authority, authorising
from harebell.kernel.clock import Clock
from harebell.kernel.db.engine import passing_faults
from harebell.kernel.routing import Routed

LOOK_EVERY: Final = 5.0  # seconds; another inspector may have been told of a replay, and died
AT_ONCE: Final = 10  # replays that are looked at in turn, so that none waits for another's end
SHORTEST: Final = 0.01  # seconds between looks
HELD: Final = 1.0  # seconds until a passing fault is tried again
DONE: Final = {"dlq.pause": "paused", "dlq.resume": "resumed", "dlq.abort": "aborted"}

log = structlog.get_logger()


class Foreman:
    """The set of a replay is frozen when it starts; the rows say how far it is, whoever works."""

    def __init__(self, pool: asyncpg.Pool, publisher: Publisher, clock: Clock) -> None:
        self._pool = pool
        self._publisher = publisher
        self._clock = clock
        self._told = asyncio.Event()

    async def start(
        self, change: Change, item: ChangeItem, command: DlqStart
    ) -> JobAnswer | Refusal:
        if command.dry_run:
            with passing_faults():
                async with self._pool.acquire() as connection:
                    total = await jobs.count(connection, change.tenant, command)
            return JobAnswer(status="previewed", total=total)
        try:
            job = await self._open(change, item, command)
        except NotFound as error:
            return refusal(error)
        self._told.set()
        log.info("replay started", job=str(job.id), actor=change.actor, letters=job.total)
        return JobAnswer(job=job.id, status="started", state=job.state, total=job.total)

    async def _open(self, change: Change, item: ChangeItem, command: DlqStart) -> Job:
        """The same command again finds what it opened: intake lets none in without a request id."""
        index = None if change.single else item.index
        id_ = replay_id(change.tenant, item.request_id or "", index)
        with passing_faults():
            async with self._pool.acquire() as connection, connection.transaction():
                await jobs.open_job(connection, change.tenant, id_, command, change.actor)
                job = await jobs.lock(connection, change.tenant, id_)
        if job is None:
            raise NotFound(f"there is no replay {id_}")
        return job

    async def steer(self, change: Change, command: DlqJobCommand) -> JobAnswer | Refusal:
        """Pause it, resume it, or abort it."""
        with passing_faults():
            async with self._pool.acquire() as connection, connection.transaction():
                job = await jobs.lock(connection, change.tenant, command.job)
                if job is None:
                    return refusal(NotFound(f"there is no replay {command.job}", field="job"))
                state = changed(change.verb, job.state)
                if state is not None:
                    await jobs.change(connection, job.id, state, actor=change.actor)
        self._told.set()
        status = "unchanged" if state is None else DONE[change.verb]
        log.info("replay steered", job=str(job.id), actor=change.actor, status=status)
        return JobAnswer(job=job.id, status=status, state=state or job.state, total=job.total)

    async def work(self) -> None:
        """Until cancelled."""
        while True:
            try:
                wait = await self._look()
            except Transient as error:
                log.warning("replays are held", reason=error.reason)
                wait = HELD
            try:
                async with asyncio.timeout(wait):
                    await self._told.wait()
            except TimeoutError:
                pass
            self._told.clear()

    async def _look(self) -> float:
        """A step of each that is due; seconds until the next is."""
        with passing_faults():
            async with self._pool.acquire() as connection:
                due = await jobs.due(connection, AT_ONCE)
        for id_ in due:
            await self._carry_on(id_)
        with passing_faults():
            async with self._pool.acquire() as connection:
                at = await jobs.next_due(connection)
        wait = LOOK_EVERY if at is None else (at - self._clock.now()).total_seconds()
        return min(max(wait, SHORTEST), LOOK_EVERY)

    async def _carry_on(self, id_: UUID) -> None:
        """One that cannot go on is halted, and stops no other. Raises `Transient`."""
        try:
            async with authorising(self._pool, self._publisher, self._clock) as authority:
                job = await jobs.lock_due(authority.connection, id_)
                if job is not None:
                    await _step(authority, job)
            await failpoint.reach("dlq_inspector.replay_committed")
        except (asyncpg.PostgresError, Rejected, ValueError) as error:
            log.exception("a replay is halted", job=str(id_))
            with passing_faults():
                async with self._pool.acquire() as connection:
                    await jobs.halt(connection, id_, str(error))


async def _step(authority: Authority, job: Job) -> None:
    """Its letters, their runs, its counts and the tickets stand or fall together."""
    succeeded, failed = await jobs.observe(authority.connection, job)
    job = replace(job, succeeded=job.succeeded + succeeded, failed=job.failed + failed)
    step = next_step(job, authority.now())
    match step:
        case Finish():
            await jobs.finish(authority.connection, job, step)
            log.info("replay finished", job=str(job.id), state=step.state, reason=step.reason)
        case Take():
            await _take(authority, job, step)


async def _take(authority: Authority, job: Job, step: Take) -> None:
    connection = authority.connection
    order = Order(job.tenant, job.actor, job.note, job.pool)
    results, tickets = await begin(connection, order, await jobs.take(connection, job, step.number))
    replayed = Counter(results.values())[Status.REPLAYED]
    await jobs.mark(connection, job, results)
    taken = replace(job, taken=job.taken + len(results), replayed=job.replayed + replayed)
    await jobs.save(connection, taken, step)
    await failpoint.reach("dlq_inspector.replay_taken")
    await authority.publish(map(Routed.of, tickets))
    await failpoint.reach("dlq_inspector.replay_published")
    metrics.REPLAYS.inc(replayed)
