"""Payloads and metadata of the largest size, on their way from the command to the target."""

import base64
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import aio_pika
import orjson
import pytest
from aio_pika.abc import AbstractQueue
from aiohttp import web
from tests.acceptance.stack import Tenant
from tests.rig.polling import until

from harebell.contract.errors import CommandRejected

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

MAX_PAYLOAD = 64 * 1024  # bytes; the limit of the contract page
MAX_METADATA = 16 * 1024  # bytes of JSON; the limit of the contract page
WHEN = {"after": "5s"}  # the ticket waits in a delay queue
EXCHANGE = "acme.payloads"
BINARY = bytes(range(256)) * (MAX_PAYLOAD // 256)
TEXT = ("é\r\n\t\"'\\ \u2028🐝" * MAX_PAYLOAD).encode()[:MAX_PAYLOAD].decode(errors="ignore")
VALUE: dict[str, Any] = {
    "z": [1, -(2**53), 0.1, 1e-7, True, None],
    "a": {"": "é🐝", "nested": [[], {}]},
    "text": "",
}
EMPTY_VALUE_SIZE = len(orjson.dumps(VALUE))
VALUE["text"] = "x" * (MAX_PAYLOAD - EMPTY_VALUE_SIZE)


PAYLOADS = pytest.mark.parametrize(
    ("payload", "sent"),
    [
        ({"base64": base64.b64encode(BINARY).decode()}, BINARY),
        ({"text": TEXT}, TEXT.encode()),
        ({"json": VALUE}, orjson.dumps(VALUE)),
    ],
    ids=["binary", "text", "json"],
)


@dataclass(kw_only=True)
class Recipient:
    """A service with an HTTP address and a queue, which keeps each body as bytes.

    The first `failures` HTTP requests fail.
    """

    queue: AbstractQueue
    url: str = ""
    bodies: list[bytes] = field(default_factory=list)
    failures: int = 0

    async def handle(self, request: web.Request) -> web.Response:
        self.bodies.append(await request.read())
        return web.Response(status=503 if len(self.bodies) <= self.failures else 200)

    async def next_message(self) -> bytes:
        async def receive() -> list[bytes]:
            message = await self.queue.get(no_ack=True, fail=False)
            return [] if message is None else [message.body]

        (body,) = await until(receive, what="the message")
        return body


@pytest.fixture
async def recipient(tenant: Tenant) -> AsyncIterator[Recipient]:
    async with await aio_pika.connect(tenant.stack.amqp_url) as connection:
        channel = await connection.channel()
        exchange = await channel.declare_exchange(EXCHANGE, "fanout", auto_delete=True)
        queue = await channel.declare_queue(exclusive=True)
        await queue.bind(exchange)
        opened, app = Recipient(queue=queue), web.Application()
        app.router.add_post("/", opened.handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        opened.url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
        yield opened
        await runner.cleanup()


@pytest.mark.requirement("S16")
@PAYLOADS
@pytest.mark.long
async def test_largest_payload_arrives_with_the_same_bytes_at_both_targets(
    payload: dict[str, Any], sent: bytes, tenant: Tenant, recipient: Recipient
) -> None:
    targets = {
        "http": {"http": {"url": recipient.url, **payload}},
        "amqp": {"amqp": {"exchange": EXCHANGE, "routing_key": "", **payload}},
    }
    for key, target in targets.items():
        await tenant.put(key, WHEN, target)
    stored = [(await tenant.harebell.schedule(key=key)).definition for key in targets]

    await tenant.until_runs(len(targets), "succeeded")

    assert len(sent) > MAX_PAYLOAD - 4
    assert [payload_of(each) for each in stored] == [payload] * len(targets)
    assert [*recipient.bodies, await recipient.next_message()] == [sent] * len(targets)


@pytest.mark.requirement("S16")
@PAYLOADS
async def test_payload_of_a_replay_from_the_database_has_the_same_bytes(
    payload: dict[str, Any], sent: bytes, tenant: Tenant, recipient: Recipient
) -> None:
    recipient.failures = 1
    target = {"http": {"url": recipient.url, **payload}}
    await tenant.put("replayed", {"now": True}, target, retry={"max_attempts": 1})
    await tenant.until_runs(1, "dead")

    async def dead_letters() -> list[UUID]:
        return [each.id async for each in tenant.harebell.dead_letters()]

    await tenant.harebell.replay(await until(dead_letters, what="the dead letter"))
    await tenant.until_runs(1, "succeeded")

    assert recipient.bodies == [sent, sent]


def payload_of(definition: dict[str, Any]) -> dict[str, Any]:
    """Return the payload of a stored definition, without the other fields of its target."""
    (fields,) = definition["target"].values()
    return {name: fields[name] for name in ("json", "text", "base64") if name in fields}


@pytest.mark.requirement("S16")
async def test_largest_metadata_is_stored_unchanged(tenant: Tenant, recipient: Recipient) -> None:
    metadata = {"é": VALUE["a"], "text": ""}
    metadata["text"] = "x" * (MAX_METADATA - len(orjson.dumps(metadata)))

    await tenant.put("described", WHEN, {"http": {"url": recipient.url}}, metadata=metadata)

    stored = (await tenant.harebell.schedule(key="described")).definition
    assert stored["metadata"] == metadata


@pytest.mark.requirement("S16")
@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"target": {"http": {"url": "http://127.0.0.1/", "text": TEXT + "12345"}}}, "target.http"),
        (
            {
                "target": {
                    "amqp": {
                        "exchange": EXCHANGE,
                        "routing_key": "",
                        "base64": base64.b64encode(BINARY + b"1").decode(),
                    }
                }
            },
            "target.amqp",
        ),
        (
            {
                "target": {"task": {"name": "harebell.echo"}},
                "metadata": {"text": "x" * MAX_METADATA},
            },
            "metadata",
        ),
    ],
    ids=["http", "amqp", "metadata"],
)
async def test_larger_payload_is_rejected_with_its_field_and_leaves_no_row(
    fields: dict[str, Any], field: str, tenant: Tenant
) -> None:
    with pytest.raises(CommandRejected) as caught:
        await tenant.harebell.put({"key": "larger", "when": WHEN, **fields})

    rows = await tenant.ledger.fetchval(
        "SELECT count(*) FROM schedules WHERE tenant = $1", tenant.name
    )
    assert caught.value.code == "too_large"
    assert (caught.value.field or "").startswith(field)
    assert "bytes" in caught.value.reason
    assert rows == 0
