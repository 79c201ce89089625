"""The edited copy of a dead letter calls the new target and refers to its original."""

from typing import Any
from uuid import UUID

import asyncpg
import orjson
import pytest
from tests.integration.dlq_inspector.environment import (
    TARGET,
    TIMEOUT,
    DlqEnvironment,
    dead_letter_id,
)
from tests.rig.polling import until

from harebell.contract.accepted_commands import AcceptedCommand
from harebell.contract.ids import RunKey

MOVED = {"http": {"url": "https://acme.example/v2", "json": {"day": None, "n": 1.5}}}


async def edit(environment: DlqEnvironment, id_: UUID, target: Any) -> dict[UUID, str]:
    body = {"id": str(id_), "target": target, "note": "they have moved"}
    await environment.send_items("dlq.edit", AcceptedCommand(index=0, body=body))
    return await environment.next_results()


@pytest.mark.requirement("S112")
async def test_edited_copy_calls_the_new_target_and_names_its_original(dlq: DlqEnvironment) -> None:
    dead = await dlq.add_dead_run()
    await dlq.wait_for_dead_letters(1)

    [(copy, status)] = (await edit(dlq, dead_letter_id(dead), MOVED)).items()
    assert await edit(dlq, dead_letter_id(dead), MOVED) == {copy: status} == {copy: "edited"}
    await dlq.send_command("dlq.replay", copy, dead_letter_id(dead))

    assert await dlq.next_results() == {copy: "replayed", dead_letter_id(dead): "not_replayable"}
    [ticket] = await dlq.next_tickets(1)
    http = ticket["run_spec"]["target"]["http"]
    assert (http["url"], http["json"]) == ("https://acme.example/v2", {"day": None, "n": 1.5})
    # executors compare this text with the text that they write
    row = await dlq.run_row(dead)
    assert row["override"] == orjson.dumps(ticket["override"]).decode()
    detail = await dlq.acme.dead_letter(copy)
    assert (detail.edited_from, detail.state) == (dead_letter_id(dead), "replayed")
    assert detail.edited is not None
    assert (detail.edited.actor, detail.edited.note) == ("ann", "they have moved")
    assert detail.payload["target"]["http"]["url"] == "https://acme.example/v2"
    original = await dlq.acme.dead_letter(dead_letter_id(dead))
    assert (original.state, original.payload["target"]) == ("superseded", TARGET)


async def test_discarded_dead_letter_is_not_editable(dlq: DlqEnvironment) -> None:
    dead = await dlq.add_dead_run()
    await dlq.wait_for_dead_letters(1)
    await dlq.send_command("dlq.discard", dead_letter_id(dead))
    await dlq.next_response()

    assert await edit(dlq, dead_letter_id(dead), MOVED) == {dead_letter_id(dead): "not_editable"}
    assert await edit(dlq, UUID(int=1), MOVED) == {UUID(int=1): "not_found"}


async def test_edited_run_has_the_new_target_after_another_death(dlq: DlqEnvironment) -> None:
    dead = await dlq.add_dead_run()
    await dlq.wait_for_dead_letters(1)
    [copy] = await edit(dlq, dead_letter_id(dead), MOVED)
    await dlq.send_command("dlq.replay", copy)
    await dlq.next_response()
    second_death = await dlq.add_dead_run(replay_number=1)
    await dlq.wait_for_dead_letters(3)

    await dlq.send_command("dlq.replay", dead_letter_id(second_death))
    await dlq.next_response()

    tickets = await dlq.next_tickets(2)
    urls = {ticket["run_spec"]["target"]["http"]["url"] for ticket in tickets}
    assert urls == {"https://acme.example/v2"}
    assert (await dlq.run_row(second_death))["replay_number"] == 2
    assert RunKey.parse(dead.run_id) == RunKey.parse(second_death.run_id)


LITERALS = {
    "http": {
        "url": "https://shop:url-pass@acme.example/report",
        "headers": {"X-Api-Key": "literal", "X-Plain": "plain"},
    }
}
REDACTED = {
    "http": {
        "url": "https://***@acme.example/report",
        "headers": {"X-Api-Key": "***", "X-Plain": "plain"},
    }
}


@pytest.mark.requirement("P7")
async def test_edit_of_the_redacted_target_keeps_the_literal_secrets(dlq: DlqEnvironment) -> None:
    dead = await dlq.add_dead_run(target=LITERALS)
    await dlq.wait_for_dead_letters(1)
    moved = {"http": {**REDACTED["http"], "url": "https://***@acme.example/v2"}}

    [copy] = await edit(dlq, dead_letter_id(dead), moved)
    shown = (await dlq.acme.dead_letter(copy)).payload["target"]["http"]
    assert (shown["url"], shown["headers"]) == (moved["http"]["url"], moved["http"]["headers"])
    # an edit of the copy, which has its literal secrets in no view
    [second] = await edit(dlq, copy, {"http": {**moved["http"], "method": "PUT"}})
    await dlq.send_command("dlq.replay", second)
    await dlq.next_response()

    [ticket] = await dlq.next_tickets(1)
    http = ticket["run_spec"]["target"]["http"]
    assert http["url"] == "https://shop:url-pass@acme.example/v2"
    assert (http["method"], http["headers"]) == ("PUT", LITERALS["http"]["headers"])


@pytest.mark.requirement("P7")
async def test_replay_of_a_redacted_dead_letter_calls_the_target_of_the_version(
    dlq: DlqEnvironment,
) -> None:
    dead = await dlq.add_dead_run(target=LITERALS)
    await dlq.wait_for_dead_letters(1)

    await dlq.send_command("dlq.replay", dead_letter_id(dead))
    await dlq.next_response()

    [ticket] = await dlq.next_tickets(1)
    http = ticket["run_spec"]["target"]["http"]
    assert (http["url"], http["headers"]) == tuple(LITERALS["http"].values())


@pytest.mark.requirement("P7")
async def test_edit_rejects_a_redacted_value_without_an_original(dlq: DlqEnvironment) -> None:
    dead = await dlq.add_dead_run()
    await dlq.wait_for_dead_letters(1)
    target = {"http": {"url": "https://acme.example/v2", "headers": {"X-Api-Key": "***"}}}
    body = {"id": str(dead_letter_id(dead)), "target": target}

    await dlq.send_items("dlq.edit", AcceptedCommand(index=0, body=body))

    error = (await dlq.next_response())["error"]
    assert (error["code"], error["field"]) == ("redacted_value", "target.http.headers.X-Api-Key")
    assert (await dlq.acme.dead_letter(dead_letter_id(dead))).state == "open"


@pytest.mark.requirement("P7")
async def test_dead_letter_of_an_older_release_is_stored_and_shown_without_literal_secrets(
    dlq: DlqEnvironment,
) -> None:
    dead = await dlq.add_dead_run(target=LITERALS)
    body = orjson.dumps([{"run_spec": {"target": LITERALS}}])
    await dlq.publish("harebell.dead", "acme.schedule.put", body, None)
    old = dead.model_copy(update={"target": LITERALS, "replay_number": 1})
    await dlq.publish(
        "harebell.dead", "run.acme", orjson.dumps([old.model_dump(mode="json")]), "run.dead"
    )
    find = "SELECT payload::text, body FROM dead_letters"

    async def three_rows() -> list[asyncpg.Record]:
        rows = await dlq.database.fetch(find)
        return rows if len(rows) == 3 else []

    rows = await until(three_rows, within=TIMEOUT, what="three dead letters")
    stored = str([(row["payload"], row["body"]) for row in rows])
    assert "acme.example" in stored
    assert "url-pass" not in stored
    assert "literal" not in stored
