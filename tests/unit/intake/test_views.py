"""Tests of the views of rows: the next run, the tier of a waiting run, and the definition."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from harebell.contract.ids import RunKey
from harebell.intake.queries.views import (
    attempt_view,
    breaker_view,
    run_view,
    schedule_detail,
    schedule_view,
    version_list_view,
)

HOUR = timedelta(hours=1)
NOW = datetime(2026, 11, 20, 14, tzinfo=UTC)
ID = UUID("5f0c1a52-7d4f-5c1b-9d80-0d3c1c3f7a11")
DEFINITION = {"key": "daily", "when": {"every": "1h"}, "target": {"task": {"name": "report"}}}


def schedule_row(**columns: Any) -> dict[str, Any]:
    row = {
        "id": ID,
        "key": "daily",
        "tenant": "acme",
        "class": "normal",
        "priority": 5,
        "pool": "default",
        "state": "active",
        "version": 2,
        "next_at": NOW + 2 * HOUR,
        "stored_state": "active",
        "open_runs": [],
        "awaited_run": None,
        "pending_at": None,
        "skipped_times": [],
        "executions": 0,
        "failures": 0,
        "ended_executions": 0,
        "ended_failures": 0,
        "ended_times": None,
        "latest_scheduled_for": None,
        "latest_state": None,
        "created_at": NOW,
        "updated_at": NOW,
        "definition": DEFINITION,
    }
    return row | columns


def run_row(**columns: Any) -> dict[str, Any]:
    row = {
        "schedule_id": ID,
        "scheduled_for": NOW,
        "due_at": NOW,
        "state": "staged",
        "attempt": 0,
        "next_attempt_at": None,
        "staged_at": NOW - timedelta(minutes=1),
        "first_started_at": None,
        "pool": "default",
        "lane": "normal",
        "version": 1,
    }
    return row | columns


def test_next_run_of_a_schedule_is_its_first_open_run() -> None:
    row = schedule_row(open_runs=[NOW - HOUR, NOW + HOUR])

    assert schedule_view(row, now=NOW).next_at == NOW + HOUR


def test_schedule_has_no_next_run_when_the_ticker_reads_it_for_a_pending_version() -> None:
    row = schedule_row(pending_at=NOW + HOUR)

    assert schedule_view(row, now=NOW).next_at is None


def test_definition_has_its_defaults() -> None:
    detail = schedule_detail(schedule_row(), now=NOW)

    assert detail.class_ == "normal"
    assert detail.definition["timeout"] == "30s"


def test_definition_is_shown_as_stored_when_it_is_not_readable() -> None:
    unreadable = {"key": "daily", "when": {"moon": "full"}}

    detail = schedule_detail(schedule_row(definition=unreadable), now=NOW)

    assert detail.definition == unreadable


def test_waiting_run_has_the_tier_of_its_last_publish() -> None:
    staged = run_view(run_row())
    never_published = run_view(run_row(state="retrying", staged_at=None))
    ended = run_view(run_row(state="succeeded"))

    assert staged.run_id == str(RunKey(NOW, ID))
    assert (staged.tier, never_published.tier, ended.tier) == ("hot", "cold", None)
    assert staged.tier_reason == "The run waits in harebell.delay.057082."


def test_lateness_of_a_run_is_that_of_its_first_attempt() -> None:
    row = run_row(first_started_at=NOW + timedelta(milliseconds=1.5))

    assert run_view(row).late_ms == 1.5


def test_measured_duration_is_shown_in_tenths_of_a_millisecond() -> None:
    late = run_row(first_started_at=NOW + timedelta(microseconds=17_909))
    stored = {"number": 1, "finished_at": NOW, "outcome": "failed"}

    attempt = attempt_view({**stored, "duration_ms": 17.909000000000002})

    assert attempt.model_dump(mode="json")["duration_ms"] == 17.9
    assert run_view(late).model_dump(mode="json")["late_ms"] == 17.9


def test_version_list_marks_the_version_in_force() -> None:
    versions = [
        {
            "version": number,
            "accepted_at": NOW,
            "effective_at": NOW,
            "status": "active",
            "definition": DEFINITION,
        }
        for number in (2, 1)
    ]

    view = version_list_view(schedule_row(), versions)

    assert [(each.version, each.in_force) for each in view.versions] == [(2, True), (1, False)]


def test_effective_state_of_a_breaker_is_the_forced_state() -> None:
    row = {"downstream": "acme.example:443", "state": "closed", "forced": None}

    assert breaker_view(row).effective_state == "closed"
    assert breaker_view(row | {"forced": "open"}).effective_state == "open"
