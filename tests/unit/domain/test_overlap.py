"""The rule about runs of a schedule that would run over each other, as a table."""

from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from harebell.contract.policy import Overlap
from harebell.domain.overlap import (
    MAX_WAITING,
    Decision,
    OverlapSlot,
    Proceed,
    SkipRun,
    Wait,
    decide,
    decide_all,
    next_waiting,
)
from harebell.domain.run_states import Reason, RunState

ALLOW, SKIP, QUEUE, REPLACE = Overlap.ALLOW, Overlap.SKIP, Overlap.QUEUE, Overlap.REPLACE


def at(minute: int) -> datetime:
    return datetime(2026, 11, 20, 9, tzinfo=UTC) + timedelta(minutes=minute)


def staged(minute: int) -> OverlapSlot:
    return OverlapSlot(at(minute), RunState.STAGED)


def waiting(minute: int) -> OverlapSlot:
    return OverlapSlot(at(minute), RunState.STAGED, is_waiting=True)


def running(minute: int) -> OverlapSlot:
    return OverlapSlot(at(minute), RunState.RUNNING, is_running=True)


def retrying(minute: int) -> OverlapSlot:
    return OverlapSlot(at(minute), RunState.RETRYING, is_running=True)


def returned(minute: int) -> OverlapSlot:
    """Return the slot of a run that a stopping executor returned before its start."""
    return OverlapSlot(at(minute), RunState.STAGED, is_running=True)


def unresolved(minute: int) -> OverlapSlot:
    return OverlapSlot(at(minute), RunState.UNRESOLVED, is_running=True)


NOBODY: Final[list[OverlapSlot]] = []
OVERLAP, REPLACED = SkipRun(Reason.OVERLAP), SkipRun(Reason.REPLACED)
TABLE: Final[list[tuple[Overlap, list[OverlapSlot], OverlapSlot, Decision]]] = [
    *((policy, NOBODY, staged(5), Proceed()) for policy in Overlap),
    (ALLOW, [running(4)], staged(5), Proceed()),
    # skip: not while another runs, or will run again
    (SKIP, [running(4)], staged(5), OVERLAP),
    (SKIP, [retrying(4)], staged(5), OVERLAP),
    (SKIP, [unresolved(4)], staged(5), OVERLAP),
    (SKIP, [returned(4)], staged(5), OVERLAP),
    (SKIP, [running(6)], staged(5), OVERLAP),
    (SKIP, [retrying(5)], retrying(5), Proceed()),
    (SKIP, [returned(5)], returned(5), Proceed()),
    (SKIP, [waiting(4), waiting(5)], waiting(4), Proceed()),
    # queue: one after the other, in order
    (QUEUE, [running(4)], staged(5), Wait()),
    (QUEUE, [retrying(4)], staged(5), Wait()),
    (QUEUE, [unresolved(4)], staged(5), Wait()),
    (QUEUE, [returned(4)], staged(5), Wait()),
    (QUEUE, [waiting(4)], staged(5), Wait()),
    (QUEUE, [waiting(6)], staged(5), Proceed()),
    (QUEUE, [waiting(5), waiting(6)], waiting(5), Proceed()),
    (QUEUE, [waiting(5), retrying(6)], waiting(5), Wait()),
    (QUEUE, [waiting(4), retrying(5)], retrying(5), Proceed()),
    (QUEUE, [running(4), retrying(5)], retrying(5), Wait()),
    # replace: the newest; what runs is asked to stop, what does not run will not be
    (REPLACE, [running(4)], staged(5), Wait(stopped=(at(4),))),
    (REPLACE, [retrying(4)], staged(5), Proceed(replaced=(at(4),))),
    (REPLACE, [returned(4)], staged(5), Proceed(replaced=(at(4),))),
    (REPLACE, [waiting(3), running(2)], staged(5), Wait((at(3),), (at(2),))),
    (REPLACE, [waiting(5), running(2)], waiting(5), Wait((), (at(2),))),
    (REPLACE, [waiting(5)], waiting(5), Proceed()),
    (REPLACE, [unresolved(4)], staged(5), Wait()),
    (REPLACE, [running(6)], staged(5), REPLACED),
    (REPLACE, [waiting(6), running(4)], retrying(5), REPLACED),
]


@pytest.mark.requirement("S50")
@pytest.mark.parametrize(("policy", "standing", "candidate", "expected"), TABLE)
def test_decide_returns_the_decision_of_each_policy(
    policy: Overlap, standing: list[OverlapSlot], candidate: OverlapSlot, expected: Decision
) -> None:
    assert decide(policy, standing, candidate) == expected


@pytest.mark.requirement("S50")
def test_queue_skips_a_run_when_the_maximum_waits() -> None:
    full = [running(0), *(waiting(minute) for minute in range(1, MAX_WAITING + 1))]

    assert decide(QUEUE, full, staged(500)) == OVERLAP
    assert decide(QUEUE, full, waiting(MAX_WAITING)) == Wait(), "who waits already goes on waiting"
    assert decide(QUEUE, full, retrying(500)) == Wait(), "nor is it skipped once it has begun"
    assert decide(QUEUE, full[:-1], staged(500)) == Wait()


@pytest.mark.requirement("S50")
@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (SKIP, {1: Proceed(), 2: OVERLAP, 3: OVERLAP}),
        (QUEUE, {1: Proceed(), 2: Wait(), 3: Wait()}),
        (REPLACE, {1: REPLACED, 2: REPLACED, 3: Proceed()}),
    ],
)
def test_decide_all_lets_one_of_several_runs_proceed(
    policy: Overlap, expected: dict[int, Decision]
) -> None:
    together = [(policy, staged(minute)) for minute in (2, 3, 1)]

    assert decide_all([], together) == {at(minute): each for minute, each in expected.items()}


@pytest.mark.requirement("S50")
@pytest.mark.parametrize(
    ("policy", "standing", "expected"),
    [
        *((policy, NOBODY, None) for policy in Overlap),
        (QUEUE, [waiting(6), waiting(5)], 5),
        (QUEUE, [retrying(4), waiting(5)], None),
        (QUEUE, [running(4), waiting(5)], None),
        (QUEUE, [unresolved(4), waiting(5)], None),
        (SKIP, [waiting(6), waiting(5)], 5),
        (REPLACE, [waiting(5)], 5),
        (REPLACE, [retrying(4), waiting(5)], 5),
        (REPLACE, [running(4), waiting(5)], None),
        (REPLACE, [retrying(4)], None),
    ],
)
def test_next_waiting_returns_the_run_to_wake(
    policy: Overlap, standing: list[OverlapSlot], expected: int | None
) -> None:
    assert next_waiting(policy, standing) == (None if expected is None else at(expected))
