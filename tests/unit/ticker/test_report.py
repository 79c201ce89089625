"""The rules for reports of workers."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.fakes.tickets import NINE, after, ticket

from harebell.contract.commands import RunComplete, RunFail, RunHeartbeat
from harebell.contract.errors import Rejected
from harebell.contract.policy import Backoff, Jitter, RetryPolicy
from harebell.contract.responses import RunResponse
from harebell.contract.ticket import Ticket
from harebell.domain.run_states import WORKER, AttemptCompletion, ReportedRun, RunState
from harebell.ticker.model.report import (
    completion_of_report,
    is_valid,
    response_without_effect,
)

TOKEN = 7
STARTED = after(-3600)
RUN = ReportedRun(
    state="running",
    attempt=1,
    token=TOKEN,
    lease_holder=WORKER,
    started_at=STARTED,
    stop_reason=None,
    failed_probes=0,
    last_outcome=None,
    last_code=None,
)
ENDED = replace(RUN, token=TOKEN + 1)

pytestmark = pytest.mark.requirement("S59")


def complete(result: Any = None) -> RunComplete:
    return RunComplete(run_id=ticket().run_id, fencing_token=TOKEN, result=result)


def fail(**fields: Any) -> RunFail:
    return RunFail.model_validate(
        {"run_id": ticket().run_id, "fencing_token": TOKEN, "code": "disk_full", **fields}
    )


def heartbeat() -> RunHeartbeat:
    return RunHeartbeat(run_id=ticket().run_id, fencing_token=TOKEN)


def with_retry(max_attempts: int) -> Ticket:
    backoff = Backoff(base=timedelta(seconds=10), jitter=Jitter.NONE)
    retry = RetryPolicy(max_attempts=max_attempts, backoff=backoff)
    plain = ticket()
    return plain.model_copy(update={"run_spec": plain.run_spec.model_copy(update={"retry": retry})})


def completed(
    report: RunComplete | RunFail, run: ReportedRun = RUN, max_attempts: int = 2, **more: Any
) -> AttemptCompletion:
    return completion_of_report(
        report, run, with_retry(max_attempts), now=NINE, random_fraction=0.0, **more
    )


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (RUN, True),
        (None, False),
        (replace(RUN, token=TOKEN + 1), False),
        (replace(RUN, token=TOKEN - 1), False),
        (replace(RUN, lease_holder="executor-1"), False),
        (replace(RUN, state="retrying"), False),
    ],
)
def test_report_is_valid_only_for_the_lease_of_its_worker(
    run: ReportedRun | None, *, expected: bool
) -> None:
    assert is_valid(complete(), run) is expected


def test_completion_has_the_start_of_the_row_and_the_result_as_json() -> None:
    completion = completed(complete({"rows": 3}))

    assert (completion.state, completion.outcome) == (RunState.SUCCEEDED, "succeeded")
    assert (completion.started_at, completion.finished_at) == (STARTED, NINE)
    assert (completion.result, completion.healthy) == ('{"rows":3}', None)
    assert completed(complete()).result is None


def test_failure_is_retried_with_the_backoff_of_the_schedule() -> None:
    completion = completed(fail(reason="Full."))

    assert (completion.state, completion.outcome) == (RunState.RETRYING, "failed")
    assert completion.next_attempt_at == NINE + timedelta(seconds=10)
    assert (completion.error_code, completion.error) == ("disk_full", "Full.")
    assert completion.staged_at == NINE


@pytest.mark.parametrize(("wait", "is_staged"), [("40s", True), ("2h", False)])
def test_retry_after_delays_the_next_attempt(wait: str, *, is_staged: bool) -> None:
    completion = completed(fail(retry_after=wait))

    assert completion.next_attempt_at is not None
    assert completion.next_attempt_at > NINE + timedelta(seconds=30)
    assert (completion.staged_at == NINE) is is_staged


def test_failure_waits_for_the_minimum_of_the_tenant() -> None:
    completion = completed(fail(), min_wait=timedelta(minutes=5))

    assert completion.next_attempt_at == NINE + timedelta(minutes=5)


@pytest.mark.parametrize(
    ("report", "max_attempts", "reason"),
    [(fail(), 1, "attempts_exhausted"), (fail(retryable=False), 9, "disk_full")],
)
def test_last_failure_makes_the_run_dead(report: RunFail, max_attempts: int, reason: str) -> None:
    completion = completed(report, max_attempts=max_attempts)

    assert (completion.state, completion.reason) == (RunState.DEAD, reason)


@pytest.mark.parametrize("max_attempts", [1, 5])
def test_failure_after_a_stop_request_cancels_the_run(max_attempts: int) -> None:
    completion = completed(fail(), replace(RUN, stop_reason="cancelled"), max_attempts)

    assert (completion.state, completion.outcome) == (RunState.CANCELLED, "cancelled")
    assert (completion.reason, completion.next_attempt_at) == ("cancelled", None)


def test_completion_after_a_stop_request_succeeds() -> None:
    completion = completed(complete(), replace(RUN, stop_reason="cancelled"))

    assert completion.state is RunState.SUCCEEDED


def test_failure_after_the_request_of_a_paused_schedule_is_retried() -> None:
    assert completed(fail(), replace(RUN, stop_reason="paused")).state is RunState.RETRYING


@pytest.mark.parametrize(
    ("report", "run"),
    [
        (complete(), replace(ENDED, state="succeeded", last_outcome="succeeded")),
        (
            fail(),
            replace(ENDED, state="retrying", last_outcome="failed", last_code="disk_full"),
        ),
        (
            fail(),
            replace(ENDED, state="cancelled", last_outcome="cancelled", last_code="disk_full"),
        ),
    ],
)
def test_repeated_report_succeeds(report: RunComplete | RunFail, run: ReportedRun) -> None:
    response = response_without_effect(report, run)

    assert isinstance(response, RunResponse)
    assert (response.status, response.state) == ("repeated", run.state)


@pytest.mark.parametrize(
    ("report", "run", "code", "text"),
    [
        (complete(), None, "not_found", "no run with the id"),
        (complete(), replace(RUN, lease_holder="executor-1"), "not_delegated", "its call"),
        (
            complete(),
            replace(RUN, token=TOKEN + 2, attempt=2),
            "stale_token",
            "Attempt 2 of the run has another token.",
        ),
        # The rescuer ended the attempt, and not the worker.
        (
            complete(),
            replace(ENDED, state="retrying", last_outcome="lease_expired"),
            "stale_token",
            "The run is retrying after attempt 1.",
        ),
        (
            fail(),
            replace(ENDED, state="retrying", last_outcome="failed", last_code="http_503"),
            "stale_token",
            "The run is retrying",
        ),
        (
            complete(),
            replace(ENDED, token=TOKEN + 3, state="succeeded", last_outcome="succeeded"),
            "stale_token",
            "The run is succeeded",
        ),
        (
            heartbeat(),
            replace(ENDED, state="succeeded", last_outcome="succeeded"),
            "stale_token",
            "The run is succeeded",
        ),
    ],
)
def test_report_without_effect_is_rejected_with_its_reason(
    report: Any, run: ReportedRun | None, code: str, text: str
) -> None:
    response = response_without_effect(report, run)

    assert isinstance(response, Rejected)
    assert response.code == code
    assert text in response.reason
