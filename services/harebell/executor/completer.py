"""Settling: what came of attempts goes on the record in small batches, and then is told."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

import asyncpg
import structlog

from harebell.contract.errors import DatabaseUnavailable, Transient
from harebell.contract.ids import RunKey
from harebell.domain.run_states import AttemptCompletion, RunState
from harebell.executor import metrics
from harebell.executor.model.claimed_run import ClaimedRun
from harebell.executor.model.completion import completion_of, decide_next
from harebell.executor.running.start_guard import StartGuard
from harebell.executor.targets.attempt import AttemptOutcome, Success
from harebell.messaging.event_publisher import OutgoingEvent, publish_events
from harebell.messaging.publisher import Publisher
from harebell.messaging.run_events import run_event
from harebell.runtime import failpoint
from harebell.runtime.clock import Clock
from harebell.runtime.retries import backoff_delay
from harebell.storage.engine import translate_db_errors
from harebell.storage.publishing_transaction import publishing_transaction
from harebell.storage.run_completion import complete_and_publish
from harebell.storage.runs import completion

MAX_ROWS: Final = 500  # of one statement
GATHER_TIME: Final = 0.040  # seconds for more to end before a batch goes
COMPLETION_STREAMS: Final = (
    2  # settle connections at once: one alone bounds the drain of a stampede
)
TELL_EVERY: Final = 0.05  # seconds between messages of facts

CompletedAttempt: TypeAlias = tuple[ClaimedRun, AttemptCompletion]

log = structlog.get_logger()


@dataclass(slots=True)
class Completer:
    """`freed` is told of every run that is no longer this executor's."""

    pool: asyncpg.Pool
    publisher: Publisher
    clock: Clock
    freed: Callable[[Sequence[ClaimedRun]], None]
    lulls: StartGuard = field(default_factory=StartGuard)
    _succeeded: asyncio.Queue[CompletedAttempt] = field(
        default_factory=asyncio.Queue
    )  # bounded by claims
    _failed: asyncio.Queue[CompletedAttempt] = field(default_factory=asyncio.Queue)
    _in_turn: asyncio.Queue[CompletedAttempt] = field(default_factory=asyncio.Queue)
    _gathering: asyncio.Lock = field(default_factory=asyncio.Lock)  # two would halve each batch
    _facts: list[OutgoingEvent] = field(default_factory=list)

    def complete(self, run: ClaimedRun, outcome: AttemptOutcome) -> None:
        """Effect first, then the record, then the event. What comes next is decided once."""
        now = self.clock.now()
        decided = decide_next(run, outcome, now, dice=_dice())
        self._queue(run, outcome).put_nowait((run, completion_of(run, outcome, decided, now)))

    def _queue(self, run: ClaimedRun, outcome: AttemptOutcome) -> asyncio.Queue[CompletedAttempt]:
        if run.ticket.restricts_overlap:  # whatever it came to, the next may have to be published
            return self._in_turn
        return self._succeeded if isinstance(outcome, Success) else self._failed

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(COMPLETION_STREAMS):
                group.create_task(self._settle_successes())
            for queue in (self._failed, self._in_turn):
                group.create_task(self._settle_publishing(queue))
            group.create_task(self._tell())

    async def flush(self) -> None:
        """Returns when everything handed in so far is on the record and told."""
        await self._succeeded.join()
        await self._failed.join()
        await self._in_turn.join()
        facts, self._facts = self._facts, []
        await publish_events(self.publisher, facts)

    async def _settle_successes(self) -> None:
        """Publishes nothing, so that settling never waits for the broker."""
        while True:
            async with self._gathering:
                batch = await self._gather(self._succeeded)
            await self._apart(batch, self._succeed)
            _done(self._succeeded, len(batch))

    async def _succeed(self, batch: Sequence[CompletedAttempt]) -> None:
        await failpoint.reach("executor.before_complete")
        recorded = await self._record([ended for _, ended in batch])
        self._conclude(batch, recorded)

    async def _apart(
        self,
        batch: Sequence[CompletedAttempt],
        settle: Callable[[Sequence[CompletedAttempt]], Awaitable[None]],
    ) -> None:
        """A batch that the database refuses is settled one by one: one run spoils no other's.

        What it refuses alone is let go: its lease lapses, and the retry rule ends it.
        """
        try:
            return await settle(batch)
        except Transient:
            raise
        except Exception:
            log.exception("settle refused", runs=len(batch))
        if len(batch) == 1:
            return self.freed([run for run, _ in batch])
        for each in batch:
            await self._apart([each], settle)
        return None

    async def _record(self, batch: Sequence[AttemptCompletion]) -> set[RunKey]:
        """Tried until the database has said what stands; the keys that are on the record."""
        tries = 0
        while True:
            try:
                with translate_db_errors():
                    moved = set(await completion.complete(self.pool, batch))
                    return moved | await self._standing(batch, moved) if tries else moved
            except DatabaseUnavailable as error:
                log.warning("settle held", runs=len(batch), reason=error.reason)
                await asyncio.sleep(backoff_delay(tries))
                tries += 1

    async def _standing(
        self, batch: Sequence[AttemptCompletion], moved: set[RunKey]
    ) -> set[RunKey]:
        """What an earlier try has put on the record without our knowing."""
        missing = [each for each in batch if each.key not in moved]
        return await completion.find_recorded(self.pool, missing) if missing else set()

    async def _settle_publishing(self, queue: asyncio.Queue[CompletedAttempt]) -> None:
        tries = 0
        while True:
            batch = await self._gather(queue)
            parts = _resting(batch) if tries else [batch]
            held = [each for part in parts for each in await self._publish(part, again=tries > 0)]
            tries = tries + 1 if held else 0
            if held:  # not on the record: they wait, still leased
                await asyncio.sleep(backoff_delay(tries))
            for each in held:
                queue.put_nowait(each)
            _done(queue, len(batch))

    async def _publish(
        self, batch: Sequence[CompletedAttempt], *, again: bool
    ) -> Sequence[CompletedAttempt]:
        """The next step is published, confirmed, and then committed. What must be tried again."""
        try:
            await self._apart(batch, partial(self._commit, again=again))
        except Transient as error:
            log.warning("settles held", runs=len(batch), error=error.code)
            return batch
        return ()

    async def _commit(self, batch: Sequence[CompletedAttempt], *, again: bool) -> None:
        moved = await self._end(batch, waking=not again)
        recorded = set(moved)
        if again:
            with translate_db_errors():
                recorded |= await self._standing([each for _, each in batch], recorded)
        self._conclude([(run, moved.get(each.key, each)) for run, each in batch], recorded)

    async def _end(
        self, batch: Sequence[CompletedAttempt], *, waking: bool
    ) -> dict[RunKey, AttemptCompletion]:
        async with publishing_transaction(self.pool, self.publisher, self.clock) as authority:
            of = [(run.ticket, each) for run, each in batch]
            moved = await complete_and_publish(authority, of, wakes_next=waking)
            await failpoint.reach("executor.before_failure_commit")
        return moved

    def _conclude(self, ended: Sequence[CompletedAttempt], recorded: set[RunKey]) -> None:
        metrics.SQL_ROWS.labels("complete").observe(len(ended))
        for run, each in ended:
            if each.key not in recorded:
                metrics.FENCED_COMPLETIONS.inc()
                log.warning("late settle refused", run=str(each.key), token=run.token)
                continue
            self._facts.append(run_event(run.ticket, each, run.attempt))
            if each.error_code is not None:
                log.info(
                    "attempt failed", run=str(each.key), attempt=run.attempt,
                    error=each.error_code, next=each.state,
                )  # fmt: skip
        self.freed([run for run, _ in ended])

    async def _gather(self, queue: asyncio.Queue[CompletedAttempt]) -> list[CompletedAttempt]:
        """What is there, and what ends within a moment: a statement costs as much as ten rows."""
        batch = [await queue.get()]
        if queue.qsize() < MAX_ROWS - 1:
            await asyncio.sleep(GATHER_TIME)
        await self.lulls.wait_until_clear()
        while len(batch) < MAX_ROWS and not queue.empty():
            batch.append(queue.get_nowait())
        return batch

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(TELL_EVERY)
            await self.lulls.wait_until_clear()
            if self._facts:
                facts, self._facts = self._facts, []
                await publish_events(self.publisher, facts)


def _resting(batch: Sequence[CompletedAttempt]) -> list[list[CompletedAttempt]]:
    """After a try that failed, apart: what needs no broker any more, and the dead, which do.

    Retries rest in the ledger until a ticker stages them; so do runs that wait for their turn.
    """
    resting = [(run, each._replace(staged_at=None)) for run, each in batch]
    dead = [each for each in resting if each[1].state is RunState.DEAD]
    others = [each for each in resting if each[1].state is not RunState.DEAD]
    return [part for part in (others, dead) if part]


def _dice() -> float:
    return random.random()  # noqa: S311  # spread, not secrecy


def _done(queue: asyncio.Queue[CompletedAttempt], count: int) -> None:
    for _ in range(count):
        queue.task_done()
