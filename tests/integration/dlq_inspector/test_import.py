"""An exported dead letter is complete, so an import restores it."""

from typing import Any
from uuid import UUID

import pytest
from prometheus_client import REGISTRY
from tests.integration.dlq_inspector.environment import DlqEnvironment, dead_letter_id

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
    """A report of the same message is stored beside the import."""
    await dlq.publish(amqp_names.DEAD, "x", b"\x00unreadable", None, message_id="m-1")
    async with dlq.operators() as operators:
        [line] = await dlq.wait_for_dead_letters(1, operators)
        detail = await operators.dead_letter(line.id)
        await dlq.database.execute(_CLEAR)

        [imported] = (await import_dead_letters(dlq, export(detail), tenant="harebell"))["results"]
        await dlq.publish(amqp_names.DEAD, "x", b"\x00unreadable", None, message_id="m-1")
        await dlq.wait_for_dead_letters(2, operators)

        assert await operators.dead_letter(imported) == detail.model_copy(
            update={"id": UUID(imported)}
        )
        repeated = await import_dead_letters(dlq, export(detail), tenant="harebell")

    assert repeated["results"] == {str(line.id): "already_present"}


@pytest.mark.requirement("P4")
async def test_import_of_a_run_of_another_tenant_is_counted_as_a_conflict(
    dlq: DlqEnvironment,
) -> None:
    victim = await dlq.add_dead_run(tenant="umbrella")
    planted = victim.model_dump(mode="json") | {"tenant": "acme"}
    before = REGISTRY.get_sample_value("harebell_dead_letter_conflicts_total") or 0

    response = await import_dead_letters(dlq, {"kind": "run", "payload": planted, "body": None})

    [(imported, status)] = response["results"].items()
    assert status == "imported"
    assert imported != str(dead_letter_id(victim))
    assert REGISTRY.get_sample_value("harebell_dead_letter_conflicts_total") == before + 1


@pytest.mark.requirement("P4")
async def test_import_rejects_a_time_of_death_in_the_future(dlq: DlqEnvironment) -> None:
    dead = await dlq.add_dead_run()
    late = dead.model_dump(mode="json") | {"dead_at": "2199-01-01T00:00:00Z"}

    response = await import_dead_letters(dlq, {"kind": "run", "payload": late, "body": None})

    assert (response["error"]["code"], response["error"]["field"]) == (
        "future_dead_at",
        "dead_letters[0].dead_at",
    )


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
