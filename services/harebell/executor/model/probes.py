"""The probes of a lane: the tickets that the dispatcher released to probe a half open breaker."""

from collections.abc import Iterable
from typing import Final

from harebell.contract.ids import RunKey
from harebell.contract.ticket import Ticket
from harebell.domain.run_states import seq_of
from harebell.executor.model.claimed_run import ClaimedRun

MAX_PROBES: Final = 1_000  # remembered tickets of a lane; a forgotten probe is a usual attempt


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
