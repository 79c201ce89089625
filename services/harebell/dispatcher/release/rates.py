"""Rates of releases: the gates that bound the runs per second of a tenant and of a target. Pure.

Each dispatcher counts the tickets that it releases. A ticket above the rate waits in a delay queue
and never in a work queue, which is first in, first out. A flood of one tenant therefore delays no
ticket of another tenant.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from harebell.contract.types import EARLIEST
from harebell.dispatcher.release.gates import Deferral
from harebell.domain.tenant_policy import TenantPolicies
from harebell.messaging.ticket_batches import TicketHeader

TENANT_RATE_GATE: Final = "tenant_rate"  # the label values of these gates in metrics
TARGET_RATE_GATE: Final = "target_rate"
BURST: Final = timedelta(seconds=1)  # of unused rate that later tickets may use
MAX_NAMES: Final = 10_000  # of tenants or targets that a gate remembers


@dataclass(slots=True)
class _Rate:
    """The tickets of one name, as times on a line with one ticket per interval."""

    released_until: datetime = EARLIEST  # the end of the interval of the last released ticket
    deferred_until: datetime = EARLIEST  # the same for the deferred tickets, which come back then


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
        # The deferred tickets come back at the rate, and not all of them at once.
        rate.deferred_until = max(rate.deferred_until, rate.released_until) + interval
        return Deferral(self.gate, rate.deferred_until - BURST - now)

    def _rate(self, name: str, now: datetime) -> _Rate:
        if (rate := self._rates.get(name)) is None:
            if len(self._rates) >= MAX_NAMES:
                self._rates = {
                    known: each
                    for known, each in self._rates.items()
                    if max(each.released_until, each.deferred_until) > now
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
