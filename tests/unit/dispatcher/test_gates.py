"""What gates hold back goes round, one copy of each; the rest leaves."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest
from tests.fakes.tickets import NINE, after, crowd, routed

from harebell.dispatcher.release.gates import MAX_DEFERRAL, Deferral, Gates, deferral_ttl
from harebell.messaging.ticket_batches import TicketHeader
from harebell.messaging.topology.delay_queues import SHORTEST_MS

SOON = timedelta(seconds=6)


@dataclass
class Odd:
    """Holds what is due in an odd second, until then."""

    until: datetime = NINE + timedelta(hours=1)
    asked: list[TicketHeader] = field(default_factory=list)

    def is_idle(self, now: datetime) -> bool:  # a gate's
        return now >= self.until

    def deferral(self, ticket: TicketHeader, now: datetime) -> Deferral | None:
        self.asked.append(ticket)
        is_odd = ticket.due_at.second % 2 == 1
        return Deferral("odd", SOON) if is_odd and now < self.until else None


def numbered(count: int) -> list[TicketHeader]:
    return [routed(number, after(number)) for number in range(count)]


def test_what_one_gate_holds_goes_round_and_the_rest_leaves() -> None:
    tickets = numbered(4)

    split = Gates(Odd()).apply(tickets, NINE)

    assert split.free == [tickets[0], tickets[2]]
    assert split.deferred == {deferral_ttl(SOON): [tickets[1], tickets[3]]}
    assert not split.duplicates


def test_an_idle_gate_is_not_asked() -> None:
    gate = Odd(until=NINE)

    split = Gates(gate).apply(numbered(4), NINE)

    assert split.free == numbered(4)
    assert not gate.asked


def test_a_later_gate_is_asked_only_about_what_no_earlier_one_holds() -> None:
    first, second = Odd(), Odd()

    Gates(first, second).apply(numbered(4), NINE)

    assert second.asked == [numbered(4)[0], numbered(4)[2]]


def test_a_copy_of_what_goes_round_already_does_not_go_too() -> None:
    gates = Gates(Odd())
    (_, ticket) = numbered(2)
    gates.apply([ticket], NINE)

    split = gates.apply([ticket], after(1))

    assert list(split.duplicates) == [ticket]
    assert not split.free
    assert not split.deferred


def test_what_comes_back_from_its_round_is_asked_about_again() -> None:
    gates = Gates(Odd())
    (_, ticket) = numbered(2)
    tier = next(iter(gates.apply([ticket], NINE).deferred))

    back = NINE + timedelta(milliseconds=tier)
    again = gates.apply([ticket], back)
    free = gates.apply([ticket], after(3600))

    assert again.deferred == {tier: [ticket]}
    assert free.free == [ticket]


def test_how_many_go_round_is_known_until_they_leave_or_are_long_due_back() -> None:
    gates = Gates(Odd())
    tickets = numbered(4)
    gates.apply(tickets, NINE)

    assert gates.deferred_count("odd", NINE) == 2
    assert gates.deferred_count("other", NINE) == 0
    assert gates.deferred_count("odd", after(60)) == 0


@pytest.mark.parametrize("seconds", [-1, 0, 1.5, 6, 29.9, 30, 3600])
def test_a_round_is_no_longer_than_asked_within_its_bounds(seconds: float) -> None:
    tier = deferral_ttl(timedelta(seconds=seconds))

    assert SHORTEST_MS <= tier <= MAX_DEFERRAL / timedelta(milliseconds=1)
    assert tier <= max(seconds * 1000, SHORTEST_MS)


def test_thousands_pass_when_nothing_is_held() -> None:
    assert len(Gates().apply(crowd(3000), NINE).free) == 3000
