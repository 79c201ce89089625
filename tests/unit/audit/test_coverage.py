"""Tests of the required runs against the recorded runs: missing and unexpected runs."""

from datetime import datetime

import pytest
from tests.fakes.audit import AuditedTicker, finding_kinds, run_row
from tests.fakes.schedules import seconds
from tests.fakes.tickets import NINE, after

from harebell.audit.model.coverage import Coverage
from harebell.audit.model.records import FindingKind, Run
from harebell.audit.model.rules import check_runs
from harebell.domain.run_states import Reason, RunState

EVERY = {"every": "20s", "start": "2026-11-20T09:00:00Z"}


@pytest.fixture
def ticker() -> AuditedTicker:
    """A schedule that a user put at 9:00. One minute later, the runs of 0, 20 and 40 s ran."""
    ticker = AuditedTicker(NINE)
    ticker.put(EVERY)
    ticker.stage_all().wait(59)
    ticker.run_due()
    return ticker


def runs_without(ticker: AuditedTicker, time: datetime) -> list[Run]:
    return [run for run in ticker.runs if run.scheduled_for != time]


def times_of(coverage: Coverage, kind: FindingKind) -> list[datetime | None]:
    return [each.at for each in coverage.findings if each.kind is kind]


@pytest.mark.requirement("S76")
def test_coverage_is_complete_when_each_required_run_is_recorded(ticker: AuditedTicker) -> None:
    coverage = ticker.check()

    assert (coverage.expected, coverage.recorded, coverage.findings) == (3, 3, ())


@pytest.mark.requirement("S76")
def test_time_before_the_cursor_is_missing_when_no_row_records_it(ticker: AuditedTicker) -> None:
    coverage = ticker.check(*runs_without(ticker, after(20)))

    assert (coverage.expected, coverage.recorded) == (3, 2)
    assert times_of(coverage, FindingKind.MISSING) == [after(20)]


def test_time_is_not_missing_when_the_ticker_has_not_decided() -> None:
    ticker = AuditedTicker(NINE)
    ticker.put(EVERY)
    ticker.wait(300)  # without a staging pass

    coverage = ticker.check()

    assert (coverage.expected, coverage.findings) == (5, ())  # the times of the first horizon


def test_pause_requires_nothing_and_the_catch_up_range_covers_its_times(
    ticker: AuditedTicker,
) -> None:
    ticker.send("schedule.pause")
    ticker.wait(300)
    paused = ticker.check()
    ticker.send("schedule.resume")
    resumed = ticker.check()

    assert (paused.expected, paused.findings) == (3, ())
    assert resumed.findings == ()
    assert resumed.expected == resumed.recorded == 18
    assert [run.range_count for run in ticker.runs if run.range_until is not None] == [14]


def test_each_time_of_a_range_is_missing_when_the_row_of_the_range_is_deleted(
    ticker: AuditedTicker,
) -> None:
    ticker.send("schedule.pause")
    ticker.wait(300)
    ticker.send("schedule.resume")
    single_runs = [run for run in ticker.runs if run.range_until is None]

    coverage = ticker.check(*single_runs)

    assert len(times_of(coverage, FindingKind.MISSING)) == 14


@pytest.mark.parametrize("reason", [Reason.PAUSED, Reason.SUPERSEDED])
def test_unstaged_run_is_missing_when_it_is_required_again_and_not_restaged(
    ticker: AuditedTicker, reason: Reason
) -> None:
    unstaged = run_row(
        after(20),
        state=RunState.CANCELLED,
        reason=reason,
        finished_at=after(10),
        outcome="cancelled",
    )

    coverage = ticker.check(*runs_without(ticker, after(20)), unstaged)

    assert times_of(coverage, FindingKind.MISSING) == [after(20)]


def test_run_is_recorded_when_a_later_version_took_it_over_and_unstaged_it(
    ticker: AuditedTicker,
) -> None:
    ticker.wait(2)  # the run of 60 s waits for an executor
    ticker.put({"every": "1h", "start": "2026-11-20T09:59:00Z"}, expected_version="any")
    ticker.send("schedule.pause")
    ticker.wait(1)

    (row,) = (run for run in ticker.runs if run.scheduled_for == after(60))

    assert (row.state, row.reason, row.version) == (RunState.CANCELLED, Reason.PAUSED, 2)
    assert ticker.check().findings == ()


def test_run_is_recorded_when_a_person_cancelled_it(ticker: AuditedTicker) -> None:
    cancelled = run_row(
        after(20),
        state=RunState.CANCELLED,
        reason=Reason.CANCELLED,
        finished_at=NINE,
        outcome="cancelled",
    )

    assert ticker.check(*runs_without(ticker, after(20)), cancelled).findings == ()


def test_run_is_missing_when_only_its_attempts_exist(ticker: AuditedTicker) -> None:
    coverage = check_runs(ticker.schedule, ticker.runs, [after(7)], window=ticker.window())

    assert times_of(coverage, FindingKind.MISSING) == [after(7)]


def test_run_is_unexpected_when_no_version_contains_its_time(ticker: AuditedTicker) -> None:
    coverage = ticker.check(*ticker.runs, run_row(after(21)))

    assert times_of(coverage, FindingKind.UNEXPECTED) == [after(21)]


@pytest.mark.parametrize("origin", ["trigger", "backfill"])
def test_manual_run_is_never_unexpected(ticker: AuditedTicker, origin: str) -> None:
    assert ticker.check(*ticker.runs, run_row(after(21), origin=origin)).findings == ()


def test_trigger_is_not_unexpected_when_a_pause_dropped_its_run(ticker: AuditedTicker) -> None:
    ticker.send_all(("schedule.trigger", {}), ("schedule.pause", {}))
    ticker.wait(1)

    assert after(59) in [run.scheduled_for for run in ticker.runs]
    assert ticker.check().findings == ()


def test_each_version_requires_only_the_times_that_it_decided(ticker: AuditedTicker) -> None:
    ticker.put({"every": "30s", "start": "2026-11-20T09:00:05Z"}, expected_version="any")
    ticker.wait(61)
    ticker.stage_all().run_due()

    complete = ticker.check()
    without_old = ticker.check(*runs_without(ticker, after(40)))
    without_new = ticker.check(*runs_without(ticker, after(65)))

    assert complete.findings == ()
    assert times_of(without_old, FindingKind.MISSING) == [after(40)]
    assert times_of(without_new, FindingKind.MISSING) == [after(65)]


def test_cancelled_schedule_requires_nothing_before_it_is_put_again(
    ticker: AuditedTicker,
) -> None:
    ticker.send("schedule.cancel")
    ticker.wait(3600)
    ticker.put(EVERY, revive=True, priority=9)
    ticker.wait(30)
    ticker.stage_all().run_due()

    coverage = ticker.check()

    assert coverage.findings == ()
    assert coverage.expected == 5  # three of them before the cancellation


def test_recurrence_from_completion_requires_no_time() -> None:
    ticker = AuditedTicker(NINE)
    ticker.put({"every": "20s", "from": "completion"})
    ticker.stage_all().wait(300)
    ticker.run_due()

    coverage = ticker.check()

    assert (coverage.expected, coverage.findings) == (0, ())


def test_window_excludes_its_end(ticker: AuditedTicker) -> None:
    ticker.now = after(40)

    assert ticker.check().expected == 2
    missing = ticker.check(*runs_without(ticker, after(20)))
    assert finding_kinds(missing) == [FindingKind.MISSING]
    assert ticker.window().until - ticker.window().since > seconds(60)
