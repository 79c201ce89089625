"""An audit finds no fault in any history of a schedule, and finds each row that is deleted."""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from tests.fakes.audit import AuditedTicker
from tests.fakes.tickets import NINE, after

from harebell.audit.model.records import FindingKind
from harebell.contract.errors import Rejected
from harebell.domain.run_states import RunState

Step: TypeAlias = tuple[str, int]  # an action and its number

TARGETS: Final = [{"task": {"name": "harebell.echo"}}, {"task": {"name": "harebell.sleep"}}]
EVERY: Final = {"every": "20s", "start": "2026-11-20T09:00:00Z"}
SEVEN_TIMES: Final = {**EVERY, "times": 7}
OTHER_TIMES: Final = {"every": "1h", "start": "2026-11-20T09:59:00Z"}
ACTIONS: Final = (
    "wait",
    "wait",
    "wait",
    "stage",
    "run",
    "claim",
    "end",
    "put",
    "put other times",
    "pause",
    "resume",
    "cancel",
    "patch later",
    "trigger",
    "skip",
    "patch",
    "put later",
    "revive",
    "delete",
)
LAST_RUN_STAGED: Final = [
    ("put", 0),
    ("wait", 173),
    ("wait", 200),
    ("wait", 200),
    ("patch later", 83),
]

steps_of_history = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 200)), max_size=30)
policies = st.sampled_from(["none", "one", "all"])
rules = st.sampled_from([EVERY, {**EVERY, "jitter": "15s"}, SEVEN_TIMES, {"cron": "*/7 * * * * *"}])


def apply(ticker: AuditedTicker, step: Step, when: dict[str, Any]) -> None:
    """Apply one step. A rejected command changes nothing."""
    action, number = step
    policy: dict[str, Any] = {"expected_version": "any", "catch_up": {"mode": "all"}}
    patch = {"priority": number % 10 + 1}
    later = after(ticker.now.timestamp() - NINE.timestamp() + number)
    actions: dict[str, Callable[[], object]] = {
        "wait": lambda: ticker.wait(number),
        "stage": ticker.stage_all,
        "run": ticker.run_due,
        "claim": lambda: claim_first(ticker, started=bool(number % 2)),
        "end": lambda: end_running(ticker, cancels=bool(number % 2)),
        "put": lambda: ticker.put(when, **policy, target=TARGETS[number % 2]),
        "put other times": lambda: ticker.put(OTHER_TIMES, **policy),
        "pause": lambda: ticker.send("schedule.pause"),
        "resume": lambda: ticker.send("schedule.resume"),
        "cancel": lambda: ticker.send("schedule.cancel"),
        "patch": lambda: ticker.send("schedule.patch", set=patch),
        "patch later": lambda: ticker.send("schedule.patch", set=patch, effective_at=later),
        "put later": lambda: ticker.put(when, **policy, **patch, effective_at=later),
        "revive": lambda: ticker.put(when, **policy, revive=True),
        "delete": lambda: ticker.send("schedule.delete"),
        "trigger": lambda: ticker.send("schedule.trigger"),
        "skip": lambda: ticker.send("schedule.skip", at=after(20 * (number + 1))),
    }
    try:
        actions[action]()
    except Rejected:
        return


def claim_first(ticker: AuditedTicker, *, started: bool) -> None:
    """Claim the first staged run up to two seconds before its time, as executors do."""
    if ticker.staged_times and ticker.staged_times[0] <= ticker.now + (after(2) - NINE):
        ticker.claim(ticker.staged_times[0], started=started)


def end_running(ticker: AuditedTicker, *, cancels: bool) -> None:
    """Complete the running runs, or cancel the ones with a stop request before their start."""
    for time in ticker.times_in(RunState.RUNNING):
        run = next(run for run in ticker.rows.values() if run.scheduled_for == time)
        if cancels and run.stop_reason is not None and run.started_at is None:
            ticker.cancel_unstarted(time)
        else:
            ticker.complete(time)


def history_of(steps: list[Step], when: dict[str, Any], catch_up: str) -> AuditedTicker:
    ticker = AuditedTicker(NINE)
    ticker.put(when, catch_up={"mode": catch_up})
    for step in steps:
        apply(ticker, step, when)
        ticker.wait(0.001)  # no two changes have the same time
    return ticker


@pytest.mark.requirement("S76")
@settings(max_examples=100)
@given(steps=steps_of_history, when=rules, catch_up=policies)
@example(steps=LAST_RUN_STAGED, when=SEVEN_TIMES, catch_up="none")  # and a version is pending
def test_audit_finds_nothing_after_any_history(
    steps: list[Step], when: dict[str, Any], catch_up: str
) -> None:
    ticker = history_of(steps, when, catch_up)

    assert ticker.findings() == []


@pytest.mark.requirement("S76")
@settings(max_examples=100)
@given(steps=steps_of_history, when=rules, catch_up=policies, data=st.data())
def test_audit_finds_each_row_that_is_deleted(
    steps: list[Step], when: dict[str, Any], catch_up: str, data: st.DataObject
) -> None:
    ticker = history_of([("wait", 45), *steps, ("wait", 45)], when, catch_up)
    end_running(ticker, cancels=False)
    schedule, window, runs = ticker.schedule, ticker.window(), ticker.runs
    ranges = [run for run in runs if run.range_until is not None and run.range_count != 1]
    required = {
        time for each in schedule.windows for time in each.decided_times(window.since, window.until)
    }
    candidates = [
        run
        for run in runs
        if run.scheduled_for in required
        and run.state != RunState.CANCELLED
        and not any(
            other.scheduled_for < run.scheduled_for <= other.range_until
            for other in ranges
            if other.range_until
        )
    ]
    assume(candidates)
    deleted = data.draw(st.sampled_from(candidates))

    coverage = ticker.check(*(run for run in runs if run is not deleted))

    found = [(each.kind, each.at) for each in coverage.findings]
    assert (FindingKind.MISSING, deleted.scheduled_for) in found
    assert coverage.recorded < coverage.expected
