"""The rules of the retention: the rows that the ticker may remove (pure).

The SQL of `ticker/store/retention.py` contains the same rules.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from typing import Final

from harebell.domain.run_states import ENDED, RunState
from harebell.domain.tenant_policy import TenantPolicies, TenantRetention

ONE_DAY: Final = timedelta(days=1)
# The dead letter, the counts and the events of a run arrive within this time after its end.
MIN_AGE_OF_END: Final = timedelta(days=1)
# A day with runs that must stay is examined again after this time.
EXAMINATION_INTERVAL: Final = timedelta(hours=20)


class KeepRule(StrEnum):
    """The rules by which a run stays in the ledger."""

    OPEN = "open"
    UNRESOLVED = "unresolved"  # a person must still resolve the run
    RECENT_END = "recent_end"
    AGE = "age"  # the run is younger than the retention
    RANGE = "range"  # the end of its skipped range is younger, on another day than its start
    DEAD_LETTER = "dead_letter"  # a replay needs the run


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """The columns of a run that decide its removal.

    `is_needed` is true if a dead letter is open, or if a replay job counts the end of its run.
    """

    tenant: str
    state: RunState
    scheduled_for: datetime
    range_until: datetime | None = None
    finished_at: datetime | None = None
    is_needed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ages:
    """One retention for all tenants, and those of single tenants."""

    default: timedelta
    tenants: Mapping[str, timedelta]

    @classmethod
    def of(cls, field: str, default: timedelta, policies: TenantPolicies) -> "Ages":
        """Return the ages of one field of `TenantRetention`. The setting is the last default."""

        def age(retention: TenantRetention) -> timedelta:
            own: timedelta | None = getattr(retention, field)
            return default if own is None else own

        return cls(
            default=age(policies.defaults.retention),
            tenants={name: age(policy.retention) for name, policy in policies.tenants.items()},
        )

    def cutoffs(self, now: datetime) -> "Cutoffs":
        """Return the starts of the days that the ages still contain."""
        return Cutoffs(
            default=_start_of_day(now - self.default),
            tenants={name: _start_of_day(now - age) for name, age in self.tenants.items()},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutoffs:
    """The times before which runs have reached their retention, each the start of a day (UTC)."""

    default: datetime
    tenants: Mapping[str, datetime]

    def of(self, tenant: str) -> datetime:
        return self.tenants.get(tenant, self.default)

    @property
    def first(self) -> datetime:
        """Return the time before which the runs of every tenant have reached their retention."""
        return min((self.default, *self.tenants.values()))

    @property
    def last(self) -> datetime:
        """Return the time before which the runs of some tenant have reached their retention."""
        return max((self.default, *self.tenants.values()))

    def scope(self, day: date) -> str:
        """Return a text that changes as soon as more rows of the day may be removed."""
        end = start_of(day) + ONE_DAY
        names = ("", *sorted(self.tenants))
        expired = [name for name in names if end <= (self.of(name) if name else self.default)]
        text = "\n".join((str(end <= self.default), *expired))
        return hashlib.sha256(text.encode()).hexdigest()


class DayStep(StrEnum):
    """The treatment of one day of runs."""

    KEEP = "keep"
    REMOVE_ROWS = "remove_rows"
    REMOVE_PARTITION = "remove_partition"  # or rows, if a run of the day must stay


@dataclass(frozen=True, slots=True)
class Examination:
    """The last examination of a day: the scope of its removals and its time.

    `is_final` is true if every kept run stays because of its age, so that only the scope matters.
    """

    scope: str
    at: datetime
    is_final: bool


def plan_day(day: date, cutoffs: Cutoffs, last: Examination | None, *, now: datetime) -> DayStep:
    """Return the treatment of a day.

    A day with the same scope as before is examined again only if other runs may have become free.
    """
    end = start_of(day) + ONE_DAY
    if end > cutoffs.last:
        return DayStep.KEEP
    is_same = last is not None and last.scope == cutoffs.scope(day)
    if is_same and last is not None and (last.is_final or now - last.at < EXAMINATION_INTERVAL):
        return DayStep.KEEP
    return DayStep.REMOVE_PARTITION if end <= cutoffs.first else DayStep.REMOVE_ROWS


def keep_rule(run: StoredRun, cutoffs: Cutoffs, *, now: datetime) -> KeepRule | None:
    """Return why a run stays in the ledger, or None if the ticker may remove it."""
    if run.state is RunState.UNRESOLVED:
        return KeepRule.UNRESOLVED
    if run.state not in ENDED or run.finished_at is None:
        return KeepRule.OPEN
    if run.finished_at > now - MIN_AGE_OF_END:
        return KeepRule.RECENT_END
    if run.scheduled_for >= cutoffs.of(run.tenant):
        return KeepRule.AGE
    if run.range_until is not None and run.range_until >= cutoffs.of(run.tenant):
        return KeepRule.RANGE
    return KeepRule.DEAD_LETTER if run.is_needed else None


def days_until(end: datetime, days: Iterable[date]) -> list[date]:
    """Return the days that end up to a time, the oldest first."""
    return sorted(day for day in days if start_of(day) + ONE_DAY <= end)


def start_of(day: date) -> datetime:
    """Return the start of a day of UTC."""
    return datetime.combine(day, time(), UTC)


def _start_of_day(at: datetime) -> datetime:
    return start_of(at.astimezone(UTC).date())
