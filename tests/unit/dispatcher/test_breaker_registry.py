"""Tests of the breakers of a dispatcher: deferred tickets and published events."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.fakes.tickets import NINE, after, header

from harebell.contract.breakers import (
    MAX_SNAPSHOT_BREAKERS,
    BreakerEventData,
    BreakerSnapshot,
    BreakerSnapshotEntry,
    BreakerState,
)
from harebell.dispatcher.breakers.breaker import BreakerConfig
from harebell.dispatcher.breakers.registry import (
    BREAKER_GATE,
    MAX_OPENING_AGE,
    MAX_TENANT_BREAKERS,
    BreakerKey,
    BreakerRegistry,
)
from harebell.dispatcher.breakers.sync import MAX_LABELS, MAX_TENANT_LABELS, label_values
from harebell.dispatcher.release.gates import PROBE, Deferral
from harebell.messaging.ticket_batches import TicketHeader

ECHO = "task:harebell.echo"  # the downstream of the tickets in tests
OTHER = "acme.example:443"
CONFIG = BreakerConfig(min_calls=2, open_duration=timedelta(seconds=30), half_open_calls=1)


def of(downstream: str, tenant: str = "default") -> BreakerKey:
    return BreakerKey(tenant, downstream)


def open_breakers(
    *downstreams: str, at: datetime = NINE, tenant: str = "default"
) -> BreakerRegistry:
    """A registry with an open breaker of the tenant for each downstream."""
    breakers = BreakerRegistry(CONFIG)
    for downstream in downstreams:
        for _ in range(CONFIG.min_calls):
            breakers.record_outcome(of(downstream, tenant), at, healthy=False)
    return breakers


def snapshot(as_of: datetime = NINE, **fields: Any) -> BreakerSnapshot:
    return BreakerSnapshot(as_of=as_of, breakers=[BreakerSnapshotEntry(downstream=ECHO, **fields)])


@pytest.mark.requirement("S113")
def test_registry_defers_only_the_tickets_of_an_open_downstream() -> None:
    assert open_breakers(ECHO).decide(header(), after(1)) == Deferral(
        BREAKER_GATE, timedelta(seconds=29)
    )
    assert open_breakers(OTHER).decide(header(), after(1)) is None


def test_registry_is_idle_until_a_breaker_opens() -> None:
    breakers = open_breakers()
    breakers.record_outcome(of(ECHO), NINE, healthy=False)
    before = breakers.is_idle(NINE)
    breakers.record_outcome(of(ECHO), NINE, healthy=False)

    assert before
    assert not breakers.is_idle(NINE)


def test_registry_needs_no_successes_of_a_downstream_without_failures() -> None:
    breakers = BreakerRegistry(CONFIG)

    breakers.record_outcome(of(ECHO), NINE, healthy=True)

    assert not breakers.needs_successes


def test_registry_adds_no_breaker_above_its_limit() -> None:
    breakers = open_breakers(*(f"task:{number}" for number in range(MAX_TENANT_BREAKERS)))

    breakers.record_outcome(of(ECHO), NINE, healthy=False)
    breakers.record_outcome(of(ECHO), NINE, healthy=False)

    assert breakers.decide(header(), NINE) is None


def test_registry_publishes_each_transition_once() -> None:
    breakers = open_breakers(ECHO)

    (event,) = breakers.take_unpublished()

    assert (event.downstream, event.state, event.since) == (ECHO, BreakerState.OPEN, NINE)
    assert (event.failed, event.attempts) == (2, 2)
    assert breakers.take_unpublished() == []


def test_registry_adopts_a_remote_event_and_does_not_publish_it_again() -> None:
    breakers = BreakerRegistry(CONFIG)

    breakers.apply_event(BreakerEventData(downstream=ECHO, state=BreakerState.OPEN, since=NINE))

    assert breakers.decide(header(), after(1)) is not None
    assert breakers.take_unpublished() == []


@pytest.mark.requirement("S113")
def test_forced_open_breaker_defers_until_its_end_time() -> None:
    breakers = BreakerRegistry(CONFIG)
    breakers.apply_snapshot(snapshot(forced="open", forced_until=after(10)))

    assert breakers.decide(header(), after(4)) == Deferral(BREAKER_GATE, timedelta(seconds=6))
    assert breakers.decide(header(), after(10)) is None  # without a newer snapshot


@pytest.mark.requirement("S113")
def test_forced_closed_breaker_defers_nothing() -> None:
    breakers = open_breakers(ECHO)
    breakers.apply_snapshot(snapshot(forced="closed"))

    assert breakers.decide(header(), after(1)) is None


@pytest.mark.requirement("S113")
def test_breaker_has_its_own_state_when_it_is_no_longer_forced() -> None:
    breakers = open_breakers(ECHO)
    breakers.apply_snapshot(snapshot(forced="closed"))

    breakers.apply_snapshot(BreakerSnapshot(as_of=after(1)))

    assert breakers.decide(header(), after(2)) is not None


def test_registry_ignores_an_older_snapshot() -> None:
    breakers = BreakerRegistry(CONFIG)
    breakers.apply_snapshot(snapshot(after(1), forced="open"))

    breakers.apply_snapshot(BreakerSnapshot(as_of=NINE))

    assert breakers.decide(header(), after(2)) is not None


def test_registry_adopts_the_stored_state_of_a_snapshot() -> None:
    breakers = BreakerRegistry(CONFIG)

    breakers.apply_snapshot(snapshot(after(5), state="open", since=NINE))

    assert breakers.decide(header(), after(6)) == Deferral(BREAKER_GATE, timedelta(seconds=24))


def test_registry_publishes_a_transition_again_when_a_snapshot_lacks_it() -> None:
    breakers = open_breakers(ECHO)
    published = breakers.take_unpublished()

    breakers.apply_snapshot(BreakerSnapshot(as_of=after(5)))

    assert breakers.take_unpublished() == published


def test_registry_opens_no_breaker_when_it_is_not_automatic() -> None:
    breakers = BreakerRegistry(CONFIG, automatic=False)
    for _ in range(9):
        breakers.record_outcome(of(ECHO), NINE, healthy=False)

    assert breakers.decide(header(), after(1)) is None


def test_not_closed_contains_the_effective_states() -> None:
    breakers = open_breakers(ECHO, OTHER)
    breakers.apply_snapshot(snapshot(forced="closed"))

    assert dict(breakers.not_closed(after(1))) == {of(OTHER): BreakerState.OPEN}


def test_prune_drops_quiet_breakers_and_keeps_open_ones() -> None:
    breakers = open_breakers(ECHO)
    breakers.record_outcome(of(OTHER), NINE, healthy=False)

    breakers.prune(after(86_400))

    assert breakers.decide(header(), after(1)) is not None
    assert [event.downstream for event in breakers.take_unpublished()] == [ECHO]


@pytest.mark.requirement("S113")
def test_registry_releases_a_probe_when_a_breaker_is_half_open() -> None:
    breakers = open_breakers(ECHO)

    first = breakers.decide(header(), after(30))
    second = breakers.decide(header(), after(30))

    assert first is PROBE
    assert isinstance(second, Deferral)


@pytest.mark.requirement("S113")
def test_ticket_of_a_closed_or_forced_closed_breaker_is_no_probe() -> None:
    breakers = open_breakers(ECHO)
    other = breakers.decide(header(), NINE - timedelta(seconds=1))
    breakers.apply_snapshot(snapshot(forced="closed"))

    assert isinstance(other, Deferral)
    assert breakers.decide(header(), after(30)) is None


@pytest.mark.requirement("S113")
def test_event_of_each_transition_is_a_text_of_sentences() -> None:
    breakers = open_breakers(OTHER)
    (opened,) = breakers.take_unpublished()
    breakers.decide(header()._replace(downstream=OTHER), after(30))
    (half_opened,) = breakers.take_unpublished()
    breakers.record_outcome(of(OTHER), after(31), healthy=False)
    (reopened,) = breakers.take_unpublished()
    breakers.decide(header()._replace(downstream=OTHER), after(62))
    breakers.record_outcome(of(OTHER), after(63), healthy=True)
    *_, closed = breakers.take_unpublished()

    wait = "Runs for it wait without using attempts."
    assert opened.text == (
        "The circuit breaker of acme.example:443 for default opened at 09:00:00 UTC: "
        f"2 of 2 attempts failed in the last minute. {wait} The next probe is at 09:00:30 UTC."
    )
    assert (opened.next_probe_at, opened.reason) == (after(30), "failure_ratio")
    assert half_opened.text == (
        "The circuit breaker of acme.example:443 for default became half open at 09:00:30 UTC. "
        "A few runs probe it, and the other runs wait without using attempts."
    )
    assert half_opened.next_probe_at is None
    assert reopened.text == (
        "The circuit breaker of acme.example:443 for default opened at 09:00:31 UTC again: "
        f"a probe failed. {wait} The next probe is at 09:01:01 UTC."
    )
    assert closed.text == (
        "The circuit breaker of acme.example:443 for default closed at 09:01:03 UTC. "
        "The waiting runs start within 30 s."
    )


@pytest.mark.requirement("S113")
def test_event_names_the_consecutive_failures() -> None:
    breakers = BreakerRegistry(BreakerConfig(consecutive_failures=3))
    for _ in range(3):
        breakers.record_outcome(of(OTHER), NINE, healthy=False)

    (opened,) = breakers.take_unpublished()

    assert opened.text is not None
    assert "opened at 09:00:00 UTC: the last 3 attempts failed." in opened.text


def test_registry_keeps_the_reason_of_another_dispatcher_and_ignores_an_unknown_one() -> None:
    for reason in ("probe_failed", "of_a_later_version", None):
        breakers = BreakerRegistry(CONFIG)
        breakers.apply_event(
            BreakerEventData(downstream=ECHO, state=BreakerState.OPEN, since=NINE, reason=reason)
        )
        breakers.apply_snapshot(BreakerSnapshot(as_of=after(1)))

        (event,) = breakers.take_unpublished()

        assert event.reason == (reason if reason == "probe_failed" else None)


def ticket_of(tenant: str, downstream: str = ECHO) -> TicketHeader:
    return header()._replace(tenant=tenant, downstream=downstream)


def fail(breakers: BreakerRegistry, tenant: str, at: datetime = NINE) -> None:
    """Open the breaker of a tenant for ECHO."""
    for _ in range(CONFIG.min_calls):
        breakers.record_outcome(of(ECHO, tenant), at, healthy=False)


@pytest.mark.requirement("P5")
def test_failures_of_one_tenant_defer_no_ticket_of_another_tenant() -> None:
    breakers = open_breakers(ECHO, tenant="acme")

    assert breakers.decide(ticket_of("umbrella"), after(1)) is None
    assert isinstance(breakers.decide(ticket_of("acme"), after(1)), Deferral)


@pytest.mark.requirement("P5")
def test_names_of_one_tenant_use_up_no_breaker_of_another_tenant() -> None:
    breakers = open_breakers(
        *(f"task:{number}" for number in range(MAX_TENANT_BREAKERS + 1)), tenant="acme"
    )

    fail(breakers, "umbrella")

    assert breakers.decide(ticket_of("acme", f"task:{MAX_TENANT_BREAKERS}"), NINE) is None
    assert isinstance(breakers.decide(ticket_of("umbrella"), after(1)), Deferral)


@pytest.mark.requirement("P5")
def test_open_breakers_of_three_tenants_hold_all_tenants() -> None:
    breakers = open_breakers(ECHO, tenant="acme")
    fail(breakers, "umbrella")
    with_two = breakers.decide(ticket_of("initech"), after(1))
    fail(breakers, "hooli", after(2))

    *_, opened = breakers.take_unpublished()

    assert with_two is None
    assert isinstance(breakers.decide(ticket_of("initech"), after(3)), Deferral)
    assert (opened.tenant, opened.reason, opened.failed) == (None, "several_tenants", 3)
    assert opened.text is not None
    assert "for all tenants opened at 09:00:02 UTC: the breakers of 3 tenants" in opened.text


@pytest.mark.requirement("P5")
def test_old_openings_of_three_tenants_do_not_hold_all_tenants() -> None:
    breakers = open_breakers(ECHO, tenant="acme")
    fail(breakers, "umbrella")

    fail(breakers, "hooli", NINE + MAX_OPENING_AGE + timedelta(seconds=1))

    assert breakers.decide(ticket_of("initech"), NINE + MAX_OPENING_AGE) is None


@pytest.mark.requirement("P5")
def test_success_of_any_tenant_closes_the_breaker_of_all_tenants() -> None:
    breakers = open_breakers(ECHO, tenant="acme")
    fail(breakers, "umbrella")
    fail(breakers, "hooli")

    probe = breakers.decide(ticket_of("initech"), after(30))
    breakers.record_outcome(of(ECHO, "acme"), after(31), healthy=False)
    second = breakers.decide(ticket_of("initech"), after(31))
    breakers.record_outcome(of(ECHO, "initech"), after(31), healthy=True)

    assert (probe, isinstance(second, Deferral)) == (PROBE, True)
    assert breakers.decide(ticket_of("initech"), after(32)) is None
    assert breakers.decide(ticket_of("acme"), after(32)) is PROBE  # its own breaker is half open


@pytest.mark.requirement("P5")
def test_failed_probe_of_one_tenant_does_not_open_the_breaker_of_all_tenants_again() -> None:
    breakers = open_breakers(ECHO, tenant="acme")
    fail(breakers, "umbrella")
    fail(breakers, "hooli")
    breakers.decide(ticket_of("initech"), after(30))
    breakers.record_outcome(of(ECHO, "initech"), after(31), healthy=True)

    breakers.decide(ticket_of("acme"), after(32))
    breakers.record_outcome(of(ECHO, "acme"), after(33), healthy=False)

    assert isinstance(breakers.decide(ticket_of("acme"), after(34)), Deferral)
    assert breakers.decide(ticket_of("initech"), after(34)) is None


@pytest.mark.requirement("P5")
def test_forced_state_of_a_tenant_has_priority_over_that_of_all_tenants() -> None:
    breakers = BreakerRegistry(CONFIG)
    shared = BreakerSnapshotEntry(downstream=ECHO, forced="open")
    own = BreakerSnapshotEntry(downstream=ECHO, forced="closed", tenant="acme")
    breakers.apply_snapshot(BreakerSnapshot(as_of=NINE, breakers=[shared], tenant_breakers=[own]))

    assert breakers.decide(ticket_of("acme"), after(1)) is None
    assert isinstance(breakers.decide(ticket_of("umbrella"), after(1)), Deferral)


def test_full_list_of_a_snapshot_repeats_no_transition_that_it_omits() -> None:
    breakers = open_breakers(ECHO)
    breakers.take_unpublished()
    others = [
        BreakerSnapshotEntry(downstream=f"task:{number}", tenant="acme")
        for number in range(MAX_SNAPSHOT_BREAKERS)
    ]

    breakers.apply_snapshot(BreakerSnapshot(as_of=after(5), tenant_breakers=others))

    assert breakers.take_unpublished() == []


@pytest.mark.requirement("P5")
def test_one_tenant_has_few_label_values_and_hides_no_downstream_of_another_tenant() -> None:
    flood = [of(f"task:{number}", "acme") for number in range(10 * MAX_LABELS)]

    values = label_values([*flood, of(ECHO, "umbrella"), of(OTHER, "umbrella")])

    assert values >= {ECHO, OTHER}
    assert len(values) == MAX_TENANT_LABELS + 2
