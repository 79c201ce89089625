"""Settling: what came of attempts goes on the record in small batches, and then is told."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

import asyncpg
import structlog

from harebell.contract.errors import DatabaseUnavailable, Transient
from harebell.contract.identity import RunKey
from harebell.executor.core import Claimed, decision, ending
from harebell.executor.targets.outcome import Ended, Success
from harebell.kernel import failpoint, metrics
from harebell.kernel.amqp.consume import pause
from harebell.kernel.amqp.events import Fact, tell
from harebell.kernel.amqp.publish import Publisher
from harebell.kernel.amqp.stories import fact_of
from harebell.kernel.authorising import authorising
from harebell.kernel.clock import Clock
from harebell.kernel.db.engine import passing_faults
from harebell.kernel.db.ledger import endings
from harebell.kernel.ledger import Ending, RunState
from harebell.kernel.settlement import end_and_publish

MAX_ROWS: Final = 500  # of one statement
GATHER: Final = 0.01  # seconds for more to end before a batch goes
STREAMS: Final = 2  # settle connections at once: one alone bounds the drain of a stampede
TELL_EVERY: Final = 0.05  # seconds between messages of facts

Recorded: TypeAlias = tuple[Claimed, Ending]
_T = TypeVar("_T")

log = structlog.get_logger()


@dataclass(slots=True)
class Settler:
    """`freed` is told of every run that is no longer this executor's."""

    pool: asyncpg.Pool
    publisher: Publisher
    clock: Clock
    freed: Callable[[Sequence[Claimed]], None]
    _succeeded: asyncio.Queue[Recorded] = field(default_factory=asyncio.Queue)  # bounded by claims
    _failed: asyncio.Queue[tuple[Claimed, Ended]] = field(default_factory=asyncio.Queue)
    _in_turn: asyncio.Queue[tuple[Claimed, Ended]] = field(default_factory=asyncio.Queue)
    _facts: list[Fact] = field(default_factory=list)

    def settle(self, run: Claimed, outcome: Ended) -> None:
        """Effect first, then the record, then the event."""
        if run.ticket.takes_turns:  # whatever it came to, the next may have to be published
            self._in_turn.put_nowait((run, outcome))
        elif isinstance(outcome, Success):
            self._succeeded.put_nowait((run, ending(run, outcome, None, self.clock.now())))
        else:
            self._failed.put_nowait((run, outcome))

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(STREAMS):
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
        await tell(self.publisher, facts)

    async def _settle_successes(self) -> None:
        """Publishes nothing, so that settling never waits for the broker."""
        while True:
            batch = await _gather(self._succeeded)
            await self._apart(batch, self._succeed)
            _done(self._succeeded, len(batch))

    async def _succeed(self, batch: Sequence[Recorded]) -> None:
        await failpoint.reach("executor.before_settle")
        recorded = await self._record([ended for _, ended in batch])
        self._conclude(batch, recorded)

    async def _apart(
        self, batch: Sequence[tuple[Claimed, _T]], settle: Callable[[Any], Awaitable[None]]
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

    async def _record(self, batch: Sequence[Ending]) -> set[RunKey]:
        """Tried until the database has said what stands; the keys that are on the record."""
        tries = 0
        while True:
            try:
                with passing_faults():
                    moved = set(await endings.end(self.pool, batch))
                    if tries:  # an earlier try may have been committed without our knowing
                        missing = [each for each in batch if each.key not in moved]
                        moved |= await endings.stand(self.pool, missing)
                    return moved
            except DatabaseUnavailable as error:
                log.warning("settle held", runs=len(batch), reason=error.reason)
                await asyncio.sleep(pause(tries))
                tries += 1

    async def _settle_publishing(self, queue: asyncio.Queue[tuple[Claimed, Ended]]) -> None:
        tries = 0
        while True:
            batch = await _gather(queue)
            try:
                await self._apart(batch, partial(self._publish, rest=tries > 0))
                tries = 0
            except Transient as error:
                log.warning("settles held", runs=len(batch), error=error.code)
                tries += 1
                await asyncio.sleep(pause(tries))
                for each in batch:  # the attempt is not on the record: it waits, still leased
                    queue.put_nowait(each)
            _done(queue, len(batch))

    async def _publish(self, batch: Sequence[tuple[Claimed, Ended]], *, rest: bool) -> None:
        """The next step is published, confirmed, and then committed.

        With `rest`, retries lie in the ledger until a ticker stages them, and so do runs that
        wait for their turn: only the dead need the broker, and wait for it by themselves.
        """
        now = self.clock.now()
        ended = [
            (run, ending(run, outcome, decision(run, outcome, now, dice=_dice()), now, rest=rest))
            for run, outcome in batch
        ]
        dead = [each for each in ended if each[1].state is RunState.DEAD]
        others = [each for each in ended if each[1].state is not RunState.DEAD]
        for part in (others, dead) if rest else (ended,):
            if part:
                self._conclude(part, await self._commit(part, waking=not rest))

    async def _commit(self, ended: Sequence[Recorded], *, waking: bool) -> set[RunKey]:
        async with authorising(self.pool, self.publisher, self.clock) as authority:
            of = [(run.ticket, each) for run, each in ended]
            moved = await end_and_publish(authority, of, waking=waking)
            await failpoint.reach("executor.before_failure_commit")
        return moved

    def _conclude(self, ended: Sequence[Recorded], recorded: set[RunKey]) -> None:
        metrics.BATCH.labels("settle").observe(len(ended))
        for run, each in ended:
            if each.key not in recorded:
                metrics.LATE_SETTLES.inc()
                log.warning("late settle refused", run=str(each.key), token=run.token)
                continue
            self._facts.append(fact_of(run.ticket, each, run.attempt))
            if each.error_code is not None:
                log.info(
                    "attempt failed", run=str(each.key), attempt=run.attempt,
                    error=each.error_code, next=each.state,
                )  # fmt: skip
        self.freed([run for run, _ in ended])

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(TELL_EVERY)
            if self._facts:
                facts, self._facts = self._facts, []
                await tell(self.publisher, facts)


def _dice() -> float:
    return random.random()  # noqa: S311  # spread, not secrecy


async def _gather(queue: asyncio.Queue[_T]) -> list[_T]:
    """What is there, and what ends within a moment."""
    batch = [await queue.get()]
    if queue.empty():
        await asyncio.sleep(GATHER)
    while len(batch) < MAX_ROWS and not queue.empty():
        batch.append(queue.get_nowait())
    return batch


def _done(queue: asyncio.Queue[_T], count: int) -> None:
    for _ in range(count):
        queue.task_done()
