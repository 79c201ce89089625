"""Creating and changing a schedule: what is answered, what is owed, what is withdrawn."""

from typing import Any

import pytest
from tests.fakes.schedules import HORIZON, ID, TASK, definition, seconds
from tests.fakes.ticker import FakeTicker
from tests.fakes.tickets import NINE, after

from harebell.contract.errors import Conflict, Rejected
from harebell.contract.ids import RunKey
from harebell.contract.responses import ScheduleResponse
from harebell.domain.run_states import Reason, RunState, ScheduleState

EVERY = {"every": "30s", "start": "2026-11-20T09:00:00Z"}
OTHER = {"task": {"name": "harebell.sleep"}}


def told(answer: object) -> ScheduleResponse:
    assert isinstance(answer, ScheduleResponse)
    return answer


@pytest.mark.requirement("S24")
def test_a_put_creates_version_one_and_tells_when_it_runs() -> None:
    ticking = FakeTicker(NINE)

    answer = told(ticking.put(EVERY))

    assert (answer.status, answer.version, answer.state) == ("created", 1, "active")
    assert answer.next_at == [NINE, after(30), after(60)]
    assert ticking.staged_times == [NINE, after(30), after(60)]


@pytest.mark.requirement("S26", "ASK-18")
def test_the_same_put_again_changes_nothing() -> None:
    ticking = FakeTicker(NINE)
    ticking.put(EVERY)
    before = ticking.stored_record

    answer = told(ticking.wait(5).put({**EVERY, "timezone": "UTC"}))

    assert (answer.status, answer.version) == ("unchanged", 1)
    assert ticking.stored_record == before


@pytest.mark.requirement("S26")
def test_another_body_is_a_conflict_that_names_the_key() -> None:
    ticking = FakeTicker(NINE)
    ticking.put(EVERY)

    with pytest.raises(Conflict) as refused:
        ticking.put(EVERY, target=OTHER)

    assert (refused.value.code, refused.value.field) == ("conflict", "key")


@pytest.mark.requirement("S27")
@pytest.mark.parametrize("expected", [1, "any"])
def test_the_expected_version_replaces_what_is_there(expected: object) -> None:
    ticking = FakeTicker(NINE)
    ticking.put(EVERY)

    answer = told(ticking.wait(10).put({"every": "1h"}, expected_version=expected))

    assert (answer.status, answer.version) == ("updated", 2)
    assert answer.next_at[0] == after(3610)


@pytest.mark.requirement("S27")
@pytest.mark.parametrize("expected", [2, 99])
def test_another_version_than_the_current_is_a_conflict(expected: int) -> None:
    ticking = FakeTicker(NINE)
    ticking.put(EVERY)

    with pytest.raises(Conflict) as refused:
        ticking.put(EVERY, expected_version=expected)

    assert refused.value.field == "expected_version"


def test_a_number_is_no_version_of_a_schedule_that_is_not_there() -> None:
    with pytest.raises(Rejected) as refused:
        FakeTicker(NINE).put(EVERY, expected_version=1)

    assert (refused.value.code, refused.value.field) == ("not_found", "expected_version")


def test_any_version_creates_what_is_not_there() -> None:
    assert told(FakeTicker(NINE).put(EVERY, expected_version="any")).status == "created"


def test_a_change_older_than_the_last_applied_is_stale() -> None:
    ticking = FakeTicker(NINE)
    ticking.put(EVERY)
    ticking.wait(10).put(EVERY, target=OTHER, expected_version="any")

    with pytest.raises(Conflict) as refused:
        ticking.wait(-5).put(EVERY, expected_version="any")

    assert refused.value.code == "stale"


@pytest.mark.requirement("S10")
def test_no_run_of_the_old_timing_is_left_after_a_change() -> None:
    ticking = FakeTicker(NINE)
    ticking.put(EVERY)
    ticking.run_due()

    ticking.wait(10).put({"every": "20s"}, expected_version="any")

    assert ticking.staged_times == [after(30), after(50), after(70), after(90)]
    assert ticking.times_in(RunState.CANCELLED) == [after(60)]
    assert {row.reason for row in ticking.rows.values() if row.state is RunState.CANCELLED} == {
        Reason.SUPERSEDED
    }


@pytest.mark.requirement("S27")
def test_put_and_put_back_lose_nothing_and_double_nothing() -> None:
    ticking = FakeTicker(NINE)
    ticking.put(EVERY)
    ticking.run_due()
    ticking.wait(10).put({"every": "1h"}, expected_version="any")

    ticking.wait(5).put(EVERY, expected_version="any")

    assert ticking.staged_times == [after(30), after(60), after(90)]
    assert ticking.times_in(RunState.SUCCEEDED) == [NINE]
    assert {ticking.rows[RunKey(moment, ID)].version for moment in ticking.staged_times} == {3}


def test_an_overdue_staged_run_takes_the_new_version() -> None:
    ticking = FakeTicker(NINE)
    ticking.put(EVERY)

    ticking.wait(10).put({"every": "1h"}, target=OTHER, expected_version="any")

    row = ticking.rows[RunKey(NINE, ID)]
    assert (row.state, row.version, row.seq) == (RunState.STAGED, 2, 2)


@pytest.mark.parametrize(
    "when", [{"cron": "0 9 * * *"}, {"cron": "0 9 * * 1-5"}, {"at": "2026-11-20T09:00:00Z"}]
)
def test_a_run_that_waits_out_its_jitter_is_not_lost_by_an_update(when: dict[str, Any]) -> None:
    ticking = FakeTicker(after(-1))
    ticking.put({"cron": "0 9 * * *", "jitter": "10h"})
    due_at = ticking.rows[RunKey(NINE, ID)].due_at

    ticking.wait(60).put({**when, "jitter": "10h"}, target=OTHER, expected_version="any")

    row = ticking.rows[RunKey(NINE, ID)]
    assert due_at > ticking.now
    assert (row.state, row.version, row.due_at) == (RunState.STAGED, 2, due_at)


@pytest.mark.requirement("S10")
def test_a_run_that_waits_out_its_jitter_goes_when_the_new_timing_does_not_owe_it() -> None:
    ticking = FakeTicker(after(-1))
    ticking.put({"cron": "0 9 * * *", "jitter": "10h"})

    ticking.wait(60).put({"cron": "0 11 * * *", "jitter": "10h"}, expected_version="any")

    assert ticking.staged_times == []


def test_a_run_in_flight_is_named_and_keeps_its_version_to_its_end() -> None:
    ticking = FakeTicker(NINE)
    ticking.put(EVERY)
    ticking.claim(NINE, started=True)

    answer = told(ticking.wait(1).put(EVERY, target=OTHER, expected_version="any"))

    assert answer.in_flight == [str(RunKey(NINE, ID))]
    assert ticking.rows[RunKey(NINE, ID)].version == 1


def test_two_puts_in_one_transaction_leave_overdue_runs_to_the_last() -> None:
    ticking = FakeTicker(NINE)
    ticking.put(EVERY)
    ticking.wait(10)

    ticking.send_all(
        *(
            ("schedule.put", {"key": "k", "when": {"every": hours}, "target": TASK, **anyhow})
            for hours, anyhow in (
                ("1h", {"expected_version": "any"}),
                ("2h", {"expected_version": 2}),
            )
        )
    )

    assert ticking.rows[RunKey(NINE, ID)].version == 3


@pytest.mark.requirement("S06")
def test_times_goes_on_counting_when_only_the_target_changes() -> None:
    ticking = FakeTicker(NINE)
    ticking.put({**EVERY, "times": 4})
    ticking.run_due()

    ticking.wait(10).put({**EVERY, "times": 4}, target=OTHER, expected_version="any")
    for _ in range(20):
        ticking.wait(10).stage_all().run_due()

    assert ticking.times_in(RunState.SUCCEEDED) == [after(30 * k) for k in range(4)]


@pytest.mark.requirement("S06")
def test_a_claimed_run_is_counted_once_when_the_target_changes() -> None:
    ticking = FakeTicker(after(-1))
    ticking.put({**EVERY, "times": 3})
    ticking.claim(NINE)

    ticking.put({**EVERY, "times": 3}, target=OTHER, expected_version="any")
    ticking.wait(1).complete(NINE)
    for _ in range(20):
        ticking.wait(10).stage_all().run_due()

    assert ticking.times_in(RunState.SUCCEEDED) == [NINE, after(30), after(60)]
    assert ticking.record.state is ScheduleState.COMPLETED


@pytest.mark.requirement("S14")
def test_a_paused_schedule_stays_paused_when_it_is_changed() -> None:
    ticking = FakeTicker(NINE)
    ticking.put(EVERY)
    ticking.send("schedule.pause", note="migration")

    answer = told(ticking.wait(1).put({"every": "20s"}, expected_version="any"))

    assert (answer.status, answer.state, answer.next_at) == ("updated", "paused", [])
    assert (ticking.staged_times, ticking.record.reason) == ([], "migration")


def test_a_cancelled_schedule_is_not_revived_without_an_expected_version() -> None:
    ticking = FakeTicker(NINE)
    ticking.put(EVERY)
    ticking.send("schedule.cancel")

    same = told(ticking.wait(1).put(EVERY))
    with pytest.raises(Conflict):
        ticking.put(EVERY, target=OTHER)
    revived = told(ticking.put(EVERY, expected_version="any"))

    assert (same.status, same.state) == ("unchanged", "cancelled")
    assert (revived.status, revived.state) == ("updated", "active")


@pytest.mark.requirement("S02")
def test_a_completed_one_shot_runs_again_only_at_another_instant() -> None:
    ticking = FakeTicker(NINE)
    ticking.put({"at": "2026-11-20T09:00:00Z"})
    ticking.run_due()

    ticking.wait(5).put({"at": "2026-11-20T09:00:00Z"}, target=OTHER, expected_version="any")
    same = list(ticking.staged_times)
    ticking.wait(5).put({"now": True}, expected_version="any")

    assert same == []
    assert ticking.staged_times == [after(10)]


def test_a_definition_that_cannot_be_computed_is_refused_and_the_book_is_as_it_was() -> None:
    ticking = FakeTicker(NINE)
    ticking.put(EVERY)
    before = ticking.load_unit()

    with pytest.raises(Rejected):
        ticking.put({"cron": "61 * * * *"}, expected_version="any")

    assert ticking.load_unit() == before


@pytest.mark.requirement("S36")
def test_nothing_beyond_the_horizon_is_handed_over() -> None:
    ticking = FakeTicker(NINE)

    ticking.put({"every": "30s"})

    assert max(ticking.staged_times) <= NINE + HORIZON
    assert ticking.record.next_at == after(90)
    said = ticking.record.version.definition.to_json()
    assert said == {**definition({"every": "30s"}).to_json(), "key": said["key"]}
    assert seconds(84) == HORIZON
