"""Random histories: the stored counts and the open runs always give the status of the ledger."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes.ledger.replays import reopen_runs
from tests.fakes.ledger.runs import RUNS, Run, move
from tests.fakes.ledger.store import Transaction
from tests.fakes.schedules import ID
from tests.fakes.ticker import FakeTicker
from tests.fakes.tickets import NINE, after

from harebell.contract.errors import Rejected
from harebell.contract.ids import RunKey
from harebell.domain.run_states import (
    OPEN,
    Actor,
    RunResult,
    RunState,
    ScheduleState,
    result_of,
    visible_state,
)

EVERY = {"every": "20s", "start": "2026-11-20T09:00:00Z"}
ONCE = {"at": "2026-11-20T09:00:30Z"}
ENDS = [RunState.SUCCEEDED, RunState.DEAD, RunState.RETRYING, RunState.UNRESOLVED, RunState.EXPIRED]

rules = st.sampled_from(
    [ONCE, EVERY, {**EVERY, "times": 3}, {**EVERY, "times": 3, "until": "success"}]
)
policies = st.sampled_from([{}, {"pause_after_failures": 2}, {"on_unknown": "block"}])
ACTIONS = [
    "wait",
    "wait",
    "claim",
    "end",
    "end",
    "stage",
    "reconcile",
    "replay",
    "put_daily",
    "pause",
    "resume",
    "trigger",
    "skip",
    "cancel_run",
    "resolve",
    "put",
    "cancel",
]
actions = st.sampled_from(ACTIONS)
steps = st.lists(st.tuples(actions, st.integers(0, 45)), max_size=40)


def do(ticker: FakeTicker, action: str, number: int, definition: dict[str, Any]) -> None:
    """Apply one action. A rejected command changes nothing."""
    run_id = str(RunKey(after(20 * (number % 5)), ID))
    changed: dict[str, Any] = {"expected_version": "any"}
    do_action: dict[str, Callable[[], object]] = {
        "wait": lambda: ticker.wait(number),
        "stage": ticker.stage_all,
        "claim": lambda: claim(ticker, number),
        "end": lambda: end(ticker, ENDS[number % len(ENDS)]),
        "reconcile": ticker.reconcile,
        "replay": lambda: replay(ticker),
        "pause": lambda: ticker.send("schedule.pause"),
        "resume": lambda: ticker.send("schedule.resume"),
        "cancel": lambda: number % 4 or ticker.send("schedule.cancel"),
        "trigger": lambda: ticker.send("schedule.trigger"),
        "skip": lambda: ticker.send("schedule.skip", at=after(20 * (number % 5))),
        "cancel_run": lambda: ticker.send("run.cancel", run_id=run_id),
        "resolve": lambda: resolve(ticker, ["retry", "succeeded", "skipped"][number % 3]),
        "put": lambda: ticker.put(**definition, **changed, priority=1 + number % 9),
        "put_daily": lambda: number % 4 or ticker.put({"every": "1d"}, **changed),
    }
    try:
        do_action[action]()
    except Rejected:
        return


def claim(ticker: FakeTicker, number: int) -> None:
    waiting = ticker.times_in(RunState.STAGED, RunState.RETRYING)
    due = [time for time in waiting if ticker.rows[RunKey(time, ID)].due_at <= ticker.now]
    if due:
        ticker.claim(due[number % len(due)], started=True)


def end(ticker: FakeTicker, state: RunState) -> None:
    for time in ticker.times_in(RunState.RUNNING)[:1]:
        ticker.complete(time, state)


def resolve(ticker: FakeTicker, resolution: str) -> None:
    for time in ticker.times_in(RunState.UNRESOLVED)[:1]:
        ticker.send("run.resolve", run_id=str(RunKey(time, ID)), **{"as": resolution})


def replay(ticker: FakeTicker) -> None:
    for time in ticker.times_in(RunState.DEAD)[:1]:
        run = ticker.rows[RunKey(time, ID)]
        transaction = Transaction(ticker.ledger.store, ticker)
        columns = {"replay_number": run.replay_number + 1, "attempt": 0, "finished_at": None}
        assert move(transaction, Actor.REPLAY, run, RunState.STAGED, **columns) is not None
        reopen_runs(transaction, [ID], [time])
        transaction.commit()


def read_status(ticker: FakeTicker) -> tuple[ScheduleState, int, int, Run | None]:
    """Return the state, the counts and the last run as intake reads them."""
    record, rows = ticker.record, ticker.ledger.store.tables[RUNS]
    open_rows = [run for time in record.open_runs if (run := rows.get(RunKey(time, ID)))]
    results = [result(run) for run in open_rows]
    last = [] if record.last_run is None else [rows[RunKey(record.last_run, ID)]]
    candidates = [run for run in (*open_rows, *last) if is_last_run(run)]
    return (
        visible_state(record.state, has_open_run=any(run.state in OPEN for run in open_rows)),
        record.executions + sum(each.is_execution for each in results),
        record.failures + sum(each.is_failure for each in results),
        max(candidates, key=lambda run: (not is_skipped(run), run.scheduled_for), default=None),
    )


def result(run: Run) -> RunResult:
    return RunResult(run.state, run.attempt, run.is_unstaged)


def is_last_run(run: Run) -> bool:
    if run.state in OPEN:
        return run.attempt > 0 or run.replay_number > 0
    return not run.is_unstaged


def is_skipped(run: Run) -> bool:
    """Return whether the run is the last run only if no other run is."""
    return run.state is RunState.SKIPPED and run.attempt == 0


def attempted(ticker: FakeTicker) -> Iterator[Run]:
    return (run for run in ticker.rows.values() if run.attempt > 0 or run.replay_number > 0)


@pytest.mark.requirement("S06", "S40")
@settings(max_examples=150)
@given(when=rules, policy=policies, steps=steps)
def test_status_counts_each_ended_run_once_and_shows_each_open_run(
    when: dict[str, Any], policy: dict[str, Any], steps: list[tuple[str, int]]
) -> None:
    ticker, definition = FakeTicker(NINE), {"when": when, **policy}
    ticker.put(**definition)

    for action, number in steps:
        do(ticker, action, number, definition)
        state, executions, failures, last = read_status(ticker)

        results = [result(run) for run in ticker.rows.values()]
        assert executions == sum(each.is_execution for each in results)
        assert failures == sum(each.is_failure for each in results)
        if state is ScheduleState.COMPLETED:
            assert not ticker.times_in(*OPEN)
        latest = max((run.scheduled_for for run in attempted(ticker)), default=NINE)
        assert latest == NINE or (last is not None and last.scheduled_for >= latest)


@pytest.mark.requirement("S02", "S40")
@settings(max_examples=60)
@given(steps=steps)
def test_completed_one_shot_has_the_state_of_its_run_as_its_result(
    steps: list[tuple[str, int]],
) -> None:
    ticker, definition = FakeTicker(NINE), {"when": ONCE}
    ticker.put(**definition)

    for action, number in steps:
        if action not in ("trigger", "put", "put_daily"):
            do(ticker, action, number, definition)
    state, _, _, last = read_status(ticker)

    runs = list(ticker.ledger.store.tables[RUNS].values())
    if state is ScheduleState.COMPLETED and len(runs) == 1:
        assert last is not None
        assert result_of(state, last.state) == runs[0].state
