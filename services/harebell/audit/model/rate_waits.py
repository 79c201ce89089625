"""The time ranges in which the quota `runs_per_second` of a tenant deferred its runs."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from harebell.audit.model.waits import DeferredRange

SLOT: Final = timedelta(seconds=5)  # of the runs that are counted together
# A deferred run returns from a delay queue with one of a few TTLs, so a backlog leaves more slowly
# than at the rate. This part of the range is added to its end.
SLOWER: Final = 0.5


def rate_ranges(runs: Mapping[int, int], per_second: float) -> list[DeferredRange]:
    """Return the ranges in which more runs of a tenant were due than its rate permitted.

    `runs` contains the number of runs by slot. A range begins with the slot whose runs exceed the
    rate, and ends when the rate would have released all of them.
    """
    ranges: list[DeferredRange] = []
    room = per_second * SLOT.total_seconds()
    backlog, since, end = 0.0, 0, 0  # `end` is the end of the last slot with runs
    for slot in sorted(runs):
        idle = (slot - end) * room
        if backlog and backlog <= idle:
            ranges.append(_range(since, end + backlog / room))
            backlog = 0.0
        elif backlog:
            backlog -= idle
        is_open, backlog = backlog > 0, max(backlog + runs[slot] - room, 0.0)
        end = slot + 1
        if is_open and not backlog:
            ranges.append(_range(since, end))
        elif backlog and not is_open:
            since = slot
    if backlog:
        ranges.append(_range(since, end + backlog / room))
    return ranges


def all_rate_ranges(
    runs: Iterable[tuple[str, int, int]], rates: Mapping[str, float]
) -> dict[str, list[DeferredRange]]:
    """Return the ranges by tenant. Each item of `runs` has a tenant, a slot and a number."""
    by_tenant: dict[str, dict[int, int]] = {}
    for tenant, slot, number in runs:
        counts = by_tenant.setdefault(tenant, {})
        counts[slot] = counts.get(slot, 0) + number
    return {
        tenant: rate_ranges(counts, rates[tenant])
        for tenant, counts in by_tenant.items()
        if tenant in rates
    }


def _range(since: int, until: float) -> DeferredRange:
    seconds = SLOT.total_seconds()
    start = datetime.fromtimestamp(since * seconds, UTC)
    length = timedelta(seconds=(until - since) * seconds)
    return DeferredRange(start, start + length * (1 + SLOWER))
