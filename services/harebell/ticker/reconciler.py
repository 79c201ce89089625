"""Reviews: schedules whose next step depends on what became of their runs."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final
from uuid import UUID

import asyncpg
import structlog

from harebell.contract.errors import Transient
from harebell.contract.events import Event, RunEventData
from harebell.contract.json_codec import decode_model, list_adapter
from harebell.contract.message import parse
from harebell.messaging.acknowledge import DONE, Delivery, Outcome
from harebell.messaging.event_publisher import publish_events
from harebell.messaging.publisher import Publisher
from harebell.runtime.clock import Clock, monotonic
from harebell.storage.engine import translate_db_errors
from harebell.storage.publishing_transaction import publishing_transaction
from harebell.ticker.events import (
    planning_events,
    schedule_state_event,
    stop_request_messages,
    unstaged_run_events,
)
from harebell.ticker.model import planning
from harebell.ticker.model.outcomes import apply_outcomes
from harebell.ticker.model.unit_of_work import ScheduleRecord, UnitOfWork
from harebell.ticker.store import schedules
from harebell.ticker.store.save import SaveResult, save_unit_of_work
from harebell.ticker.store.versions import VersionCache

POLL_INTERVAL: Final = 1.0  # seconds between looks at schedules that wait for the end of a run
IDLE_POLL_INTERVAL: Final = (
    5.0  # likewise, while none is known to wait: another ticker may know of one
)
MAX_SCHEDULES: Final = 500  # schedules of one transaction

_EVENTS: Final = list_adapter(Event)

log = structlog.get_logger()


@dataclass(slots=True)
class Reconciler:
    """One ticker's reviews. Any number may run: each locks its schedules and reads the rows."""

    pool: asyncpg.Pool
    publisher: Publisher
    clock: Clock
    versions: VersionCache
    horizon: timedelta
    wake: asyncio.Event
    _awaited: bool = True  # some schedule may wait for the end of a run
    _asked: set[UUID] = field(default_factory=set)  # bounded by the schedules that are watched

    def request(self, schedules: Iterable[UUID]) -> None:
        """Of schedules that nothing waits for, but whose runs decide about them."""
        self._asked.update(schedules)

    def observe(self, standing: Sequence[ScheduleRecord]) -> None:
        """Of schedules that a transaction has moved on: who waits, and what should be looked at."""
        self._awaited = self._awaited or any(entry.awaited_run for entry in standing)
        self.request(planning.schedules_to_reconcile(standing, self.clock.now()))

    async def on_outcomes(self, deliveries: Sequence[Delivery]) -> Sequence[Outcome]:
        """Events are hints: they say which schedules to look at, the rows say the rest."""
        for delivery in deliveries:
            self.request(fact.schedule_id for fact in _facts(delivery.trusted_body))
        return [DONE] * len(deliveries)

    async def run(self) -> None:
        """Until cancelled."""
        looked_at = float("-inf")
        while True:
            await asyncio.sleep(POLL_INTERVAL)
            if not (self._asked or self._awaited or monotonic() - looked_at >= IDLE_POLL_INTERVAL):
                continue
            looked_at = monotonic()
            asked, self._asked = self._asked, set()
            try:
                await self._review(asked)
            except Transient as error:
                self._asked |= asked
                log.warning("review failed", error=error.code, reason=error.reason)

    async def _review(self, asked: set[UUID]) -> None:
        self._awaited = False
        with translate_db_errors():
            waiting = await schedules.find_awaiting(self.pool, MAX_SCHEDULES)
        self._awaited = self._awaited or bool(waiting)  # or noted meanwhile
        chosen = sorted({*waiting, *asked})
        for start in range(0, len(chosen), MAX_SCHEDULES):
            await self._apart(chosen[start : start + MAX_SCHEDULES])

    async def _apart(self, schedules: list[UUID]) -> None:
        """One schedule that cannot be reviewed holds up no other, and ends no ticker."""
        try:
            await self._some(schedules)
        except Transient:
            raise
        except Exception:
            log.exception("not reviewed", schedules=len(schedules))
            if len(schedules) > 1:
                for each in schedules:
                    await self._apart([each])

    async def _some(self, schedule_ids: list[UUID]) -> None:
        async with publishing_transaction(self.pool, self.publisher, self.clock) as authority:
            book = await schedules.load_unit_of_work(
                authority.connection, self.versions, schedule_ids, []
            )
            before = dict(book.schedules)
            for entry in before.values():
                if planning.needs_outcomes(entry):
                    apply_outcomes(book, entry)
            if not book.changed_ids:
                return
            now = self.clock.now()
            saved = await save_unit_of_work(authority.connection, book, now, now + self.horizon)
            await authority.publish(saved.tickets)
        self.wake.set()
        await self._tell(book, saved, before)

    async def _tell(
        self, book: UnitOfWork, saved: SaveResult, before: dict[UUID, ScheduleRecord]
    ) -> None:
        now = self.clock.now()
        await self.publisher.publish_each(stop_request_messages(book))
        changed = [
            schedule_state_event(book.schedules[id_], now)
            for id_ in book.changed_ids
            if book.schedules[id_].state is not before[id_].state
        ]
        log.info("reviewed", schedules=len(book.changed_ids), changed=len(changed))
        progress = planning_events(saved, now)
        await publish_events(
            self.publisher, [*changed, *unstaged_run_events(book, saved, now), *progress]
        )


def _facts(body: bytes) -> list[RunEventData]:
    """Raises `Malformed` for what is no batch of events about runs."""
    return [parse(RunEventData, event.data) for event in decode_model(_EVENTS, body)]
