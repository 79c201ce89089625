"""The demo's verdict: nothing that goes wrong is called good."""

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
    expected_runs,
    scenes,
)
from harebell.dev.demo.verdict import DemoVerdict, LedgerRun, TargetCall, judge, percentile
from harebell.domain.run_states import RunState

DUE = datetime(2026, 11, 20, 14, tzinfo=UTC)
TWICE = DemoSchedule("twice", "twice", "{}", 2, ExpectedEnd.SUCCEEDS)
UNWANTED = DemoSchedule("unwanted", "unwanted", "{}", 1, ExpectedEnd.CANCELLED)
CAST = [TWICE, UNWANTED]


def run(run_id: str, key: str = "twice", state: RunState = RunState.SUCCEEDED) -> LedgerRun:
    return LedgerRun(run_id, key, DUE, DUE, 0.0, 1, 1, state)


def call(run_id: str, *, late: float = 3, well: bool = True) -> TargetCall:
    return TargetCall(run_id, DUE + timedelta(milliseconds=late), well)


FIRST, SECOND = run("first"), run("second")
CANCELLED = run("third", "unwanted", RunState.CANCELLED)
LEDGER = {FIRST: 1, SECOND: 2, CANCELLED: 0}
CALLS = [call("first"), call("second", well=False), call("second", late=900)]


def counts(verdict: DemoVerdict) -> tuple[int, ...]:
    return (verdict.ran, verdict.cancelled, verdict.lost, verdict.doubled, verdict.early)


def test_all_that_was_owed_and_nothing_else_is_good() -> None:
    verdict = judge(CAST, LEDGER, CALLS)

    assert verdict.good
    assert str(verdict) == (
        "owed 3, ran 2, cancelled 1, lost 0, doubled 0, early 0, lateness p50/p99 3.0/3.0 ms"
    )


@pytest.mark.parametrize(
    ("ledger", "calls", "expected"),
    [
        pytest.param({}, [], (0, 0, 3, 0, 0), id="nothing at all"),
        pytest.param(LEDGER, CALLS[:2], (1, 1, 1, 0, 0), id="the target was never called well"),
        pytest.param(
            {replace(FIRST, state=RunState.RUNNING): 0, SECOND: 2, CANCELLED: 0},
            CALLS,
            (1, 1, 1, 1, 0),
            id="a call that the ledger does not have",
        ),
        pytest.param(LEDGER, [*CALLS, call("first")], (2, 1, 0, 1, 0), id="done twice"),
        pytest.param(LEDGER, [*CALLS, call("third")], (2, 1, 0, 1, 0), id="done though cancelled"),
        pytest.param(
            {**LEDGER, run("surplus"): 1},
            [*CALLS, call("surplus")],
            (3, 1, 0, 1, 0),
            id="more than owed",
        ),
        pytest.param(LEDGER, [*CALLS, call("stranger")], (2, 1, 0, 1, 0), id="of no known run"),
        pytest.param(
            {FIRST: 1, SECOND: 2, run("third", "unwanted"): 1},
            [*CALLS, call("third")],
            (3, 0, 0, 1, 0),
            id="not cancelled at all",
        ),
        pytest.param(
            {replace(FIRST, state=RunState.CANCELLED): 0, SECOND: 2, CANCELLED: 0},
            CALLS[1:],
            (1, 2, 1, 0, 0),
            id="cancelled though nobody asked",
        ),
        pytest.param(
            LEDGER, [call("first", late=-1), *CALLS[1:]], (2, 1, 0, 0, 1), id="a moment too early"
        ),
    ],
)
def test_what_went_wrong_is_counted_and_not_good(
    ledger: dict[LedgerRun, int], calls: list[TargetCall], expected: tuple[int, ...]
) -> None:
    verdict = judge(CAST, ledger, calls)

    assert counts(verdict) == expected
    assert not verdict.good


def test_what_is_published_is_what_the_contract_takes() -> None:
    cast = scenes("http://127.0.0.1:1", "261121-125159")

    for scene in cast:
        put = parse(SchedulePut, json.loads(scene.body))
        assert put.key == scene.key
    cancel = parse(ScheduleCancel, json.loads(cancellation(cast[-1])))
    assert cancel.key == cast[-1].key
    assert expected_runs(cast) == 18


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([], 0.5, "-"), ([1.0], 0.99, "1.0"), ([1.0, 2.0, 3.0], 0.5, "2.0"), ([1, 2], 0.99, "2.0")],
)
def test_a_percentile_is_the_nearest_rank(values: list[float], share: float, expected: str) -> None:
    assert percentile(values, share) == expected
