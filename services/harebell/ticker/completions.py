"""Events of recurring schedules whose last runs end after the end of their planning."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

import asyncpg
import structlog

from harebell.contract.errors import Transient
from harebell.contract.ids import RunKey
from harebell.domain.run_states import RunResult, ScheduleState
from harebell.messaging.event_publisher import OutgoingEvent, publish_events
from harebell.messaging.publisher import Publisher
from harebell.runtime.clock import Clock
from harebell.storage.engine import translate_db_errors
from harebell.ticker.events import has_completion_event, schedule_state_event
from harebell.ticker.model.unit_of_work import ScheduleRecord
from harebell.ticker.store import schedules

CHECK_INTERVAL: Final = 2.0  # seconds
MAX_WATCHED: Final = 10_000  # schedules; the event of a further one is not published
MAX_CHECKED: Final = 500  # schedules of one statement

log = structlog.get_logger()


@dataclass(slots=True, kw_only=True)
class CompletionWatcher:
    """The schedules that require no further run and whose last runs are open.

    The watcher only reads. The memory of a stopped ticker is lost, and an event is only a hint.
    """

    pool: asyncpg.Pool
    publisher: Publisher
    clock: Clock
    _watched: dict[UUID, ScheduleRecord] = field(default_factory=dict)

    def observe(self, records: Sequence[ScheduleRecord]) -> None:
        """Note the schedules of a transaction that complete with the end of their open runs."""
        for record in records:
            is_over = record.state is ScheduleState.COMPLETED and has_completion_event(record)
            if not is_over or not record.open_runs:
                self._watched.pop(record.id, None)
            elif len(self._watched) < MAX_WATCHED or record.id in self._watched:
                self._watched[record.id] = record
            else:
                log.warning("completion not watched", schedule=str(record.id))

    async def run(self) -> None:
        """Publish the event of each completed schedule until the task is cancelled."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL)
            try:
                await publish_events(self.publisher, await self.take_completed())
            except Transient as error:
                log.warning("completion check failed", error=error.code, reason=error.reason)

    async def take_completed(self) -> list[OutgoingEvent]:
        """Return the events of the schedules whose open runs have ended, and forget them."""
        now = self.clock.now()
        due = [each for each in self._watched.values() if max(each.open_runs) <= now]
        events: list[OutgoingEvent] = []
        for start in range(0, len(due), MAX_CHECKED):
            records = due[start : start + MAX_CHECKED]
            keys = [RunKey(time, record.id) for record in records for time in record.open_runs]
            with translate_db_errors():
                async with self.pool.acquire() as connection:
                    ended = await schedules.find_ended(connection, keys)
            events += self._completed(records, ended)
        return events

    def _completed(
        self, records: Sequence[ScheduleRecord], ended: Mapping[RunKey, RunResult | None]
    ) -> Iterator[OutgoingEvent]:
        for record in records:
            if self._watched.get(record.id) is not record:
                continue  # a later transaction changed the schedule during the statement
            if all(RunKey(time, record.id) in ended for time in record.open_runs):
                del self._watched[record.id]
                last = max(record.open_runs)
                run = ended[RunKey(last, record.id)]
                is_last = record.last_run is None or record.last_run <= last
                result = run.state if run is not None and is_last else None
                completed = record._replace(open_runs=())
                yield schedule_state_event(completed, self.clock.now(), result=result)
