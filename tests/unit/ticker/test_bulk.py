"""One command to many schedules: what is changed, what is told, and the way back by receipt."""

from dataclasses import replace
from uuid import UUID

import pytest
from tests.fakes.schedules import definition
from tests.fakes.ticker import TENANT
from tests.fakes.tickets import NINE, after

from harebell.contract.command_base import CommandBase
from harebell.contract.commands import (
    ScheduleCancel,
    ScheduleFilter,
    SchedulePause,
    ScheduleResume,
)
from harebell.contract.ids import RunKey
from harebell.contract.responses import BulkResponse
from harebell.domain.run_states import RunState, ScheduleState
from harebell.ticker.commands.bulk import apply_bulk, is_bulk
from harebell.ticker.commands.handlers import CommandContext
from harebell.ticker.model.unit_of_work import LockedRun, ScheduleRecord, UnitOfWork
from harebell.ticker.model.version import Version

ALL = ScheduleFilter(tag="a")
IDS = [UUID(int=number) for number in range(5)]
RECEIPT = "before-the-upgrade"


def entry(id_: UUID, state: ScheduleState = ScheduleState.ACTIVE) -> ScheduleRecord:
    version = Version.create(
        id_, 1, tenant=TENANT, definition=definition({"every": "30s"}), at=NINE
    )
    return ScheduleRecord(version, state, planned_until=NINE, changed_at=NINE, next_at=after(30))


@pytest.fixture
def book() -> UnitOfWork:
    """One of each kind: active, paused by someone else, active and running, cancelled, held."""
    states = [
        *(ScheduleState.ACTIVE, ScheduleState.PAUSED, ScheduleState.ACTIVE),
        *(ScheduleState.CANCELLED, ScheduleState.BLOCKED),
    ]
    book = UnitOfWork(schedules={id_: entry(id_, s) for id_, s in zip(IDS, states, strict=True)})
    key = RunKey(NINE, IDS[2])
    book.schedules[IDS[2]] = book.schedules[IDS[2]]._replace(open_runs=(NINE,))
    run = LockedRun(
        key,
        RunState.RUNNING,
        1,
        2,
        NINE,
        1,
        "executor-1",
        is_from_recurrence=True,
        has_started=True,
    )
    book.open_runs[key] = run
    return book


def ask(book: UnitOfWork, command: CommandBase, ids: list[UUID], at: float = 1) -> BulkResponse:
    return apply_bulk(
        book, CommandContext(TENANT, command, None, after(at), "tester"), ids, RECEIPT
    )


def states(book: UnitOfWork) -> list[ScheduleState]:
    return [book.schedules[id_].state for id_ in IDS]


def test_the_receipt_names_only_what_the_command_changed(book: UnitOfWork) -> None:
    answer = ask(book, SchedulePause(select=ALL), IDS)

    assert (answer.bulk_operation_id, answer.changed) == (RECEIPT, [IDS[0], IDS[2], IDS[4]])
    assert states(book)[:3] == [ScheduleState.PAUSED] * 3


def test_what_could_not_be_changed_is_told_with_the_reason(book: UnitOfWork) -> None:
    answer = ask(book, SchedulePause(select=ALL), IDS)

    assert answer.rejected == {str(IDS[3]): "is cancelled"}
    assert book.schedules[IDS[3]].state is ScheduleState.CANCELLED


def test_runs_in_flight_of_all_of_them_are_named(book: UnitOfWork) -> None:
    answer = ask(book, SchedulePause(select=ALL), IDS)

    assert answer.in_flight == [str(RunKey(NINE, IDS[2]))]


@pytest.mark.requirement("ASK-22")
def test_resumed_by_receipt_exactly_what_was_paused_goes_on(book: UnitOfWork) -> None:
    paused = ask(book, SchedulePause(select=ALL), IDS[:4])

    answer = ask(book, ScheduleResume(bulk_operation_id=RECEIPT), paused.changed, at=2)

    assert answer.changed == [IDS[0], IDS[2]]
    assert states(book)[:4] == [
        *(ScheduleState.ACTIVE, ScheduleState.PAUSED),
        *(ScheduleState.ACTIVE, ScheduleState.CANCELLED),
    ]


def test_what_someone_resumed_meanwhile_is_left_as_it_is(book: UnitOfWork) -> None:
    paused = ask(book, SchedulePause(select=ALL), IDS[:3])
    ask(book, ScheduleResume(select=ALL), [IDS[0]], at=2)
    before = book.schedules[IDS[0]]

    answer = ask(book, ScheduleResume(bulk_operation_id=RECEIPT), paused.changed, at=3)

    assert answer.changed == [IDS[2]]
    assert book.schedules[IDS[0]] is before


def test_one_refusal_stops_no_other(book: UnitOfWork) -> None:
    answer = ask(book, ScheduleResume(select=ALL), IDS)

    assert answer.changed == [IDS[1]]
    assert sorted(answer.rejected) == sorted(map(str, IDS[3:]))


def test_cancelling_twice_changes_nothing_the_second_time(book: UnitOfWork) -> None:
    first = ask(book, ScheduleCancel(select=ALL), IDS)

    second = ask(book, ScheduleCancel(select=ALL), IDS, at=2)

    assert first.changed == [IDS[0], IDS[1], IDS[2], IDS[4]]
    assert (second.changed, second.rejected) == ([], {})


@pytest.mark.requirement("S18")
def test_what_belongs_to_another_tenant_is_not_touched(book: UnitOfWork) -> None:
    mine = book.schedules[IDS[0]]
    foreign = mine._replace(version=replace(mine.version, tenant="another"))
    book.schedules[IDS[0]] = foreign

    answer = ask(book, SchedulePause(select=ALL), [IDS[0]])

    assert (answer.changed, list(answer.rejected)) == ([], [str(IDS[0])])
    assert book.schedules[IDS[0]] is foreign


def test_what_was_changed_later_already_is_left_alone(book: UnitOfWork) -> None:
    book.schedules[IDS[0]] = book.schedules[IDS[0]]._replace(changed_at=after(10))

    answer = ask(book, SchedulePause(select=ALL), [IDS[0]])

    assert (answer.changed, list(answer.rejected)) == ([], [str(IDS[0])])


@pytest.mark.parametrize(
    ("command", "selects"),
    [
        (SchedulePause(select=ALL), True),
        (ScheduleResume(bulk_operation_id=RECEIPT), True),
        (SchedulePause(key="a"), False),
        (ScheduleCancel(id=IDS[1]), False),
    ],
)
def test_a_command_selects_when_it_names_no_single_schedule(
    command: CommandBase, *, selects: bool
) -> None:
    assert is_bulk(command) is selects
