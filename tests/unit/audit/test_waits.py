"""Tests of the reasons for which due runs wait, and of the runs that are stuck all the same."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import orjson
import pytest
from tests.fakes.audit import AuditedTicker, attempt_row, run_row
from tests.fakes.schedules import ID
from tests.fakes.tickets import NINE, after

from harebell.audit.model.lateness import find_late, find_stuck, find_stuck_schedule
from harebell.audit.model.records import Run, Schedule, Window
from harebell.audit.model.waits import (
    MAX_UNCHANGED,
    RELEASE_TIME,
    BreakerRow,
    DeferredRange,
    LabelWait,
    OverlapWait,
    Waits,
)
from harebell.contract.breakers import BreakerState
from harebell.contract.downstream import downstream_of, downstream_of_json
from harebell.contract.ids import RunKey
from harebell.dispatcher.release.gates import MAX_DEFERRAL
from harebell.domain.run_states import RunState

NOW = after(300)
WINDOW = Window(since=NINE, until=NOW, now=NOW)  # a run is stuck after 60 s
AGAIN = {"http": {"url": "https://other.example/again"}}
OTHER = downstream_of_json(AGAIN)
OPEN, HALF_OPEN, CLOSED = BreakerState.OPEN, BreakerState.HALF_OPEN, BreakerState.CLOSED


@pytest.fixture
def schedule() -> Schedule:
    ticker = AuditedTicker(NINE)
    ticker.put({"every": "20s", "start": "2026-11-20T09:00:00Z"})
    return ticker.schedule


def deferred(schedule: Schedule, *ranges: tuple[float, float], tenant: str | None = None) -> Waits:
    """Return the deferrals of the downstream of the schedule, in seconds after nine."""
    downstream = downstream_of(schedule.definition_of(1).target)  # type: ignore[union-attr]  # version 1 exists
    return Waits(
        deferrals={
            (tenant, downstream): [
                DeferredRange(after(since), after(until)) for since, until in ranges
            ]
        }
    )


def is_stuck(schedule: Schedule, run: Run, waits: Waits, window: Window = WINDOW) -> bool:
    return bool(list(find_stuck(schedule, run, window, waits=waits)))


def test_release_time_covers_the_longest_deferral_of_a_ticket() -> None:
    assert RELEASE_TIME >= MAX_DEFERRAL


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ([(0, 300)], False),  # the breaker is open from the due time until now
        ([(50, 300)], False),
        ([(61, 300)], True),  # the run was stuck before the breaker opened
        ([(0, 211)], False),  # 30 s for the release, and 59 s later
        ([(0, 209)], True),
        ([(0, 100), (120, 300)], False),  # the breaker opened again while runs left
        ([(0, 100), (150, 200), (240, 300)], False),  # 20 s and 10 s without a deferral
        ([(0, 100), (191, 300)], True),
        ([], True),
    ],
)
def test_run_is_stuck_when_no_breaker_deferred_it_for_longer_than_the_bound(
    schedule: Schedule, ranges: list[tuple[float, float]], *, expected: bool
) -> None:
    assert is_stuck(schedule, run_row(NINE), deferred(schedule, *ranges)) is expected


def test_retrying_run_is_not_stuck_while_a_breaker_defers_it(schedule: Schedule) -> None:
    run = run_row(NINE, state=RunState.RETRYING, attempt=1, next_attempt_at=after(100))

    assert not is_stuck(schedule, run, deferred(schedule, (90, 300)))
    assert is_stuck(schedule, run, Waits())


def test_breaker_of_another_downstream_defers_no_run(schedule: Schedule) -> None:
    waits = Waits(deferrals={(None, OTHER): [DeferredRange(NINE, NOW)]})

    assert is_stuck(schedule, run_row(NINE), waits)


@pytest.mark.requirement("P5")
def test_only_the_breaker_of_its_tenant_or_of_all_tenants_defers_a_run(schedule: Schedule) -> None:
    run = run_row(NINE)

    assert is_stuck(schedule, run, deferred(schedule, (0, 300), tenant="another"))
    assert not is_stuck(schedule, run, deferred(schedule, (0, 300), tenant=run.tenant))
    assert not is_stuck(schedule, run, deferred(schedule, (0, 300)))


def test_edited_target_of_a_run_decides_about_its_breaker(schedule: Schedule) -> None:
    edited = run_row(NINE, target=orjson.dumps(AGAIN).decode())

    assert not is_stuck(
        schedule, edited, Waits(deferrals={(None, OTHER): [DeferredRange(NINE, NOW)]})
    )
    assert is_stuck(schedule, edited, deferred(schedule, (0, 300)))


def test_expired_run_is_stuck_although_a_breaker_defers_it(schedule: Schedule) -> None:
    expired = run_row(NINE, expires_at=after(239))

    assert is_stuck(schedule, expired, deferred(schedule, (0, 300)))


def test_expired_lease_is_stuck_although_a_breaker_is_open(schedule: Schedule) -> None:
    running = run_row(
        NINE, state=RunState.RUNNING, attempt=1, lease_holder="e", lease_until=after(200)
    )

    assert is_stuck(schedule, running, deferred(schedule, (0, 300)))


@pytest.mark.parametrize(
    ("started_at", "ranges", "expected"),
    [
        (200, [(10, 180)], False),
        (250, [(10, 180)], False),
        (261, [(10, 180)], True),  # 10 s before the deferral, and 51 s after the release
        (200, [], True),
        (200, [(61, 180)], True),
    ],
)
def test_run_is_late_when_no_breaker_deferred_it_for_longer_than_the_bound(
    schedule: Schedule, started_at: float, ranges: list[tuple[float, float]], *, expected: bool
) -> None:
    run = run_row(NINE, attempts=(attempt_row(1, "succeeded", after(started_at)),))
    waits = deferred(schedule, *ranges)

    assert bool(list(find_late(schedule, run, WINDOW, waits=waits))) is expected


@pytest.mark.parametrize(
    ("first_staged_at", "expected"), [(None, True), (0, True), (239, True), (241, False)]
)
def test_run_that_a_catch_up_stages_is_stuck_by_its_first_ticket(
    schedule: Schedule, first_staged_at: float | None, *, expected: bool
) -> None:
    """A republication of the ticket does not change the result."""
    first = None if first_staged_at is None else after(first_staged_at)
    run = run_row(NINE, staged_at=after(299), first_staged_at=first)

    assert is_stuck(schedule, run, Waits()) is expected


@pytest.mark.parametrize(("next_attempt_at", "expected"), [(241, False), (239, True), (900, False)])
def test_rate_limited_run_is_stuck_by_its_reservation(
    schedule: Schedule, next_attempt_at: float, *, expected: bool
) -> None:
    run = run_row(NINE, reason="rate_limited", next_attempt_at=after(next_attempt_at))

    assert is_stuck(schedule, run, Waits()) is expected


@pytest.mark.parametrize(
    ("overlap", "expected"),
    [
        (OverlapWait(is_occupied=True, free_since=None), False),
        (OverlapWait(is_occupied=True, free_since=after(100)), False),
        (OverlapWait(is_occupied=False, free_since=after(239)), True),
        (OverlapWait(is_occupied=False, free_since=after(241)), False),
        (OverlapWait(is_occupied=False, free_since=None), True),
    ],
)
def test_run_that_waits_for_overlap_is_stuck_when_no_run_has_the_slot(
    schedule: Schedule, overlap: OverlapWait, *, expected: bool
) -> None:
    run = run_row(NINE, reason="waiting_for_overlap")

    assert is_stuck(schedule, run, Waits(overlaps={ID: overlap})) is expected


@pytest.mark.parametrize(
    ("wait", "expected"),
    [
        (LabelWait(is_occupied=True, free_since=after(100)), False),
        (LabelWait(is_occupied=False, free_since=after(239)), True),
        (LabelWait(is_occupied=False, free_since=after(241)), False),
        (None, False),
    ],
)
def test_run_that_waits_for_its_label_is_stuck_when_the_label_has_a_free_slot(
    schedule: Schedule, wait: LabelWait | None, *, expected: bool
) -> None:
    run = run_row(NINE, reason="waiting_for_label")
    labels = {} if wait is None else {RunKey(NINE, ID): wait}

    assert is_stuck(schedule, run, Waits(labels=labels)) is expected


def test_woken_run_is_not_stuck_while_a_breaker_defers_it(schedule: Schedule) -> None:
    run = run_row(NINE, reason="waiting_for_overlap")
    free = {ID: OverlapWait(is_occupied=False, free_since=after(100))}
    waits = replace(deferred(schedule, (90, 300)), overlaps=free)

    assert not is_stuck(schedule, run, waits)


@pytest.mark.parametrize(("changed_at", "expected"), [(239, True), (241, False)])
def test_resumed_schedule_is_stuck_by_the_time_of_its_command(
    schedule: Schedule, changed_at: float, *, expected: bool
) -> None:
    resumed = replace(schedule, next_at=NINE, changed_at=after(changed_at))

    assert bool(list(find_stuck_schedule(resumed, WINDOW))) is expected


def breaker(**columns: Any) -> BreakerRow:
    """A measured breaker that opened at nine, with other values for the given columns."""
    row = BreakerRow(
        tenant=None,
        downstream=OTHER,
        state=OPEN,
        since=NINE,
        forced=None,
        forced_at=None,
        forced_until=None,
        deferring_since=NINE,
    )
    return replace(row, **columns)


OLD = NOW - MAX_UNCHANGED - timedelta(seconds=10)


@pytest.mark.parametrize(
    ("columns", "is_probed", "until"),
    [
        ({}, False, NOW),
        ({"state": HALF_OPEN, "since": after(60)}, False, NOW),
        ({"since": OLD}, False, NOW - timedelta(seconds=10)),  # its dispatchers have stopped
        ({"state": HALF_OPEN, "since": OLD}, False, NOW - timedelta(seconds=10)),
        ({"state": HALF_OPEN, "since": OLD}, True, NOW),
        ({"since": OLD, "forced": OPEN, "forced_at": OLD}, False, NOW),
        ({"forced": OPEN, "forced_at": NINE, "forced_until": after(400)}, False, NOW),
        ({"state": CLOSED, "since": None, "forced": OPEN, "forced_at": NINE}, False, NOW),
        (
            {"state": CLOSED, "forced": OPEN, "forced_at": NINE, "forced_until": after(200)},
            False,
            after(200),
        ),
        ({"forced": CLOSED, "forced_at": after(100)}, False, after(100)),
        ({"state": CLOSED, "since": after(150)}, False, after(150)),
    ],
)
def test_breaker_defers_runs_until_its_row_shows_the_end(
    columns: dict[str, Any], *, is_probed: bool, until: datetime
) -> None:
    row = breaker(deferring_since=OLD, **columns)

    assert row.deferral(NOW, is_probed=is_probed) == DeferredRange(OLD, until)


def test_deferral_without_a_recorded_start_begins_with_the_state() -> None:
    measured = breaker(deferring_since=None, since=after(10))
    forced = breaker(deferring_since=None, forced=OPEN, forced_at=after(20))

    assert measured.deferral(NOW, is_probed=False) == DeferredRange(after(10), NOW)
    assert forced.deferral(NOW, is_probed=False) == DeferredRange(after(20), NOW)
