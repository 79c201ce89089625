"""Bulk operations: the changed and rejected schedules, and a resume by the operation id."""

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
from harebell.ticker.commands.bulk import apply_bulk
from harebell.ticker.commands.handlers import CommandContext
from harebell.ticker.model.unit_of_work import LockedRun, ScheduleRecord, UnitOfWork
from harebell.ticker.model.version import Version

ALL = ScheduleFilter(tag="a")
IDS = [UUID(int=number) for number in range(5)]
OPERATION = "before-the-upgrade"


def schedule(id_: UUID, state: ScheduleState = ScheduleState.ACTIVE) -> ScheduleRecord:
    version = Version.create(
        id_, 1, tenant=TENANT, definition=definition({"every": "30s"}), at=NINE
    )
    return ScheduleRecord(version, state, planned_until=NINE, changed_at=NINE, next_at=after(30))


@pytest.fixture
def unit() -> UnitOfWork:
    """Return schedules that are active, paused, active and running, cancelled, and blocked."""
    states = [
        ScheduleState.ACTIVE,
        ScheduleState.PAUSED,
        ScheduleState.ACTIVE,
        ScheduleState.CANCELLED,
        ScheduleState.BLOCKED,
    ]
    unit = UnitOfWork(schedules={id_: schedule(id_, s) for id_, s in zip(IDS, states, strict=True)})
    key = RunKey(NINE, IDS[2])
    unit.schedules[IDS[2]] = unit.schedules[IDS[2]]._replace(open_runs=(NINE,))
    run = LockedRun(
        key=key,
        state=RunState.RUNNING,
        attempt=1,
        seq=2,
        due_at=NINE,
        version=1,
        lease_holder="executor-1",
        is_from_recurrence=True,
        has_started=True,
    )
    unit.open_runs[key] = run
    return unit


def apply(unit: UnitOfWork, command: CommandBase, ids: list[UUID], at: float = 1) -> BulkResponse:
    return apply_bulk(
        unit,
        CommandContext(TENANT, command, None, after(at), "tester"),
        ids,
        bulk_operation_id=OPERATION,
    )


def states(unit: UnitOfWork) -> list[ScheduleState]:
    return [unit.schedules[id_].state for id_ in IDS]


def test_response_contains_only_the_changed_schedules(unit: UnitOfWork) -> None:
    response = apply(unit, SchedulePause(select=ALL), IDS)

    assert (response.bulk_operation_id, response.changed) == (OPERATION, [IDS[0], IDS[2], IDS[4]])
    assert states(unit)[:3] == [ScheduleState.PAUSED] * 3


def test_response_contains_the_reason_of_each_rejected_schedule(unit: UnitOfWork) -> None:
    response = apply(unit, SchedulePause(select=ALL), IDS)

    assert response.rejected == {str(IDS[3]): "The schedule must not be cancelled."}
    assert unit.schedules[IDS[3]].state is ScheduleState.CANCELLED


def test_response_contains_the_claimed_runs_of_all_schedules(unit: UnitOfWork) -> None:
    response = apply(unit, SchedulePause(select=ALL), IDS)

    assert response.in_flight == [str(RunKey(NINE, IDS[2]))]


@pytest.mark.requirement("ASK-22")
def test_resume_by_bulk_operation_resumes_exactly_the_paused_schedules(unit: UnitOfWork) -> None:
    paused = apply(unit, SchedulePause(select=ALL), IDS[:4])

    response = apply(unit, ScheduleResume(bulk_operation_id=OPERATION), paused.changed, at=2)

    assert response.changed == [IDS[0], IDS[2]]
    assert states(unit)[:4] == [
        ScheduleState.ACTIVE,
        ScheduleState.PAUSED,
        ScheduleState.ACTIVE,
        ScheduleState.CANCELLED,
    ]


def test_schedule_that_another_command_resumed_stays_unchanged(unit: UnitOfWork) -> None:
    paused = apply(unit, SchedulePause(select=ALL), IDS[:3])
    apply(unit, ScheduleResume(select=ALL), [IDS[0]], at=2)
    before = unit.schedules[IDS[0]]

    response = apply(unit, ScheduleResume(bulk_operation_id=OPERATION), paused.changed, at=3)

    assert response.changed == [IDS[2]]
    assert unit.schedules[IDS[0]] is before


def test_one_rejected_schedule_prevents_no_other_change(unit: UnitOfWork) -> None:
    response = apply(unit, ScheduleResume(select=ALL), IDS)

    assert response.changed == [IDS[1]]
    assert sorted(response.rejected) == sorted(map(str, IDS[3:]))


def test_second_bulk_cancel_changes_nothing(unit: UnitOfWork) -> None:
    first = apply(unit, ScheduleCancel(select=ALL), IDS)

    second = apply(unit, ScheduleCancel(select=ALL), IDS, at=2)

    assert first.changed == [IDS[0], IDS[1], IDS[2], IDS[4]]
    assert (second.changed, second.rejected) == ([], {})


@pytest.mark.requirement("S18")
def test_schedule_of_another_tenant_is_rejected(unit: UnitOfWork) -> None:
    own = unit.schedules[IDS[0]]
    foreign = own._replace(version=replace(own.version, tenant="another"))
    unit.schedules[IDS[0]] = foreign

    response = apply(unit, SchedulePause(select=ALL), [IDS[0]])

    assert (response.changed, list(response.rejected)) == ([], [str(IDS[0])])
    assert unit.schedules[IDS[0]] is foreign


def test_schedule_with_a_later_change_is_rejected(unit: UnitOfWork) -> None:
    unit.schedules[IDS[0]] = unit.schedules[IDS[0]]._replace(changed_at=after(10))

    response = apply(unit, SchedulePause(select=ALL), [IDS[0]])

    assert (response.changed, list(response.rejected)) == ([], [str(IDS[0])])


@pytest.mark.parametrize(
    ("command", "is_bulk"),
    [
        (SchedulePause(select=ALL), True),
        (ScheduleResume(bulk_operation_id=OPERATION), True),
        (SchedulePause(key="a"), False),
        (ScheduleCancel(id=IDS[1]), False),
    ],
)
def test_command_is_bulk_when_it_contains_a_filter_or_a_bulk_operation_id(
    command: CommandBase, *, is_bulk: bool
) -> None:
    assert command.is_bulk is is_bulk
