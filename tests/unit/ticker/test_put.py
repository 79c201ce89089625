"""Creating and changing a schedule: the response, the staged runs and the unstaged runs."""

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


def schedule_response(response: object) -> ScheduleResponse:
    assert isinstance(response, ScheduleResponse)
    return response


@pytest.mark.requirement("S24")
def test_put_creates_version_one_and_returns_the_next_times() -> None:
    ticker = FakeTicker(NINE)

    response = schedule_response(ticker.put(EVERY))

    assert (response.status, response.version, response.state) == ("created", 1, "active")
    assert response.next_at == [NINE, after(30), after(60)]
    assert ticker.staged_times == [NINE, after(30), after(60)]


@pytest.mark.requirement("S26", "ASK-18")
def test_second_put_with_the_same_body_changes_nothing() -> None:
    ticker = FakeTicker(NINE)
    ticker.put(EVERY)
    before = ticker.stored_record

    response = schedule_response(ticker.wait(5).put({**EVERY, "timezone": "UTC"}))

    assert (response.status, response.version) == ("unchanged", 1)
    assert ticker.stored_record == before


@pytest.mark.requirement("S26")
def test_put_with_another_body_is_a_conflict_in_the_field_key() -> None:
    ticker = FakeTicker(NINE)
    ticker.put(EVERY)

    with pytest.raises(Conflict) as error:
        ticker.put(EVERY, target=OTHER)

    assert (error.value.code, error.value.field) == ("conflict", "key")


@pytest.mark.requirement("S27")
@pytest.mark.parametrize("expected", [1, "any"])
def test_put_with_the_expected_version_replaces_the_schedule(expected: object) -> None:
    ticker = FakeTicker(NINE)
    ticker.put(EVERY)

    response = schedule_response(ticker.wait(10).put({"every": "1h"}, expected_version=expected))

    assert (response.status, response.version) == ("updated", 2)
    assert response.next_at[0] == after(3610)


@pytest.mark.requirement("S27")
@pytest.mark.parametrize("expected", [2, 99])
def test_put_with_another_expected_version_is_a_conflict(expected: int) -> None:
    ticker = FakeTicker(NINE)
    ticker.put(EVERY)

    with pytest.raises(Conflict) as error:
        ticker.put(EVERY, expected_version=expected)

    assert error.value.field == "expected_version"


def test_put_with_an_expected_version_of_an_unknown_schedule_is_rejected() -> None:
    with pytest.raises(Rejected) as error:
        FakeTicker(NINE).put(EVERY, expected_version=1)

    assert (error.value.code, error.value.field) == ("not_found", "expected_version")


def test_put_with_any_expected_version_creates_the_schedule() -> None:
    assert (
        schedule_response(FakeTicker(NINE).put(EVERY, expected_version="any")).status == "created"
    )


def test_put_that_is_older_than_the_last_change_is_stale() -> None:
    ticker = FakeTicker(NINE)
    ticker.put(EVERY)
    ticker.wait(10).put(EVERY, target=OTHER, expected_version="any")

    with pytest.raises(Conflict) as error:
        ticker.wait(-5).put(EVERY, expected_version="any")

    assert error.value.code == "stale"


@pytest.mark.requirement("S10")
def test_change_of_the_times_unstages_every_run_of_the_old_times() -> None:
    ticker = FakeTicker(NINE)
    ticker.put(EVERY)
    ticker.run_due()

    ticker.wait(10).put({"every": "20s"}, expected_version="any")

    assert ticker.staged_times == [after(30), after(50), after(70), after(90)]
    assert ticker.times_in(RunState.CANCELLED) == [after(60)]
    assert {row.reason for row in ticker.rows.values() if row.state is RunState.CANCELLED} == {
        Reason.SUPERSEDED
    }


@pytest.mark.requirement("S27")
def test_put_and_put_of_the_old_times_lose_and_repeat_no_run() -> None:
    ticker = FakeTicker(NINE)
    ticker.put(EVERY)
    ticker.run_due()
    ticker.wait(10).put({"every": "1h"}, expected_version="any")

    ticker.wait(5).put(EVERY, expected_version="any")

    assert ticker.staged_times == [after(30), after(60), after(90)]
    assert ticker.times_in(RunState.SUCCEEDED) == [NINE]
    assert {ticker.rows[RunKey(time, ID)].version for time in ticker.staged_times} == {3}


def test_overdue_staged_run_moves_to_the_new_version() -> None:
    ticker = FakeTicker(NINE)
    ticker.put(EVERY)

    ticker.wait(10).put({"every": "1h"}, target=OTHER, expected_version="any")

    row = ticker.rows[RunKey(NINE, ID)]
    assert (row.state, row.version, row.seq) == (RunState.STAGED, 2, 2)


@pytest.mark.parametrize(
    "when", [{"cron": "0 9 * * *"}, {"cron": "0 9 * * 1-5"}, {"at": "2026-11-20T09:00:00Z"}]
)
def test_run_that_waits_for_its_jitter_moves_to_a_version_with_the_same_time(
    when: dict[str, Any],
) -> None:
    ticker = FakeTicker(after(-1))
    ticker.put({"cron": "0 9 * * *", "jitter": "10h"})
    due_at = ticker.rows[RunKey(NINE, ID)].due_at

    ticker.wait(60).put({**when, "jitter": "10h"}, target=OTHER, expected_version="any")

    row = ticker.rows[RunKey(NINE, ID)]
    assert due_at > ticker.now
    assert (row.state, row.version, row.due_at) == (RunState.STAGED, 2, due_at)


@pytest.mark.requirement("S10")
def test_run_that_waits_for_its_jitter_is_unstaged_by_a_version_without_its_time() -> None:
    ticker = FakeTicker(after(-1))
    ticker.put({"cron": "0 9 * * *", "jitter": "10h"})

    ticker.wait(60).put({"cron": "0 11 * * *", "jitter": "10h"}, expected_version="any")

    assert ticker.staged_times == []


def test_claimed_run_keeps_its_version_and_its_id_is_returned() -> None:
    ticker = FakeTicker(NINE)
    ticker.put(EVERY)
    ticker.claim(NINE, started=True)

    response = schedule_response(ticker.wait(1).put(EVERY, target=OTHER, expected_version="any"))

    assert response.in_flight == [str(RunKey(NINE, ID))]
    assert ticker.rows[RunKey(NINE, ID)].version == 1


def test_overdue_run_moves_to_the_last_version_of_a_batch() -> None:
    ticker = FakeTicker(NINE)
    ticker.put(EVERY)
    ticker.wait(10)

    ticker.send_all(
        *(
            ("schedule.put", {"key": "k", "when": {"every": hours}, "target": TASK, **expected})
            for hours, expected in (
                ("1h", {"expected_version": "any"}),
                ("2h", {"expected_version": 2}),
            )
        )
    )

    assert ticker.rows[RunKey(NINE, ID)].version == 3


@pytest.mark.requirement("S06")
def test_times_keeps_its_count_when_only_the_target_changes() -> None:
    ticker = FakeTicker(NINE)
    ticker.put({**EVERY, "times": 4})
    ticker.run_due()

    ticker.wait(10).put({**EVERY, "times": 4}, target=OTHER, expected_version="any")
    for _ in range(20):
        ticker.wait(10).stage_all().run_due()

    assert ticker.times_in(RunState.SUCCEEDED) == [after(30 * k) for k in range(4)]


@pytest.mark.requirement("S06")
def test_claimed_run_counts_once_when_the_target_changes() -> None:
    ticker = FakeTicker(after(-1))
    ticker.put({**EVERY, "times": 3})
    ticker.claim(NINE)

    ticker.put({**EVERY, "times": 3}, target=OTHER, expected_version="any")
    ticker.wait(1).complete(NINE)
    for _ in range(20):
        ticker.wait(10).stage_all().run_due()

    assert ticker.times_in(RunState.SUCCEEDED) == [NINE, after(30), after(60)]
    assert ticker.record.state is ScheduleState.COMPLETED


@pytest.mark.requirement("S14")
def test_changed_schedule_stays_paused() -> None:
    ticker = FakeTicker(NINE)
    ticker.put(EVERY)
    ticker.send("schedule.pause", note="migration")

    response = schedule_response(ticker.wait(1).put({"every": "20s"}, expected_version="any"))

    assert (response.status, response.state, response.next_at) == ("updated", "paused", [])
    assert (ticker.staged_times, ticker.record.reason) == ([], "migration")


def test_put_with_an_invalid_recurrence_is_rejected_and_changes_nothing() -> None:
    ticker = FakeTicker(NINE)
    ticker.put(EVERY)
    before = ticker.load_unit()

    with pytest.raises(Rejected):
        ticker.put({"cron": "61 * * * *"}, expected_version="any")

    assert ticker.load_unit() == before


@pytest.mark.requirement("S36")
def test_put_stages_no_run_beyond_the_horizon() -> None:
    ticker = FakeTicker(NINE)

    ticker.put({"every": "30s"})

    assert max(ticker.staged_times) <= NINE + HORIZON
    assert ticker.record.next_at == after(90)
    stored = ticker.record.version.definition.to_json()
    assert stored == {**definition({"every": "30s"}).to_json(), "key": stored["key"]}
    assert seconds(84) == HORIZON
