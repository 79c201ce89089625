"""The messages of a batch of commands: one for the ticker from each intake queue."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast
from uuid import UUID

import pytest
from tests.fakes.publisher import FakePublisher
from tests.fakes.replies import RecordedReplies
from tests.fakes.schedules import TASK
from tests.fakes.sender_check import open_sender_check
from tests.fakes.tickets import after

from harebell.contract.accepted_commands import ACCEPTED_BATCH, AcceptedCommands
from harebell.contract.amqp_names import COMMANDS, tenant_exchange
from harebell.contract.json_codec import decode_model, encode_plain, list_adapter
from harebell.intake.commands.handler import CommandHandler
from harebell.intake.commands.rules import IntakePolicy
from harebell.messaging.accepted_messages import TenantWindows
from harebell.messaging.acknowledge import DONE, Delivery
from harebell.messaging.publisher import OutgoingMessage
from harebell.messaging.received_message import ReceivedMessage
from harebell.messaging.topology.bus import INTAKE, tenant_intake_queue

BATCH = list_adapter(AcceptedCommands)
QUEUE = tenant_intake_queue("acme").name


def put(key: str, queue: str = INTAKE.name, *, every: str = "1h") -> Delivery:
    tenant = queue.rpartition(".")[2] if queue != INTAKE.name else "default"
    message = ReceivedMessage(
        body=encode_plain([{"key": key, "when": {"every": every}, "target": TASK}]),
        routing_key=f"{tenant}.schedule.put",
        message_id=key,
        exchange=COMMANDS if queue == INTAKE.name else tenant_exchange(tenant),
    )
    return Delivery(message, queue)


class FrozenClock:
    def now(self) -> datetime:
        return after(0)


async def outgoing(*deliveries: Delivery) -> Sequence[OutgoingMessage]:
    publisher, clock = FakePublisher(), cast("Any", FrozenClock())
    replies = RecordedReplies(publisher.published)
    sender_check, rejection_events = open_sender_check(publisher, clock, replies=replies)
    handler = CommandHandler(
        publisher=publisher,
        clock=clock,
        policy=IntakePolicy(),
        replies=replies,
        sender_check=sender_check,
        rejection_events=rejection_events,
        windows=TenantWindows(shared_queue=INTAKE.name),
        credit_queue="harebell.control.intake.one",
    )
    outcomes = await handler.handle(deliveries)
    assert outcomes == [DONE] * len(deliveries)
    return [each for each in publisher.published if each.exchange == "harebell.changes"]


def keys_of(message: OutgoingMessage) -> list[str]:
    commands = decode_model(BATCH, message.body)
    return [item.body["key"] for each in commands for item in each.items if item.body]


async def test_commands_of_one_queue_become_one_message_in_their_order() -> None:
    (message,) = await outgoing(put("c"), put("a"), put("b"))

    assert message.type == ACCEPTED_BATCH
    assert keys_of(message) == ["c", "a", "b"]


async def test_rejected_command_leaves_the_others_unchanged() -> None:
    (message,) = await outgoing(put("a"), put("b", every="never"), put("c"))

    assert keys_of(message) == ["a", "c"]


async def test_each_queue_has_its_own_message_and_one_credit() -> None:
    shared, own = await outgoing(put("a"), put("b", QUEUE), put("c"), put("d", QUEUE))

    assert (keys_of(shared), keys_of(own)) == (["a", "c"], ["b", "d"])
    assert shared.headers == {}
    assert own.headers["harebell-credit-number"] == 1
    assert own.headers["harebell-tenant"] == "acme"


@pytest.mark.requirement("P6")
@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("run.heartbeat", {"run_id": f"{UUID(int=7)}@20261120T140000000Z", "fencing_token": 1}),
        ("dlq.discard", {"ids": [str(UUID(int=7))]}),
    ],
)
async def test_report_and_command_about_dead_letters_request_a_credit(
    verb: str, body: dict[str, Any]
) -> None:
    message = ReceivedMessage(
        body=encode_plain([body]),
        routing_key=f"acme.{verb}",
        message_id=verb,
        exchange=tenant_exchange("acme"),
    )

    (passed_on,) = await outgoing(Delivery(message, QUEUE))

    assert passed_on.headers["harebell-credit-number"] == 1
    assert passed_on.headers["harebell-tenant"] == "acme"


async def test_repeated_batch_has_the_same_message_id() -> None:
    (first,) = await outgoing(put("a"), put("b"))
    (again,) = await outgoing(put("a"), put("b"))
    (other,) = await outgoing(put("a"), put("c"))

    assert first.message_id == again.message_id != other.message_id


async def test_single_command_has_a_message_of_its_own_type() -> None:
    (message,) = await outgoing(put("a"))

    assert message.type == "harebell.accepted_commands.v1"
    assert message.message_id == "a"
