"""What was owed against what is on record: lost and invented runs."""

from datetime import datetime

import pytest
from tests.fakes.audit import Audited, a_run, kinds
from tests.fakes.schedules import seconds
from tests.fakes.tickets import NINE, after

from harebell.audit.model.coverage import Coverage
from harebell.audit.model.records import FindingKind, Run
from harebell.audit.model.rules import check_runs
from harebell.domain.run_states import Reason, RunState

EVERY = {"every": "20s", "start": "2026-11-20T09:00:00Z"}


@pytest.fixture
def ticking() -> Audited:
    """Put at nine; now it is a minute later: 0, 20 and 40 s have run."""
    ticking = Audited(NINE)
    ticking.put(EVERY)
    ticking.stage_all().wait(59)
    ticking.run_due()
    return ticking


def without(ticking: Audited, at: datetime) -> list[Run]:
    return [run for run in ticking.runs if run.scheduled_for != at]


def instants(found: Coverage, kind: FindingKind) -> list[datetime | None]:
    return [each.at for each in found.findings if each.kind is kind]


@pytest.mark.requirement("S76")
def test_what_is_owed_is_what_is_recorded(ticking: Audited) -> None:
    found = ticking.examine()

    assert (found.expected, found.recorded, found.findings) == (3, 3, ())


@pytest.mark.requirement("S76")
def test_an_instant_behind_the_cursor_without_a_row_is_lost(ticking: Audited) -> None:
    found = ticking.examine(*without(ticking, after(20)))

    assert (found.expected, found.recorded) == (3, 2)
    assert instants(found, FindingKind.MISSING) == [after(20)]


def test_what_the_ticker_has_not_decided_yet_is_not_lost() -> None:
    ticking = Audited(NINE)
    ticking.put(EVERY)
    ticking.wait(300)  # and no ticker has looked

    found = ticking.examine()

    assert (found.expected, found.findings) == (5, ())  # those of the first horizon


def test_what_a_pause_leaves_open_is_not_lost_and_what_catch_up_leaves_out_is_covered(
    ticking: Audited,
) -> None:
    ticking.send("schedule.pause")
    ticking.wait(300)
    paused = ticking.examine()
    ticking.send("schedule.resume")
    resumed = ticking.examine()

    assert (paused.expected, paused.findings) == (3, ())
    assert resumed.findings == ()
    assert resumed.expected == resumed.recorded == 18
    assert [run.range_count for run in ticking.runs if run.range_until is not None] == [11]


def test_a_range_that_is_gone_is_all_of_its_instants_lost(ticking: Audited) -> None:
    ticking.send("schedule.pause")
    ticking.wait(300)
    ticking.send("schedule.resume")
    whole = [run for run in ticking.runs if run.range_until is None]

    assert len(instants(ticking.examine(*whole), FindingKind.MISSING)) == 11


@pytest.mark.parametrize("reason", [Reason.PAUSED, Reason.SUPERSEDED])
def test_a_withdrawn_run_that_was_owed_again_and_not_staged_again_is_lost(
    ticking: Audited, reason: Reason
) -> None:
    withdrawn = a_run(
        after(20),
        state=RunState.CANCELLED,
        reason=reason,
        finished_at=after(10),
        outcome="cancelled",
    )

    found = ticking.examine(*without(ticking, after(20)), withdrawn)

    assert instants(found, FindingKind.MISSING) == [after(20)]


def test_what_a_version_of_other_times_took_over_and_withdrew_is_on_record(
    ticking: Audited,
) -> None:
    ticking.wait(2)  # a minute and a second: the run of 60 s waits for an executor
    ticking.put({"every": "1h", "start": "2026-11-20T09:59:00Z"}, expected_version="any")
    ticking.send("schedule.pause")
    ticking.wait(1)

    (row,) = (run for run in ticking.runs if run.scheduled_for == after(60))

    assert (row.state, row.reason, row.version) == (RunState.CANCELLED, Reason.PAUSED, 2)
    assert ticking.examine().findings == ()


def test_a_run_that_a_person_cancelled_is_on_record(ticking: Audited) -> None:
    cancelled = a_run(
        after(20),
        state=RunState.CANCELLED,
        reason=Reason.CANCELLED,
        finished_at=NINE,
        outcome="cancelled",
    )

    assert ticking.examine(*without(ticking, after(20)), cancelled).findings == ()


def test_attempts_without_their_run_are_a_lost_run(ticking: Audited) -> None:
    found = check_runs(ticking.schedule, ticking.runs, [after(7)], ticking.window())

    assert instants(found, FindingKind.MISSING) == [after(7)]


def test_a_run_of_the_timetable_where_it_has_no_instant_is_invented(ticking: Audited) -> None:
    found = ticking.examine(*ticking.runs, a_run(after(21)))

    assert instants(found, FindingKind.UNEXPECTED) == [after(21)]


@pytest.mark.parametrize("origin", ["trigger", "backfill"])
def test_what_was_asked_for_is_not_invented(ticking: Audited, origin: str) -> None:
    assert ticking.examine(*ticking.runs, a_run(after(21), origin=origin)).findings == ()


def test_a_trigger_that_was_paused_at_once_is_not_invented(ticking: Audited) -> None:
    ticking.send_all(("schedule.trigger", {}), ("schedule.pause", {}))
    ticking.wait(1)

    assert after(59) in [run.scheduled_for for run in ticking.runs]
    assert ticking.examine().findings == ()


def test_every_version_answers_for_the_instants_it_decided(ticking: Audited) -> None:
    ticking.put({"every": "30s", "start": "2026-11-20T09:00:05Z"}, expected_version="any")
    ticking.wait(61)
    ticking.stage_all().run_due()
    runs = ticking.runs

    clean = ticking.examine()
    of_the_old = ticking.examine(*(run for run in runs if run.scheduled_for != after(40)))
    of_the_new = ticking.examine(*(run for run in runs if run.scheduled_for != after(65)))

    assert clean.findings == ()
    assert instants(of_the_old, FindingKind.MISSING) == [after(40)]
    assert instants(of_the_new, FindingKind.MISSING) == [after(65)]


def test_a_cancelled_schedule_that_is_put_again_owes_nothing_of_the_gap(ticking: Audited) -> None:
    ticking.send("schedule.cancel")
    ticking.wait(3600)
    ticking.put(EVERY, expected_version="any", priority=9)
    ticking.wait(30)
    ticking.stage_all().run_due()

    found = ticking.examine()

    assert found.findings == ()
    assert found.expected == 5  # three of the first life


def test_what_follows_a_completion_is_owed_by_no_timetable() -> None:
    ticking = Audited(NINE)
    ticking.put({"every": "20s", "from": "completion"})
    ticking.stage_all().wait(300)
    ticking.run_due()

    found = ticking.examine()

    assert (found.expected, found.findings) == (0, ())


def test_a_window_ends_before_its_until(ticking: Audited) -> None:
    ticking.now = after(40)

    assert ticking.examine().expected == 2
    assert kinds(ticking.examine(*without(ticking, after(20)))) == [FindingKind.MISSING]
    assert ticking.window().until - ticking.window().since > seconds(60)
