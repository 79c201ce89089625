"""The budget of rejection events of each tenant, because a tenant causes these events freely."""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

EVENTS_PER_SECOND: Final = 100.0  # of one tenant, on average
MAX_BURST: Final = 2_000  # events of one tenant at once; one message can cause 500
MAX_TENANTS: Final = 10_000  # the budget that no event has used for the longest time is dropped


@dataclass(slots=True)
class EventBudget:
    """One token bucket for each tenant. A tenant without a bucket has a full one."""

    _buckets: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)

    @property
    def tenants(self) -> int:
        """The number of tenants with a bucket."""
        return len(self._buckets)

    def take(self, tenant: str, count: int, now: float) -> int:
        """Return the number of events, at most `count`, that the tenant may publish now.

        `now` is in seconds of a clock that never moves back.
        """
        tokens, since = self._buckets.pop(tenant, (float(MAX_BURST), now))
        tokens = min(float(MAX_BURST), tokens + (now - since) * EVENTS_PER_SECOND)
        taken = min(count, int(tokens))
        self._buckets[tenant] = (tokens - taken, now)
        if len(self._buckets) > MAX_TENANTS:
            self._buckets.popitem(last=False)
        return taken
