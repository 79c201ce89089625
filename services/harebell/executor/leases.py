"""Leases: renewed together, once a second; the presence queue that says this executor lives."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
from harebell.kernel import metrics
from harebell.kernel.amqp.listening import Ear, keep_listening
from harebell.kernel.bus import control_key, control_queue
from harebell.kernel.clock import monotonic
from harebell.kernel.db.engine import passing_faults
from harebell.kernel.db.ledger import claims

RENEW_EVERY: Final = 1.0  # seconds
YOUNG: Final = RENEW_EVERY / 4  # seconds since a claim: most runs end before their first renewal
AT_A_TIME: Final = 250  # rows of one statement; more would keep the loop from what is due

_STOPS: Final = bundle_of(Stop)

log = structlog.get_logger()


@dataclass(slots=True)
class Leases:
    """Every run that this executor holds. `stop` is told of those asked to stop, and why."""

    pool: asyncpg.Pool
    stop: Callable[[Mapping[RunKey, str]], Awaitable[None]] | None = None
    held: dict[RunKey, Claimed] = field(default_factory=dict)

    def hold(self, runs: Sequence[Claimed]) -> None:
        self.held.update((run.key, run) for run in runs)
        metrics.CLAIMED.set(len(self.held))

    def free(self, runs: Sequence[Claimed]) -> None:
        for run in runs:
            if self.held.get(run.key) is run:
                del self.held[run.key]
        metrics.CLAIMED.set(len(self.held))

    async def keep(self) -> None:
        """Until cancelled. What is not renewed in time is not started; the sweep takes it."""
        while True:
            await asyncio.sleep(RENEW_EVERY)
            try:
                await self._renew_all(self._older_than(YOUNG))
            except Transient as error:
                log.warning("leases not renewed", runs=len(self.held), reason=error.reason)

    def _older_than(self, seconds: float) -> list[Claimed]:
        since = monotonic() - seconds
        return [run for run in self.held.values() if run.renewed_at < since]

    async def _renew_all(self, runs: Sequence[Claimed]) -> None:
        for start in range(0, len(runs), AT_A_TIME):
            await self.renew(runs[start : start + AT_A_TIME])

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

    async def renew_one(self, run: Claimed) -> bool:
        """False when the ledger has not renewed it: it is another's now, or its row is locked."""
        before = run.renewed_at
        try:
            await self.renew([run])
        except Transient:
            return True  # nobody can say: the lease decides
        return run.renewed_at > before


async def keep_presence(
    connect: Callable[[], Awaitable[AbstractConnection]],
    holder: str,
    stop: Callable[[Sequence[RunKey]], Awaitable[None]],
) -> None:
    """Until cancelled. The queue is a sign of life, and brings orders to stop."""

    async def ordered(message: AbstractIncomingMessage) -> None:
        await stop([RunKey.parse(each.run_id) for each in read(_STOPS, message.body)])

    ear = Ear(control_queue(holder), [(CONTROL, control_key(holder))])
    await keep_listening(connect, ear, ordered)
