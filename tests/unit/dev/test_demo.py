"""The verdict of the demo: every fault is counted."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from harebell.contract.commands import ScheduleCancel, SchedulePut
from harebell.contract.message import parse
from harebell.dev.demo.schedules import (
    DemoSchedule,
    ExpectedEnd,
    cancellation,
    demo_schedules,
    expected_runs,
)
from harebell.dev.demo.verdict import DemoVerdict, LedgerRun, TargetCall, judge, percentile
from harebell.domain.run_states import RunState

DUE = datetime(2026, 11, 20, 14, tzinfo=UTC)
TWICE = DemoSchedule(
    key="twice", title="twice", body="{}", expected=2, expected_end=ExpectedEnd.SUCCEEDS
)
UNWANTED = DemoSchedule(
    key="unwanted", title="unwanted", body="{}", expected=1, expected_end=ExpectedEnd.CANCELLED
)
SCHEDULES = [TWICE, UNWANTED]


def run(run_id: str, key: str = "twice", state: RunState = RunState.SUCCEEDED) -> LedgerRun:
    return LedgerRun(
        run_id=run_id,
        key=key,
        due_at=DUE,
        started_at=DUE,
        late_ms=0.0,
        attempt=1,
        replay_number=0,
        state=state,
    )


def call(run_id: str, *, late: float = 3, well: bool = True) -> TargetCall:
    return TargetCall(run_id, DUE + timedelta(milliseconds=late), well)


FIRST, SECOND = run("first"), run("second")
CANCELLED = run("third", "unwanted", RunState.CANCELLED)
LEDGER = {FIRST: 1, SECOND: 2, CANCELLED: 0}
CALLS = [call("first"), call("second", well=False), call("second", late=900)]


def counts(verdict: DemoVerdict) -> tuple[int, ...]:
    return (verdict.ran, verdict.cancelled, verdict.missing, verdict.duplicated, verdict.early)


def test_verdict_passes_when_exactly_the_expected_runs_executed() -> None:
    verdict = judge(SCHEDULES, LEDGER, CALLS)

    assert verdict.has_passed
    assert str(verdict) == (
        "expected 3, ran 2, cancelled 1, missing 0, duplicated 0, early 0, "
        "lateness p50/p99 3.0/3.0 ms"
    )


@pytest.mark.parametrize(
    ("ledger", "calls", "expected"),
    [
        pytest.param({}, [], (0, 0, 3, 0, 0), id="no run and no call"),
        pytest.param(LEDGER, CALLS[:2], (1, 1, 1, 0, 0), id="no successful call"),
        pytest.param(
            {replace(FIRST, state=RunState.RUNNING): 0, SECOND: 2, CANCELLED: 0},
            CALLS,
            (1, 1, 1, 1, 0),
            id="a call without an attempt",
        ),
        pytest.param(
            LEDGER, [*CALLS, call("first")], (2, 1, 0, 1, 0), id="two successful calls of one run"
        ),
        pytest.param(
            LEDGER, [*CALLS, call("third")], (2, 1, 0, 1, 0), id="a call of a cancelled run"
        ),
        pytest.param(
            {**LEDGER, run("surplus"): 1},
            [*CALLS, call("surplus")],
            (3, 1, 0, 1, 0),
            id="more runs than expected",
        ),
        pytest.param(
            LEDGER, [*CALLS, call("unknown")], (2, 1, 0, 1, 0), id="a call of an unknown run"
        ),
        pytest.param(
            {FIRST: 1, SECOND: 2, run("third", "unwanted"): 1},
            [*CALLS, call("third")],
            (3, 0, 0, 1, 0),
            id="an executed run instead of a cancelled run",
        ),
        pytest.param(
            {replace(FIRST, state=RunState.CANCELLED): 0, SECOND: 2, CANCELLED: 0},
            CALLS[1:],
            (1, 2, 1, 0, 0),
            id="a run cancelled without a request",
        ),
        pytest.param(
            LEDGER, [call("first", late=-1), *CALLS[1:]], (2, 1, 0, 0, 1), id="an early call"
        ),
    ],
)
def test_verdict_fails_and_counts_each_fault(
    ledger: dict[LedgerRun, int], calls: list[TargetCall], expected: tuple[int, ...]
) -> None:
    verdict = judge(SCHEDULES, ledger, calls)

    assert counts(verdict) == expected
    assert not verdict.has_passed


def test_demo_schedules_are_valid_commands() -> None:
    schedules = demo_schedules("http://127.0.0.1:1", "261121-125159")

    for schedule in schedules:
        put = parse(SchedulePut, json.loads(schedule.body))
        assert put.key == schedule.key
    cancel = parse(ScheduleCancel, json.loads(cancellation(schedules[-1])))
    assert cancel.key == schedules[-1].key
    assert expected_runs(schedules) == 18


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([], 0.5, "-"), ([1.0], 0.99, "1.0"), ([1.0, 2.0, 3.0], 0.5, "2.0"), ([1, 2], 0.99, "2.0")],
)
def test_percentile_is_the_nearest_rank(values: list[float], share: float, expected: str) -> None:
    assert percentile(values, share) == expected
