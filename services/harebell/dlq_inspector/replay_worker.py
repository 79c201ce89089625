"""The replay worker: the start, the changes of state and the batches of replay jobs."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final, assert_never
from uuid import UUID

import asyncpg
import structlog

from harebell.contract.accepted_commands import AcceptedCommand, AcceptedCommands
from harebell.contract.commands import ReplayJobCommand, ReplayJobStart
from harebell.contract.errors import NotFound, Transient
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
from harebell.ledger.publishing_transaction import PublishingTransaction, publishing_transaction
from harebell.messaging.publisher import Publisher
from harebell.messaging.ticket_batches import TicketHeader
from harebell.runtime import failpoint
from harebell.runtime.clock import Clock
from harebell.storage.engine import translate_db_errors

# Another dlq_inspector may have stopped after it accepted a replay job, so every process polls.
POLL_INTERVAL: Final = 5.0  # seconds
MIN_POLL_INTERVAL: Final = 0.01  # seconds
RETRY_PAUSE: Final = 1.0  # seconds after a transient error
MAX_JOBS_PER_POLL: Final = 10  # one step of each job, so no job waits for the end of another job
STATUSES: Final[Mapping[str, str]] = {
    "dlq.replay_job.pause": "paused",
    "dlq.replay_job.resume": "resumed",
    "dlq.replay_job.abort": "aborted",
}

log = structlog.get_logger()


class ReplayWorker:
    """The worker that replays the fixed set of each replay job in small transactions.

    The rows contain the progress of a job, so any dlq_inspector can continue the job.
    """

    def __init__(self, *, pool: asyncpg.Pool, publisher: Publisher, clock: Clock) -> None:
        self._pool = pool
        self._publisher = publisher
        self._clock = clock
        self._changed = asyncio.Event()

    async def start(
        self, commands: AcceptedCommands, item: AcceptedCommand, command: ReplayJobStart
    ) -> ReplayJobResponse | ErrorResponse:
        """Create a replay job, or count its dead letters for a dry run."""
        if command.dry_run:
            with translate_db_errors():
                async with self._pool.acquire() as connection:
                    total = await replay_jobs.count_selected(connection, commands.tenant, command)
            return ReplayJobResponse(status="previewed", total=total)
        try:
            job = await self._create(commands, item, command)
        except NotFound as error:
            return error_response(error)
        self._changed.set()
        log.info("replay job started", id=str(job.id), actor=commands.actor, total=job.total)
        return ReplayJobResponse(id=job.id, status="started", state=job.state, total=job.total)

    async def _create(
        self, commands: AcceptedCommands, item: AcceptedCommand, command: ReplayJobStart
    ) -> ReplayJob:
        # a repeated command has the same request id, which intake requires, and finds the job
        index = None if commands.single else item.index
        id_ = replay_job_id(commands.tenant, item.request_id or "", index)
        with translate_db_errors():
            async with self._pool.acquire() as connection, connection.transaction():
                await replay_jobs.create_replay_job(
                    connection, command, id_=id_, tenant=commands.tenant, actor=commands.actor
                )
                job = await replay_jobs.lock(connection, commands.tenant, id_)
        if job is None:
            raise NotFound(f"The tenant has no replay job {id_}.")
        return job

    async def change_state(
        self, commands: AcceptedCommands, command: ReplayJobCommand
    ) -> ReplayJobResponse | ErrorResponse:
        """Pause, resume or abort a replay job."""
        with translate_db_errors():
            async with self._pool.acquire() as connection, connection.transaction():
                job = await replay_jobs.lock(connection, commands.tenant, command.id)
                if job is None:
                    reason = f"The tenant has no replay job {command.id}."
                    return error_response(NotFound(reason, field="id"))
                state = next_state(commands.verb, job.state)
                if state is not None:
                    await replay_jobs.change_state(connection, job.id, state, actor=commands.actor)
        self._changed.set()
        status = "unchanged" if state is None else STATUSES[commands.verb]
        log.info("replay job changed", id=str(job.id), actor=commands.actor, status=status)
        return ReplayJobResponse(
            id=job.id, status=status, state=state or job.state, total=job.total
        )

    async def run(self) -> None:
        """Advance the due replay jobs until the task is cancelled."""
        while True:
            try:
                pause = await self._advance_due_jobs()
            except Transient as error:
                log.warning("replay job poll failed", reason=error.reason)
                pause = RETRY_PAUSE
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._changed.wait()
            self._changed.clear()

    async def _advance_due_jobs(self) -> float:
        """Execute one step of each due job. Return the seconds until the next job is due."""
        with translate_db_errors():
            async with self._pool.acquire() as connection:
                due = await replay_jobs.find_due(connection, MAX_JOBS_PER_POLL)
        for id_ in due:
            await self._advance(id_)
        with translate_db_errors():
            async with self._pool.acquire() as connection:
                at = await replay_jobs.next_check_time(connection)
        pause = POLL_INTERVAL if at is None else (at - self._clock.now()).total_seconds()
        return min(max(pause, MIN_POLL_INTERVAL), POLL_INTERVAL)

    async def _advance(self, id_: UUID) -> None:
        """Execute one step of the job. Pause the job after an error that is not transient.

        Raise `Transient` otherwise, with the job unchanged.
        """
        try:
            async with publishing_transaction(
                self._pool, self._publisher, self._clock
            ) as transaction:
                job = await replay_jobs.lock_due(transaction.connection, id_)
                replayed = 0 if job is None else await _execute_step(transaction, job)
            metrics.REPLAYED_RUNS.inc(replayed)
            await failpoint.reach("dlq_inspector.replay_committed")
        except Transient:
            raise
        except Exception as error:  # any row of a job may raise any error
            log.exception("replay job paused", id=str(id_))
            reason = f"{type(error).__name__}: {error}"
            with translate_db_errors():
                async with self._pool.acquire() as connection:
                    await replay_jobs.pause_with_reason(connection, id_, reason)


async def _execute_step(transaction: PublishingTransaction, job: ReplayJob) -> int:
    """Execute the next step of the job. Return the number of replayed runs."""
    succeeded, failed = await replay_jobs.count_outcomes(transaction.connection, job)
    job = replace(job, succeeded=job.succeeded + succeeded, failed=job.failed + failed)
    step = next_step(job, transaction.now())
    match step:
        case Finish():
            await replay_jobs.finish(transaction.connection, job, step)
            log.info("replay job finished", id=str(job.id), state=step.state, reason=step.reason)
            return 0
        case TakeBatch():
            return await _replay_batch(transaction, job, step)
        case _:
            assert_never(step)


async def _replay_batch(transaction: PublishingTransaction, job: ReplayJob, step: TakeBatch) -> int:
    connection = transaction.connection
    request = ReplayRequest(tenant=job.tenant, actor=job.actor, note=job.note, pool=job.pool)
    ids = await replay_jobs.take(connection, job, step.count)
    replays = await start_replays(connection, request, ids)  # a job has only runs
    replayed = list(replays.results.values()).count(ResultStatus.REPLAYED)
    await replay_jobs.record_results(connection, job, replays.results)
    taken = replace(job, taken=job.taken + len(replays.results), replayed=job.replayed + replayed)
    await replay_jobs.save(connection, taken, step)
    await failpoint.reach("dlq_inspector.replay_taken")
    await transaction.publish(map(TicketHeader.of, replays.tickets))
    await failpoint.reach("dlq_inspector.replay_published")
    return replayed
