"""The checks of a scenario after the end of all work: no run is missing or duplicated."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from tests.fakes.ledger.dead_letters import DEAD_LETTERS
from tests.fakes.ledger.runs import RUNS, Run
from tests.fakes.ledger.schedules import VERSIONS
from tests.fakes.ledger.store import Store
from tests.simulation.invariants import check
from tests.simulation.users import Users

from harebell.contract.ids import RunKey
from harebell.dlq_inspector.model.dead_letter import DeadLetterKind
from harebell.dlq_inspector.model.results import DeadLetterState, ResultStatus
from harebell.domain.run_states import ENDED, RunState
from harebell.ticker.model.unit_of_work import ManualRunOrigin
from harebell.ticker.model.version import VersionStatus


def check_end(store: Store, users: Users, results: Mapping[UUID, Counter[str]]) -> None:
    """Raise `Violation` for a wrong final state.

    `results` counts the statuses of each dead letter in the responses about it.
    """
    runs: list[Run] = list(store.tables[RUNS].values())
    for run in runs:
        has_attempts = run.state in (RunState.SUCCEEDED, RunState.DEAD)
        is_final = run.state in ENDED and (has_attempts or run.reason)
        check(is_final, f"{run.key} ended as {run}")
    for schedule, when in users.unchanged.items():
        _check_schedule([run for run in runs if run.schedule_id == schedule], when)
    triggered = sorted(run.key for run in runs if run.origin == ManualRunOrigin.TRIGGER)
    text = f"the triggered runs are wrong: {list(map(str, triggered))}"
    check(triggered == sorted(users.triggered), text)
    for id_, dead_letter in store.tables[DEAD_LETTERS].items():
        _check_dead_letter(dead_letter, store.tables[RUNS], results.get(id_, Counter()))
    for version in store.tables[VERSIONS].values():
        is_pending = version["status"] == VersionStatus.PENDING
        check(not is_pending, f"{version} is pending after its effective time")
    for key in users.scheduled:
        status = store.tables[VERSIONS][key]["status"]
        is_named = key in users.superseded
        is_right = is_named is (status == VersionStatus.SUPERSEDED)
        check(is_right, f"version {key} is {status}, and a response named it: {is_named}")


def _check_schedule(runs: Sequence[Run], when: dict[str, Any]) -> None:
    """Check that the ledger contains each time of the rule, and `times` of them as runs."""
    if "every" not in when:
        check(len(runs) == 1, f"one run was expected, not {[str(run.key) for run in runs]}")
        return
    counted = [run for run in runs if run.range_count is None and not run.is_restageable]
    expected = when["times"]
    check(len(counted) == expected, f"{expected} runs were expected, not {len(counted)}")
    every = timedelta(seconds=int(when["every"].removesuffix("s")))
    last = max(run.scheduled_for for run in counted)
    recorded = set(_recorded_times(runs, every))
    time = min(run.scheduled_for for run in runs)
    while time <= last:
        check(time in recorded, f"the ledger has no row of {runs[0].schedule_id} at {time}")
        time += every


def _check_dead_letter(
    dead_letter: dict[str, Any], runs: dict[RunKey, Run], results: Counter[str]
) -> None:
    """Check that the state agrees with the responses: open, discarded, or replayed once."""
    is_run = dead_letter["kind"] == DeadLetterKind.RUN
    check(is_run, f"a message was dead-lettered: {dead_letter['error']}")
    run = runs[RunKey(dead_letter["scheduled_for"], dead_letter["schedule_id"])]
    is_replayed = dead_letter["state"] is DeadLetterState.REPLAYED
    has_effect = run.replay_number > dead_letter["replay_number"]
    check(has_effect or not is_replayed, f"{run.key}: a replay had no effect")
    replayed = results[ResultStatus.REPLAYED]
    check(replayed <= 1, f"{run.key} was replayed by two commands")
    was_replayed = replayed + results[ResultStatus.ALREADY_REPLAYED] > 0
    check(is_replayed or not was_replayed, f"{run.key}: its dead letter is no longer replayed")
    is_discarded = dead_letter["state"] is DeadLetterState.DISCARDED
    was_discarded = results[ResultStatus.DISCARDED] > 0
    check(is_discarded or not was_discarded, f"{run.key}: its dead letter is no longer discarded")


def _recorded_times(runs: Iterable[Run], every: timedelta) -> Iterator[datetime]:
    """Yield the times of runs and the times within ranges of skipped runs."""
    for run in runs:
        time = run.scheduled_for
        while time <= (run.range_until or run.scheduled_for):
            yield time
            time += every
