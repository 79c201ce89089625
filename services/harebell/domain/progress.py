"""The rules for progress: the budget of its events, and the age of a stale report."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from harebell.contract.ids import RunKey
from harebell.domain.event_budget import EventBudget

EVENT_INTERVAL: Final = 10.0  # seconds between two events of one run
MAX_REMEMBERED_RUNS: Final = 10_000  # the run without an event for the longest time is dropped
MIN_STALE_AGE: Final = timedelta(minutes=1)
LEASES_UNTIL_STALE: Final = 2


@dataclass(slots=True)
class ProgressEventLimit:
    """The limit of the events `run.progressed`, for each run and for each tenant."""

    _published_at: OrderedDict[RunKey, float] = field(default_factory=OrderedDict)
    _budget: EventBudget = field(default_factory=EventBudget)

    def admits(self, tenant: str, run: RunKey, now: float) -> bool:
        """Return whether a report of the run has an event, and count the event.

        `now` is in seconds of a clock that never moves back.
        """
        last = self._published_at.get(run)
        if last is not None and now - last < EVENT_INTERVAL:
            return False
        if not self._budget.take(tenant, 1, now):
            return False
        self._published_at[run] = now
        self._published_at.move_to_end(run)
        if len(self._published_at) > MAX_REMEMBERED_RUNS:
            self._published_at.popitem(last=False)
        return True


def is_stale(
    reported_at: datetime, *, started_at: datetime | None, lease: timedelta, now: datetime
) -> bool:
    """Return whether the last report of a running run says nothing about the present attempt."""
    is_earlier = started_at is not None and reported_at < started_at
    return is_earlier or now - reported_at > max(MIN_STALE_AGE, LEASES_UNTIL_STALE * lease)


def progress_text(progress: Mapping[str, Any], *, stale_for: timedelta | None) -> str:
    """Return `42 %: 3 of 7 files`, and after it the age of a stale report."""
    percent, message = progress.get("percent"), progress.get("message")
    parts = [] if percent is None else [f"{percent:g} %"]
    text = ": ".join([*parts, *([] if not message else [message])]) or "a checkpoint"
    if stale_for is None:
        return text
    return f"{text} (stale, reported {int(stale_for.total_seconds())} s ago)"
