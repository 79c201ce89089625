"""What must hold when all is at rest: nothing is lost, nothing is doubled."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from tests.memory.runs import RUNS, Run
from tests.memory.store import Store
from tests.simulation.witness import must

from harebell.kernel.ledger import ENDED, RunState


def balance(store: Store, untouched: Mapping[UUID, dict[str, Any]]) -> None:
    """`untouched`: the rules of schedules that nobody changed."""
    runs: list[Run] = list(store.tables[RUNS].values())
    for run in runs:
        ran = run.state in (RunState.SUCCEEDED, RunState.DEAD)
        must(run.state in ENDED and (ran or run.reason), f"{run.key} rests as {run}")
    for schedule, when in untouched.items():
        _check_owed([run for run in runs if run.schedule_id == schedule], when)


def _check_owed(runs: Sequence[Run], when: dict[str, Any]) -> None:
    """Each instant of the rule is on record, and `times` of them as runs."""
    if "every" not in when:
        must(len(runs) == 1, f"one run was owed, and there are {[str(run.key) for run in runs]}")
        return
    owed = [run for run in runs if run.range_count is None and not run.is_revivable]
    must(len(owed) == when["times"], f"{when['times']} runs were owed, and {len(owed)} counted")
    every = timedelta(seconds=int(when["every"].removesuffix("s")))
    last, told = max(run.scheduled_for for run in owed), set(_told(runs, every))
    instant = min(run.scheduled_for for run in runs)
    while instant <= last:
        must(instant in told, f"nothing tells what became of {runs[0].schedule_id} at {instant}")
        instant += every


def _told(runs: Iterable[Run], every: timedelta) -> Iterator[datetime]:
    """Instants on record: of runs, and within ranges that were not run."""
    for run in runs:
        instant = run.scheduled_for
        while instant <= (run.range_until or run.scheduled_for):
            yield instant
            instant += every
