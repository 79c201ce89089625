"""Counts of the live schedules of tenants, for their quota `schedules`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import asyncpg

from harebell.contract.errors import QuotaExceeded
from harebell.domain.tenant_policy import PolicySource
from harebell.domain.usage_counts import SCHEDULES
from harebell.runtime.clock import monotonic

MAX_AGE: Final = 10.0  # seconds of a count that leaves room for the creations of a batch
MIN_AGE: Final = 1.0  # seconds of a count that leaves no room, so that a flood counts rarely
MAX_COUNTS: Final = 10_000  # tenants with a count in memory
RETRY_AFTER: Final = 60.0  # seconds, in which schedules may end or be deleted


@dataclass(frozen=True, slots=True)
class ScheduleCountStatements:
    """The statement of this module."""

    count_live: str


STATEMENTS: Final = ScheduleCountStatements(
    count_live="""
SELECT count(*) FROM (
    SELECT FROM schedules s JOIN schedule_state t ON t.schedule_id = s.id
    WHERE s.tenant = $1 AND t.state NOT IN ('completed', 'cancelled', 'deleted')
    LIMIT $2) AS live
""",
)


@dataclass(slots=True)
class _Count:
    """A count of live schedules, which counts each later creation, and its monotonic time."""

    number: int
    at: float


@dataclass(slots=True)
class ScheduleRoom:
    """The schedules that a tenant may still create or revive in a transaction, and its quota."""

    limit: int
    remaining: int
    taken: int = 0

    def check(self) -> None:
        """Raise `QuotaExceeded` without room."""
        if self.remaining <= 0:
            reason = f"The tenant may have at most {self.limit} schedules that have not ended."
            raise QuotaExceeded(reason, rule=SCHEDULES, retry_after=RETRY_AFTER)

    def take(self) -> None:
        """Count one creation or revival."""
        self.remaining -= 1
        self.taken += 1


@dataclass(slots=True)
class ScheduleCounts:
    """The counts of one ticker, which applies all commands of a tenant in one sequence.

    A count omits the schedules that have ended since its statement, for at most `MAX_AGE`.
    """

    policies: PolicySource
    _counts: dict[str, _Count] = field(default_factory=dict)

    async def rooms(
        self, connection: asyncpg.Connection, creations: Mapping[str, int]
    ) -> dict[str, ScheduleRoom]:
        """Return the room of each tenant with a quota, in the transaction of its creations."""
        rooms: dict[str, ScheduleRoom] = {}
        for tenant, number in creations.items():
            limit = self.policies.current.of(tenant).quotas.schedules
            if limit is not None:
                count = await self._count(connection, tenant, number, limit=limit)
                rooms[tenant] = ScheduleRoom(limit, limit - count)
        return rooms

    def record(self, rooms: Mapping[str, ScheduleRoom]) -> None:
        """Count the schedules that a committed transaction has created or revived."""
        for tenant, room in rooms.items():
            if tenant in self._counts:
                self._counts[tenant].number += room.taken

    async def _count(
        self, connection: asyncpg.Connection, tenant: str, creations: int, *, limit: int
    ) -> int:
        known = self._counts.get(tenant)
        if known is not None:
            max_age = MAX_AGE if known.number + creations <= limit else MIN_AGE
            if monotonic() - known.at <= max_age:
                return known.number
        number: int = await connection.fetchval(STATEMENTS.count_live, tenant, limit + 1)
        if len(self._counts) >= MAX_COUNTS:
            self._counts.clear()
        self._counts[tenant] = _Count(number, monotonic())
        return number
