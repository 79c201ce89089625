"""The load of lanes: starts, lateness and backlog, from the views of runs. Pure."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from harebell.contract.views import RunView

WINDOW: Final = timedelta(seconds=60)  # of the starts and of their lateness
WAITING_STATES: Final = frozenset({"staged", "retrying"})
RUNNING_STATE: Final = "running"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneLoad:
    """One lane. `started` counts the first attempts of the window, and the lateness is theirs.

    `waiting` counts runs that are due and have not started, `oldest_s` is the age of the oldest.
    """

    pool: str
    lane: str
    started: int
    late_p50_ms: float | None
    late_p99_ms: float | None
    running: int
    waiting: int
    oldest_s: float | None


def lane_loads(runs: Iterable[RunView], now: datetime) -> list[LaneLoad]:
    """Return the load of each lane that has a run, the longest backlog first.

    `runs` may contain a run several times, and its last view counts.
    """
    lanes: dict[tuple[str, str], list[RunView]] = defaultdict(list)
    for run in {each.run_id: each for each in runs}.values():
        lanes[run.pool, run.lane].append(run)
    loads = [_load(pool, lane, found, now=now) for (pool, lane), found in lanes.items()]
    return sorted(loads, key=lambda each: (-each.waiting, each.pool, each.lane))


def quantile(values: Iterable[float], share: float) -> float | None:
    """Return the value that `share` of the values do not exceed, or None without a value."""
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]


def _load(pool: str, lane: str, runs: list[RunView], *, now: datetime) -> LaneLoad:
    late = [
        each.late_ms
        for each in runs
        if each.late_ms is not None and each.due_at >= now - WINDOW and each.replay_number == 0
    ]
    waits = [
        due
        for each in runs
        if each.state in WAITING_STATES and (due := each.next_attempt_at or each.due_at) < now
    ]
    return LaneLoad(
        pool=pool,
        lane=lane,
        started=len(late),
        late_p50_ms=quantile(late, 0.5),
        late_p99_ms=quantile(late, 0.99),
        running=sum(each.state == RUNNING_STATE for each in runs),
        waiting=len(waits),
        oldest_s=(now - min(waits)).total_seconds() if waits else None,
    )
