"""Gates: rules that may defer a due ticket, and the rates of tenants and targets.

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
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Final, Protocol, TypeAlias

from harebell.contract.ids import RunKey
from harebell.contract.types import EARLIEST
from harebell.domain.tenant_policy import TenantPolicies
from harebell.messaging.ticket_batches import TicketHeader
from harebell.messaging.topology.delay_queues import DELAY_TTLS_MS

MAX_DEFERRAL: Final = timedelta(seconds=30)  # before a gate evaluates a ticket again
MAX_DEFERRED_TICKETS: Final = 200_000  # tickets that `_DeferredTickets` remembers
# Clock difference between RabbitMQ and this process. The last copy of a ticket must not be lost.
CLOCK_TOLERANCE: Final = timedelta(seconds=1)

TENANT_RATE_GATE: Final = "tenant_rate"  # the label values of these gates in metrics
TARGET_RATE_GATE: Final = "target_rate"
BURST: Final = timedelta(seconds=1)  # of unused rate that later tickets may use
MAX_NAMES: Final = 10_000  # of tenants or targets that a gate remembers
RETURN_SLOT: Final = timedelta(seconds=1)  # or the interval of a rate below one per second
MAX_SLOT_RETURNS: Final = 2.0  # returning tickets of a slot, as a multiple of the rate
MAX_SLOTS: Final = 64  # whose returns a name remembers, more than `MAX_DEFERRAL` has
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


@dataclass(slots=True)
class _Rate:
    """The tickets of one name, as times on a line with one ticket per interval."""

    released_until: datetime = EARLIEST  # the end of the interval of the last released ticket
    returns: Counter[int] = field(default_factory=Counter)  # deferred tickets by slot of their end

    def deferral(self, now: datetime, interval: timedelta) -> timedelta:
        """Return the shortest wait that ends in a slot with room, or else the longest wait."""
        slot = max(RETURN_SLOT, interval)
        room = MAX_SLOT_RETURNS * (slot / interval)
        waits = deferral_waits()
        is_free_at = min(self.released_until - BURST + interval - now, MAX_DEFERRAL)
        for wait in waits:
            end = int((now + wait - EARLIEST) / slot)
            if wait >= is_free_at - waits[0] and self.returns[end] < room:
                self._count_return(end)
                return wait
        return waits[-1]

    def _count_return(self, end: int) -> None:
        self.returns[end] += 1
        if len(self.returns) > MAX_SLOTS:
            latest = sorted(self.returns)[-MAX_SLOTS // 2 :]
            self.returns = Counter({each: self.returns[each] for each in latest})


@dataclass(slots=True, kw_only=True)
class RateGate:
    """A gate that releases at most a number of tickets per second for each name.

    Each dispatcher counts the tickets that it releases. Those above the rate wait in a delay queue
    and never in a work queue, which is first in, first out, so one tenant's flood delays nobody
    else.

    As a delay queue has one of a few TTLs, tickets that are deferred together return together. So
    the gate counts the returns of each second and selects a TTL that ends in a second with few of
    them. Otherwise the rate would be unused between the returns of two large groups.
    """

    gate: str
    name_of: Callable[[TicketHeader], str]
    rate_of: Callable[[str], float | None]  # tickets per second, or None for no bound
    has_rates: Callable[[], bool]
    _rates: dict[str, _Rate] = field(default_factory=dict)

    def is_idle(self, now: datetime) -> bool:  # noqa: ARG002  # required by the protocol
        return not self.has_rates()

    def decide(self, ticket: TicketHeader, now: datetime) -> Deferral | None:
        """Return the deferral of a ticket above the rate of its name."""
        name = self.name_of(ticket)
        per_second = self.rate_of(name)
        if per_second is None:
            return None
        interval = timedelta(seconds=1 / per_second)
        rate = self._rate(name, now)
        if rate.released_until <= max(now + BURST - interval, now):
            rate.released_until = max(rate.released_until, now) + interval
            return None
        return Deferral(self.gate, rate.deferral(now, interval))

    def _rate(self, name: str, now: datetime) -> _Rate:
        if (rate := self._rates.get(name)) is None:
            if len(self._rates) >= MAX_NAMES:
                self._rates = {
                    known: each for known, each in self._rates.items() if each.released_until > now
                }
            rate = self._rates[name] = _Rate()
        return rate


def tenant_rates(policies: Callable[[], TenantPolicies]) -> RateGate:
    """Return the gate for the quota `runs_per_second` of the tenants."""

    def has_rates() -> bool:
        current = policies()
        each = (current.defaults, *current.tenants.values())
        return any(policy.quotas.runs_per_second is not None for policy in each)

    return RateGate(
        gate=TENANT_RATE_GATE,
        name_of=lambda ticket: ticket.tenant,
        rate_of=lambda tenant: policies().of(tenant).quotas.runs_per_second,
        has_rates=has_rates,
    )


def target_rates(per_second: float | None) -> RateGate:
    """Return the gate that bounds the tickets of all tenants for each downstream."""
    return RateGate(
        gate=TARGET_RATE_GATE,
        name_of=lambda ticket: ticket.downstream,
        rate_of=lambda _: per_second,
        has_rates=lambda: per_second is not None,
    )
