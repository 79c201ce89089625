"""A hundred clients with separate connections that put one key at the same time."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Tenant
from tests.rig.polling import WAIT_TIMEOUT

from harebell.client import Client
from harebell.contract.errors import CommandRejected
from harebell.contract.responses import ScheduleResponse

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

CLIENTS = 100
SOON = {"after": "2s"}


@pytest.fixture
async def clients(tenant: Tenant) -> AsyncIterator[list[Client]]:
    async with AsyncExitStack() as opened:
        yield await asyncio.gather(
            *(
                opened.enter_async_context(
                    Client.connect(tenant.stack.amqp_url, tenant=tenant.name, timeout=WAIT_TIMEOUT)
                )
                for _ in range(CLIENTS)
            )
        )


async def put_at_once(
    clients: Sequence[Client], schedules: Sequence[dict[str, Any]]
) -> tuple[list[ScheduleResponse], list[CommandRejected]]:
    """Return the responses and the rejections."""
    pairs = zip(clients, schedules, strict=True)
    results = await asyncio.gather(
        *(client.put(schedule) for client, schedule in pairs), return_exceptions=True
    )
    responses = [each for each in results if isinstance(each, ScheduleResponse)]
    rejections = [each for each in results if isinstance(each, CommandRejected)]
    assert len(responses) + len(rejections) == CLIENTS, results
    return responses, rejections


@pytest.mark.requirement("S26")
async def test_hundred_equal_concurrent_puts_create_one_schedule_and_one_run(
    clients: list[Client], tenant: Tenant, target: Target
) -> None:
    schedule = {"key": "same", "when": SOON, "target": target.http("hundred")}

    responses, rejections = await put_at_once(clients, [schedule] * CLIENTS)
    await tenant.until_runs(1, "succeeded")
    with pytest.raises(CommandRejected) as late:
        await tenant.harebell.put(schedule)

    assert not rejections
    assert late.value.code == "schedule_ended"
    assert Counter(response.status for response in responses) == {
        "created": 1,
        "unchanged": CLIENTS - 1,
    }
    assert len({response.id for response in responses}) == 1
    assert len({tuple(response.next_at) for response in responses}) == 1
    assert len([view async for view in tenant.harebell.schedules()]) == 1
    assert len(await tenant.runs()) == len(target.calls("hundred")) == 1


@pytest.mark.requirement("S26")
@pytest.mark.long
async def test_first_of_two_bodies_with_one_key_is_stored_and_the_other_conflicts(
    clients: list[Client], tenant: Tenant, target: Target
) -> None:
    paths = ("this", "that")
    bodies = [{"key": "split", "when": SOON, "target": target.http(path)} for path in paths]

    responses, rejections = await put_at_once(clients, bodies * (CLIENTS // len(bodies)))
    await tenant.until_runs(1, "succeeded")

    half = CLIENTS // 2
    assert Counter(response.status for response in responses) == {
        "created": 1,
        "unchanged": half - 1,
    }
    assert len({response.id for response in responses}) == 1
    assert Counter((each.code, each.field) for each in rejections) == {("conflict", "key"): half}
    assert len(await tenant.runs()) == 1
    assert sorted(len(target.calls(path)) for path in paths) == [0, 1]
