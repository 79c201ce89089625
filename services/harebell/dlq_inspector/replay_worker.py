"""Replays of many: starts and steers them, and carries each on, a small transaction at a time."""

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Final
from uuid import UUID

import asyncpg
import structlog

from harebell.contract.accepted_commands import AcceptedCommand, AcceptedCommands
from harebell.contract.commands import ReplayJobCommand, ReplayJobStart
from harebell.contract.errors import NotFound, Rejected, Transient
from harebell.contract.ids import replay_job_id
from harebell.contract.responses import ErrorResponse, ReplayJobResponse, error_response
from harebell.dlq_inspector import metrics
from harebell.dlq_inspector.model.replay_job import (
    Finish,
    ReplayJob,
    TakeBatch,
    next_state,
    next_step,
)
from harebell.dlq_inspector.model.results import ResultStatus
from harebell.dlq_inspector.replay import ReplayRequest, start_replays
from harebell.dlq_inspector.store import replay_jobs
from harebell.messaging.publisher import Publisher
from harebell.messaging.ticket_batches import TicketHeader
from harebell.runtime import failpoint
from harebell.runtime.clock import Clock
from harebell.storage.engine import translate_db_errors
from harebell.storage.publishing_transaction import PublishingTransaction, publishing_transaction

POLL_INTERVAL: Final = 5.0  # seconds; another inspector may have been told of a replay, and died
MAX_JOBS_PER_POLL: Final = (
    10  # replays that are looked at in turn, so that none waits for another's end
)
SHORTEST: Final = 0.01  # seconds between looks
HELD: Final = 1.0  # seconds until a passing fault is tried again
DONE: Final = {
    "dlq.replay_job.pause": "paused",
    "dlq.replay_job.resume": "resumed",
    "dlq.replay_job.abort": "aborted",
}

log = structlog.get_logger()


class ReplayWorker:
    """The set of a replay is frozen when it starts; the rows say how far it is, whoever works."""

    def __init__(self, pool: asyncpg.Pool, publisher: Publisher, clock: Clock) -> None:
        self._pool = pool
        self._publisher = publisher
        self._clock = clock
        self._told = asyncio.Event()

    async def start(
        self, change: AcceptedCommands, item: AcceptedCommand, command: ReplayJobStart
    ) -> ReplayJobResponse | ErrorResponse:
        if command.dry_run:
            with translate_db_errors():
                async with self._pool.acquire() as connection:
                    total = await replay_jobs.count(connection, change.tenant, command)
            return ReplayJobResponse(status="previewed", total=total)
        try:
            job = await self._open(change, item, command)
        except NotFound as error:
            return error_response(error)
        self._told.set()
        log.info("replay started", job=str(job.id), actor=change.actor, letters=job.total)
        return ReplayJobResponse(id=job.id, status="started", state=job.state, total=job.total)

    async def _open(
        self, change: AcceptedCommands, item: AcceptedCommand, command: ReplayJobStart
    ) -> ReplayJob:
        """The same command again finds what it opened: intake lets none in without a request id."""
        index = None if change.single else item.index
        id_ = replay_job_id(change.tenant, item.request_id or "", index)
        with translate_db_errors():
            async with self._pool.acquire() as connection, connection.transaction():
                await replay_jobs.create_replay_job(
                    connection, change.tenant, id_, command, change.actor
                )
                job = await replay_jobs.lock(connection, change.tenant, id_)
        if job is None:
            raise NotFound(f"there is no replay {id_}")
        return job

    async def change_state(
        self, change: AcceptedCommands, command: ReplayJobCommand
    ) -> ReplayJobResponse | ErrorResponse:
        """Pause it, resume it, or abort it."""
        with translate_db_errors():
            async with self._pool.acquire() as connection, connection.transaction():
                job = await replay_jobs.lock(connection, change.tenant, command.id)
                if job is None:
                    return error_response(NotFound(f"there is no replay {command.id}", field="job"))
                state = next_state(change.verb, job.state)
                if state is not None:
                    await replay_jobs.change(connection, job.id, state, actor=change.actor)
        self._told.set()
        status = "unchanged" if state is None else DONE[change.verb]
        log.info("replay steered", job=str(job.id), actor=change.actor, status=status)
        return ReplayJobResponse(
            id=job.id, status=status, state=state or job.state, total=job.total
        )

    async def run(self) -> None:
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
        with translate_db_errors():
            async with self._pool.acquire() as connection:
                due = await replay_jobs.due(connection, MAX_JOBS_PER_POLL)
        for id_ in due:
            await self._carry_on(id_)
        with translate_db_errors():
            async with self._pool.acquire() as connection:
                at = await replay_jobs.next_due(connection)
        wait = POLL_INTERVAL if at is None else (at - self._clock.now()).total_seconds()
        return min(max(wait, SHORTEST), POLL_INTERVAL)

    async def _carry_on(self, id_: UUID) -> None:
        """One that cannot go on is halted, and stops no other. Raises `Transient`."""
        try:
            async with publishing_transaction(
                self._pool, self._publisher, self._clock
            ) as authority:
                job = await replay_jobs.lock_due(authority.connection, id_)
                if job is not None:
                    await _step(authority, job)
            await failpoint.reach("dlq_inspector.replay_committed")
        except (asyncpg.PostgresError, Rejected, ValueError) as error:
            log.exception("a replay is halted", job=str(id_))
            with translate_db_errors():
                async with self._pool.acquire() as connection:
                    await replay_jobs.pause_with_reason(connection, id_, str(error))


async def _step(authority: PublishingTransaction, job: ReplayJob) -> None:
    """Its letters, their runs, its counts and the tickets stand or fall together."""
    succeeded, failed = await replay_jobs.count_outcomes(authority.connection, job)
    job = replace(job, succeeded=job.succeeded + succeeded, failed=job.failed + failed)
    step = next_step(job, authority.now())
    match step:
        case Finish():
            await replay_jobs.finish(authority.connection, job, step)
            log.info("replay finished", job=str(job.id), state=step.state, reason=step.reason)
        case TakeBatch():
            await _take(authority, job, step)


async def _take(authority: PublishingTransaction, job: ReplayJob, step: TakeBatch) -> None:
    connection = authority.connection
    order = ReplayRequest(job.tenant, job.actor, job.note, job.pool)
    results, tickets = await start_replays(
        connection, order, await replay_jobs.take(connection, job, step.number)
    )
    replayed = Counter(results.values())[ResultStatus.REPLAYED]
    await replay_jobs.record_results(connection, job, results)
    taken = replace(job, taken=job.taken + len(results), replayed=job.replayed + replayed)
    await replay_jobs.save(connection, taken, step)
    await failpoint.reach("dlq_inspector.replay_taken")
    await authority.publish(map(TicketHeader.of, tickets))
    await failpoint.reach("dlq_inspector.replay_published")
    metrics.REPLAYED_RUNS.inc(replayed)
