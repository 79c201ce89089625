"""One reading of `harebell top`: a bounded number of rows of each query."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar

from harebell.cli.top.load import RUNNING_STATE, WAITING_STATES, WINDOW, LaneLoad, lane_loads
from harebell.client import Client
from harebell.contract.queries import ForecastGrouping
from harebell.contract.views import BreakerView, FailureGroupView, ForecastView, RunView

MAX_RECENT: Final = 1_000  # runs of the window
MAX_OPEN: Final = 500  # runs of each open state
MAX_GROUPS: Final = 50  # failure groups
MAX_BREAKERS: Final = 50

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The load of a tenant at one time.

    `is_partial` is true if a query had more rows than its bound, so that counts are too low.
    `hour` has the runs of all tenants by pool, or is None in the view of one tenant.
    """

    tenant: str
    at: datetime
    lanes: list[LaneLoad]
    breakers: list[BreakerView]
    groups: list[FailureGroupView]
    is_partial: bool
    hour: ForecastView | None = None

    @property
    def open_dead_letters(self) -> int:
        return sum(each.open for each in self.groups)


async def read_load(client: Client, tenant: str, now: datetime, *, is_operator: bool) -> Reading:
    """Query the load. An operator also gets the runs and the breakers of all tenants.

    Raise the errors of the client.
    """
    recent = await _first(client.runs(limit=MAX_RECENT, since=now - WINDOW, until=now), MAX_RECENT)
    runs: list[RunView] = [*recent]
    is_partial = len(recent) == MAX_RECENT
    for state in (*sorted(WAITING_STATES), RUNNING_STATE):
        found = await _first(client.runs(limit=MAX_OPEN, state=state, until=now), MAX_OPEN)
        is_partial = is_partial or len(found) == MAX_OPEN
        runs += found
    breakers = await client.breakers(own=not is_operator)
    groups = await _first(client.failure_groups(limit=MAX_GROUPS), MAX_GROUPS)
    hour = None
    if is_operator:
        hour = await client.forecast(from_time=now, by=ForecastGrouping.POOL)
    return Reading(
        tenant=tenant,
        at=now,
        lanes=lane_loads(runs, now),
        breakers=breakers[:MAX_BREAKERS],
        groups=groups,
        is_partial=is_partial,
        hour=hour,
    )


async def _first(rows: AsyncIterator[T], limit: int) -> list[T]:
    """Return at most `limit` rows."""
    found: list[T] = []
    async for row in rows:
        found.append(row)
        if len(found) == limit:
            break
    return found
