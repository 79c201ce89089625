"""The dlq_inspector stores each message of `harebell.dead` once and acknowledges it."""

import base64
from typing import Final

import aio_pika
import pytest
from tests.integration.dlq_inspector.environment import (
    NINE,
    SCHEDULE,
    TARGET,
    TIMEOUT,
    DlqEnvironment,
    dead_letter_id,
    dead_run,
)
from tests.rig.polling import until

from harebell.contract import amqp_names
from harebell.contract.dead_letter import DeadMessage, DeadRun
from harebell.contract.errors import CommandRejected
from harebell.contract.ids import RunKey, failure_group_id
from harebell.contract.json_codec import encode_all
from harebell.contract.views import DeadLetterDetail
from harebell.messaging.topology.bus import DEAD_LETTERS, DLQ, INTAKE

_INSERT_UNOWNED: Final = """
INSERT INTO dead_letters (id, tenant, kind, reason, attempts, dead_at, state, payload, group_id)
VALUES (gen_random_uuid(), 'default', 'message', 'x', 0, now(), 'open',
    '{"queue": "harebell.dispatcher", "routing_key": "run"}', gen_random_uuid())
ON CONFLICT (id) DO NOTHING RETURNING id
"""
_REJECT: Final = """
CREATE FUNCTION reject() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF new.body = 'rejected' THEN RAISE EXCEPTION 'rejected by a trigger'; END IF;
    RETURN new;
END $$;
CREATE TRIGGER reject BEFORE INSERT ON dead_letters FOR EACH ROW EXECUTE FUNCTION reject()
"""
DEATHS: Final = 22  # RabbitMQ 4 returns a message 20 times by default


def body_of(detail: DeadLetterDetail) -> bytes:
    assert detail.body is not None
    return base64.b64decode(detail.body)


@pytest.mark.requirement("S109")
async def test_dead_run_has_a_line_in_the_list_and_a_detail_with_its_payload(
    dlq: DlqEnvironment,
) -> None:
    dead = await dlq.add_dead_run()

    [line] = await dlq.wait_for_dead_letters(1)
    detail = await dlq.acme.dead_letter(line.id)

    assert line.model_dump(mode="json") == {
        "id": str(dead_letter_id(dead)),
        "kind": "run",
        "run_id": dead.run_id,
        "key": "report",
        "tenant": "acme",
        "reason": "attempts_exhausted",
        "error_code": "http_503",
        "error": "503 Service Unavailable",
        "attempts": 2,
        "dead_at": f"{NINE:%Y-%m-%dT}09:00:00Z",
        "state": "open",
        "replays": 0,
        "run_state": "dead",
        "group": str(
            failure_group_id(
                "acme",
                "http POST acme.example:443",
                error_code="http_503",
                message="<n> Service Unavailable",
            )
        ),
    }
    dead_run = DeadRun.model_validate(detail.payload)
    assert dead_run.target == TARGET
    assert [attempt.number for attempt in dead_run.attempts] == [1, 2]
    assert (detail.replay_history, detail.root_id) == ([], None)


async def test_dead_letter_is_stored_once_when_its_message_is_repeated(dlq: DlqEnvironment) -> None:
    dead = dead_run(RunKey(NINE, SCHEDULE))
    for _ in range(3):
        await dlq.publish(amqp_names.DEAD, "run.acme", encode_all([dead, dead]), "run.dead")
    await dlq.add_dead_run(number=1)

    assert len(await dlq.wait_for_dead_letters(2)) == 2
    await dlq.wait_until_empty(DEAD_LETTERS.name)


@pytest.mark.requirement("S110")
async def test_unreadable_message_is_stored_raw_and_delays_no_other(dlq: DlqEnvironment) -> None:
    unreadable = b"\x00\xff not json"

    await dlq.publish(amqp_names.DEAD, "whatever", unreadable, None, headers={"colour": "red\0"})
    await dlq.publish(amqp_names.DEAD, "run.acme", unreadable, "run.dead", message_id="m\0")
    await dlq.add_dead_run()

    await dlq.wait_for_dead_letters(1)
    async with dlq.operators() as operators:
        lines = await dlq.wait_for_dead_letters(2, operators)
        detail = await operators.dead_letter(lines[0].id)
    assert {line.kind for line in lines} == {"message"}
    assert body_of(detail) == unreadable
    await dlq.wait_until_empty(DEAD_LETTERS.name)


async def test_message_that_the_broker_dead_letters_has_its_queue(dlq: DlqEnvironment) -> None:
    source = await dlq.channel.declare_queue(
        "harebell.intake.test",
        exclusive=True,
        arguments={"x-dead-letter-exchange": amqp_names.UNDELIVERED},
    )
    await dlq.publish("", source.name, b"poison", None, headers={"colour": "red"})
    message = await until(lambda: source.get(fail=False), within=TIMEOUT, what="the message")
    assert message is not None
    await message.reject()

    async with dlq.client_of("test") as owner:
        [line] = await dlq.wait_for_dead_letters(1, owner)
        detail = await owner.dead_letter(line.id)
    assert (line.reason, detail.queue) == ("rejected", source.name)
    assert detail.headers is not None
    assert detail.headers["colour"] == "red"
    assert body_of(detail) == b"poison"


async def test_dead_command_belongs_to_the_tenant_of_its_publisher(dlq: DlqEnvironment) -> None:
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
    detail = await dlq.acme.dead_letter(line.id)

    assert (line.kind, line.reason, line.run_id) == ("message", "not_json", None)
    assert (detail.queue, detail.headers) == (INTAKE.name, {"colour": "red"})
    assert body_of(detail) == b"{"


async def test_unreadable_command_becomes_a_dead_letter_and_delays_no_other(
    dlq: DlqEnvironment,
) -> None:
    await dlq.publish(amqp_names.CHANGES, amqp_names.CHANGES_DLQ, b"{", "accepted_commands")
    dead = await dlq.add_dead_run()

    async with dlq.operators() as operators:
        [line] = await dlq.wait_for_dead_letters(1, operators)
        detail = await operators.dead_letter(line.id)
    assert (detail.queue, body_of(detail)) == (DLQ.name, b"{")
    await dlq.wait_for_dead_letters(1)
    await dlq.send_command("dlq.discard", dead_letter_id(dead))
    assert await dlq.next_results() == {dead_letter_id(dead): "discarded"}


async def test_deleted_queue_is_declared_and_consumed_again(dlq: DlqEnvironment) -> None:
    await dlq.add_dead_run()
    await dlq.wait_for_dead_letters(1)

    await dlq.channel.queue_delete(DEAD_LETTERS.name)
    await dlq.wait_until_consumed(DEAD_LETTERS.name)
    await dlq.add_dead_run(number=1)

    assert len(await dlq.wait_for_dead_letters(2)) == 2


@pytest.mark.requirement("S109")
@pytest.mark.broker_version
async def test_dead_letter_is_stored_after_22_deliveries_to_killed_processes(
    environment: DlqEnvironment,
) -> None:
    dead = await environment.add_dead_run()
    for _ in range(DEATHS):
        await deliver_without_acknowledgement(environment)

    async with environment.running_inspector():
        [dead_letter] = await environment.wait_for_dead_letters(1)

    assert dead_letter.id == dead_letter_id(dead)


async def deliver_without_acknowledgement(environment: DlqEnvironment) -> None:
    async with await aio_pika.connect(
        environment.settings.amqp_url.get_secret_value()
    ) as connection:
        queue = await (await connection.channel()).get_queue(DEAD_LETTERS.name, ensure=False)
        await until(lambda: queue.get(fail=False), within=TIMEOUT, what="a dead letter")


@pytest.mark.requirement("P4")
async def test_unowned_dead_letter_of_an_older_version_moves_to_the_operators(
    environment: DlqEnvironment,
) -> None:
    """An older dlq_inspector stores such a dead letter for `default` during an upgrade."""
    stored = await environment.database.fetchval(_INSERT_UNOWNED)

    async with environment.running_inspector(), environment.operators() as operators:
        [moved] = await environment.wait_for_dead_letters(1, operators)

    assert (moved.id, moved.tenant) == (stored, "harebell")


async def test_dead_letter_that_the_database_rejects_is_parked_and_shown_to_operators(
    environment: DlqEnvironment,
) -> None:
    """A rejection of one dead letter delays no other, and ends with an alert."""
    await environment.database.execute(_REJECT)
    await environment.publish(
        amqp_names.DEAD, "run.acme", b"rejected", None, message_id="m-1", headers={"x": "rejected"}
    )
    await environment.add_dead_run()

    async with environment.running_inspector():
        await environment.wait_for_dead_letters(1)
        await environment.wait_until_empty(DEAD_LETTERS.name)
        async with environment.operators() as operators:
            view = await operators.parked_dead_letters()
            again = await operators.parked_dead_letters(limit=1)
        with pytest.raises(CommandRejected) as caught:
            await environment.acme._query("dlq.parked", {})  # noqa: SLF001  # of another tenant

    [message] = view.messages
    assert (view.total, again) == (1, view)
    assert (message.message_id, message.routing_key) == ("m-1", "run.acme")
    assert (message.reason, message.size) == ("rejected", len(b"rejected"))
    assert base64.b64decode(message.body) == b"rejected"
    assert message.parked_at is not None
    assert caught.value.code == "not_allowed"
