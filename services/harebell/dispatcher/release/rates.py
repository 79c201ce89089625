"""Rates of releases: the gates that bound the runs per second of a tenant and of a target. Pure.

Each dispatcher counts the tickets that it releases. Those above the rate wait in a delay queue and
never in a work queue, which is first in, first out, so one tenant's flood delays nobody else.

As a delay queue has one of a few TTLs, tickets that are deferred together return together. So the
gate counts the returns of each second and selects a TTL that ends in a second with few of them.
Otherwise the rate would be unused between the returns of two large groups.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from harebell.contract.types import EARLIEST
from harebell.dispatcher.release.gates import MAX_DEFERRAL, Deferral, deferral_waits
from harebell.domain.tenant_policy import TenantPolicies
from harebell.messaging.ticket_batches import TicketHeader

TENANT_RATE_GATE: Final = "tenant_rate"  # the label values of these gates in metrics
TARGET_RATE_GATE: Final = "target_rate"
BURST: Final = timedelta(seconds=1)  # of unused rate that later tickets may use
MAX_NAMES: Final = 10_000  # of tenants or targets that a gate remembers
RETURN_SLOT: Final = timedelta(seconds=1)  # or the interval of a rate below one per second
MAX_SLOT_RETURNS: Final = 2.0  # returning tickets of a slot, as a multiple of the rate
MAX_SLOTS: Final = 64  # whose returns a name remembers, more than `MAX_DEFERRAL` has


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
    """A gate that releases at most a number of tickets per second for each name."""

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
