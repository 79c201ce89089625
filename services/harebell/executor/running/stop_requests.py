"""Orders to stop, followed: what has not started never will, what has is cancelled if it should."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import inf

import asyncpg
import structlog

from harebell.contract.ids import RunKey
from harebell.domain.run_states import STOPPING_REASONS, Reason, RunState
from harebell.executor.model.claimed_run import ClaimedRun
from harebell.executor.running.leases import LeaseKeeper
from harebell.executor.running.starter import LaneStarter
from harebell.messaging.event_publisher import OutgoingEvent, publish_events
from harebell.messaging.publisher import Publisher
from harebell.messaging.run_events import run_event_without_attempt
from harebell.runtime.clock import Clock
from harebell.storage.publishing_transaction import publishing_transaction
from harebell.storage.run_completion import cancel_unstarted_and_publish
from harebell.storage.runs import claims

log = structlog.get_logger()


@dataclass(slots=True)
class StopRequestHandler:
    """Of all lanes of an executor."""

    pool: asyncpg.Pool
    publisher: Publisher
    clock: Clock
    leases: LeaseKeeper
    lanes: Iterable[LaneStarter]

    async def apply(self, reasons: Mapping[RunKey, str]) -> None:
        """Raises `DatabaseUnavailable`, `BrokerUnavailable`: the next renewal asks again."""
        for lane in self.lanes:
            for key, reason in reasons.items():
                if reason in STOPPING_REASONS:
                    lane.stop(key, reason)
            if unstarted := lane.heap.remove(reasons):
                await self._drop(lane, unstarted, reasons)

    async def _drop(
        self, lane: LaneStarter, runs: Sequence[ClaimedRun], reasons: Mapping[RunKey, str]
    ) -> None:
        """Out of the heap meanwhile, so that none starts; what stays ours goes back."""
        held = {claims.Claim(run.key, run.token, run.attempt): run.ticket for run in runs}
        try:
            async with publishing_transaction(self.pool, self.publisher, self.clock) as authority:
                dropped = await cancel_unstarted_and_publish(authority, held)
        except BaseException:
            for run in runs:  # nobody knows whose they are: the ledger is asked before they start
                run.renewed_at = -inf
            lane.add(runs)
            raise
        lane.add(run for run in runs if run.key not in dropped)
        gone = [run for run in runs if run.key in dropped]
        self.leases.remove(gone)
        log.info("dropped", runs=len(gone))
        now = self.clock.now()
        await publish_events(self.publisher, [_fact(run, reasons[run.key], now) for run in gone])


def _fact(run: ClaimedRun, reason: str, now: datetime) -> OutgoingEvent:
    work = run.ticket.run_spec
    return run_event_without_attempt(
        work.tenant, run.key, RunState.CANCELLED, Reason(reason), now, name=work.key
    )
