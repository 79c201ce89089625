"""The completer, which records the outcomes of attempts in batches and publishes their events."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Final, TypeAlias, TypeVar

import asyncpg
import structlog

from harebell.contract.errors import DatabaseUnavailable, Transient
from harebell.contract.ids import RunKey
from harebell.domain.retry import NO_WAIT, no_min_wait
from harebell.domain.run_states import AttemptCompletion, RunState
from harebell.executor import metrics
from harebell.executor.model.claimed_run import ClaimedRun
from harebell.executor.model.completion import completion_of, decide_next
from harebell.executor.running.claimed_runs import ClaimedRuns
from harebell.executor.running.start_guard import StartGuard
from harebell.executor.targets.attempt import AttemptOutcome, Success
from harebell.ledger.publishing_transaction import publishing_transaction
from harebell.ledger.run_completion import complete_and_publish
from harebell.messaging.event_publisher import OutgoingEvent, publish_events
from harebell.messaging.publisher import Publisher
from harebell.messaging.run_events import run_event
from harebell.runtime import failpoint
from harebell.runtime.clock import Clock
from harebell.runtime.retries import backoff_delay
from harebell.storage.engine import translate_db_errors
from harebell.storage.runs import completion

MAX_ROWS: Final = 500  # of a statement
GATHER_TIME: Final = 0.040  # seconds in which more attempts may join a batch
# Connections that record successes. With one connection, many simultaneous runs complete slowly.
COMPLETION_STREAMS: Final = 2
EVENT_INTERVAL: Final = 0.05  # seconds between two publications of events

CompletedAttempt: TypeAlias = tuple[ClaimedRun, AttemptCompletion]
CompletionQueue: TypeAlias = asyncio.Queue[CompletedAttempt]
Result = TypeVar("Result")

log = structlog.get_logger()


@dataclass(slots=True, kw_only=True)
class Completer:
    """The queues of completed attempts, and the loops that record them.

    The number of claimed runs bounds each queue.
    """

    pool: asyncpg.Pool
    publisher: Publisher
    clock: Clock
    claimed_runs: ClaimedRuns
    start_guard: StartGuard
    retry_min_wait: Callable[[str], timedelta | None] = no_min_wait  # of a tenant
    _successes: CompletionQueue = field(default_factory=asyncio.Queue)
    _late_successes: CompletionQueue = field(default_factory=asyncio.Queue)  # rows were locked
    _failures: CompletionQueue = field(default_factory=asyncio.Queue)
    _with_slot: CompletionQueue = field(default_factory=asyncio.Queue)
    _gathering: asyncio.Lock = field(default_factory=asyncio.Lock)  # two would halve each batch
    _events: list[OutgoingEvent] = field(default_factory=list)

    def complete(self, run: ClaimedRun, outcome: AttemptOutcome, *, is_probe: bool = False) -> None:
        """Decide the next step after an attempt and queue its record.

        The record follows the call of the target, and the event follows the record.
        """
        now = self.clock.now()
        decision = decide_next(
            run,
            outcome,
            now,
            random_fraction=_random_fraction(),
            is_probe=is_probe,
            min_wait=self.retry_min_wait(run.tenant) or NO_WAIT,
        )
        completed = completion_of(run, outcome, decision, now=now, is_probe=is_probe)
        self._queue_for(run, outcome).put_nowait((run, completed))

    async def run(self) -> None:
        """Record and publish completed attempts until the task is cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(COMPLETION_STREAMS):
                group.create_task(self._record_successes())
            serve = partial(self._serve_tenants, group)
            group.create_task(serve(self._late_successes, self._record_late_successes))
            group.create_task(serve(self._failures, self._record_and_publish))
            group.create_task(serve(self._with_slot, self._record_and_publish))
            group.create_task(self._publish_events())

    async def flush(self) -> None:
        """Wait until all attempts in the queues are recorded, and publish their events."""
        await self._successes.join()
        await self._late_successes.join()
        await self._failures.join()
        await self._with_slot.join()
        events, self._events = self._events, []
        await publish_events(self.publisher, events)

    def _queue_for(self, run: ClaimedRun, outcome: AttemptOutcome) -> CompletionQueue:
        if run.ticket.needs_slot:  # any outcome may release a waiting run, with a new ticket
            return self._with_slot
        return self._successes if isinstance(outcome, Success) else self._failures

    async def _record_successes(self) -> None:
        """Record attempts without a new ticket, so that no record waits for RabbitMQ."""
        while True:
            async with self._gathering:
                batch = await self._gather(self._successes)
            await self._isolate_errors(batch, self._record_success_batch)
            _mark_done(self._successes, len(batch))

    async def _record_success_batch(self, batch: Sequence[CompletedAttempt]) -> None:
        """Record the attempts whose rows no other transaction has locked."""
        await failpoint.reach("executor.before_complete")
        completions = [each for _, each in batch]
        moved = await _until_available(partial(completion.complete_free, self.pool, completions))
        recorded = [item for item in batch if item[1].key in moved]
        self._conclude(recorded, set(moved))
        for item in batch:
            if item[1].key not in moved:
                self._late_successes.put_nowait(item)

    async def _record_late_successes(self, batch: Sequence[CompletedAttempt]) -> None:
        """Record attempts of one tenant whose rows were locked, are recorded or are fenced."""
        await self._isolate_errors(batch, self._record_late_batch)

    async def _record_late_batch(self, batch: Sequence[CompletedAttempt]) -> None:
        completions = [each for _, each in batch]
        moved = set(await _until_available(partial(completion.complete, self.pool, completions)))
        moved |= await _until_available(partial(self._find_recorded, completions, moved))
        self._conclude(batch, moved)

    async def _find_recorded(
        self, batch: Sequence[AttemptCompletion], moved: set[RunKey]
    ) -> set[RunKey]:
        """Return the keys that an earlier try has recorded although its response was lost."""
        missing = [each for each in batch if each.key not in moved]
        return await completion.find_recorded(self.pool, missing) if missing else set()

    async def _serve_tenants(
        self,
        group: asyncio.TaskGroup,
        queue: CompletionQueue,
        record: Callable[[Sequence[CompletedAttempt]], Awaitable[None]],
    ) -> None:
        """Record the attempts of each tenant in a task, because its rows may be locked."""
        waiting: dict[str, list[CompletedAttempt]] = {}  # by tenant with a task

        async def record_all(tenant: str) -> None:
            while batch := waiting[tenant][:MAX_ROWS]:
                del waiting[tenant][:MAX_ROWS]
                await record(batch)
                _mark_done(queue, len(batch))
            del waiting[tenant]

        while True:
            for run, completed in await self._gather(queue):
                if run.tenant not in waiting:
                    waiting[run.tenant] = []
                    group.create_task(record_all(run.tenant))
                waiting[run.tenant].append((run, completed))

    async def _record_and_publish(self, batch: Sequence[CompletedAttempt]) -> None:
        """Record the attempts of one tenant and publish the tickets of the next steps."""
        tries = 0
        while batch:
            parts = _split_for_retry(batch) if tries else [batch]
            batch = [
                each
                for part in parts
                for each in await self._try_to_publish(part, is_retry=tries > 0)
            ]
            tries += 1
            if batch:  # the lease keeper renews the leases of these runs until then
                await asyncio.sleep(backoff_delay(tries))

    async def _try_to_publish(
        self, batch: Sequence[CompletedAttempt], *, is_retry: bool
    ) -> Sequence[CompletedAttempt]:
        """Record and publish a batch. Return the attempts that need another try."""
        try:
            await self._isolate_errors(batch, partial(self._commit, is_retry=is_retry))
        except Transient as error:
            log.warning("completion delayed", runs=len(batch), error=error.code)
            return batch
        return ()

    async def _commit(self, batch: Sequence[CompletedAttempt], *, is_retry: bool) -> None:
        moved = await self._complete_and_publish(batch, wakes_next=not is_retry)
        recorded = set(moved)
        if is_retry:
            with translate_db_errors():
                recorded |= await self._find_recorded([each for _, each in batch], recorded)
        self._conclude([(run, moved.get(each.key, each)) for run, each in batch], recorded)

    async def _complete_and_publish(
        self, batch: Sequence[CompletedAttempt], *, wakes_next: bool
    ) -> dict[RunKey, AttemptCompletion]:
        """Publish the tickets, wait for the confirms and commit the records."""
        async with publishing_transaction(self.pool, self.publisher, self.clock) as transaction:
            completed = [(run.ticket, each) for run, each in batch]
            moved = await complete_and_publish(transaction, completed, wakes_next=wakes_next)
            await failpoint.reach("executor.before_failure_commit")
        return moved

    async def _isolate_errors(
        self,
        batch: Sequence[CompletedAttempt],
        record: Callable[[Sequence[CompletedAttempt]], Awaitable[None]],
    ) -> None:
        """Record a batch, and each attempt alone if the database rejects the batch.

        The executor gives up the claim of an attempt that the database rejects alone. Its lease
        then expires, and the rescuer applies the retry policy.
        """
        try:
            return await record(batch)
        except Transient:
            raise
        except Exception:
            log.exception("completion rejected", runs=len(batch))
        if len(batch) == 1:
            return self.claimed_runs.remove([run for run, _ in batch])
        for each in batch:
            await self._isolate_errors([each], record)
        return None

    def _conclude(self, batch: Sequence[CompletedAttempt], recorded: set[RunKey]) -> None:
        """Queue the events of the recorded attempts and remove all runs of the batch."""
        metrics.SQL_ROWS.labels("complete").observe(len(batch))
        for run, each in batch:
            if each.key not in recorded:
                metrics.FENCED_COMPLETIONS.inc()
                log.warning("completion fenced", run=str(each.key), token=run.token)
                continue
            self._events.append(run_event(run.ticket, each, run.attempt))
        self.claimed_runs.remove([run for run, _ in batch])

    async def _gather(self, queue: CompletionQueue) -> list[CompletedAttempt]:
        """Return the attempts that complete within GATHER_TIME.

        A statement costs as much as ten of its rows.
        """
        batch = [await queue.get()]
        if queue.qsize() < MAX_ROWS - 1:
            await asyncio.sleep(GATHER_TIME)
        await self.start_guard.wait_until_clear()
        while len(batch) < MAX_ROWS and not queue.empty():
            batch.append(queue.get_nowait())
        return batch

    async def _publish_events(self) -> None:
        while True:
            await asyncio.sleep(EVENT_INTERVAL)
            await self.start_guard.wait_until_clear()
            if self._events:
                events, self._events = self._events, []
                await publish_events(self.publisher, events)


async def _until_available(statement: Callable[[], Awaitable[Result]]) -> Result:
    """Return the result of a statement, with retries while the database is unavailable."""
    tries = 0
    while True:
        try:
            with translate_db_errors():
                return await statement()
        except DatabaseUnavailable as error:
            log.warning("completion delayed", reason=error.reason)
            await asyncio.sleep(backoff_delay(tries))
            tries += 1


def _split_for_retry(batch: Sequence[CompletedAttempt]) -> list[list[CompletedAttempt]]:
    """Split a batch whose first try failed into dead runs, which need RabbitMQ, and the others.

    The others publish nothing. Retries stay cold until a ticker stages them, as do runs that wait
    for a slot.
    """
    cold = [(run, each._replace(staged_at=None)) for run, each in batch]
    dead = [each for each in cold if each[1].state is RunState.DEAD]
    others = [each for each in cold if each[1].state is not RunState.DEAD]
    return [part for part in (others, dead) if part]


def _random_fraction() -> float:
    return random.random()  # noqa: S311  # the jitter of retries is no secret


def _mark_done(queue: CompletionQueue, count: int) -> None:
    for _ in range(count):
        queue.task_done()
