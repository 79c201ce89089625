"""The planning budget of a staging pass, and the tenants whose schedules exceed it."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from harebell.domain.run_states import ScheduleState
from harebell.runtime.clock import monotonic
from harebell.ticker.model.planning import plan_schedule
from harebell.ticker.model.planning_window import PlanningStep
from harebell.ticker.model.unit_of_work import ScheduleRecord
from harebell.ticker.store.schedules import TenantFilter

PLANNING_BUDGET: Final = 0.5  # seconds of planning in one pass, whose transaction holds row locks
PLANNING_SLICE: Final = 0.02  # seconds of planning that block the event loop
MAX_DEFERRED: Final = 100  # tenants, after which the set begins again


@dataclass(slots=True, kw_only=True)
class PlanningBudget:
    """The budget of one pass [s], and the time that the schedules of each tenant used [s]."""

    seconds: float = PLANNING_BUDGET
    used: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    @property
    def is_spent(self) -> bool:
        """Return whether the pass has planned a schedule and has no time left."""
        return bool(self.used) and sum(self.used.values()) > self.seconds

    async def plan(
        self,
        due: Sequence[ScheduleRecord],
        now: datetime,
        until: datetime,
        *,
        ahead: timedelta = timedelta(0),
    ) -> list[PlanningStep]:
        """Plan schedules until the budget is spent, but at least one in a pass.

        The others stay due. An active schedule without a pending version is planned up to `ahead`
        after `until`.
        """
        slice_end = monotonic() + PLANNING_SLICE
        steps: list[PlanningStep] = []
        for record in due:
            if self.is_spent:
                break
            if monotonic() > slice_end:
                await asyncio.sleep(0)
                slice_end = monotonic() + PLANNING_SLICE
            began = monotonic()
            is_plain = record.state is ScheduleState.ACTIVE and not record.pending
            steps.append(plan_schedule(record, now, until + ahead if is_plain else until))
            self.used[record.version.tenant] += monotonic() - began
        return steps


@dataclass(slots=True)
class DeferredTenants:
    """The tenants whose schedules are planned after those of all other tenants.

    A pass in which the other tenants spend the budget adds the one that used the most of it. A
    pass within its budget removes every tenant.
    """

    tenants: frozenset[str] = frozenset()

    def filters(self) -> Sequence[TenantFilter | None]:
        """Return which schedules a pass loads, in this order. None stands for every schedule."""
        if not self.tenants:
            return (None,)
        return [TenantFilter(sorted(self.tenants), are_included=each) for each in (False, True)]

    def observe(self, budget: PlanningBudget) -> None:
        """Learn from a pass which tenants the next one defers."""
        if not budget.is_spent:
            self.clear()
            return
        others = {name: used for name, used in budget.used.items() if name not in self.tenants}
        if others and sum(others.values()) > budget.seconds:
            kept = self.tenants if len(self.tenants) < MAX_DEFERRED else frozenset()
            self.tenants = kept | {max(others, key=others.__getitem__)}

    def clear(self) -> None:
        """Plan the schedules of every tenant in the order of their times again."""
        self.tenants = frozenset()
