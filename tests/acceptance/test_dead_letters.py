"""The desk on a stack: a group replayed with a canary, a letter edited, and executors that run."""

from collections import Counter
from typing import Final
from uuid import UUID

import pytest
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Tenant, until

from harebell.client import DeadLetterView, ReplayJobDetail

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

MANY: Final = 30  # runs
CANARY: Final = 3
ONCE: Final = {"max_attempts": 1}


async def dead_letters(tenant: Tenant, number: int, state: str = "open") -> list[DeadLetterView]:
    async def there() -> list[DeadLetterView] | None:
        rows = [row async for row in tenant.harebell.dead_letters(state=state)]
        return rows if len(rows) == number else None

    found = await until(there)
    assert found is not None
    return found


async def ended(tenant: Tenant, job: UUID | None) -> ReplayJobDetail:
    async def over() -> ReplayJobDetail | None:
        shown = await tenant.harebell.replay_job(job or "")
        settled = shown.succeeded + shown.failed == shown.replayed
        return shown if shown.state in {"done", "aborted"} and settled else None

    found = await until(over)
    assert found is not None
    return found


@pytest.mark.requirement("ASK-2")
async def test_a_canary_stops_a_replay_that_came_too_soon_and_after_the_fix_each_runs_once(
    tenant: Tenant, target: Target
) -> None:
    hook = target.http("till", broken="the-till")
    await tenant.harebell.put_many(
        [
            {"key": f"till-{k}", "when": {"now": True}, "target": hook, "retry": ONCE}
            for k in range(MANY)
        ]
    )
    await dead_letters(tenant, MANY)
    [group] = [each async for each in tenant.harebell.failure_groups()]
    select = {"group": group.id}
    start = tenant.harebell.start_replay_job

    early = await start(select=select, canary=CANARY, request_id="too-soon")
    stopped = await ended(tenant, early.id)
    again = await dead_letters(tenant, MANY)
    target.fix("the-till")
    late = await start(select=select, canary=CANARY, rate=100, request_id="mended")
    done = await ended(tenant, late.id)

    assert (group.open, early.total, late.total) == (MANY, MANY, MANY)
    assert (stopped.state, stopped.reason) == ("aborted", "canary_failed")
    assert (stopped.failed, stopped.remaining) == (CANARY, MANY - CANARY)
    assert sum(dead_letter.replays for dead_letter in again) == CANARY
    assert (done.state, done.succeeded, done.failed) == ("done", MANY, 0)
    well = Counter(call.run_id for call in target.calls("till") if call.ok)
    assert (len(well), set(well.values())) == (MANY, {1})
    assert [dead_letter async for dead_letter in tenant.harebell.dead_letters()] == []


@pytest.mark.requirement("S112")
async def test_a_letter_whose_target_was_wrong_is_edited_and_runs_at_the_right_one(
    tenant: Tenant, target: Target
) -> None:
    await tenant.put("moved", {"now": True}, target.http("old", broken="gone"), retry=ONCE)
    [dead_letter] = await dead_letters(tenant, 1)

    edited = await tenant.harebell.edit(dead_letter.id, target.http("new"), note="they moved")
    [copy] = edited.results
    await tenant.harebell.replay([copy])
    await tenant.until_runs(1, "succeeded")

    [call] = target.calls("new")
    assert (call.run_id, call.ok) == (dead_letter.run_id, True)
    assert (await tenant.harebell.dead_letter(copy)).state == "resolved"
    assert (await tenant.harebell.dead_letter(dead_letter.id)).state == "superseded"
