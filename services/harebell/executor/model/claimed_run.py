"""A claimed run: the ticket, the fencing token and the lease of one claim, and its probes.

The dispatcher releases the ticket of a probe to test a half open breaker.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from harebell.contract.ids import RunKey
from harebell.contract.policy import RecoveryClass
from harebell.contract.target import Delegation, delegation_of
from harebell.contract.ticket import Ticket
from harebell.contract.trace import TraceContext
from harebell.domain.run_states import seq_of

FRESH_LEASE_AGE: Final = 2.0  # seconds; an executor renews an older lease before a start
MAX_PROBES: Final = 1_000  # remembered tickets of a lane; a forgotten probe is a usual attempt


@dataclass(slots=True, eq=False, kw_only=True)
class ClaimedRun:
    """One claim of a run by this executor. Times are seconds of the monotonic clock.

    Two claims of one run are different objects, because the attempt of the earlier claim may still
    be in progress.
    """

    ticket: Ticket
    token: int
    attempt: int
    lease: float  # seconds
    renewed_at: float  # the time before the executor sent the claim or the renewal
    failed_probes: int = 0  # of the earlier attempts
    checkpoint: str | None = None  # JSON of the last report of the earlier attempts
    progress: dict[str, Any] | None = None  # the reports since the last renewal
    started_at: datetime | None = None
    trace: TraceContext | None = None  # the context that the target receives
    recorded_trace: str | None = None  # the traceparent of the span, if it is recorded

    @property
    def key(self) -> RunKey:
        return self.ticket.run_key

    @property
    def target_share(self) -> str:
        return target_share(self.tenant, self.ticket.downstream)

    @property
    def tenant(self) -> str:
        return self.ticket.run_spec.tenant

    @property
    def delegation(self) -> Delegation | None:
        """The bounds of the delegated run, or None if its call completes the run."""
        return delegation_of(self.ticket.run_spec.target)

    @property
    def lease_ends(self) -> float:
        return self.renewed_at + self.lease

    def start(self, now: datetime) -> None:
        """Record the start of the attempt."""
        self.started_at = now

    def report(self, fields: Mapping[str, Any]) -> None:
        """Add a report of the attempt, which travels with the next renewal of the lease.

        The thread of a task may call the method.
        """
        self.progress = {**(self.progress or {}), **fields}

    def is_fresh(self, time: float) -> bool:
        """Return whether the run may start at `time` without a renewal of its lease."""
        return time - self.renewed_at <= min(FRESH_LEASE_AGE, self.lease / 2)


def target_share(tenant: str, downstream: str) -> str:
    """Return the name of the share of slots that one tenant may use for one downstream.

    With one share for all tenants, a tenant that floods a downstream would delay the runs of other
    tenants that call it.
    """
    return f"{tenant} {downstream}"


def lease_seconds(ticket: Ticket, *, normal: float, critical: float) -> float:
    """Return the lease of the recovery class of the ticket."""
    return critical if ticket.run_spec.class_ is RecoveryClass.CRITICAL else normal


class Probes:
    """The latest probes of a lane that have not ended.

    A ticket is forgotten with its process, and the attempt of a lost process counts.
    """

    def __init__(self) -> None:
        self._tickets: dict[tuple[RunKey, int], None] = {}  # by key and `seq`, the oldest first

    def add(self, tickets: Iterable[Ticket]) -> None:
        for ticket in tickets:
            self._tickets[ticket.run_key, ticket.seq] = None
        for oldest in list(self._tickets)[:-MAX_PROBES]:
            del self._tickets[oldest]

    def remove(self, run: ClaimedRun) -> bool:
        """Return whether the run was claimed by the ticket of a probe, and forget the ticket.

        The fencing token of a claim contains the `seq` of its ticket plus 1.
        """
        if not self._tickets:  # the usual case, without a hash of the run
            return False
        identity = run.key, seq_of(run.token) - 1
        is_probe = identity in self._tickets
        self._tickets.pop(identity, None)
        return is_probe
