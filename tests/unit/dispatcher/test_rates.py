"""Tests of the rate gates: the runs per second of a tenant and of a target."""

from collections import Counter
from datetime import datetime, timedelta
from heapq import heappop, heappush
from typing import Any

import pytest
from tests.fakes.tickets import NINE, after, header

from harebell.dispatcher.release.gates import (
    BURST,
    MAX_NAMES,
    MAX_SLOT_RETURNS,
    TENANT_RATE_GATE,
    Deferral,
    Gates,
    RateGate,
    deferral_ttl,
    deferral_waits,
    target_rates,
    tenant_rates,
)
from harebell.domain.tenant_policy import TenantPolicies
from harebell.messaging.ticket_batches import TicketHeader

RATE = 10  # tickets per second


def gate_of(document: Any) -> RateGate:
    policies = TenantPolicies.parse(document)
    return tenant_rates(lambda: policies)


def limited(rate: float = RATE) -> RateGate:
    return gate_of({"defaults": {"quotas": {"runs_per_second": rate}}})


def ticket_of(tenant: str, number: int = 0) -> TicketHeader:
    return header(number)._replace(tenant=tenant)


def released(gate: RateGate, tenant: str, count: int, now: datetime) -> int:
    """Return the number of tickets, of `count`, that the gate releases."""
    decisions = [gate.decide(ticket_of(tenant), now) for _ in range(count)]
    return decisions.count(None)


@pytest.mark.requirement("P6")
def test_flood_of_one_tenant_leaves_at_its_rate_and_another_tenant_at_once() -> None:
    gate = limited()
    by_second = [released(gate, "acme", 5_000, after(second)) for second in range(4)]

    assert by_second == [RATE] * 4
    assert released(gate, "umbrella", RATE, after(3)) == RATE


def test_tenant_may_use_the_rate_of_one_idle_second_and_no_more() -> None:
    gate = limited()
    released(gate, "acme", 1, NINE)

    assert released(gate, "acme", 100, after(60)) == RATE * BURST.total_seconds()


def test_deferred_tickets_return_in_several_groups() -> None:
    gate = limited()
    released(gate, "acme", RATE, NINE)

    waits = Counter(str(gate.decide(ticket_of("acme"), NINE)) for _ in range(5 * RATE))

    assert str(Deferral(TENANT_RATE_GATE, deferral_waits()[0])) in waits
    assert max(waits.values()) <= MAX_SLOT_RETURNS * RATE


@pytest.mark.requirement("P6")
@pytest.mark.parametrize("rate", [0.5, 5, 50])
def test_backlog_of_a_tenant_leaves_at_nearly_its_rate(rate: float) -> None:
    """Return each deferred ticket to the gate after the TTL of its delay queue."""
    gate, seconds = limited(rate), 120
    number = int(rate * seconds)
    waiting = [(NINE, each) for each in range(number)]
    last = NINE
    while waiting:
        now, each = heappop(waiting)
        decision = gate.decide(ticket_of("acme", each), now)
        if decision is None:
            last = now
        else:
            assert isinstance(decision, Deferral)
            ttl = timedelta(milliseconds=deferral_ttl(decision.wait))
            heappush(waiting, (now + ttl, each))

    assert timedelta(seconds=seconds) - 2 * BURST < last - NINE + timedelta(seconds=1 / rate)
    assert last - NINE < timedelta(seconds=seconds) * 1.6


def test_rate_below_one_per_second_releases_a_ticket_at_once() -> None:
    gate = limited(0.1)

    assert released(gate, "acme", 5, NINE) == 1
    assert released(gate, "acme", 5, after(9)) == 0
    assert released(gate, "acme", 5, after(10)) == 1


def test_gate_is_idle_without_a_quota_and_releases_a_tenant_without_one() -> None:
    no_quota = {"quotas": {"runs_per_second": None}}

    assert tenant_rates(TenantPolicies.unrestricted).is_idle(NINE)
    assert gate_of({"defaults": no_quota}).is_idle(NINE)
    mixed = gate_of({"tenants": {"acme": no_quota}})
    assert not mixed.is_idle(NINE)
    assert released(mixed, "acme", 5_000, NINE) == 5_000


@pytest.mark.requirement("P6")
def test_rate_of_a_target_counts_the_tickets_of_all_tenants() -> None:
    gate = target_rates(RATE)
    tenants = [f"tenant-{number}" for number in range(5 * RATE)]

    assert [gate.decide(ticket_of(each), NINE) for each in tenants].count(None) == RATE
    assert target_rates(None).is_idle(NINE)


def test_gate_forgets_idle_tenants_above_its_bound() -> None:
    gate = limited()
    for number in range(MAX_NAMES):
        gate.decide(ticket_of(f"tenant-{number}"), NINE)

    later = after(60)
    full = released(gate, "acme", 100, later)

    assert full == RATE
    assert len(gate._rates) == 1  # noqa: SLF001  # the bound has no other effect


def test_gates_defer_the_tickets_above_the_rate() -> None:
    tickets = [ticket_of("acme", number) for number in range(3 * RATE)]

    result = Gates(limited()).apply(tickets, NINE)

    assert len(result.free) == RATE
    assert sum(map(len, result.deferred.values())) == 2 * RATE
