"""The registry of the runs that this executor has claimed and not completed."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from harebell.contract.ids import RunKey
from harebell.contract.ticket import Ticket
from harebell.domain.run_states import seq_of
from harebell.executor import metrics
from harebell.executor.model.claimed_run import ClaimedRun


@dataclass(slots=True)
class ClaimedRuns:
    """The claimed runs by run key.

    The claimers add runs. The completer, the rate limiter and the stop request handler remove them.
    """

    _runs: dict[RunKey, ClaimedRun] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._runs)

    def get(self, key: RunKey) -> ClaimedRun | None:
        return self._runs.get(key)

    def contains(self, ticket: Ticket) -> bool:
        """Return whether this executor has already claimed the run by this ticket or a newer one.

        RabbitMQ may deliver a work batch again after its runs were claimed.
        """
        run = self._runs.get(ticket.run_key)
        return run is not None and seq_of(run.token) > ticket.seq

    def is_current(self, run: ClaimedRun) -> bool:
        """Return whether this claim of the run is still the registered one."""
        return self._runs.get(run.key) is run

    def renewed_before(self, time: float) -> list[ClaimedRun]:
        """Return the runs whose lease is older than `time`, in seconds of the monotonic clock."""
        return [run for run in self._runs.values() if run.renewed_at < time]

    def add(self, runs: Iterable[ClaimedRun]) -> None:
        self._runs.update((run.key, run) for run in runs)
        metrics.CLAIMED_RUNS.set(len(self._runs))

    def remove(self, runs: Iterable[ClaimedRun]) -> None:
        """Remove these claims. Keep a newer claim of the same run."""
        for run in runs:
            if self.is_current(run):
                del self._runs[run.key]
        metrics.CLAIMED_RUNS.set(len(self._runs))
