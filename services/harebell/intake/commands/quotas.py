"""Quotas that intake applies: changes and triggers per second, and the runs of one message."""

from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from harebell.contract.command_base import CommandBase
from harebell.contract.commands import ScheduleBackfill, SchedulePatch, SchedulePut, ScheduleTrigger
from harebell.contract.errors import QuotaExceeded
from harebell.domain.tenant_policy import Quotas

MAX_METERS: Final = 10_000  # tenants with a meter; the one that was used first loses its meter
BACKFILL_RETRY_AFTER: Final = 1.0  # seconds until a further message may contain backfills


@dataclass(slots=True)
class RateMeter:
    """A token bucket: `level` changes are free at `at`, and `rate` per second are added."""

    level: float
    at: datetime

    def take(self, rate: float, now: datetime) -> float:
        """Take one token and return 0, or return the seconds until a token is free."""
        capacity = max(rate, 1.0)
        elapsed = max(0.0, (now - self.at).total_seconds())
        self.level = min(capacity, self.level + elapsed * rate)
        self.at = max(now, self.at)
        if self.level < 1:
            return (1 - self.level) / rate
        self.level -= 1
        return 0.0


@dataclass(slots=True)
class TenantMeters:
    """The meters of the tenants of one intake.

    The queue of a tenant has one active consumer, so one intake counts all changes of a tenant.
    A restart begins with full buckets.
    """

    _meters: OrderedDict[str, RateMeter] = field(default_factory=OrderedDict)

    def take(self, tenant: str, rate: float, now: datetime) -> float:
        """Take one change of the tenant, and return the seconds to wait, which are 0 if it fits."""
        meter = self._meters.get(tenant)
        if meter is None:
            if len(self._meters) >= MAX_METERS:
                self._meters.popitem(last=False)
            meter = self._meters[tenant] = RateMeter(max(rate, 1.0), now)
        return meter.take(rate, now)


@dataclass(slots=True, kw_only=True)
class MessageQuotas:
    """The quotas of the items of one message."""

    tenant: str
    quotas: Quotas
    meters: TenantMeters
    now: datetime
    _backfill_runs: int = 0

    def check(self, command: CommandBase) -> None:
        """Raise `QuotaExceeded` for an item beyond a quota of its tenant."""
        if isinstance(command, SchedulePut | SchedulePatch | ScheduleTrigger):
            self._check_rate()
        if isinstance(command, ScheduleBackfill) and not command.dry_run:
            self._check_backfill(command)

    def _check_rate(self) -> None:
        rate = self.quotas.puts_per_second
        wait = 0.0 if rate is None else self.meters.take(self.tenant, rate, self.now)
        if wait:
            reason = f"The tenant may change or trigger at most {rate:g} schedules per second."
            raise QuotaExceeded(reason, rule="puts_per_second", retry_after=round(wait, 3))

    def _check_backfill(self, command: ScheduleBackfill) -> None:
        limit, total = self.quotas.backfill_runs, self._backfill_runs + command.max
        if limit is not None and total > limit:
            reason = (
                f"The backfills of one message may create at most {limit} runs by their `max`, "
                f"but this one would make it {total}."
            )
            raise QuotaExceeded(
                reason, rule="backfill_runs", retry_after=BACKFILL_RETRY_AFTER, field="max"
            )
        self._backfill_runs = total
