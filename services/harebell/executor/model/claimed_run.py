"""Claimed runs and what becomes of them: waiting, starting, ending. Pure."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from harebell.contract.ids import RunKey
from harebell.contract.policy import RecoveryClass
from harebell.contract.ticket import Ticket

FRESH: Final = 2.0  # seconds since a claim or renewal; an older lease is renewed before a start


@dataclass(slots=True, eq=False)
class ClaimedRun:
    """One claim of a run by this executor. Moments are the monotonic clock's, in seconds.

    A run that was taken away and claimed anew is another `Claimed`: its old attempt may still run.
    """

    ticket: Ticket
    token: int
    attempt: int
    lease: float
    renewed_at: float  # reckoned from before the claim or renewal was sent
    started_at: datetime | None = None

    @property
    def key(self) -> RunKey:
        return self.ticket.run_key

    @property
    def downstream(self) -> str:
        """Whom it calls."""
        return self.ticket.downstream

    @property
    def lease_ends(self) -> float:
        return self.renewed_at + self.lease

    def is_fresh(self, moment: float) -> bool:
        return moment - self.renewed_at <= min(FRESH, self.lease / 2)


def lease_seconds(ticket: Ticket, normal: float, critical: float) -> float:
    """Seconds, as what it is given."""
    return critical if ticket.run_spec.class_ is RecoveryClass.CRITICAL else normal
