"""The wait of a replay job: its code, its sentences and its times."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from harebell.contract.views import ReplayJobWait
from harebell.dlq_inspector.model.replay_job import MAX_UNFINISHED, ReplayJob, ReplayJobState
from harebell.dlq_inspector.model.replay_wait import StoredBreaker, wait_of

NOW = datetime(2026, 11, 21, 9, tzinfo=UTC)
JOB = ReplayJob(
    id=UUID(int=1), tenant="acme", state=ReplayJobState.RUNNING, total=50, next_allowed_at=NOW
)
CANARY = replace(JOB, canary=5, taken=5, replayed=5)
API = "api.example:443"
PAUSED = "The replay job is paused until a person resumes it."
OPEN = StoredBreaker(state="open", next_probe_at=NOW + timedelta(seconds=35))


def wait(
    job: ReplayJob,
    breakers: Mapping[str, StoredBreaker] | None = None,
    waiting_runs: Mapping[str, int] | None = None,
) -> ReplayJobWait | None:
    return wait_of(job, NOW, waiting_runs=waiting_runs or {}, breakers=breakers or {})


@pytest.mark.requirement("S113", "ASK-2")
def test_canary_waits_for_an_open_breaker_with_the_time_of_its_next_probe() -> None:
    assert wait(CANARY, {API: OPEN}, {API: 5}) == ReplayJobWait(
        code="breaker",
        text="The canary waits for 5 runs that the open circuit breaker of api.example:443 "
        "defers. The next probe is at 09:00:35 UTC.",
        downstream=API,
        next_probe_at=NOW + timedelta(seconds=35),
    )


@pytest.mark.requirement("S113")
def test_job_names_the_breaker_that_defers_most_of_its_runs() -> None:
    last = replace(JOB, taken=50, replayed=50, succeeded=47)

    found = wait(last, {API: OPEN, "task:a": OPEN}, {API: 1, "task:a": 2, "task:closed": 9})

    assert found is not None
    assert (found.code, found.downstream) == ("breaker", "task:a")


@pytest.mark.parametrize(
    ("breaker", "end", "until"),
    [
        (
            StoredBreaker(state="closed", forced="open"),
            "A person forced the breaker open until a person resets it.",
            None,
        ),
        (
            replace(OPEN, forced="open", forced_until=NOW + timedelta(days=1)),
            "A person forced the breaker open until 2026-11-22 09:00:00 UTC.",
            NOW + timedelta(days=1),
        ),
        (
            StoredBreaker(state="half_open"),
            "The next run that arrives at a dispatcher may be a probe.",
            None,
        ),
        (
            replace(OPEN, next_probe_at=NOW),
            "The next run that arrives at a dispatcher may be a probe.",
            None,
        ),
        (
            replace(OPEN, forced="closed", forced_until=NOW),  # the forced state has ended
            "The next probe is at 09:00:35 UTC.",
            None,
        ),
    ],
)
def test_wait_for_a_breaker_ends_with_its_next_event(
    breaker: StoredBreaker, end: str, until: datetime | None
) -> None:
    found = wait(CANARY, {API: breaker}, {API: 1})

    assert found is not None
    assert (found.code, found.until) == ("breaker", until)
    assert "waits for 1 run that the" in found.text
    assert found.text.endswith(end)


@pytest.mark.requirement("ASK-2")
@pytest.mark.parametrize(
    ("job", "code", "text"),
    [
        (CANARY, "canary", "The canary waits for the end of 5 runs, of 5 replayed."),
        (
            replace(JOB, total=5_000, taken=1_010, replayed=1_005, succeeded=5),
            "unfinished_runs",
            f"The replay job waits for the end of {MAX_UNFINISHED} runs, of 1005 replayed.",
        ),
        (
            replace(JOB, taken=50, replayed=49, failed=48),
            "unfinished_runs",
            "The replay job waits for the end of 1 run, of 49 replayed.",
        ),
        (
            replace(JOB, rate=2.0, taken=1, next_allowed_at=NOW + timedelta(seconds=0.5)),
            "rate",
            "The rate of 2 replays per second permits the next replay at 09:00:00 UTC.",
        ),
        (
            replace(JOB, rate=1 / 60, taken=1, next_allowed_at=NOW + timedelta(seconds=59.9)),
            "rate",
            "The rate of one replay in 60 s permits the next replay at 09:00:59 UTC.",
        ),
        (
            replace(JOB, state=ReplayJobState.PAUSED),
            "paused",
            PAUSED,
        ),
        (
            replace(JOB, state=ReplayJobState.PAUSED, reason="The row is invalid."),
            "paused",
            f"{PAUSED} The reason of the pause: The row is invalid.",
        ),
    ],
)
def test_wait_is_a_code_and_a_sentence(job: ReplayJob, code: str, text: str) -> None:
    found = wait(job)

    assert found is not None
    assert (found.code, found.text) == (code, text)


@pytest.mark.parametrize(
    "job",
    [
        JOB,
        replace(JOB, rate=2.0),
        replace(JOB, state=ReplayJobState.DONE, taken=50, replayed=50, succeeded=50),
        replace(CANARY, state=ReplayJobState.ABORTED),
    ],
)
def test_job_that_has_ended_or_replays_now_waits_for_nothing(job: ReplayJob) -> None:
    assert wait(job, {API: OPEN}, {API: 1}) is None
