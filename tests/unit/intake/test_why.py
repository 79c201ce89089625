"""Tests of the explanation of a scheduled time: one verdict for each time of a schedule."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from harebell.contract.errors import TooExpensive
from harebell.contract.ids import RunKey, schedule_id
from harebell.domain.reason_text import REASON_TEXT
from harebell.domain.recurrence import spend_freely
from harebell.domain.run_states import Reason, RunState, ScheduleState
from harebell.intake.queries.schedule_history import ScheduleHistory, next_planned_time
from harebell.intake.queries.why import (
    MAX_NAMED_HOLDERS,
    Explanation,
    OccupiedLabel,
    RemovedHistory,
    Verdict,
    explain,
    preview_view,
)

HOUR = timedelta(hours=1)
MAX_SEARCHES = 30
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
NOW = NOON + HOUR / 2
CREATED = NOON - timedelta(days=60)
ID: UUID = schedule_id("acme", "hourly")
TASK = {"task": {"name": "harebell.echo"}}
HOURLY = {"cron": "0 * * * *"}
THREE_TIMES = {**HOURLY, "times": 3}


def version(when: dict[str, Any], number: int = 1, since: datetime = CREATED) -> dict[str, Any]:
    return {
        "version": number,
        "definition": {"when": when, "target": TASK},
        "effective_at": since,
        "status": "active",
        "anchor_at": None,
    }


SCHEDULE = {
    "id": ID,
    "key": "hourly",
    "version": 1,
    "state": "active",
    "reason": None,
    "planned_until": NOON,
    "paused_until": None,
    "awaited_run": None,
    "skipped_times": [],
    "open_runs": [],
    "dispatched": 0,
}


def history(
    when: dict[str, Any] | None = None, *later_versions: dict[str, Any], **columns: Any
) -> ScheduleHistory:
    schedule = {**SCHEDULE, "version": 1 + len(later_versions), **columns}
    return ScheduleHistory.from_rows(schedule, [version(when or HOURLY), *later_versions])


def run(at: datetime, state: RunState, **columns: Any) -> dict[str, Any]:
    return {
        "scheduled_for": at,
        "state": state,
        "reason": None,
        "version": 1,
        "attempt": 1,
        "due_at": at,
        "next_attempt_at": None,
        "range_until": None,
        "range_count": None,
        **columns,
    }


def attempt(error_code: str | None = "http_503", error: str | None = "busy") -> dict[str, Any]:
    return {"error_code": error_code, "error": error}


def explained(
    at: datetime | None,
    row: dict[str, Any] | None = None,
    *,
    attempts: Sequence[dict[str, Any]] = (),
    **columns: Any,
) -> Explanation:
    return explain(history(**columns), at, row, now=NOW, attempts=attempts)


@pytest.mark.requirement("ASK-1")
@pytest.mark.parametrize(
    ("state", "verdict"),
    [
        (RunState.STAGED, Verdict.WILL_RUN),
        (RunState.RUNNING, Verdict.RUNNING),
        (RunState.RETRYING, Verdict.RETRYING),
        (RunState.SUCCEEDED, Verdict.RAN),
        (RunState.DEAD, Verdict.FAILED),
        (RunState.UNRESOLVED, Verdict.UNKNOWN_OUTCOME),
        (RunState.CANCELLED, Verdict.DID_NOT_RUN),
        (RunState.EXPIRED, Verdict.DID_NOT_RUN),
        (RunState.SKIPPED, Verdict.DID_NOT_RUN),
    ],
)
def test_row_of_the_ledger_decides_first(state: RunState, verdict: Verdict) -> None:
    explanation = explained(NOON, run(NOON, state))

    assert explanation.verdict is verdict
    assert explanation.text.endswith(".")


@pytest.mark.requirement("ASK-1")
@pytest.mark.parametrize(
    ("state", "reason", "verdict"),
    [
        (RunState.EXPIRED, Reason.EXPIRED, Verdict.FAILED),
        (RunState.CANCELLED, Reason.CANCELLED, Verdict.STOPPED),
        (RunState.CANCELLED, Reason.REPLACED, Verdict.STOPPED),
        (RunState.SKIPPED, Reason.UNKNOWN_OUTCOME, Verdict.UNKNOWN_OUTCOME),
        (RunState.SKIPPED, Reason.MANUAL, Verdict.UNKNOWN_OUTCOME),
    ],
)
def test_run_with_an_attempt_is_no_run_that_did_not_run(
    state: RunState, reason: Reason, verdict: Verdict
) -> None:
    row = run(NOON, state, reason=reason.value)

    with_attempt = explained(NOON, row, attempts=[attempt()])
    without_attempt = explained(NOON, row)

    assert (with_attempt.verdict, with_attempt.reason) == (verdict, reason)
    assert with_attempt.text.endswith(".")
    assert with_attempt.text != without_attempt.text
    assert without_attempt.verdict is Verdict.DID_NOT_RUN


def test_attempt_that_expired_before_its_call_is_no_attempt_of_the_target() -> None:
    row = run(NOON, RunState.EXPIRED, reason="expired")

    only = explained(NOON, row, attempts=[attempt("expired", "The expiry time has passed.")])
    second = explained(NOON, row, attempts=[attempt(), attempt("expired")])

    assert only.verdict is Verdict.DID_NOT_RUN
    assert second.verdict is Verdict.FAILED
    assert second.text.endswith("The last error is http_503 ('busy').")


@pytest.mark.requirement("ASK-1")
@pytest.mark.parametrize("state", [RunState.DEAD, RunState.RETRYING, RunState.EXPIRED])
def test_explanation_of_a_failure_has_the_last_error(state: RunState) -> None:
    attempts = [attempt(), attempt("timeout", "The attempt did not end within 30 s.")]

    text = explained(NOON, run(NOON, state, attempt=2), attempts=attempts).text

    assert text.endswith("The last error is timeout ('The attempt did not end within 30 s.').")


def test_run_that_a_person_resolved_as_succeeded_ran() -> None:
    explanation = explained(NOON, run(NOON, RunState.SUCCEEDED, reason="manual"))

    assert explanation.verdict is Verdict.RAN
    assert "person" in explanation.text


@pytest.mark.requirement("ASK-1")
@pytest.mark.parametrize("reason", Reason)
def test_explanation_has_the_text_of_each_reason(reason: Reason) -> None:
    explanation = explained(NOON, run(NOON, RunState.SKIPPED, reason=reason.value))

    assert (explanation.verdict, explanation.reason) == (Verdict.DID_NOT_RUN, reason)
    assert explanation.text == REASON_TEXT[reason]


@pytest.mark.requirement("S113", "ASK-1")
@pytest.mark.parametrize(
    ("failed_probes", "text"),
    [
        (None, ""),
        (1, " One attempt was a failed probe of a circuit breaker and did not count."),
        (3, " 3 attempts were failed probes of a circuit breaker and did not count."),
    ],
)
def test_explanation_names_the_attempts_that_did_not_count(
    failed_probes: int | None, text: str
) -> None:
    row = run(NOON, RunState.SUCCEEDED, attempt=4, failed_probes=failed_probes)

    assert explained(NOON, row).text == f"The run succeeded at attempt 4.{text}"


def test_explanation_of_a_range_names_its_scheduled_times() -> None:
    first, last = NOON - 5 * HOUR, NOON - HOUR
    row = run(first, RunState.SKIPPED, reason="missed", range_until=last, range_count=5)

    explanation = explained(NOON - 3 * HOUR, row)

    expected = "5 scheduled times from 2026-11-20T07:00:00Z to 2026-11-20T11:00:00Z"
    assert expected in explanation.text


def test_time_outside_the_recurrence_has_its_neighbours() -> None:
    explanation = explained(NOW)

    assert explanation.verdict is Verdict.NOT_DUE
    assert (explanation.before, explanation.after) == (NOON, NOON + HOUR)


@pytest.mark.requirement("S118")
@pytest.mark.parametrize("at", [NOON, NOON + HOUR / 2])
def test_removed_history_is_not_a_missing_run(at: datetime) -> None:
    removed = RemovedHistory(NOON + HOUR, timedelta(days=30))

    explanation = explain(history(), at, None, now=NOW, removed=removed)

    assert (explanation.verdict, explanation.reason) == (Verdict.NO_RECORD, "history_removed")
    assert "removed at the age of 30d" in explanation.text


def test_removed_history_does_not_concern_later_times() -> None:
    removed = RemovedHistory(NOON, timedelta(days=30))

    assert explain(history(), NOON, None, now=NOW, removed=removed) == explained(NOON)


def test_version_in_force_at_the_time_decides() -> None:
    schedule = history(HOURLY, version({"cron": "30 * * * *"}, 2, NOON - 2 * HOUR))

    old = explain(schedule, NOON - 3 * HOUR, None, now=NOW)
    new = explain(schedule, NOON, None, now=NOW)

    assert (old.verdict, old.window and old.window.number) == (Verdict.NO_RECORD, 1)
    assert (new.verdict, new.window and new.window.number) == (Verdict.NOT_DUE, 2)


@pytest.mark.parametrize(
    ("at", "columns", "verdict", "reason"),
    [
        (NOON + HOUR, {}, Verdict.WILL_RUN, None),
        (NOON + HOUR, {"skipped_times": [NOON + HOUR]}, Verdict.WILL_NOT_RUN, Reason.MANUAL),
        (NOON + HOUR, {"state": "paused"}, Verdict.WILL_NOT_RUN, ScheduleState.PAUSED),
        (NOON + HOUR, {"state": "paused", "paused_until": NOON + HOUR}, Verdict.WILL_RUN, None),
        (NOON + HOUR, {"state": "blocked"}, Verdict.WILL_NOT_RUN, ScheduleState.BLOCKED),
        (NOON + HOUR, {"state": "cancelled"}, Verdict.WILL_NOT_RUN, ScheduleState.CANCELLED),
        (NOON + HOUR, {"state": "errored"}, Verdict.WILL_NOT_RUN, ScheduleState.ERRORED),
        (
            NOON + 2 * HOUR,
            {"when": THREE_TIMES, "dispatched": 2},
            Verdict.WILL_NOT_RUN,
            ScheduleState.COMPLETED,
        ),
        (NOON + HOUR, {"when": THREE_TIMES, "dispatched": 2}, Verdict.WILL_RUN, None),
        (NOON, {}, Verdict.NO_RECORD, None),
        (NOON, {"planned_until": NOON - HOUR}, Verdict.NOT_PLANNED_YET, None),
        (
            NOON,
            {"planned_until": NOON - HOUR, "state": "paused"},
            Verdict.DID_NOT_RUN,
            ScheduleState.PAUSED,
        ),
        (NOON, {"skipped_times": [NOON]}, Verdict.DID_NOT_RUN, Reason.MANUAL),
        (NOON - timedelta(days=31), {}, Verdict.NO_RECORD, None),
        (CREATED - HOUR, {}, Verdict.BEFORE_CREATION, None),
    ],
)
def test_recurrence_and_state_decide_when_the_ledger_has_no_row(
    at: datetime, columns: dict[str, Any], verdict: Verdict, reason: str | None
) -> None:
    explanation = explained(at, **columns)

    assert (explanation.verdict, explanation.reason) == (verdict, reason)


def test_explanation_contains_the_note_of_the_pause() -> None:
    assert "migration" in explained(NOON + HOUR, state="paused", reason="migration").text


@pytest.mark.requirement("P6")
def test_each_search_of_a_preview_and_of_an_explanation_counts() -> None:
    """The 24 times of a day need 24 searches, and the last time up to now a binary search."""
    searches: list[None] = []

    def spend() -> None:
        searches.append(None)
        if len(searches) > MAX_SEARCHES:
            raise TooExpensive("The search must end.")

    bounded = history().bounded_by(spend)

    assert len(preview_view(bounded, NOW, 24).instants) == 24
    assert 24 <= len(searches) <= MAX_SEARCHES
    with pytest.raises(TooExpensive):
        bounded.last_time_until(NOW)


@pytest.mark.requirement("P6")
def test_list_omits_a_next_time_that_costs_too_much() -> None:
    def spend() -> None:
        raise TooExpensive("The search must end.")

    assert next_planned_time(SCHEDULE, [version(HOURLY)], spend) is None
    assert next_planned_time(SCHEDULE, [version(HOURLY)], spend_freely) == NOON + HOUR


def test_time_of_a_recurrence_from_completion_is_not_due_without_a_row() -> None:
    when = {"every": "1h", "from": "completion"}

    assert explained(NOON, when=when).verdict is Verdict.NOT_DUE
    assert history(when, awaited_run=NOON).last_time_until(NOW) == NOON


def test_new_schedule_has_no_last_time_and_a_first_time() -> None:
    policy = history().windows[0].policy
    new = ScheduleHistory.from_policy(policy, ID, now=NOW)

    assert new.last_time_until(NOW) is None
    assert explain(new, None, None, now=NOW).after == NOON + HOUR


def test_last_time_may_belong_to_an_earlier_version() -> None:
    newer = version({"cron": "0 0 1 1 *"}, 2, NOON + HOUR / 4)

    assert history(HOURLY, newer).last_time_until(NOW) == NOON


@pytest.mark.requirement("ASK-13")
@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, "The query found no running run of the label."),
        (1, f"These running runs have its slots: {ID}@20261120T120000000Z."),
    ],
)
def test_waiting_run_names_its_label_its_limit_and_the_runs_with_slots(
    count: int, expected: str
) -> None:
    label = OccupiedLabel(name="db-7", limit=3, holders=(RunKey(NOON, ID),) * count)
    row = run(NOON, RunState.STAGED, reason=Reason.WAITING_FOR_LABEL.value)

    explanation = explain(history(), NOON, row, now=NOW, label=label)

    assert explanation.text == (
        f"{REASON_TEXT[Reason.WAITING_FOR_LABEL]} "
        f"The concurrency label is db-7 with the limit 3. {expected}"
    )


@pytest.mark.requirement("ASK-13")
def test_waiting_run_names_a_bounded_number_of_runs_with_slots() -> None:
    holders = tuple(RunKey(NOON + n * HOUR, ID) for n in range(MAX_NAMED_HOLDERS + 1))

    text = OccupiedLabel(name="db-7", limit=20, holders=holders).text

    assert str(holders[-2]) in text
    assert str(holders[-1]) not in text
    assert text.endswith(" and others.")
