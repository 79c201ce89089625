"""Tests that identical concurrent commands have one effect, between commands of other schedules."""

from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes.schedules import HORIZON, TASK
from tests.fakes.tickets import NINE, after
from tests.simulation.expected_runs import RESOLUTION

from harebell.contract.commands import SCHEDULE_COMMANDS
from harebell.contract.errors import Rejected
from harebell.contract.ids import RunKey, schedule_id
from harebell.contract.types import instant_text
from harebell.domain.run_states import NewRun, RunState
from harebell.ticker.commands.handlers import CommandContext, apply_command
from harebell.ticker.model.counted_runs import with_staged_runs
from harebell.ticker.model.planning import plan_if_due, plan_schedule
from harebell.ticker.model.unit_of_work import LockedRun, ScheduleRecord, UnitOfWork

TENANT = "default"
KEY, OTHER_KEYS = "same", ("one", "two", "three")
EARLIER = after(-10)

Command = tuple[str, dict[str, Any]]  # the verb and the body


def body(key: str, when: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"key": key, "when": when, "target": TASK, **more}


INTERVAL = {"every": "20s", "start": instant_text(NINE)}
RULES: list[dict[str, Any]] = [
    INTERVAL,
    {"after": "15s"},
    {"cron": "*/5 * * * *", "jitter": "30s"},
    {"now": True},
]
PUTS = [("schedule.put", body(KEY, when)) for when in RULES]
LATER = {"priority": 9, "effective_at": "2026-11-20T09:00:30Z"}
CHANGES: list[Command] = [
    ("schedule.put", body(KEY, INTERVAL)),
    *(("schedule.put", body(KEY, when, priority=9, expected_version=1)) for when in RULES),
    ("schedule.put", body(KEY, INTERVAL, priority=9)),
    ("schedule.put", body(KEY, {"every": "7s"}, **LATER)),
    ("schedule.patch", {"key": KEY, "set": {"priority": 9}}),
    ("schedule.patch", {"key": KEY, "set": {"when": {"every": "7s"}}}),
    ("schedule.pause", {"key": KEY, "until": "2026-11-20T09:10:00Z"}),
    *((f"schedule.{verb}", {"key": KEY}) for verb in ("pause", "resume", "cancel")),
    ("schedule.skip", {"key": KEY, "at": "2026-11-20T09:00:20Z"}),
    ("schedule.skip", {"key": KEY, "at": "2026-11-20T09:20:00Z"}),
]
commands_of_others = st.one_of(
    st.builds(
        lambda key, verb: (f"schedule.{verb}", {"key": key}),
        st.sampled_from(OTHER_KEYS),
        st.sampled_from(["pause", "resume", "cancel", "trigger"]),
    ),
    st.builds(
        lambda key, when: ("schedule.put", body(key, when, expected_version="any")),
        st.sampled_from(OTHER_KEYS),
        st.sampled_from(RULES),
    ),
)
# None marks a repetition of the command under test.
interleaved = st.lists(st.one_of(st.none(), commands_of_others), min_size=1, max_size=20)
many = settings(max_examples=200)


@dataclass(frozen=True)
class Outcome:
    """The error code of a rejected command, or the response to an applied command."""

    error_code: str | None
    status: str | None = None
    version: int | None = None


def apply(unit: UnitOfWork, command: Command, at: int) -> Outcome:
    """Apply the command `at` milliseconds after nine."""
    verb, content = command
    context = CommandContext(
        tenant=TENANT,
        command=SCHEDULE_COMMANDS[verb].model_validate(content),
        schedule_id=schedule_id(TENANT, content["key"]),
        accepted_at=time_at(at),
        actor="tester",
    )
    try:
        response = apply_command(unit, context)
    except Rejected as error:
        return Outcome(error.code)
    return Outcome(None, response.status, getattr(response, "version", None))


def time_at(milliseconds: int) -> datetime:
    return NINE + milliseconds * RESOLUTION


def planned_unit(keys: tuple[str, ...], *, is_paused: bool, claimed: int) -> UnitOfWork:
    """Return staged schedules, of whose first one executors have claimed `claimed` runs."""
    unit, put_at = UnitOfWork(), -int((NINE - EARLIER) / RESOLUTION)
    for key in keys:
        apply(unit, ("schedule.put", body(key, INTERVAL)), put_at)
    schedules: dict[UUID, ScheduleRecord] = {}
    runs: dict[RunKey, LockedRun] = {}
    for record in unit.schedules.values():
        step = plan_schedule(record, EARLIER, EARLIER + HORIZON)
        staged = {run.key for run in step.to_stage}
        schedules[record.id] = with_staged_runs(step, staged, {})
        runs |= {run.key: staged_run(run) for run in step.to_stage}
    runs |= {key: claimed_run(runs[key]) for key in list(runs)[:claimed]}
    unit = UnitOfWork(schedules=schedules, open_runs=runs)
    if is_paused:
        apply(unit, ("schedule.pause", {"key": keys[0]}), -1)
    return unit


def staged_run(run: NewRun) -> LockedRun:
    return LockedRun(
        key=run.key,
        state=RunState.STAGED,
        attempt=0,
        seq=1,
        due_at=run.due_at,
        version=1,
        lease_holder=None,
        is_from_recurrence=True,
        has_started=False,
    )


def claimed_run(run: LockedRun) -> LockedRun:
    return replace(run, state=RunState.RUNNING, attempt=1, seq=2, lease_holder="executor-1")


def effect_of(unit: UnitOfWork, at: int) -> dict[str, Any]:
    """Return all changes except the time of the last change, and the runs that come next."""
    content = {each.name: getattr(unit, each.name) for each in fields(unit)}
    schedules = {id_: each._replace(changed_at=NINE) for id_, each in unit.schedules.items()}
    now = time_at(at)
    steps = [plan_if_due(record, now, now + HORIZON) for record in schedules.values()]
    planned = [(step.to_stage, step.skipped, step.version_statuses) for step in steps]
    return content | {"schedules": schedules, "planned": planned}


def assert_one_effect(
    command: Command, order: list[Command | None], **options: Any
) -> list[Outcome]:
    """Return the outcomes of the command, after a comparison with a single application."""
    repeated, single = planned_unit(**options), planned_unit(**options)
    outcomes: list[Outcome] = []
    for at, other in enumerate([*order, None]):
        if other is not None:
            assert apply(repeated, other, at) == apply(single, other, at)
            continue
        outcomes.append(apply(repeated, command, at))
        if len(outcomes) == 1:
            assert apply(single, command, at) == outcomes[0]
    assert effect_of(repeated, len(order)) == effect_of(single, len(order))
    return outcomes


@pytest.mark.requirement("S26")
@many
@given(command=st.sampled_from(PUTS), order=interleaved)
def test_identical_puts_of_a_new_schedule_create_it_once(
    command: Command, order: list[Command | None]
) -> None:
    first, *rest = assert_one_effect(command, order, keys=OTHER_KEYS, is_paused=False, claimed=0)

    assert (first.status, first.version) == ("created", 1)
    assert {(each.status, each.version) for each in rest} <= {("unchanged", 1)}


@pytest.mark.requirement("S26")
@many
@given(
    command=st.sampled_from(CHANGES),
    order=interleaved,
    is_paused=st.booleans(),
    claimed=st.integers(0, 2),
)
def test_identical_commands_of_a_schedule_change_it_once(
    command: Command, order: list[Command | None], *, is_paused: bool, claimed: int
) -> None:
    options = {"keys": (KEY, *OTHER_KEYS), "is_paused": is_paused, "claimed": claimed}

    outcomes = assert_one_effect(command, order, **options)

    versions = {each.version for each in outcomes if each.error_code is None}
    assert len(versions) <= 1


@pytest.mark.requirement("S26")
def test_identical_put_changes_nothing_when_it_is_an_hour_late() -> None:
    unit = planned_unit(keys=OTHER_KEYS, is_paused=False, claimed=0)
    an_hour = int(timedelta(hours=1) / RESOLUTION)

    outcomes = [apply(unit, PUTS[1], at) for at in (0, an_hour)]

    assert [each.status for each in outcomes] == ["created", "unchanged"]
    assert len(unit.new_versions) == 1
