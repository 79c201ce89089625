"""Whatever is changed, the books audit clean; and any row that is taken out is missed."""

from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from tests.fakes.audit import Audited
from tests.fakes.tickets import NINE, after
from tests.property.test_unit_of_work import EVERY, do, end_claimed
from tests.property.test_unit_of_work import Step as Plain

from harebell.audit.model.records import FindingKind
from harebell.contract.errors import Rejected
from harebell.domain.run_states import RunState

Step = Plain
VERBS = (
    *("wait", "wait", "wait", "look", "run", "claim", "end", "put", "away", "pause", "resume"),
    *("cancel", "later", "trigger", "skip", "revive"),
)
steps = st.lists(st.tuples(st.sampled_from(VERBS), st.integers(0, 200)), max_size=30)


def change(ticking: Audited, step: Step, when: dict[str, Any]) -> None:
    """What the book's own properties do, and more kinds of change."""
    verb, number = step
    effective_at = after(ticking.now.timestamp() - NINE.timestamp() + number)
    more: dict[str, tuple[str, dict[str, Any]]] = {
        "cancel": ("schedule.cancel", {}),
        "later": (
            "schedule.patch",
            {"set": {"priority": number % 10 + 1}, "effective_at": effective_at},
        ),
        "trigger": ("schedule.trigger", {}),
        "skip": ("schedule.skip", {"at": after(20 * (number + 1))}),
        "revive": ("schedule.patch", {"set": {"priority": number % 10 + 1}}),
    }
    if verb not in more:
        do(ticking, step, when)
        return
    try:
        ticking.send(more[verb][0], **more[verb][1])
    except Rejected:
        return


def live(steps: list[Step], when: dict[str, Any], catch_up: str) -> Audited:
    ticking = Audited(NINE)
    ticking.put(when, catch_up={"mode": catch_up})
    for step in steps:
        change(ticking, step, when)
        ticking.wait(0.001)  # no two changes are of one instant
    return ticking


policies = st.sampled_from(["none", "one", "all"])
SEVEN_TIMES = {**EVERY, "times": 7}
rules = st.sampled_from([EVERY, {**EVERY, "jitter": "15s"}, SEVEN_TIMES, {"cron": "*/7 * * * * *"}])
USED_UP = [("put", 0), ("wait", 173), ("wait", 200), ("wait", 200), ("later", 83)]


@pytest.mark.requirement("S76")
@settings(max_examples=100, deadline=None)
@given(steps=steps, when=rules, catch_up=policies)
@example(steps=USED_UP, when=SEVEN_TIMES, catch_up="none")  # and only a change waits
def test_whatever_is_changed_the_books_audit_clean(
    steps: list[Step], when: dict[str, Any], catch_up: str
) -> None:
    ticking = live(steps, when, catch_up)

    assert ticking.findings() == []


@pytest.mark.requirement("S76")
@settings(max_examples=100, deadline=None)
@given(steps=steps, when=rules, catch_up=policies, data=st.data())
def test_any_row_that_is_taken_out_is_found_lost(
    steps: list[Step], when: dict[str, Any], catch_up: str, data: st.DataObject
) -> None:
    ticking = live([("wait", 45), *steps, ("wait", 45)], when, catch_up)
    end_claimed(ticking, drop=False)
    schedule, window, runs = ticking.schedule, ticking.window(), ticking.runs
    ranges = [run for run in runs if run.range_until is not None and run.range_count != 1]
    owed = {instant for span in schedule.windows for instant in span.decided(window)}
    alone = [
        run
        for run in runs
        if run.scheduled_for in owed
        and run.state != RunState.CANCELLED
        and not any(
            other.scheduled_for < run.scheduled_for <= other.range_until
            for other in ranges
            if other.range_until
        )
    ]
    assume(alone)
    gone = data.draw(st.sampled_from(alone))

    found = ticking.examine(*(run for run in runs if run is not gone))

    assert (FindingKind.MISSING, gone.scheduled_for) in [
        (each.kind, each.at) for each in found.findings
    ]
    assert found.recorded < found.expected
