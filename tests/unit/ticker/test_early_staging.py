"""The early staging of the first runs of a pending version."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.fakes.schedules import HORIZON, ID
from tests.fakes.ticker import FakeTicker
from tests.fakes.tickets import NINE, after

from harebell.contract.errors import Conflict
from harebell.contract.ids import RunKey
from harebell.domain.run_states import RunState, ScheduleState
from harebell.ticker.commands.handlers import apply_command
from harebell.ticker.model.version import VersionStatus

EVERY = {"every": "30s", "start": "2026-11-20T09:00:00Z"}
QUICK = {"every": "20s", "start": "2026-11-20T09:00:00Z"}
RULES = [
    {"every": "1s", "start": "2026-11-20T09:00:00Z"},
    QUICK,
    {"cron": "*/7 * * * * *"},
    {**QUICK, "times": 3},
    {"at": "2026-11-20T09:03:20Z"},
]


def later(seconds: float = 200, when: dict[str, Any] | None = None) -> FakeTicker:
    """Return a schedule with a pending version. Each staging pass is on time."""
    ticker = FakeTicker(NINE)
    ticker.put(EVERY)
    ticker.put(when or QUICK, effective_at=after(seconds), expected_version="any", priority=9)
    return ticker


def run_until(ticker: FakeTicker, until: float) -> FakeTicker:
    while ticker.now < after(until):
        ticker.run_due()
        ticker.wait(1).stage_all()
    return ticker


def version_of(ticker: FakeTicker, seconds: float) -> int:
    return ticker.rows[RunKey(after(seconds), ID)].version


@pytest.mark.requirement("S28")
def test_runs_from_the_effective_time_on_are_staged_before_it() -> None:
    ticker = run_until(later(), 150)

    assert ticker.staged_times == [after(k) for k in (150, 180, 200, 220)]
    assert [version_of(ticker, k) for k in (180, 200, 220)] == [1, 2, 2]
    assert (ticker.record.version.number, ticker.version_statuses[2][0]) == (
        1,
        VersionStatus.PENDING,
    )


@pytest.mark.requirement("S28")
@given(when=st.sampled_from(RULES), at=st.integers(85_000, 260_000))
@settings(max_examples=25)
def test_every_run_of_a_pending_version_is_staged_a_horizon_ahead(
    when: dict[str, Any], at: int
) -> None:
    once = when.get("at")  # a time before the effective time is rejected
    assume(once is None or datetime.fromisoformat(once) >= NINE + timedelta(milliseconds=at))
    ticker = later(at / 1000, when)
    seen: dict[Any, Any] = {}

    while ticker.now < after(300):
        ticker.run_due()
        ticker.wait(1).stage_all()
        for time in ticker.staged_times:
            seen.setdefault(time, ticker.now)

    first = [time for time in seen if time >= NINE + timedelta(milliseconds=at)][:50]
    assert all(time - seen[time] >= HORIZON - timedelta(seconds=1) for time in first)
    assert {version for m in first if (version := ticker.rows[RunKey(m, ID)].version)} <= {2}


@pytest.mark.requirement("S06")
def test_runs_that_were_staged_early_count_towards_times_of_the_new_version() -> None:
    ticker = run_until(later(when={**QUICK, "times": 3}), 400)

    ran = [time for time in ticker.times_in(RunState.SUCCEEDED) if time >= after(200)]
    assert ran == [after(200), after(220), after(240)]
    assert ticker.record.state is ScheduleState.COMPLETED


@pytest.mark.requirement("S28")
def test_superseded_pending_version_is_unstaged_and_the_old_recurrence_continues() -> None:
    ticker = run_until(later(), 150)

    ticker.put(EVERY, expected_version="any")
    run_until(ticker, 281)

    ran = [time for time in ticker.times_in(RunState.SUCCEEDED) if time > after(150)]
    assert ran == [after(k) for k in (180, 210, 240, 270)]
    assert ticker.version_statuses[2] == (VersionStatus.SUPERSEDED, "replaced by version 3")


@pytest.mark.requirement("S28")
def test_later_effective_time_unstages_only_the_runs_after_it() -> None:
    ticker = run_until(later(), 150)

    ticker.put(QUICK, effective_at=after(220), expected_version="any", priority=8)
    run_until(ticker, 241)

    ran = [time for time in ticker.times_in(RunState.SUCCEEDED) if time > after(150)]
    assert ran == [after(k) for k in (180, 200, 220, 240)]
    assert [version_of(ticker, k) for k in (180, 200, 220)] == [1, 2, 3]


@pytest.mark.requirement("S28")
@pytest.mark.parametrize("verb", ["schedule.pause", "schedule.cancel"])
def test_pause_and_cancel_unstage_the_runs_that_were_staged_early(verb: str) -> None:
    ticker = run_until(later(), 150)

    ticker.send(verb)

    assert ticker.staged_times == []


@pytest.mark.requirement("S28")
def test_resume_before_the_effective_time_stages_the_runs_early_again() -> None:
    ticker = run_until(later(), 150)

    ticker.send("schedule.pause")
    ticker.wait(5).send("schedule.resume")
    run_until(ticker, 261)

    ran = [time for time in ticker.times_in(RunState.SUCCEEDED) if time > after(140)]
    assert ran == [after(k) for k in (150, 180, 200, 220, 240, 260)]


@pytest.mark.requirement("S28")
@pytest.mark.parametrize(
    ("instead", "ran"),
    [
        ({}, {20: 2, 40: 2, 60: 2}),
        ({"when": {"now": True}, "effective_at": after(18)}, {18: 3}),
        ({"when": {"at": "2026-11-20T09:00:30Z"}}, {30: 3}),
    ],
)
def test_early_run_that_a_pause_unstaged_belongs_to_its_pending_version_only(
    instead: dict[str, Any], ran: dict[int, int]
) -> None:
    """Replace the pending version by `instead` during the pause."""
    ticker = FakeTicker(NINE)
    ticker.put({"at": "2026-11-20T09:00:50Z"})
    ticker.put(QUICK, effective_at=after(15), expected_version="any")
    early = list(ticker.staged_times)

    ticker.wait(5).send("schedule.pause")
    if instead:
        ticker.put(**instead, expected_version="any")
    ticker.wait(5).send("schedule.resume")
    run_until(ticker, 61)

    assert early == [after(20), after(40), after(60), after(80)]
    succeeded = ticker.times_in(RunState.SUCCEEDED)
    assert succeeded == [after(second) for second in ran]
    assert {second: version_of(ticker, second) for second in ran} == ran


def test_skip_removes_a_run_of_the_pending_version_before_its_activation() -> None:
    ticker = run_until(later(when={**QUICK, "times": 2}), 150)

    ticker.send("schedule.skip", at=after(200))
    run_until(ticker, 400)

    ran = [time for time in ticker.times_in(RunState.SUCCEEDED) if time >= after(200)]
    assert ran == [after(220), after(240)]


def test_skip_rejects_the_time_of_an_early_run_that_has_ended() -> None:
    ticker = run_until(later(), 150)
    ticker.wait(50).run_due()

    with pytest.raises(Conflict) as error:
        ticker.send("schedule.skip", at=after(200))

    assert error.value.code == "too_late"
    assert ticker.record.pending
    assert after(200) in ticker.times_in(RunState.SUCCEEDED)


def test_cancelled_early_run_with_an_attempt_counts_towards_times() -> None:
    """The command was accepted before the run started, and applied after its attempt."""
    ticker = run_until(later(when={**QUICK, "times": 2}), 150)
    ticker.wait(50).claim(after(200), started=True)
    ticker.complete(after(200), RunState.RETRYING)
    cancel = ticker.context_of("run.cancel", {"run_id": str(RunKey(after(200), ID))})
    unit = ticker.load_unit(cancel)

    apply_command(unit, cancel._replace(accepted_at=after(199)))
    ticker.save(unit)
    run_until(ticker, 400)

    ran = [time for time in ticker.times_in(RunState.SUCCEEDED) if time >= after(200)]
    assert ran == [after(220)]


@pytest.mark.requirement("S07")
def test_completed_schedule_is_active_again_after_the_activation_of_its_pending_version() -> None:
    ticker = FakeTicker(NINE)
    ticker.put({"now": True})
    ticker.put(QUICK, effective_at=after(50), expected_version="any")
    early = list(ticker.staged_times)

    run_until(ticker, 81)

    assert early == [NINE, after(60), after(80)]
    assert ticker.record.state is ScheduleState.ACTIVE
    assert ticker.times_in(RunState.SUCCEEDED) == early


def test_run_that_ended_before_the_activation_is_still_reconciled() -> None:
    ticker = later(when={"every": "20s", "from": "completion", "start": "2026-11-20T09:03:20Z"})
    run_until(ticker, 199).wait(1)
    ticker.claim(after(200), started=True)
    ticker.complete(after(200))

    ticker.reconcile().stage_all()
    ticker.reconcile()

    assert ticker.staged_times == [after(220)]


@pytest.mark.requirement("S28")
@pytest.mark.parametrize("sequential", [{"from": "completion"}, {}], ids=["sequential", "fixed"])
def test_early_run_that_ends_before_a_late_activation_counts_once(
    sequential: dict[str, str],
) -> None:
    """No ticker works from before the effective time until the first run of the version ends."""
    when = {"every": "20s", "times": 2} | sequential
    ticker = run_until(later(when=when), 195)
    first = max(ticker.staged_times)
    ticker.now = first
    ticker.run_due()

    ticker.wait(3).reconcile()
    run_until(ticker.stage_all(), 400).reconcile()
    ticker.reconcile()

    ended = ticker.times_in(RunState.SUCCEEDED)
    assert first in ended
    assert version_of(ticker, (first - NINE).total_seconds()) == 2
    left = set(ended) - set(ticker.record.open_runs)
    assert ticker.record.executions == len(left)
