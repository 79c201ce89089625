"""Whatever is changed and whenever: no owed instant is lost, none is owed twice."""

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes.schedules import ID
from tests.fakes.ticker import FakeTicker
from tests.fakes.tickets import NINE, after

from harebell.contract.errors import Rejected
from harebell.contract.ids import RunKey
from harebell.contract.responses import ScheduleResponse
from harebell.domain.run_states import OPEN, RunState, ScheduleState

TARGETS = [{"task": {"name": "harebell.echo"}}, {"task": {"name": "harebell.sleep"}}]
EVERY = {"every": "20s", "start": "2026-11-20T09:00:00Z"}
OTHERS = {"every": "1h", "start": "2026-11-20T09:59:00Z"}

Step: TypeAlias = tuple[str, int]
VERBS = ["wait", "wait", "look", "run", "claim", "end", "put", "away", "pause", "resume"]
modes = st.sampled_from(["none", "one", "all"])


def steps_of(*verbs: str) -> st.SearchStrategy[list[Step]]:
    return st.lists(st.tuples(st.sampled_from(verbs), st.integers(0, 45)), max_size=30)


steps = steps_of(*VERBS)


def do(ticking: FakeTicker, step: Step, when: dict[str, Any], mode: str = "all") -> None:
    """One thing that happens; what is refused changes nothing."""
    verb, number = step
    changed: dict[str, Any] = {"expected_version": "any", "catch_up": {"mode": mode}}
    doing: dict[str, Callable[[], object]] = {
        "wait": lambda: ticking.wait(number),
        "look": ticking.stage_all,
        "run": ticking.run_due,
        "claim": lambda: claim_next(ticking, started=bool(number % 2)),
        "end": lambda: end_claimed(ticking, drop=bool(number % 2)),
        "put": lambda: ticking.put(when, **changed, target=TARGETS[number % 2]),
        "away": lambda: ticking.put(OTHERS, **changed),
        "pause": lambda: ticking.send("schedule.pause"),
        "resume": lambda: ticking.send("schedule.resume"),
        "sleep": lambda: ticking.wait(10 * number),
        "skip": lambda: ticking.send("schedule.skip", at=after(20 * number)),
        "nap": lambda: ticking.send(
            "schedule.pause", until=ticking.now + 3 * (after(number) - NINE)
        ),
        "trigger": lambda: ticking.send("schedule.trigger"),
        "later": lambda: ticking.put(
            when,
            **changed,
            target=TARGETS[number % 2],
            effective_at=ticking.now + 3 * (after(number) - NINE),
        ),
    }
    before = ticking.stored_record, dict(ticking.rows)
    try:
        doing[verb]()
    except Rejected:
        assert (ticking.stored_record, ticking.rows) == before


def claim_next(ticking: FakeTicker, *, started: bool) -> None:
    """As executors do: a little early."""
    if ticking.staged_times and ticking.staged_times[0] <= ticking.now + (after(2) - NINE):
        ticking.claim(ticking.staged_times[0], started=started)


def end_claimed(ticking: FakeTicker, *, drop: bool) -> None:
    """Those that were asked to stop and have not started end as if untouched."""
    for moment in ticking.times_in(RunState.RUNNING):
        row = ticking.rows[RunKey(moment, ID)]
        if drop and row.reason is not None and not row.started:
            ticking.cancel_unstarted(moment)
        else:
            ticking.complete(moment)


@settings(max_examples=100, deadline=None)
@given(steps=steps, jitter=st.sampled_from([None, "15s"]))
def test_pausing_and_resuming_lose_nothing_and_double_nothing(
    steps: list[Step], jitter: str | None
) -> None:
    when = {**EVERY, **({"jitter": jitter} if jitter else {})}
    ticking = FakeTicker(NINE)
    ticking.put(when, catch_up={"mode": "all"})

    for step in steps:
        if step[0] not in ("put", "away"):
            do(ticking, step, when)
    last = ticking.now
    do(ticking, ("resume", 0), when)
    end_claimed(ticking, drop=False)
    for _ in range(30):
        ticking.stage_all().run_due()
        ticking.wait(5)

    owed = [after(20 * k) for k in range(200) if after(20 * k) <= last]
    assert [m for m in ticking.times_in(RunState.SUCCEEDED) if m <= last] == owed
    assert ticking.times_in(RunState.CANCELLED) == []


@pytest.mark.requirement("S06")
@settings(max_examples=100, deadline=None)
@given(
    steps=steps_of(
        *[verb for verb in VERBS if verb != "away"], "sleep", "skip", "nap", "trigger", "later"
    ),
    times=st.integers(1, 12),
    mode=modes,
)
def test_times_is_kept_whatever_is_paused_and_resumed(
    steps: list[Step], times: int, mode: str
) -> None:
    when = {**EVERY, "times": times}
    ticking = FakeTicker(NINE)
    ticking.put(when, catch_up={"mode": mode})

    for step in steps:
        do(ticking, step, when, mode)
    do(ticking, ("resume", 0), when, mode)
    end_claimed(ticking, drop=False)
    for _ in range(120):
        ticking.stage_all().run_due()
        ticking.wait(5)

    ran = [row for row in ticking.rows.values() if row.state is RunState.SUCCEEDED and row.counts]
    assert len(ran) == times
    assert ticking.record.state is ScheduleState.COMPLETED


@pytest.mark.requirement("S27")
@settings(max_examples=100, deadline=None)
@given(steps=steps, jitter=st.sampled_from([None, "15s"]))
def test_an_update_of_the_target_alone_loses_nothing(steps: list[Step], jitter: str | None) -> None:
    when = {**EVERY, **({"jitter": jitter} if jitter else {})}
    ticking = FakeTicker(NINE)
    ticking.put(when)

    for step in steps:
        if step[0] not in ("away", "pause"):
            do(ticking, step, when)
            ticking.stage_all()
    last = ticking.now
    end_claimed(ticking, drop=False)
    for _ in range(30):
        ticking.stage_all().run_due()
        ticking.wait(5)

    owed = {after(20 * k) for k in range(200) if after(20 * k) <= last}
    assert owed <= set(ticking.times_in(RunState.SUCCEEDED))
    assert ticking.times_in(RunState.CANCELLED) == []


@settings(max_examples=100, deadline=None)
@given(steps=steps)
def test_a_change_leaves_the_books_consistent(steps: list[Step]) -> None:
    ticking = FakeTicker(NINE)
    ticking.put(EVERY)

    for step in steps:
        do(ticking, step, EVERY)
        kept = ticking.record
        planned_open = {m for m in ticking.times_in(*OPEN) if m not in kept.open_runs}

        assert planned_open == set()  # an open run that its schedule forgot could not be cancelled
        assert (kept.next_at is None) == (kept.state is not ScheduleState.ACTIVE)
        assert kept.next_at is None or kept.next_at > kept.planned_until


@pytest.mark.requirement("ASK-18")
def test_an_answer_tells_what_will_run() -> None:
    ticking = FakeTicker(after(-1))

    answer = ticking.put(EVERY)

    assert isinstance(answer, ScheduleResponse)
    assert ticking.staged_times[:3] == answer.next_at


@pytest.mark.requirement("S26", "ASK-18")
@settings(max_examples=60, deadline=None)
@given(
    waits=st.lists(st.integers(0, 45), min_size=1, max_size=8),
    when=st.sampled_from([EVERY, {"every": "20s"}, {"cron": "* * * * *"}, {"after": "90s"}]),
)
def test_so_many_identical_puts_have_one_effect(waits: list[int], when: dict[str, Any]) -> None:
    once, often = FakeTicker(NINE), FakeTicker(NINE)
    once.put(when)
    often.put(when)

    for seconds in waits:
        again = often.wait(seconds).put(when)
        assert isinstance(again, ScheduleResponse)
        assert (again.status, again.version) == ("unchanged", 1)
        once.wait(seconds)
        for ticking in (once, often):
            ticking.stage_all().run_due()

    assert (often.stored_record, often.rows, often.version_statuses) == (
        once.stored_record,
        once.rows,
        once.version_statuses,
    )
