"""Dead letters on a running stack: a replay job with a canary, and an edited dead letter."""

from collections import Counter
from typing import Final
from uuid import UUID

import pytest
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Tenant
from tests.rig.polling import until

from harebell.client import DeadLetterView, ReplayJobDetail

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

DEAD_RUNS: Final = 30  # runs
CANARY: Final = 3
ONCE: Final = {"max_attempts": 1}


async def dead_letters(tenant: Tenant, number: int, state: str = "open") -> list[DeadLetterView]:
    async def find() -> list[DeadLetterView] | None:
        rows = [row async for row in tenant.harebell.dead_letters(state=state)]
        return rows if len(rows) == number else None

    found = await until(find)
    assert found is not None
    return found


async def until_ended(tenant: Tenant, replay_job: UUID | None) -> ReplayJobDetail:
    async def find() -> ReplayJobDetail | None:
        shown = await tenant.harebell.replay_job(replay_job or "")
        are_runs_ended = shown.succeeded + shown.failed == shown.replayed
        return shown if shown.state in {"done", "aborted"} and are_runs_ended else None

    found = await until(find)
    assert found is not None
    return found


@pytest.mark.requirement("ASK-2", "ASK-3")
async def test_canary_aborts_an_early_replay_job_and_each_run_succeeds_once_after_the_fix(
    tenant: Tenant, target: Target
) -> None:
    hook = target.http("till", broken="the-till")
    await tenant.harebell.put_many(
        [
            {"key": f"till-{k}", "when": {"now": True}, "target": hook, "retry": ONCE}
            for k in range(DEAD_RUNS)
        ]
    )
    await dead_letters(tenant, DEAD_RUNS)
    [group] = [each async for each in tenant.harebell.failure_groups()]
    select = {"group": group.id}
    start = tenant.harebell.start_replay_job

    first_job = await start(select=select, canary=CANARY, request_id="too-soon")
    aborted = await until_ended(tenant, first_job.id)
    returned = await dead_letters(tenant, DEAD_RUNS)
    target.fix("the-till")
    second_job = await start(select=select, canary=CANARY, rate=100, request_id="mended")
    done = await until_ended(tenant, second_job.id)

    assert (group.open, first_job.total, second_job.total) == (DEAD_RUNS, DEAD_RUNS, DEAD_RUNS)
    assert (aborted.state, aborted.reason) == ("aborted", "canary_failed")
    assert (aborted.failed, aborted.remaining) == (CANARY, DEAD_RUNS - CANARY)
    assert sum(dead_letter.replays for dead_letter in returned) == CANARY
    assert (done.state, done.succeeded, done.failed) == ("done", DEAD_RUNS, 0)
    successful = Counter(call.run_id for call in target.calls("till") if call.ok)
    assert (len(successful), set(successful.values())) == (DEAD_RUNS, {1})
    marks = Counter(call.replay for call in target.calls("till"))
    assert marks == {None: DEAD_RUNS, "1": DEAD_RUNS, "2": CANARY}
    assert [dead_letter async for dead_letter in tenant.harebell.dead_letters()] == []


@pytest.mark.requirement("S112")
async def test_edited_dead_letter_runs_with_the_new_target(tenant: Tenant, target: Target) -> None:
    await tenant.put("moved", {"now": True}, target.http("old", broken="gone"), retry=ONCE)
    [dead_letter] = await dead_letters(tenant, 1)

    edited = await tenant.harebell.edit(dead_letter.id, target.http("new"), note="they moved")
    [new_id] = edited.results
    await tenant.harebell.replay([new_id])
    await tenant.until_runs(1, "succeeded")

    [call] = target.calls("new")
    assert (call.run_id, call.ok) == (dead_letter.run_id, True)
    assert (await tenant.harebell.dead_letter(new_id)).state == "resolved"
    assert (await tenant.harebell.dead_letter(dead_letter.id)).state == "superseded"
