"""Changes with an effective time, and the status of each version."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes.schedules import ID, TASK
from tests.fakes.ticker import FakeTicker
from tests.fakes.tickets import NINE, after

from harebell.contract.errors import Conflict, InvalidCron, Rejected
from harebell.contract.ids import RunKey
from harebell.contract.responses import ScheduleResponse
from harebell.domain.run_states import RunState, ScheduleState
from harebell.ticker.commands.handlers import apply_command
from harebell.ticker.model.version import VersionStatus

EVERY = {"every": "30s", "start": "2026-11-20T09:00:00Z"}
QUICK = {"every": "20s"}


@pytest.fixture
def ticker() -> FakeTicker:
    """Return a schedule with staged runs at nine and every half minute."""
    ticker = FakeTicker(NINE)
    ticker.put(EVERY)
    return ticker


def patch_later(ticker: FakeTicker, seconds: float, **fields: Any) -> ScheduleResponse:
    """Patch the schedule with an effective time `seconds` after nine."""
    response = ticker.send("schedule.patch", set=fields, effective_at=after(seconds))
    assert isinstance(response, ScheduleResponse)
    return response


def run_until(ticker: FakeTicker, until: float, step: float = 5) -> None:
    while ticker.now < after(until):
        ticker.run_due()
        ticker.wait(step).stage_all()
    ticker.run_due()


@pytest.mark.requirement("S28")
def test_scheduled_change_is_visible_and_the_version_in_force_stays(ticker: FakeTicker) -> None:
    response = patch_later(ticker.wait(1), 600, when=QUICK)

    assert (response.status, response.version) == ("change_scheduled", 1)
    assert (response.pending_version, response.effective_at) == (2, after(600))
    assert ticker.record.version.number == 1
    assert ticker.version_statuses[2] == (VersionStatus.PENDING, None)
    assert ticker.staged_times == [NINE, after(30), after(60)]


@pytest.mark.requirement("S28")
@given(
    effective=st.integers(10_000, 400_000),
    accepted=st.integers(0, 9_000),
    waits=st.lists(st.integers(1, 60), max_size=20),
    new=st.sampled_from([QUICK, {"every": "7s"}, {"cron": "* * * * *"}, EVERY]),
)
@settings(max_examples=40)
def test_each_time_runs_once_by_the_version_in_force_at_that_time(
    effective: int, accepted: int, waits: list[int], new: dict[str, Any]
) -> None:
    at = NINE + timedelta(milliseconds=effective)
    ticker = FakeTicker(NINE)
    ticker.put(EVERY)
    old = ticker.record.version.recurrence
    ticker.wait(accepted / 1000)
    ticker.put(new, priority=9, effective_at=at, expected_version="any")
    pending = (*ticker.record.pending, ticker.record.version)[0]

    for seconds in waits:
        ticker.run_due()
        ticker.wait(seconds).stage_all()
    run_until(ticker, 600, step=20)

    versions = {key.scheduled_for: row.version for key, row in ticker.rows.items()}
    ran = {time for time in ticker.times_in(RunState.SUCCEEDED) if time <= after(600)}
    required = {t for t in times_of(old.next_after, after(-1)) if t < at}
    required |= set(times_of(pending.recurrence.next_after, at - timedelta(milliseconds=1)))
    missed = {first for first in ticker.skipped_counts if first <= after(600)}
    assert ran | missed == required
    assert {versions[time] for time in ran if time < at} <= {1}
    assert {versions[time] for time in ran if time >= at} <= {2}


def times_of(next_after: Any, time: Any) -> list[Any]:
    found = []
    while (time := next_after(time)) <= after(600):
        found.append(time)
    return found


@pytest.mark.requirement("S28")
def test_new_interval_counts_from_the_effective_time(ticker: FakeTicker) -> None:
    ticker.put(QUICK, effective_at=after(100), expected_version="any")

    run_until(ticker, 145)

    ran = [time for time in ticker.times_in(RunState.SUCCEEDED) if time > after(80)]
    assert ran == [after(90), after(120), after(140)]
    assert ticker.version_statuses[2] == (VersionStatus.ACTIVE, None)


@pytest.mark.requirement("S28")
def test_change_of_other_fields_keeps_the_times() -> None:
    ticker = FakeTicker(NINE)
    ticker.put({"every": "30s"})

    patch_later(ticker.wait(1), 100, priority=9)
    run_until(ticker, 190)

    ran = ticker.times_in(RunState.SUCCEEDED)
    assert ran == [after(30 * k) for k in range(1, 7)]
    assert [ticker.rows[RunKey(time, ID)].version for time in ran] == [1, 1, 1, 2, 2, 2]


@pytest.mark.requirement("S30")
def test_superseded_version_names_the_version_that_replaced_it(ticker: FakeTicker) -> None:
    patch_later(ticker.wait(1), 600, when=QUICK)

    response = ticker.wait(1).send("schedule.patch", set={"priority": 9})
    run_until(ticker, 700)

    assert isinstance(response, ScheduleResponse)
    assert (response.status, response.version, response.pending_version) == ("updated", 3, None)
    assert ticker.version_statuses == {
        1: (VersionStatus.ACTIVE, None),
        2: (VersionStatus.SUPERSEDED, "replaced by version 3"),
        3: (VersionStatus.ACTIVE, None),
    }
    definition = ticker.record.version.definition.model_dump(by_alias=True, exclude_unset=True)
    assert (definition["priority"], definition["when"]["every"]) == (9, timedelta(seconds=30))


@pytest.mark.requirement("S30")
def test_cancel_supersedes_every_pending_version(ticker: FakeTicker) -> None:
    patch_later(ticker.wait(1), 600, when=QUICK)
    patch_later(ticker.wait(1), 700, priority=9)

    response = ticker.wait(1).send("schedule.cancel")
    stored = ticker.stored_pending
    run_until(ticker, 800)

    assert isinstance(response, ScheduleResponse)
    assert [each.version for each in response.supersedes] == [2, 3]
    assert stored == (None, None)
    reason = (VersionStatus.SUPERSEDED, "the schedule was cancelled")
    assert [ticker.version_statuses[number] for number in (2, 3)] == [reason, reason]
    assert (ticker.record.pending, ticker.staged_times) == ((), [])


@pytest.mark.requirement("S30")
def test_put_after_a_cancel_of_the_same_batch_finds_no_pending_version(ticker: FakeTicker) -> None:
    patch_later(ticker.wait(1), 600, when=QUICK)
    put = {"key": "k", "when": EVERY, "target": TASK, "expected_version": "any"}

    with pytest.raises(Conflict) as error:
        ticker.wait(1).send_all(("schedule.cancel", {}), ("schedule.put", put))

    assert (error.value.code, error.value.field) == ("schedule_ended", "key")


@pytest.mark.requirement("S29")
def test_change_with_a_past_effective_time_is_rejected_and_changes_nothing(
    ticker: FakeTicker,
) -> None:
    patch_later(ticker.wait(10), 600, when=QUICK)
    before = ticker.stored_record

    with pytest.raises(Conflict) as error:
        patch_later(ticker.wait(1), 5, priority=9)

    assert (error.value.code, error.value.field) == ("missed", "effective_at")
    assert ticker.stored_record == before


@pytest.mark.requirement("S29")
def test_rejected_change_keeps_the_pending_version(ticker: FakeTicker) -> None:
    patch_later(ticker.wait(10), 600, when=QUICK)
    unit = ticker.load_unit()
    too_late = ticker.context_of(
        "schedule.patch", {"set": {"priority": 9}, "effective_at": after(5)}
    )

    with pytest.raises(Conflict):
        apply_command(unit, too_late)

    assert unit == ticker.load_unit()


@pytest.mark.requirement("S29")
def test_change_with_an_invalid_recurrence_is_rejected_at_once(ticker: FakeTicker) -> None:
    with pytest.raises(InvalidCron):
        patch_later(ticker, 600, when={"every": None, "start": None, "cron": "0 75 * * *"})

    assert (ticker.record.pending, ticker.staged_times) == ((), [NINE, after(30), after(60)])


@pytest.mark.requirement("S29")
def test_pending_version_that_raises_an_error_fails_and_the_old_version_continues(
    ticker: FakeTicker,
) -> None:
    patch_later(ticker, 100, priority=9)
    break_pending_version(ticker)

    run_until(ticker, 200)

    status, reason = ticker.version_statuses[2]
    assert (status, bool(reason)) == (VersionStatus.FAILED, True)
    assert ticker.record.version.number == 1
    assert ticker.times_in(RunState.SUCCEEDED) == [after(30 * k) for k in range(7)]


def break_pending_version(ticker: FakeTicker) -> None:
    """Give the pending version a time zone that the time zone database does not contain."""
    definition = ticker.record.pending[0].definition
    when = definition.when.model_copy(update={"timezone": "Nowhere/Gone"})
    ticker.store_definition(2, definition.model_copy(update={"when": when}))


@pytest.mark.requirement("S28")
def test_pending_version_becomes_active_after_a_pause_over_its_effective_time(
    ticker: FakeTicker,
) -> None:
    patch_later(ticker, 100, when=QUICK)
    ticker.wait(10).send("schedule.pause")
    run_until(ticker, 200)
    paused = (ticker.record.version.number, ticker.staged_times)

    ticker.send("schedule.resume")

    assert paused == (1, [])
    assert ticker.version_statuses[2][0] is VersionStatus.ACTIVE
    assert ticker.record.version.number == 2


@pytest.mark.requirement("S28")
def test_scheduled_change_does_not_extend_a_pause(ticker: FakeTicker) -> None:
    ticker.send("schedule.pause", until=after(50))

    patch_later(ticker.wait(1), 100, when=QUICK)
    run_until(ticker, 145)

    ran = ticker.times_in(RunState.SUCCEEDED)
    assert ran[-4:] == [after(90), after(100), after(120), after(140)]


@pytest.mark.requirement("S101")
def test_scheduled_change_does_not_end_a_block() -> None:
    ticker = FakeTicker(NINE)
    ticker.put(EVERY, on_unknown="block")
    ticker.claim(NINE, started=True)
    ticker.complete(NINE, RunState.UNRESOLVED)
    ticker.reconcile()

    patch_later(ticker.wait(1), 100, when=QUICK)
    run_until(ticker, 300)

    assert (ticker.record.state, ticker.staged_times) == (ScheduleState.BLOCKED, [])
    assert ticker.times_in(RunState.SUCCEEDED) == []


@pytest.mark.requirement("S33")
def test_revived_schedule_runs_from_the_effective_time_on(
    ticker: FakeTicker,
) -> None:
    ticker.send("schedule.cancel")

    put = {"key": "k", "when": EVERY, "target": TASK, "priority": 9, "revive": True}
    ticker.wait(10).send_all(("schedule.put", {**put, "effective_at": after(100)}))
    run_until(ticker, 155)

    assert ticker.times_in(RunState.SUCCEEDED) == [after(120), after(150)]


@pytest.mark.requirement("S06")
def test_schedule_until_success_does_not_run_again_before_its_pending_version() -> None:
    ticker = FakeTicker(NINE)
    ticker.put({**EVERY, "until": "success"})
    patch_later(ticker.wait(1), 200, priority=9)
    ticker.run_due()
    ticker.reconcile()

    run_until(ticker, 190)

    assert ticker.times_in(RunState.SUCCEEDED) == [NINE]


def test_put_creates_a_schedule_with_a_future_effective_time() -> None:
    ticker = FakeTicker(NINE)

    ticker.put({"every": "30s"}, effective_at=after(100))
    run_until(ticker, 165)

    assert ticker.times_in(RunState.SUCCEEDED) == [after(130), after(160)]


def test_put_with_an_invalid_recurrence_creates_no_schedule() -> None:
    ticker = FakeTicker(NINE)

    with pytest.raises(Rejected):
        ticker.put({"cron": "0 75 * * *"}, effective_at=after(100))

    assert ticker.stored_record is None


@pytest.mark.requirement("S29")
def test_sequential_schedule_continues_when_its_pending_version_fails() -> None:
    ticker = FakeTicker(NINE)
    ticker.put({"every": "60s", "from": "completion"})

    patch_later(ticker.wait(1), 30, priority=9)
    break_pending_version(ticker)
    run_until(ticker, 70)

    assert ticker.version_statuses[2][0] is VersionStatus.FAILED
    assert ticker.times_in(RunState.SUCCEEDED) == [after(60)]
