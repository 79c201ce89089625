"""Patches: the changed fields, the unchanged fields and the anchor of the times."""

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
def ticker() -> FakeTicker:
    """Return a schedule with staged runs at nine and every half minute."""
    ticker = FakeTicker(NINE)
    ticker.put(EVERY, tags=["a"], metadata={"x": 1, "y": 2}, retry={"max_attempts": 3})
    return ticker


def patch(ticker: FakeTicker, change: dict[str, Any], **options: Any) -> ScheduleResponse:
    response = ticker.send("schedule.patch", set=change, **options)
    assert isinstance(response, ScheduleResponse)
    return response


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
def test_merge_patch_merges_objects_removes_nulls_and_replaces_other_values(
    value: Any, change: Any, result: Any
) -> None:
    assert merge_patch(value, change) == result


@pytest.mark.requirement("S27")
def test_patch_changes_only_the_fields_that_it_contains(ticker: FakeTicker) -> None:
    response = patch(ticker.wait(1), {"priority": 9, "metadata": {"y": None, "z": 3}})

    definition = ticker.record.version.definition
    assert (response.status, response.version) == ("updated", 2)
    assert (definition.priority, definition.metadata, definition.tags) == (
        9,
        {"x": 1, "z": 3},
        ["a"],
    )
    assert definition.retry.max_attempts == 3


@pytest.mark.requirement("S27")
def test_null_restores_the_default_of_a_field(ticker: FakeTicker) -> None:
    patch(ticker.wait(1), {"retry": None, "tags": None})

    definition = ticker.record.version.definition
    assert (definition.retry.max_attempts, definition.tags) == (5, [])


@pytest.mark.requirement("S27")
def test_patch_without_a_change_creates_no_version(ticker: FakeTicker) -> None:
    before = ticker.stored_record

    response = patch(ticker.wait(1), {"tags": ["a"]})

    assert (response.status, response.version) == ("unchanged", 1)
    assert ticker.stored_record == before


@pytest.mark.requirement("S23")
@pytest.mark.parametrize(
    ("change", "field", "code"),
    [
        ({"key": "other"}, "set.key", "invalid"),
        ({"priority": 11}, "set.priority", "invalid"),
        ({"retry": {"max_attempts": 0}}, "set.retry.max_attempts", "invalid"),
        ({"retry": {"tries": 2}}, "set.retry.tries", "unknown_field"),
        ({"when": {"every": "0s"}}, "set.when.every", None),
        ({"when": {"cron": "* * * * *", "now": True}}, "set.when", "invalid_when"),
        ({"target": None}, "set.target", "missing_field"),
    ],
)
def test_patch_to_an_invalid_schedule_is_rejected_with_the_field(
    ticker: FakeTicker, change: dict[str, Any], field: str, code: str | None
) -> None:
    before = ticker.stored_record

    with pytest.raises(InvalidInput) as error:
        patch(ticker, change)

    assert error.value.field == field
    assert code in (None, error.value.code)
    assert ticker.stored_record == before


@pytest.mark.requirement("S27")
def test_patch_rejects_an_old_expected_version(ticker: FakeTicker) -> None:
    assert patch(ticker.wait(1), {"priority": 6}, expected_version=1).version == 2

    with pytest.raises(Conflict) as error:
        patch(ticker.wait(1), {"priority": 7}, expected_version=1)

    assert error.value.field == "expected_version"


def test_patch_of_an_unknown_schedule_is_rejected() -> None:
    with pytest.raises(NotFound):
        patch(FakeTicker(NINE), {"priority": 6})


@pytest.mark.requirement("S05")
@pytest.mark.parametrize("when", [{"every": "30s"}, {"any_of": [{"every": "30s"}]}])
def test_patch_of_another_field_does_not_shift_the_times(when: dict[str, Any]) -> None:
    ticker = FakeTicker(NINE)
    ticker.put(when)

    for step in range(1, 40):
        ticker.wait(7)
        ticker.run_due()
        patch(ticker, {"priority": 1 + step % 10})
        ticker.stage_all()

    ran = ticker.times_in(RunState.SUCCEEDED)
    assert ran == [after(30 * k) for k in range(1, 10)]


@pytest.mark.requirement("S05")
def test_patch_of_the_interval_counts_from_its_acceptance() -> None:
    ticker = FakeTicker(NINE)
    ticker.put({"every": "30s"})

    patch(ticker.wait(7), {"when": {"every": "20s"}})

    assert ticker.staged_times == [after(27), after(47), after(67), after(87)]


@pytest.mark.requirement("S03")
def test_patch_of_another_field_does_not_extend_a_delay() -> None:
    ticker = FakeTicker(NINE)
    ticker.put({"after": "60s"})

    patch(ticker.wait(20), {"priority": 9})

    assert ticker.staged_times == [after(60)]
    assert ticker.rows[RunKey(after(60), ID)].version == 2


@pytest.mark.requirement("S06")
def test_patch_of_another_field_does_not_run_a_completed_schedule_again() -> None:
    ticker = FakeTicker(NINE)
    ticker.put({**EVERY, "times": 2})
    for _ in range(5):
        ticker.run_due()
        ticker.wait(20).stage_all()

    patch(ticker, {"priority": 9})
    ticker.wait(600).stage_all()

    assert ticker.times_in(RunState.SUCCEEDED) == [NINE, after(30)]
    assert (ticker.staged_times, ticker.record.state) == ([], ScheduleState.COMPLETED)


@pytest.mark.requirement("S18")
def test_version_records_its_actor_and_note(ticker: FakeTicker) -> None:
    patch(ticker.wait(1), {"target": TASK, "priority": 9}, note="more urgent")

    row = ticker.version_row(2)
    assert (row["actor"], row["note"], row["accepted_at"]) == ("tester", "more urgent", after(1))


def test_patch_to_another_kind_of_when_needs_only_null_for_the_old_key() -> None:
    ticker = FakeTicker(NINE)
    ticker.put({"every": "1h", "from": "schedule", "timezone": "UTC"})

    ticker.send(
        "schedule.patch", key="k", set={"when": {"every": None, "at": "2027-01-01T00:00:00Z"}}
    )

    assert ticker.record.version.definition.to_json()["when"] == {"at": "2027-01-01T00:00:00Z"}


@pytest.mark.requirement("S27")
@pytest.mark.parametrize(
    ("before", "change", "result"),
    [
        (
            {"every": "1h", "times": 3, "jitter": "5s", "phase": "spread"},
            {"cron": "0 9 * * *"},
            {"cron": "0 9 * * *", "times": 3, "jitter": "5s"},
        ),
        (
            {"cron": "0 9 * * *", "timezone": "Europe/Berlin", "dst_gap": "skip"},
            {"every": "2h"},
            {"every": "2h", "timezone": "Europe/Berlin"},
        ),
        (
            {"every": "1h", "from": "completion"},
            {"every": "2h"},
            {"every": "2h", "from": "completion"},
        ),
        (
            {"every": "1h", "times": 3},
            {"at": "2026-11-20T10:00:00Z"},
            {"at": "2026-11-20T10:00:00Z"},
        ),
        (
            {"at": "2026-11-20T10:00:00Z"},
            {"any_of": [{"cron": "0 9 * * *"}]},
            {"any_of": [{"cron": "0 9 * * *"}]},
        ),
        ({"every": "1h"}, {"every": None, "cron": "0 9 * * *"}, {"cron": "0 9 * * *"}),
        ({"every": "1h"}, {"times": 2}, {"every": "1h", "times": 2}),
    ],
    ids=[
        "every to cron",
        "cron to every",
        "same rule",
        "every to at",
        "at to any_of",
        "null",
        "no rule",
    ],
)
def test_rule_of_a_patch_replaces_the_former_rule(
    before: dict[str, Any], change: dict[str, Any], result: dict[str, Any]
) -> None:
    ticker = FakeTicker(NINE)
    ticker.put(before)

    patch(ticker.wait(1), {"when": change})

    assert ticker.record.version.definition.to_json()["when"] == result


@pytest.mark.parametrize(
    "change", [{"when": {"jitter": "30s"}}, {"when": {"jitter": "40s"}, "expires_after": "35s"}]
)
def test_patch_after_which_runs_would_expire_is_rejected(change: dict[str, Any]) -> None:
    ticker = FakeTicker(NINE)
    ticker.put({**EVERY, "jitter": "5s"}, expires_after="30s")

    with pytest.raises(InvalidInput) as failed:
        patch(ticker, change)

    assert (failed.value.code, failed.value.field) == ("invalid_expiry", "set.expires_after")
