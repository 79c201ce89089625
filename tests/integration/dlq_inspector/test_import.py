"""An exported dead letter is complete, so an import restores it."""

from typing import Any

import pytest
from tests.integration.dlq_inspector.environment import DlqEnvironment, dead_letter_id

from harebell.client import Client
from harebell.contract import amqp_names
from harebell.contract.accepted_commands import AcceptedCommand
from harebell.contract.views import DeadLetterDetail

_CLEAR = "TRUNCATE dead_letters, failure_groups"


def export(detail: DeadLetterDetail) -> dict[str, Any]:
    return detail.model_dump(include={"kind", "payload", "body"})


async def import_dead_letters(
    environment: DlqEnvironment, *exported: dict[str, Any], tenant: str = "acme"
) -> Any:
    item = AcceptedCommand(index=0, body={"dead_letters": list(exported)})
    await environment.send_items("dlq.import", item, tenant=tenant)
    return await environment.next_response()


@pytest.mark.requirement("S109")
async def test_dead_run_is_unchanged_after_its_export_and_import(dlq: DlqEnvironment) -> None:
    dead = await dlq.add_dead_run()
    await dlq.wait_for_dead_letters(1)
    detail = await dlq.acme.dead_letter(dead_letter_id(dead))
    await dlq.database.execute(_CLEAR)

    first = await import_dead_letters(dlq, export(detail))
    second = await import_dead_letters(dlq, export(detail))

    assert first["results"] == {str(dead_letter_id(dead)): "imported"}
    assert second["results"] == {str(dead_letter_id(dead)): "already_present"}
    assert await dlq.acme.dead_letter(dead_letter_id(dead)) == detail
    assert len([group async for group in dlq.acme.failure_groups()]) == 1


@pytest.mark.requirement("S109")
async def test_dead_message_is_unchanged_after_its_export_and_import(dlq: DlqEnvironment) -> None:
    await dlq.publish(amqp_names.DEAD, "x", b"\x00unreadable", None, headers={"colour": "red"})
    async with Client.connect(dlq.settings.amqp_url.get_secret_value()) as fallback:
        [line] = await dlq.wait_for_dead_letters(1, fallback)
        detail = await fallback.dead_letter(line.id)
        await dlq.database.execute(_CLEAR)

        await import_dead_letters(dlq, export(detail), tenant="default")

        assert await fallback.dead_letter(line.id) == detail


async def test_import_rejects_an_invalid_dead_letter_and_one_of_another_tenant(
    dlq: DlqEnvironment,
) -> None:
    dead = await dlq.add_dead_run()
    await dlq.wait_for_dead_letters(1)
    detail = await dlq.acme.dead_letter(dead_letter_id(dead))

    foreign = await import_dead_letters(dlq, export(detail), tenant="other")
    empty: dict[str, Any] = {"kind": "run", "payload": {}, "body": None}
    invalid = await import_dead_letters(dlq, export(detail), empty)

    assert (foreign["error"]["code"], foreign["error"]["field"]) == (
        "foreign_tenant",
        "dead_letters[0]",
    )
    assert invalid["error"]["field"].startswith("dead_letters[1].")
