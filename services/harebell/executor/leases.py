"""Leases: renewed together, once a second; the presence queue that says this executor lives."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

import asyncpg
import structlog
from aio_pika.abc import AbstractConnection, AbstractIncomingMessage

from harebell.contract.codec import bundle_of, read
from harebell.contract.errors import Transient
from harebell.contract.identity import RunKey
from harebell.contract.names import CONTROL
from harebell.contract.stop import Stop
from harebell.executor.core import Claimed
from harebell.executor.lulls import Lulls
from harebell.kernel import metrics
from harebell.kernel.amqp.listening import Ear, keep_listening
from harebell.kernel.bus import control_key, control_queue
from harebell.kernel.clock import monotonic
from harebell.kernel.db.engine import passing_faults
from harebell.kernel.db.ledger import claims

LOOK_EVERY: Final = 0.5  # seconds
YOUNG: Final = 0.75  # seconds since a claim or renewal; so each is renewed every second
AT_A_TIME: Final = 250  # rows of one statement; more would keep the loop from what is due

_STOPS: Final = bundle_of(Stop)

log = structlog.get_logger()


@dataclass(slots=True)
class _Asked:
    """Runs that are renewed together before they start; at most one of each slot."""

    runs: list[Claimed] = field(default_factory=list)
    is_over: bool = False
    is_unanswered: bool = False


@dataclass(slots=True)
class Leases:
    """Every run that this executor holds. `stop` is told of those asked to stop, and why.

    `present_since`: on the monotonic clock, how long the sign of life has been there unbroken.
    """

    pool: asyncpg.Pool
    lulls: Lulls = field(default_factory=Lulls)
    stop: Callable[[Mapping[RunKey, str]], Awaitable[None]] | None = None
    held: dict[RunKey, Claimed] = field(default_factory=dict)
    present_since: float = inf
    _asking: _Asked = field(default_factory=_Asked)
    _renewing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def hold(self, runs: Sequence[Claimed]) -> None:
        self.held.update((run.key, run) for run in runs)
        metrics.CLAIMED.set(len(self.held))

    def free(self, runs: Sequence[Claimed]) -> None:
        for run in runs:
            if self._holds(run):
                del self.held[run.key]
        metrics.CLAIMED.set(len(self.held))

    def _holds(self, run: Claimed) -> bool:
        return self.held.get(run.key) is run

    async def keep(self) -> None:
        """Until cancelled. What is not renewed in time is not started; the sweep takes it."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            try:
                await self._renew_all(self._older_than(YOUNG))
            except Transient as error:
                log.warning("leases not renewed", runs=len(self.held), reason=error.reason)

    def _older_than(self, seconds: float) -> list[Claimed]:
        since = monotonic() - seconds
        return [run for run in self.held.values() if run.renewed_at < since]

    async def _renew_all(self, runs: Sequence[Claimed]) -> None:
        """But for those that have ended by the time it is their turn."""
        for start in range(0, len(runs), AT_A_TIME):
            await self.lulls.lull()
            await self.renew([run for run in runs[start : start + AT_A_TIME] if self._holds(run)])

    async def renew(self, runs: Sequence[Claimed]) -> None:
        """Raises `DatabaseUnavailable`."""
        if not runs:
            return
        sent_at = monotonic()
        held = [claims.Held(run.key, run.token, run.started_at) for run in runs]
        with passing_faults():
            kept = await claims.renew(self.pool, held)
        metrics.BATCH.labels("renew").observe(len(held))
        for run in runs:
            if run.key in kept:
                run.renewed_at = sent_at
        stopping = {key: reason for key, reason in kept.items() if reason is not None}
        if stopping and self.stop is not None:
            await self.stop(stopping)

    async def look_at(self, keys: Sequence[RunKey]) -> None:
        """Orders to stop are hints: renewing asks the ledger. Raises `DatabaseUnavailable`."""
        await self.renew([run for key in keys if (run := self.held.get(key)) is not None])

    async def renew_before_start(self, run: Claimed) -> bool:
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


async def keep_presence(
    connect: Callable[[], Awaitable[AbstractConnection]], holder: str, leases: Leases
) -> None:
    """Until cancelled. The queue is a sign of life, and brings orders to stop."""

    async def ordered(message: AbstractIncomingMessage) -> None:
        await leases.look_at([RunKey.parse(each.run_id) for each in read(_STOPS, message.body)])

    async def opened() -> None:
        leases.present_since = monotonic()

    def lost() -> None:
        leases.present_since = inf

    ear = Ear(control_queue(holder), [(CONTROL, control_key(holder))])
    await keep_listening(connect, ear, ordered, opened=opened, lost=lost)
