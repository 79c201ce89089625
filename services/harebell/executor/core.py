"""Claimed runs and what becomes of them: waiting, starting, ending. Pure."""

from collections import defaultdict
from collections.abc import Container, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import heapify, heappop, heappush
from itertools import count
from statistics import fmean
from typing import Final, TypeAlias

from harebell.contract.identity import RunKey
from harebell.contract.policy import RecoveryClass
from harebell.contract.ticket import Ticket
from harebell.executor.targets.outcome import AttemptOutcome, Stopped, Success
from harebell.kernel.delay import LONGEST_DELAY, Tier, route
from harebell.kernel.ledger import FAILED, SUCCEEDED, AttemptCompletion, RunState, state_after
from harebell.kernel.retry import Decision, Failure, decide

CLAIM_AHEAD: Final = 0.5  # seconds of a lane's work that may lie claimed and unstarted
MAX_UNSTARTED: Final = 20_000  # runs of a lane
MAX_LATE: Final = 2_000  # of them, while some are late
LOW_WATER: Final = 0.5  # of that: above it nothing is claimed, for claims of few rows cost most
# Attempts that tell how long they take: those of a second, so that one hiccup decides nothing.
FEWEST: Final = 32
MOST: Final = 4_096
GRAIN: Final = 0.001  # seconds: of the loop's timers
BATCHED_START_THRESHOLD: Final = (
    100  # claimed runs of a lane that wait: of more, one waking starts several
)
COARSEST: Final = 0.004  # seconds between wakings, of however many
CANCELLED: Final = "cancelled"  # the outcome of an attempt that was stopped
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


def min_sleep(waiting: int) -> float:
    """Seconds that a lane sleeps at least when so many of its runs wait; 0 of few."""
    return min(waiting // BATCHED_START_THRESHOLD * GRAIN, COARSEST)


_Entry: TypeAlias = tuple[datetime, int, int, ClaimedRun]


class StartQueue:
    """Claimed runs until their instant; what is due first, and then most urgent, first.

    Runs of a target that has its share of the slots stand aside: none of the others is behind them.
    """

    def __init__(self) -> None:
        self._heap: list[_Entry] = []
        self._aside: defaultdict[str, list[_Entry]] = defaultdict(list)
        self._order = count()

    def __len__(self) -> int:
        """Without those that stand aside."""
        return len(self._heap)

    def push(self, run: ClaimedRun) -> None:
        heappush(self._heap, self._entry(run))

    def next_due(self) -> datetime | None:
        return self._heap[0][0] if self._heap else None

    def pop(self) -> ClaimedRun:
        return heappop(self._heap)[-1]

    def defer(self, run: ClaimedRun) -> None:
        heappush(self._aside[run.downstream], self._entry(run))

    def deferred_counts(self) -> dict[str, int]:
        """How many stand aside, by target."""
        return {downstream: len(entries) for downstream, entries in self._aside.items()}

    def resume(self, downstream: str) -> None:
        """The first of those of this target that stand aside, if there are any."""
        if entries := self._aside.get(downstream):
            heappush(self._heap, heappop(entries))
        else:
            self._aside.pop(downstream, None)

    def waiting(self) -> list[ClaimedRun]:
        return [entry[-1] for heap in (self._heap, *self._aside.values()) for entry in heap]

    def remove(self, keys: Container[RunKey]) -> list[ClaimedRun]:
        """Those of them that wait here, which may start no more."""
        taken = [run for run in self.waiting() if run.key in keys]
        for heap in (self._heap, *self._aside.values()):
            heap[:] = [entry for entry in heap if entry[-1].key not in keys]
            heapify(heap)
        return taken

    def _entry(self, run: ClaimedRun) -> _Entry:
        return run.ticket.due_at, -run.ticket.priority, next(self._order), run


@dataclass(slots=True)
class ThroughputEstimate:
    """How long attempts take lately. `seconds` before the first: as for a slot each."""

    slots: int
    seconds: float = CLAIM_AHEAD
    _told: int = 0  # attempts that `seconds` is the mean of

    def record(self, after: float) -> None:
        of_a_second = self.slots / max(self.seconds, self.slots / MOST)
        self._told = min(self._told + 1, max(FEWEST, int(of_a_second)))
        self.seconds += (after - self.seconds) / self._told

    def capacity(self, unstarted: int, running: Sequence[float], *, is_late: bool = False) -> int:
        """How many more runs the lane may claim; the rest stays in the queue for whoever is free.

        `running`: for how long each attempt has run that has not ended; none may ever end.
        `is_late`: what has been claimed is to start first.
        """
        lately = max(self.seconds, fmean(running) if len(running) == self.slots else 0.0)
        most = MAX_LATE if is_late else MAX_UNSTARTED
        wanted = max(
            self.slots, int(self.slots * CLAIM_AHEAD / max(lately, CLAIM_AHEAD * self.slots / most))
        )
        return 0 if unstarted > wanted * LOW_WATER else wanted - unstarted


def decide_next(
    run: ClaimedRun, outcome: AttemptOutcome, now: datetime, dice: float
) -> Decision | None:
    """None: it succeeded, or was stopped; there is nothing to decide."""
    if isinstance(outcome, Success | Stopped):
        return None
    ticket = run.ticket
    return decide(
        ticket.run_spec.retry, run.attempt, outcome, now, dice=dice, expires_at=ticket.expires_at
    )


def completion_of(
    run: ClaimedRun, outcome: AttemptOutcome, decided: Decision | None, now: datetime
) -> AttemptCompletion:
    """The record of an attempt. A retry beyond the tiers' reach rests unstaged."""
    if isinstance(outcome, Stopped):
        state, attempt = RunState.CANCELLED, CANCELLED
        started = run.started_at
        return AttemptCompletion(
            run.key, run.token, state, attempt, started, now, reason=outcome.reason
        )
    state, reason, at = (
        (RunState.SUCCEEDED, None, None) if decided is None else state_after(decided)
    )
    rests = at is None or route(at, now, reach=LONGEST_DELAY).tier is Tier.COLD
    failed = None if isinstance(outcome, Success) else outcome
    return AttemptCompletion(
        run.key,
        run.token,
        state,
        SUCCEEDED if failed is None else FAILED,
        run.started_at,
        now,
        reason=reason,
        next_attempt_at=at,
        staged_at=None if rests else now,
        error_code=None if failed is None else failed.code,
        error=None if failed is None else failed.message,
        http_status=outcome.status if isinstance(outcome, Success) else outcome.http_status,
        result=outcome.result if isinstance(outcome, Success) else None,
        healthy=is_healthy(outcome),
    )


def is_healthy(outcome: Success | Failure) -> bool | None:
    """Of whom was called. To refuse what was asked is an answer; None: it may never have heard."""
    if isinstance(outcome, Success):
        return True
    if outcome.retryable:
        return False
    return None if outcome.http_status is None else True
