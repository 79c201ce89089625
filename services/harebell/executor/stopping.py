"""Orders to stop, followed: what has not started never will, what has is cancelled if it should."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import inf

import asyncpg
import structlog

from harebell.contract.identity import RunKey
from harebell.executor.core import Claimed
from harebell.executor.leases import Leases
from harebell.executor.running import LaneRunner
from harebell.kernel.amqp.events import Fact, tell
from harebell.kernel.amqp.publish import Publisher
from harebell.kernel.amqp.stories import fact_of_unattempted
from harebell.kernel.authorising import authorising
from harebell.kernel.clock import Clock
from harebell.kernel.db.ledger import claims
from harebell.kernel.ledger import STOPS, Reason, RunState
from harebell.kernel.settlement import drop_and_publish

log = structlog.get_logger()


@dataclass(slots=True)
class Stopping:
    """Of all lanes of an executor."""

    pool: asyncpg.Pool
    publisher: Publisher
    clock: Clock
    leases: Leases
    lanes: Iterable[LaneRunner]

    async def follow(self, reasons: Mapping[RunKey, str]) -> None:
        """Raises `DatabaseUnavailable`, `BrokerUnavailable`: the next renewal asks again."""
        for lane in self.lanes:
            for key, reason in reasons.items():
                if reason in STOPS:
                    lane.stop(key, reason)
            if unstarted := lane.heap.take_out(reasons):
                await self._drop(lane, unstarted, reasons)

    async def _drop(
        self, lane: LaneRunner, runs: Sequence[Claimed], reasons: Mapping[RunKey, str]
    ) -> None:
        """Out of the heap meanwhile, so that none starts; what stays ours goes back."""
        held = {claims.Held(run.key, run.token): run.ticket for run in runs}
        try:
            async with authorising(self.pool, self.publisher, self.clock) as authority:
                dropped = await drop_and_publish(authority, held)
        except BaseException:
            for run in runs:  # nobody knows whose they are: the ledger is asked before they start
                run.renewed_at = -inf
            lane.take(runs)
            raise
        lane.take(run for run in runs if run.key not in dropped)
        gone = [run for run in runs if run.key in dropped]
        self.leases.free(gone)
        log.info("dropped", runs=len(gone))
        now = self.clock.now()
        await tell(self.publisher, [_fact(run, reasons[run.key], now) for run in gone])


def _fact(run: Claimed, reason: str, now: datetime) -> Fact:
    work = run.ticket.work
    return fact_of_unattempted(
        work.tenant, run.key, RunState.CANCELLED, Reason(reason), now, name=work.key
    )
