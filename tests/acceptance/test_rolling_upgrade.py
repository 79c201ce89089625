"""The present services on a ledger of the first version: they continue every run."""

from collections.abc import Callable

import pytest
from tests.acceptance.faults import until_called
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack, Tenant, now
from tests.contract.golden_rows import rebuild, rows
from tests.rig.polling import until

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

SCHEDULES = 23
OPEN_RUNS = ("stays", "retries", "runs")  # staged, retrying, and running when v1 ended
RECOVERY_TIMEOUT = 120.0  # seconds until the recovery has found every open run


@pytest.mark.long
async def test_services_continue_a_ledger_of_the_first_version(
    own_stack: Stack, whole_target: Target, record_property: Callable[[str, object], None]
) -> None:
    target = whole_target  # the rows contain paths without a folder
    await rebuild(own_stack.servers, own_stack.database_url, rows(target.port))
    own_stack.start()
    started_at = now()
    async with own_stack.tenant("acme") as tenant:
        await read_all(tenant)
        for path in OPEN_RUNS:
            await until_called(target, path, within=RECOVERY_TIMEOUT)
        record_property("taken up", f"{(now() - started_at).total_seconds():.1f} s after the start")

        async def ended() -> bool:
            states = {run["state"] for run in await tenant.runs()}
            return not states & {"staged", "running", "retrying"}

        await until(ended, within=RECOVERY_TIMEOUT, what="the end of the open runs")
        await replay_the_dead(tenant, target)
        attempts = [(path, [call.attempt for call in target.calls(path)]) for path in OPEN_RUNS]
    assert attempts == [("stays", [1]), ("retries", [2]), ("runs", [2])]


async def read_all(tenant: Tenant) -> None:
    harebell = tenant.harebell
    schedules = {each.key: each async for each in harebell.schedules()}
    assert len(schedules) == SCHEDULES
    assert "errored" not in {each.state for each in schedules.values()}
    assert [each.version for each in await harebell.versions(key="queues")] == [2, 1]
    for key in schedules:
        assert (await harebell.schedule(key=key)).key == key
        assert (await harebell.why(key=key)).key == key
    async for run in harebell.runs():
        assert (await harebell.run(run.run_id)).run_id == run.run_id


async def replay_the_dead(tenant: Tenant, target: Target) -> None:
    ids = await tenant.ledger.fetch("SELECT id FROM dead_letters WHERE tenant = $1", tenant.name)
    shown = [await tenant.harebell.dead_letter(row["id"]) for row in ids]
    dead_letters = {dead_letter.key: dead_letter for dead_letter in shown}
    assert dead_letters["replayed"].state == "resolved"  # the run has succeeded since the replay
    assert dead_letters["dies"].state == "open"
    target.fix("x")
    await tenant.harebell.replay([dead_letters["dies"].id])
    (call,) = await until_called(target, "dies")
    assert call.run_id == dead_letters["dies"].run_id
    await tenant.harebell.resume(key="paused")
