"""Progress: its fields, the age of a stale report, its text and the limit of its events."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from tests.fakes.tickets import NINE, ticket

from harebell.contract.errors import InvalidInput
from harebell.contract.ids import RunKey
from harebell.contract.message import parse
from harebell.contract.progress import Progress, ascii_json
from harebell.domain.progress import (
    EVENT_INTERVAL,
    MAX_REMEMBERED_RUNS,
    ProgressEventLimit,
    is_stale,
    progress_text,
)
from harebell.executor.tasks import TaskContext

pytestmark = pytest.mark.requirement("S71")
SECOND = timedelta(seconds=1)


def context(reports: list[Any] | None) -> TaskContext:
    return TaskContext(
        run_id=ticket().run_id,
        attempt=1,
        fencing_token=7,
        scheduled_for=NINE,
        deadline=0.0,
        report=None if reports is None else reports.append,
    )


@pytest.mark.parametrize(
    ("fields", "field", "code"),
    [
        ({"percent": -0.1}, "percent", "invalid"),
        ({"percent": 100.5}, "percent", "invalid"),
        ({"message": "x" * 257}, "message", "invalid"),
        ({"checkpoint": "x" * 4095}, "checkpoint", "too_large"),
        ({"checkpoint": "\u00e9" * 700}, "checkpoint", "too_large"),  # six bytes in a header
        ({"checkpoint": "a\x00b"}, "checkpoint", "nul_character"),
    ],
)
def test_invalid_progress_names_its_field(fields: dict[str, Any], field: str, code: str) -> None:
    with pytest.raises(InvalidInput) as failed:
        context([]).progress(**fields)

    assert (failed.value.field, failed.value.code) == (field, code)


def test_task_reports_only_the_given_fields() -> None:
    reports: list[Any] = []

    context(reports).progress(0)
    context(reports).progress(100, "all", {"page": 3})
    context(None).progress(50)

    assert reports == [
        {"percent": 0.0},
        {"percent": 100.0, "message": "all", "checkpoint": {"page": 3}},
    ]


def test_checkpoint_of_4_kib_is_accepted_and_fits_into_a_header() -> None:
    checkpoint = parse(Progress, {"checkpoint": "x" * 4094}).checkpoint

    assert len(ascii_json(checkpoint)) == 4096
    assert ascii_json(["\u00e9", "\n"]).isprintable()


@pytest.mark.parametrize(
    ("reported", "started", "lease", "expected"),
    [
        (-59, -100, 15, False),
        (-61, -100, 15, True),
        (-119, -200, 60, False),  # a worker with a longer lease reports less often
        (-121, -200, 60, True),
        (-30, -10, 15, True),  # of an earlier attempt
        (-30, None, 15, False),
    ],
)
def test_report_is_stale_after_a_minute_two_leases_or_with_an_earlier_attempt(
    reported: int, started: int | None, lease: int, *, expected: bool
) -> None:
    started_at = None if started is None else NINE + started * SECOND

    stale = is_stale(
        NINE + reported * SECOND, started_at=started_at, lease=lease * SECOND, now=NINE
    )

    assert stale is expected


@pytest.mark.parametrize(
    ("progress", "stale_for", "text"),
    [
        ({"percent": 42.0, "message": "3 of 7"}, None, "42 %: 3 of 7"),
        ({"percent": 42.5}, None, "42.5 %"),
        ({"message": "3 of 7"}, 90 * SECOND, "3 of 7 (stale, reported 90 s ago)"),
        ({"checkpoint": 1}, None, "a checkpoint"),
    ],
)
def test_text_contains_percent_message_and_age(
    progress: dict[str, Any], stale_for: timedelta | None, text: str
) -> None:
    assert progress_text(progress, stale_for=stale_for) == text


def test_run_has_at_most_one_event_in_an_interval() -> None:
    limit, run = ProgressEventLimit(), ticket().run_key

    admitted = [limit.admits("acme", run, second / 2) for second in range(41)]

    assert admitted.count(True) == 3
    assert [admitted[0], admitted[1], admitted[20], admitted[40]] == [True, False, True, True]
    assert EVENT_INTERVAL == 10


def test_tenant_has_a_budget_of_events_and_the_limit_a_bounded_memory() -> None:
    limit = ProgressEventLimit()
    runs = [RunKey(NINE, UUID(int=number)) for number in range(MAX_REMEMBERED_RUNS + 2)]

    first = sum(limit.admits("acme", run, 0.0) for run in runs)
    assert first == 2_000  # the burst of one tenant
    assert limit.admits("umbrella", runs[0], 60.0)
    for number, run in enumerate(runs):
        limit.admits(f"tenant-{number % 100}", run, 120.0)
    assert limit.admits("acme", runs[0], 121.0)  # the oldest run is no longer remembered
