"""The ranges in which the quota `runs_per_second` defers the runs of a tenant."""

from datetime import UTC, datetime, timedelta

import pytest

from harebell.audit.model.rate_waits import SLOT, SLOWER, all_rate_ranges, rate_ranges
from harebell.audit.model.waits import RELEASE_TIME, DeferredRange, Waits

RATE = 10.0  # runs a second
ROOM = int(RATE * SLOT.total_seconds())  # runs of one slot


def span(since: int, until: float) -> DeferredRange:
    """Return the range between two slots, with the addition for slow returns."""
    start = datetime.fromtimestamp(0, UTC) + since * SLOT
    return DeferredRange(start, start + (until - since) * SLOT * (1 + SLOWER))


def test_runs_at_the_rate_wait_for_nothing() -> None:
    assert rate_ranges(dict.fromkeys(range(10), ROOM), RATE) == []


def test_backlog_lasts_until_the_rate_has_released_it() -> None:
    assert rate_ranges({4: 3 * ROOM}, RATE) == [span(4, 7)]
    assert rate_ranges({4: 3 * ROOM, 5: ROOM // 2}, RATE) == [span(4, 7.5)]
    assert rate_ranges({4: 3 * ROOM, 9: 2 * ROOM}, RATE) == [span(4, 7), span(9, 11)]


def test_runs_below_the_rate_end_a_backlog() -> None:
    assert rate_ranges({4: 2 * ROOM, 5: 0, 6: ROOM, 7: ROOM}, RATE) == [span(4, 6)]


def test_tenant_without_a_rate_has_no_range() -> None:
    due = [("acme", 1, 2 * ROOM), ("acme", 1, ROOM), ("umbrella", 1, 9 * ROOM)]

    assert all_rate_ranges(due, {"acme": RATE}) == {"acme": [span(1, 4)]}


@pytest.mark.requirement("S113")
def test_run_of_the_tenant_is_late_only_after_the_range() -> None:
    rate = span(0, 2)
    waits = Waits(rates={"acme": [rate]})
    until = rate.until + RELEASE_TIME + timedelta(seconds=7)

    assert waits.delay("host", rate.since, until, tenant="acme") == timedelta(seconds=7)
    assert waits.delay("host", rate.since, until, tenant="umbrella") == until - rate.since
