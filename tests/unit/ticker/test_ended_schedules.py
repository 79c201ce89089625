"""Ended schedules: rejected puts, revivals, deletions and the key of a deleted schedule."""

from typing import Any

import pytest
from tests.fakes.audit import AuditedTicker
from tests.fakes.schedules import ID
from tests.fakes.ticker import FakeTicker
from tests.fakes.tickets import NINE, after

from harebell.contract.errors import Conflict, NotFound
from harebell.contract.ids import RunKey
from harebell.contract.responses import ScheduleResponse
from harebell.domain.run_states import RunState, ScheduleState
from harebell.ticker.commands.handlers import apply_command
from harebell.ticker.model.version import VersionStatus

EVERY = {"every": "30s", "start": "2026-11-20T09:00:00Z"}
ONCE = {"at": "2026-11-20T09:00:00Z"}
OTHER = {"task": {"name": "harebell.sleep"}}


def schedule_response(response: object) -> ScheduleResponse:
    assert isinstance(response, ScheduleResponse)
    return response


def cancelled() -> AuditedTicker:
    """Return a cancelled schedule whose first run has succeeded."""
    ticker = AuditedTicker(NINE)
    ticker.put(EVERY)
    ticker.run_due()
    ticker.wait(5).send("schedule.cancel")
    ticker.wait(1)
    return ticker


def completed(when: dict[str, Any] = ONCE) -> AuditedTicker:
    """Return a completed schedule whose only run has succeeded."""
    ticker = AuditedTicker(NINE)
    ticker.put(when)
    ticker.run_due()
    ticker.wait(5)
    return ticker


@pytest.mark.requirement("S26")
@pytest.mark.parametrize("ended", [cancelled, completed])
@pytest.mark.parametrize(
    "fields",
    [{}, {"target": OTHER}, {"expected_version": "any"}, {"expected_version": 1}],
    ids=["same body", "other body", "any version", "version 1"],
)
def test_put_of_an_ended_schedule_is_rejected_and_names_the_way_to_revive_it(
    ended: Any, fields: dict[str, Any]
) -> None:
    ticker = ended()
    when = EVERY if ended is cancelled else ONCE
    before = ticker.load_unit()

    with pytest.raises(Conflict) as error:
        ticker.put(when, **fields)

    assert (error.value.code, error.value.field) == ("schedule_ended", "key")
    assert "`revive`" in error.value.reason
    assert ticker.load_unit() == before


@pytest.mark.requirement("S26")
def test_put_of_a_one_shot_with_an_open_run_is_unchanged() -> None:
    ticker = FakeTicker(NINE)
    ticker.put(ONCE)
    ticker.claim(NINE, started=True)

    response = schedule_response(ticker.wait(5).put(ONCE))

    assert (response.status, ticker.record.state) == ("unchanged", ScheduleState.COMPLETED)


@pytest.mark.requirement("S27")
def test_revived_schedule_starts_like_a_new_one() -> None:
    ticker = cancelled()

    response = schedule_response(ticker.put({**EVERY, "times": 2}, revive=True))
    for _ in range(10):
        ticker.stage_all().run_due()
        ticker.wait(10)

    assert (response.status, response.version, response.state) == ("updated", 2, "active")
    assert response.next_at == [after(30), after(60)]
    assert ticker.times_in(RunState.SUCCEEDED) == [NINE, after(30), after(60)]
    assert ticker.version_statuses[2] == (VersionStatus.ACTIVE, None)
    assert ticker.findings() == []


@pytest.mark.requirement("S06")
def test_revived_schedule_counts_its_times_from_the_revival() -> None:
    when = {**EVERY, "times": 1}
    ticker = completed(when)

    ticker.put(when, revive=True)
    ticker.wait(30).stage_all().run_due()

    assert ticker.times_in(RunState.SUCCEEDED) == [NINE, after(30)]
    assert ticker.record.state is ScheduleState.COMPLETED
    assert ticker.findings() == []


@pytest.mark.requirement("S02")
def test_completed_one_shot_runs_again_only_at_another_time() -> None:
    ticker = completed()

    with pytest.raises(Conflict) as error:
        ticker.put(ONCE, target=OTHER, revive=True)
    ticker.wait(5).put({"now": True}, revive=True)

    assert (error.value.code, error.value.field) == ("schedule_ended", "when")
    assert ticker.staged_times == [after(10)]


def test_cancelled_one_shot_runs_after_its_revival() -> None:
    ticker = FakeTicker(after(-60))
    ticker.put(ONCE)
    ticker.send("schedule.cancel")

    ticker.wait(1).put(ONCE, revive=True)
    ticker.wait(59).run_due()

    assert ticker.times_in(RunState.SUCCEEDED) == [NINE]


@pytest.mark.requirement("S26")
def test_revival_without_a_scheduled_time_is_rejected_and_changes_nothing() -> None:
    ticker = completed({**EVERY, "end": "2026-11-20T09:00:00Z"})
    before = ticker.load_unit()

    with pytest.raises(Conflict) as error:
        ticker.put({**EVERY, "end": "2026-11-20T09:00:00Z"}, revive=True)

    assert (error.value.code, error.value.field) == ("schedule_ended", "when")
    assert ticker.load_unit() == before


def test_revive_has_no_effect_on_a_schedule_that_has_not_ended() -> None:
    ticker = FakeTicker(NINE)
    ticker.put(EVERY, revive=True)

    response = schedule_response(ticker.wait(1).put(EVERY, revive=True))
    with pytest.raises(Conflict) as error:
        ticker.put(EVERY, target=OTHER, revive=True)

    assert (response.status, error.value.code) == ("unchanged", "conflict")


@pytest.mark.requirement("S27")
def test_patch_of_an_ended_schedule_changes_its_other_fields_and_never_its_times() -> None:
    ticker = cancelled()

    changed = schedule_response(ticker.send("schedule.patch", set={"priority": 9}))
    with pytest.raises(Conflict) as times:
        ticker.wait(1).send("schedule.patch", set={"when": {"every": "1m"}})
    with pytest.raises(Conflict) as later:
        ticker.send("schedule.patch", set={"priority": 8}, effective_at=after(100))
    ticker.wait(600).stage_all()

    assert (changed.status, changed.version, changed.state) == ("updated", 2, "cancelled")
    assert (times.value.code, times.value.field) == ("schedule_ended", "set.when")
    assert (later.value.code, later.value.field) == ("schedule_ended", "effective_at")
    assert (ticker.staged_times, ticker.record.state) == ([], ScheduleState.CANCELLED)
    assert ticker.findings() == []


def test_patch_with_revive_starts_an_ended_schedule_again() -> None:
    ticker = completed()

    response = schedule_response(
        ticker.send("schedule.patch", set={"when": {"after": "20s"}}, revive=True)
    )
    ticker.wait(20).run_due()

    assert (response.status, response.next_at) == ("updated", [after(25)])
    assert ticker.times_in(RunState.SUCCEEDED) == [NINE, after(25)]


@pytest.mark.requirement("S34")
@pytest.mark.parametrize("ended", [cancelled, completed])
def test_delete_keeps_the_runs_and_the_versions_of_an_ended_schedule(ended: Any) -> None:
    ticker = ended()
    rows = dict(ticker.rows)

    response = schedule_response(ticker.send("schedule.delete", note="tidy"))

    assert (response.status, response.state, response.next_at) == ("deleted", "deleted", [])
    assert (ticker.rows, list(ticker.version_statuses)) == (rows, [1])
    assert (ticker.record.state, ticker.record.reason) == (ScheduleState.DELETED, "tidy")
    assert ticker.findings() == []


@pytest.mark.requirement("S33")
@pytest.mark.parametrize("verb", ["schedule.pause", "schedule.resume", None])
def test_delete_of_a_schedule_that_has_not_ended_is_rejected(verb: str | None) -> None:
    ticker = FakeTicker(NINE)
    ticker.put(EVERY)
    if verb is not None:
        ticker.wait(1).send(verb)
    before = ticker.load_unit()

    with pytest.raises(Conflict) as error:
        ticker.send("schedule.delete")

    assert (error.value.code, error.value.field) == ("not_ended", "key")
    assert "Cancel it first." in error.value.reason
    assert ticker.load_unit() == before


def test_delete_of_a_completed_schedule_is_rejected_while_its_run_is_open() -> None:
    ticker = FakeTicker(NINE)
    ticker.put(ONCE)

    with pytest.raises(Conflict):
        ticker.send("schedule.delete")


@pytest.mark.parametrize("verb", ["delete", "pause", "resume", "cancel", "trigger", "patch"])
def test_command_does_not_find_a_deleted_schedule(verb: str) -> None:
    ticker = cancelled()
    ticker.send("schedule.delete")

    with pytest.raises(NotFound):
        ticker.wait(1).send(
            f"schedule.{verb}", **({"set": {"priority": 9}} if verb == "patch" else {})
        )


@pytest.mark.requirement("S34")
def test_put_of_a_deleted_key_creates_a_schedule_with_the_next_version_number() -> None:
    ticker = cancelled()
    ticker.send("schedule.delete")
    first = ticker.rows[RunKey(NINE, ID)]

    response = schedule_response(ticker.wait(1).put({"every": "20s"}))
    ticker.wait(20).stage_all().run_due()

    assert (response.status, response.version, response.state) == ("created", 2, "active")
    assert ticker.times_in(RunState.SUCCEEDED) == [NINE, after(27)]
    assert ticker.rows[RunKey(NINE, ID)] == first
    assert ticker.findings() == []


def test_put_of_a_deleted_key_expects_no_version_and_no_run_of_the_same_time() -> None:
    ticker = completed()
    ticker.send("schedule.delete")
    ticker.wait(1)

    with pytest.raises(NotFound) as version:
        ticker.put(EVERY, expected_version=1)
    with pytest.raises(Conflict) as time:
        ticker.put(ONCE)

    assert version.value.field == "expected_version"
    assert (time.value.code, time.value.field) == ("schedule_ended", "when")


@pytest.mark.requirement("S107")
def test_unresolved_run_of_a_deleted_schedule_can_be_resolved() -> None:
    ticker = FakeTicker(NINE)
    ticker.put(EVERY)
    ticker.claim(NINE, started=True)
    ticker.wait(1).send("schedule.cancel")
    ticker.complete(NINE, RunState.UNRESOLVED)
    ticker.send("schedule.delete")

    ticker.wait(1).send("run.resolve", run_id=str(RunKey(NINE, ID)), **{"as": "succeeded"})

    assert ticker.times_in(RunState.SUCCEEDED) == [NINE]
    assert ticker.record.state is ScheduleState.DELETED


@pytest.mark.requirement("S26", "S28")
def test_revival_that_is_applied_late_does_not_precede_the_version_that_ended() -> None:
    """The order of the effective times is the order in which versions are in force."""
    ticker = AuditedTicker(NINE)
    ticker.put({"every": "30s", "start": "2026-11-20T09:00:00Z"})
    ticker.wait(1).put(
        {"at": "2026-11-20T09:00:20Z"}, effective_at=after(20), expected_version="any"
    )
    again = {"key": "k", "when": {"every": "4s", "times": 3}, "target": OTHER, "revive": True}
    context = ticker.context_of("schedule.put", {**again, "effective_at": after(15)})
    for _ in range(30):
        ticker.run_due()
        ticker.wait(1).stage_all()
    assert ticker.record.state is ScheduleState.COMPLETED

    unit = ticker.load_unit()
    apply_command(unit, context._replace(applied_at=ticker.now))
    ticker.save(unit)

    assert (ticker.record.version.number, ticker.record.version.since) == (3, after(20))
    assert min(ticker.staged_times) > after(20)
