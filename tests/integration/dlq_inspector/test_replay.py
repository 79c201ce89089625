"""A letter is replayed exactly once, or is still on the desk, whatever comes in between."""

import asyncio
import os
import signal
import sys
from datetime import timedelta
from typing import Final

import pytest
from tests.integration.dlq_inspector.environment import PATIENCE, SCHEDULE, Office, dead_letter_id

from harebell.client import Client
from harebell.contract import amqp_names
from harebell.contract.accepted_commands import AcceptedCommand
from harebell.contract.ids import RunKey
from harebell.contract.responses import ErrorDetail, ErrorResponse
from harebell.messaging.topology.bus import DISPATCHER, DLQ
from harebell.runtime import failpoint

HOUR: Final = timedelta(hours=1)
BEFORE_COMMIT = "dlq_inspector.before_commit"


@pytest.mark.requirement("ASK-3")
async def test_a_replay_is_a_new_series_of_the_same_run(inspected: Office) -> None:
    dead = await inspected.run_dies()
    await inspected.kept(1)

    await inspected.command("dlq.replay", dead_letter_id(dead))

    assert await inspected.results() == {dead_letter_id(dead): "replayed"}
    run = await inspected.run(dead)
    assert (run["state"], run["seq"], run["replay_number"], run["attempt"]) == ("staged", 8, 1, 0)
    assert (run["reason"], run["finished_at"], run["due_at"]) == (None, None, dead.scheduled_for)
    # it had expired, and had been asked to stop: a person asks for it now
    assert (run["expires_at"], run["stop_requested_at"]) == (None, None)


@pytest.mark.requirement("ASK-3")
async def test_its_ticket_is_made_again_from_the_ledger_and_goes_to_due(inspected: Office) -> None:
    dead = await inspected.run_dies()
    await inspected.kept(1)

    await inspected.command("dlq.replay", dead_letter_id(dead))

    [ticket] = await inspected.tickets(1)
    assert (ticket["seq"], ticket["replay_number"], ticket["version"]) == (8, 1, 1)
    assert RunKey.parse(dead.run_id).schedule_id == dead.schedule_id
    assert ticket["run_spec"]["target"]["http"]["url"] == "https://acme.example/report"


@pytest.mark.requirement("S33")
async def test_a_replayed_run_is_an_open_run_of_its_schedule_again(inspected: Office) -> None:
    dead = await inspected.run_dies()
    await inspected.database.execute(
        """INSERT INTO schedule_state (schedule_id, version, state, changed_at, planned_until,
               dispatched, open_runs) VALUES ($1, 1, 'active', now(), now(), 1, $2)""",
        dead.schedule_id,
        [dead.scheduled_for - HOUR],
    )
    await inspected.kept(1)

    for _ in range(2):
        await inspected.command("dlq.replay", dead_letter_id(dead))
        await inspected.answer()

    open_runs = await inspected.database.fetchval(
        "SELECT open_runs FROM schedule_state WHERE schedule_id = $1", dead.schedule_id
    )
    assert open_runs == [dead.scheduled_for - HOUR, dead.scheduled_for]


async def test_who_dropped_a_letter_and_why_is_kept_with_it(inspected: Office) -> None:
    dead = await inspected.run_dies()
    await inspected.kept(1)

    await inspected.command("dlq.discard", dead_letter_id(dead))
    await inspected.answer()

    dropped = (await inspected.acme.dead_letter(dead_letter_id(dead)))["dropped"]
    assert (dropped["actor"], dropped["note"], bool(dropped["at"])) == (
        "ann",
        "after the fix",
        True,
    )


async def test_a_command_that_comes_twice_replays_once(inspected: Office) -> None:
    dead = await inspected.run_dies()
    await inspected.kept(1)

    for _ in range(2):
        await inspected.command("dlq.replay", dead_letter_id(dead))

    assert await inspected.results() == {dead_letter_id(dead): "replayed"}
    assert await inspected.results() == {dead_letter_id(dead): "already_replayed"}
    assert (await inspected.run(dead))["replay_number"] == 1
    whole = await inspected.acme.dead_letter(dead_letter_id(dead))
    [replay] = whole["replay_history"]
    assert (replay["replay_number"], replay["actor"], replay["note"]) == (1, "ann", "after the fix")
    assert (whole["state"], whole["run_state"], whole["replays"]) == ("replayed", "staged", 1)
    # told again, because it has not started: the same ticket, claimed once
    assert {ticket["seq"] for ticket in await inspected.tickets(2)} == {8}


@pytest.mark.requirement("S112")
async def test_a_replay_that_succeeds_is_resolved_and_one_that_dies_again_is_linked(
    inspected: Office,
) -> None:
    lucky, unlucky = await inspected.run_dies(1), await inspected.run_dies(2)
    await inspected.kept(2)
    await inspected.command("dlq.replay", dead_letter_id(lucky), dead_letter_id(unlucky))
    await inspected.answer()

    await inspected.run_becomes("succeeded", RunKey.parse(lucky.run_id))
    again = await inspected.run_dies(2, replay_number=1)
    await inspected.kept(3)

    states = {letter["id"]: letter["state"] for letter in await inspected.kept(3)}
    assert states == {
        str(dead_letter_id(lucky)): "resolved",
        str(dead_letter_id(unlucky)): "replayed",
        str(dead_letter_id(again)): "open",
    }
    whole = await inspected.acme.dead_letter(dead_letter_id(again))
    assert (whole["root_id"], whole["replays"]) == (str(dead_letter_id(unlucky)), 1)
    assert [replay["run_state"] for replay in whole["replay_history"]] == ["dead"]
    await inspected.command("dlq.replay", dead_letter_id(again))
    assert await inspected.results() == {dead_letter_id(again): "replayed"}


async def test_a_dropped_letter_leaves_the_desk_and_stays_on_record(inspected: Office) -> None:
    dead = await inspected.run_dies()
    await inspected.kept(1)

    for verb in ("dlq.discard", "dlq.discard", "dlq.replay"):
        await inspected.command(verb, dead_letter_id(dead))

    statuses = [(await inspected.results())[dead_letter_id(dead)] for _ in range(3)]
    assert statuses == ["dropped", "dropped", "not_replayable"]
    assert [row async for row in inspected.acme.dead_letters()] == []
    assert (await inspected.acme.dead_letter(dead_letter_id(dead)))["state"] == "dropped"
    assert (await inspected.run(dead))["state"] == "dead"


async def test_a_letter_of_another_tenant_is_not_found(inspected: Office) -> None:
    dead = await inspected.run_dies()
    await inspected.kept(1)

    for verb in ("dlq.replay", "dlq.discard"):
        await inspected.command(verb, dead_letter_id(dead), SCHEDULE, tenant="other")

    expected = {dead_letter_id(dead): "not_found", SCHEDULE: "not_found"}
    assert await inspected.results() == await inspected.results() == expected
    assert (await inspected.run(dead))["state"] == "dead"


async def test_neither_a_message_nor_a_run_that_is_not_dead_can_be_replayed(
    inspected: Office,
) -> None:
    dead = await inspected.run_dies()
    await inspected.run_becomes("succeeded", RunKey.parse(dead.run_id))
    await inspected.publish(amqp_names.DEAD, "x", b"rubbish", None)
    async with Client.connect(inspected.settings.amqp_url.get_secret_value()) as default:
        [message] = await inspected.kept(1, default)
        await inspected.kept(1)

    await inspected.command("dlq.replay", dead_letter_id(dead))
    await inspected.command("dlq.replay", message["id"], tenant="default")

    assert [*(await inspected.results()).values()] == ["not_replayable"]
    assert [*(await inspected.results()).values()] == ["not_replayable"]


async def test_every_item_of_an_array_is_answered_in_its_place(inspected: Office) -> None:
    dead = await inspected.run_dies()
    await inspected.kept(1)
    refused = ErrorResponse(error=ErrorDetail(code="foreign_tenant", reason="no"))

    await inspected.change(
        "dlq.replay",
        AcceptedCommand(index=0, rejection=refused),
        AcceptedCommand(index=1, body={"ids": [str(dead_letter_id(dead))]}),
        AcceptedCommand(index=2, body={"ids": "all"}),
        single=False,
    )

    first, second, third = await inspected.answer()
    assert first["error"]["code"] == "foreign_tenant"
    assert second["results"] == {str(dead_letter_id(dead)): "replayed"}
    assert third["error"]["field"] == "[2].ids"


async def test_a_fault_before_the_commit_replays_once_in_the_end(inspected: Office) -> None:
    dead = await inspected.run_dies()
    await inspected.kept(1)

    failpoint.arm(failpoint.Failpoint(BEFORE_COMMIT, "raise"))
    await inspected.command("dlq.replay", dead_letter_id(dead))
    await inspected.tickets(1)
    assert (await inspected.run(dead))["state"] == "dead"  # a ticket without authority
    failpoint.arm(None)

    assert await inspected.results() == {dead_letter_id(dead): "replayed"}
    run = await inspected.run(dead)
    assert (run["seq"], run["replay_number"]) == (8, 1)


async def test_an_inspector_killed_before_the_commit_leaves_the_letter_on_the_desk(
    office: Office,
) -> None:
    dead = await office.run_dies()
    async with office.inspector():
        await office.kept(1)
    await office.command("dlq.replay", dead_letter_id(dead))

    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "harebell.dlq_inspector"),
        env={**office.environment(), "HAREBELL_FAILPOINT": f"{BEFORE_COMMIT}:kill"},
    )
    async with asyncio.timeout(PATIENCE):
        assert await process.wait() == -signal.SIGKILL

    assert (await office.run(dead))["state"] == "dead"
    async with office.inspector():
        assert await office.results() == {dead_letter_id(dead): "replayed"}
        assert (await office.run(dead))["replay_number"] == 1


async def test_what_cannot_be_published_is_not_replayed_until_it_can(inspected: Office) -> None:
    dead = await inspected.run_dies()
    await inspected.kept(1)
    dispatcher = await inspected.channel.get_queue(DISPATCHER.name, ensure=False)
    await dispatcher.unbind(amqp_names.DUE, "#")

    await inspected.command("dlq.replay", dead_letter_id(dead))
    await inspected.is_empty(DLQ.name)  # the inspector has it in hand
    assert (await inspected.run(dead))["state"] == "dead"
    await dispatcher.bind(amqp_names.DUE, "#")

    assert await inspected.results() == {dead_letter_id(dead): "replayed"}


async def test_the_service_stops_on_sigterm_with_nothing_undone(office: Office) -> None:
    dead = await office.run_dies()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "harebell.dlq_inspector"), env=office.environment()
    )
    await office.kept(1)
    await office.command("dlq.replay", dead_letter_id(dead))
    assert await office.results() == {dead_letter_id(dead): "replayed"}

    process.terminate()

    async with asyncio.timeout(PATIENCE):
        assert await process.wait() == os.EX_OK
