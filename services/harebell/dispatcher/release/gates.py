"""What may keep a ticket from leaving though its time has come: gates, and how they are asked.

A gate decides about tickets and never touches the ledger: what it holds back goes round through a
delay tier, spends no attempt, and is asked about again when it comes out. Whether it has expired
meanwhile is for the claim and the sweep to say, as ever.

To add one: write a class with the two members of `Gate`, its rule pure (`now` is an argument), and
name it in `serve` of service.py, in the order in which gates are asked. The first that holds a
ticket decides, so a gate that counts what it lets go comes last: it is asked only about tickets
that nothing else holds, and what it lets go does leave. What a gate must know it is told from
outside (`serve` runs its consumer); of a ticket it sees what `Routed` has. A field that is read by
every gate belongs there, and costs every ticket.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Final, Protocol, TypeAlias

from harebell.contract.ids import RunKey
from harebell.messaging.ticket_batches import TicketHeader
from harebell.messaging.topology.delay_queues import DELAY_TTLS_MS

MAX_DEFERRAL: Final = timedelta(seconds=30)  # before a held ticket is looked at again
MAX_DEFERRED_TICKETS: Final = 200_000  # tickets of which is known that they go round
SLACK: Final = timedelta(
    seconds=1
)  # that our clock may be wrong by: the last copy must not be lost

_TIERS: Final = tuple(ms for ms in DELAY_TTLS_MS if timedelta(milliseconds=ms) <= MAX_DEFERRAL)
_Identity: TypeAlias = tuple[RunKey, int]


@dataclass(frozen=True, slots=True)
class Deferral:
    """`by`: the gate, as metrics name it. `wait`: until it is worth asking again."""

    gate: str
    wait: timedelta


class Gate(Protocol):
    """Asked, once a ticket's time has come, whether it may leave."""

    def is_idle(self, now: datetime) -> bool:  # a gate's
        """Nothing is held back by it, whatever the ticket: it need not be asked about each."""
        ...

    def deferral(self, ticket: TicketHeader, now: datetime) -> Deferral | None:
        """None: it may leave, and will unless a later gate holds it."""
        ...


@dataclass(slots=True)
class GateResult:
    """`again`: what goes round, by tier. `repeats`: what goes round already."""

    free: Sequence[TicketHeader]
    deferred: dict[int, list[TicketHeader]] = field(default_factory=dict)
    duplicates: Sequence[TicketHeader] = ()


class Gates:
    """All of a dispatcher. Of each ticket that they hold one copy goes round."""

    def __init__(self, *gates: Gate) -> None:
        self._gates = gates
        self._away = _Away()

    def apply(self, tickets: Sequence[TicketHeader], now: datetime) -> GateResult:
        """With nothing to hold back this costs the same for one ticket and for thousands."""
        asked = [gate for gate in self._gates if not gate.is_idle(now)]
        if not asked:
            return GateResult(tickets)
        self._away.tidy(now)
        free, repeats = [], []
        again: dict[int, list[TicketHeader]] = defaultdict(list)
        for ticket in tickets:
            if self._away.is_away(ticket, now):
                repeats.append(ticket)
            elif hold := _first_hold(asked, ticket, now):
                tier = deferral_ttl(hold.wait)
                self._away.send(ticket, hold.gate, now + timedelta(milliseconds=tier))
                again[tier].append(ticket)
            else:
                free.append(ticket)
        return GateResult(free, again, repeats)

    def deferred_count(self, by: str, now: datetime) -> int:
        """Tickets that went round from here when a gate was last asked about them."""
        return self._away.count(by, now)


def deferral_ttl(wait: timedelta) -> int:
    """Milliseconds: the longest tier within the wait, of those that are looked at soon enough."""
    return _TIERS[max(bisect_right(_TIERS, wait / timedelta(milliseconds=1)), 1) - 1]


def _first_hold(gates: Sequence[Gate], ticket: TicketHeader, now: datetime) -> Deferral | None:
    return next((hold for gate in gates if (hold := gate.deferral(ticket, now))), None)


class _Away:
    """Who goes round until when. A copy that comes sooner (sweeps make them) need not go too.

    A hint, and no more: what is forgotten, or was sent round by another dispatcher, goes round
    twice, and one of the two is refused by its row.
    """

    def __init__(self) -> None:
        self._until: dict[_Identity, tuple[datetime, str]] = {}  # in the order of going

    def send(self, ticket: TicketHeader, by: str, until: datetime) -> None:
        self._until.pop(ticket.identity, None)
        if len(self._until) < MAX_DEFERRED_TICKETS:
            self._until[ticket.identity] = until, by

    def is_away(self, ticket: TicketHeader, now: datetime) -> bool:
        known = self._until.get(ticket.identity)
        return known is not None and now < known[0] - SLACK

    def count(self, by: str, now: datetime) -> int:
        return sum(gate == by and now < until + SLACK for until, gate in self._until.values())

    def tidy(self, now: datetime) -> None:
        """Forget those who left first, and that another dispatcher has long had back."""
        over = takewhile(lambda known: known[1][0] + MAX_DEFERRAL < now, self._until.items())
        for identity in [identity for identity, _ in over]:
            del self._until[identity]
