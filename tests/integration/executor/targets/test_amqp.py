"""Integration tests of the AMQP target with RabbitMQ."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel, AbstractQueue
from pamqp.commands import Exchange, Queue
from tests.fakes.attempts import attempt

from harebell.contract.message import parse
from harebell.contract.target import AmqpMessage
from harebell.contract.target_headers import MAX_HEADERS_SIZE
from harebell.domain.retry import Failure
from harebell.executor.targets.amqp import MAX_IDLE, AmqpTargets, open_amqp
from harebell.executor.targets.attempt import Success, TargetOutcome
from harebell.runtime.clock import monotonic

pytestmark = pytest.mark.broker

SECONDS = 20.0
QUEUES, FLOOD, LONG_TEXT = 200, 60, "x" * 60_000
EXCHANGE = "acme.jobs"
INTERNAL = "acme.internal"  # RabbitMQ rejects a publish to it with 403
FULL = "acme.full"


@dataclass(frozen=True)
class Acme:
    """Another service with its exchanges and a queue."""

    channel: AbstractChannel
    queue: AbstractQueue

    async def next(self) -> aio_pika.abc.AbstractIncomingMessage:
        return await self.queue.get(no_ack=True)


@pytest.fixture
async def acme(amqp_url: str) -> AsyncIterator[Acme]:
    connection = await aio_pika.connect(amqp_url)
    async with connection:
        channel = await connection.channel()
        jobs = await channel.declare_exchange(EXCHANGE, "topic", auto_delete=True)
        internal = await channel.declare_exchange(INTERNAL, "fanout", internal=True)
        full = await channel.declare_exchange(FULL, "fanout", auto_delete=True)
        queue = await channel.declare_queue(exclusive=True)
        full_queue = await channel.declare_queue(
            exclusive=True, arguments={"x-max-length": 0, "x-overflow": "reject-publish"}
        )
        await queue.bind(jobs, "report.#")
        await full_queue.bind(full)
        yield Acme(channel, queue)
        await internal.delete()


@pytest.fixture
async def amqp(amqp_url: str) -> AsyncIterator[AmqpTargets]:
    async with open_amqp(amqp_url, name="target tests", properties={}) as targets:
        yield targets


async def publish(amqp: AmqpTargets, *, tenant: str = "default", **fields: Any) -> TargetOutcome:
    message = parse(AmqpMessage, {"exchange": EXCHANGE, "routing_key": "report", **fields})
    context = attempt()
    run_spec = context.ticket.run_spec.model_copy(update={"tenant": tenant})
    ticket = context.ticket.model_copy(update={"run_spec": run_spec})
    return await amqp.call(message, context._replace(ticket=ticket), SECONDS)


@pytest.mark.requirement("S20")
async def test_message_arrives_with_the_headers_of_the_attempt(
    acme: Acme, amqp: AmqpTargets
) -> None:
    headers = {"region": "eu", "n": 2**63 - 1, "ratio": 0.5, "dry": True, "x-delay": 5000}

    assert await publish(amqp, json={"a": [1]}, headers=headers) == Success()

    message = await acme.next()
    assert message.headers == {**headers, **attempt().headers()}
    assert (message.body, message.content_type) == (b'{"a":[1]}', "application/json")
    assert (message.message_id, message.app_id) == (attempt().ticket.run_id, "harebell")
    assert message.delivery_mode == aio_pika.DeliveryMode.PERSISTENT


@pytest.mark.parametrize(
    "value",
    [
        1795738538.123,
        1e300,
        -0.0,
        2**31,
        -(2**63),
        None,
        "ä" * 8_000,
        {"json": [0.1, {"a": 1e300, "ä" * 127: None}]},
        {"json": None},
    ],
)
async def test_header_arrives_with_its_whole_value(
    acme: Acme, amqp: AmqpTargets, value: object
) -> None:
    names = ["a", "b" * 129, "c" * 255, ""]

    assert await publish(amqp, headers=dict.fromkeys(names, value)) == Success()

    received = (await acme.next()).headers
    expected = value["json"] if isinstance(value, dict) else value
    assert [received[name] for name in names] == [expected] * len(names)


async def test_largest_headers_fit_in_a_frame(acme: Acme, amqp: AmqpTargets) -> None:
    size = MAX_HEADERS_SIZE // 64 - 20
    headers = {f"header-{number:02}": "x" * size for number in range(64)}
    longest = dict.fromkeys(("type", "app_id", "message_id", "reply_to"), "é" * 127)

    assert await publish(amqp, headers=headers, **longest) == Success()

    assert (await acme.next()).headers.items() >= headers.items()


async def test_headers_that_secrets_make_too_large_fail_alone(
    acme: Acme, amqp: AmqpTargets
) -> None:
    """RabbitMQ would close the connection, and the other messages on it would have to repeat."""
    message = parse(AmqpMessage, {"exchange": EXCHANGE, "routing_key": "report"})
    secrets = {f"x-{number}": "s" * 16_000 for number in range(8)}
    resolved = message.model_copy(update={"headers": secrets})

    outcome = await amqp.call(resolved, attempt(), SECONDS)

    assert isinstance(outcome, Failure)
    assert (outcome.code, outcome.retryable) == ("too_large", False)
    assert await publish(amqp) == Success()
    assert (await acme.next()).body == b""


@pytest.mark.parametrize("exchange", ["acme[1]", "acme.ä", "acme" + "é" * 125, "a b'\"%*?"])
async def test_each_name_of_an_exchange_that_rabbitmq_allows_is_a_target(
    acme: Acme, amqp: AmqpTargets, monkeypatch: pytest.MonkeyPatch, exchange: str
) -> None:
    for method in (Exchange.Declare, Queue.Bind):  # the client of the test refuses these names
        monkeypatch.setattr(method, "validate", lambda _: None)
    declared = await acme.channel.declare_exchange(exchange, "fanout", auto_delete=True)
    await acme.queue.bind(declared)

    assert await publish(amqp, exchange=exchange, routing_key="é" * 127) == Success()

    assert (await acme.next()).exchange == exchange


async def test_message_arrives_with_every_property(acme: Acme, amqp: AmqpTargets) -> None:
    texts = {
        "type": "acme.report.v1",
        "correlation_id": "é" * 127,
        "reply_to": "acme.replies",
        "message_id": "m-1",
        "app_id": "billing",
        "content_type": "application/vnd.acme+json",
        "content_encoding": "utf-8",
    }

    await publish(amqp, json=1, priority=7, expiration="1001ms", **texts)

    message = await acme.next()
    assert {name: getattr(message, name) for name in texts} == texts
    assert message.priority == 7
    assert message.expiration == pytest.approx(1.001)
    assert (message.body, message.user_id) == (b"1", None)


async def test_longest_expiration_is_accepted_by_the_broker(acme: Acme, amqp: AmqpTargets) -> None:
    assert await publish(amqp, expiration="4294967295ms") == Success()

    assert (await acme.next()).expiration == pytest.approx(4_294_967.295)


async def test_reference_to_the_run_becomes_its_id(acme: Acme, amqp: AmqpTargets) -> None:
    reference = {"run": "id"}

    await publish(amqp, correlation_id=reference, headers={"id": reference, "n": 1})

    message = await acme.next()
    assert message.correlation_id == message.headers["id"] == attempt().ticket.run_id
    assert message.headers["n"] == 1


@pytest.mark.requirement("ASK-3")
async def test_message_of_a_replay_has_the_replay_number(acme: Acme, amqp: AmqpTargets) -> None:
    message = AmqpMessage(exchange=EXCHANGE, routing_key="report")

    for replay_number in (0, 2):
        await amqp.call(message, attempt(replay_number=replay_number), SECONDS)

    received = [await acme.next(), await acme.next()]
    assert [each.headers.get("Harebell-Replay") for each in received] == [None, "2"]


@pytest.mark.requirement("S16")
@pytest.mark.parametrize(
    ("payload", "body"),
    [({}, b""), ({"text": "é\r\n"}, b"\xc3\xa9\r\n"), ({"base64": "AP8K"}, b"\x00\xff\n")],
)
async def test_body_arrives_unchanged(
    acme: Acme, amqp: AmqpTargets, payload: dict[str, Any], body: bytes
) -> None:
    assert await publish(amqp, **payload) == Success()

    assert (await acme.next()).body == body


@pytest.mark.requirement("S20")
@pytest.mark.parametrize(
    ("exchange", "expected"),
    [
        (EXCHANGE, ("unroutable", True)),
        ("acme.nowhere", ("no_exchange", True)),
        (INTERNAL, ("not_allowed", False)),
        (FULL, ("broker_unavailable", True)),
    ],
)
@pytest.mark.usefixtures("acme")
async def test_outcome_is_a_failure_when_the_message_does_not_arrive(
    amqp: AmqpTargets, exchange: str, expected: tuple[str, bool]
) -> None:
    for _ in range(2):
        outcome = await publish(amqp, exchange=exchange, routing_key="other")

        assert isinstance(outcome, Failure)
        assert (outcome.code, outcome.retryable) == expected


async def test_next_message_arrives_after_a_rejected_message(acme: Acme, amqp: AmqpTargets) -> None:
    await publish(amqp, exchange="acme.nowhere")

    assert await publish(amqp, text="next") == Success()
    assert (await acme.next()).body == b"next"


async def test_rejected_messages_do_not_affect_other_routes(acme: Acme, amqp: AmqpTargets) -> None:
    exchanges = [EXCHANGE, INTERNAL, EXCHANGE, "acme.nowhere", EXCHANGE] * 40
    await publish(amqp)

    outcomes = await asyncio.gather(*(publish(amqp, exchange=name) for name in exchanges))

    results = {
        name: {
            outcome.code if isinstance(outcome, Failure) else "success"
            for exchange, outcome in zip(exchanges, outcomes, strict=True)
            if exchange == name
        }
        for name in exchanges
    }
    assert results == {
        EXCHANGE: {"success"},
        INTERNAL: {"not_allowed"},
        "acme.nowhere": {"no_exchange"},
    }
    assert (await acme.channel.declare_queue(acme.queue.name, passive=True)).declaration_result


async def test_route_uses_a_probe_connection_again_after_a_failure(
    acme: Acme, amqp: AmqpTargets
) -> None:
    """The close of a shared channel may have another cause, so its reason does not count."""
    gone = await acme.channel.declare_exchange("acme.gone", "fanout")
    await acme.queue.bind(gone)
    assert await publish(amqp, exchange="acme.gone") == Success()
    await gone.delete()

    outcomes = [await publish(amqp, exchange="acme.gone") for _ in range(2)]

    codes = [outcome.code for outcome in outcomes if isinstance(outcome, Failure)]
    assert codes == ["broker_unavailable", "no_exchange"]


@pytest.mark.measures
@pytest.mark.requirement("P5")
async def test_message_to_many_queues_delays_no_message_of_another_tenant(
    acme: Acme, amqp: AmqpTargets
) -> None:
    """Compare the longest confirm beside the messages of the own and of another tenant."""
    wide = await acme.channel.declare_exchange("acme.wide", "fanout", auto_delete=True)
    for _ in range(QUEUES):
        queue = await acme.channel.declare_queue(
            exclusive=True, arguments={"x-max-length": 1, "x-overflow": "drop-head"}
        )
        await queue.bind(wide)
    await publish(amqp, exchange="acme.wide")
    for tenant in ("acme", "umbrella"):
        await publish(amqp, tenant=tenant)  # verifies the route and opens the connection

    async def longest_of(tenant: str) -> float:
        flood = [
            asyncio.create_task(publish(amqp, tenant="acme", exchange="acme.wide", text=LONG_TEXT))
            for _ in range(FLOOD)
        ]
        seconds = []
        for _ in range(10):
            began = monotonic()
            assert await publish(amqp, tenant=tenant) == Success()
            seconds.append(monotonic() - began)
        await asyncio.gather(*flood)
        return max(seconds)

    own, other = await longest_of("acme"), await longest_of("umbrella")

    assert other < own / 2


async def test_connections_of_idle_tenants_are_closed() -> None:
    opened: list[str] = []
    closed: list[str] = []

    class Recorded:
        def __init__(self, tenant: str) -> None:
            self.tenant = tenant
            opened.append(tenant)

        async def publish(self, *_: object, **__: object) -> None:
            await asyncio.sleep(0)

        async def close(self) -> None:
            closed.append(self.tenant)

    amqp = AmqpTargets(Recorded)
    for number in range(MAX_IDLE + 1):
        await publish(amqp, tenant=f"tenant-{number}")
    await publish(amqp, tenant="tenant-1")

    assert closed == ["tenant-0", "tenant-0"]
    assert len(opened) == 2 * (MAX_IDLE + 1)
    await amqp.close()
    assert sorted(closed) == sorted(opened)


async def test_outcome_is_retryable_when_rabbitmq_is_unavailable() -> None:
    async with open_amqp("amqp://127.0.0.1:9/", name="target tests", properties={}) as amqp:
        outcome = await publish(amqp)

    assert isinstance(outcome, Failure)
    assert (outcome.code, outcome.retryable) == ("broker_unavailable", True)
