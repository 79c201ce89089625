"""What became of an instant, or what will: one answer for every instant of a schedule."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from harebell.contract.ids import schedule_id
from harebell.domain.run_states import Reason, RunState, ScheduleState
from harebell.intake.queries.schedule_history import ScheduleHistory
from harebell.intake.queries.why import Explanation, Verdict, explain

HOUR = timedelta(hours=1)
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
NOW = NOON + HOUR / 2
CREATED = NOON - timedelta(days=60)
ID: UUID = schedule_id("acme", "hourly")
TASK = {"task": {"name": "harebell.echo"}}
HOURLY = {"cron": "0 * * * *"}


def version(when: dict[str, Any], number: int = 1, since: datetime = CREATED) -> dict[str, Any]:
    definition = {"when": when, "target": TASK}
    return {
        "version": number, "definition": definition, "effective_at": since, "status": "active",
        "anchor_at": None,
    }  # fmt: skip


def story(
    when: dict[str, Any] | None = None, *others: dict[str, Any], **given: Any
) -> ScheduleHistory:
    schedule = {
        "id": ID, "key": "hourly", "version": 1 + len(others), "state": "active", "reason": None,
        "planned_until": NOON, "paused_until": None, "awaited_run": None, "skipped_times": [], "open_runs": [],
        "dispatched": 0, **given,
    }  # fmt: skip
    return ScheduleHistory.of(schedule, [version(when or HOURLY), *others])


def run(at: datetime, state: RunState, **given: Any) -> dict[str, Any]:
    return {
        "scheduled_for": at, "state": state, "reason": None, "version": 1, "attempt": 1,
        "due_at": at, "next_attempt_at": None, "range_until": None, "range_count": None, **given,
    }  # fmt: skip


def told(at: datetime | None, row: dict[str, Any] | None = None, **given: Any) -> Explanation:
    return explain(story(**given), at, row, now=NOW)


@pytest.mark.requirement("ASK-1")
@pytest.mark.parametrize(
    ("state", "verdict"),
    [
        (RunState.STAGED, Verdict.WILL_RUN),
        (RunState.RUNNING, Verdict.RAN),
        (RunState.RETRYING, Verdict.RAN),
        (RunState.SUCCEEDED, Verdict.RAN),
        (RunState.DEAD, Verdict.RAN),
        (RunState.UNRESOLVED, Verdict.RAN),
        (RunState.CANCELLED, Verdict.DID_NOT_RUN),
        (RunState.EXPIRED, Verdict.DID_NOT_RUN),
        (RunState.SKIPPED, Verdict.DID_NOT_RUN),
    ],
)
def test_what_is_on_record_decides_first(state: RunState, verdict: Verdict) -> None:
    found = told(NOON, run(NOON, state))

    assert found.verdict is verdict
    assert found.words


@pytest.mark.requirement("ASK-1")
@pytest.mark.parametrize("reason", Reason)
def test_every_reason_on_record_is_told_in_words(reason: Reason) -> None:
    found = told(NOON, run(NOON, RunState.SKIPPED, reason=reason.value))

    assert (found.verdict, found.code) == (Verdict.DID_NOT_RUN, reason)
    assert reason not in found.words.split()[:1]


def test_a_row_that_stands_for_many_says_for_which() -> None:
    first, last = NOON - 5 * HOUR, NOON - HOUR
    row = run(first, RunState.SKIPPED, reason="catch_up", range_until=last, range_count=5)

    found = told(NOON - 3 * HOUR, row)

    assert "5 instants from 2026-11-20T07:00:00Z to 2026-11-20T11:00:00Z" in found.words


def test_an_instant_that_is_not_of_the_timetable_has_neighbours() -> None:
    found = told(NOW)

    assert found.verdict is Verdict.NOT_DUE
    assert (found.before, found.behind) == (NOON, NOON + HOUR)


def test_the_version_in_force_then_is_the_one_that_counts() -> None:
    newer = version({"cron": "30 * * * *"}, 2, NOON - 2 * HOUR)

    old, new = (explain(story(HOURLY, newer), at, None, now=NOW) for at in (NOON - 3 * HOUR, NOON))

    assert (old.verdict, old.edition and old.edition.number) == (Verdict.NO_RECORD, 1)
    assert (new.verdict, new.edition and new.edition.number) == (Verdict.NOT_DUE, 2)


@pytest.mark.parametrize(
    ("at", "given", "verdict", "code"),
    [
        (NOON + HOUR, {}, Verdict.WILL_RUN, None),
        (NOON + HOUR, {"skipped_times": [NOON + HOUR]}, Verdict.WILL_NOT_RUN, Reason.MANUAL),
        (NOON + HOUR, {"state": "paused"}, Verdict.WILL_NOT_RUN, ScheduleState.PAUSED),
        (NOON + HOUR, {"state": "paused", "paused_until": NOON + HOUR}, Verdict.WILL_RUN, None),
        (NOON + HOUR, {"state": "held"}, Verdict.WILL_NOT_RUN, ScheduleState.BLOCKED),
        (NOON + HOUR, {"state": "cancelled"}, Verdict.WILL_NOT_RUN, ScheduleState.CANCELLED),
        (NOON + HOUR, {"state": "parked"}, Verdict.WILL_NOT_RUN, ScheduleState.ERRORED),
        (NOON + 2 * HOUR, {"when": {**HOURLY, "times": 3}, "dispatched": 2}, Verdict.WILL_NOT_RUN,
         ScheduleState.COMPLETED),
        (NOON + HOUR, {"when": {**HOURLY, "times": 3}, "dispatched": 2}, Verdict.WILL_RUN, None),
        (NOON, {}, Verdict.NO_RECORD, None),
        (NOON, {"planned_until": NOON - HOUR}, Verdict.NOT_PLANNED_YET, None),
        (NOON, {"planned_until": NOON - HOUR, "state": "paused"}, Verdict.DID_NOT_RUN,
         ScheduleState.PAUSED),
        (NOON, {"skipped_times": [NOON]}, Verdict.DID_NOT_RUN, Reason.MANUAL),
        (NOON - timedelta(days=31), {}, Verdict.NO_RECORD, None),
        (CREATED - HOUR, {}, Verdict.BEFORE_CREATION, None),
    ],
)  # fmt: skip
def test_without_a_record_the_timetable_and_the_state_say(
    at: datetime, given: dict[str, Any], verdict: Verdict, code: str | None
) -> None:
    found = told(at, **given)

    assert (found.verdict, found.code) == (verdict, code)


def test_the_note_of_who_paused_it_is_told() -> None:
    assert "(migration)" in told(NOON + HOUR, state="paused", reason="migration").words


def test_an_instant_of_a_schedule_that_follows_its_runs_is_only_on_record() -> None:
    when = {"every": "1h", "from": "completion"}

    assert told(NOON, when=when).verdict is Verdict.NOT_DUE
    assert story(when, awaiting=NOON).last_until(NOW) == NOON


def test_before_the_first_instant_there_is_none_to_tell_of() -> None:
    fresh = ScheduleHistory.of_terms(story().windows[0].policy, ID, now=NOW)

    assert fresh.last_until(NOW) is None
    assert explain(fresh, None, None, now=NOW).behind == NOON + HOUR


def test_the_last_instant_may_be_of_a_version_that_is_no_longer_in_force() -> None:
    newer = version({"cron": "0 0 1 1 *"}, 2, NOON + HOUR / 4)

    assert story(HOURLY, newer).last_until(NOW) == NOON
