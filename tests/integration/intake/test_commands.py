"""Tests of commands on a real broker: passed on in order, or rejected with field and reason."""

from datetime import UTC, datetime, timedelta

import pytest
from tests.integration.intake.conftest import IntakeBus

from harebell.contract import amqp_names
from harebell.contract.commands import SchedulePut
from harebell.contract.ids import schedule_id
from harebell.messaging.topology.bus import DLQ

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

HOOK = {"http": {"url": "http://127.0.0.1:8080/hook"}}
DAILY = {"key": "daily", "when": {"cron": "0 9 * * *"}, "target": HOOK}
INVALID = {"key": "invalid", "when": {"cron": "75 9 * * *"}, "target": HOOK}


async def test_valid_command_reaches_the_ticker_as_an_accepted_command(intake: IntakeBus) -> None:
    await intake.send("schedule.put", DAILY, message_id="m-1")

    commands = await intake.next_commands()

    assert (commands.tenant, commands.verb, commands.single) == ("acme", "schedule.put", True)
    assert (commands.reply_to, commands.correlation_id) == (intake.responses.name, "c-1")
    assert abs(datetime.now(UTC) - commands.accepted_at) < timedelta(minutes=1)
    (item,) = commands.items
    assert (item.request_id, item.schedule_id) == ("m-1", schedule_id("acme", "daily"))
    assert SchedulePut.model_validate(item.body).fingerprint() == (
        SchedulePut.model_validate(DAILY).fingerprint()
    )


async def test_invalid_command_gets_a_response_and_an_event_and_goes_no_further(
    intake: IntakeBus,
) -> None:
    await intake.send("schedule.put", INVALID, message_id="m-1")

    response = await intake.next_response()
    (event,) = await intake.next_events()

    assert response["ok"] is False
    error = response["error"]
    assert (error["code"], error["field"]) == ("invalid_cron", "when.cron")
    assert (event["type"], event["subject"]) == ("harebell.schedule.rejected.v1", "invalid")
    assert event["data"]["error"] == error
    assert await intake.message_counts() == {}


async def test_rejected_items_are_in_the_message_of_the_accepted_items(intake: IntakeBus) -> None:
    await intake.send("schedule.put", [DAILY, INVALID])

    commands = await intake.next_commands()
    (event,) = await intake.next_events()

    accepted, rejected = commands.items
    assert accepted.rejection is None
    assert rejected.rejection is not None
    assert rejected.rejection.error.field == "[1].when.cron"
    assert event["data"]["error"]["field"] == "[1].when.cron"
    assert await intake.message_counts() == {}


async def test_array_without_a_valid_item_gets_a_response_for_each_item(
    intake: IntakeBus,
) -> None:
    await intake.send("schedule.put", [INVALID, {**INVALID, "nmae": "typo"}])

    responses = await intake.next_response()

    codes = [response["error"]["code"] for response in responses]
    assert codes == ["invalid_cron", "unknown_field"]
    assert await intake.message_counts() == {}


async def test_body_that_is_not_json_gets_a_response_and_becomes_a_dead_letter(
    intake: IntakeBus,
) -> None:
    await intake.send("schedule.put", b"{when: now}", message_id="m-1")

    response = await intake.next_response()
    dead_letter = await intake.next_dead_letter()

    assert response["error"]["code"] == dead_letter["reason"] == "not_json"
    assert (dead_letter["queue"], dead_letter["message_id"]) == ("harebell.intake", "m-1")


async def test_invalid_message_does_not_stop_the_messages_behind_it(intake: IntakeBus) -> None:
    await intake.send("schedule.put", b"\xff\x00")
    await intake.send("no.such.verb", {})
    await intake.send("schedule.put", DAILY)

    commands = await intake.next_commands()

    assert commands.items[0].schedule_id == schedule_id("acme", "daily")


async def test_commands_are_passed_on_in_the_order_of_their_arrival(intake: IntakeBus) -> None:
    keys = [f"key-{number}" for number in range(400)]
    for key in keys:
        await intake.send("schedule.pause", {"key": key}, message_id=key)

    results = [await intake.next_commands() for _ in keys]

    assert [commands.items[0].request_id for commands in results] == keys
    accepted = [commands.accepted_at for commands in results]
    assert accepted == sorted(accepted)


async def test_dead_letter_command_reaches_the_dlq_inspector(intake: IntakeBus) -> None:
    dead_letter_id = "5f0c1a52-7d4f-5c1b-9d80-0d3c1c3f7a11"
    await intake.send("dlq.replay", {"ids": [dead_letter_id]})

    commands = await intake.next_commands(DLQ.name)

    assert commands.verb == "dlq.replay"
    assert commands.items[0].body == {"ids": [dead_letter_id]}


async def test_reply_queue_that_does_not_exist_delays_no_other_reply(intake: IntakeBus) -> None:
    await intake.send("schedule.put", INVALID, reply_to="acme.gone")
    await intake.send("schedule.put", INVALID, correlation_id="c-2")

    response = await intake.next_response()

    assert response["error"]["code"] == "invalid_cron"


@pytest.mark.parametrize("queue", ["harebell.ticker", "umbrella.answers", "orders", "acme"])
@pytest.mark.parametrize("exchange", [amqp_names.COMMANDS, amqp_names.QUERIES])
async def test_reply_queue_of_another_owner_causes_an_event_and_no_response(
    queue: str, exchange: str, intake: IntakeBus
) -> None:
    verb = "schedule.put" if exchange == amqp_names.COMMANDS else "schedule.list"
    await intake.send(verb, DAILY, exchange=exchange, reply_to=queue)

    (event,) = await intake.next_events()

    assert event["source"] == "/harebell/acme"
    assert event["subject"] == verb
    assert event["data"]["error"]["code"] == "invalid_reply_to"
    assert event["data"]["error"]["field"] == "reply_to"
    assert await intake.message_counts() == {}


async def test_bulk_operation_reaches_the_ticker_with_its_request_id(intake: IntakeBus) -> None:
    select = {"select": {"tag": "reports"}, "until": "2099-01-01T00:00:00Z"}
    await intake.send("schedule.pause", select, message_id="upgrade-7")
    await intake.send("schedule.resume", {"bulk_operation_id": "upgrade-7"}, message_id="over")

    pause, resume = await intake.next_commands(), await intake.next_commands()

    assert (pause.items[0].schedule_id, pause.items[0].request_id) == (None, "upgrade-7")
    assert pause.items[0].body == select
    assert resume.items[0].body == {"bulk_operation_id": "upgrade-7"}


@pytest.mark.requirement("S09")
async def test_put_without_when_is_passed_on_with_the_default_of_its_tenant(
    intake: IntakeBus,
) -> None:
    await intake.send("schedule.put", {"key": "often", "target": DAILY["target"]})

    commands = await intake.next_commands()

    assert commands.items[0].body["when"]["every"] == "5m"
