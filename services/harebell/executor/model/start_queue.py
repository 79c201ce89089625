"""The start queue: claimed runs of one lane until their start."""

from bisect import insort
from collections.abc import Container, Iterator
from datetime import datetime
from itertools import chain, count
from typing import Final, TypeAlias

from harebell.contract.ids import RunKey
from harebell.domain.run_states import start_rank
from harebell.executor.model.claimed_run import ClaimedRun
from harebell.executor.model.priority_queue import PriorityQueue

TIMER_RESOLUTION: Final = 0.001  # seconds, of the timers of the event loop
# Claimed runs of a lane that wait. At this number, one wake of the lane starts several runs.
BATCHED_START_THRESHOLD: Final = 100
MAX_MIN_SLEEP: Final = 0.004  # seconds, for any number of waiting runs


def min_sleep(waiting: int) -> float:
    """Return the shortest sleep of a lane with `waiting` runs, in seconds (0 below 100 runs)."""
    return min(waiting // BATCHED_START_THRESHOLD * TIMER_RESOLUTION, MAX_MIN_SLEEP)


# The start rank, the order of deferral, the run.
_Deferred: TypeAlias = tuple[datetime, int, ClaimedRun]


class DeferredRuns:
    """Due runs that wait apart from the queue, by the name of what they wait for.

    All of them are due, so their order is the start rank.
    """

    def __init__(self) -> None:
        self._entries: dict[str, list[_Deferred]] = {}  # sorted
        self._deferrals = count()

    def __iter__(self) -> Iterator[ClaimedRun]:
        entries = chain.from_iterable(self._entries.values())
        return (run for _, _, run in entries)

    def add(self, name: str, run: ClaimedRun) -> None:
        rank = start_rank(run.ticket.due_at, run.ticket.priority)
        insort(self._entries.setdefault(name, []), (rank, next(self._deferrals), run))

    def counts(self) -> dict[str, int]:
        """Return the number of deferred runs by name."""
        return {name: len(entries) for name, entries in self._entries.items()}

    def rank(self, name: str, position: int) -> datetime:
        """Return the start rank of the deferred run at this position, counted from 0."""
        return self._entries[name][position][0]

    def pop(self, name: str) -> ClaimedRun | None:
        """Remove and return the first deferred run of the name, or None."""
        if entries := self._entries.get(name):
            return entries.pop(0)[-1]
        self._entries.pop(name, None)
        return None

    def remove_keys(self, keys: Container[RunKey]) -> list[ClaimedRun]:
        """Remove and return the runs with these keys."""
        removed = [run for run in self if run.key in keys]
        for entries in self._entries.values():
            entries[:] = [entry for entry in entries if entry[-1].key not in keys]
        return removed


class StartQueue(PriorityQueue[ClaimedRun]):
    """A queue of claimed runs, in the order of starts. Its length excludes the deferred runs.

    If a target or a tenant uses its share of the slots, its runs are deferred to a list of their
    own. There, they delay no run of another target or tenant.
    """

    def __init__(self) -> None:
        super().__init__()
        self.of_targets = DeferredRuns()
        self.of_tenants = DeferredRuns()

    def push(self, run: ClaimedRun) -> None:
        ticket = run.ticket
        self.insert(run, ticket.due_at, ticket.priority)

    def defer(self, run: ClaimedRun) -> None:
        """Add the due run to the deferred runs of its target share."""
        self.of_targets.add(run.target_share, run)

    def defer_tenant(self, run: ClaimedRun) -> None:
        """Add the due run to the deferred runs of its tenant."""
        self.of_tenants.add(run.tenant, run)

    def resume(self, target_share: str) -> None:
        """Move the first deferred run of the target share back to the queue."""
        if (run := self.of_targets.pop(target_share)) is not None:
            self.push(run)

    def resume_tenant(self, tenant: str) -> None:
        """Move the first deferred run of the tenant back to the queue."""
        if (run := self.of_tenants.pop(tenant)) is not None:
            self.push(run)

    def waiting(self) -> list[ClaimedRun]:
        """Return all runs, including the deferred runs."""
        return [*self, *self.of_targets, *self.of_tenants]

    def remove_keys(self, keys: Container[RunKey]) -> list[ClaimedRun]:
        """Remove and return the runs with these keys, including deferred runs."""
        removed = self.remove(lambda run: run.key in keys)
        return removed + self.of_targets.remove_keys(keys) + self.of_tenants.remove_keys(keys)
