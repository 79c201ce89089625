"""A run that kills its executors becomes a dead letter, and the other runs continue."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance import tasks
from tests.acceptance.faults import Pool, put_spread
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Tenant, now
from tests.rig.polling import WAIT_TIMEOUT, until
from tests.rig.task_plugins import install

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

ATTEMPTS = 2
EXECUTORS = ATTEMPTS + 1  # so that one executor remains
OTHERS = 60  # runs of the same pool
SPREAD = 6.0  # seconds, so that the runs are due while executors die
POISON = {"test.poison": f"{tasks.__name__}:{tasks.kill_executor.__name__}"}


@pytest.mark.long
@pytest.mark.requirement("S110")
async def test_run_that_kills_its_executors_becomes_a_dead_letter_and_other_runs_continue(
    faulty_tenant: Tenant,
    pool: Pool,
    target: Target,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    installed = install(tmp_path, "poison", POISON)
    for number in range(1, EXECUTORS + 1):
        await pool.start(number, **installed)
    retry = {"max_attempts": ATTEMPTS}
    hook = target.http("others")
    more: dict[str, Any] = {"pool": pool.name, "retry": {"max_attempts": EXECUTORS}}
    await put_spread(faulty_tenant, hook, OTHERS, first=1, over=SPREAD, **more)

    task = {"task": {"name": next(iter(POISON))}}
    put_at = now()
    poison = await faulty_tenant.put("poison", {"now": True}, task, pool=pool.name, retry=retry)
    (dead,) = await faulty_tenant.until_runs(1, "dead", within=2 * WAIT_TIMEOUT)
    record_property("dead", f"{(now() - put_at).total_seconds():.1f} s after it was put")
    others = await faulty_tenant.until_runs(OTHERS, "succeeded")

    assert (str(dead["schedule_id"]), dead["attempt"]) == (poison, ATTEMPTS)
    assert dead["reason"] == "attempts_exhausted"
    assert count_dead_executors(pool) == ATTEMPTS
    # a run of a killed executor has another attempt, perhaps after a first call
    calls = Counter(call.run_id for call in target.calls("others"))
    assert len(calls) == len(others) == OTHERS
    assert max(calls.values()) <= EXECUTORS

    async def dead_letter() -> list[str | None]:
        return [each.run_id async for each in faulty_tenant.harebell.dead_letters()]

    assert len(await until(dead_letter, what="the dead letter")) == 1


def count_dead_executors(pool: Pool) -> int:
    return sum(pool.stack.services.process(each.name) is None for each in pool.members.values())
