"""Changes at a stated time: seen before it, in force from it on, and what became of each."""

from dataclasses import replace
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
def ticking() -> FakeTicker:
    """Runs staged at nine, and every half minute."""
    ticking = FakeTicker(NINE)
    ticking.put(EVERY)
    return ticking


def later(ticking: FakeTicker, seconds: float, **fields: Any) -> ScheduleResponse:
    """A patch that takes effect so many seconds after nine."""
    answer = ticking.send("schedule.patch", set=fields, effective_at=after(seconds))
    assert isinstance(answer, ScheduleResponse)
    return answer


def carry_on(ticking: FakeTicker, until: float, step: float = 5) -> None:
    while ticking.now < after(until):
        ticking.run_due()
        ticking.wait(step).stage_all()
    ticking.run_due()


@pytest.mark.requirement("S28")
def test_a_change_for_later_is_seen_and_the_version_in_force_stays(ticking: FakeTicker) -> None:
    answer = later(ticking.wait(1), 600, when=QUICK)

    assert (answer.status, answer.version) == ("deferred", 1)
    assert (answer.pending_version, answer.effective_at) == (2, after(600))
    assert ticking.record.version.number == 1
    assert ticking.version_statuses[2] == (VersionStatus.PENDING, None)
    assert ticking.staged_times == [NINE, after(30), after(60)]


@pytest.mark.requirement("S28")
@given(
    effective=st.integers(10_000, 400_000),
    asked=st.integers(0, 9_000),
    looks=st.lists(st.integers(1, 60), max_size=20),
    new=st.sampled_from([QUICK, {"every": "7s"}, {"cron": "* * * * *"}, EVERY]),
)
@settings(deadline=None, max_examples=60)
def test_no_old_instant_at_or_after_the_change_no_new_one_before_each_owed_once(
    effective: int, asked: int, looks: list[int], new: dict[str, Any]
) -> None:
    at = NINE + timedelta(milliseconds=effective)
    ticking = FakeTicker(NINE)
    ticking.put(EVERY)
    old = ticking.record.version.recurrence
    ticking.wait(asked / 1000)
    ticking.put(new, priority=9, effective_at=at, expected_version="any")
    pending = ticking.record.pending or ticking.record.version

    for seconds in looks:
        ticking.run_due()
        ticking.wait(seconds).stage_all()
    carry_on(ticking, 600, step=20)

    versions = {key.scheduled_for: row.version for key, row in ticking.rows.items()}
    ran = {moment for moment in ticking.times_in(RunState.SUCCEEDED) if moment <= after(600)}
    owed = {t for t in grid(old.next_after, after(-1)) if t < at}
    owed |= set(grid(pending.recurrence.next_after, at - timedelta(milliseconds=1)))
    missed = {first for first in ticking.skipped_counts if first <= after(600)}
    assert ran | missed == owed
    assert {versions[moment] for moment in ran if moment < at} <= {1}
    assert {versions[moment] for moment in ran if moment >= at} <= {2}


def grid(following: Any, moment: Any) -> list[Any]:
    found = []
    while (moment := following(moment)) <= after(600):
        found.append(moment)
    return found


@pytest.mark.requirement("S28")
def test_the_new_rhythm_is_reckoned_from_its_time(ticking: FakeTicker) -> None:
    ticking.put(QUICK, effective_at=after(100), expected_version="any")

    carry_on(ticking, 145)

    ran = [moment for moment in ticking.times_in(RunState.SUCCEEDED) if moment > after(80)]
    assert ran == [after(90), after(120), after(140)]
    assert ticking.version_statuses[2] == (VersionStatus.ACTIVE, None)


@pytest.mark.requirement("S28")
def test_a_change_of_other_fields_leaves_the_rhythm_as_it_is() -> None:
    ticking = FakeTicker(NINE)
    ticking.put({"every": "30s"})

    later(ticking.wait(1), 100, priority=9)
    carry_on(ticking, 190)

    ran = ticking.times_in(RunState.SUCCEEDED)
    assert ran == [after(30 * k) for k in range(1, 7)]
    assert [ticking.rows[RunKey(moment, ID)].version for moment in ran] == [1, 1, 1, 2, 2, 2]


@pytest.mark.requirement("S30")
def test_a_change_that_is_overtaken_is_skipped_and_says_by_what(ticking: FakeTicker) -> None:
    later(ticking.wait(1), 600, when=QUICK)

    answer = ticking.wait(1).send("schedule.patch", set={"priority": 9})
    carry_on(ticking, 700)

    assert isinstance(answer, ScheduleResponse)
    assert (answer.status, answer.version, answer.pending_version) == ("updated", 3, None)
    assert ticking.version_statuses == {
        1: (VersionStatus.ACTIVE, None),
        2: (VersionStatus.SUPERSEDED, "overtaken by version 3"),
        3: (VersionStatus.ACTIVE, None),
    }
    made = ticking.record.version.definition.model_dump(by_alias=True, exclude_unset=True)
    assert (made["priority"], made["when"]["every"]) == (9, timedelta(seconds=20))


@pytest.mark.requirement("S30")
def test_a_later_change_for_later_overtakes_the_one_before(ticking: FakeTicker) -> None:
    later(ticking.wait(1), 600, when=QUICK)

    later(ticking.wait(1), 300, priority=9)
    carry_on(ticking, 400)

    assert [fate for fate, _ in ticking.version_statuses.values()] == [
        *(VersionStatus.ACTIVE, VersionStatus.SUPERSEDED, VersionStatus.ACTIVE),
    ]


@pytest.mark.requirement("S30")
def test_cancelled_before_its_time_the_change_is_skipped(ticking: FakeTicker) -> None:
    later(ticking.wait(1), 600, when=QUICK)

    ticking.wait(1).send("schedule.cancel")
    carry_on(ticking, 700)

    assert ticking.version_statuses[2] == (VersionStatus.SUPERSEDED, "the schedule was cancelled")
    assert (ticking.record.pending, ticking.staged_times) == (None, [])


@pytest.mark.requirement("S29")
def test_a_change_whose_time_has_passed_is_refused_and_all_stays(ticking: FakeTicker) -> None:
    later(ticking.wait(10), 600, when=QUICK)
    before = ticking.stored_record

    with pytest.raises(Conflict) as refused:
        later(ticking.wait(1), 5, priority=9)

    assert (refused.value.code, refused.value.field) == ("missed", "effective_at")
    assert ticking.stored_record == before


@pytest.mark.requirement("S29")
def test_a_refused_change_leaves_the_one_that_waits_as_it_was(ticking: FakeTicker) -> None:
    later(ticking.wait(10), 600, when=QUICK)
    book = ticking.load_unit()
    too_late = ticking.context_of(
        "schedule.patch", {"set": {"priority": 9}, "effective_at": after(5)}
    )

    with pytest.raises(Conflict):
        apply_command(book, too_late)

    assert book == ticking.load_unit()


@pytest.mark.requirement("S29")
def test_what_cannot_be_computed_is_refused_at_once(ticking: FakeTicker) -> None:
    with pytest.raises(InvalidCron):
        later(ticking, 600, when={"every": None, "start": None, "cron": "0 75 * * *"})

    assert (ticking.record.pending, ticking.staged_times) == (None, [NINE, after(30), after(60)])


@pytest.mark.requirement("S29")
def test_what_cannot_be_computed_when_its_time_comes_is_rejected_and_the_old_goes_on(
    ticking: FakeTicker,
) -> None:
    later(ticking, 100, priority=9)
    ticking.stored_record = with_broken_pending(ticking)

    carry_on(ticking, 200)

    fate, reason = ticking.version_statuses[2]
    assert (fate, bool(reason)) == (VersionStatus.FAILED, True)
    assert ticking.record.version.number == 1
    assert ticking.times_in(RunState.SUCCEEDED) == [after(30 * k) for k in range(7)]


def with_broken_pending(ticking: FakeTicker) -> Any:
    """As if the zone had gone from the zone data meanwhile."""
    assert ticking.record.pending is not None
    terms = ticking.record.pending.policy
    when = terms.when.model_copy(update={"timezone": "Nowhere/Gone"})
    broken = terms.model_copy(update={"when": when})
    return ticking.record._replace(pending=replace(ticking.record.pending, policy=broken))


@pytest.mark.requirement("S28")
def test_a_pause_holds_a_change_back_and_it_takes_effect_when_that_is_over(
    ticking: FakeTicker,
) -> None:
    later(ticking, 100, when=QUICK)
    ticking.wait(10).send("schedule.pause")
    carry_on(ticking, 200)
    held_back = (ticking.record.version.number, ticking.staged_times)

    ticking.send("schedule.resume")

    assert held_back == (1, [])
    assert ticking.version_statuses[2][0] is VersionStatus.ACTIVE
    assert ticking.record.version.number == 2


@pytest.mark.requirement("S28")
def test_a_change_for_later_does_not_prevent_a_pause_from_ending(ticking: FakeTicker) -> None:
    ticking.send("schedule.pause", until=after(50))

    later(ticking.wait(1), 100, when=QUICK)
    carry_on(ticking, 145)

    ran = ticking.times_in(RunState.SUCCEEDED)
    assert ran[-4:] == [after(90), after(100), after(120), after(140)]


@pytest.mark.requirement("S101")
def test_a_change_for_later_does_not_end_a_hold() -> None:
    ticking = FakeTicker(NINE)
    ticking.put(EVERY, on_unknown="block")
    ticking.claim(NINE, started=True)
    ticking.complete(NINE, RunState.UNRESOLVED)
    ticking.reconcile()

    later(ticking.wait(1), 100, when=QUICK)
    carry_on(ticking, 300)

    assert (ticking.record.state, ticking.staged_times) == (ScheduleState.BLOCKED, [])
    assert ticking.times_in(RunState.SUCCEEDED) == []


@pytest.mark.requirement("S33")
def test_a_cancelled_schedule_that_is_put_for_later_runs_only_from_then_on(
    ticking: FakeTicker,
) -> None:
    ticking.send("schedule.cancel")

    put = {"key": "k", "when": EVERY, "target": TASK, "priority": 9, "expected_version": "any"}
    ticking.wait(10).send_all(("schedule.put", {**put, "effective_at": after(100)}))
    carry_on(ticking, 155)

    assert ticking.times_in(RunState.SUCCEEDED) == [after(120), after(150)]


@pytest.mark.requirement("S06")
def test_after_its_success_a_schedule_runs_no_more_until_its_change_takes_effect() -> None:
    ticking = FakeTicker(NINE)
    ticking.put({**EVERY, "until": "success"})
    later(ticking.wait(1), 200, priority=9)
    ticking.run_due()
    ticking.reconcile()

    carry_on(ticking, 190)

    assert ticking.times_in(RunState.SUCCEEDED) == [NINE]


def test_a_schedule_may_be_created_for_later() -> None:
    ticking = FakeTicker(NINE)

    ticking.put({"every": "30s"}, effective_at=after(100))
    carry_on(ticking, 165)

    assert ticking.times_in(RunState.SUCCEEDED) == [after(130), after(160)]


def test_the_first_version_for_later_that_cannot_be_computed_makes_no_schedule() -> None:
    ticking = FakeTicker(NINE)

    with pytest.raises(Rejected):
        ticking.put({"cron": "0 75 * * *"}, effective_at=after(100))

    assert ticking.stored_record is None


@pytest.mark.requirement("S29")
def test_a_schedule_that_waits_for_its_run_goes_on_when_the_change_is_rejected() -> None:
    ticking = FakeTicker(NINE)
    ticking.put({"every": "60s", "from": "completion"})

    later(ticking.wait(1), 30, priority=9)
    ticking.stored_record = with_broken_pending(ticking)
    carry_on(ticking, 70)

    assert ticking.version_statuses[2][0] is VersionStatus.FAILED
    assert ticking.times_in(RunState.SUCCEEDED) == [after(60)]
