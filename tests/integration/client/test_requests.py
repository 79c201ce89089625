"""Questions over a real broker: what is on the wire, and that each gets its own answer."""

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
)

if TYPE_CHECKING:
    from tests.integration.client.conftest import Intake

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
REFUSED: dict[str, object] = {
    "ok": False,
    "error": {"code": "invalid_cron", "field": "when.cron", "reason": "The minute must be from 0 to 59, not 75."},
}


@pytest.fixture
async def harebell(amqp_url: str) -> AsyncIterator[Client]:
    async with Client.connect(amqp_url, tenant=TENANT, timeout=5.0) as harebell:
        yield harebell


async def test_a_put_is_answered_with_what_was_stored(harebell: Client, intake: "Intake") -> None:
    intake.answer = lambda _: STORED

    answer = await harebell.put(SCHEDULE)

    assert answer.status == "created"
    assert answer.next_at == [datetime(2026, 11, 20, 14, tzinfo=UTC)]
    assert orjson.loads(intake.received[0].body) == SCHEDULE


async def test_a_command_has_the_properties_that_the_contract_names(
    harebell: Client, intake: "Intake", amqp_url: str
) -> None:
    intake.answer = lambda _: STORED

    await harebell.put(SCHEDULE)

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


async def test_two_calls_are_two_messages_even_with_one_request_id(
    harebell: Client, intake: "Intake"
) -> None:
    intake.answer = lambda _: STORED

    await harebell.trigger(key="hello", request_id="ops-4711")
    await harebell.trigger(key="hello", request_id="ops-4711")

    first, second = intake.received
    assert first.message_id != second.message_id
    assert orjson.loads(first.body) == {"key": "hello", "request_id": "ops-4711"}
    assert first.body == second.body


async def test_an_array_is_answered_item_by_item(harebell: Client, intake: "Intake") -> None:
    intake.answer = lambda _: [STORED, REFUSED]

    stored, refused = await harebell.put_many([SCHEDULE, {"when": {"cron": "75 * * * *"}}])

    assert isinstance(stored, ScheduleResponse)
    assert isinstance(refused, ErrorResponse)
    assert refused.error.field == "when.cron"


async def test_a_refusal_is_raised_with_its_field_and_reason(
    harebell: Client, intake: "Intake"
) -> None:
    intake.answer = lambda _: REFUSED

    with pytest.raises(CommandRejected, match="The minute must be from 0 to 59, not 75.") as caught:
        await harebell.put(SCHEDULE)

    assert (caught.value.code, caught.value.field) == ("invalid_cron", "when.cron")


async def test_answers_in_another_order_reach_those_who_asked(
    harebell: Client, intake: "Intake"
) -> None:
    asking = [asyncio.create_task(harebell.pause(key=f"key-{n}")) for n in range(20)]
    await intake.has_received(len(asking))

    for message in reversed(intake.received):
        await intake.reply(message, STORED | {"key": orjson.loads(message.body)["key"]})

    answers = await asyncio.gather(*asking)
    assert [answer.key for answer in answers] == [f"key-{n}" for n in range(20)]


async def test_silence_is_a_timeout(amqp_url: str, intake: "Intake") -> None:
    async with Client.connect(amqp_url, tenant=TENANT, timeout=0.3) as harebell:
        with pytest.raises(ResponseTimeout):
            await harebell.cancel(id=ID)

    assert len(intake.received) == 1


async def test_lists_are_read_page_by_page(harebell: Client, intake: "Intake") -> None:
    def page(message: AbstractIncomingMessage) -> dict[str, object]:
        after = int(orjson.loads(message.body).get("after", "0"))
        following = str(after + 1) if after < 2 else None
        return {"ok": True, "items": [{"key": f"key-{after}"}], "next": following}

    intake.answer = page

    keys = [view["key"] async for view in harebell.schedules(tag="reports")]

    assert keys == ["key-0", "key-1", "key-2"]
    assert all(message.exchange == "harebell.queries" for message in intake.received)
    assert orjson.loads(intake.received[1].body) == {"tag": "reports", "limit": 500, "after": "1"}
