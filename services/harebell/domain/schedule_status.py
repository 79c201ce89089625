"""The status of a schedule as users see it: its state, its result and the counts of its runs.

`tests/contract` compares the SQL of intake and of the ticker with these rules.
"""

from typing import Final, NamedTuple

from harebell.domain.run_states import ENDED, RunState, ScheduleState

_WITHOUT_END: Final = frozenset({RunState.UNRESOLVED})  # a person still decides about the outcome


class RunResult(NamedTuple):
    """The state and the attempts of a run.

    `is_unstaged` is true if a pause or a new version cancelled the run before its first attempt.
    Planning may stage such a run again, so the run has not ended for its schedule.
    """

    state: RunState
    attempt: int
    is_unstaged: bool = False

    @property
    def has_ended(self) -> bool:
        """Return whether the ticker may remove the run from the open runs of its schedule."""
        return self.state in ENDED and self.state not in _WITHOUT_END

    @property
    def is_execution(self) -> bool:
        """Return whether the run has ended after at least one attempt."""
        return self.has_ended and self.attempt > 0

    @property
    def is_failure(self) -> bool:
        return self.state is RunState.DEAD


def visible_state(stored: ScheduleState, *, has_open_run: bool) -> ScheduleState:
    """Return the state that users see. A schedule with an open run is not completed.

    The ticker stores `completed` as soon as nothing is left to plan, before the last run starts.
    """
    if stored is ScheduleState.COMPLETED and has_open_run:
        return ScheduleState.ACTIVE
    return stored


def result_of(state: ScheduleState, last_run: RunState | None) -> RunState | None:
    """Return how a completed schedule ended: the state of its last run, or None without a run."""
    return last_run if state is ScheduleState.COMPLETED else None
