"""Schedules for tests: definitions, and a planner that repeats passes over one schedule."""

from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from tests.fakes.tickets import NINE

from harebell.contract.ids import RunKey
from harebell.contract.schedule import Definition
from harebell.domain.planner import plan
from harebell.domain.recurrence import Recurrence, initial_cursor, recurrence_of
from harebell.domain.run_states import NewRun, Placement, Reason, SkippedRange

ID: Final = UUID("0d9a6a53-64a2-5a5c-8f0e-3c1d1f7a5b21")
HORIZON: Final = timedelta(seconds=84)
TASK: Final = {"task": {"name": "harebell.echo"}}
PLACEMENT: Final = Placement("default", 1, "default", "normal", 5)


def definition(when: dict[str, Any], **policies: Any) -> Definition:
    return Definition.model_validate({"when": when, "target": TASK, **policies})


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def skipped_range(first: datetime, last: datetime, count: int, reason: Reason) -> SkippedRange:
    return SkippedRange(
        key=RunKey(first, ID), placement=PLACEMENT, until=last, count=count, reason=reason
    )


@dataclass
class FakePlanning:
    """The planning of one schedule from its acceptance on, pass after pass."""

    definition: Definition
    accepted_at: datetime = NINE
    _: KW_ONLY
    runs: list[NewRun] = field(default_factory=list)
    skipped: list[SkippedRange] = field(default_factory=list)
    recurrence: Recurrence = field(init=False)
    planned_until: datetime = field(init=False)
    next_at: datetime | None = field(init=False)

    def __post_init__(self) -> None:
        self.recurrence = recurrence_of(self.definition, ID, self.accepted_at)
        self.planned_until = initial_cursor(self.recurrence, self.accepted_at)
        self.next_at = self.recurrence.next_after(self.planned_until)

    def plan_until_horizon(self, now: datetime, until: datetime | None = None) -> "FakePlanning":
        """Repeat passes until no scheduled time up to the horizon is left."""
        until = now + HORIZON if until is None else until
        while self.next_at is not None and self.next_at <= until:
            self.run_pass(now, until)
        return self

    def run_pass(self, now: datetime, until: datetime) -> None:
        result = plan(
            self.recurrence,
            self.definition,
            ID,
            placement=PLACEMENT,
            cursor=self.planned_until,
            dispatched=len(self.runs),
            now=now,
            until=until,
        )
        assert result.planned_until > self.planned_until or result.next_at is None
        self.runs += result.runs
        self.skipped += result.skipped
        self.planned_until, self.next_at = result.planned_until, result.next_at

    @property
    def times(self) -> list[datetime]:
        return [run.scheduled_for for run in self.runs]

    @property
    def skipped_count(self) -> int:
        return sum(each.count for each in self.skipped)
