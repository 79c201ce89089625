"""Tests of gates: deferred tickets wait once, and all other tickets are free."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest
from tests.fakes.tickets import NINE, after, header, headers

from harebell.dispatcher.release.gates import (
    MAX_DEFERRAL,
    PROBE,
    Deferral,
    Gates,
    Probe,
    deferral_ttl,
)
from harebell.messaging.ticket_batches import TicketHeader
from harebell.messaging.topology.delay_queues import SHORTEST_MS

SOON = timedelta(seconds=6)


@dataclass
class OddSecondGate:
    """A gate that defers the tickets with an odd second, until the time `until`."""

    until: datetime = NINE + timedelta(hours=1)
    evaluated: list[TicketHeader] = field(default_factory=list)

    def is_idle(self, now: datetime) -> bool:
        return now >= self.until

    def decide(self, ticket: TicketHeader, now: datetime) -> Deferral | None:
        self.evaluated.append(ticket)
        is_odd = ticket.due_at.second % 2 == 1
        return Deferral("odd", SOON) if is_odd and now < self.until else None


class ProbingGate:
    """A gate whose tickets are probes."""

    def is_idle(self, now: datetime) -> bool:  # noqa: ARG002  # required by the protocol
        return False

    def decide(self, ticket: TicketHeader, now: datetime) -> Probe:  # noqa: ARG002  # as above
        return PROBE


def tickets_by_second(count: int) -> list[TicketHeader]:
    return [header(number, after(number)) for number in range(count)]


def test_gate_defers_its_tickets_and_frees_the_others() -> None:
    tickets = tickets_by_second(4)

    result = Gates(OddSecondGate()).apply(tickets, NINE)

    assert result.free == [tickets[0], tickets[2]]
    assert result.deferred == {deferral_ttl(SOON): [tickets[1], tickets[3]]}
    assert not result.duplicates


def test_idle_gate_evaluates_no_ticket() -> None:
    gate = OddSecondGate(until=NINE)

    result = Gates(gate).apply(tickets_by_second(4), NINE)

    assert result.free == tickets_by_second(4)
    assert not gate.evaluated


def test_later_gate_evaluates_only_the_tickets_that_no_earlier_gate_defers() -> None:
    first, second = OddSecondGate(), OddSecondGate()

    Gates(first, second).apply(tickets_by_second(4), NINE)

    assert second.evaluated == [tickets_by_second(4)[0], tickets_by_second(4)[2]]


@pytest.mark.requirement("S113")
def test_probes_are_apart_from_the_free_tickets_unless_a_gate_defers_them() -> None:
    tickets = tickets_by_second(4)

    result = Gates(ProbingGate(), OddSecondGate()).apply(tickets, NINE)

    assert result.probes == [tickets[0], tickets[2]]
    assert result.deferred == {deferral_ttl(SOON): [tickets[1], tickets[3]]}
    assert not result.free


def test_copy_of_a_deferred_ticket_is_a_duplicate() -> None:
    gates = Gates(OddSecondGate())
    (_, ticket) = tickets_by_second(2)
    gates.apply([ticket], NINE)

    result = gates.apply([ticket], after(1))

    assert list(result.duplicates) == [ticket]
    assert not result.free
    assert not result.deferred


def test_ticket_is_evaluated_again_after_its_deferral() -> None:
    gates = Gates(OddSecondGate())
    (_, ticket) = tickets_by_second(2)
    ttl_ms = next(iter(gates.apply([ticket], NINE).deferred))

    second = gates.apply([ticket], NINE + timedelta(milliseconds=ttl_ms))
    third = gates.apply([ticket], after(3600))

    assert second.deferred == {ttl_ms: [ticket]}
    assert third.free == [ticket]


def test_deferred_count_drops_to_zero_after_the_deferral() -> None:
    gates = Gates(OddSecondGate())
    tickets = tickets_by_second(4)
    gates.apply(tickets, NINE)

    assert gates.deferred_count("odd", NINE) == 2
    assert gates.deferred_count("other", NINE) == 0
    assert gates.deferred_count("odd", after(60)) == 0


@pytest.mark.parametrize("seconds", [-1, 0, 1.5, 6, 29.9, 30, 3600])
def test_deferral_ttl_is_within_the_wait_and_its_bounds(seconds: float) -> None:
    ttl_ms = deferral_ttl(timedelta(seconds=seconds))

    assert SHORTEST_MS <= ttl_ms <= MAX_DEFERRAL / timedelta(milliseconds=1)
    assert ttl_ms <= max(seconds * 1000, SHORTEST_MS)


def test_gates_free_all_tickets_when_no_gate_exists() -> None:
    assert len(Gates().apply(headers(3000), NINE).free) == 3000
