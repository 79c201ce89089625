"""Tests of the concurrency rule: slots of a label, its line, and different limits."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from harebell.contract.ids import RunKey
from harebell.domain.concurrency import (
    MAX_LINE,
    LabelRole,
    LabelSlot,
    decide,
    decide_all,
    next_waiting,
)

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
WAITING, RESERVED = LabelRole.WAITING, LabelRole.RESERVED
SCHEDULE = UUID("3f6f2a0e-6c0e-5d5f-8f1e-0d2b1c4c9a55")


def key(number: int) -> RunKey:
    return RunKey(NOON + timedelta(seconds=number), SCHEDULE)


def slot(number: int, *, limit: int = 2, role: LabelRole = WAITING) -> LabelSlot:
    found = key(number)
    return LabelSlot(key=found, due_at=found.scheduled_for, limit=limit, role=role)


def running(*numbers: int) -> list[LabelSlot]:
    return [slot(number, role=LabelRole.RUNNING) for number in numbers]


def test_run_executes_while_fewer_runs_than_its_limit_execute() -> None:
    admitted = [decide(running(*range(occupied)), slot(9)) for occupied in range(4)]

    assert admitted == [True, True, False, False]


def test_run_does_not_pass_an_earlier_run_of_the_line() -> None:
    assert not decide([*running(0), slot(1)], slot(2))
    assert decide([*running(0), slot(2)], slot(1))


def test_run_with_a_larger_limit_waits_behind_a_run_with_a_smaller_limit() -> None:
    blocked = [*running(0), slot(1, limit=1)]

    assert not decide(blocked, slot(2, limit=9))


def test_run_with_a_reservation_executes_although_an_earlier_run_waits() -> None:
    slots = [*running(0), slot(1), slot(2, role=RESERVED)]

    assert decide(slots, slot(2, role=RESERVED))


def test_reservation_does_not_exceed_the_limit_of_its_run() -> None:
    slots = [*running(0), slot(2, limit=1, role=RESERVED)]

    assert not decide(slots, slot(2, limit=1, role=RESERVED))


def test_candidates_of_one_batch_share_the_slots_in_the_order_of_their_due_times() -> None:
    admitted = decide_all(running(0), [slot(3), slot(1), slot(2)])

    assert admitted == {key(1)}


def test_candidate_with_a_reservation_precedes_an_earlier_candidate() -> None:
    woken = slot(5, role=RESERVED)

    assert decide_all([*running(0), woken], [slot(1), woken]) == {key(5)}


def test_line_longer_than_a_decision_reads_admits_no_later_run() -> None:
    line = [slot(number, limit=500) for number in range(MAX_LINE)]

    assert not decide(line, slot(MAX_LINE, limit=500))
    assert decide(line[1:], slot(MAX_LINE, limit=500))


def test_next_waiting_returns_the_front_of_the_line_up_to_the_free_slots() -> None:
    slots = [*running(0), slot(4, limit=3), slot(2, limit=3), slot(3, limit=3)]

    assert next_waiting(slots) == [key(2), key(3)]


def test_next_waiting_stops_at_a_run_whose_limit_is_reached() -> None:
    assert next_waiting([*running(0), slot(1, limit=1), slot(2, limit=9)]) == []


def test_next_waiting_returns_nothing_without_a_waiting_run() -> None:
    assert next_waiting(running(0)) == []


def test_reserved_slot_keeps_the_smaller_limit_of_its_run_until_the_run_starts() -> None:
    small = slot(1, limit=1, role=RESERVED)

    assert not decide([small], slot(2, limit=9))
    assert next_waiting([small, slot(2, limit=9)]) == []
    assert decide(running(1), slot(2, limit=9))


def test_next_waiting_returns_no_run_behind_a_woken_run_with_a_smaller_limit() -> None:
    assert next_waiting([slot(1, limit=1), slot(2, limit=9)]) == [key(1)]
