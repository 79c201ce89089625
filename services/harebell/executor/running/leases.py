"""Lease renewals, and the control queue that shows that this executor is alive."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

import asyncpg
import structlog
from aio_pika.abc import AbstractConnection, AbstractIncomingMessage

from harebell.contract.amqp_names import CONTROL
from harebell.contract.control import StopRequest
from harebell.contract.errors import Transient
from harebell.contract.ids import RunKey
from harebell.contract.json_codec import decode_model, list_adapter
from harebell.domain.progress import ProgressEventLimit
from harebell.executor import metrics
from harebell.executor.model.claimed_run import ClaimedRun
from harebell.executor.running.claimed_runs import ClaimedRuns
from harebell.executor.running.start_guard import StartGuard
from harebell.executor.running.stop_requests import StopRequestHandler
from harebell.messaging.event_publisher import publish_events
from harebell.messaging.exclusive_consumer import ExclusiveQueue, consume_exclusively
from harebell.messaging.publisher import Publisher
from harebell.messaging.run_events import progress_event
from harebell.messaging.topology.bus import executor_control_key, executor_control_queue
from harebell.runtime.clock import Clock, monotonic
from harebell.storage.engine import translate_db_errors
from harebell.storage.runs import claims

RENEWAL_INTERVAL: Final = 0.5  # seconds between two checks for old leases
RENEW_AFTER: Final = 0.75  # seconds since a claim or renewal; so a renewal happens every second
MAX_ROWS: Final = 250  # of a statement; more rows would delay due starts
RENEWAL_RETRY_INTERVAL: Final = 0.05  # seconds after a rejected renewal before a start

_STOP_REQUESTS: Final = list_adapter(StopRequest)

log = structlog.get_logger()


@dataclass(slots=True)
class _StartRenewal:
    """One renewal of several runs before their starts. Each slot adds at most one run."""

    runs: list[ClaimedRun] = field(default_factory=list)
    is_done: bool = False
    is_unanswered: bool = False


@dataclass(slots=True, kw_only=True)
class LeaseKeeper:
    """The renewals of the leases of all claimed runs of this executor.

    `alive_since` is the time since which the control queue exists without interruption, in seconds
    of the monotonic clock. Without the queue, a ticker may recover the runs of this executor.
    """

    pool: asyncpg.Pool
    claimed_runs: ClaimedRuns
    start_guard: StartGuard
    stop_requests: StopRequestHandler
    publisher: Publisher
    clock: Clock
    event_limit: ProgressEventLimit = field(default_factory=ProgressEventLimit)
    alive_since: float = inf
    _next_renewal: _StartRenewal = field(default_factory=_StartRenewal)
    _renewing: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self) -> None:
        """Renew old leases until the task is cancelled.

        A run with an expired lease never starts, and the rescuer recovers it.
        """
        while True:
            await asyncio.sleep(RENEWAL_INTERVAL)
            try:
                old = self.claimed_runs.renewed_before(monotonic() - RENEW_AFTER)
                await self._renew_all(old)
            except Transient as error:
                log.warning(
                    "lease renewal failed", runs=len(self.claimed_runs), reason=error.reason
                )

    async def _renew_all(self, runs: Sequence[ClaimedRun]) -> None:
        """Renew the runs in statements of MAX_ROWS, without the runs that have ended until then."""
        for start in range(0, len(runs), MAX_ROWS):
            await self.start_guard.wait_until_clear()
            part = runs[start : start + MAX_ROWS]
            await self.renew([run for run in part if self.claimed_runs.is_current(run)])

    async def renew(self, runs: Sequence[ClaimedRun]) -> None:
        """Renew the leases of the runs and apply their stop requests.

        Raise `DatabaseUnavailable`.
        """
        if not runs:
            return
        sent_at = monotonic()
        held = [claims.Claim(run.key, run.token, run.attempt, run.started_at) for run in runs]
        reports = {run.key: run.progress for run in runs if run.progress is not None}
        with translate_db_errors():
            renewed = await claims.renew(self.pool, held, reports)
        metrics.SQL_ROWS.labels("renew").observe(len(held))
        for run in runs:
            if run.key in renewed:
                run.renewed_at = sent_at
                if run.key in reports and run.progress is reports[run.key]:
                    run.progress = None  # otherwise a later report is still to be stored
        if reports:
            await self._publish_progress([run for run in runs if run.key in renewed], reports)
        reasons = {key: reason for key, reason in renewed.items() if reason is not None}
        if reasons:
            await self.stop_requests.apply(reasons)

    async def save_progress(self, run: ClaimedRun) -> None:
        """Store the last reports of a failed attempt, whose next attempt needs the checkpoint."""
        try:
            await self.renew([run])
        except Transient as error:
            log.warning("progress not stored", run=str(run.key), reason=error.reason)

    async def _publish_progress(
        self, runs: Sequence[ClaimedRun], reports: Mapping[RunKey, Mapping[str, Any]]
    ) -> None:
        now, at = monotonic(), self.clock.now()
        events = [
            progress_event(run.tenant, run.key, reports[run.key], at=at)
            for run in runs
            if run.key in reports and self.event_limit.admits(run.tenant, run.key, now)
        ]
        await publish_events(self.publisher, events)

    async def check_stop_requests(self, keys: Sequence[RunKey]) -> None:
        """Renew the leases of these runs, which returns their stop requests.

        Raise `DatabaseUnavailable`.
        """
        claimed = (self.claimed_runs.get(key) for key in keys)
        await self.renew([run for run in claimed if run is not None])

    async def renew_before_start(self, run: ClaimedRun) -> bool:
        """Renew the lease until the run may start. Return False if the lease ends before that."""
        while not await self.try_renew_before_start(run):
            if monotonic() >= run.lease_ends:
                return False
            await asyncio.sleep(RENEWAL_RETRY_INTERVAL)  # the row may only have been locked
            if run.is_fresh(monotonic()):
                break
        return True

    async def try_renew_before_start(self, run: ClaimedRun) -> bool:
        """Renew the lease once and return whether the run may start.

        A rejected renewal means that another executor owns the run or that its row is locked. If
        the database does not answer, the run may start while no ticker can have recovered it. Calls
        during one statement share the next statement.
        """
        renewal = self._next_renewal
        renewal.runs.append(run)
        async with self._renewing:
            if not renewal.is_done:  # the first waiting call renews the leases of all
                self._next_renewal = _StartRenewal()
                try:
                    await self._renew_all(renewal.runs)
                except Transient:
                    renewal.is_unanswered = True
                renewal.is_done = True
        if renewal.is_unanswered:
            return run.renewed_at > self.alive_since
        return run.is_fresh(monotonic())


async def consume_control_queue(
    connect: Callable[[], Awaitable[AbstractConnection]],
    holder: str,
    leases: LeaseKeeper,
    *,
    accepts: Callable[[AbstractIncomingMessage], bool],
) -> None:
    """Consume stop requests from the control queue until the task is cancelled.

    The queue exists as long as this executor is connected, so a ticker sees that it is alive.
    """

    async def on_stop_requests(message: AbstractIncomingMessage) -> None:
        requests = decode_model(_STOP_REQUESTS, message.body)
        await leases.check_stop_requests([RunKey.parse(request.run_id) for request in requests])

    async def on_open() -> None:
        leases.alive_since = monotonic()

    def on_close() -> None:
        leases.alive_since = inf

    queue = ExclusiveQueue(
        executor_control_queue(holder), [(CONTROL, executor_control_key(holder))]
    )
    await consume_exclusively(
        connect, queue, on_stop_requests, accepts=accepts, on_open=on_open, on_close=on_close
    )
