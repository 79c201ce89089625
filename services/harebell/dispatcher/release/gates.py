"""Gates: rules that may defer a due ticket.

A deferred ticket goes through a delay queue, uses no attempt, and is then evaluated again. Gates
never read the ledger: claim and recovery decide whether a run has expired.

How to add a gate:

* Write a class with the two methods of `Gate`. Its rule is pure, and `now` is an argument.
* Add it to `serve` in service.py. Gates are evaluated in that order.
* The first gate that defers a ticket decides. So a gate that counts released tickets comes last,
  because it sees only tickets that no other gate defers.
* Data come from a consumer that runs in `serve`. Gates see the fields of `TicketHeader`, and every
  field of it costs time for every ticket.
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

MAX_DEFERRAL: Final = timedelta(seconds=30)  # before a gate evaluates a ticket again
MAX_DEFERRED_TICKETS: Final = 200_000  # tickets that `_DeferredTickets` remembers
# Clock difference between RabbitMQ and this process. The last copy of a ticket must not be lost.
CLOCK_TOLERANCE: Final = timedelta(seconds=1)

_TTLS_MS: Final = tuple(ms for ms in DELAY_TTLS_MS if timedelta(milliseconds=ms) <= MAX_DEFERRAL)
_WAITS: Final = tuple(timedelta(milliseconds=ms) for ms in _TTLS_MS)
_TicketIdentity: TypeAlias = tuple[RunKey, int]


@dataclass(frozen=True, slots=True)
class Probe:
    """The decision to release a ticket as a probe. If the probe fails, it uses no attempt."""


PROBE: Final = Probe()


@dataclass(frozen=True, slots=True)
class Deferral:
    """The decision of a gate to defer a ticket.

    `gate` is the label value in metrics. `wait` is the time until the next evaluation is useful.
    """

    gate: str
    wait: timedelta


class Gate(Protocol):
    """A rule that decides whether a due ticket may leave."""

    def is_idle(self, now: datetime) -> bool:
        """Return whether the gate defers no ticket at all at this time."""
        ...

    def decide(self, ticket: TicketHeader, now: datetime) -> Deferral | Probe | None:
        """Return the deferral of a ticket, or the probe, or None if this gate lets it leave."""
        ...


@dataclass(slots=True, kw_only=True)
class GateResult:
    """The tickets that may leave, the deferred tickets by TTL in ms, and the duplicates.

    A duplicate is a copy of a ticket that is in a delay queue already. The probes also leave.
    """

    free: Sequence[TicketHeader]
    deferred: dict[int, list[TicketHeader]] = field(default_factory=dict)
    duplicates: Sequence[TicketHeader] = ()
    probes: Sequence[TicketHeader] = ()


class Gates:
    """The gates of a dispatcher. Only one copy of a deferred ticket is in the delay queues."""

    def __init__(self, *gates: Gate) -> None:
        self._gates = gates
        self._deferred = _DeferredTickets()

    def apply(self, tickets: Sequence[TicketHeader], now: datetime) -> GateResult:
        """Evaluate all gates. If every gate is idle, the cost does not depend on the tickets."""
        gates = [gate for gate in self._gates if not gate.is_idle(now)]
        if not gates:
            return GateResult(free=tickets)
        self._deferred.prune(now)
        free, duplicates, probes = [], [], []
        deferred: dict[int, list[TicketHeader]] = defaultdict(list)
        for ticket in tickets:
            if self._deferred.contains(ticket, now):
                duplicates.append(ticket)
                continue
            match _decide(gates, ticket, now):
                case Deferral(gate, wait):
                    ttl_ms = deferral_ttl(wait)
                    until = now + timedelta(milliseconds=ttl_ms)
                    self._deferred.add(ticket, gate=gate, until=until)
                    deferred[ttl_ms].append(ticket)
                case Probe():
                    probes.append(ticket)
                case None:
                    free.append(ticket)
        return GateResult(free=free, deferred=deferred, duplicates=duplicates, probes=probes)

    def deferred_count(self, gate: str, now: datetime) -> int:
        """Return the number of tickets that a gate defers now, as far as this process knows."""
        return self._deferred.count(gate, now)


def deferral_waits() -> Sequence[timedelta]:
    """Return the waits that a delay queue ends exactly, in ascending order."""
    return _WAITS


def deferral_ttl(wait: timedelta) -> int:
    """Return the longest delay TTL [ms] within `wait` and MAX_DEFERRAL."""
    return _TTLS_MS[max(bisect_right(_TTLS_MS, wait / timedelta(milliseconds=1)), 1) - 1]


def _decide(gates: Sequence[Gate], ticket: TicketHeader, now: datetime) -> Deferral | Probe | None:
    """Return the first deferral, or else the probe of a gate, or None."""
    probe: Probe | None = None
    for gate in gates:
        decision = gate.decide(ticket, now)
        if isinstance(decision, Deferral):
            return decision
        probe = probe or decision
    return probe


class _DeferredTickets:
    """The deferred tickets of this dispatcher, each with the end of its deferral.

    Recovery copies tickets, and copies of a deferred one are not published. This record is only a
    hint: if a ticket is forgotten it is deferred twice, and its row rejects one claim.
    """

    def __init__(self) -> None:
        self._until: dict[_TicketIdentity, tuple[datetime, str]] = {}  # in the order of deferral

    def add(self, ticket: TicketHeader, *, gate: str, until: datetime) -> None:
        self._until.pop(ticket.identity, None)
        if len(self._until) < MAX_DEFERRED_TICKETS:
            self._until[ticket.identity] = until, gate

    def contains(self, ticket: TicketHeader, now: datetime) -> bool:
        known = self._until.get(ticket.identity)
        return known is not None and now < known[0] - CLOCK_TOLERANCE

    def count(self, gate: str, now: datetime) -> int:
        return sum(
            by == gate and now < until + CLOCK_TOLERANCE for until, by in self._until.values()
        )

    def prune(self, now: datetime) -> None:
        """Delete the oldest entries, which another dispatcher has received after their deferral."""
        over = takewhile(lambda known: known[1][0] + MAX_DEFERRAL < now, self._until.items())
        for identity in [identity for identity, _ in over]:
            del self._until[identity]
