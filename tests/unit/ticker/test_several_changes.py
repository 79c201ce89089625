"""Several pending versions: their order, what supersedes them, and their runs."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.fakes.audit import AuditedTicker
from tests.fakes.schedules import HORIZON, ID
from tests.fakes.ticker import FakeTicker
from tests.fakes.tickets import NINE, after

from harebell.contract.commands import MAX_PENDING_VERSIONS
from harebell.contract.errors import Conflict
from harebell.contract.ids import RunKey
from harebell.contract.responses import ScheduleResponse
from harebell.contract.schedule import Definition
from harebell.domain.recurrence import RESOLUTION, next_times
from harebell.domain.run_states import RunState, ScheduleState
from harebell.ticker.commands.handlers import apply_command
from harebell.ticker.model.version import VersionStatus

EVERY = {"every": "30s", "start": "2026-11-20T09:00:00Z"}
QUICK = {"every": "20s"}
MAX_TIMES = 60  # of one version: one time every 7 s for 400 s needs 58


@pytest.fixture
def ticker() -> AuditedTicker:
    """Return a schedule with staged runs at nine and every half minute."""
    ticker = AuditedTicker(NINE)
    ticker.put(EVERY)
    return ticker


def put_later(ticker: FakeTicker, seconds: float, **fields: Any) -> ScheduleResponse:
    response = ticker.put(
        fields.pop("when", EVERY), effective_at=after(seconds), expected_version="any", **fields
    )
    assert isinstance(response, ScheduleResponse)
    return response


def run_until(ticker: FakeTicker, until: float, step: float = 1) -> None:
    while ticker.now < after(until):
        ticker.run_due()
        ticker.wait(step).stage_all()
    ticker.run_due()


def versions_of_runs(ticker: FakeTicker) -> dict[float, int]:
    """Return the version of each successful run by its time in seconds after nine."""
    return {
        (key.scheduled_for - NINE).total_seconds(): run.version
        for key, run in sorted(ticker.rows.items())
        if run.state is RunState.SUCCEEDED
    }


def numbers(response: object) -> list[int]:
    assert isinstance(response, ScheduleResponse)
    return [each.version for each in response.supersedes]


@pytest.mark.requirement("S28", "S29")
@pytest.mark.parametrize("order", [(100, 160, 220), (220, 160, 100), (160, 220, 100)])
def test_pending_versions_take_effect_in_the_order_of_their_effective_times(
    ticker: AuditedTicker, order: tuple[int, ...]
) -> None:
    responses = [put_later(ticker.wait(1), at, priority=at // 30) for at in order]

    run_until(ticker, 280)

    assert [each.supersedes for each in responses] == [[], [], []]
    assert [each.status for each in responses] == ["change_scheduled"] * 3
    assert [each.pending_version for each in responses] == [2, 3, 4]
    number = {at: index + 2 for index, at in enumerate(order)}
    in_force = [1] * 4 + [number[100]] * 2 + [number[160]] * 2 + [number[220]] * 2
    assert list(versions_of_runs(ticker).values()) == in_force
    assert ticker.record.version.number == number[220]
    assert {status for status, _ in ticker.version_statuses.values()} == {VersionStatus.ACTIVE}
    assert ticker.findings() == []


@pytest.mark.requirement("S30")
def test_change_supersedes_the_pending_version_of_the_same_time_only(
    ticker: AuditedTicker,
) -> None:
    for at in (100, 160, 220):
        put_later(ticker.wait(1), at, priority=at // 30)

    response = put_later(ticker.wait(1), 160, priority=1)
    run_until(ticker, 280)

    assert [(each.version, each.effective_at) for each in response.supersedes] == [(3, after(160))]
    assert ticker.version_statuses[3] == (VersionStatus.SUPERSEDED, "replaced by version 5")
    assert list(versions_of_runs(ticker).values()) == [1] * 4 + [2] * 2 + [5] * 2 + [4] * 2
    assert ticker.findings() == []


@pytest.mark.requirement("S30")
def test_change_at_once_supersedes_every_pending_version(ticker: AuditedTicker) -> None:
    for at in (220, 100, 160):
        put_later(ticker.wait(1), at, when=QUICK)

    response = ticker.wait(1).put(EVERY, priority=1, expected_version="any")
    run_until(ticker, 280)

    assert numbers(response) == [3, 4, 2]
    statuses = [ticker.version_statuses[number][0] for number in (2, 3, 4)]
    assert statuses == [VersionStatus.SUPERSEDED] * 3
    assert set(versions_of_runs(ticker).values()) == {5}
    assert ticker.findings() == []


@pytest.mark.requirement("S28")
def test_patch_changes_the_version_that_will_be_in_force_at_its_effective_time(
    ticker: AuditedTicker,
) -> None:
    put_later(ticker.wait(1), 100, priority=3)
    put_later(ticker.wait(1), 200, priority=4)

    ticker.wait(1).send("schedule.patch", set={"tags": ["x"]}, effective_at=after(150))
    ticker.wait(1).send("schedule.patch", set={"tags": ["y"]}, effective_at=after(250))

    definitions = [
        Definition.model_validate_json(row.definition_json) for row in ticker.record.pending
    ]
    assert [(each.priority, each.tags) for each in definitions] == [
        (3, []),
        (3, ["x"]),
        (4, []),
        (4, ["y"]),
    ]


@pytest.mark.requirement("S28")
def test_repeated_put_of_a_pending_version_is_unchanged(ticker: AuditedTicker) -> None:
    put_later(ticker.wait(1), 100, priority=3)
    put_later(ticker.wait(1), 200, priority=4)

    response = ticker.wait(1).put(EVERY, priority=3, effective_at=after(100))

    assert isinstance(response, ScheduleResponse)
    assert response.status == "unchanged"
    assert [each.number for each in ticker.record.pending] == [2, 3]


@pytest.mark.requirement("S29")
def test_schedule_has_at_most_twenty_pending_versions(ticker: AuditedTicker) -> None:
    for index in range(MAX_PENDING_VERSIONS):
        put_later(ticker, 1000 + index, priority=index % 10 + 1)
    before = ticker.load_unit()

    with pytest.raises(Conflict) as error:
        put_later(ticker, 2000)
    unit = ticker.load_unit()
    replaced = put_later(ticker, 1000, priority=9)

    assert (error.value.code, error.value.field) == ("too_many", "effective_at")
    assert "at most 20 pending versions" in error.value.reason
    assert unit == before
    assert numbers(replaced) == [2]
    assert len(ticker.record.pending) == MAX_PENDING_VERSIONS


@pytest.mark.requirement("S29")
def test_pending_version_that_fails_leaves_the_following_ones(ticker: AuditedTicker) -> None:
    put_later(ticker.wait(1), 100, priority=3)
    put_later(ticker.wait(1), 160, priority=4)
    definition = ticker.record.pending[0].definition
    when = definition.when.model_copy(update={"timezone": "Nowhere/Gone"})
    ticker.store_definition(2, definition.model_copy(update={"when": when}))

    run_until(ticker, 200)

    assert ticker.version_statuses[2][0] is VersionStatus.FAILED
    assert versions_of_runs(ticker) == {0: 1, 30: 1, 60: 1, 90: 1, 120: 1, 150: 1, 180: 3}


@pytest.mark.requirement("S28")
def test_every_pending_version_takes_effect_after_a_pause_over_their_effective_times(
    ticker: AuditedTicker,
) -> None:
    ticker.run_due()
    for at in (40, 70, 100):
        put_later(ticker.wait(1), at, priority=at // 20, catch_up={"mode": "all"})
    ticker.wait(1).send("schedule.pause")
    run_until(ticker, 150)
    paused = ticker.record.version.number

    ticker.send("schedule.resume")
    run_until(ticker, 155)

    assert paused == 1
    assert versions_of_runs(ticker) == {0: 1, 30: 1, 60: 2, 90: 3, 120: 4, 150: 4}
    assert ticker.findings() == []


@pytest.mark.requirement("S28")
def test_put_before_the_effective_time_of_the_first_version_supersedes_it() -> None:
    ticker = AuditedTicker(NINE)
    ticker.put(EVERY, effective_at=after(600))

    response = put_later(ticker.wait(1), 100, priority=3)
    run_until(ticker, 160)

    assert numbers(response) == [1]
    assert ticker.version_statuses == {
        1: (VersionStatus.SUPERSEDED, "replaced by version 2"),
        2: (VersionStatus.ACTIVE, None),
    }
    assert versions_of_runs(ticker) == {120: 2, 150: 2}
    assert ticker.findings() == []


def test_change_that_was_accepted_before_an_activation_follows_it(ticker: AuditedTicker) -> None:
    put_later(ticker.wait(1), 100, priority=3)
    ticker.run_due()
    context = ticker.wait(98.9).context_of("schedule.patch", {"set": {"priority": 9}})
    run_until(ticker, 101)
    unit = ticker.load_unit()
    apply_command(unit, context._replace(applied_at=ticker.now))
    ticker.save(unit)
    run_until(ticker, 160)

    assert [(each.number, each.since) for each in ticker.schedule.windows] == [
        (1, NINE),
        (2, after(100)),
        (3, after(100)),
    ]
    assert versions_of_runs(ticker)[120] == 3
    assert ticker.findings() == []


TIMES = st.lists(st.integers(85, 300), min_size=1, max_size=6, unique=True)
WHENS = st.sampled_from(
    [EVERY, QUICK, {"every": "7s"}, {"cron": "*/11 * * * * *"}, {**QUICK, "times": 2}]
)


@pytest.mark.requirement("S28")
@given(
    times=TIMES,
    whens=st.lists(WHENS, min_size=6, max_size=6),
    waits=st.lists(st.integers(1, 5), max_size=5),
    seed=st.randoms(use_true_random=False),
)
@settings(max_examples=40)
def test_each_time_runs_once_by_the_version_in_force_at_that_time_and_is_staged_ahead(
    times: list[int], whens: list[dict[str, Any]], waits: list[int], seed: Any
) -> None:
    ticker = AuditedTicker(NINE)
    ticker.put(EVERY)
    seed.shuffle(times)
    for at, when, wait in zip(times, whens, [*waits, *[1] * 6], strict=False):
        put_later(ticker.wait(wait), at, when=when, priority=at % 10 + 1)
    windows = [ticker.record.version, *ticker.record.pending]
    ends = [*(each.since for each in windows[1:]), after(400)]
    first = max(windows[1].since, ticker.horizon)
    staged: dict[Any, Any] = {}
    while ticker.now < after(330):
        for time in ticker.staged_times:
            staged.setdefault(time, ticker.now)
        ticker.run_due()
        ticker.wait(1).stage_all()
    ticker.run_due()

    required: dict[datetime, int] = {}
    for window, end in zip(windows, ends, strict=True):
        limit = getattr(window.policy.when, "times", None)
        has_own_count = limit is None or window.anchor_at is None
        assume(has_own_count)
        found = next_times(window.recurrence, window.since - RESOLUTION, MAX_TIMES)
        in_window = [time for time in found if time < end][:limit]
        required |= dict.fromkeys(in_window, window.number)
    ran = {
        key.scheduled_for: run.version
        for key, run in ticker.rows.items()
        if run.state is RunState.SUCCEEDED
    }
    assert ran == {time: number for time, number in required.items() if time <= ticker.now}
    late = [
        time
        for time in ran
        if time >= first and time - staged[time] < HORIZON - timedelta(seconds=1)
    ]
    assert late == []
    assert ticker.findings() == []


def test_state_of_the_schedule_contains_the_next_pending_version(ticker: AuditedTicker) -> None:
    put_later(ticker.wait(1), 200)
    put_later(ticker.wait(1), 100)

    assert [each.number for each in ticker.record.pending] == [3, 2]
    assert ticker.record.state is ScheduleState.ACTIVE
    assert (ticker.schedule.pending_at, ticker.rows[RunKey(NINE, ID)].version) == (after(100), 1)
