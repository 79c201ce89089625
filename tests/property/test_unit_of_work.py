"""Random changes at random times lose no scheduled time and repeat none."""

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.fakes.schedules import ID
from tests.fakes.ticker import FakeTicker
from tests.fakes.tickets import NINE, after

from harebell.contract.errors import Conflict, Rejected
from harebell.contract.ids import RunKey
from harebell.contract.responses import ScheduleResponse
from harebell.domain.run_states import OPEN, RunState, ScheduleState

TARGETS = [{"task": {"name": "harebell.echo"}}, {"task": {"name": "harebell.sleep"}}]
EVERY = {"every": "20s", "start": "2026-11-20T09:00:00Z"}
HOURLY = {"every": "1h", "start": "2026-11-20T09:59:00Z"}

Step: TypeAlias = tuple[str, int]
ACTIONS = [
    "wait",
    "wait",
    "stage",
    "run",
    "claim",
    "end",
    "put",
    "put_hourly",
    "pause",
    "resume",
]
modes = st.sampled_from(["none", "one", "all"])


def steps_of(*actions: str) -> st.SearchStrategy[list[Step]]:
    return st.lists(st.tuples(st.sampled_from(actions), st.integers(0, 45)), max_size=30)


steps = steps_of(*ACTIONS)


def do(ticker: FakeTicker, step: Step, when: dict[str, Any], mode: str = "all") -> None:
    """Apply one action. A rejected command changes nothing.

    A trigger is never at a scheduled time, because it would then be the run of this time.
    """
    action, number = step
    changed: dict[str, Any] = {"expected_version": "any", "catch_up": {"mode": mode}}
    actions: dict[str, Callable[[], object]] = {
        "wait": lambda: ticker.wait(number),
        "stage": ticker.stage_all,
        "run": ticker.run_due,
        "claim": lambda: claim_next(ticker, started=bool(number % 2)),
        "end": lambda: end_claimed(ticker, stops=bool(number % 2)),
        "put": lambda: ticker.put(when, **changed, target=TARGETS[number % 2]),
        "put_hourly": lambda: ticker.put(HOURLY, **changed),
        "pause": lambda: ticker.send("schedule.pause"),
        "resume": lambda: ticker.send("schedule.resume"),
        "wait_longer": lambda: ticker.wait(10 * number),
        "skip": lambda: ticker.send("schedule.skip", at=after(20 * number)),
        "pause_until": lambda: ticker.send(
            "schedule.pause", until=ticker.now + 3 * (after(number) - NINE)
        ),
        "trigger": lambda: ticker.wait(0.001).send("schedule.trigger"),
        "put_later": lambda: ticker.put(
            when,
            **changed,
            target=TARGETS[number % 2],
            effective_at=ticker.now + 3 * (after(number) - NINE),
        ),
    }
    before = ticker.stored_record, dict(ticker.rows)
    try:
        actions[action]()
    except Rejected:
        assert (ticker.stored_record, ticker.rows) == before


def claim_next(ticker: FakeTicker, *, started: bool) -> None:
    """Claim the next run up to two seconds before it is due."""
    if ticker.staged_times and ticker.staged_times[0] <= ticker.now + (after(2) - NINE):
        ticker.claim(ticker.staged_times[0], started=started)


def end_claimed(ticker: FakeTicker, *, stops: bool) -> None:
    """End the claimed runs. `stops` applies the stop requests of runs that have not started."""
    for time in ticker.times_in(RunState.RUNNING):
        row = ticker.rows[RunKey(time, ID)]
        if stops and row.stop_reason is not None and row.started_at is None:
            ticker.cancel_unstarted(time)
        else:
            ticker.complete(time)


@settings(max_examples=100)
@given(steps=steps, jitter=st.sampled_from([None, "15s"]))
def test_pauses_and_resumes_lose_and_repeat_no_run(steps: list[Step], jitter: str | None) -> None:
    when = {**EVERY, **({"jitter": jitter} if jitter else {})}
    ticker = FakeTicker(NINE)
    ticker.put(when, catch_up={"mode": "all"})

    for step in steps:
        if step[0] not in ("put", "put_hourly"):
            do(ticker, step, when)
    last = ticker.now
    do(ticker, ("resume", 0), when)
    end_claimed(ticker, stops=False)
    for _ in range(30):
        ticker.stage_all().run_due()
        ticker.wait(5)

    required = [after(20 * k) for k in range(200) if after(20 * k) <= last]
    assert [m for m in ticker.times_in(RunState.SUCCEEDED) if m <= last] == required
    assert ticker.times_in(RunState.CANCELLED) == []


def test_trigger_at_a_scheduled_time_is_the_run_of_this_time() -> None:
    """One scheduled time is one run, and the run counts towards `times` when it is required."""
    ticker = FakeTicker(NINE)
    ticker.put({**EVERY, "times": 1}, catch_up={"mode": "one"})
    ticker.wait(20).send("schedule.trigger")
    ticker.wait(14).send("schedule.pause")

    ticker.send("schedule.resume")
    for _ in range(30):
        ticker.stage_all().run_due()
        ticker.wait(5)

    assert ticker.times_in(RunState.SUCCEEDED) == [after(20)]
    assert ticker.record.state is ScheduleState.COMPLETED


@pytest.mark.requirement("S06")
@example(steps=[("skip", 2), ("put_later", 1)], times=3, mode="none")
@example(steps=[("put_later", 1), ("wait", 20), ("run", 0), ("skip", 1)], times=2, mode="none")
@example(steps=[("claim", 0), ("pause", 0), ("skip", 0), ("end", 0)], times=2, mode="none")
@settings(max_examples=100)
@given(
    steps=steps_of(
        *(action for action in ACTIONS if action != "put_hourly"),
        "wait_longer",
        "skip",
        "pause_until",
        "trigger",
        "put_later",
    ),
    times=st.integers(1, 12),
    mode=modes,
)
def test_times_is_exact_after_any_sequence_of_changes(
    steps: list[Step], times: int, mode: str
) -> None:
    when = {**EVERY, "times": times}
    ticker = FakeTicker(NINE)
    ticker.put(when, catch_up={"mode": mode})

    for step in steps:
        do(ticker, step, when, mode)
    do(ticker, ("resume", 0), when, mode)
    end_claimed(ticker, stops=False)
    for _ in range(120):
        ticker.stage_all().run_due()
        ticker.wait(5)

    ran = [
        row
        for row in ticker.rows.values()
        if row.state is RunState.SUCCEEDED and row.origin is None
    ]
    assert len(ran) == times
    assert ticker.record.state is ScheduleState.COMPLETED


@pytest.mark.requirement("S27")
@settings(max_examples=100)
@given(steps=steps, jitter=st.sampled_from([None, "15s"]))
def test_change_of_the_target_loses_no_run(steps: list[Step], jitter: str | None) -> None:
    when = {**EVERY, **({"jitter": jitter} if jitter else {})}
    ticker = FakeTicker(NINE)
    ticker.put(when)

    for step in steps:
        if step[0] not in ("put_hourly", "pause"):
            do(ticker, step, when)
            ticker.stage_all()
    last = ticker.now
    end_claimed(ticker, stops=False)
    for _ in range(30):
        ticker.stage_all().run_due()
        ticker.wait(5)

    required = {after(20 * k) for k in range(200) if after(20 * k) <= last}
    assert required <= set(ticker.times_in(RunState.SUCCEEDED))
    assert ticker.times_in(RunState.CANCELLED) == []


@settings(max_examples=100)
@given(steps=steps)
def test_every_change_leaves_a_consistent_schedule(steps: list[Step]) -> None:
    ticker = FakeTicker(NINE)
    ticker.put(EVERY)

    for step in steps:
        do(ticker, step, EVERY)
        record = ticker.record
        unknown = set(ticker.times_in(*OPEN)) - set(record.open_runs)

        assert unknown == set()  # a cancel finds only the runs of its schedule
        assert (record.next_at is None) == (record.state is not ScheduleState.ACTIVE)
        assert record.next_at is None or record.next_at > record.planned_until


@pytest.mark.requirement("ASK-18")
def test_response_contains_the_times_of_the_staged_runs() -> None:
    ticker = FakeTicker(after(-1))

    response = ticker.put(EVERY)

    assert isinstance(response, ScheduleResponse)
    assert ticker.staged_times[:3] == response.next_at


@pytest.mark.requirement("S26", "ASK-18")
@settings(max_examples=60)
@given(
    waits=st.lists(st.integers(0, 45), min_size=1, max_size=8),
    when=st.sampled_from([EVERY, {"every": "20s"}, {"cron": "* * * * *"}, {"after": "90s"}]),
)
def test_repeated_puts_with_the_same_body_have_one_effect(
    waits: list[int], when: dict[str, Any]
) -> None:
    once, often = FakeTicker(NINE), FakeTicker(NINE)
    once.put(when)
    often.put(when)

    for seconds in waits:
        often.wait(seconds)
        if "after" in when and {run.state for run in often.rows.values()} == {RunState.SUCCEEDED}:
            with pytest.raises(Conflict, match="The schedule is completed"):
                often.put(when)
        else:
            again = often.put(when)
            assert isinstance(again, ScheduleResponse)
            assert (again.status, again.version) == ("unchanged", 1)
        once.wait(seconds)
        for ticker in (once, often):
            ticker.stage_all().run_due()

    assert (often.stored_record, often.rows, often.version_statuses) == (
        once.stored_record,
        once.rows,
        once.version_statuses,
    )
