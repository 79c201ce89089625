"""What must hold when all is at rest: nothing is lost, nothing is doubled."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from tests.fakes.ledger.dead_letters import DEAD_LETTERS
from tests.fakes.ledger.runs import RUNS, Run
from tests.fakes.ledger.schedules import VERSIONS
from tests.fakes.ledger.store import Store
from tests.simulation.invariants import must
from tests.simulation.users import Users

from harebell.contract.ids import RunKey
from harebell.dlq_inspector.model.dead_letter import DeadLetterKind
from harebell.dlq_inspector.model.results import DeadLetterState, ResultStatus
from harebell.domain.run_states import ENDED, RunState
from harebell.ticker.model.unit_of_work import ManualRunOrigin
from harebell.ticker.model.version import VersionStatus


def balance(store: Store, users: Users, told: Mapping[UUID, Counter[str]]) -> None:
    """`told`: what the desk answered about each letter."""
    runs: list[Run] = list(store.tables[RUNS].values())
    for run in runs:
        ran = run.state in (RunState.SUCCEEDED, RunState.DEAD)
        must(run.state in ENDED and (ran or run.reason), f"{run.key} rests as {run}")
    for schedule, when in users.untouched.items():
        _check_owed([run for run in runs if run.schedule_id == schedule], when)
    triggered = sorted(run.key for run in runs if run.origin == ManualRunOrigin.TRIGGER)
    must(
        triggered == sorted(users.triggered), f"not what was triggered: {list(map(str, triggered))}"
    )
    for id_, letter in store.tables[DEAD_LETTERS].items():
        _check_letter(letter, store.tables[RUNS], told.get(id_, Counter()))
    for version in store.tables[VERSIONS].values():
        must(
            version["status"] != VersionStatus.PENDING,
            f"{version} is pending, and its time has come",
        )


def _check_owed(runs: Sequence[Run], when: dict[str, Any]) -> None:
    """Each instant of the rule is on record, and `times` of them as runs."""
    if "every" not in when:
        must(len(runs) == 1, f"one run was owed, and there are {[str(run.key) for run in runs]}")
        return
    owed = [run for run in runs if run.range_count is None and not run.is_restageable]
    must(len(owed) == when["times"], f"{when['times']} runs were owed, and {len(owed)} counted")
    every = timedelta(seconds=int(when["every"].removesuffix("s")))
    last, told = max(run.scheduled_for for run in owed), set(_told(runs, every))
    instant = min(run.scheduled_for for run in runs)
    while instant <= last:
        must(instant in told, f"nothing tells what became of {runs[0].schedule_id} at {instant}")
        instant += every


def _check_letter(letter: dict[str, Any], runs: dict[RunKey, Run], told: Counter[str]) -> None:
    """Replayed exactly once, or on the desk, or dropped: as it was answered."""
    must(letter["kind"] == DeadLetterKind.RUN, f"a message died: {letter['error']}")
    run = runs[RunKey(letter["scheduled_for"], letter["schedule_id"])]
    is_replayed = letter["state"] is DeadLetterState.REPLAYED
    must(
        run.replay_number > letter["replay_number"] or not is_replayed,
        f"{run.key}: a replay came to nothing",
    )
    must(told[ResultStatus.REPLAYED] <= 1, f"{run.key} was replayed by two commands")
    said_so = told[ResultStatus.REPLAYED] + told[ResultStatus.ALREADY_REPLAYED]
    must(is_replayed or not said_so, f"{run.key}: its letter is no longer replayed")
    is_dropped = letter["state"] is DeadLetterState.DISCARDED
    must(
        is_dropped or not told[ResultStatus.DISCARDED],
        f"{run.key}: its letter is no longer dropped",
    )


def _told(runs: Iterable[Run], every: timedelta) -> Iterator[datetime]:
    """Instants on record: of runs, and within ranges that were not run."""
    for run in runs:
        instant = run.scheduled_for
        while instant <= (run.range_until or run.scheduled_for):
            yield instant
            instant += every
