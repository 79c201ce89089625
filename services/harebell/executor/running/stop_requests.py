"""Stop requests: an unstarted run is cancelled in the database, a started one in its task."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import inf
from typing import Protocol

import asyncpg
import structlog

from harebell.contract.ids import RunKey
from harebell.domain.run_states import STOPPING_REASONS, Reason, RunState
from harebell.executor.model.claimed_run import ClaimedRun
from harebell.executor.running.claimed_runs import ClaimedRuns
from harebell.ledger.publishing_transaction import publishing_transaction
from harebell.ledger.run_completion import cancel_unstarted_and_publish
from harebell.messaging.event_publisher import OutgoingEvent, publish_events
from harebell.messaging.publisher import Publisher
from harebell.messaging.run_events import run_event_without_attempt
from harebell.runtime.clock import Clock
from harebell.storage.runs import claims

log = structlog.get_logger()


class StoppableLane(Protocol):
    """The claimed runs of a lane, before and after their start."""

    def stop(self, key: RunKey, reason: str) -> None:
        """Cancel the unfinished attempts of a run."""

    def remove_unstarted(self, keys: Container[RunKey]) -> list[ClaimedRun]:
        """Remove and return the runs with these keys that have not started."""

    def add(self, runs: Iterable[ClaimedRun]) -> None:
        """Queue runs until their due time."""


@dataclass(slots=True, kw_only=True)
class StopRequestHandler:
    """The handler of the stop requests for the claimed runs of all lanes."""

    pool: asyncpg.Pool
    publisher: Publisher
    clock: Clock
    claimed_runs: ClaimedRuns
    _lanes: list[StoppableLane] = field(default_factory=list)

    def watch(self, lane: StoppableLane) -> None:
        """Add a lane whose runs may be stopped."""
        self._lanes.append(lane)

    async def apply(self, reasons: Mapping[RunKey, str]) -> None:
        """Stop these runs, each for its reason.

        Raise `DatabaseUnavailable` or `BrokerUnavailable`. The next renewal then finds the stop
        requests again.
        """
        for lane in self._lanes:
            for key, reason in reasons.items():
                if reason in STOPPING_REASONS:
                    lane.stop(key, reason)
            if unstarted := lane.remove_unstarted(reasons):
                await self._cancel_unstarted(lane, unstarted, reasons)

    async def _cancel_unstarted(
        self, lane: StoppableLane, runs: Sequence[ClaimedRun], reasons: Mapping[RunKey, str]
    ) -> None:
        """Cancel runs that are not in the start queue, so that none of them can start.

        Queue a run again if the database rejects its cancellation or does not answer.
        """
        held = {claims.Claim(run.key, run.token, run.attempt): run.ticket for run in runs}
        try:
            async with publishing_transaction(self.pool, self.publisher, self.clock) as transaction:
                cancelled = await cancel_unstarted_and_publish(transaction, held)
        except BaseException:
            for run in runs:  # the commit is in doubt, so each run needs a renewal before its start
                run.renewed_at = -inf
            lane.add(runs)
            raise
        lane.add(run for run in runs if run.key not in cancelled)
        gone = [run for run in runs if run.key in cancelled]
        self.claimed_runs.remove(gone)
        log.info("unstarted runs cancelled", runs=len(gone))
        now = self.clock.now()
        await publish_events(self.publisher, [_event(run, reasons[run.key], now) for run in gone])


def _event(run: ClaimedRun, reason: str, now: datetime) -> OutgoingEvent:
    run_spec = run.ticket.run_spec
    return run_event_without_attempt(
        run_spec.tenant,
        run.key,
        state=RunState.CANCELLED,
        reason=Reason(reason),
        finished_at=now,
        schedule_key=run_spec.key,
    )
