"""Identical commands that come at once are one: however those of other schedules come between."""

from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes.schedules import HORIZON, TASK
from tests.fakes.tickets import NINE, after
from tests.simulation.expected_runs import TICK

from harebell.contract.commands import SCHEDULE_COMMANDS
from harebell.contract.errors import Rejected
from harebell.contract.ids import RunKey, schedule_id
from harebell.contract.types import instant_text
from harebell.domain.run_states import NewRun, RunState
from harebell.ticker.commands.handlers import CommandContext, apply_command
from harebell.ticker.model import planning
from harebell.ticker.model.unit_of_work import LockedRun, ScheduleRecord, UnitOfWork

TENANT = "default"
SAME, OTHERS = "same", ("one", "two", "three")
EARLIER = after(-10)

Command = tuple[str, dict[str, Any]]  # its verb, its body


def body(key: str, when: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"key": key, "when": when, "target": TASK, **more}


RHYTHM = {"every": "20s", "start": instant_text(NINE)}
WHENS: list[dict[str, Any]] = [
    RHYTHM,
    {"after": "15s"},
    {"cron": "*/5 * * * *", "jitter": "30s"},
    {"now": True},
]
NEW = [("schedule.put", body(SAME, when)) for when in WHENS]
OF_ONE_THAT_IS: list[Command] = [
    ("schedule.put", body(SAME, RHYTHM)),
    *(("schedule.put", body(SAME, when, priority=9, expected_version=1)) for when in WHENS),
    ("schedule.put", body(SAME, RHYTHM, priority=9)),
    ("schedule.put", body(SAME, {"every": "7s"}, priority=9, effective_at="2026-11-20T09:00:30Z")),
    ("schedule.patch", {"key": SAME, "set": {"priority": 9}}),
    ("schedule.patch", {"key": SAME, "set": {"when": {"every": "7s"}}}),
    ("schedule.pause", {"key": SAME, "until": "2026-11-20T09:10:00Z"}),
    *((f"schedule.{verb}", {"key": SAME}) for verb in ("pause", "resume", "cancel")),
    ("schedule.skip", {"key": SAME, "at": "2026-11-20T09:00:20Z"}),
    ("schedule.skip", {"key": SAME, "at": "2026-11-20T09:20:00Z"}),
]
others = st.one_of(
    st.builds(
        lambda key, verb: (f"schedule.{verb}", {"key": key}),
        st.sampled_from(OTHERS),
        st.sampled_from(["pause", "resume", "cancel", "trigger"]),
    ),
    st.builds(
        lambda key, when: ("schedule.put", body(key, when, expected_version="any")),
        st.sampled_from(OTHERS),
        st.sampled_from(WHENS),
    ),
)
interleaved = st.lists(st.one_of(st.none(), others), min_size=1, max_size=20)  # None: the same
many = settings(max_examples=200, deadline=None)


@dataclass(frozen=True)
class Told:
    """Of one command: its refusal, or what it was answered."""

    code: str | None
    status: str | None = None
    version: int | None = None


def do(book: UnitOfWork, command: Command, at: int) -> Told:
    """`at`: milliseconds after nine."""
    verb, fields_ = command
    asked = CommandContext(
        TENANT,
        SCHEDULE_COMMANDS[verb].model_validate(fields_),
        schedule_id(TENANT, fields_["key"]),
        NINE + at * TICK,
        "tester",
    )
    try:
        answer = apply_command(book, asked)
    except Rejected as error:
        return Told(error.code)
    return Told(None, answer.status, getattr(answer, "version", None))


def standing(keys: tuple[str, ...], *, paused: bool, claimed: int) -> UnitOfWork:
    """Schedules that have been handed over; of the first, executors hold so many runs."""
    book, ago = UnitOfWork(), -int((NINE - EARLIER) / TICK)
    for key in keys:
        do(book, ("schedule.put", body(key, RHYTHM)), ago)
    entries: dict[UUID, ScheduleRecord] = {}
    runs: dict[RunKey, LockedRun] = {}
    for entry in book.schedules.values():
        made = planning.plan_schedule(entry, EARLIER, EARLIER + HORIZON)
        entries[entry.id] = planning.with_staged_runs(
            made, {run.key for run in made.to_stage}, set()
        )
        runs |= {run.key: opened(run) for run in made.to_stage}
    runs |= {name: held(runs[name]) for name in list(runs)[:claimed]}
    book = UnitOfWork(schedules=entries, open_runs=runs)
    if paused:
        do(book, ("schedule.pause", {"key": keys[0]}), -1)
    return book


def held(run: LockedRun) -> LockedRun:
    return replace(run, state=RunState.RUNNING, attempt=1, seq=2, lease_holder="executor-1")


def opened(run: NewRun) -> LockedRun:
    state = RunState.STAGED
    return LockedRun(
        key=run.key,
        state=state,
        attempt=0,
        seq=1,
        due_at=run.due_at,
        version=1,
        lease_holder=None,
        is_from_recurrence=True,
        has_started=False,
    )


def effect(book: UnitOfWork, now: int) -> dict[str, Any]:
    """All that is written, but for when the last change was heard of; and what is owed next."""
    found = {each.name: getattr(book, each.name) for each in fields(book)}
    entries = {id_: entry._replace(changed_at=NINE) for id_, entry in book.schedules.items()}
    moment = NINE + now * TICK
    advances = [planning.plan_if_due(entry, moment, moment + HORIZON) for entry in entries.values()]
    owed = [(each.to_stage, each.skipped, each.version_statuses) for each in advances]
    return found | {"schedules": entries, "owed": owed}


def assert_one_effect(command: Command, order: list[Command | None], **of: Any) -> list[Told]:
    """What the repeats were told."""
    repeated, once = standing(**of), standing(**of)
    told: list[Told] = []
    for at, other in enumerate([*order, None]):
        if other is not None:
            assert do(repeated, other, at) == do(once, other, at)
            continue
        told.append(do(repeated, command, at))
        if len(told) == 1:
            assert do(once, command, at) == told[0]
    assert effect(repeated, len(order)) == effect(once, len(order))
    return told


@pytest.mark.requirement("S26")
@many
@given(command=st.sampled_from(NEW), order=interleaved)
def test_identical_puts_of_a_new_schedule_make_it_once(
    command: Command, order: list[Command | None]
) -> None:
    first, *rest = assert_one_effect(command, order, keys=OTHERS, paused=False, claimed=0)

    assert (first.status, first.version) == ("created", 1)
    assert {(told.status, told.version) for told in rest} <= {("unchanged", 1)}


@pytest.mark.requirement("S26")
@many
@given(
    command=st.sampled_from(OF_ONE_THAT_IS),
    order=interleaved,
    paused=st.booleans(),
    claimed=st.integers(0, 2),
)
def test_identical_commands_to_a_schedule_change_it_once(
    command: Command, order: list[Command | None], *, paused: bool, claimed: int
) -> None:
    of = {"keys": (SAME, *OTHERS), "paused": paused, "claimed": claimed}

    told = assert_one_effect(command, order, **of)

    versions = {each.version for each in told if each.code is None}
    assert len(versions) <= 1


@pytest.mark.requirement("S26")
def test_the_same_at_another_time_of_the_clock_is_the_same() -> None:
    """A repeat that is held up for an hour finds what the first one made."""
    book = standing(keys=OTHERS, paused=False, claimed=0)
    late = int(timedelta(hours=1) / TICK)

    told = [do(book, NEW[1], at) for at in (0, late)]

    assert [each.status for each in told] == ["created", "unchanged"]
    assert len(book.new_versions) == 1
