"""Requests over a real broker: their messages, and the response to each."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import orjson
import pytest
from aio_pika import DeliveryMode
from aio_pika.abc import AbstractIncomingMessage
from yarl import URL

from harebell.client import (
    Client,
    CommandRejected,
    ErrorResponse,
    ResponseTimeout,
    ScheduleResponse,
    rpc,
)

if TYPE_CHECKING:
    from tests.integration.client.conftest import FakeIntake

pytestmark = pytest.mark.broker

TENANT = "client-tests"
SCHEDULE = {"key": "hello", "when": {"after": "5s"}, "target": {"task": {"name": "acme.report"}}}
ID = "6f0a7c0e-3d2b-5b53-9c1e-4d7a0f2b8e11"
STORED: dict[str, object] = {
    "ok": True,
    "id": ID,
    "key": "hello",
    "version": 1,
    "status": "created",
    "state": "active",
    "next_at": ["2026-11-20T14:00:00Z"],
    "in_flight": [],
}
VIEW: dict[str, object] = {
    "id": ID,
    "tenant": TENANT,
    "class": "normal",
    "priority": 5,
    "pool": "default",
    "state": "active",
    "version": 1,
    "created_at": "2026-11-20T14:00:00Z",
    "updated_at": "2026-11-20T14:00:00Z",
}
REJECTED: dict[str, object] = {
    "ok": False,
    "error": {
        "code": "invalid_cron",
        "field": "when.cron",
        "reason": "The minute must be from 0 to 59, not 75.",
    },
}


@pytest.fixture
async def client(amqp_url: str) -> AsyncIterator[Client]:
    async with Client.connect(amqp_url, tenant=TENANT, timeout=5.0) as client:
        yield client


async def test_put_returns_the_stored_schedule(client: Client, intake: "FakeIntake") -> None:
    intake.respond = lambda _: STORED

    response = await client.put(SCHEDULE)

    assert response.status == "created"
    assert response.next_at == [datetime(2026, 11, 20, 14, tzinfo=UTC)]
    assert orjson.loads(intake.received[0].body) == SCHEDULE


async def test_command_has_the_properties_of_the_contract(
    client: Client, intake: "FakeIntake", amqp_url: str
) -> None:
    intake.respond = lambda _: STORED

    await client.put(SCHEDULE)

    message = intake.received[0]
    assert (message.exchange, message.routing_key) == (
        "harebell.commands",
        f"{TENANT}.schedule.put",
    )
    assert message.content_type == "application/json"
    assert message.type == "harebell.schedule.put.v1"
    assert message.delivery_mode is DeliveryMode.PERSISTENT
    assert message.message_id
    assert message.timestamp is not None
    assert message.user_id == URL(amqp_url).user


async def test_two_calls_with_one_request_id_are_two_messages(
    client: Client, intake: "FakeIntake"
) -> None:
    intake.respond = lambda _: STORED

    await client.trigger(key="hello", request_id="ops-4711")
    await client.trigger(key="hello", request_id="ops-4711")

    first, second = intake.received
    assert first.message_id != second.message_id
    assert orjson.loads(first.body) == {"key": "hello", "request_id": "ops-4711"}
    assert first.body == second.body


async def test_put_many_returns_a_response_for_each_item(
    client: Client, intake: "FakeIntake"
) -> None:
    intake.respond = lambda _: [STORED, REJECTED]

    stored, rejected = await client.put_many([SCHEDULE, {"when": {"cron": "75 * * * *"}}])

    assert isinstance(stored, ScheduleResponse)
    assert isinstance(rejected, ErrorResponse)
    assert rejected.error.field == "when.cron"


async def test_error_response_is_raised_with_its_field_and_reason(
    client: Client, intake: "FakeIntake"
) -> None:
    intake.respond = lambda _: REJECTED

    with pytest.raises(CommandRejected, match="not 75") as caught:
        await client.put(SCHEDULE)

    assert (caught.value.code, caught.value.field) == ("invalid_cron", "when.cron")


async def test_each_call_returns_its_own_response_in_any_order(
    client: Client, intake: "FakeIntake"
) -> None:
    calls = [asyncio.create_task(client.pause(key=f"key-{n}")) for n in range(20)]
    await intake.wait_for(len(calls))

    for message in reversed(intake.received):
        await intake.reply(message, STORED | {"key": orjson.loads(message.body)["key"]})

    responses = await asyncio.gather(*calls)
    assert [response.key for response in responses] == [f"key-{n}" for n in range(20)]


async def test_request_without_a_response_raises_response_timeout(
    amqp_url: str, intake: "FakeIntake"
) -> None:
    async with Client.connect(amqp_url, tenant=TENANT, timeout=0.3) as client:
        with pytest.raises(ResponseTimeout):
            await client.cancel(id=ID)

    assert len(intake.received) == 1


async def test_request_whose_response_is_lost_is_repeated_with_its_message_id(
    client: Client, intake: "FakeIntake", monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service may be killed after it has acknowledged the request and before its reply."""
    monkeypatch.setattr(rpc, "REPEAT_PAUSE", 0.3)
    intake.respond = lambda _: STORED if len(intake.received) > 2 else None

    response = await client.put(SCHEDULE)

    assert response.status == "created"
    assert len({each.message_id for each in intake.received}) == 1
    assert len(intake.received) == 3


async def test_list_is_read_page_by_page(client: Client, intake: "FakeIntake") -> None:
    def page(message: AbstractIncomingMessage) -> dict[str, object]:
        after = int(orjson.loads(message.body).get("after", "0"))
        following = str(after + 1) if after < 2 else None
        return {"ok": True, "items": [VIEW | {"key": f"key-{after}"}], "next": following}

    intake.respond = page

    keys = [view.key async for view in client.schedules(tag="reports")]

    assert keys == ["key-0", "key-1", "key-2"]
    assert all(message.exchange == "harebell.queries" for message in intake.received)
    assert orjson.loads(intake.received[1].body) == {"tag": "reports", "limit": 500, "after": "1"}
