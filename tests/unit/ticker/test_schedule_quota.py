"""The quota of schedules: the count of one transaction, its age, and the creations of a batch."""

from datetime import UTC, datetime
from typing import Any, cast
from uuid import UUID

import pytest

from harebell.contract.accepted_commands import AcceptedCommand, AcceptedCommands
from harebell.contract.errors import NotFound, QuotaExceeded
from harebell.contract.responses import ErrorResponse, ScheduleResponse, error_response
from harebell.domain.tenant_policy import TenantPolicies
from harebell.domain.usage_counts import UsageCounts, UsageKey
from harebell.ticker.commands.apply import count_usage
from harebell.ticker.commands.batch import BatchItem
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
        rooms["acme"].check()
    assert refused.value.rule == "schedules"
    assert refused.value.retry_after


async def test_count_is_reused_and_contains_the_recorded_creations() -> None:
    connection, known = CountedConnection(3), counts()
    rooms = await known.rooms(cast("Any", connection), {"acme": 1})
    rooms["acme"].take()

    known.record(rooms)
    rooms = await known.rooms(cast("Any", connection), {"acme": 1})

    assert connection.counts == 1
    assert rooms["acme"].remaining == 1


async def test_tenant_without_a_quota_needs_no_count() -> None:
    connection = CountedConnection(3)
    known = ScheduleCounts(TenantPolicies.unrestricted())

    assert await known.rooms(cast("Any", connection), {"acme": 1}) == {}
    assert connection.counts == 0


def applied(response: ScheduleResponse | ErrorResponse | None) -> BatchItem:
    accepted = AcceptedCommand(index=0, body={})
    message = AcceptedCommands(
        tenant="acme",
        verb="schedule.backfill",
        accepted_at=datetime.now(UTC),
        single=True,
        items=[accepted],
    )
    return BatchItem(message=message, accepted=accepted, response=response)


def backfill(status: str) -> ScheduleResponse:
    return ScheduleResponse(
        id=UUID(int=1), version=1, status=status, state="active", runs=["a", "b"]
    )


@pytest.mark.requirement("P11")
def test_runs_of_backfills_and_refusals_by_the_quota_of_schedules_are_counted() -> None:
    counted = UsageCounts()
    beyond = QuotaExceeded("Too many.", rule="schedules", retry_after=1.0)
    of_intake = QuotaExceeded("Too fast.", rule="puts_per_second", retry_after=1.0)
    errors = [error_response(each) for each in (beyond, of_intake, NotFound("No."))]
    responses = [backfill("backfilled"), backfill("previewed"), None, *errors]

    count_usage(counted, map(applied, responses))

    assert counted.take() == {
        UsageKey("acme", "backfill_runs"): 2,
        UsageKey("acme", "schedules", "quota_exceeded"): 1,
    }
