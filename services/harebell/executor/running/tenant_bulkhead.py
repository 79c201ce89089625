"""The tenant bulkhead: pure rules for the part of an executor that one tenant may use.

The share of a lane is strict. An attempt keeps its slot until its timeout, so an attempt beyond the
share could delay the first run of another tenant by that timeout.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from harebell.executor.model.throughput import CLAIM_AHEAD
from harebell.executor.running.target_bulkhead import TargetBulkhead

# The largest number of attempts of a tenant that run at once in an executor, or None.
ConcurrencyQuota: TypeAlias = Callable[[str], int | None]


def no_quota(tenant: str) -> None:  # required by the type
    """Return None for every tenant."""


@dataclass(slots=True, kw_only=True)
class TenantAttempts:
    """The unfinished attempts of each tenant in all lanes of an executor, within its quota."""

    quota: ConcurrencyQuota = no_quota
    _running: Counter[str] = field(default_factory=Counter)
    _limited: set[str] = field(default_factory=set)  # tenants whose runs the quota has deferred
    _resumed: list[Callable[[str], None]] = field(default_factory=list)

    def watch(self, resume: Callable[[str], None]) -> None:
        """Call `resume` with a tenant when a further attempt of the tenant may start."""
        self._resumed.append(resume)

    def has_capacity(self, tenant: str) -> bool:
        """Return whether one more attempt of the tenant is within its quota."""
        quota = self.quota(tenant)
        if quota is None or self._running[tenant] < quota:
            return True
        self._limited.add(tenant)
        return False

    def start(self, tenant: str) -> None:
        self._running[tenant] += 1

    def finish(self, tenant: str) -> None:
        """Count the end of an attempt, and resume the runs that the quota has deferred."""
        self._running[tenant] -= 1
        if tenant in self._limited:
            for resume in self._resumed:
                resume(tenant)
        if not self._running[tenant]:
            del self._running[tenant]
            self._limited.discard(tenant)


@dataclass(slots=True, kw_only=True)
class TenantBulkhead(TargetBulkhead):
    """The slots of a lane by tenant, and the quota of the tenant in the whole executor."""

    attempts: TenantAttempts = field(default_factory=TenantAttempts)

    def has_capacity(self, tenant: str) -> bool:
        """Return whether one more attempt of the tenant may start."""
        return TargetBulkhead.has_capacity(self, tenant) and self.attempts.has_capacity(tenant)

    def start(self, tenant: str, expected_seconds: float = CLAIM_AHEAD) -> None:
        """Count the start of an attempt."""
        TargetBulkhead.start(self, tenant, expected_seconds)
        self.attempts.start(tenant)

    def finish(self, tenant: str, seconds: float) -> None:
        """Count the end of an attempt that took `seconds`."""
        TargetBulkhead.finish(self, tenant, seconds)
        self.attempts.finish(tenant)
