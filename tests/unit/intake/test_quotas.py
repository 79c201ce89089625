"""The quotas of intake: changes per second, and the runs of the backfills of one message."""

from datetime import timedelta
from typing import Any

import pytest
from tests.fakes.command_check import check
from tests.fakes.schedules import TASK
from tests.fakes.tickets import NINE

from harebell.contract.json_codec import encode_plain
from harebell.domain.tenant_policy import TenantPolicies
from harebell.domain.usage_counts import UsageCounts, UsageKey
from harebell.intake.commands.check import CheckResult, IncomingRequest
from harebell.intake.commands.handler import count_usage
from harebell.intake.commands.rules import IntakePolicy, TargetPolicy

PUTS = [{"key": f"k{n}", "when": {"every": "1h"}, "target": TASK} for n in range(30)]


def policy(**quotas: Any) -> IntakePolicy:
    policies = TenantPolicies.parse({"tenants": {"acme": {"quotas": quotas}}})
    return IntakePolicy(TargetPolicy(policies=policies))


def sent(
    verb: str, items: list[dict[str, Any]], policy: IntakePolicy, *, after: float = 0
) -> CheckResult:
    request = IncomingRequest(
        routing_key=f"acme.schedule.{verb}", body=encode_plain(items), message_id="m"
    )
    return check(request, accepted_at=NINE + timedelta(seconds=after), policy=policy)


@pytest.mark.requirement("P11")
def test_puts_beyond_the_rate_are_refused_with_the_time_to_wait() -> None:
    limited = policy(puts_per_second=10)

    first = sent("put", PUTS, limited)
    later = sent("put", PUTS, limited, after=0.5)

    errors = [each.response.error for each in first.rejections]
    assert len(errors) == 20
    assert {(error.code, error.rule) for error in errors} == {("quota_exceeded", "puts_per_second")}
    assert all(error.retry_after == pytest.approx(0.1) for error in errors)
    assert len(PUTS) - len(later.rejections) == 5


def test_puts_of_another_tenant_have_their_own_rate() -> None:
    limited = policy(puts_per_second=10)
    sent("put", PUTS, limited)
    request = IncomingRequest(
        routing_key="umbrella.schedule.put", body=encode_plain(PUTS), message_id="m"
    )

    assert not check(request, accepted_at=NINE, policy=limited).rejections


def test_tenant_without_a_policy_document_has_no_quota() -> None:
    assert not sent("put", PUTS * 16, IntakePolicy()).rejections


@pytest.mark.requirement("P11")
def test_backfills_of_one_message_are_refused_beyond_their_quota() -> None:
    start, end = (NINE - timedelta(days=2)).isoformat(), (NINE - timedelta(days=1)).isoformat()
    backfill = {"key": "k", "from": start, "to": end, "max": 400}
    items = [{**backfill, "request_id": f"r{n}"} for n in range(4)]
    dry = {**backfill, "request_id": "dry", "dry_run": True}

    result = sent("backfill", [*items, dry], policy(backfill_runs=1_000))

    assert [each.index for each in result.rejections] == [2, 3]
    error = result.rejections[0].response.error
    assert (error.code, error.rule, error.field) == ("quota_exceeded", "backfill_runs", "[2].max")
    assert error.retry_after


@pytest.mark.requirement("P11")
def test_accepted_puts_and_each_refusal_by_the_policy_are_counted_for_their_tenant() -> None:
    counts = UsageCounts()
    foreign_pool = [{**PUTS[0], "pool": "gpu"}, {"key": "no-target", "when": {"every": "1h"}}]

    count_usage(counts, sent("put", PUTS, policy(puts_per_second=10)))
    count_usage(counts, sent("put", foreign_pool, policy()))
    count_usage(counts, sent("pause", [{"key": "k1"}], policy()))

    assert counts.take() == {
        UsageKey("acme", "puts_per_second"): 10,
        UsageKey("acme", "puts_per_second", "quota_exceeded"): 20,
        UsageKey("acme", "pools", "not_allowed"): 1,
    }
