"""The time of acceptance, by which the ticker recognises an old command."""

from datetime import datetime
from types import SimpleNamespace
from typing import Any, cast

from tests.fakes.publisher import FakePublisher
from tests.fakes.replies import RecordedReplies
from tests.fakes.schedules import TASK
from tests.fakes.sender_check import open_sender_check
from tests.fakes.tickets import after

from harebell.contract.accepted_commands import AcceptedCommands
from harebell.contract.json_codec import encode_plain
from harebell.intake.commands.handler import CommandHandler
from harebell.intake.commands.rules import IntakePolicy
from harebell.messaging.acknowledge import Delivery


class SteppingClock:
    """A clock with the given readings."""

    def __init__(self, *readings: datetime) -> None:
        self.readings = list(readings)

    def now(self) -> datetime:
        return self.readings.pop(0)


def put() -> Delivery:
    message = SimpleNamespace(
        body=encode_plain([{"key": "daily", "when": {"every": "1h"}, "target": TASK}]),
        routing_key="default.schedule.put",
        message_id="r-1",
        reply_to=None,
        correlation_id=None,
        user_id=None,
        type=None,
        exchange="harebell.commands",
        headers={},
    )
    return Delivery(cast("Any", message), "harebell.intake")


async def test_time_of_acceptance_never_moves_back_with_the_clock() -> None:
    publisher = FakePublisher()
    clock = SteppingClock(after(10), after(5), after(20))
    replies = RecordedReplies(publisher.published)
    sender_check, rejection_events = open_sender_check(publisher, clock, replies=replies)
    handler = CommandHandler(
        publisher=publisher,
        clock=cast("Any", clock),
        policy=IntakePolicy(),
        replies=replies,
        sender_check=sender_check,
        rejection_events=rejection_events,
    )

    for _ in range(3):
        await handler.handle([put()])

    accepted = [AcceptedCommands.model_validate_json(each.body) for each in publisher.published]
    assert [each.accepted_at for each in accepted] == [after(10), after(10), after(20)]
