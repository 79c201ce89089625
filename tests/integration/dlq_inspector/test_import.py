"""What was shown of a letter is enough to keep it again, here or elsewhere."""

from typing import Any

import pytest
from tests.integration.dlq_inspector.environment import DlqEnvironment, dead_letter_id

from harebell.client import Client
from harebell.contract import amqp_names
from harebell.contract.accepted_commands import AcceptedCommand

_CLEAR = "TRUNCATE dead_letters, failure_groups"


async def bring(environment: DlqEnvironment, *letters: Any, tenant: str = "acme") -> Any:
    told = [{name: letter[name] for name in ("kind", "payload", "body")} for letter in letters]
    item = AcceptedCommand(index=0, body={"letters": told})
    await environment.send_items("dlq.import", item, tenant=tenant)
    return await environment.next_response()


@pytest.mark.requirement("S109")
async def test_a_dead_run_that_was_exported_is_the_same_when_it_is_imported(
    dlq: DlqEnvironment,
) -> None:
    dead = await dlq.add_dead_run()
    await dlq.wait_for_dead_letters(1)
    told = await dlq.acme.dead_letter(dead_letter_id(dead))
    await dlq.database.execute(_CLEAR)

    first, second = await bring(dlq, told), await bring(dlq, told)

    assert first["results"] == {str(dead_letter_id(dead)): "imported"}
    assert second["results"] == {str(dead_letter_id(dead)): "present"}
    assert await dlq.acme.dead_letter(dead_letter_id(dead)) == told
    assert len([group async for group in dlq.acme.failure_groups()]) == 1


@pytest.mark.requirement("S109")
async def test_a_message_that_was_exported_is_the_same_when_it_is_imported(
    dlq: DlqEnvironment,
) -> None:
    await dlq.publish(amqp_names.DEAD, "x", b"\x00rubbish", None, headers={"colour": "red"})
    async with Client.connect(dlq.settings.amqp_url.get_secret_value()) as default:
        [line] = await dlq.wait_for_dead_letters(1, default)
        told = await default.dead_letter(line["id"])
        await dlq.database.execute(_CLEAR)

        await bring(dlq, told, tenant="default")

        assert await default.dead_letter(line["id"]) == told


async def test_a_letter_of_another_tenant_or_none_at_all_is_not_imported(
    dlq: DlqEnvironment,
) -> None:
    dead = await dlq.add_dead_run()
    await dlq.wait_for_dead_letters(1)
    told = await dlq.acme.dead_letter(dead_letter_id(dead))

    foreign = await bring(dlq, told, tenant="other")
    rubbish = await bring(dlq, told, {"kind": "run", "payload": {}, "body": None})

    assert (foreign["error"]["code"], foreign["error"]["field"]) == (
        "foreign_tenant",
        "letters[0]",
    )
    assert rubbish["error"]["field"].startswith("letters[1].")
