"""Schedules for tests of the ticker's rules: definitions, and planning carried on look by look."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from tests.fakes.tickets import NINE

from harebell.contract.schedule import Definition
from harebell.domain.planner import Planned, Skipped, plan
from harebell.domain.recurrence import Recurrence, initial_cursor, recurrence_of

ID: Final = UUID("0d9a6a53-64a2-5a5c-8f0e-3c1d1f7a5b21")
HORIZON: Final = timedelta(seconds=84)
TASK: Final = {"task": {"name": "harebell.echo"}}


def definition(when: dict[str, Any], **policies: Any) -> Definition:
    return Definition.model_validate({"when": when, "target": TASK, **policies})


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


@dataclass
class Planning:
    """One schedule's planning from its acceptance on, as tickers carry it from look to look."""

    definition: Definition
    accepted_at: datetime = NINE
    runs: list[Planned] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    table: Recurrence = field(init=False)
    planned_until: datetime = field(init=False)
    next_at: datetime | None = field(init=False)

    def __post_init__(self) -> None:
        self.table = recurrence_of(self.definition, ID, self.accepted_at)
        self.planned_until = initial_cursor(self.table, self.accepted_at)
        self.next_at = self.table.next_after(self.planned_until)

    def look(self, now: datetime, until: datetime | None = None) -> "Planning":
        """Pass by pass, until nothing is owed up to the horizon."""
        until = now + HORIZON if until is None else until
        while self.next_at is not None and self.next_at <= until:
            self.one_pass(now, until)
        return self

    def one_pass(self, now: datetime, until: datetime) -> None:
        made = plan(
            self.table,
            self.definition,
            ID,
            cursor=self.planned_until,
            dispatched=len(self.runs),
            now=now,
            until=until,
        )
        assert made.planned_until > self.planned_until or made.next_at is None
        self.runs += made.runs
        self.skipped += made.skipped
        self.planned_until, self.next_at = made.planned_until, made.next_at

    @property
    def instants(self) -> list[datetime]:
        return [run.scheduled_for for run in self.runs]

    @property
    def skips(self) -> int:
        return sum(each.count for each in self.skipped)
