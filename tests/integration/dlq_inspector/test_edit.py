"""A dead letter that was edited: its copy calls what a person wrote, and is linked to it."""

from typing import Any
from uuid import UUID

import orjson
import pytest
from tests.integration.dlq_inspector.environment import TARGET, Office, dead_letter_id

from harebell.contract.accepted_commands import AcceptedCommand
from harebell.contract.ids import RunKey

MOVED = {"http": {"url": "https://acme.example/v2", "json": {"day": None, "n": 1.5}}}


async def edit(office: Office, letter: UUID, target: Any) -> dict[UUID, str]:
    body = {"id": str(letter), "target": target, "note": "they have moved"}
    await office.change("dlq.edit", AcceptedCommand(index=0, body=body))
    return await office.results()


@pytest.mark.requirement("S112")
async def test_an_edited_copy_calls_what_was_written_and_tells_of_its_original(
    inspected: Office,
) -> None:
    dead = await inspected.run_dies()
    await inspected.kept(1)

    [(copy, status)] = (await edit(inspected, dead_letter_id(dead), MOVED)).items()
    assert await edit(inspected, dead_letter_id(dead), MOVED) == {copy: status} == {copy: "edited"}
    await inspected.command("dlq.replay", copy, dead_letter_id(dead))

    assert await inspected.results() == {copy: "replayed", dead_letter_id(dead): "not_replayable"}
    [ticket] = await inspected.tickets(1)
    http = ticket["run_spec"]["target"]["http"]
    assert (http["url"], http["json"]) == ("https://acme.example/v2", {"day": None, "n": 1.5})
    # executors claim by this text, as they write it
    row = await inspected.run(dead)
    assert row["override"] == orjson.dumps(ticket["override"]).decode()
    whole = await inspected.acme.dead_letter(copy)
    assert (whole["edited_from"], whole["state"]) == (str(dead_letter_id(dead)), "replayed")
    assert (whole["edited"]["actor"], whole["edited"]["note"]) == ("ann", "they have moved")
    assert whole["payload"]["target"]["http"]["url"] == "https://acme.example/v2"
    original = await inspected.acme.dead_letter(dead_letter_id(dead))
    assert (original["state"], original["payload"]["target"]) == ("edited", TARGET)


async def test_what_is_no_open_letter_of_a_run_is_not_edited(inspected: Office) -> None:
    dead = await inspected.run_dies()
    await inspected.kept(1)
    await inspected.command("dlq.discard", dead_letter_id(dead))
    await inspected.answer()

    assert await edit(inspected, dead_letter_id(dead), MOVED) == {
        dead_letter_id(dead): "not_editable"
    }
    assert await edit(inspected, UUID(int=1), MOVED) == {UUID(int=1): "not_found"}


async def test_a_run_that_was_edited_and_dies_again_keeps_what_was_written(
    inspected: Office,
) -> None:
    dead = await inspected.run_dies()
    await inspected.kept(1)
    [copy] = await edit(inspected, dead_letter_id(dead), MOVED)
    await inspected.command("dlq.replay", copy)
    await inspected.answer()
    again = await inspected.run_dies(replay_number=1)
    await inspected.kept(3)

    await inspected.command("dlq.replay", dead_letter_id(again))
    await inspected.answer()

    tickets = await inspected.tickets(2)
    urls = {ticket["run_spec"]["target"]["http"]["url"] for ticket in tickets}
    assert urls == {"https://acme.example/v2"}
    assert (await inspected.run(again))["replay_number"] == 3
    assert RunKey.parse(dead.run_id) == RunKey.parse(again.run_id)
