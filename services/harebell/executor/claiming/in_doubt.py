"""Claims of which nobody knows whether they were committed: of the copies of a ticket, one runs."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from harebell.storage.runs.claims import ClaimKey

MAX_DOUBTFUL: Final = 10_000  # claims that are remembered, the latest


@dataclass(slots=True)
class InDoubtClaims:
    """Only what is in doubt may be found to be mine, and once.

    Any other run that is mine runs already, or has run and could not be recorded. Answers come in
    any order: a claim that succeeded may be told after another copy has found, and run, its run.
    """

    _open: dict[ClaimKey, bool] = field(default_factory=dict)  # False: its run has been taken

    def add(self, wanted: Iterable[ClaimKey]) -> None:
        for each in wanted:
            self._open.setdefault(each, True)
        for oldest in list(self._open)[:-MAX_DOUBTFUL]:
            del self._open[oldest]

    def accept_claim(self, each: ClaimKey) -> bool:
        """Whether a run may be taken whose claim has succeeded."""
        if not self._open:  # nearly always: then nothing needs to be hashed
            return True
        return each not in self._open or self.accept_recovered(each)

    def accept_recovered(self, each: ClaimKey) -> bool:
        """Whether a run may be taken that is found to be mine."""
        may = self._open.get(each, False)
        if may:
            self._open[each] = False
        return may
