"""The history of runs and attempts after the cancellation of their schedule."""

from typing import Any

import pytest
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Tenant

from harebell.contract.views import RunDetail

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

RETRY = {"max_attempts": 2, "backoff": {"base": "100ms", "jitter": "none"}}
EVERY_HOUR = {"every": "1h"}


@pytest.mark.requirement("S34")
async def test_attempts_have_times_executor_outcome_error_and_result_after_the_cancellation(
    tenant: Tenant, target: Target
) -> None:
    targets: dict[str, dict[str, Any]] = {
        "flaky": target.http("flaky", fail=1),
        "broken": target.http("broken", broken="forever"),
        "echo": {"task": {"name": "harebell.echo", "args": {"number": 7}}},
    }
    run_ids = {}
    for key, each in targets.items():
        await tenant.put(key, EVERY_HOUR, each, retry=RETRY)
        run_ids[key] = (await tenant.harebell.trigger(key=key)).run_id or ""
    await tenant.until_runs(2, "succeeded")
    await tenant.until_runs(1, "dead")
    before = {key: await tenant.harebell.run(run_id) for key, run_id in run_ids.items()}

    for key in targets:
        await tenant.harebell.cancel(key=key)

    states = {each.key: each.state async for each in tenant.harebell.schedules()}
    after = {key: await tenant.harebell.run(run_id) for key, run_id in run_ids.items()}
    listed = {each.run_id async for each in tenant.harebell.runs(key="flaky")}
    assert states == dict.fromkeys(targets, "cancelled")
    assert after == before
    assert run_ids["flaky"] in listed
    assert outcomes(after["flaky"]) == [("failed", 503), ("succeeded", 200)]
    assert outcomes(after["broken"]) == [("failed", 503), ("failed", 503)]
    assert outcomes(after["echo"]) == [("succeeded", None)]
    assert "7" in (after["echo"].attempts[0].result or "")
    for run in after.values():
        assert_is_complete(run)


def outcomes(run: RunDetail) -> list[tuple[str, int | None]]:
    return [(attempt.outcome, attempt.http_status) for attempt in run.attempts]


def assert_is_complete(run: RunDetail) -> None:
    """Assert the times, the executor and the error of each attempt, and the times of the run."""
    assert [attempt.number for attempt in run.attempts] == [*range(1, run.attempt + 1)]
    earlier = run.due_at
    for attempt in run.attempts:
        assert attempt.started_at is not None
        assert attempt.duration_ms is not None
        assert earlier <= attempt.started_at <= attempt.finished_at
        assert (attempt.lease_holder or "").startswith("executor-")
        assert (attempt.error_code is None) == (attempt.outcome == "succeeded")
        assert bool(attempt.error) == (attempt.outcome != "succeeded")
        earlier = attempt.finished_at
    assert run.finished_at is not None
    assert run.finished_at >= earlier
