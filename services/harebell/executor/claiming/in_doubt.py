"""Claims in doubt, of which the executor accepts each run only once."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from harebell.storage.runs.claims import ClaimKey

MAX_IN_DOUBT: Final = 10_000  # the latest claims


@dataclass(slots=True)
class InDoubtClaims:
    """The claims whose statement failed, so that their commit is unknown.

    From a later ticket we may learn that such a claim succeeded. If a claim was never in doubt, it
    has given its run to this executor, so the run must not start again. As responses arrive in any
    order, a claim may succeed after another ticket has recovered its run.
    """

    _is_open: dict[ClaimKey, bool] = field(default_factory=dict)  # False: the run was accepted

    def add(self, claims: Iterable[ClaimKey]) -> None:
        for each in claims:
            self._is_open.setdefault(each, True)
        for oldest in list(self._is_open)[:-MAX_IN_DOUBT]:
            del self._is_open[oldest]

    def accept_claim(self, claim: ClaimKey) -> bool:
        """Return whether the executor may start the run of a successful claim."""
        if not self._is_open:  # the usual case, without a hash of the claim
            return True
        return claim not in self._is_open or self.accept_recovered(claim)

    def accept_recovered(self, claim: ClaimKey) -> bool:
        """Return whether the executor may start a run that it turns out to own."""
        is_open = self._is_open.get(claim, False)
        if is_open:
            self._is_open[claim] = False
        return is_open
