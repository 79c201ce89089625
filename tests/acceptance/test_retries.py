"""A failing target: attempts with the backoff of the policy, then a dead letter."""

import logging
from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest
from tests.acceptance.recording_target import Call, Target
from tests.acceptance.stack import Tenant
from tests.rig.polling import until

from harebell.client import DeadLetterView

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.broker_version]

log = logging.getLogger(__name__)

DEFAULT_RUNS = 20
TOLERANCE = 0.25  # seconds of a retry after the time of its policy


def retry(attempts: int, base: str) -> dict[str, Any]:
    return {
        "max_attempts": attempts,
        "backoff": {"base": base, "factor": 2, "cap": "1m", "jitter": "none"},
    }


async def dead_letters(tenant: Tenant, state: str) -> list[DeadLetterView]:
    return [dead_letter async for dead_letter in tenant.harebell.dead_letters(state=state)]


@pytest.mark.requirement("S103", "S104", "S108")
async def test_two_failures_and_a_success_are_three_attempts_with_the_backoff_of_the_policy(
    tenant: Tenant, target: Target
) -> None:
    when = {"after": "1s"}
    await tenant.put("flaky", when, target.http("flaky", fail=2), retry=retry(5, "1500ms"))

    await tenant.until_runs(1, "succeeded")

    calls = target.calls("flaky")
    attempts = await tenant.attempts(calls[0].run_id)
    waits = [
        (after.started_at - before.finished_at).total_seconds()
        for before, after in pairwise(calls)
        if before.finished_at is not None
    ]
    log.info("waited %s s", waits)
    assert [call.attempt for call in calls] == [1, 2, 3]
    assert [call.ok for call in calls] == [False, False, True]
    assert [row["number"] for row in attempts] == [1, 2, 3]
    assert [row["outcome"] for row in attempts] == ["failed", "failed", "succeeded"]
    assert [row["http_status"] for row in attempts] == [503, 503, 200]
    for waited, minimum in zip(waits, (1.5, 3.0), strict=True):
        assert minimum <= waited <= minimum + TOLERANCE
    assert [call.token for call in calls] == sorted({call.token for call in calls})
    assert await dead_letters(tenant, "all") == []


@pytest.mark.requirement("S104", "S105")
async def test_no_retry_of_the_default_policy_is_earlier_than_its_backoff(
    tenant: Tenant, target: Target
) -> None:
    target_of_runs = target.http("default", fail=2)
    await tenant.harebell.put_many(
        [
            {"key": f"default-{n}", "when": {"after": "1s"}, "target": target_of_runs}
            for n in range(DEFAULT_RUNS)
        ]
    )

    await tenant.until_runs(DEFAULT_RUNS, "succeeded")

    by_run: defaultdict[str, list[Call]] = defaultdict(list)
    for call in target.calls("default"):
        by_run[call.run_id].append(call)
    waits = [
        [
            (after.started_at - before.finished_at).total_seconds()
            for before, after in pairwise(calls)
            if before.finished_at is not None
        ]
        for calls in by_run.values()
    ]
    log.info("waited %s s", waits)
    assert {len(of_run) for of_run in waits} == {2}
    assert min(first for first, _ in waits) >= 1.0
    assert min(second for _, second in waits) >= 2.0
    assert len({round(first, 2) for first, _ in waits}) > DEFAULT_RUNS // 4  # of 26 values


@pytest.mark.requirement("S52", "S109", "S112")
async def test_failing_run_becomes_one_dead_letter_and_succeeds_when_replayed_after_the_fix(
    tenant: Tenant, target: Target
) -> None:
    hook = target.http("broken", broken="the-till")
    await tenant.put("till", {"now": True}, hook, retry=retry(3, "100ms"))
    (dead,) = await tenant.until_runs(1, "dead")
    (dead_letter,) = await until(lambda: dead_letters(tenant, "open"))
    payload = (await tenant.harebell.dead_letter(dead_letter.id)).payload

    target.fix("the-till")
    replayed = await tenant.harebell.replay([dead_letter.id], note="the till is fixed")
    (run,) = await tenant.until_runs(1, "succeeded")

    assert (dead["attempt"], dead["reason"], dead["replay_number"]) == (3, "attempts_exhausted", 0)
    assert (dead_letter.attempts, dead_letter.run_state) == (3, "dead")
    assert [attempt["http_status"] for attempt in payload["attempts"]] == [503] * 3
    assert replayed.results == {str(dead_letter.id): "replayed"}
    calls = target.calls("broken")
    assert {call.run_id for call in calls} == {dead_letter.run_id}
    assert [call.ok for call in calls] == [False, False, False, True]
    assert (run["replay_number"], run["scheduled_for"]) == (1, dead["scheduled_for"])
    assert await dead_letters(tenant, "open") == []
    (resolved,) = await dead_letters(tenant, "all")
    assert (resolved.id, resolved.run_state) == (dead_letter.id, "succeeded")
    shown = await tenant.harebell.run(dead_letter.run_id or "")
    attempts = [(row.replay_number, row.number, row.outcome) for row in shown.attempts]
    assert attempts == [(0, 1, "failed"), (0, 2, "failed"), (0, 3, "failed"), (1, 1, "succeeded")]


@pytest.mark.requirement("S15")
async def test_unknown_task_becomes_a_dead_letter_at_once_with_the_reason(
    tenant: Tenant,
) -> None:
    await tenant.put("typo", {"now": True}, {"task": {"name": "acme.reprot"}}, retry=retry(5, "1s"))

    (dead,) = await tenant.until_runs(1, "dead")
    (dead_letter,) = await until(lambda: dead_letters(tenant, "open"))

    assert (dead["attempt"], dead["reason"]) == (1, "unknown_task")
    (attempt,) = (await tenant.harebell.dead_letter(dead_letter.id)).payload["attempts"]
    assert attempt["error_code"] == "unknown_task"
    assert "acme.reprot" in attempt["error"]
