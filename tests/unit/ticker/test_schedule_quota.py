"""The quota of schedules: the count of one transaction, its age, and the creations of a batch."""

from typing import Any, cast

import pytest

from harebell.contract.errors import QuotaExceeded
from harebell.domain.tenant_policy import TenantPolicies
from harebell.ticker.store.schedule_counts import ScheduleCounts


class CountedConnection:
    """A connection that answers each count and records the number of counts."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.counts = 0

    async def fetchval(self, _: str, tenant: str, limit: int) -> int:
        self.counts += 1
        assert (tenant, limit) == ("acme", 6)
        return self.number


def counts() -> ScheduleCounts:
    policies = TenantPolicies.parse({"tenants": {"acme": {"quotas": {"schedules": 5}}}})
    return ScheduleCounts(policies)


async def test_batch_creates_at_most_the_remaining_schedules() -> None:
    connection = CountedConnection(3)
    rooms = await counts().rooms(cast("Any", connection), {"acme": 4})

    rooms["acme"].take()
    rooms["acme"].take()

    with pytest.raises(QuotaExceeded) as refused:
        rooms["acme"].take()
    assert refused.value.rule == "schedules"
    assert refused.value.retry_after


async def test_count_is_reused_and_contains_the_recorded_creations() -> None:
    connection, known = CountedConnection(3), counts()
    await known.rooms(cast("Any", connection), {"acme": 1})

    known.record(["acme"])
    rooms = await known.rooms(cast("Any", connection), {"acme": 1})

    assert connection.counts == 1
    assert rooms["acme"].remaining == 1


async def test_tenant_without_a_quota_needs_no_count() -> None:
    connection = CountedConnection(3)
    known = ScheduleCounts(TenantPolicies.unrestricted())

    assert await known.rooms(cast("Any", connection), {"acme": 1}) == {}
    assert connection.counts == 0
