"""The reconciler: schedules whose next step depends on the outcomes of their runs."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final
from uuid import UUID

import asyncpg
import structlog

from harebell.contract.errors import Transient
from harebell.contract.events import Event, RunEventData
from harebell.contract.ids import RunKey
from harebell.contract.json_codec import decode_model, list_adapter
from harebell.contract.message import parse
from harebell.domain.run_states import RunState, result_of
from harebell.ledger.publishing_transaction import publishing_transaction
from harebell.messaging.acknowledge import DONE, Delivery, Outcome
from harebell.messaging.event_publisher import publish_events
from harebell.messaging.publisher import Publisher
from harebell.runtime.clock import Clock, monotonic
from harebell.storage.engine import translate_db_errors
from harebell.ticker.events import (
    has_new_state,
    planning_events,
    schedule_state_event,
    stop_request_messages,
    unstaged_run_events,
)
from harebell.ticker.model.counted_runs import needs_outcomes, schedules_to_reconcile
from harebell.ticker.model.outcomes import apply_outcomes
from harebell.ticker.model.planning import plan_unit
from harebell.ticker.model.unit_of_work import ScheduleRecord, UnitOfWork
from harebell.ticker.plan_writer import SaveResult, save_planning_steps, save_unit_of_work
from harebell.ticker.store import schedules
from harebell.ticker.store.versions import VersionCache

POLL_INTERVAL: Final = 1.0  # seconds, while a schedule waits for the end of a run
IDLE_POLL_INTERVAL: Final = 5.0  # seconds: another ticker may know a schedule that waits
MAX_SCHEDULES: Final = 500  # in one transaction

_EVENTS: Final = list_adapter(Event)

log = structlog.get_logger()


@dataclass(slots=True, kw_only=True)
class Reconciler:
    """The reconciler of one ticker. Any number may run, because each locks its schedules."""

    pool: asyncpg.Pool
    publisher: Publisher
    clock: Clock
    versions: VersionCache
    horizon: timedelta
    on_saved: Callable[[Sequence[ScheduleRecord]], None]
    _has_awaiting: bool = True  # a schedule may wait for the end of a run
    _requested: set[UUID] = field(default_factory=set)  # at most the schedules with outcomes

    def request(self, schedule_ids: Iterable[UUID]) -> None:
        """Request a reconciliation of schedules whose runs have probably ended."""
        self._requested.update(schedule_ids)

    def observe(self, records: Sequence[ScheduleRecord]) -> None:
        """Note the schedules of a transaction that wait for a run or have old open runs."""
        self._has_awaiting = self._has_awaiting or any(each.awaited_run for each in records)
        self.request(schedules_to_reconcile(records, self.clock.now()))

    async def handle_outcomes(self, deliveries: Sequence[Delivery]) -> Sequence[Outcome]:
        """Request a reconciliation of the schedules of run events.

        Events may be lost or late. Only the rows of the runs decide.
        """
        for delivery in deliveries:
            events = decode_model(_EVENTS, delivery.trusted_body)
            self.request(parse(RunEventData, event.data).schedule_id for event in events)
        return [DONE] * len(deliveries)

    async def run(self) -> None:
        """Reconcile the requested and the waiting schedules until the task is cancelled."""
        last_pass = float("-inf")
        while True:
            await asyncio.sleep(POLL_INTERVAL)
            is_idle = not self._requested and not self._has_awaiting
            if is_idle and monotonic() - last_pass < IDLE_POLL_INTERVAL:
                continue
            last_pass = monotonic()
            requested, self._requested = self._requested, set()
            try:
                await self._reconcile_all(requested)
            except Transient as error:
                self._requested |= requested
                log.warning("reconciliation failed", error=error.code, reason=error.reason)

    async def _reconcile_all(self, requested: set[UUID]) -> None:
        self._has_awaiting = False
        with translate_db_errors():
            awaiting = await schedules.find_awaiting(self.pool, MAX_SCHEDULES)
        self._has_awaiting = self._has_awaiting or bool(awaiting)  # `observe` may have set it
        chosen = sorted({*awaiting, *requested})
        for start in range(0, len(chosen), MAX_SCHEDULES):
            await self._reconcile_or_split(chosen[start : start + MAX_SCHEDULES])

    async def _reconcile_or_split(self, schedule_ids: list[UUID]) -> None:
        """Reconcile the schedules together, or one by one after an error.

        A schedule that raises an error delays no other schedule and does not end the ticker.
        """
        try:
            await self._reconcile(schedule_ids)
        except Transient:
            raise
        except Exception:
            log.exception("schedules not reconciled", schedules=len(schedule_ids))
            if len(schedule_ids) > 1:
                for each in schedule_ids:
                    await self._reconcile_or_split([each])

    async def _reconcile(self, schedule_ids: list[UUID]) -> None:
        async with publishing_transaction(self.pool, self.publisher, self.clock) as transaction:
            connection = transaction.connection
            unit = await schedules.load_unit_of_work(connection, self.versions, schedule_ids)
            before = dict(unit.schedules)
            for record in before.values():
                if needs_outcomes(record):
                    apply_outcomes(unit, record)
            if not unit.changed_ids:
                return
            now = self.clock.now()
            steps = plan_unit(unit, now=now, until=now + self.horizon)
            await save_unit_of_work(connection, unit)
            saved = await save_planning_steps(connection, steps, now=now)
            await transaction.publish(saved.tickets)
        self.on_saved(saved.records)
        await self._publish_events(unit, saved, before)

    async def _publish_events(
        self, unit: UnitOfWork, saved: SaveResult, before: Mapping[UUID, ScheduleRecord]
    ) -> None:
        now = self.clock.now()
        await self.publisher.publish_each(stop_request_messages(unit))
        changed = [
            schedule_state_event(record, now, result=_result_of(unit, record))
            for record in map(unit.schedules.__getitem__, unit.changed_ids)
            if has_new_state(before[record.id], record)
        ]
        log.info("schedules reconciled", schedules=len(unit.changed_ids), changed=len(changed))
        events = [
            *changed,
            *unstaged_run_events(unit, saved, now),
            *planning_events(saved, now),
        ]
        await publish_events(self.publisher, events)


def _result_of(unit: UnitOfWork, record: ScheduleRecord) -> RunState | None:
    if record.last_run is None:
        return None
    run = unit.ended_runs.get(RunKey(record.last_run, record.id))
    return result_of(record.visible_state, None if run is None else run.state)
