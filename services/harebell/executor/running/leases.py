"""Leases: renewed together, once a second; the presence queue that says this executor lives."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

import asyncpg
import structlog
from aio_pika.abc import AbstractConnection, AbstractIncomingMessage

from harebell.contract.amqp_names import CONTROL
from harebell.contract.control import StopRequest
from harebell.contract.errors import Transient
from harebell.contract.ids import RunKey
from harebell.contract.json_codec import decode_model, list_adapter
from harebell.executor import metrics
from harebell.executor.model.claimed_run import ClaimedRun
from harebell.executor.running.start_guard import StartGuard
from harebell.messaging.exclusive_consumer import ExclusiveQueue, consume_exclusively
from harebell.messaging.topology.bus import executor_control_key, executor_control_queue
from harebell.runtime.clock import monotonic
from harebell.storage.engine import translate_db_errors
from harebell.storage.runs import claims

LOOK_EVERY: Final = 0.5  # seconds
RENEW_AFTER: Final = 0.75  # seconds since a claim or renewal; so each is renewed every second
AT_A_TIME: Final = 250  # rows of one statement; more would keep the loop from what is due

_STOPS: Final = list_adapter(StopRequest)

log = structlog.get_logger()


@dataclass(slots=True)
class _Asked:
    """Runs that are renewed together before they start; at most one of each slot."""

    runs: list[ClaimedRun] = field(default_factory=list)
    is_over: bool = False
    is_unanswered: bool = False


@dataclass(slots=True)
class LeaseKeeper:
    """Every run that this executor holds. `stop` is told of those asked to stop, and why.

    `present_since`: on the monotonic clock, how long the sign of life has been there unbroken.
    """

    pool: asyncpg.Pool
    lulls: StartGuard = field(default_factory=StartGuard)
    stop: Callable[[Mapping[RunKey, str]], Awaitable[None]] | None = None
    held: dict[RunKey, ClaimedRun] = field(default_factory=dict)
    present_since: float = inf
    _asking: _Asked = field(default_factory=_Asked)
    _renewing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def add(self, runs: Sequence[ClaimedRun]) -> None:
        self.held.update((run.key, run) for run in runs)
        metrics.CLAIMED_RUNS.set(len(self.held))

    def remove(self, runs: Sequence[ClaimedRun]) -> None:
        for run in runs:
            if self._holds(run):
                del self.held[run.key]
        metrics.CLAIMED_RUNS.set(len(self.held))

    def _holds(self, run: ClaimedRun) -> bool:
        return self.held.get(run.key) is run

    async def run(self) -> None:
        """Until cancelled. What is not renewed in time is not started; the sweep takes it."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            try:
                await self._renew_all(self._older_than(RENEW_AFTER))
            except Transient as error:
                log.warning("leases not renewed", runs=len(self.held), reason=error.reason)

    def _older_than(self, seconds: float) -> list[ClaimedRun]:
        since = monotonic() - seconds
        return [run for run in self.held.values() if run.renewed_at < since]

    async def _renew_all(self, runs: Sequence[ClaimedRun]) -> None:
        """But for those that have ended by the time it is their turn."""
        for start in range(0, len(runs), AT_A_TIME):
            await self.lulls.wait_until_clear()
            await self.renew([run for run in runs[start : start + AT_A_TIME] if self._holds(run)])

    async def renew(self, runs: Sequence[ClaimedRun]) -> None:
        """Raises `DatabaseUnavailable`."""
        if not runs:
            return
        sent_at = monotonic()
        held = [claims.Claim(run.key, run.token, run.attempt, run.started_at) for run in runs]
        with translate_db_errors():
            kept = await claims.renew(self.pool, held)
        metrics.SQL_ROWS.labels("renew").observe(len(held))
        for run in runs:
            if run.key in kept:
                run.renewed_at = sent_at
        stopping = {key: reason for key, reason in kept.items() if reason is not None}
        if stopping and self.stop is not None:
            await self.stop(stopping)

    async def check_stop_requests(self, keys: Sequence[RunKey]) -> None:
        """Orders to stop are hints: renewing asks the ledger. Raises `DatabaseUnavailable`."""
        await self.renew([run for key in keys if (run := self.held.get(key)) is not None])

    async def renew_before_start(self, run: ClaimedRun) -> bool:
        """False when the ledger has not renewed it: it is another's now, or its row is locked.

        Those that ask while a statement is under way are in the next one together.
        """
        asked = self._asking
        asked.runs.append(run)
        async with self._renewing:
            if not asked.is_over:  # whoever is first asks for all
                self._asking = _Asked()
                try:
                    await self._renew_all(asked.runs)
                except Transient:
                    asked.is_unanswered = True
                asked.is_over = True
        if asked.is_unanswered:  # the lease decides, of whom nobody took for dead
            return run.renewed_at > self.present_since
        return run.is_fresh(monotonic())


async def consume_control_queue(
    connect: Callable[[], Awaitable[AbstractConnection]], holder: str, leases: LeaseKeeper
) -> None:
    """Until cancelled. The queue is a sign of life, and brings orders to stop."""

    async def ordered(message: AbstractIncomingMessage) -> None:
        await leases.check_stop_requests(
            [RunKey.parse(each.run_id) for each in decode_model(_STOPS, message.body)]
        )

    async def opened() -> None:
        leases.present_since = monotonic()

    def lost() -> None:
        leases.present_since = inf

    ear = ExclusiveQueue(executor_control_queue(holder), [(CONTROL, executor_control_key(holder))])
    await consume_exclusively(connect, ear, ordered, opened=opened, lost=lost)
