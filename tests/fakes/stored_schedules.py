"""Schedules in a ledger, stored as by their commands and not yet planned."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID, uuid5

from tests.fakes.schedules import ID, TASK

from harebell.contract.commands import SCHEDULE_COMMANDS
from harebell.ticker.commands.handlers import CommandContext, apply_command
from harebell.ticker.model.unit_of_work import UnitOfWork
from harebell.ticker.plan_writer import save_unit_of_work
from harebell.ticker.store.schedules import save_states

TENANT: Final = "default"


def schedule_ids(count: int, first: int = 0) -> list[UUID]:
    return [uuid5(ID, str(number)) for number in range(first, first + count)]


async def store_schedules(
    pool: Any,
    ids: Iterable[UUID],
    when: Mapping[str, Any],
    accepted_at: datetime,
    /,
    *,
    tenant: str = TENANT,
    **fields: Any,
) -> None:
    """Store a schedule with this `when` for each id."""
    unit = UnitOfWork()
    for each in ids:
        body = {"key": str(each), "when": when, "target": TASK, **fields}
        command = SCHEDULE_COMMANDS["schedule.put"].model_validate(body)
        apply_command(unit, CommandContext(tenant, command, each, accepted_at, "tester"))
    async with pool.acquire() as connection, connection.transaction():
        await save_unit_of_work(connection, unit)
        await save_states(connection, unit.schedules.values())
