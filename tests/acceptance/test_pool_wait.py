"""Queries that need the only connection of a service while a lock occupies it."""

import asyncio

import asyncpg
import pytest
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack
from tests.rig.polling import until

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

QUERIES = 40
LOCK_TIME = 1.0  # seconds, less than the lock timeout of the services
ONE_CONNECTION = {"HAREBELL_DATABASE_POOL_MIN": "1", "HAREBELL_DATABASE_POOL_MAX": "1"}
INTAKE = "intake-1"

_WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE application_name = $1 AND wait_event_type = 'Lock' AND datname = current_database()
"""


@pytest.mark.long
@pytest.mark.requirement("S57")
async def test_queries_wait_for_the_only_connection_and_all_get_their_response(
    own_stack: Stack, target: Target
) -> None:
    await asyncio.to_thread(own_stack.start, None, **ONE_CONNECTION)
    process = own_stack.services.process(INTAKE)
    async with own_stack.tenant("waiting") as tenant:
        id_ = await tenant.put("hourly", {"every": "1h"}, target.http("never"))

        async def is_waiting() -> bool:
            return bool(await tenant.ledger.fetchval(_WAITING, INTAKE))

        locker = await asyncpg.connect(own_stack.database_url)
        async with locker.transaction():
            await locker.execute("LOCK TABLE schedules IN ACCESS EXCLUSIVE MODE")
            queries = [
                asyncio.create_task(tenant.harebell.schedule(key="hourly")) for _ in range(QUERIES)
            ]
            await until(is_waiting, what="a query that waits for the lock")
            await asyncio.sleep(LOCK_TIME)
            waiting = await tenant.ledger.fetchval(_WAITING, INTAKE)
            done_during_lock = sum(each.done() for each in queries)
        await locker.close()
        responses = await asyncio.gather(*queries)

    assert (waiting, done_during_lock) == (1, 0)
    assert [str(each.id) for each in responses] == [id_] * QUERIES
    assert own_stack.services.process(INTAKE) == process
