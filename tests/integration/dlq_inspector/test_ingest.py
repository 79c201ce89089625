"""Whatever reaches `harebell.dead` is kept, once, and nothing is left behind in the queue."""

import asyncio
import base64
from typing import Final

import aio_pika
import pytest
from tests.integration.dlq_inspector.environment import (
    NINE,
    TIMEOUT,
    SCHEDULE,
    TARGET,
    DlqEnvironment,
    dead_letter_id,
    dead_run,
)

from harebell.client import Client
from harebell.contract import amqp_names
from harebell.contract.dead_letter import DeadMessage
from harebell.contract.ids import RunKey, failure_group_id
from harebell.contract.json_codec import encode_all
from harebell.messaging.topology.bus import DEAD_LETTERS, DLQ, INTAKE

DEATHS: Final = 22  # RabbitMQ 4 lets a message come back 20 times where nothing else is said


@pytest.mark.requirement("S109")
async def test_a_dead_run_is_listed_and_shown_with_its_story(dlq: DlqEnvironment) -> None:
    dead = await dlq.add_dead_run()

    [line] = await dlq.wait_for_dead_letters(1)
    whole = await dlq.acme.dead_letter(line["id"])

    assert line == {
        "id": str(dead_letter_id(dead)),
        "kind": "run",
        "run_id": dead.run_id,
        "key": "report",
        "tenant": "acme",
        "reason": "attempts_exhausted",
        "error_code": "http_503",
        "error": "503 Service Unavailable",
        "attempts": 2,
        "dead_at": f"{NINE:%Y-%m-%dT}09:01:00Z",
        "state": "open",
        "replays": 0,
        "run_state": "dead",
        "group": str(
            failure_group_id(
                *("acme", "http POST https://acme.example", "http_503"), "<n> Service Unavailable"
            )
        ),
    }
    assert whole["payload"]["target"] == TARGET
    assert [attempt["number"] for attempt in whole["payload"]["attempts"]] == [1, 2]
    assert (whole["replay_history"], whole["root_id"]) == ([], None)


async def test_what_comes_twice_is_kept_once(dlq: DlqEnvironment) -> None:
    dead = dead_run(RunKey(NINE, SCHEDULE))
    for _ in range(3):
        await dlq.publish(amqp_names.DEAD, "run.acme", encode_all([dead, dead]), "run.dead")
    await dlq.add_dead_run(number=1)

    assert len(await dlq.wait_for_dead_letters(2)) == 2
    await dlq.wait_until_empty(DEAD_LETTERS.name)


@pytest.mark.requirement("S110")
async def test_rubbish_is_kept_as_it_is_and_stops_nothing(dlq: DlqEnvironment) -> None:
    rubbish = b"\x00\xff not json"

    await dlq.publish(amqp_names.DEAD, "whatever", rubbish, None, headers={"colour": "red\0"})
    await dlq.publish(amqp_names.DEAD, "run.acme", rubbish, "run.dead", message_id="m\0")
    await dlq.add_dead_run()

    await dlq.wait_for_dead_letters(1)
    async with Client.connect(dlq.settings.amqp_url.get_secret_value()) as default:
        lines = await dlq.wait_for_dead_letters(2, default)
        whole = await default.dead_letter(lines[0]["id"])
    assert {line["kind"] for line in lines} == {"message"}
    assert base64.b64decode(whole["body"]) == rubbish
    await dlq.wait_until_empty(DEAD_LETTERS.name)


async def test_what_the_broker_dead_letters_says_where_it_died(dlq: DlqEnvironment) -> None:
    source = await dlq.channel.declare_queue(
        "harebell.intake.trial",
        exclusive=True,
        arguments={"x-dead-letter-exchange": amqp_names.DEAD},
    )
    await dlq.publish("", source.name, b"poison", None, headers={"colour": "red"})
    async with asyncio.timeout(TIMEOUT):
        while (message := await source.get(fail=False)) is None:
            continue

    await message.reject()

    async with Client.connect(dlq.settings.amqp_url.get_secret_value()) as default:
        [line] = await dlq.wait_for_dead_letters(1, default)
        whole = await default.dead_letter(line["id"])
    assert (line["reason"], whole["queue"]) == ("rejected", source.name)
    assert whole["headers"]["colour"] == "red"
    assert base64.b64decode(whole["body"]) == b"poison"


async def test_a_poisoned_command_is_shown_to_the_tenant_that_sent_it(dlq: DlqEnvironment) -> None:
    dead = DeadMessage(
        queue=INTAKE.name,
        routing_key="acme.schedule.put",
        reason="not_json",
        dead_at=NINE,
        headers={"colour": "red"},
        body=base64.b64encode(b"{").decode(),
    )
    await dlq.publish(amqp_names.DEAD, "message.x", encode_all([dead]), "message.dead")

    [line] = await dlq.wait_for_dead_letters(1)
    whole = await dlq.acme.dead_letter(line["id"])

    assert (line["kind"], line["reason"], line["run_id"]) == ("message", "not_json", None)
    assert (whole["queue"], whole["headers"]) == (INTAKE.name, {"colour": "red"})
    assert base64.b64decode(whole["body"]) == b"{"


async def test_a_command_that_nobody_can_read_becomes_a_letter_and_stops_nothing(
    dlq: DlqEnvironment,
) -> None:
    await dlq.publish(amqp_names.CHANGES, amqp_names.CHANGES_DLQ, b"{", "accepted_commands")
    dead = await dlq.add_dead_run()

    async with Client.connect(dlq.settings.amqp_url.get_secret_value()) as default:
        [line] = await dlq.wait_for_dead_letters(1, default)
        whole = await default.dead_letter(line["id"])
    assert (whole["queue"], base64.b64decode(whole["body"])) == (DLQ.name, b"{")
    await dlq.wait_for_dead_letters(1)
    await dlq.send_command("dlq.discard", dead_letter_id(dead))
    assert await dlq.next_results() == {dead_letter_id(dead): "dropped"}


async def test_a_queue_that_was_deleted_is_declared_and_consumed_again(dlq: DlqEnvironment) -> None:
    await dlq.add_dead_run()
    await dlq.wait_for_dead_letters(1)

    await dlq.channel.queue_delete(DEAD_LETTERS.name)
    await dlq.wait_until_consumed(DEAD_LETTERS.name)
    await dlq.add_dead_run(number=1)

    assert len(await dlq.wait_for_dead_letters(2)) == 2


@pytest.mark.requirement("S109")
@pytest.mark.broker_version
async def test_a_letter_that_came_back_from_inspectors_that_died_is_kept(
    environment: DlqEnvironment,
) -> None:
    dead = await environment.add_dead_run()
    for _ in range(DEATHS):
        await delivered_to_the_doomed(environment)

    async with environment.running_inspector():
        [letter] = await environment.wait_for_dead_letters(1)

    assert letter["id"] == str(dead_letter_id(dead))


async def delivered_to_the_doomed(environment: DlqEnvironment) -> None:
    async with (
        await aio_pika.connect(environment.settings.amqp_url.get_secret_value()) as connection,
        asyncio.timeout(TIMEOUT),
    ):
        queue = await (await connection.channel()).get_queue(DEAD_LETTERS.name, ensure=False)
        while await queue.get(fail=False) is None:
            continue
