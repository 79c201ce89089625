"""Patches: some fields change, the others stay, and what was reckoned from them stays too."""

from typing import Any

import pytest
from tests.fakes.schedules import ID, TASK
from tests.fakes.ticker import FakeTicker
from tests.fakes.tickets import NINE, after

from harebell.contract.errors import Conflict, InvalidInput, NotFound
from harebell.contract.ids import RunKey
from harebell.contract.responses import ScheduleResponse
from harebell.domain.run_states import RunState, ScheduleState
from harebell.ticker.commands.put_patch import merge_patch

EVERY = {"every": "30s", "start": "2026-11-20T09:00:00Z"}


@pytest.fixture
def ticking() -> FakeTicker:
    """Runs staged at nine, and every half minute."""
    ticking = FakeTicker(NINE)
    ticking.put(EVERY, tags=["a"], metadata={"x": 1, "y": 2}, retry={"max_attempts": 3})
    return ticking


def patched(ticking: FakeTicker, change: dict[str, Any], **more: Any) -> ScheduleResponse:
    answer = ticking.send("schedule.patch", set=change, **more)
    assert isinstance(answer, ScheduleResponse)
    return answer


@pytest.mark.parametrize(
    ("value", "change", "result"),
    [
        ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ({"a": 1}, {"a": 2}, {"a": 2}),
        ({"a": 1, "b": 2}, {"a": None}, {"b": 2}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": None, "d": 3}}, {"a": {"c": 2, "d": 3}}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": 1}, {"a": {"b": {"c": None}}}, {"a": {"b": {}}}),
        ({}, {"a": None}, {}),
        ([1], {"a": 1}, {"a": 1}),
    ],
)
def test_a_merge_patch_merges_objects_removes_nulls_and_replaces_the_rest(
    value: Any, change: Any, result: Any
) -> None:
    assert merge_patch(value, change) == result


@pytest.mark.requirement("S27")
def test_a_patch_changes_what_it_names_and_nothing_else(ticking: FakeTicker) -> None:
    answer = patched(ticking.wait(1), {"priority": 9, "metadata": {"y": None, "z": 3}})

    made = ticking.record.version.definition
    assert (answer.status, answer.version) == ("updated", 2)
    assert (made.priority, made.metadata, made.tags) == (9, {"x": 1, "z": 3}, ["a"])
    assert made.retry.max_attempts == 3


@pytest.mark.requirement("S27")
def test_null_takes_a_field_back_to_its_default(ticking: FakeTicker) -> None:
    patched(ticking.wait(1), {"retry": None, "tags": None})

    made = ticking.record.version.definition
    assert (made.retry.max_attempts, made.tags) == (5, [])


@pytest.mark.requirement("S27")
def test_a_patch_that_changes_nothing_makes_no_version(ticking: FakeTicker) -> None:
    before = ticking.stored_record

    answer = patched(ticking.wait(1), {"tags": ["a"]})

    assert (answer.status, answer.version) == ("unchanged", 1)
    assert ticking.stored_record == before


@pytest.mark.requirement("S23")
@pytest.mark.parametrize(
    ("change", "field", "code"),
    [
        ({"key": "other"}, "set.key", "invalid"),
        ({"priority": 11}, "set.priority", "invalid"),
        ({"retry": {"max_attempts": 0}}, "set.retry.max_attempts", "invalid"),
        ({"retry": {"tries": 2}}, "set.retry.tries", "unknown_field"),
        ({"when": {"every": "0s"}}, "set.when.every", None),
        ({"when": {"cron": "* * * * *"}}, "set.when", "invalid_when"),
        ({"target": None}, "set.target", "missing_field"),
    ],
)
def test_a_patch_that_makes_no_schedule_is_refused_and_names_the_field(
    ticking: FakeTicker, change: dict[str, Any], field: str, code: str | None
) -> None:
    before = ticking.stored_record

    with pytest.raises(InvalidInput) as refused:
        patched(ticking, change)

    assert refused.value.field == field
    assert code in (None, refused.value.code)
    assert ticking.stored_record == before


@pytest.mark.requirement("S27")
def test_a_patch_may_say_which_version_it_means(ticking: FakeTicker) -> None:
    assert patched(ticking.wait(1), {"priority": 6}, expected_version=1).version == 2

    with pytest.raises(Conflict) as refused:
        patched(ticking.wait(1), {"priority": 7}, expected_version=1)

    assert refused.value.field == "expected_version"


def test_what_is_not_there_cannot_be_patched() -> None:
    with pytest.raises(NotFound):
        patched(FakeTicker(NINE), {"priority": 6})


@pytest.mark.requirement("S05")
@pytest.mark.parametrize("when", [{"every": "30s"}, {"any_of": [{"every": "30s"}]}])
def test_a_patch_of_another_field_does_not_shift_the_rhythm(when: dict[str, Any]) -> None:
    ticking = FakeTicker(NINE)
    ticking.put(when)

    for step in range(1, 40):
        ticking.wait(7)
        ticking.run_due()
        patched(ticking, {"priority": 1 + step % 10})
        ticking.stage_all()

    ran = ticking.times_in(RunState.SUCCEEDED)
    assert ran == [after(30 * k) for k in range(1, 10)]


@pytest.mark.requirement("S05")
def test_a_patch_of_the_rhythm_itself_is_reckoned_from_its_acceptance() -> None:
    ticking = FakeTicker(NINE)
    ticking.put({"every": "30s"})

    patched(ticking.wait(7), {"when": {"every": "20s"}})

    assert ticking.staged_times == [after(27), after(47), after(67), after(87)]


@pytest.mark.requirement("S03")
def test_a_patch_of_another_field_does_not_put_off_a_delay() -> None:
    ticking = FakeTicker(NINE)
    ticking.put({"after": "60s"})

    patched(ticking.wait(20), {"priority": 9})

    assert ticking.staged_times == [after(60)]
    assert ticking.rows[RunKey(after(60), ID)].version == 2


@pytest.mark.requirement("S06")
def test_a_patch_of_another_field_does_not_run_a_finished_schedule_again() -> None:
    ticking = FakeTicker(NINE)
    ticking.put({**EVERY, "times": 2})
    for _ in range(5):
        ticking.run_due()
        ticking.wait(20).stage_all()

    patched(ticking, {"priority": 9})
    ticking.wait(600).stage_all()

    assert ticking.times_in(RunState.SUCCEEDED) == [NINE, after(30)]
    assert (ticking.staged_times, ticking.record.state) == ([], ScheduleState.COMPLETED)


@pytest.mark.requirement("S18")
def test_a_version_keeps_who_made_it_and_why(ticking: FakeTicker) -> None:
    patched(ticking.wait(1), {"target": TASK, "priority": 9}, note="more urgent")

    version = ticking.record.version
    assert (version.actor, version.note, version.accepted_at) == ("tester", "more urgent", after(1))


def test_another_kind_of_when_names_only_the_old_ones_key() -> None:
    ticking = FakeTicker(NINE)
    ticking.put({"every": "1h", "from": "schedule", "timezone": "UTC"})

    ticking.send(
        "schedule.patch", key="k", set={"when": {"every": None, "at": "2027-01-01T00:00:00Z"}}
    )

    assert ticking.record.version.definition.to_json()["when"] == {"at": "2027-01-01T00:00:00Z"}
